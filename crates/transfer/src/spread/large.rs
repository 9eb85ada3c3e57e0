//! Large files, which are divided among the servers.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use headroom_transfer_proto::path::RelPath;

use super::directory::ListedDirectory;
use crate::delivery::{DividedFile, DividedUpload};

/// A file that is to be divided.
#[derive(Debug, Clone)]
pub(super) struct LargeFile {
    /// The directory below which it is: of the servers in a download, of this machine in an upload.
    pub(super) from: Arc<Path>,
    /// The directory below that, which it is also in here.
    pub(super) directory: Option<ListedDirectory>,
    pub(super) name: RelPath,
    /// The name of the single file of a transfer, in a download the one that it gets here: no other
    /// request of the queue copies that one.
    pub(super) alone_as: Option<RelPath>,
    /// Its size in bytes, as a listing has it.
    pub(super) size: u64,
    /// Whether the user named it.
    pub(super) is_named: bool,
}

impl LargeFile {
    /// Makes one of a file in a directory.
    pub(super) fn new(
        (from, directory): (&Arc<Path>, Option<&ListedDirectory>),
        name: RelPath,
        size: u64,
        is_named: bool,
    ) -> Self {
        let (from, directory) = (Arc::clone(from), directory.cloned());
        Self { from, directory, name, alone_as: None, size, is_named }
    }

    /// Returns the path of its directory below the one that was named.
    pub(super) fn directory_path(&self) -> Option<&RelPath> {
        self.directory.as_ref().map(|directory| &directory.path)
    }

    /// Returns its path in events.
    pub(super) fn path(&self) -> RelPath {
        let name = self.alone_as.as_ref().unwrap_or(&self.name);
        let joined = self.directory_path().and_then(|directory| directory.join(name).ok());
        joined.unwrap_or_else(|| name.clone())
    }
}

/// Which way a divided file goes.
#[derive(Debug, Clone)]
pub(super) enum Divided {
    Fetched(Arc<DividedFile>),
    Sent(Arc<DividedUpload>),
}

/// A file that is being divided.
#[derive(Debug)]
pub(super) struct BegunFile {
    pub(super) large: LargeFile,
    pub(super) file: Divided,
    /// Bytes that were reported as moved or a hole.
    done: AtomicU64,
}

impl BegunFile {
    /// Makes one of which nothing was reported yet.
    pub(super) fn new(large: LargeFile, file: Divided) -> Self {
        Self { large, file, done: AtomicU64::new(0) }
    }

    /// Whether nothing of it is left to be asked for, however it ends.
    pub(super) fn is_settled(&self) -> bool {
        match &self.file {
            Divided::Fetched(file) => file.is_whole() || file.failure().is_some(),
            Divided::Sent(upload) => upload.is_settled(),
        }
    }

    /// Whether a connection may take part now.
    pub(super) fn has_left(&self) -> bool {
        match &self.file {
            Divided::Fetched(file) => file.has_left(),
            Divided::Sent(upload) => upload.has_left(),
        }
    }

    /// Lets no more of it be copied in ranges.
    pub(super) fn fail(&self, reason: String) {
        match &self.file {
            Divided::Fetched(file) => file.fail(reason),
            Divided::Sent(upload) => upload.fail(reason),
        }
    }

    /// Notes bytes that were reported as moved or a hole.
    pub(super) fn add_done(&self, bytes: u64) {
        self.done.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Returns the bytes that were reported as moved or a hole.
    pub(super) fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }
}
