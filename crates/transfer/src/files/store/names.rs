//! Removes and renames what is in a store, and marks incomplete trees.

use bytes::Bytes;
use headroom_store::{Condition, Metadata as Tags};
use headroom_transfer_proto::path::RelPath;

use super::root::{Place, Root, joined, key, marker, written_key};
use super::tags;
use super::threads::Running;
use crate::files::error::{Error, ErrorKind, FileType};
use crate::files::temporary;

impl Root {
    pub(in crate::files) fn remove(&self, path: &RelPath) -> Result<(), Error> {
        let remove = || match self.find(written_key(path)?)? {
            Some(Place::Object(_)) => self.remove_key(path, false),
            Some(Place::Directory(_)) => self.remove_key(path, true),
            None => Err(ErrorKind::Missing),
        };
        remove().map_err(|kind| Error::new(path.as_bytes(), "removed", kind))
    }

    pub(in crate::files) fn remove_found(
        &self,
        path: &RelPath,
        is_directory: bool,
    ) -> Result<(), Error> {
        let remove = || {
            self.remove_key(path, is_directory)?;
            // a file of the same name is listed with the directory, not apart from it
            if is_directory && self.object(key(path)?)?.is_some() {
                self.remove_key(path, false)?;
            }
            Ok(())
        };
        remove().map_err(|kind: ErrorKind| Error::new(path.as_bytes(), "removed", kind))
    }

    /// Removes a file that a listing has found, on another thread.
    pub(in crate::files) fn begin_removal(&self, path: &RelPath) -> Running<Result<(), Error>> {
        let (root, path) = (self.clone(), path.clone());
        self.shared.threads.run(move || root.remove_found(&path, false))
    }

    /// Removes a file or link, unless `dry_run`, on another thread. Returns whether it is a
    /// directory, which stays; `None` if nothing has the name.
    pub(in crate::files) fn begin_removal_of_any(
        &self,
        path: &RelPath,
        dry_run: bool,
    ) -> Running<Result<Option<bool>, Error>> {
        let (root, path) = (self.clone(), path.clone());
        self.shared.threads.run(move || {
            let Some(found) = root.look(&path)? else { return Ok(None) };
            let is_directory = found.file_type == FileType::Directory;
            if !is_directory && !dry_run {
                root.remove_found(&path, false)?;
            }
            Ok(Some(is_directory))
        })
    }

    /// Removes an object, or an empty directory's marker if there is one.
    fn remove_key(&self, path: &RelPath, is_directory: bool) -> Result<(), ErrorKind> {
        let key = written_key(path)?;
        if !is_directory {
            return Ok(self.store.remove(key)?);
        }
        match self.has_entries(key)? {
            true => Err(ErrorKind::NotEmpty),
            false => Ok(self.store.remove(&marker(key))?),
        }
    }

    /// Copies a file or link and removes it under its former name.
    pub(in crate::files) fn rename(
        &self,
        from: &RelPath,
        to: &RelPath,
        replace: bool,
        confined: bool,
    ) -> Result<(), Error> {
        let rename = || {
            let (key, new) = (written_key(from)?, written_key(to)?);
            let object = match self.find(key)? {
                Some(Place::Object(object)) => object,
                Some(Place::Directory(_)) => return Err(ErrorKind::NoDirectoryRename),
                None => return Err(ErrorKind::Missing),
            };
            if let Some(target) = tags::target(&object)
                && confined
                && !to.holds_link_to(&target)
            {
                return Err(ErrorKind::LeavesRoot);
            }
            if key == new {
                return match replace {
                    true => Ok(()),
                    false => Err(ErrorKind::Clash { here: tags::metadata(key, &object).file_type }),
                };
            }
            self.check_place(new)?;
            match self.store.copy(key, new, replace) {
                Err(headroom_store::Error::Changed(_)) if !replace => {
                    let here = self.object(new)?;
                    let here = here.map(|here| tags::metadata(new, &here).file_type);
                    return Err(ErrorKind::Clash { here: here.unwrap_or(FileType::File) });
                }
                copied => copied?,
            }
            Ok(self.store.remove(key)?)
        };
        rename().map_err(|kind| Error::new(from.as_bytes(), "renamed", kind))
    }

    pub(in crate::files) fn begin_tree(&self, path: &RelPath, source: &[u8]) -> Result<(), Error> {
        let begin = || {
            let mark = mark(path, source)?;
            self.store.put(&mark, Bytes::new(), &Tags::new(), Condition::Any)?;
            Ok(())
        };
        begin().map_err(|kind: ErrorKind| Error::new(path.as_bytes(), "marked as unfinished", kind))
    }

    pub(in crate::files) fn is_unfinished_tree(&self, path: &RelPath, source: &[u8]) -> bool {
        let look = || Ok::<_, ErrorKind>(self.object(&mark(path, source)?)?.is_some());
        look().unwrap_or(false)
    }

    pub(in crate::files) fn finish_tree(&self, path: &RelPath, source: &[u8]) -> Result<(), Error> {
        let finish = || Ok(self.store.remove(&mark(path, source)?)?);
        finish().map_err(|kind: ErrorKind| Error::new(path.as_bytes(), "marked as complete", kind))
    }
}

/// Returns the key of the mark of an incomplete tree.
fn mark(path: &RelPath, source: &[u8]) -> Result<String, ErrorKind> {
    let name = temporary::of_tree(source);
    match String::from_utf8(name) {
        Ok(name) => Ok(joined(key(path)?, &name)),
        Err(_) => Err(ErrorKind::NotUtf8),
    }
}
