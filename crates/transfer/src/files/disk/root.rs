//! The directory below which a receiver writes, and nowhere else.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use headroom_transfer_proto::message::Attributes;
use headroom_transfer_proto::path::RelPath;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat, readlinkat, renameat};
use nix::sys::stat::{Mode, mkdirat};
use nix::unistd::{UnlinkatFlags, fchownat, linkat, symlinkat, unlinkat};
use rustix::fs::{RenameFlags, renameat_with};

use super::attributes;
use super::beneath::Beneath;
use super::change::{change, change_all};
use super::last_directory::LastDirectory;
use super::names::Names;
use super::partial::Partial;
use super::replace::{replaceable, sync_directory};
use super::space::free_space;
use crate::files::error::{Error, ErrorKind, FileType};
use crate::files::metadata::{Metadata, kept_mode, set_mtime, set_mtime_at};
use crate::files::offer::{Offer, Stored};
use crate::files::temporary;
use headroom_transfer_proto::message::Time;

/// A directory that peers may use. Whatever they name, and whatever other programs do in it
/// meanwhile: nothing outside is read, made, changed or removed, no symbolic link below it is
/// followed, and no device, pipe or socket is opened.
#[derive(Debug, Clone)]
pub struct Root {
    beneath: Beneath,
    path: PathBuf,
    /// Of small files.
    pub(super) last_directory: LastDirectory,
}

