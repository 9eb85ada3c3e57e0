//! Where a delivery goes.

use std::collections::HashSet;

use headroom_transfer_proto::path::RelPath;

use crate::files::{self, ErrorKind, FileType, Root};

/// Where a delivery goes.
#[derive(Debug)]
pub(crate) struct Destination {
    pub(super) root: Root,
    /// What the one source that comes is to be called: a file, or a directory with all
    /// that is in it.
    name: Option<RelPath>,
    /// What that source calls itself, once it has come.
    source: Option<Vec<u8>>,
    /// The directory that `root` is in, and its name there: what the source is called if it
    /// is a tree that an earlier transfer began to store so.
    begun: Option<(Root, RelPath)>,
    /// The first components of names that were asked for, where only those may come.
    asked: Option<HashSet<Vec<u8>>>,
}

impl Destination {
    /// Resolves `to` below a root: into it if it is a directory; else, with `rename`,
    /// it is the name of the one source that comes; else it is made. Missing
    /// directories on the way to it are made.
    ///
    /// A tree that became `to` in an earlier transfer, which was interrupted, becomes it
    /// again: the same command resumes.
    pub(crate) fn resolve(
        root: &Root,
        to: Option<&RelPath>,
        rename: bool,
    ) -> Result<Self, files::Error> {
        let Some(to) = to else { return Ok(Self::into(root.clone())) };
        let here = match root.look(to) {
            Err(error) if matches!(error.kind(), ErrorKind::Missing) => None,
            looked => looked?,
        };
        let name = rename.then(|| RelPath::single(to.name()).ok()).flatten();
        if here.is_some_and(|here| here.file_type == FileType::Directory) {
            let outer = to.parent().map_or_else(|| Ok(root.clone()), |outer| root.below(&outer))?;
            let begun = name.map(|name| (outer, name));
            return Ok(Self { begun, ..Self::into(root.below(to)?) });
        }
        let directory = if rename { to.parent() } else { Some(to.clone()) };
        let inner = match &directory {
            Some(directory) => {
                make_directories(root, directory)?;
                root.below(directory)?
            }
            None => root.clone(),
        };
        Ok(Self { name, ..Self::into(inner) })
    }

    /// Everything goes into this directory under its own name.
    fn into(root: Root) -> Self {
        Self { root, name: None, source: None, begun: None, asked: None }
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
            return Ok((Self::into(root.clone()), false));
        };
        if make {
            make_directories(root, to)?;
        }
        match root.below(to) {
            Err(error) if !make && matches!(error.kind(), ErrorKind::Missing) => {
                Ok((Self::into(root.clone()), true))
            }
            below => Ok((Self::into(below?), false)),
        }
    }

    /// Returns the path that an entry gets here.
    ///
    /// # Errors
    /// A second source came where one was to be called so, or the path is too long.
    pub(super) fn renamed(&mut self, path: RelPath) -> Result<RelPath, String> {
        let (first, rest) = path.split_first();
        if let Some((outer, name)) = self.begun.take()
            && outer.is_unfinished_tree(&name, first)
        {
            (self.root, self.name) = (outer, Some(name));
        }
        let Some(name) = &self.name else { return Ok(path) };
        match &self.source {
            None => self.source = Some(first.to_vec()),
            Some(source) if source == first => {}
            Some(_) => {
                return Err(format!(
                    "{path} is not stored: only one file or directory can be called {name}"
                ));
            }
        }
        match rest {
            Some(rest) => {
                name.join(&rest).map_err(|error| format!("{path} is not stored: {error}"))
            }
            None => Ok(name.clone()),
        }
    }

    /// Notes that the directory which the source has become is not complete, for the next
    /// transfer of it.
    pub(super) fn begin_tree(&self) -> Result<(), files::Error> {
        match self.name.as_ref().zip(self.source.as_ref()) {
            Some((name, source)) => self.root.begin_tree(name, source),
            None => Ok(()),
        }
    }

    /// Notes that it is complete.
    pub(super) fn finish_tree(&self) -> Result<(), files::Error> {
        match self.name.as_ref().zip(self.source.as_ref()) {
            Some((name, source)) => self.root.finish_tree(name, source),
            None => Ok(()),
        }
    }

    /// Whether a path here is that of the one source that was to be called so.
    pub(super) fn is_named(&self, path: &RelPath) -> bool {
        self.name.as_ref() == Some(path)
    }

    /// Takes in only what has one of these names, or is below it: a peer chooses what
    /// it sends, and may send more than it was asked for.
    pub(crate) fn only(self, asked: HashSet<Vec<u8>>) -> Self {
        Self { asked: Some(asked), ..self }
    }

    /// Whether a symbolic link leads to a place in the tree that it came in. Where all that
    /// may come has names, the names are those of trees; else the tree is the directory
    /// that everything goes into.
    pub(super) fn tree_holds_link(&self, path: &RelPath, target: &[u8]) -> bool {
        match &self.asked {
            Some(_) => path.tree_holds_link_to(target),
            None => path.holds_link_to(target),
        }
    }

    pub(super) fn is_asked_for(&self, path: &RelPath) -> bool {
        let first = path.components().next().unwrap_or_default();
        self.asked.as_ref().is_none_or(|asked| asked.contains(first))
    }
}

/// Makes a directory, and those it is in.
pub(crate) fn make_directories(root: &Root, path: &RelPath) -> Result<(), files::Error> {
    match root.make_directory(path, 0o777) {
        Err(error) if matches!(error.kind(), ErrorKind::Missing) => {
            let Some(parent) = path.parent() else { return Err(error) };
            make_directories(root, &parent)?;
            root.make_directory(path, 0o777)
        }
        made => made,
    }
}
