//! Uploads: a walk here fills the queue.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use headroom_mutex::lock;
use headroom_transfer_proto::message::TreeOptions;
use headroom_transfer_proto::path::RelPath;
use tokio::runtime::Handle;
use tokio::task::spawn_blocking;

use super::batch::Batcher;
use super::large::LargeFile;
use super::queue::{Batch, Queue};
use super::record::Last;
use super::servers::{Servers, SpreadObserver, finish, is_divided};
use super::session::{Job, Phase};
use crate::client::{Client, SyncOptions, names_contents, names_directory};
use crate::delivery::{Event, Summary};
use crate::error::Error;
use crate::files::{Excludes, Found, Keep, Links, Remaining, Source, SourceKind};

impl<O: SpreadObserver + 'static> Servers<'_, O> {
    /// Sends files and directories as [`Client::put`] does, spread over all servers. Large files are
    /// divided ([`Self::range_bytes`]) if the servers have an object store, or there is one server;
    /// any other single file is sent to one server. `tree` has the options that `connect` sets.
    ///
    /// # Errors
    /// As those of [`Client::put`], once no server is left. A single directory needs a destination
    /// that ends with `/`: whether `to` is the directory's name or the place for it, servers would
    /// decide one after the other, and differently ([`Error::Usage`]).
    pub async fn put(
        &self,
        paths: &[PathBuf],
        to: &[u8],
        tree: TreeOptions,
        fsync: bool,
    ) -> Result<Summary, Error> {
        if let [path] = paths {
            if !path.symlink_metadata().is_ok_and(|metadata| metadata.is_dir()) {
                if let Some(large) = self.single(path).filter(|_| !tree.changing) {
                    return self.put_divided(paths, large, to, fsync).await;
                }
                let put = async |mut client: Client| {
                    let done = client.put(paths, to, fsync, self.observer.clone()).await;
                    finish(client, done).await
                };
                return self.with_one(put).await;
            }
            if !names_contents(path.as_os_str().as_bytes()) && !names_directory(to) {
                return Err(Error::Usage(format!(
                    "with several servers or lanes a directory needs a destination that ends with a slash: write HOSTS:PATH/ to store {} in PATH, or {}/. to store what is in it as PATH",
                    path.display(),
                    path.display()
                )));
            }
        }
        let phase = Phase::new(self, Job::Put { to }, fsync);
        phase.run(self.walk(&phase, paths, tree, Excludes::none())).await?;
        let remaining = Arc::new(phase.take_remaining());
        let last = self.last(&phase);
        let put = async |mut client: Client| {
            let remaining = Arc::clone(&remaining);
            let done = client.put_rest(paths, to, remaining, fsync, last.clone()).await;
            finish(client, done).await
        };
        let summary = self.by_any(Some(&phase.gone()), put).await?;
        let totals = phase.totals();
        Ok(match remaining.is_all() {
            true => totals.of_whole(summary),
            false => totals.of_copy(summary),
        })
    }

    /// Returns the single file of an upload, if it is divided.
    fn single(&self, path: &Path) -> Option<LargeFile> {
        let metadata = path.symlink_metadata().ok().filter(std::fs::Metadata::is_file)?;
        let (from, name) = base(path)?;
        let name = RelPath::single(&name?).ok()?;
        let large = LargeFile {
            alone_as: Some(name.clone()),
            ..LargeFile::new((&Arc::from(from), None), name, metadata.len(), true)
        };
        self.divides(large.size).then_some(large)
    }

    /// Sends a single file that is divided; if that fails, whole.
    async fn put_divided(
        &self,
        paths: &[PathBuf],
        large: LargeFile,
        to: &[u8],
        fsync: bool,
    ) -> Result<Summary, Error> {
        let phase = Phase::new(self, Job::Put { to }, fsync);
        if phase.copy_divided(large).await? {
            return Ok(phase.totals().of_copy(Summary::default()));
        }
        let put = async |mut client: Client| {
            let done = client.put(paths, to, fsync, self.observer.clone()).await;
            finish(client, done).await
        };
        let whole = self.by_any(Some(&phase.gone()), put).await?;
        Ok(phase.totals().of_copy(whole))
    }

    /// Makes the content of the directory `to` that of `from`, as [`Client::sync_to`] does, spread
    /// over all servers. Removals, and in a dry run everything, are those of one server.
    ///
    /// # Errors
    /// As those of [`Client::sync_to`], once no server is left.
    pub async fn sync_to(
        &self,
        from: &Path,
        to: &[u8],
        tree: TreeOptions,
        options: &SyncOptions,
    ) -> Result<Summary, Error> {
        if options.dry_run {
            let sync = async |mut client: Client| {
                let done = client.sync_to(from, to, options, self.observer.clone()).await;
                finish(client, done).await
            };
            return self.with_one(sync).await;
        }
        let phase = Phase::new(self, Job::SyncTo { to }, options.fsync);
        let paths = [from.join(".")];
        phase.run(self.walk(&phase, &paths, tree, options.excludes.clone())).await?;
        let last = self.last(&phase);
        let sync = async |mut client: Client| {
            let done = client.sync_to(from, to, options, last.clone()).await;
            finish(client, done).await
        };
        let summary = self.by_any(Some(&phase.gone()), sync).await?;
        Ok(phase.totals().of_sync(summary))
    }

