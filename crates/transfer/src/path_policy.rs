//! What the paths of a request mean on the server.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use headroom_transfer_proto::path::RelPath;

use crate::delivery::Destination;
use crate::files::{Error, Links, Root, Source};

/// How the server takes the paths that clients name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PathPolicy {
    /// They lie below the root, and no symbolic link is followed.
    #[default]
    BeneathRoot,
    /// As a user's own programs take them: links on the way to what is named are
    /// followed. For a server that does what its client could do by itself. Within
    /// what is named nothing is followed, as ever.
    FollowLinks,
}

impl PathPolicy {
    /// Where a delivery goes.
    pub(crate) fn destination(
        self,
        root: &Root,
        to: Option<&RelPath>,
        rename: bool,
    ) -> Result<Destination, Error> {
        match self.found(root, to, rename)? {
            Some((there, missing)) => Destination::resolve(&there, missing.as_ref(), rename),
            None => Destination::resolve(root, to, rename),
        }
    }

    /// The directory that is made like another, made where it is missing if that is
    /// wished; and whether it is missing.
    pub(crate) fn directory(
        self,
        root: &Root,
        to: Option<&RelPath>,
        make: bool,
    ) -> Result<(Destination, bool), Error> {
        match self.found(root, to, false)? {
            Some((there, missing)) => Destination::directory(&there, missing.as_ref(), make),
            None => Destination::directory(root, to, make),
        }
    }

    /// Where what is named is looked up by links: the directory that is there, and
    /// what of the path is not; the last component too, with `by_name`, if no link leads
    /// to it.
    fn found(
        self,
        root: &Root,
        to: Option<&RelPath>,
        by_name: bool,
    ) -> Result<Option<(Root, Option<RelPath>)>, Error> {
        let (Self::FollowLinks, Some(to)) = (self, to) else { return Ok(None) };
        let components: Vec<_> = to.components().collect();
        let is_link = |path: PathBuf| path.symlink_metadata().is_ok_and(|meta| meta.is_symlink());
        let most = match by_name && !is_link(on_disk(root, &components)) {
            true => components.len() - 1,
            false => components.len(),
        };
        let there = (0..=most).rev().find_map(|count| {
            let path = on_disk(root, &components[..count]);
            path.is_dir().then_some((path, count))
        });
        let Some((there, count)) = there else { return Ok(None) };
        let missing = RelPath::parse(&components[count..].join(&b'/')).ok();
        Ok(Some((Root::open(&there)?, missing)))
    }

    /// What is to be sent: of each, whether without its name; and what becomes of links in
    /// it. None but a server that does what its client could do follows links.
    pub(crate) fn source(
        self,
        root: &Root,
        wanted: Vec<(Option<RelPath>, bool)>,
        links: Links,
    ) -> Source {
        match self {
            Self::BeneathRoot => Source::below(root, wanted, links),
            Self::FollowLinks => {
                let paths = wanted.into_iter().map(|(path, contents)| {
                    let components = path.iter().flat_map(RelPath::components).collect::<Vec<_>>();
                    let mut path = on_disk(root, &components);
                    if contents || components.is_empty() {
                        path.push(".");
                    }
                    path
                });
                Source::new(paths, links)
            }
        }
    }

    /// Where a name is that is made, changed or removed: links on the way to it may be
    /// followed, one that has it is not.
    pub(crate) fn name(self, root: &Root, path: RelPath) -> Result<(Root, RelPath), Error> {
        if self == Self::BeneathRoot {
            return Ok((root.clone(), path));
        }
        let components: Vec<_> = path.components().collect();
        let found = (0..components.len()).rev().find_map(|count| {
            let above = on_disk(root, &components[..count]);
            above.is_dir().then_some((above, count))
        });
        let Some((above, count)) = found else { return Ok((root.clone(), path)) };
        match RelPath::parse(&components[count..].join(&b'/')) {
            Ok(name) => Ok((Root::open(&above)?, name)),
            Err(_) => Ok((root.clone(), path.clone())),
        }
    }

    /// What is to be listed: a directory, or the one name in it.
    pub(crate) fn listed(
        self,
        root: &Root,
        path: Option<RelPath>,
    ) -> Result<(Root, Option<RelPath>), Error> {
        let (Self::FollowLinks, Some(named)) = (self, &path) else {
            return Ok((root.clone(), path));
        };
        let components: Vec<_> = named.components().collect();
        let whole = on_disk(root, &components);
        if whole.is_dir() {
            return Ok((Root::open(&whole)?, None));
        }
        let parent = on_disk(root, &components[..components.len() - 1]);
        Ok((Root::open(&parent)?, RelPath::single(named.name()).ok()))
    }
}

fn on_disk(root: &Root, components: &[&[u8]]) -> PathBuf {
    let mut path = root.path().to_owned();
    path.extend(components.iter().map(|component| OsStr::from_bytes(component)));
    path
}
