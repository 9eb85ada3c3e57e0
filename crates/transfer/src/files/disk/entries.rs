//! The names in a directory that is compared with another tree, or removed.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use headroom_transfer_proto::path::RelPath;
use nix::errno::Errno;

use super::names::Names;
use super::root::Root;
use crate::files::error::{Error, ErrorKind, FileType};
use crate::files::metadata::Metadata;
use crate::files::temporary;

/// The names in a directory, in byte order. Partial files are skipped.
#[derive(Debug)]
pub(in crate::files) struct Entries {
    root: Root,
    path: Option<RelPath>,
    names: Names,
    directory: Option<Arc<OwnedFd>>,
}

impl Entries {
    /// Opens a directory below a root; `None` is the root itself.
    pub(in crate::files) fn open(root: &Root, path: Option<RelPath>) -> Result<Self, Error> {
        let mut entries = Self { root: root.clone(), path, names: Names::new(), directory: None };
        entries.directory()?;
        Ok(entries)
    }

    /// Returns the path of the next name, and whether it is a directory.
    pub(in crate::files) fn next(&mut self) -> Result<Option<(RelPath, bool)>, Error> {
        let directory = self.directory()?;
        while let Some(name) = self.names.next(&directory) {
            let name = name.map_err(|error| self.error(error))?;
            if temporary::is_temporary(&name) {
                continue;
            }
            let metadata = match Metadata::at(&directory, &name, false) {
                // removed meanwhile
                Err(Errno::ENOENT) => continue,
                metadata => metadata.map_err(|error| self.error(error))?,
            };
            let path = match &self.path {
                Some(path) => path.child(&name),
                None => RelPath::single(&name),
            };
            let path = path.map_err(|error| self.error(ErrorKind::Path(error)))?;
            return Ok(Some((path, metadata.file_type == FileType::Directory)));
        }
        Ok(None)
    }

    /// Closes the directory until the next name is wanted.
    pub(in crate::files) fn rest(&mut self) {
        self.directory = None;
    }

    /// Returns how many names are in memory.
    pub(in crate::files) fn held(&self) -> usize {
        self.names.held()
    }

    fn directory(&mut self) -> Result<Arc<OwnedFd>, Error> {
        if let Some(directory) = &self.directory {
            return Ok(Arc::clone(directory));
        }
        let path = self.path.as_ref().map(RelPath::as_bytes);
        let directory = self.root.beneath().directory(path).map_err(|error| self.error(error))?;
        self.directory = Some(Arc::clone(&directory));
        Ok(directory)
    }

    fn error(&self, kind: impl Into<ErrorKind>) -> Error {
        Error::new(self.path.as_ref().map_or(b".", RelPath::as_bytes), "compared", kind)
    }
}
