//! Where a delivery goes.

use std::collections::HashSet;

use headroom_transfer_proto::path::RelPath;

use crate::files::{self, Root, What, Why};

/// Where a delivery goes.
#[derive(Debug)]
pub(crate) struct Destination {
    pub(super) root: Root,
    /// What one file or link is to be called.
    pub(super) name: Option<RelPath>,
    /// The first components of names that were asked for, where only those may come.
    asked: Option<HashSet<Vec<u8>>>,
}

impl Destination {
    /// Below a root: into `to` if it is a directory; else, where that is wished, it
    /// is the name of the one file that comes; else it is made.
    pub(crate) fn resolve(
        root: &Root,
        to: Option<&RelPath>,
        rename: bool,
    ) -> Result<Self, files::Error> {
        let Some(to) = to else { return Ok(Self { root: root.clone(), name: None, asked: None }) };
        let here = match root.look(to) {
            Err(error) if matches!(error.why(), Why::Missing) => None,
            looked => looked?,
        };
        if here.is_some_and(|here| here.what == What::Directory) {
            return Ok(Self { root: root.below(to)?, name: None, asked: None });
        }
        let directory = if rename { to.parent() } else { Some(to.clone()) };
        let inner = match &directory {
            Some(directory) => {
                make_directories(root, directory)?;
                root.below(directory)?
            }
            None => root.clone(),
        };
        let name = rename.then(|| RelPath::single(to.name()).ok()).flatten();
        Ok(Self { root: inner, name, asked: None })
    }

    /// What one file is to be called, and where; none if that is a directory.
    pub(crate) fn file(self) -> Option<(Root, RelPath)> {
        Some((self.root, self.name?))
    }

    /// The directory `to` below a root, made where it is missing if that is wished.
    /// Where it is not, says that it is missing.
    pub(crate) fn directory(
        root: &Root,
        to: Option<&RelPath>,
        make: bool,
    ) -> Result<(Self, bool), files::Error> {
        let Some(to) = to else {
            return Ok((Self { root: root.clone(), name: None, asked: None }, false));
        };
        if make {
            make_directories(root, to)?;
        }
        match root.below(to) {
            Err(error) if !make && matches!(error.why(), Why::Missing) => {
                Ok((Self { root: root.clone(), name: None, asked: None }, true))
            }
            below => Ok((Self { root: below?, name: None, asked: None }, false)),
        }
    }

    /// Takes in only what has one of these names, or is below it: a peer chooses what
    /// it sends, and may send more than it was asked for.
    pub(crate) fn only(self, asked: HashSet<Vec<u8>>) -> Self {
        Self { asked: Some(asked), ..self }
    }

    pub(super) fn is_asked_for(&self, path: &RelPath) -> bool {
        let first = path.components().next().unwrap_or_default();
        self.asked.as_ref().is_none_or(|asked| asked.contains(first))
    }
}

/// Makes a directory, and those it is in.
fn make_directories(root: &Root, path: &RelPath) -> Result<(), files::Error> {
    match root.make_directory(path, 0o777) {
        Err(error) if matches!(error.why(), Why::Missing) => {
            let Some(parent) = path.parent() else { return Err(error) };
            make_directories(root, &parent)?;
            root.make_directory(path, 0o777)
        }
        made => made,
    }
}
