//! What could not be done with a file of this machine, and why, as a sentence.

use std::io;

use headroom_transfer_proto::message::{MOST_ATTRIBUTE_BYTES, MOST_XATTRS};
use headroom_transfer_proto::path::{PathError, RelPath, shown};
use headroom_units::size;
use nix::errno::Errno;

/// What could not be done, with which file, and why.
#[derive(Debug, thiserror::Error)]
#[error("{path} cannot be {done}: {kind}")]
pub struct Error {
    path: Box<str>,
    done: &'static str,
    kind: Box<ErrorKind>,
    /// The name that it would be sent under.
    name: Option<Box<RelPath>>,
    /// Whether somebody named just this, and did not only meet it in a directory.
    is_asked_for: bool,
}

/// Why something could not be done with a file.
#[derive(Debug, thiserror::Error)]
pub enum ErrorKind {
    /// There is nothing of that name.
    #[error("there is no such file or directory")]
    Missing,
    /// Permission is denied.
    #[error("permission is denied to {}, as whom headroom runs", this_user())]
    Denied,
    /// The file system takes no changes.
    #[error("its file system is read-only")]
    ReadOnly,
    /// A directory would get a name with fewer directories above it.
    #[error(
        "directories are not moved higher up: links in it that lead to `..` could then lead out of what is served"
    )]
    MovesUp,
    /// A directory would get a name within itself.
    #[error("a directory cannot be moved into itself")]
    IntoItself,
    /// Something is mounted there, or the system uses it.
    #[error("it is in use: something is mounted there, or the system needs it")]
    InUse,
    /// A name would be given across file systems.
    #[error("both names are not on one file system; send it again and remove it here")]
    OtherFileSystem,
    /// It is a directory, and a file's name is needed.
    #[error("it is a directory; say what the file in it is to be called")]
    NoName,
    /// It is no file, and only a file goes through a pipe.
    #[error("it is no file")]
    NoFile,
    /// The disk or a quota is full.
    #[error("the disk is full; make room and start it again: it goes on where this ended")]
    Full,
    /// The same of what is not resumed.
    #[error("the disk is full; make room and send it again, from its beginning")]
    FullOnce,
    /// The disk would be full.
    #[error(
        "it needs {} of disk, and {} are free; make room and start it again",
        size(*needed),
        size(*free)
    )]
    NoSpace {
        /// Octets that are still to come.
        needed: u64,
        /// Octets that the file system has for this user.
        free: u64,
    },
    /// The file system takes no file of that size.
    #[error("the file system takes no file of {}", size(*.0))]
    TooLarge(u64),
    /// Somebody else holds the lock.
    #[error("another transfer of the same file is going on; wait until it has ended")]
    Busy,
    /// Something else has the name.
    #[error("{here} is here under that name; remove or rename it first")]
    Clash {
        /// What is here.
        here: FileType,
    },
    /// A directory that something is in.
    #[error("something is in it")]
    NotEmpty,
    /// A component of the path leads elsewhere, or nowhere.
    #[error("a part of its path is a symbolic link or no directory; links are not followed")]
    NotBeneath,
    /// A symbolic link that leaves the root, or could.
    #[error(
        "it is a symbolic link that leads out of the directory that is sent to, or could: \
         such links are not made"
    )]
    LeavesRoot,
    /// The name is kept for partial files.
    #[error("names that end in `{suffix}` are those of unfinished transfers", suffix = super::temporary::SUFFIX)]
    Reserved,
    /// A partial file, met where files to be sent are looked for.
    #[error("it is what came of a transfer that has not ended")]
    Unfinished,
    /// A device, pipe or socket.
    #[error("it is {0}; only files, directories and links are sent")]
    Special(FileType),
    /// A link, and the policy leaves links out.
    #[error("it is a symbolic link, and links were asked to be left out")]
    LinkLeftOut,
    /// A link that leads out of the tree, and the policy leaves those out.
    #[error("it is a symbolic link that leads out of the tree, or could")]
    LinkLeavesTree,
    /// A link that leads out of the tree, and the policy refuses those.
    #[error(
        "it is a symbolic link that leads out of the tree, or could, and --links=refuse takes none"
    )]
    LinkRefused,
    /// More attributes than an entry has room for.
    #[error(
        "its extended attributes and access control lists are more than {MOST_XATTRS}, or more than {}",
        size(MOST_ATTRIBUTE_BYTES as u64)
    )]
    Attributes,
    /// A directory that is its own ancestor by a link.
    #[error("it leads back to a directory that it is in")]
    Loop,
    /// Contents were asked for, of something that has none.
    #[error("it is no directory")]
    NoDirectory,
    /// Two of what is to be sent would have one name.
    #[error("something else that is to be sent has the same name")]
    Twice,
    /// The path is too long to be sent.
    #[error("its path is not one that can be sent: {0}")]
    Path(#[from] PathError),
    /// The source is not what it was.
    #[error("it changed while it was read; send it again, or with --allow-changing as it is read")]
    Changed,
    /// The source has fewer bytes than it had.
    #[error("it became shorter while it was read; send it again")]
    Shorter,
    /// Something else has the source's name by now.
    #[error("something else has its name by now; send it again")]
    Replaced,
    /// The partial file is not where it was.
    #[error("its partial file was moved or removed by somebody else; send it again")]
    Moved,
    /// The name of its partial file belongs to something else.
    #[error(
        "`{0}` beside it, where its octets would be collected, is no ordinary file of this \
         user's with one name; remove it"
    )]
    Foreign(Box<str>),
    /// Not all of it came.
    #[error("{missing} of its {all} spans did not come")]
    Incomplete {
        /// Spans that lack octets.
        missing: u64,
        /// Spans that the file has.
        all: u64,
    },
    /// The hash is another one.
    #[error("what came has another BLAKE3 hash than what was sent, and was dropped; send it again")]
    Mismatch,
    /// Octets that are not the file's.
    #[error("octets came for a place behind its end")]
    BeyondEnd,
    /// More pieces than are kept in mind.
    #[error("it comes in too many pieces that do not join")]
    Scattered,
    /// Whatever else the system says.
    #[error("{0}")]
    System(#[from] io::Error),
}

