//! Where a receiver writes and what a sender's peer names are below, and nowhere else.

use std::path::Path;
use std::time::Duration;

use headroom_transfer_proto::message::{Attributes, Keep, Time};
use headroom_transfer_proto::path::RelPath;
use headroom_transfer_proto::span::Hash;
use tokio::runtime::Handle;

use super::cleanup::CleanupStats;
use super::compare::{Sent, Status};
use super::disk::settable;
use super::error::{Error, ErrorKind};
use super::metadata::Metadata;
use super::offer::{Offer, PartialRole, Seal, Stored};
use super::partial::Partial;
use super::stream_file::StreamFile;
use super::{disk, store};

/// Permissions of a file whose sender says nothing about them.
const MODE: u32 = 0o644;

/// A place that peers may use. Whatever they name, and whatever other programs do in it meanwhile:
/// nothing outside is read, made, changed or removed, no symbolic link below it is followed, and no
/// device, pipe or socket is opened.
#[derive(Debug, Clone)]
pub enum Root {
    /// A directory of this machine.
    Disk(disk::Root),
    /// The objects below a prefix of an object store.
    Store(store::Root),
}

impl Root {
    /// Opens a directory that the local user names; links on the way are followed.
    ///
    /// # Errors
    /// It is missing, or cannot be opened.
    pub fn open(path: &Path) -> Result<Self, Error> {
        disk::Root::open(path).map(Self::Disk)
    }

    /// Opens an object store by its URL, such as `s3://bucket/prefix`. Blocks the calling thread,
    /// which must not be one of the runtime's own.
    ///
    /// # Errors
    /// The URL or the environment is wrong, the store cannot be reached, or refuses.
    pub fn open_store(
        url: &str,
        options: &store::StoreOptions,
        runtime: Handle,
    ) -> Result<Self, Error> {
        store::Root::open(url, options, runtime).map(Self::Store)
    }

    /// Checks the URL of an object store without asking the store; returns it without a `/` at its
    /// end.
    ///
    /// # Errors
    /// It is no such URL: a sentence, which does not repeat it.
    pub fn check_store_url(url: &str) -> Result<String, String> {
        store::Root::check_url(url)
    }

    /// Opens an empty store in memory.
    #[cfg(test)]
    pub(crate) fn in_memory(runtime: Handle) -> Self {
        let store = headroom_store::Store::in_memory(runtime.clone());
        Self::Store(store::Root::new(store, &store::StoreOptions::default(), runtime))
    }

    /// Returns the directory's path as it was opened, or the store's URL.
    #[must_use]
    pub fn path(&self) -> &Path {
        match self {
            Self::Disk(root) => root.path(),
            Self::Store(root) => root.path(),
        }
    }

    /// Whether each operation waits for another machine, so that several should run at once.
    #[must_use]
    pub fn is_remote(&self) -> bool {
        matches!(self, Self::Store(_))
    }

    /// Returns how many requests its store has answered; `None` of a disk.
    #[must_use]
    pub fn requests(&self) -> Option<store::Requests> {
        match self {
            Self::Disk(_) => None,
            Self::Store(root) => Some(root.requests()),
        }
    }

    /// Returns how many of these were for this transfer ([`Self::for_transfer`]).
    #[must_use]
    pub fn own_requests(&self) -> Option<store::Requests> {
        match self {
            Self::Disk(_) => None,
            Self::Store(root) => Some(root.own_requests()),
        }
    }

    /// Returns which attributes may be set: on a disk only root changes owners, a store has none.
    #[must_use]
    pub fn settable(&self) -> Keep {
        match self {
            Self::Disk(_) => settable(),
            Self::Store(_) => Keep::NONE,
        }
    }

    /// Returns the same root for a transfer, which remembers what it has learned of directories,
    /// and counts its requests.
    #[must_use]
    pub fn for_transfer(&self) -> Self {
        match self {
            Self::Disk(root) => Self::Disk(root.clone()),
            Self::Store(root) => Self::Store(root.for_transfer()),
        }
    }

