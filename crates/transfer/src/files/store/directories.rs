//! Directories of a store, which are prefixes of keys, with or without a marker, and symbolic links.

use bytes::Bytes;
use headroom_store::{Condition, Expected, Metadata as Tags, Object};
use headroom_transfer_proto::message::Time;
use headroom_transfer_proto::path::RelPath;

use super::error::of_write;
use super::known::{Known, Making};
use super::root::{Place, Root, marker, now, written_key};
use super::tags;
use crate::files::error::{Error, ErrorKind, FileType};
use crate::files::offer::Stored;

/// How often others may write a marker at the same time.
const ROUNDS: u32 = 4;

impl Root {
    pub(in crate::files) fn make_directory(&self, path: &RelPath) -> Result<(), Error> {
        match self.make(path) {
            Ok(()) | Err(ErrorKind::Clash { here: FileType::Directory }) => Ok(()),
            Err(kind) => Err(Error::new(path.as_bytes(), "made", kind)),
        }
    }

    pub(in crate::files) fn create_directory(&self, path: &RelPath) -> Result<(), Error> {
        self.make(path).map_err(|kind| Error::new(path.as_bytes(), "made", kind))
    }

    /// Makes the marker of a directory that is not there.
    fn make(&self, path: &RelPath) -> Result<(), ErrorKind> {
        let key = written_key(path)?;
        self.check_parents(key)?;
        match self.find(key)? {
            Some(Place::Directory(_)) => {
                self.known.is_there(key);
                return Err(ErrorKind::Clash { here: FileType::Directory });
            }
            Some(Place::Object(object)) => return Err(clash(key, &object)),
            None => {}
        }
        let tags = tags::of_directory(tags::DIRECTORY_MODE, now())?;
        match self.store.put(&marker(key), Bytes::new(), &tags, Condition::New) {
            // another server has made it just now
            Err(headroom_store::Error::Changed(_)) => {
                self.known.is_made_elsewhere(key);
                Err(ErrorKind::Clash { here: FileType::Directory })
            }
            made => {
                made?;
                self.known.is_made(key);
                Ok(())
            }
        }
    }

    /// Notes a directory that is about to be found or made on another thread: what is stored in it
    /// waits for that. In a directory that was empty when this transfer made it, nothing waits: the
    /// new one is empty as well.
    pub(in crate::files) fn expect_directory(
        &self,
        path: &RelPath,
    ) -> Result<Option<Making>, Error> {
        let key = written_key(path).map_err(|kind| Error::new(path.as_bytes(), "made", kind))?;
        let (parent, _) = key.rsplit_once('/').unwrap_or(("", key));
        if self.known.is_known_as_new(parent) {
            self.known.is_made(key);
            return Ok(None);
        }
        Ok(Known::expect(&self.known, key))
    }

    pub(in crate::files) fn make_sealed_directory(
        &self,
        path: &RelPath,
        mode: u32,
        mtime: Time,
    ) -> Result<(), Error> {
        self.make_sealed(path, mode, mtime)
            .map_err(|kind| Error::new(path.as_bytes(), "made", kind))
    }

    /// Finds or makes a directory, and gives it its mode and time at once: in a store no file that
    /// comes later changes them.
    fn make_sealed(&self, path: &RelPath, mode: u32, mtime: Time) -> Result<(), ErrorKind> {
        let key = written_key(path)?;
        let tags = tags::of_directory(mode, mtime)?;
        self.check_parents(key)?;
        let mut here = None;
        let mut is_there = false;
        // nothing has a name in a directory that was empty when this transfer made it
        if !self.is_in_new_directory(key) {
            here = self.store.look(&marker(key))?;
            is_there = here.is_some();
            if !is_there {
                if let Some(object) = self.object(key)? {
                    return Err(clash(key, &object));
                }
                is_there = self.has_entries(key)?;
            }
        }
        if self.mark(key, &tags, here)? {
            self.known.is_made_elsewhere(key);
        } else if is_there {
            self.known.is_there(key);
        } else {
            self.known.is_made(key);
        }
        Ok(())
    }

    pub(in crate::files) fn seal_directory(
        &self,
        path: &RelPath,
        mode: u32,
        mtime: Time,
    ) -> Result<(), Error> {
        let seal = || {
            let key = written_key(path)?;
            let tags = tags::of_directory(mode, mtime)?;
            let here = self.store.look(&marker(key))?;
            self.mark(key, &tags, here)
        };
        seal()
            .map(drop)
            .map_err(|kind: ErrorKind| Error::new(path.as_bytes(), "given its mode and time", kind))
    }

    /// Gives a directory a marker with these tags in place of the one that is there, unless it has
    /// them. Returns whether others wrote it at the same time.
    fn mark(&self, key: &str, tags: &Tags, mut here: Option<Object>) -> Result<bool, ErrorKind> {
        let marker = marker(key);
        let mut condition = Condition::over(here.as_ref().map(|here| &here.version));
        let mut round = 0;
        loop {
            if here.is_some_and(|here| here.metadata.as_ref() == Some(tags)) {
                return Ok(round > 0);
            }
            match self.store.put(&marker, Bytes::new(), tags, condition) {
                Err(headroom_store::Error::Changed(_) | headroom_store::Error::NotFound(_))
                    if round < ROUNDS =>
                {
                    here = self.store.look(&marker)?;
                    round += 1;
                    condition = match &here {
                        Some(here) if round < ROUNDS => Condition::over(Some(&here.version)),
                        // others write it again and again, or the store has it and does not show it
                        _ => Condition::Any,
                    };
                }
                put => {
                    put?;
                    return Ok(round > 0);
                }
            }
        }
    }

    pub(in crate::files) fn make_symlink(
        &self,
        path: &RelPath,
        target: &[u8],
    ) -> Result<Stored, Error> {
        self.make_sealed_symlink(path, target, None)
    }

    /// Makes a symbolic link that has this time at once; without one, the present one.
    pub(in crate::files) fn make_sealed_symlink(
        &self,
        path: &RelPath,
        target: &[u8],
        mtime: Option<Time>,
    ) -> Result<Stored, Error> {
        let make = || {
            let key = written_key(path)?;
            self.check_place(key)?;
            let here = match self.is_in_new_directory(key) {
                true => None,
                false => self.object(key)?,
            };
            let replaced = here.is_some();
            let is_same = here.as_ref().is_some_and(|here| {
                tags::target(here).as_deref() == Some(target)
                    && mtime.is_none_or(|mtime| tags::metadata(key, here).mtime == mtime)
            });
            if !is_same {
                let tags = tags::of_link(target, mtime.unwrap_or_else(now))?;
                let expected = here.map_or(Expected::Nothing, |it| Expected::Version(it.version));
                self.store.replace(key, Bytes::new(), &tags, &expected).map_err(of_write)?;
            }
            Ok(Stored { replaced })
        };
        make().map_err(|kind: ErrorKind| Error::new(path.as_bytes(), "made", kind))
    }
}

fn clash(key: &str, object: &Object) -> ErrorKind {
    ErrorKind::Clash { here: tags::metadata(key, object).file_type }
}