/// What a name of the file system is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FileType {
    /// An ordinary file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A named pipe.
    Pipe,
    /// A socket.
    Socket,
    /// A block or character device.
    Device,
}

impl std::fmt::Display for FileType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::File => "a file",
            Self::Directory => "a directory",
            Self::Symlink => "a symbolic link",
            Self::Pipe => "a named pipe",
            Self::Socket => "a socket",
            Self::Device => "a device",
        })
    }
}

impl Error {
    /// `path` cannot be `done`, which is a participle.
    pub(super) fn new(path: &[u8], done: &'static str, kind: impl Into<ErrorKind>) -> Self {
        let path = shown(path).to_string().into();
        Self { path, done, kind: Box::new(kind.into()), name: None, is_asked_for: false }
    }

    /// A path that a file's name is needed for is a directory's.
    pub(crate) fn no_name(path: &RelPath) -> Self {
        Self::new(path.as_bytes(), "stored", ErrorKind::NoName)
    }

    /// There is nothing of this name.
    pub(crate) fn missing(path: &RelPath) -> Self {
        Self::new(path.as_bytes(), "removed", ErrorKind::Missing)
    }

    /// A name cannot be given.
    pub(crate) fn path(path: &RelPath, error: PathError) -> Self {
        Self::new(path.as_bytes(), "renamed", ErrorKind::Path(error))
    }

    /// What is to go through a pipe is no file.
    pub(crate) fn no_file(path: &RelPath) -> Self {
        Self::new(path.as_bytes(), "sent", ErrorKind::NoFile)
    }

    /// The same about a path that is read from `directory` on.
    pub(crate) fn below(self, directory: &std::path::Path) -> Self {
        use std::os::unix::ffi::OsStrExt;
        let directory = shown(directory.as_os_str().as_bytes()).to_string();
        let path = match &*self.path {
            "." => directory,
            path => format!("{}/{path}", directory.trim_end_matches('/')),
        };
        Self { path: path.into(), ..self }
    }

    /// It is about something that would be sent under a name.
    pub(super) fn about(self, name: Option<&RelPath>) -> Self {
        Self { name: name.cloned().map(Box::new), ..self }
    }

    /// It is about something that was itself asked for.
    pub(super) fn asked_for(self) -> Self {
        Self { is_asked_for: true, ..self }
    }

    /// The name that it would be sent under, where that is known.
    #[must_use]
    pub fn name(&self) -> Option<&RelPath> {
        self.name.as_deref()
    }

    /// Why it could not be done.
    #[must_use]
    pub fn kind(&self) -> &ErrorKind {
        &self.kind
    }

    /// Whether this is how it should be, and only worth a remark: it is never sent, or
    /// was asked to be left out, and nobody asked for just this.
    #[must_use]
    pub fn is_remark(&self) -> bool {
        let never_sent = matches!(*self.kind, ErrorKind::Special(_) | ErrorKind::Unfinished);
        self.is_policy() || never_sent && !self.is_asked_for
    }

    /// Whether a policy for links left it out.
    #[must_use]
    pub fn is_policy(&self) -> bool {
        matches!(*self.kind, ErrorKind::LinkLeftOut | ErrorKind::LinkLeavesTree)
    }
}

/// The user as whom this program runs.
fn this_user() -> String {
    let id = nix::unistd::geteuid();
    let user = nix::unistd::User::from_uid(id).ok().flatten();
    user.map_or_else(|| format!("user {id}"), |user| format!("user `{}`", user.name))
}

impl From<Errno> for ErrorKind {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::ENOENT => Self::Missing,
            Errno::EACCES | Errno::EPERM => Self::Denied,
            Errno::ENOSPC | Errno::EDQUOT => Self::Full,
            Errno::ELOOP | Errno::ENOTDIR | Errno::EXDEV => Self::NotBeneath,
            Errno::ENOTEMPTY => Self::NotEmpty,
            Errno::EBUSY => Self::InUse,
            Errno::EROFS => Self::ReadOnly,
            other => Self::System(other.into()),
        }
    }
}

impl ErrorKind {
    /// Of what the standard library says.
    pub(super) fn of(error: io::Error) -> Self {
        error.raw_os_error().map_or(Self::System(error), |code| Errno::from_raw(code).into())
    }
}