    /// Opens a directory below this one as a root of its own.
    ///
    /// # Errors
    /// It is missing, not a directory, or reached by a link.
    pub fn below(&self, path: &RelPath) -> Result<Self, Error> {
        Ok(match self {
            Self::Disk(root) => Self::Disk(root.below(path)?),
            Self::Store(root) => Self::Store(root.below(path)?),
        })
    }

    /// Reads the metadata of a name; `None` if nothing has it. Links are not followed.
    ///
    /// # Errors
    /// A directory on the way is missing or cannot be entered.
    pub fn look(&self, path: &RelPath) -> Result<Option<Metadata>, Error> {
        match self {
            Self::Disk(root) => root.look(path),
            Self::Store(root) => root.look(path),
        }
    }

    /// Reads the target of a symbolic link.
    ///
    /// # Errors
    /// There is no such link.
    pub fn target(&self, path: &RelPath) -> Result<Vec<u8>, Error> {
        match self {
            Self::Disk(root) => root.target(path),
            Self::Store(root) => root.target(path),
        }
    }

    /// Lists a directory, `None` being this one, sorted by the bytes of names. Partial files are
    /// not listed. A store tells neither modes nor the times of files in a listing: they are 0644
    /// and the store's.
    ///
    /// # Errors
    /// It is missing, or cannot be entered.
    pub fn list(&self, path: Option<&RelPath>) -> Result<Listing, Error> {
        Ok(match self {
            Self::Disk(root) => Listing::Disk(root.list(path)?),
            Self::Store(root) => Listing::Store(Box::new(root.list(path)?)),
        })
    }

    /// Makes a directory with permissions to put files in; [`Self::seal_directory`] sets its final
    /// mode. An existing directory stays as it is.
    ///
    /// # Errors
    /// Something else has the name, it cannot be made, or its parent is missing.
    pub fn make_directory(&self, path: &RelPath, mode: u32) -> Result<(), Error> {
        match self {
            Self::Disk(root) => root.make_directory(path, mode),
            Self::Store(root) => root.make_directory(path),
        }
    }

    /// Sets mode, time and attributes of a directory when it is complete.
    ///
    /// # Errors
    /// There is no such directory, or it is not this user's.
    pub fn seal_directory(
        &self,
        path: &RelPath,
        mode: u32,
        mtime: Time,
        fsync: bool,
        attributes: Option<&Attributes>,
    ) -> Result<(), Error> {
        match self {
            Self::Disk(root) => root.seal_directory(path, mode, mtime, fsync, attributes),
            Self::Store(root) => root.seal_directory(path, mode, mtime),
        }
    }

    /// Notes a directory that [`Self::make_sealed_directory`] is about to make on another thread:
    /// there, what comes into it waits as long as it may, or until the result is dropped. Only a
    /// store does so.
    ///
    /// # Errors
    /// It cannot have this name.
    pub fn expect_directory(&self, path: &RelPath) -> Result<Option<store::Making>, Error> {
        match self {
            Self::Disk(_) => Ok(None),
            Self::Store(root) => root.expect_directory(path),
        }
    }

    /// Makes a directory, or finds it, and sets its mode and time at once, where what comes into it
    /// does not change them: in a store.
    ///
    /// # Errors
    /// As those of [`Self::make_directory`].
    pub fn make_sealed_directory(
        &self,
        path: &RelPath,
        mode: u32,
        mtime: Time,
    ) -> Result<(), Error> {
        match self {
            Self::Disk(root) => {
                root.make_directory(path, mode)?;
                root.seal_directory(path, mode, mtime, false, None)
            }
            Self::Store(root) => root.make_sealed_directory(path, mode, mtime),
        }
    }

    /// Makes a symbolic link that has its time at once, and with `confined` stays below this
    /// directory, replacing a file or link of that name.
    ///
    /// # Errors
    /// As those of [`Self::make_symlink`].
    pub fn make_sealed_symlink(
        &self,
        path: &RelPath,
        target: &[u8],
        mtime: Option<Time>,
        confined: bool,
    ) -> Result<Stored, Error> {
        match self {
            Self::Store(root) if !confined || path.holds_link_to(target) => {
                root.make_sealed_symlink(path, target, mtime)
            }
            _ => {
                let made = match confined {
                    true => self.make_symlink(path, target)?,
                    false => self.make_any_symlink(path, target)?,
                };
                self.seal_symlink(path, mtime, None)?;
                Ok(made)
            }
        }
    }

