//! The names in a directory of a store that is compared with another tree, or removed.

use headroom_transfer_proto::path::RelPath;

use super::root::{Root, key};
use super::sorted::Sorted;
use crate::files::error::{Error, ErrorKind};
use crate::files::temporary;

/// The names in a directory, in byte order. Partial files are skipped.
#[derive(Debug)]
pub(in crate::files) struct Entries {
    path: Option<RelPath>,
    sorted: Sorted,
}

impl Entries {
    /// Lists a directory below a root; `None` is the root itself. One that is missing is empty.
    pub(in crate::files) fn open(root: &Root, path: Option<RelPath>) -> Result<Self, Error> {
        let directory = match &path {
            Some(path) => {
                key(path).map_err(|kind| Error::new(path.as_bytes(), "compared", kind))?.to_owned()
            }
            None => String::new(),
        };
        let sorted = Sorted::new(&root.store, directory);
        Ok(Self { path, sorted })
    }

    /// Returns the path of the next name, and whether it is a directory.
    pub(in crate::files) fn next(&mut self) -> Result<Option<(RelPath, bool)>, Error> {
        while let Some(named) = self.sorted.next() {
            let named = named.map_err(|kind| self.error(kind))?;
            let name = named.name.as_bytes();
            if temporary::is_temporary(name) {
                continue;
            }
            let path = match &self.path {
                Some(path) => path.child(name),
                None => RelPath::single(name),
            };
            let path = path.map_err(|error| self.error(ErrorKind::Path(error)))?;
            return Ok(Some((path, named.is_directory)));
        }
        Ok(None)
    }

    /// Returns how many names are in memory.
    pub(in crate::files) fn held(&self) -> usize {
        self.sorted.held()
    }

    fn error(&self, kind: ErrorKind) -> Error {
        Error::new(self.path.as_ref().map_or(b".", RelPath::as_bytes), "compared", kind)
    }
}