impl Root {
    /// Opens a directory that the local user names; links on the way are followed.
    ///
    /// # Errors
    /// It is missing, or cannot be opened.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let beneath = Beneath::new(path)
            .map_err(|error| Error::new(path.as_os_str().as_bytes(), "opened", error))?;
        Ok(Self { beneath, path: path.to_owned(), last_directory: LastDirectory::default() })
    }

    /// Returns the directory's path as it was opened.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens a directory below this one as a root of its own.
    ///
    /// # Errors
    /// It is missing, not a directory, or reached by a link.
    pub fn below(&self, path: &RelPath) -> Result<Self, Error> {
        let beneath = self.beneath.below(path.as_bytes()).map_err(error(path, "opened"))?;
        let path = self.path.join(std::ffi::OsStr::from_bytes(path.as_bytes()));
        Ok(Self { beneath, path, last_directory: LastDirectory::default() })
    }

    /// Reads the metadata of a name; `None` if nothing has it. Links are not followed.
    ///
    /// # Errors
    /// A directory on the way is missing or cannot be entered.
    pub fn look(&self, path: &RelPath) -> Result<Option<Metadata>, Error> {
        let look = || match Metadata::at(self.parent(path)?, path.name(), false) {
            Err(Errno::ENOENT) => Ok(None),
            outcome => outcome.map(Some),
        };
        look().map_err(error(path, "read"))
    }

    /// Reads the target of a symbolic link.
    ///
    /// # Errors
    /// There is no such link.
    pub fn target(&self, path: &RelPath) -> Result<Vec<u8>, Error> {
        let read = || readlinkat(self.parent(path)?, path.name());
        read().map(OsStringExt::into_vec).map_err(error(path, "read"))
    }

    /// Lists a directory, `None` being this one, sorted by the bytes of names. Partial files are
    /// not listed.
    ///
    /// # Errors
    /// It is missing, or cannot be entered.
    pub fn list(&self, path: Option<&RelPath>) -> Result<Listing, Error> {
        let shown = path.map_or(&b"."[..], RelPath::as_bytes);
        let directory = self
            .beneath
            .directory(path.map(RelPath::as_bytes))
            .map_err(|error| Error::new(shown, "listed", error))?;
        Ok(Listing { directory, names: Names::new(), shown: shown.into() })
    }

    /// Makes a directory with permissions to put files in; [`Self::seal_directory`] sets its final
    /// mode. An existing directory stays as it is.
    ///
    /// # Errors
    /// Something else has the name, it cannot be made, or its parent is missing.
    pub fn make_directory(&self, path: &RelPath, mode: u32) -> Result<(), Error> {
        self.mkdir(path, mode).map_err(|kind| Error::new(path.as_bytes(), "made", kind))
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
        let seal = || -> Result<(), ErrorKind> {
            let looked_up = self.beneath.directory(Some(path.as_bytes()))?;
            let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
            let directory = File::from(openat(&looked_up, ".", flags, Mode::empty())?);
            attributes::set(&directory, permissions(mode), attributes)?;
            set_mtime(&directory, mtime)?;
            if fsync {
                directory.sync_all().map_err(ErrorKind::of)?;
            }
            Ok(())
        };
        seal().map_err(|kind| Error::new(path.as_bytes(), "given its mode and time", kind))
    }

    /// Makes a symbolic link that stays below this directory, replacing a file or link of that
    /// name.
    ///
    /// # Errors
    /// It leads out, or could (see [`RelPath::holds_link_to`]); something else has the name; it
    /// cannot be made.
    pub fn make_symlink(&self, path: &RelPath, target: &[u8]) -> Result<Stored, Error> {
        if !path.holds_link_to(target) {
            return Err(Error::new(path.as_bytes(), "made", ErrorKind::LeavesRoot));
        }
        self.make_any_symlink(path, target)
    }

    /// Makes a symbolic link that may lead anywhere: nothing here follows it, but other programs
    /// may.
    ///
    /// # Errors
    /// Something else has the name; it may not be made.
    pub fn make_any_symlink(&self, path: &RelPath, target: &[u8]) -> Result<Stored, Error> {
        self.symlink(path, target).map_err(|kind| Error::new(path.as_bytes(), "made", kind))
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
        let seal = || -> Result<(), ErrorKind> {
            let directory = self.parent(path)?;
            if let Some((user, group)) = attributes.map(attributes::to_whom)
                && (user.is_some() || group.is_some())
            {
                match fchownat(&*directory, path.name(), user, group, AtFlags::AT_SYMLINK_NOFOLLOW)
                {
                    // other users than root may only use groups that they are in
                    Err(Errno::EPERM) if user.is_none() => {}
                    outcome => outcome?,
                }
            }
            if let Some(mtime) = mtime {
                set_mtime_at(&directory, path.name(), mtime)?;
            }
            Ok(())
        };
        seal().map_err(|kind| Error::new(path.as_bytes(), "given its time and owner", kind))
    }

    /// Makes a hard link to a file below this directory, replacing a file or link of that name.
    ///
    /// # Errors
    /// `to` is no ordinary file; something else has the name; the file system refuses.
    pub fn make_hard_link(&self, path: &RelPath, to: &RelPath) -> Result<(), Error> {
        self.hard_link(path, to).map_err(|kind| Error::new(path.as_bytes(), "made", kind))
    }

    /// Whether two names are hard links to the same file.
    ///
    /// # Errors
    /// A directory on the way to one is missing or may not be entered.
    pub fn is_hard_link(&self, path: &RelPath, to: &RelPath) -> Result<bool, Error> {
        let (one, other) = (self.look(path)?, self.look(to)?);
        Ok(one.zip(other).is_some_and(|(one, other)| one.identity == other.identity))
    }

    /// Starts or resumes receiving a file. Its directory exists.
    ///
    /// # Errors
    /// Something has the name that is not replaced; another transfer of the offer is in progress;
    /// it is too large; it cannot be made.
    pub fn begin(&self, path: &RelPath, offer: &Offer) -> Result<Partial, Error> {
        let begin = || Partial::begin(self.parent(path)?, path, offer);
        begin().map_err(|kind| Error::new(path.as_bytes(), "stored", kind))
    }

    /// Does what [`Self::begin`] does beside others that write other ranges of the same offer.
    /// `None` if the disk may not have room for all of it.
    ///
    /// # Errors
    /// As those of [`Self::begin`].
    pub fn begin_shared(&self, path: &RelPath, offer: &Offer) -> Result<Option<Partial>, Error> {
        let begin = || Partial::begin_shared(self.parent(path)?, path, offer);
        begin().map_err(|kind| Error::new(path.as_bytes(), "stored", kind))
    }

    /// Removes a file, link or empty directory.
    ///
    /// # Errors
    /// It is missing, not empty, or cannot be removed.
    pub fn remove(&self, path: &RelPath) -> Result<(), Error> {
        let remove = || -> Result<(), ErrorKind> {
            if temporary::is_temporary(path.name()) {
                return Err(ErrorKind::Reserved);
            }
            let directory = self.parent(path)?;
            let file_type = Metadata::at(&directory, path.name(), false)?.file_type;
            let flag = match file_type {
                FileType::Directory => UnlinkatFlags::RemoveDir,
                _ => UnlinkatFlags::NoRemoveDir,
            };
            Ok(change(&directory, || unlinkat(&*directory, path.name(), flag))?)
        };
        remove().map_err(|kind| Error::new(path.as_bytes(), "removed", kind))
    }

    /// Makes a new directory. Its parent exists.
    ///
    /// # Errors
    /// Something has the name, or it cannot be made.
    pub fn create_directory(&self, path: &RelPath) -> Result<(), Error> {
        let create = || -> Result<(), ErrorKind> {
            if temporary::is_temporary(path.name()) {
                return Err(ErrorKind::Reserved);
            }
            let directory = self.parent(path)?;
            let make = || mkdirat(&*directory, path.name(), permissions(0o777));
            match change(&directory, make) {
                Err(Errno::EEXIST) => Err(clash(&directory, path.name())?),
                made => Ok(made?),
            }
        };
        create().map_err(|kind| Error::new(path.as_bytes(), "made", kind))
    }

    /// Renames something in this directory to a name in `there`, replacing a file or link only with
    /// `replace`. Links themselves are renamed.
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
        let rename = || -> Result<(), ErrorKind> {
            if [from, to].iter().any(|path| temporary::is_temporary(path.name())) {
                return Err(ErrorKind::Reserved);
            }
            let (source, target) = (self.parent(from)?, there.parent(to)?);
            let give = |flags: RenameFlags| {
                change_all(&[&source, &target], || match flags.is_empty() {
                    true => renameat(&*source, from.name(), &*target, to.name()),
                    false => renameat_with(&*source, from.name(), &*target, to.name(), flags)
                        .map_err(|error| Errno::from_raw(error.raw_os_error())),
                })
            };
            let metadata = Metadata::at(&source, from.name(), false)?;
            match metadata.file_type {
                FileType::Directory if confined && depth(to) < depth(from) => {
                    return Err(ErrorKind::MovesUp);
                }
                FileType::Symlink if confined => {
                    let held = readlinkat(&source, from.name())?.into_vec();
                    if !to.holds_link_to(&held) {
                        return Err(ErrorKind::LeavesRoot);
                    }
                }
                _ => {}
            }
            if replace {
                let here = replaceable(&target, to.name())?;
                if let Some(here) = here.filter(|_| metadata.file_type == FileType::Directory) {
                    return Err(ErrorKind::Clash { here: here.file_type });
                }
                if here.is_some_and(|here| here.identity == metadata.identity) {
                    // two names of one file, which rename(2) would leave unchanged
                    let places = (Metadata::of(&source)?.identity, Metadata::of(&target)?.identity);
                    if (from.name(), places.0) != (to.name(), places.1) {
                        let flag = UnlinkatFlags::NoRemoveDir;
                        change(&source, || unlinkat(&*source, from.name(), flag))?;
                    }
                    return Ok(());
                }
                return match give(RenameFlags::empty()) {
                    Err(Errno::EINVAL) if is_within(from, to) => Err(ErrorKind::IntoItself),
                    renamed => Ok(renamed?),
                };
            }
            match give(RenameFlags::NOREPLACE) {
                Err(Errno::EEXIST) => Err(clash(&target, to.name())?),
                Err(Errno::EINVAL) if is_within(from, to) => Err(ErrorKind::IntoItself),
                // this file system does not support RENAME_NOREPLACE
                Err(Errno::EINVAL | Errno::ENOSYS) => match Metadata::at(&target, to.name(), false)
                {
                    Err(Errno::ENOENT) => Ok(give(RenameFlags::empty())?),
                    metadata => Err(ErrorKind::Clash { here: metadata?.file_type }),
                },
                renamed => Ok(renamed?),
            }
        };
        rename().map_err(|kind| {
            let kind = match kind {
                ErrorKind::NotBeneath if self.parent(from).is_ok() && there.parent(to).is_ok() => {
                    ErrorKind::OtherFileSystem
                }
                kind => kind,
            };
            Error::new(from.as_bytes(), "renamed", kind)
        })
    }

    /// Returns the free bytes below this directory.
    ///
    /// # Errors
    /// The file system does not say.
    pub fn free_space(&self) -> Result<u64, Error> {
        let free = || free_space(self.beneath.directory(None)?.as_ref());
        free().map_err(|kind| Error::new(self.path.as_os_str().as_bytes(), "measured", kind))
    }

    pub(super) fn beneath(&self) -> &Beneath {
        &self.beneath
    }

    /// Resolves paths as on a kernel without `openat2`.
    #[cfg(test)]
    pub(in crate::files) fn by_components(self) -> Self {
        Self { beneath: self.beneath.by_components(), ..self }
    }

    /// Opens the parent directory of a path.
    pub(super) fn parent(&self, path: &RelPath) -> nix::Result<Arc<OwnedFd>> {
        self.beneath.directory(path.split().0)
    }

    fn mkdir(&self, path: &RelPath, mode: u32) -> Result<(), ErrorKind> {
        if temporary::is_temporary(path.name()) {
            return Err(ErrorKind::Reserved);
        }
        let directory = self.parent(path)?;
        // set-group-id and sticky are set at the end
        let mode = permissions(mode & 0o777 | 0o700);
        let make = || mkdirat(&*directory, path.name(), mode);
        match change(&directory, make) {
            Err(Errno::EEXIST) => match Metadata::at(&directory, path.name(), false)?.file_type {
                FileType::Directory => Ok(()),
                here => Err(ErrorKind::Clash { here }),
            },
            outcome => Ok(outcome?),
        }
    }

    fn symlink(&self, path: &RelPath, target: &[u8]) -> Result<Stored, ErrorKind> {
        let (directory, name) = (self.parent(path)?, path.name());
        let here = replaceable(&directory, name)?;
        if here.is_none() {
            match change(&directory, || symlinkat(target, &*directory, name)) {
                Err(Errno::EEXIST) => {}
                outcome => return Ok(outcome.map(|()| Stored { replaced: false })?),
            }
        }
        let held = readlinkat(&directory, name);
        if held.is_ok_and(|held| held.into_vec() == target) {
            return Ok(Stored { replaced: true });
        }
        let temporary = temporary::of_link(name, target);
        // one left by an earlier attempt has the same target
        match change(&directory, || symlinkat(target, &*directory, &*temporary)) {
            Ok(()) | Err(Errno::EEXIST) => {}
            Err(error) => return Err(error.into()),
        }
        let metadata = Metadata::at(&directory, &temporary, false)?;
        let held = readlinkat(&directory, &*temporary);
        if metadata.file_type != FileType::Symlink
            || held.is_ok_and(|held| held.into_vec() != target)
        {
            return Err(ErrorKind::Moved);
        }
        replaceable(&directory, name)?;
        change(&directory, || renameat(&*directory, &*temporary, &*directory, name))?;
        Ok(Stored { replaced: true })
    }

    fn hard_link(&self, path: &RelPath, to: &RelPath) -> Result<(), ErrorKind> {
        let (from_directory, from) = (self.parent(to)?, to.name());
        let (directory, name) = (self.parent(path)?, path.name());
        let linked = Metadata::at(&from_directory, from, false)?;
        if linked.file_type != FileType::File || temporary::is_temporary(from) {
            return Err(ErrorKind::Clash { here: linked.file_type });
        }
        let here = replaceable(&directory, name)?;
        if here.is_some_and(|here| here.identity == linked.identity) {
            return Ok(());
        }
        let link = |name: &[u8]| {
            change(&directory, || {
                linkat(&*from_directory, from, &*directory, name, AtFlags::empty())
            })
        };
        let made = if here.is_some() { temporary::of_link(name, from) } else { name.to_vec() };
        match link(&made) {
            // left by an earlier attempt
            Err(Errno::EEXIST) if here.is_some() => {
                change(&directory, || unlinkat(&*directory, &*made, UnlinkatFlags::NoRemoveDir))?;
                link(&made)?;
            }
            outcome => outcome?,
        }
        // another program may have put something else there
        if Metadata::at(&directory, &made, false)?.identity != linked.identity {
            let _ =
                change(&directory, || unlinkat(&*directory, &*made, UnlinkatFlags::NoRemoveDir));
            return Err(ErrorKind::Moved);
        }
        if here.is_some() {
            change(&directory, || renameat(&*directory, &*made, &*directory, name))?;
        }
        Ok(())
    }

    /// Syncs the directory of a path to the disk.
    ///
    /// # Errors
    /// There is no such directory, or the disk refuses.
    pub fn sync_parent(&self, path: &RelPath) -> Result<(), Error> {
        let sync = || sync_directory(self.parent(path)?.as_ref());
        sync().map_err(|kind| Error::new(path.as_bytes(), "made durable", kind))
    }
}