    /// Makes a symbolic link that stays below this directory, replacing a file or link of that
    /// name.
    ///
    /// # Errors
    /// It leads out, or could (see [`RelPath::holds_link_to`]); something else has the name; it
    /// cannot be made.
    pub fn make_symlink(&self, path: &RelPath, target: &[u8]) -> Result<Stored, Error> {
        match self {
            Self::Disk(root) => root.make_symlink(path, target),
            Self::Store(_) if !path.holds_link_to(target) => {
                Err(Error::new(path.as_bytes(), "made", ErrorKind::LeavesRoot))
            }
            Self::Store(root) => root.make_symlink(path, target),
        }
    }

    /// Makes a symbolic link that may lead anywhere: nothing here follows it, but other programs
    /// may.
    ///
    /// # Errors
    /// Something else has the name; it may not be made.
    pub fn make_any_symlink(&self, path: &RelPath, target: &[u8]) -> Result<Stored, Error> {
        match self {
            Self::Disk(root) => root.make_any_symlink(path, target),
            Self::Store(root) => root.make_symlink(path, target),
        }
    }

    /// Sets time and owner of a symbolic link, without following it.
    ///
    /// # Errors
    /// Nothing has the name, or it is not this user's.
    pub fn seal_symlink(
        &self,
        path: &RelPath,
        mtime: Option<Time>,
        attributes: Option<&Attributes>,
    ) -> Result<(), Error> {
        match self {
            Self::Disk(root) => root.seal_symlink(path, mtime, attributes),
            Self::Store(root) => root.seal_symlink(path, mtime),
        }
    }

    /// Makes a hard link to a file below this directory, replacing a file or link of that name.
    ///
    /// # Errors
    /// `to` is no ordinary file; something else has the name; the file system refuses, as a store
    /// does.
    pub fn make_hard_link(&self, path: &RelPath, to: &RelPath) -> Result<(), Error> {
        match self {
            Self::Disk(root) => root.make_hard_link(path, to),
            Self::Store(_) => Err(Error::new(path.as_bytes(), "made", ErrorKind::NoHardLinks)),
        }
    }

    /// Whether two names are hard links to the same file.
    ///
    /// # Errors
    /// A directory on the way to one is missing or may not be entered.
    pub fn is_hard_link(&self, path: &RelPath, to: &RelPath) -> Result<bool, Error> {
        match self {
            Self::Disk(root) => root.is_hard_link(path, to),
            Self::Store(_) => Ok(false),
        }
    }

    /// Starts or resumes receiving a file. Its directory exists.
    ///
    /// # Errors
    /// Something has the name that is not replaced; another transfer of the offer is in progress;
    /// it is too large; it cannot be made.
    pub fn begin(&self, path: &RelPath, offer: &Offer) -> Result<Partial, Error> {
        self.begin_as(path, offer, MODE)
    }

    /// Does what [`Self::begin`] does for a file that will have these permissions: a store wants to
    /// know them first.
    ///
    /// # Errors
    /// As those of [`Self::begin`].
    pub fn begin_as(&self, path: &RelPath, offer: &Offer, mode: u32) -> Result<Partial, Error> {
        Ok(match self {
            Self::Disk(root) => Partial::Disk(Box::new(root.begin(path, offer)?)),
            Self::Store(root) => Partial::Store(root.begin(path, offer, mode)?),
        })
    }

    /// Does what [`Self::begin_as`] does beside others that write other ranges of the same offer:
    /// on a disk transfers of this machine, in a store also of other servers. Who writes ranges
    /// does not finish the file: the values of spans that arrive are kept ([`Partial::known`]),
    /// [`Partial::leave`] ends the part, and who takes over or begins the whole file finds what was
    /// written. `None` if ranges cannot be written: a store takes the file in one request, or a
    /// disk may not have room for all of it, of which nobody knows yet how much is holes.
    ///
    /// # Errors
    /// The upload is not there any more, or another transfer has taken it over; else as those of
    /// [`Self::begin`].
    pub(crate) fn begin_shared(
        &self,
        path: &RelPath,
        offer: &Offer,
        mode: u32,
        role: PartialRole,
    ) -> Result<Option<Partial>, Error> {
        Ok(match (self, role) {
            (Self::Disk(_), role) if role.finishes() => Some(self.begin_as(path, offer, mode)?),
            (Self::Disk(root), _) => {
                root.begin_shared(path, offer)?.map(|partial| Partial::Disk(Box::new(partial)))
            }
            (Self::Store(root), _) => {
                root.begin_shared(path, offer, mode, role)?.map(Partial::Store)
            }
        })
    }

