//! Errors about local files, as sentences.

use std::io;

use headroom_transfer_proto::message::{ErrorCode, MAX_ATTRIBUTE_BYTES, MAX_XATTRS};
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
    /// Whether it was named itself, and not just found in a directory.
    is_asked_for: bool,
}

/// Why something could not be done with a file.
#[derive(Debug, thiserror::Error)]
pub enum ErrorKind {
    /// There is nothing of that name.
    #[error("there is no such file or directory")]
    Missing,
    /// Permission is denied.
    #[error("permission is denied to {}, who runs headroom", this_user())]
    Denied,
    /// The file system is read-only.
    #[error("its file system is read-only")]
    ReadOnly,
    /// A directory would be moved to a higher level.
    #[error(
        "directories are not moved to a higher level: links in them that begin with `..` could then lead out of the served directory"
    )]
    MovesUp,
    /// A directory would be moved into itself.
    #[error("a directory cannot be moved into itself")]
    IntoItself,
    /// Something is mounted there, or the system uses it.
    #[error("it is in use: something is mounted there, or the system needs it")]
    InUse,
    /// A rename would cross file systems.
    #[error("the two names are on different file systems; send it again and remove it here")]
    OtherFileSystem,
    /// It is a directory, and the name of a file is needed.
    #[error("it is a directory; name the file in it")]
    NoName,
    /// It is not a file, as a pipe needs.
    #[error("it is not a file")]
    NoFile,
    /// The disk or a quota is full.
    #[error("the disk is full; make room and repeat the command to resume")]
    Full,
    /// The disk is full, and the transfer cannot be resumed.
    #[error("the disk is full; make room and send it again from the beginning")]
    FullOnce,
    /// There is not enough disk space.
    #[error(
        "it needs {} of disk space, and {} are free; make room and repeat the command",
        size(*needed),
        size(*free)
    )]
    NoSpace {
        /// Bytes that are still missing.
        needed: u64,
        /// Bytes that are free for this user.
        free: u64,
    },
    /// The file system does not support files of that size.
    #[error("the file system does not support a file of {}", size(*.0))]
    TooLarge(u64),
    /// A file is larger than this limit in TiB of files that are fetched in ranges.
    #[error(
        "it has more than {0} TiB, the limit of a file that is fetched in ranges, and is fetched whole"
    )]
    TooLargeForRanges(u64),
    /// Another transfer holds the lock.
    #[error("another transfer of the same file is in progress; wait until it has ended")]
    Busy,
    /// Something else has the name.
    #[error("{here} is here under that name; remove or rename it first")]
    Clash {
        /// What is here.
        here: FileType,
    },
    /// A directory is not empty.
    #[error("it is not empty")]
    NotEmpty,
    /// A component of the path is a link or not a directory.
    #[error("a part of its path is a symbolic link or not a directory; links are not followed")]
    NotBeneath,
    /// A symbolic link leaves the root, or could.
    #[error(
        "it is a symbolic link that leads out of the destination, or could: such links are not made"
    )]
    LeavesRoot,
    /// The name is reserved for partial files.
    #[error("names that end in `{suffix}` are reserved for partial files", suffix = super::temporary::SUFFIX)]
    Reserved,
    /// A partial file in a tree to send.
    #[error("it is a partial file of an unfinished transfer")]
    Unfinished,
    /// A device, pipe or socket.
    #[error("it is {0}; only files, directories and links are sent")]
    Special(FileType),
    /// The policy leaves out links.
    #[error("it is a symbolic link, and --links=skip leaves links out")]
    LinkLeftOut,
    /// The policy leaves out links that lead out of the tree.
    #[error("it is a symbolic link that leads out of the tree, or could")]
    LinkLeavesTree,
    /// The policy refuses links that lead out of the tree.
    #[error(
        "it is a symbolic link that leads out of the tree, or could, and --links=refuse accepts none"
    )]
    LinkRefused,
    /// The attributes exceed the limits of an entry.
    #[error(
        "its extended attributes and access control lists are more than {MAX_XATTRS}, or more than {}",
        size(MAX_ATTRIBUTE_BYTES as u64)
    )]
    Attributes,
    /// A link makes a directory its own ancestor.
    #[error("it is a symbolic link to a directory that contains it")]
    Loop,
    /// The content of something that is not a directory was requested.
    #[error("it is not a directory")]
    NoDirectory,
    /// Two sources have the same name.
    #[error("something else that is to be sent has the same name")]
    Twice,
    /// The path is too long to be sent.
    #[error("its path cannot be sent: {0}")]
    Path(#[from] PathError),
    /// The file changed while it was read.
    #[error("it changed while it was read; send it again, or use --allow-changing")]
    Changed,
    /// The file became shorter while it was read.
    #[error("it became shorter while it was read; send it again")]
    Shorter,
    /// The file was replaced.
    #[error("it was replaced by something else meanwhile; send it again")]
    Replaced,
    /// The partial file is not where it was.
    #[error("another program moved or removed its partial file; send it again")]
    Moved,
    /// The name of its partial file belongs to something else.
    #[error(
        "`{0}` beside it, the name of its partial file, is not an ordinary file of this user with a single name; remove it"
    )]
    Foreign(Box<str>),
    /// Not all of it arrived.
    #[error("{missing} of its {all} spans did not arrive")]
    Incomplete {
        /// Incomplete spans.
        missing: u64,
        /// Spans of the file.
        all: u64,
    },
    /// The hash is wrong.
    #[error(
        "what arrived has another BLAKE3 hash than what was sent, and was discarded; send it again"
    )]
    Mismatch,
    /// Bytes beyond the end of the file.
    #[error("bytes arrived for an offset beyond its end")]
    BeyondEnd,
    /// Too many separate pieces.
    #[error("it arrives in too many separate pieces")]
    Scattered,
    /// The name of an object is UTF-8.
    #[error("its name is not UTF-8, and an object store has no other names; rename it")]
    NotUtf8,
    /// An object store has no directories that could be renamed.
    #[error(
        "an object store has no directories to rename, only files; send it under the new name and remove the old one"
    )]
    NoDirectoryRename,
    /// An object store has no hard links.
    #[error("an object store has no hard links")]
    NoHardLinks,
    /// A name is that of an object and of a directory.
    #[error(
        "it is a file and a directory at once, as only an object store allows; name the file itself to get it, or rename it"
    )]
    FileAndDirectory,
    /// An object is not what was stored.
    #[error(
        "what the store returns is not what was stored, and was removed; send it again, and if that repeats, distrust the store"
    )]
    ReadBack,
    /// Parts of an earlier upload do not belong to the file as it is now.
    #[error(
        "parts that an earlier transfer stored are not the file's any longer, and were discarded; send it again"
    )]
    StaleParts,
    /// The store has the unfinished upload no longer, or not for this transfer; as a sentence.
    #[error("{0}")]
    UploadGone(Box<str>),
    /// Any other error of an object store, as a sentence.
    #[error("{0}")]
    Store(Box<str>),
    /// Any other error of the system.
    #[error("{0}")]
    System(#[from] io::Error),
}

