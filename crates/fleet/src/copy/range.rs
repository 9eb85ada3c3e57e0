//! Copies a range of a large file into the partial file that other workers write other ranges
//! into, or as parts of the upload that they store other parts of.
//!
//! The file itself is an item that comes afterwards. Its transfer finds in the partial file or the
//! upload what the ranges have brought, compares every span of that with the source's, sends what
//! differs or is missing, and stores the file. So a range that was lost, is not what it should be
//! or could not be copied at all costs time and nothing else.

use std::collections::HashSet;
use std::sync::Arc;

use headroom_transfer::files::{self, FileType, Metadata, Root};
use headroom_transfer::path::RelPath;
use headroom_transfer::{Client, DividedFile, Error, FileVersion, ListedKind};

use super::{Prepared, Rules, is_about_files, make_parents, prepare_entry};
use crate::ends::{blocking, on_server};
use crate::entry::Entry;
use crate::ledger::{Ledger, Noting};

/// A range of a file.
pub(super) struct FileRange<'a> {
    pub(super) rules: Rules,
    /// The directory below the root of the source's server.
    pub(super) from: &'a [u8],
    pub(super) root: &'a Root,
    pub(super) file: &'a Entry,
    /// Which range of the file it is.
    pub(super) index: u32,
}

impl FileRange<'_> {
    /// Copies it, and notes whether it has ended.
    ///
    /// # Errors
    /// A request failed as a whole, as [`super::copy`] says.
    pub(super) async fn copy(self, client: &mut Client, ledger: &Arc<Ledger>) -> Result<(), Error> {
        match self.fetch(client, ledger).await {
            Ok(Ended::Here | Ended::LeftToFile) => ledger.range_ended(),
            Ok(Ended::Failed(reason)) => ledger.failed(&reason, None),
            Err(error) if is_about_files(&error) => {
                ledger.failed(&error.to_string(), error.code());
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    async fn fetch(&self, client: &mut Client, ledger: &Arc<Ledger>) -> Result<Ended, Error> {
        let Self { rules, root, file, .. } = *self;
        let (there, entry) = (root.clone(), file.clone());
        let prepare = move || -> Result<Prepared, files::Error> {
            make_parents(&there, &entry.path, &mut HashSet::new())?;
            prepare_entry(rules, &there, &entry)
        };
        if blocking(prepare).await?? != Prepared::Wanted {
            return Ok(Ended::Here);
        }
        let (directory, name) = (file.path.parent(), file.path.name());
        let Ok(name) = RelPath::single(name) else { return Ok(Ended::LeftToFile) };
        // of another size the ranges are others, too
        let found = version_on_server(client, self.from, &file.path).await?;
        let Some((version, mode)) = found.filter(|(version, _)| version.size == file.size()) else {
            return Ok(Ended::LeftToFile);
        };
        let (there, below, named) = (root.clone(), directory.clone(), name.clone());
        let (bytes, server) = (file.range(self.index), client.address().to_string());
        let whole = file.path.clone();
        let begin = move || -> Result<_, files::Error> {
            // stored already, if the lease of this range has ended; otherwise its transfer compares
            if is_at(&there, &whole, version)? {
                return Ok(None);
            }
            let root = match &below {
                Some(directory) => there.below(directory)?,
                None => there,
            };
            DividedFile::begin_part(&root, &named, (version, &server), mode, bytes)
        };
        let Some(part) = blocking(begin).await?? else { return Ok(Ended::LeftToFile) };
        // of a small range no part of an upload may be left
        if !part.has_left() {
            return Ok(Ended::Here);
        }
        let noting = Noting { ledger: Arc::clone(ledger), directory: directory.clone() };
        let place = (directory.as_ref(), &name);
        let got = client.get_ranges(self.from, place, &part, Arc::new(noting)).await?;
        if got.is_none() {
            // a server of an older version
            return Ok(Ended::LeftToFile);
        }
        if !part.is_complete() {
            let nameless = || format!("a range of {} has not arrived", file.path);
            return Ok(Ended::Failed(part.failure().unwrap_or_else(nameless)));
        }
        blocking(move || part.finish_part(rules.fsync)).await??;
        Ok(Ended::Here)
    }
}

/// Asks a server for the version of a file and its mode: a listing of a store knows no times of
/// files. `None` if there is no such file, or it cannot be read: its own item says so.
pub(super) async fn version_on_server(
    client: &mut Client,
    directory: &[u8],
    path: &RelPath,
) -> Result<Option<(FileVersion, u32)>, Error> {
    let mut version = None;
    let place = on_server(directory, path);
    let listing = client.list(&place, |listed| {
        let is_it = listed.path.as_bytes() == path.name() && listed.kind == ListedKind::File;
        let of_file = FileVersion { size: listed.size, mtime: listed.mtime };
        version = is_it.then_some((of_file, listed.mode));
    });
    let listed = listing.await;
    match listed {
        Err(error) if !is_about_files(&error) => Err(error),
        Err(_) => Ok(None),
        Ok(()) => Ok(version),
    }
}

/// Whether the destination has a file of the size and time of this version.
fn is_at(root: &Root, path: &RelPath, version: FileVersion) -> Result<bool, files::Error> {
    let is_it = |here: Metadata| {
        here.file_type == FileType::File
            && FileVersion { size: here.size, mtime: here.mtime } == version
    };
    Ok(root.look(path)?.is_some_and(is_it))
}

/// How a range has ended.
enum Ended {
    /// It is at the destination.
    Here,
    /// The transfer of the file copies it, or says why that is not possible.
    LeftToFile,
    /// It failed, for this reason: a sentence.
    Failed(String),
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::unix::fs::{FileExt, MetadataExt};
    use std::path::{Path, PathBuf};

    use headroom_transfer::{Host, Time};

    use super::*;
    use crate::copy::copy;
    use crate::ends::{self, OwnServer};
    use crate::engine::{Item, Lease, Step};
    use crate::entry::Kind;
    use crate::job::Job;
    use crate::ledger::Sorted;

    /// A job from one folder to another one, with a file of 5 MiB, less a little, in three ranges.
    struct Ground {
        folder: tempfile::TempDir,
        /// What serves the destination, if workers do not write it by themselves.
        server: Option<OwnServer>,
        job: Job,
        file: Entry,
        content: Vec<u8>,
    }

    impl Ground {
        fn new(settings: &str) -> Self {
            Self::of("to", settings)
        }

        /// A job to a server.
        fn to_server(settings: &str) -> Self {
            let mut ground = Self::of("server:to", settings);
            let root = Root::open(ground.folder.path()).expect("a folder");
            ground.server = Some(OwnServer::start(root).expect("a port"));
            ground
        }

        fn of(to: &str, settings: &str) -> Self {
            let folder = tempfile::tempdir().expect("a folder");
            for name in ["from/deep", "to"] {
                fs::create_dir_all(folder.path().join(name)).expect("a folder");
            }
            let text = format!("name = \"job\"\nfrom = \"from\"\nto = \"{to}\"\n{settings}\n");
            fs::write(folder.path().join("job.toml"), text).expect("a file");
            let job = Job::read(&folder.path().join("job.toml")).expect("a job");
            let content: Vec<_> = (0..(5 << 20) - 7).map(|n| (n / 1000 % 251) as u8 + 1).collect();
            let source = folder.path().join("from/deep/big");
            fs::write(&source, &content).expect("a file");
            let meta = fs::metadata(&source).expect("it is there");
            let nanoseconds = u32::try_from(meta.mtime_nsec()).expect("less than a second");
            let mtime = Time { seconds: meta.mtime(), nanoseconds };
            let kind = Kind::File { size: meta.len(), mode: 0o644, mtime, ranges: 3 };
            let path = RelPath::parse(b"deep/big").expect("a path");
            Self { folder, server: None, job, file: Entry { number: 7, path, kind }, content }
        }

        fn to(&self) -> PathBuf {
            self.folder.path().join("to/deep")
        }

        /// Does what a worker does that has just started, and says what is recorded.
        async fn work(&self, step: Step) -> Sorted {
            self.work_on(step, false).await
        }

        async fn work_on(&self, step: Step, was_taken: bool) -> Sorted {
            let connect = async |_: &Host| match &self.server {
                Some(server) => server.connect().await,
                None => Err(Error::Usage("no server".to_owned())),
            };
            let opened = ends::open(&self.job.direction, connect).await;
            let (route, mut dialer) = opened.expect("it opens");
            let mut clients = dialer.connect().await.expect("a connection");
            if step != Step::Copy && self.server.is_none() {
                clients.source = Some(dialer.connect_to_source().await.expect("a connection"));
            }
            let lease = Lease { item: 1, take: 1 };
            let item = Item { lease, step, was_taken, entries: vec![self.file.clone()] };
            let ledger = Ledger::new(Arc::default());
            let copied = copy(&self.job, &route, &mut clients, &item, &ledger).await;
            copied.expect("no request fails");
            clients.close().await;
            ledger.sorted(item.entries)
        }

        async fn range(&self, index: u32) {
            let sorted = self.work(Step::Range(index)).await;
            assert!(sorted.copied.is_empty() && sorted.left.is_empty(), "{:?}", sorted.reason);
        }

        /// Copies the file itself, which is whole then.
        async fn finish(&self) {
            let Sorted { copied, left, reason, .. } = self.work(Step::Copy).await;
            assert!(left.is_empty(), "{reason:?}");
            assert_eq!((copied.len(), copied[0].number), (1, 7));
            assert!(copied[0].hash.is_some() && copied[0].size == self.file.size());
            assert_eq!(only_file(&self.to()).file_name(), Some("big".as_ref()));
            assert_eq!(fs::read(self.to().join("big")).expect("a file"), self.content);
        }
    }

    fn only_file(folder: &Path) -> PathBuf {
        let found = fs::read_dir(folder).expect("a folder");
        let mut found = found.map(|entry| entry.expect("an entry").path());
        let (file, other) = (found.next().expect("a file"), found.next());
        assert_eq!(other, None);
        file
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn two_workers_share_a_file_and_what_a_third_lost_or_lied_about_is_found() {
        let ground = Ground::new("fsync = true");
        tokio::join!(ground.range(0), ground.range(1));
        // again, as after a lease that has ended
        ground.range(1).await;
        let partial = only_file(&ground.to());
        assert_ne!(partial.file_name(), Some("big".as_ref()));
        let arrived = fs::read(&partial).expect("a file");
        let (here, lost) = arrived.split_at(4 << 20);
        assert!(here == &ground.content[..4 << 20] && lost.iter().all(|byte| *byte == 0));
        assert_eq!(arrived.len(), ground.content.len());
        // the third range was never written, whatever its worker has said; the first is another
        let lie = File::options().write(true).open(&partial).expect("a file");
        lie.write_all_at(b"a lie", 1_500_000).expect("room");
        drop(lie);
        ground.finish().await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn workers_share_a_file_that_goes_to_a_server_and_another_one_completes_it() {
        for mode in ["copy", "sync"] {
            let ground = Ground::to_server(&format!("mode = \"{mode}\"\nfsync = true"));
            tokio::join!(ground.range(0), ground.range(1));
            // again, as after a lease that has ended
            ground.range(1).await;
            let partial = only_file(&ground.to());
            assert_ne!(partial.file_name(), Some("big".as_ref()), "{mode}");
            let arrived = fs::read(&partial).expect("a file");
            assert_eq!(arrived.len(), ground.content.len());
            assert!(arrived[..4 << 20] == ground.content[..4 << 20], "{mode}");
            // the third range was never sent, whatever its worker has said
            ground.finish().await;
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_sync_sends_no_range_of_a_file_of_which_the_server_has_an_older_version() {
        let ground = Ground::to_server("mode = \"sync\"");
        fs::create_dir(ground.to()).expect("a folder");
        let old = [&b"ten bytes."[..], ground.content.as_slice()].concat();
        fs::write(ground.to().join("big"), old).expect("a file");
        ground.range(0).await;
        assert_eq!(only_file(&ground.to()).file_name(), Some("big".as_ref()));
        ground.finish().await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_sync_replaces_a_file_by_the_directory_that_a_large_file_is_in() {
        let ground = Ground::to_server("mode = \"sync\"");
        fs::write(ground.to(), "a file").expect("a file");
        ground.range(0).await;
        ground.finish().await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_file_that_nobody_has_copied_a_range_of_is_copied_whole() {
        for ground in [Ground::new(""), Ground::to_server("")] {
            ground.finish().await;
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_range_of_a_file_that_has_changed_or_vanished_is_left_to_the_file() {
        for ground in [Ground::new(""), Ground::to_server("")] {
            let source = ground.folder.path().join("from/deep/big");
            File::options().append(true).open(&source).expect("a file").set_len(7).expect("less");
            ground.range(0).await;
            fs::remove_file(&source).expect("it is there");
            ground.range(1).await;
            assert_eq!(fs::read_dir(ground.to()).map_or(0, Iterator::count), 0);
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_range_that_cannot_be_stored_fails_with_its_reason() {
        let ground = Ground::new("");
        fs::create_dir_all(ground.to().join("big/precious")).expect("a folder");
        let Sorted { copied, left, reason, .. } = ground.work(Step::Range(0)).await;
        assert_eq!((copied.len(), left), (0, vec![ground.file.clone()]));
        assert!(reason.as_ref().is_some_and(|it| it.contains("a directory is here")), "{reason:?}");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_file_that_a_killed_worker_may_have_stored_is_compared_by_its_hash() {
        let sync = "mode = \"sync\"";
        for ground in [Ground::new(sync), Ground::to_server(sync)] {
            let stored = ground.work(Step::Copy).await.copied;
            assert!(stored[0].hash.is_some());
            let found = ground.work(Step::Copy).await.copied;
            assert_eq!((found.len(), found[0].hash), (1, None));
            assert_eq!(ground.work_on(Step::Copy, true).await.copied, stored);
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn no_range_is_fetched_of_a_file_that_is_there() {
        for mode in ["copy", "sync"] {
            let mode = format!("mode = \"{mode}\"");
            for ground in [Ground::new(&mode), Ground::to_server(&mode)] {
                ground.finish().await;
                ground.range(0).await;
                assert_eq!(only_file(&ground.to()).file_name(), Some("big".as_ref()), "{mode}");
            }
        }
    }
}