    /// Stores a file from memory.
    ///
    /// # Errors
    /// As those of [`Self::begin`] and [`Partial::finish`]. Nothing stays.
    pub fn store(&self, path: &RelPath, content: &[u8], seal: &Seal) -> Result<Stored, Error> {
        self.store_with(path, content, seal, None)
    }

    /// Stores a file from memory, with attributes, of which a store keeps none.
    ///
    /// # Errors
    /// As those of [`Self::store`].
    pub fn store_with(
        &self,
        path: &RelPath,
        content: &[u8],
        seal: &Seal,
        attributes: Option<&Attributes>,
    ) -> Result<Stored, Error> {
        match self {
            Self::Disk(root) => root.store_with(path, content, seal, attributes),
            Self::Store(root) => root.store(path, content, seal),
        }
    }

    /// Creates a file of unknown length. Its directory exists.
    ///
    /// # Errors
    /// Something has the name that is not replaced; it cannot be made.
    pub fn create_stream_file(&self, path: &RelPath) -> Result<StreamFile, Error> {
        Ok(match self {
            Self::Disk(root) => StreamFile::Disk(root.create_stream_file(path)?),
            Self::Store(root) => StreamFile::Store(root.create_stream_file(path)?),
        })
    }

    /// Removes a file, link or empty directory.
    ///
    /// # Errors
    /// It is missing, not empty, or cannot be removed.
    pub fn remove(&self, path: &RelPath) -> Result<(), Error> {
        match self {
            Self::Disk(root) => root.remove(path),
            Self::Store(root) => root.remove(path),
        }
    }

    /// Removes something that a listing has found. A directory of a store that was never made is
    /// gone with what was in it.
    pub(super) fn remove_found(&self, path: &RelPath, is_directory: bool) -> Result<(), Error> {
        match self {
            Self::Disk(root) => root.remove(path),
            Self::Store(root) => root.remove_found(path, is_directory),
        }
    }

    /// Makes a new directory. Its parent exists.
    ///
    /// # Errors
    /// Something has the name, or it cannot be made.
    pub fn create_directory(&self, path: &RelPath) -> Result<(), Error> {
        match self {
            Self::Disk(root) => root.create_directory(path),
            Self::Store(root) => root.create_directory(path),
        }
    }

    /// Renames something in this directory to a name in `there`, replacing a file or link only with
    /// `replace`. Links themselves are renamed. A store renames no directories.
    ///
    /// With `confined`, links stay within the root as [`RelPath::holds_link_to`] defines it: a link
    /// must stay below it under its new name as well, and a directory, which may contain links, is
    /// not moved to a higher level, where their `..` would lead out.
    ///
    /// # Errors
    /// There is no such name; something has the other one; they are on two file systems;
    /// a link would lead out.
    pub fn rename(
        &self,
        from: &RelPath,
        (there, to): (&Self, &RelPath),
        replace: bool,
        confined: bool,
    ) -> Result<(), Error> {
        match (self, there) {
            (Self::Disk(here), Self::Disk(there)) => {
                here.rename(from, (there, to), replace, confined)
            }
            (Self::Store(here), Self::Store(there)) if here.path() == there.path() => {
                here.rename(from, to, replace, confined)
            }
            _ => Err(Error::new(from.as_bytes(), "renamed", ErrorKind::OtherFileSystem)),
        }
    }