    /// Makes the observer of the last request.
    pub(super) fn last(&self, phase: &Phase<'_, '_, O>) -> Arc<Last<O>> {
        let (observer, told) = (Arc::clone(&self.observer), Arc::clone(&phase.told));
        Arc::new(Last { observer, told, directory: None })
    }

    /// Fills the queue with what a walk finds.
    async fn walk(
        &self,
        phase: &Phase<'_, '_, O>,
        paths: &[PathBuf],
        tree: TreeOptions,
        excludes: Excludes,
    ) {
        let walk = Walk {
            paths: paths.to_vec(),
            links: tree.links,
            leaves_linked: tree.keep.has(Keep::HARD_LINKS),
            excludes: Arc::new(excludes),
            sessions: self.sessions(),
            range_bytes: self.range_bytes,
            queue: Arc::clone(&phase.queue),
            remaining: Arc::clone(&phase.remaining),
            observer: Arc::clone(&self.observer),
        };
        let remaining = Arc::clone(&phase.remaining);
        if spawn_blocking(move || walk.run()).await.is_err() {
            // what it has not found is left to the last request
            lock(&remaining).add_all();
        }
        phase.queue.filled();
    }
}

/// A walk through the sources of an upload.
struct Walk<O> {
    paths: Vec<PathBuf>,
    links: Links,
    /// Whether files with hard links are left to the last request, which keeps the links.
    leaves_linked: bool,
    excludes: Arc<Excludes>,
    sessions: usize,
    /// The least bytes of a range of a file that is divided.
    range_bytes: u64,
    queue: Arc<Queue>,
    remaining: Arc<Mutex<Remaining>>,
    observer: Arc<O>,
}

impl<O: SpreadObserver> Walk<O> {
    /// Fills the queue. What cannot be read is left to the last request, which reports it.
    fn run(self) {
        let mut batcher = Batcher::new(self.sessions);
        let mut names = HashSet::new();
        for path in &self.paths {
            let base = base(path);
            // the last request reports a second source of the same name
            if let Some((_, Some(name))) = &base
                && !names.insert(name.clone())
            {
                continue;
            }
            let from = base.map(|(from, _)| Arc::<Path>::from(from));
            let source = Source::new([path.clone()], self.links);
            for found in source.without(Arc::clone(&self.excludes)) {
                let Ok(Found { path, kind: SourceKind::File(file), .. }) = found else { continue };
                let metadata = file.metadata();
                let is_left = self.leaves_linked && metadata.links > 1;
                let Some(from) = from.as_ref().filter(|_| !is_left) else {
                    lock(&self.remaining).add(&path);
                    // the last request's own offers are not passed on
                    batcher.pass(metadata.size);
                    self.observer.event(Event::Offered { bytes: metadata.size });
                    continue;
                };
                if is_divided(metadata.size, self.sessions, self.range_bytes) {
                    batcher.pass(metadata.size);
                    let large = LargeFile::new((from, None), path, metadata.size, false);
                    self.queue.add_large(vec![large]);
                    continue;
                }
                if let Some(files) = batcher.add(path, metadata.size)
                    && !self.add(from, files)
                {
                    return;
                }
            }
            let files = batcher.take();
            if let Some(from) = &from
                && !files.is_empty()
                && !self.add(from, files)
            {
                return;
            }
        }
        let (files, bytes) = batcher.seen();
        self.observer.event(Event::AllOffered { files, bytes });
    }

    /// Adds a batch, when there is room; returns whether the walk continues.
    fn add(&self, from: &Arc<Path>, files: Vec<(RelPath, u64)>) -> bool {
        let batch = Batch { from: Arc::clone(from), directory: None, files, is_named: false };
        Handle::current().block_on(self.queue.add(batch))
    }
}

/// Returns the directory below which a source is found under the name by which it is sent, and that
/// name; without a name, its content is sent. `None` if the path does not have the name.
fn base(path: &Path) -> Option<(PathBuf, Option<Vec<u8>>)> {
    let bytes = path.as_os_str().as_bytes();
    let end = bytes.iter().rposition(|byte| *byte != b'/').map_or(0, |at| at + 1);
    let start = bytes[..end].iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
    match &bytes[start..end] {
        b"" | b"." => Some((path.to_owned(), None)),
        b".." => None,
        name => {
            let above = if start == 0 { &b"."[..] } else { &bytes[..start] };
            Some((OsStr::from_bytes(above).into(), Some(name.to_vec())))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_found_below_their_parents_under_their_names() {
        for (path, from, name) in [
            ("photos", ".", Some("photos")),
            ("photos/", ".", Some("photos")),
            ("a/photos//", "a/", Some("photos")),
            ("/photos", "/", Some("photos")),
            ("../photos", "../", Some("photos")),
            ("photos/.", "photos/.", None),
            (".", ".", None),
            ("/", "/", None),
        ] {
            let found = base(Path::new(path)).expect(path);
            let expected = (PathBuf::from(from), name.map(|name| name.as_bytes().to_vec()));
            assert_eq!(found, expected, "{path}");
        }
        assert_eq!(base(Path::new("photos/..")), None);
    }
}
