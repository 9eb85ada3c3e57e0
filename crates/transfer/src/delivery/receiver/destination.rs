//! The destination of a transfer.

use std::collections::HashSet;

use headroom_transfer_proto::path::RelPath;

use crate::files::{self, ErrorKind, FileType, Root};

/// The destination of a transfer.
#[derive(Debug)]
pub(crate) struct Destination {
    pub(super) root: Root,
    /// The name for the single source: a file, or a directory with its content.
    name: Option<RelPath>,
    /// The source's own name, once it is known.
    source: Option<Vec<u8>>,
    /// The parent of `root`, and its name there: the source gets that name if it is a tree that an
    /// earlier transfer began to store so.
    begun: Option<(Root, RelPath)>,
    /// The first components of requested names, if only those may arrive.
    asked: Option<HashSet<Vec<u8>>>,
}

impl Destination {
    /// Resolves `to` below a root. An existing directory is the destination itself. Otherwise, with
    /// `rename`, `to` is the name of the single source; else it is made. Missing parents are made.
    ///
    /// A tree that an interrupted transfer began to store as `to` continues as `to`: the same
    /// command resumes.
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

    /// Stores everything in this directory under its own name.
    fn into(root: Root) -> Self {
        Self { root, name: None, source: None, begun: None, asked: None }
    }

    /// Returns the name for a single file, and where; `None` if that is a directory.
    pub(crate) fn file(self) -> Option<(Root, RelPath)> {
        Some((self.root, self.name?))
    }

    /// Returns where a single file of this name is stored, and under which name.
    pub(crate) fn of_file(self, name: &RelPath) -> (Root, RelPath) {
        (self.root, self.name.unwrap_or_else(|| name.clone()))
    }

    /// Opens the directory `to` below a root, and makes it with `make`. Also returns whether it is
    /// missing.
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

    /// Returns the path under which an entry is stored.
    ///
    /// # Errors
    /// A second source arrived although only one can have the name, or the path is too long.
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
                    "{path} cannot be stored: only one file or directory can have the name {name}"
                ));
            }
        }
        match rest {
            Some(rest) => {
                name.join(&rest).map_err(|error| format!("{path} cannot be stored: {error}"))
            }
            None => Ok(name.clone()),
        }
    }

    /// Marks the directory of the tree as incomplete, for the next transfer of it.
    pub(super) fn begin_tree(&self) -> Result<(), files::Error> {
        match self.name.as_ref().zip(self.source.as_ref()) {
            Some((name, source)) => self.root.begin_tree(name, source),
            None => Ok(()),
        }
    }

    /// Removes that mark.
    pub(super) fn finish_tree(&self) -> Result<(), files::Error> {
        match self.name.as_ref().zip(self.source.as_ref()) {
            Some((name, source)) => self.root.finish_tree(name, source),
            None => Ok(()),
        }
    }

    /// Whether a path is that of the single source.
    pub(super) fn is_named(&self, path: &RelPath) -> bool {
        self.name.as_ref() == Some(path)
    }

    /// Accepts only these names and what is below them: a peer may send more than was requested.
    pub(crate) fn only(self, asked: HashSet<Vec<u8>>) -> Self {
        Self { asked: Some(asked), ..self }
    }

    /// Whether a symbolic link stays in its tree. If names were requested, they are those of trees;
    /// otherwise the tree is the directory that everything goes into.
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

/// Makes a directory and its missing parents.
pub(crate) fn make_directories(root: &Root, path: &RelPath) -> Result<(), files::Error> {
    make_directories_as(root, path, &|_| 0o777)
}

/// Does what [`make_directories`] does, with permissions for the path and each of its parents.
pub(crate) fn make_directories_as(
    root: &Root,
    path: &RelPath,
    mode: &dyn Fn(&RelPath) -> u32,
) -> Result<(), files::Error> {
    match root.make_directory(path, mode(path)) {
        Err(error) if matches!(error.kind(), ErrorKind::Missing) => {
            let Some(parent) = path.parent() else { return Err(error) };
            make_directories_as(root, &parent, mode)?;
            root.make_directory(path, mode(path))
        }
        made => made,
    }
}