/// The type of a file.
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
    /// Makes the error for a file of which spans are missing.
    pub(crate) fn incomplete(path: &RelPath, missing: u64, all: u64) -> Self {
        Self::new(path.as_bytes(), "stored", ErrorKind::Incomplete { missing, all })
    }

    /// Makes the error for a file that several servers cannot store together.
    pub(crate) fn undivided(path: &RelPath) -> Self {
        let reason = "it is stored in one request; send it whole to one server";
        Self::new(path.as_bytes(), "divided", ErrorKind::Store(reason.into()))
    }

    /// Makes the error for a file that is larger than this limit in TiB of files that are fetched in
    /// ranges.
    pub(crate) fn too_large_for_ranges(path: &RelPath, limit: u64) -> Self {
        Self::new(path.as_bytes(), "divided", ErrorKind::TooLargeForRanges(limit))
    }

    /// Makes an error that `path` cannot be `done`, a participle.
    pub(super) fn new(path: &[u8], done: &'static str, kind: impl Into<ErrorKind>) -> Self {
        let path = shown(path).to_string().into();
        Self { path, done, kind: Box::new(kind.into()), name: None, is_asked_for: false }
    }

    /// Makes an error for a directory where a file's name is needed.
    pub(crate) fn no_name(path: &RelPath) -> Self {
        Self::new(path.as_bytes(), "stored", ErrorKind::NoName)
    }

    /// Makes an error for a missing name.
    pub(crate) fn missing(path: &RelPath) -> Self {
        Self::new(path.as_bytes(), "removed", ErrorKind::Missing)
    }

    /// Makes an error for a missing name that is to be shared, or was.
    pub(crate) fn not_there(path: &RelPath) -> Self {
        Self::unshared(path.as_bytes(), ErrorKind::Missing)
    }

    /// Makes an error for a path that cannot be shared.
    pub(crate) fn unshared(path: &[u8], kind: ErrorKind) -> Self {
        Self::new(path, "shared", kind)
    }

    /// Returns the reason for programs.
    #[must_use]
    pub fn code(&self) -> Option<ErrorCode> {
        Some(match *self.kind {
            ErrorKind::Missing => ErrorCode::NOT_FOUND,
            ErrorKind::Clash { .. } | ErrorKind::NotEmpty => ErrorCode::EXISTS,
            ErrorKind::Full | ErrorKind::FullOnce | ErrorKind::NoSpace { .. } => {
                ErrorCode::NO_SPACE
            }
            ErrorKind::Changed | ErrorKind::Shorter | ErrorKind::Replaced => ErrorCode::CHANGED,
            _ => return None,
        })
    }

    /// Makes an error for a name that cannot be used.
    pub(crate) fn path(path: &RelPath, error: PathError) -> Self {
        Self::new(path.as_bytes(), "renamed", ErrorKind::Path(error))
    }

    /// Makes an error for something that is not a file, as a pipe needs.
    pub(crate) fn no_file(path: &RelPath) -> Self {
        Self::new(path.as_bytes(), "sent", ErrorKind::NoFile)
    }

    /// Prefixes the path with a directory.
    pub(crate) fn below(self, directory: &std::path::Path) -> Self {
        use std::os::unix::ffi::OsStrExt;
        let directory = shown(directory.as_os_str().as_bytes()).to_string();
        let path = match &*self.path {
            "." => directory,
            path => format!("{}/{path}", directory.trim_end_matches('/')),
        };
        Self { path: path.into(), ..self }
    }

    /// Adds the name under which it would be sent.
    pub(super) fn about(self, name: Option<&RelPath>) -> Self {
        Self { name: name.cloned().map(Box::new), ..self }
    }

    /// Marks it as requested itself.
    pub(super) fn asked_for(self) -> Self {
        Self { is_asked_for: true, ..self }
    }

    /// Returns the name under which it would be sent, if known.
    #[must_use]
    pub fn name(&self) -> Option<&RelPath> {
        self.name.as_deref()
    }

    /// Returns the reason.
    #[must_use]
    pub fn kind(&self) -> &ErrorKind {
        &self.kind
    }

    /// Whether this is not a failure: it is of a type that is never sent, or left out by a policy,
    /// and was not requested itself.
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

/// Names the user who runs this program.
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
    /// Converts an error of the standard library.
    pub(super) fn of(error: io::Error) -> Self {
        error.raw_os_error().map_or(Self::System(error), |code| Errno::from_raw(code).into())
    }
}