/// The entries of a directory.
#[derive(Debug)]
pub struct Listing {
    directory: Arc<OwnedFd>,
    names: Names,
    shown: Box<[u8]>,
}

impl Listing {
    /// Reads the target of a symbolic link in the directory, if it still is one.
    #[must_use]
    pub fn target(&self, name: &RelPath) -> Option<Vec<u8>> {
        readlinkat(&self.directory, name.name()).ok().map(OsStringExt::into_vec)
    }
}

impl Iterator for Listing {
    /// A name and its metadata.
    type Item = Result<(RelPath, Metadata), Error>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let metadata = self.names.next(&self.directory)?.and_then(|name| {
                if temporary::is_temporary(&name) {
                    return Ok(None);
                }
                match Metadata::at(&self.directory, &name, false) {
                    // removed just now
                    Err(Errno::ENOENT) => Ok(None),
                    outcome => {
                        outcome.map(|metadata| RelPath::single(&name).ok().zip(Some(metadata)))
                    }
                }
            });
            match metadata {
                Ok(None) => {}
                Ok(Some(found)) => return Some(Ok(found)),
                Err(error) => return Some(Err(Error::new(&self.shown, "listed", error))),
            }
        }
    }
}

/// Makes the error for a name that is taken.
fn clash(directory: impl std::os::fd::AsFd, name: &[u8]) -> Result<ErrorKind, ErrorKind> {
    Ok(ErrorKind::Clash { here: Metadata::at(directory, name, false)?.file_type })
}

fn depth(path: &RelPath) -> usize {
    path.components().count()
}

/// Whether a path is a directory or below it.
fn is_within(directory: &RelPath, path: &RelPath) -> bool {
    let rest = path.as_bytes().strip_prefix(directory.as_bytes());
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

fn permissions(mode: u32) -> Mode {
    Mode::from_bits_truncate(mode & kept_mode(FileType::Directory))
}

/// Makes an error of the system.
fn error(path: &RelPath, done: &'static str) -> impl Fn(Errno) -> Error {
    move |error| Error::new(path.as_bytes(), done, error)
}
