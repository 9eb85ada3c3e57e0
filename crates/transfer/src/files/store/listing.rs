//! The entries of a directory of a store, for a list of them.

use headroom_transfer_proto::path::RelPath;

use super::ahead::Ahead;
use super::root::{Place, Root, joined, key};
use super::sorted::{Named, Sorted};
use super::tags;
use crate::files::error::{Error, ErrorKind};
use crate::files::metadata::Metadata;
use crate::files::temporary;

/// Entries that are read ahead.
const AHEAD: usize = 64;

type Found = Result<(RelPath, Metadata, Option<Vec<u8>>), Error>;

/// The entries of a directory, in byte order. Only of empty objects, which may be links, the store
/// is asked for more than the listing has.
#[derive(Debug)]
pub struct Listing {
    root: Root,
    /// The directory's key.
    directory: String,
    shown: Box<[u8]>,
    sorted: Sorted,
    ahead: Ahead<Found>,
    is_end: bool,
    /// The last link that was returned, and its target.
    link: Option<(RelPath, Vec<u8>)>,
}

impl Root {
    pub(in crate::files) fn list(&self, path: Option<&RelPath>) -> Result<Listing, Error> {
        let shown = path.map_or(&b"."[..], RelPath::as_bytes);
        let directory = || {
            let Some(path) = path else { return Ok(String::new()) };
            let key = key(path)?;
            match self.directory(key)? {
                Some(_) => Ok(key.to_owned()),
                None if self.object(key)?.is_some() => Err(ErrorKind::NotBeneath),
                None => Err(ErrorKind::Missing),
            }
        };
        let directory = directory().map_err(|kind| Error::new(shown, "listed", kind))?;
        let sorted = Sorted::new(&self.store, directory.clone());
        let (root, shown) = (self.clone(), shown.into());
        let (ahead, is_end, link) = (Ahead::new(), false, None);
        Ok(Listing { root, directory, shown, sorted, ahead, is_end, link })
    }
}

impl Listing {
    pub(in crate::files) fn target(&self, name: &RelPath) -> Option<Vec<u8>> {
        let (link, target) = self.link.as_ref()?;
        (link == name).then(|| target.clone())
    }

    /// Returns how many names and results are in memory.
    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.ahead.len() + self.sorted.held()
    }

    fn error(&self, kind: ErrorKind) -> Error {
        Error::new(&self.shown, "listed", kind)
    }

    fn begin(&mut self, named: Named) {
        let Named { name, object, is_directory } = named;
        if temporary::is_temporary(name.as_bytes()) {
            return;
        }
        let path = match RelPath::single(name.as_bytes()) {
            Ok(path) => path,
            Err(error) => {
                let error = self.error(error.into());
                return self.ahead.push(Err(error));
            }
        };
        let key = joined(&self.directory, &name);
        match object.filter(|_| !is_directory) {
            None => self.ahead.push(Ok((path, tags::directory(&key, None), None))),
            Some(object) if object.size > 0 => {
                self.ahead.push(Ok((path, tags::metadata(&key, &object), None)));
            }
            Some(listed) => {
                let root = self.root.clone();
                let look = move || {
                    // what was removed or replaced since is shown as it was listed
                    let object = match root.find(&key) {
                        Ok(Some(Place::Object(object))) => object,
                        Ok(_) => listed,
                        Err(kind) => return Err(Error::new(path.as_bytes(), "listed", kind)),
                    };
                    let target = tags::target(&object);
                    Ok((path, tags::metadata(&key, &object), target))
                };
                self.ahead.push_running(self.root.shared.threads.run(look));
            }
        }
    }
}

impl Iterator for Listing {
    /// A name and its metadata.
    type Item = Result<(RelPath, Metadata), Error>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.ahead.len() < AHEAD && !self.is_end {
            match self.sorted.next() {
                None => self.is_end = true,
                Some(Ok(named)) => self.begin(named),
                Some(Err(kind)) => {
                    let error = self.error(kind);
                    self.ahead.push(Err(error));
                }
            }
        }
        let found = self.ahead.pop()?;
        Some(found.map_err(|kind| self.error(kind)).flatten().map(|(name, metadata, target)| {
            self.link = target.map(|target| (name.clone(), target));
            (name, metadata)
        }))
    }
}
