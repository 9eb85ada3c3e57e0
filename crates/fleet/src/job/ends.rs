//! The two ends of a job: what is copied, and to where.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use headroom_transfer::RemotePath;
use headroom_transfer::client::below_root;
use headroom_transfer::files::Root;

use super::local;

/// A tree that a worker reads or writes by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tree {
    /// A directory of the worker's machine.
    Folder(PathBuf),
    /// What is below a prefix of an object store: its URL.
    Store(String),
}

/// Where files come from and go to. Both are directories, and the content of one goes into the
/// other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Direction {
    /// To a server.
    Up {
        /// What each worker reads.
        from: Tree,
        /// The server, and the directory below its root.
        to: RemotePath,
    },
    /// From a server.
    Down {
        /// The server, and the directory below its root.
        from: RemotePath,
        /// What each worker writes.
        to: Tree,
    },
    /// Without any server.
    Within {
        /// What each worker reads.
        from: Tree,
        /// What each worker writes.
        to: Tree,
    },
    /// From one server to another.
    Across {
        /// The server that is read, and the directory below its root.
        from: RemotePath,
        /// The server that is written, and the directory below its root.
        to: RemotePath,
    },
}

impl Direction {
    /// Returns the servers, and the directories below their roots: none, one or two.
    #[must_use]
    pub fn servers(&self) -> Vec<&RemotePath> {
        match self {
            Self::Up { to: server, .. } | Self::Down { from: server, .. } => vec![server],
            Self::Within { .. } => Vec::new(),
            Self::Across { from, to } => vec![from, to],
        }
    }

    /// Whether several workers can copy ranges of one file: between two servers a whole file is
    /// received first.
    #[must_use]
    pub const fn shares_files(&self) -> bool {
        !matches!(self, Self::Across { .. })
    }

    /// Returns the trees that each worker reads or writes by itself: the source and the
    /// destination, as far as they are such.
    #[must_use]
    pub const fn trees(&self) -> (Option<&Tree>, Option<&Tree>) {
        match self {
            Self::Up { from, .. } => (Some(from), None),
            Self::Down { to, .. } => (None, Some(to)),
            Self::Within { from, to } => (Some(from), Some(to)),
            Self::Across { .. } => (None, None),
        }
    }
}

/// One end of a job.
enum End {
    Tree(Tree),
    Server(RemotePath),
}

/// Reads `from` and `to` as a job keeps them. An error is a sentence.
pub(super) fn direction(from: &str, to: &str) -> Result<Direction, String> {
    let (from, to) = (end(from)?, end(to)?);
    if overlap(&from, &to) {
        return Err(
            "`from` and `to` are the same directory, or one is in the other: what is copied would be copied again, and a delete pass would remove it"
                .to_owned(),
        );
    }
    Ok(match (from, to) {
        (End::Tree(from), End::Server(to)) => Direction::Up { from, to },
        (End::Server(from), End::Tree(to)) => Direction::Down { from, to },
        (End::Tree(from), End::Tree(to)) => Direction::Within { from, to },
        (End::Server(from), End::Server(to)) => Direction::Across { from, to },
    })
}

/// Returns an end of a job file that is in this folder as a job keeps it. An error is a sentence.
pub(super) fn resolved(text: &str, folder: &Path) -> Result<String, String> {
    match end(text)? {
        End::Tree(Tree::Folder(_)) => local(text, folder),
        End::Tree(Tree::Store(url)) => Ok(url),
        End::Server(_) => Ok(text.to_owned()),
    }
}

fn end(text: &str) -> Result<End, String> {
    if is_url(text) {
        return Ok(End::Tree(Tree::Store(Root::check_store_url(text)?)));
    }
    let words = OsStr::new(text);
    if !RemotePath::is_meant(words) {
        return Ok(End::Tree(Tree::Folder(text.into())));
    }
    let remote = RemotePath::parse(words).map_err(|error| error.to_string())?;
    if let Some(user) = remote.host.user() {
        return Err(format!(
            "`{user}@` is for ssh, by which a fleet does not connect: it needs a `headroom serve`, which knows you by your key"
        ));
    }
    below_root(&remote.path).map_err(|error| error.to_string())?;
    Ok(End::Server(remote))
}

/// Whether a text begins as a URL does, and not as `HOST:PATH`.
fn is_url(text: &str) -> bool {
    text.split_once("://").is_some_and(|(scheme, _)| {
        !scheme.is_empty() && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric())
    })
}

