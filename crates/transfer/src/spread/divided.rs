//! Files that are fetched from all servers: each is asked for ranges of its own.

use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use headroom_transfer_proto::message::{Listed, ListedKind};
use headroom_transfer_proto::path::RelPath;
use tokio::task::spawn_blocking;

use super::large::{BegunFile, Divided, LargeFile};
use super::queue::{Batch, Work};
use super::record::Record;
use super::servers::{Returned, Servers, SpreadObserver, is_divided};
use super::session::{Job, Phase, is_about_files};
use crate::client::Client;
use crate::delivery::{DividedFile, Event, FileVersion, StoredWhole, Summary};
use crate::error::Error;
use crate::files::{self, ErrorKind, Root};

impl<O> Servers<'_, O> {
    /// Whether a file of this size in bytes is divided.
    pub(super) const fn divides(&self, size: u64) -> bool {
        is_divided(size, self.sessions(), self.range_bytes)
    }
}

impl<O: SpreadObserver + 'static> Phase<'_, '_, O> {
    /// Copies a single file in ranges. Returns whether it is stored: if not, the whole file is left
    /// to copy.
    ///
    /// # Errors
    /// As those of [`Phase::run`].
    pub(super) async fn copy_divided(&self, large: LargeFile) -> Result<bool, Error> {
        self.servers.observer.event(Event::AllOffered { files: 1, bytes: large.size });
        self.queue.add_large(vec![large]);
        self.queue.fill(Vec::new(), Vec::new());
        self.run(async {}).await?;
        Ok(self.totals().stored() > 0)
    }

    /// Begins a file that all servers are then asked for, in the version that this server has. If
    /// it cannot be begun, it is fetched whole: that request reports why, unless the file only has
    /// too many ranges.
    ///
    /// # Errors
    /// The server is lost, or refuses.
    pub(super) async fn begin_large(
        &self,
        client: &mut Client,
        large: LargeFile,
    ) -> Result<Option<Arc<BegunFile>>, Error> {
        let gone = client.gone();
        let looking = look(client, &large);
        let looked = tokio::select! {
            looked = looking => looked,
            error = gone => Err(error),
        };
        let version = match looked {
            Ok(version) => version.filter(|version| self.servers.divides(version.size)),
            Err(error) if is_about_files(&error) => None,
            Err(error) => {
                self.queue.put_back(Work::Begin(large));
                return Err(error);
            }
        };
        let named_by = client.address().to_string();
        let begun = match (version, self.job) {
            (Some(version), Job::Get { to, .. }) => {
                let (root, large) = (to.clone(), large.clone());
                let how = (self.servers.sessions(), self.servers.range_bytes);
                let begin = move || begin(&root, &large, (version, &*named_by), how);
                let begun = spawn_blocking(begin).await;
                if let Ok(Err(error)) = &begun
                    && matches!(error.kind(), ErrorKind::TooLargeForRanges(_))
                {
                    self.servers.observer.event(Event::Warning { reason: &error.to_string() });
                }
                begun.ok().and_then(Result::ok).flatten()
            }
            _ => None,
        };
        let Some((file, version)) = begun.zip(version) else {
            self.queue.put_back(Work::Copy(Batch::of_large(large)));
            return Ok(None);
        };
        let large = LargeFile { size: version.size, ..large };
        self.servers.observer.event(Event::Offered { bytes: large.size });
        self.servers.observer.event(Event::Begun { path: &large.path() });
        let open = Arc::new(BegunFile::new(large, Divided::Fetched(file)));
        self.queue.opened(Arc::clone(&open));
        Ok(Some(open))
    }

    /// Fetches ranges of a file by one server, as long as there are some. Returns whether the
    /// server sends ranges.
    ///
    /// # Errors
    /// The server is lost, or refuses.
    pub(super) async fn fetch_ranges(
        &self,
        client: &mut Client,
        open: Arc<BegunFile>,
        file: &Arc<DividedFile>,
    ) -> Result<bool, Error> {
        client.limit(self.share_bps());
        let observer = Arc::clone(&self.servers.observer);
        let record = Record::new(observer, Arc::clone(&self.told), None, &[]);
        let from = open.large.from.as_os_str().as_bytes();
        let place = (open.large.directory_path(), &open.large.name);
        let gone = client.gone();
        let (part, leaving) = file.join(client.address().to_string());
        let fetching = client.get_part(from, place, part, record.clone());
        let fetched = tokio::select! {
            fetched = fetching => fetched,
            error = gone => Err(error),
        };
        // others are asked for what it has not completed as soon as nothing of that is written
        leaving.ended().await;
        let done = record.end().done;
        open.add_done(done);
        let (moved, outcome) = match fetched {
            Ok(Some(summary)) => (summary, Ok(true)),
            Ok(None) => (Summary::default(), Ok(false)),
            Err(error) if is_about_files(&error) => {
                let (path, server) = (open.large.path(), client.address());
                file.fail(format!("{path} cannot be divided because of {server}: {error}"));
                (Summary { moved: done, ..Summary::default() }, Ok(true))
            }
            Err(error) => (Summary { moved: done, ..Summary::default() }, Err(error)),
        };
        self.totals().add_ranges(client.address(), &moved);
        let left = match self.queue.leave(&open) {
            true => self.settle_large(open, file).await,
            false => None,
        };
        self.queue.end_ranges(left);
        outcome
    }

    /// Leaves a file to a request that copies it whole, or completes its upload: no server that takes
    /// part is connected.
    pub(super) fn abandon_large(&self, open: Arc<BegunFile>) {
        let path = open.large.path();
        let reason = format!("no server that takes ranges of {path} is connected");
        open.fail(reason.clone());
        if let Divided::Sent(upload) = &open.file
            && upload.is_begun()
        {
            let upload = Arc::clone(upload);
            return self.queue.put_back(Work::Complete(open, upload));
        }
        let left = self.give_up_large(open, Some(&reason));
        self.queue.end_ranges(Some(left));
    }

    /// Returns the request that copies a file whole, whatever was copied of it. Warns if there is a
    /// reason.
    pub(super) fn give_up_large(&self, open: Arc<BegunFile>, reason: Option<&str>) -> Batch {
        if let Some(reason) = reason {
            let way = match &open.file {
                Divided::Fetched(_) => "fetched whole from",
                Divided::Sent(_) => "sent whole to",
            };
            let reason = format!("{reason}. It is {way} one server");
            self.servers.observer.event(Event::Warning { reason: &reason });
        }
        let large = open.large.clone();
        self.servers.observer.returned(Returned {
            files: 1,
            offered: large.size,
            done: open.done(),
        });
        // the request that fetches it needs the lock of the partial file
        drop(open);
        Batch::of_large(large)
    }

    /// Stores a file whose ranges are complete. Returns the request that fetches it whole, if it
    /// cannot be divided or stored.
    async fn settle_large(&self, open: Arc<BegunFile>, file: &Arc<DividedFile>) -> Option<Batch> {
        let reason = match file.failure() {
            Some(reason) => reason,
            None => match finish(file, self.fsync).await {
                Ok(stored) => {
                    self.note_stored(&open.large, stored);
                    return None;
                }
                Err(error) => error.to_string(),
            },
        };
        Some(self.give_up_large(open, Some(&reason)))
    }

    fn note_stored(&self, large: &LargeFile, StoredWhole { hash, kept }: StoredWhole) {
        let (path, bytes) = (large.path(), large.size);
        self.totals().add_divided(bytes, kept, large.is_named);
        let observer = &self.servers.observer;
        if kept > 0 {
            observer.event(Event::Kept { bytes: kept });
        }
        observer.event(Event::Hashed { path: &path, bytes, hash: &hash });
        observer.event(Event::Stored { path: &path });
    }
}

