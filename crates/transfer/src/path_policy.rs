//! How the server resolves the paths of requests.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use headroom_transfer_proto::path::RelPath;

use crate::delivery::Destination;
use crate::files::{Error, Links, Root, Source};

/// How the server resolves paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PathPolicy {
    /// Below the root, without following symbolic links.
    #[default]
    BeneathRoot,
    /// As the user's own programs do: symbolic links on the way to a named path are followed, for a
    /// server whose client could do the same through ssh. Within a named directory nothing is
    /// followed.
    FollowLinks,
}

impl PathPolicy {
    /// Resolves the destination of a transfer.
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

    /// Resolves the destination of a sync, and makes it with `make`. Also returns whether it is
    /// missing.
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

    /// Follows links: returns the directory that exists and the part of the path that does not;
    /// with `by_name` also the last component, unless it is a link.
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

    /// Makes the source of what to send; the flag says whether only the content of a directory is
    /// sent. Only [`Self::FollowLinks`] follows links.
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

    /// Resolves a name to make, change or remove: links on the way may be followed, the name itself
    /// is not.
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

    /// Resolves what to list: a directory, or a name in it.
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