/// Whether one end is the other, or in it, as far as their names tell.
fn overlap(one: &End, other: &End) -> bool {
    match (one, other) {
        (End::Tree(Tree::Folder(one)), End::Tree(Tree::Folder(other))) => {
            one.starts_with(other) || other.starts_with(one)
        }
        (End::Tree(Tree::Store(one)), End::Tree(Tree::Store(other))) => {
            are_nested(one.as_bytes(), other.as_bytes())
        }
        (End::Server(one), End::Server(other)) => {
            one.host.known_as() == other.host.known_as()
                && are_nested(&path_of(one), &path_of(other))
        }
        _ => false,
    }
}

/// Returns the path below the root, without what does not tell paths apart.
fn path_of(server: &RemotePath) -> Vec<u8> {
    let path = below_root(&server.path).ok().flatten();
    path.map(|path| path.as_bytes().to_vec()).unwrap_or_default()
}

fn are_nested(one: &[u8], other: &[u8]) -> bool {
    let is_in = |path: &[u8], above: &[u8]| {
        let rest = path.strip_prefix(above);
        above.is_empty() || rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
    };
    is_in(one, other) || is_in(other, one)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(from: &str, to: &str) -> Direction {
        direction(from, to).unwrap_or_else(|reason| panic!("{from}, {to}: {reason}"))
    }

    #[test]
    fn any_two_of_folder_store_and_server_are_a_job() {
        let folder = |path: &str| Tree::Folder(path.into());
        let store = |url: &str| Tree::Store(url.to_owned());
        let server = |text: &str| RemotePath::parse(text.as_ref()).expect("a remote path");
        let up = |from, to| Direction::Up { from, to };
        let down = |from, to| Direction::Down { from, to };
        let within = |from, to| Direction::Within { from, to };
        assert_eq!(of("/a", "nas:b"), up(folder("/a"), server("nas:b")));
        assert_eq!(of("s3://b/x/", "nas:b"), up(store("s3://b/x"), server("nas:b")));
        assert_eq!(of("nas:b", "/a"), down(server("nas:b"), folder("/a")));
        assert_eq!(of("nas:b", "gs://b"), down(server("nas:b"), store("gs://b")));
        assert_eq!(of("/a", "az://c/x"), within(folder("/a"), store("az://c/x")));
        assert_eq!(of("s3://b/x", "/a"), within(store("s3://b/x"), folder("/a")));
        assert_eq!(of("s3://b/x", "s3://b/y"), within(store("s3://b/x"), store("s3://b/y")));
        assert_eq!(of("/a", "/b"), within(folder("/a"), folder("/b")));
        let (from, to) = (server("one:x"), server("two:x"));
        assert_eq!(of("one:x", "two:x"), Direction::Across { from, to });
    }

    #[test]
    fn servers_and_trees_are_those_that_there_are() {
        assert_eq!(of("one:x", "two:x").servers().len(), 2);
        assert_eq!(of("one:x", "s3://b").servers().len(), 1);
        assert!(of("/a", "s3://b").servers().is_empty());
        let (from, to) = (Tree::Folder("/a".into()), Tree::Store("s3://b".to_owned()));
        assert_eq!(of("/a", "s3://b").trees(), (Some(&from), Some(&to)));
        assert_eq!(of("one:x", "s3://b").trees(), (None, Some(&to)));
        assert_eq!(of("one:x", "two:x").trees(), (None, None));
    }

    #[test]
    fn one_end_is_not_in_the_other() {
        for (from, to) in [
            ("/a", "/a/b"),
            ("/a/b", "/a"),
            ("/", "/a"),
            ("s3://b", "s3://b/x"),
            ("s3://b/x/y", "s3://b/x"),
            ("nas:x", "NAS:./x/y"),
            ("nas:", "nas:x"),
        ] {
            let reason = direction(from, to).expect_err(from);
            assert!(reason.contains("one is in the other"), "{reason}");
        }
        for (from, to) in [
            ("/a", "/ab"),
            ("s3://b/x", "s3://b/xy"),
            ("s3://b", "gs://b"),
            ("nas:x", "nas:9000:x"),
        ] {
            of(from, to);
        }
    }

    #[test]
    fn a_url_that_is_no_store_is_refused_and_no_credential_is_repeated() {
        for url in ["https://key:secret@b/x", "s3://key:secret@b/x", "s3://", "s3://b/../secret"] {
            let reason = direction(url, "/a").expect_err(url);
            assert!(reason.contains("s3://BUCKET/PREFIX"), "{reason}");
            assert!(!reason.contains("secret"), "{reason}");
        }
        // a name with a colon, and not a scheme
        assert_eq!(of("/jobs/s3://x", "nas:x").servers().len(), 1);
    }
}
