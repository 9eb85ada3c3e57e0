//! Lists directories of the servers: any server lists any of them, and all at once.

use std::os::unix::ffi::OsStrExt;

use headroom_transfer_proto::message::{Listed, ListedKind};
use headroom_transfer_proto::path::RelPath;
use tokio::task::spawn_blocking;

use super::directory::ListedDirectory;
use super::large::LargeFile;
use super::queue::{Batch, Directory};
use super::servers::SpreadObserver;
use super::session::{Job, Phase};
use crate::client::Client;
use crate::delivery::Event;
use crate::error::Error;
use crate::files::{Excludes, Root, Sent, Status};

/// The most names of one directory that are remembered. The last request fetches what else it has.
const MAX_NAMES: usize = 1 << 20;

/// A file of a listing, with its path below what was named.
type File = (RelPath, Listed);

impl<O: SpreadObserver + 'static> Phase<'_, '_, O> {
    /// Lists a directory: returns its files that are to be fetched, and its directories.
    ///
    /// # Errors
    /// It cannot be listed, the server lists names in no order, or the connection is lost.
    pub(super) async fn list(
        &self,
        client: &mut Client,
        directory: &Directory,
    ) -> Result<(Vec<Batch>, Vec<Directory>), Error> {
        let Job::Get { to, is_sync, excludes } = self.job else { return Ok((vec![], vec![])) };
        let from = directory.from.as_os_str().as_bytes();
        let place = match &directory.below {
            Some(below) => [from, b"/", below.path.as_bytes()].concat(),
            None if from.is_empty() => b".".to_vec(),
            None => from.to_vec(),
        };
        let (mut listing, mut failure) = (Listing::new(directory, excludes), None);
        let listed = client.list(&place, |listed| {
            if failure.is_none() {
                failure = listing.add(listed).err();
            }
        });
        listed.await?;
        if let Some(error) = failure {
            return Err(error);
        }
        let Listing { files, directories, .. } = listing;
        let files = match is_sync {
            true => {
                let root = to.clone();
                let comparing = spawn_blocking(move || differing(&root, files));
                let (files, unchanged) = comparing.await.map_err(|error| Error::task(&error))?;
                for bytes in unchanged {
                    self.batcher().pass(bytes);
                    self.servers.observer.event(Event::Offered { bytes });
                    self.servers.observer.event(Event::Kept { bytes });
                }
                files
            }
            false => files,
        };
        Ok((self.batches(directory, files), directories))
    }

    /// Divides files of a directory. Large ones are added to the queue.
    fn batches(&self, directory: &Directory, files: Vec<File>) -> Vec<Batch> {
        let mut batcher = self.batcher();
        let (mut full, mut large) = (Vec::new(), Vec::new());
        for (_, Listed { path, size, .. }) in files {
            if self.servers.divides(size) {
                batcher.pass(size);
                let place = (&directory.from, directory.below.as_ref());
                large.push(LargeFile::new(place, path, size, false));
                continue;
            }
            full.extend(batcher.add(path, size));
        }
        self.queue.add_large(large);
        full.push(batcher.take());
        let batch = |files| Batch {
            from: directory.from.clone(),
            directory: directory.below.clone(),
            files,
            is_named: false,
        };
        full.into_iter().filter(|files| !files.is_empty()).map(batch).collect()
    }

    /// Notes what a directory has. When all are listed, reports how much there is.
    pub(super) fn listed(&self, batches: Vec<Batch>, directories: Vec<Directory>) {
        if self.queue.listed(batches, directories) {
            let (files, bytes) = self.batcher().seen();
            self.servers.observer.event(Event::AllOffered { files, bytes });
        }
    }
}

/// What a listing found.
struct Listing<'a> {
    directory: &'a Directory,
    excludes: &'a Excludes,
    last: Option<RelPath>,
    files: Vec<File>,
    directories: Vec<Directory>,
}

impl<'a> Listing<'a> {
    fn new(directory: &'a Directory, excludes: &'a Excludes) -> Self {
        let (files, directories) = (Vec::new(), Vec::new());
        Self { directory, excludes, last: None, files, directories }
    }

    /// Adds a name.
    ///
    /// # Errors
    /// No server lists it: it is below another directory, or out of order, by which one file could
    /// be listed twice.
    fn add(&mut self, listed: Listed) -> Result<(), Error> {
        let name = &listed.path;
        let is_next = self.last.as_ref().is_none_or(|last| last.as_bytes() < name.as_bytes());
        if name.parent().is_some() || !is_next {
            return Err(Error::Protocol(format!("its listing has {name} in the wrong place")));
        }
        self.last = Some(name.clone());
        if self.files.len() + self.directories.len() >= MAX_NAMES {
            return Ok(());
        }
        let directory = self.directory.below.as_ref();
        let above = directory.map(|directory| &directory.path);
        // the last request reports a path that is too long
        let Ok(path) = above.map_or_else(|| Ok(name.clone()), |above| above.join(name)) else {
            return Ok(());
        };
        let is_directory = listed.kind == ListedKind::Directory;
        if self.excludes.matches(&path, is_directory) {
            return Ok(());
        }
        match listed.kind {
            ListedKind::Directory => {
                let from = self.directory.from.clone();
                let below = Some(ListedDirectory::new(directory, path, listed.mode));
                self.directories.push(Directory { from, below });
            }
            ListedKind::File => self.files.push((path, listed)),
            // the last request makes links, and leaves out the others
            ListedKind::Symlink | ListedKind::Other => {}
        }
        Ok(())
    }
}

/// Returns the files that are missing here or have other content, and the sizes of those that do
/// not.
fn differing(root: &Root, files: Vec<File>) -> (Vec<File>, Vec<u64>) {
    let (mut different, mut unchanged) = (Vec::new(), Vec::new());
    for (path, listed) in files {
        let (size, mode, mtime) = (listed.size, listed.mode, listed.mtime);
        let sent = Sent::File { size, mode, mtime, hash: None, attributes: None };
        match root.compare(&path, &sent) {
            Ok(Status::Same | Status::MetadataDiffers) => unchanged.push(size),
            Ok(Status::ContentDiffers | Status::Missing) => different.push((path, listed)),
            // the last request decides, or reports it
            Ok(Status::TypeDiffers(_)) | Err(_) => {}
        }
    }
    (different, unchanged)
}