    /// Compares what has a name with a sender's entry.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn compare(&self, path: &RelPath, sent: &Sent<'_>) -> Result<Status, Error> {
        match self {
            Self::Disk(root) => root.compare(path, sent),
            Self::Store(root) => root.compare(path, sent),
        }
    }

    /// Returns the BLAKE3 hash of a file: in a store the one that was recorded when it was stored,
    /// if there is one; otherwise it is read.
    ///
    /// # Errors
    /// It is missing, not a file, or cannot be read.
    pub fn hash(&self, path: &RelPath) -> Result<Hash, Error> {
        match self {
            Self::Disk(root) => root.hash(path),
            Self::Store(root) => root.hash(path),
        }
    }

    /// Sets permissions, time and attributes of an existing file.
    ///
    /// # Errors
    /// It is not a file, or not this user's.
    pub fn update_metadata(
        &self,
        path: &RelPath,
        mode: u32,
        mtime: Time,
        attributes: Option<&Attributes>,
    ) -> Result<(), Error> {
        match self {
            Self::Disk(root) => root.update_metadata(path, mode, mtime, attributes),
            Self::Store(root) => root.update_metadata(path, mode, mtime),
        }
    }

    /// Marks a directory as an incomplete copy of the tree `source`.
    ///
    /// # Errors
    /// It is missing, or nothing can be made in it.
    pub fn begin_tree(&self, path: &RelPath, source: &[u8]) -> Result<(), Error> {
        match self {
            Self::Disk(root) => root.begin_tree(path, source),
            Self::Store(root) => root.begin_tree(path, source),
        }
    }

    /// Whether a directory is an incomplete copy of the tree `source`.
    #[must_use]
    pub fn is_unfinished_tree(&self, path: &RelPath, source: &[u8]) -> bool {
        match self {
            Self::Disk(root) => root.is_unfinished_tree(path, source),
            Self::Store(root) => root.is_unfinished_tree(path, source),
        }
    }

    /// Removes the mark: the copy is complete.
    ///
    /// # Errors
    /// It is missing, or nothing can be removed in it.
    pub fn finish_tree(&self, path: &RelPath, source: &[u8]) -> Result<(), Error> {
        match self {
            Self::Disk(root) => root.finish_tree(path, source),
            Self::Store(root) => root.finish_tree(path, source),
        }
    }

    /// Deletes partial files that were not written to for `age`. Open files, files of other users
    /// and files with a second name stay; what cannot be read is skipped. No link is followed. In a
    /// store the parts of unfinished uploads are deleted.
    pub fn remove_unfinished(&self, age: Duration) -> CleanupStats {
        match self {
            Self::Disk(root) => root.remove_unfinished(age),
            Self::Store(root) => root.remove_unfinished(age),
        }
    }

    /// Returns the free bytes below this directory. A store has room for everything.
    ///
    /// # Errors
    /// The file system does not say.
    pub fn free_space(&self) -> Result<u64, Error> {
        match self {
            Self::Disk(root) => root.free_space(),
            Self::Store(_) => Ok(u64::MAX),
        }
    }

    /// Syncs the directory of a path to the disk. What a store has confirmed is durable.
    ///
    /// # Errors
    /// There is no such directory, or the disk refuses.
    pub fn sync_parent(&self, path: &RelPath) -> Result<(), Error> {
        match self {
            Self::Disk(root) => root.sync_parent(path),
            Self::Store(_) => Ok(()),
        }
    }

    /// Resolves paths as on a kernel without `openat2`.
    #[cfg(test)]
    pub(super) fn by_components(self) -> Self {
        match self {
            Self::Disk(root) => Self::Disk(root.by_components()),
            store @ Self::Store(_) => store,
        }
    }
}

/// The entries of a directory.
#[derive(Debug)]
pub enum Listing {
    /// On a disk of this machine.
    Disk(disk::Listing),
    /// In an object store.
    Store(Box<store::Listing>),
}

impl Listing {
    /// Reads the target of a symbolic link in the directory, if it still is one.
    #[must_use]
    pub fn target(&self, name: &RelPath) -> Option<Vec<u8>> {
        match self {
            Self::Disk(listing) => listing.target(name),
            Self::Store(listing) => listing.target(name),
        }
    }
}

impl Iterator for Listing {
    /// A name and its metadata.
    type Item = Result<(RelPath, Metadata), Error>;

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Self::Disk(listing) => listing.next(),
            Self::Store(listing) => listing.next(),
        }
    }
}