/// Asks a server for the version of a file: a listing of the directory may have less of it.
async fn look(client: &mut Client, large: &LargeFile) -> Result<Option<FileVersion>, Error> {
    let above = large.directory_path().map_or(&b""[..], RelPath::as_bytes);
    let place = joined([large.from.as_os_str().as_bytes(), above, large.name.as_bytes()]);
    look_at(client, &place, large.name.name()).await
}

/// Joins parts of a path on the servers, some of which may be empty.
pub(super) fn joined<const N: usize>(parts: [&[u8]; N]) -> Vec<u8> {
    let parts: Vec<&[u8]> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    parts.join(&b'/')
}

/// Asks a server for the version of the file at a place, whose last component is this name.
pub(super) async fn look_at(
    client: &mut Client,
    place: &[u8],
    name: &[u8],
) -> Result<Option<FileVersion>, Error> {
    let mut version = None;
    let listing = client.list(place, |listed| {
        let Listed { path, kind, size, mtime, .. } = listed;
        let is_it = path.as_bytes() == name && kind == ListedKind::File;
        version = is_it.then_some(FileVersion { size, mtime });
    });
    listing.await?;
    Ok(version)
}

fn begin(
    root: &Root,
    large: &LargeFile,
    version: (FileVersion, &str),
    how: (usize, u64),
) -> Result<Option<Arc<DividedFile>>, files::Error> {
    let below = match &large.directory {
        Some(directory) => {
            directory.make(root)?;
            root.below(&directory.path)?
        }
        None => root.clone(),
    };
    let name = large.alone_as.as_ref().unwrap_or(&large.name);
    DividedFile::begin(&below, name, version, how)
}

async fn finish(file: &Arc<DividedFile>, fsync: bool) -> Result<StoredWhole, Error> {
    let file = Arc::clone(file);
    let finished = spawn_blocking(move || file.finish(fsync)).await;
    Ok(finished.map_err(|error| Error::task(&error))??)
}
