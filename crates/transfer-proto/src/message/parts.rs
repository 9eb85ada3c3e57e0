//! What messages are made of, and the header of data streams.

use minicbor::{Decode, Encode};

use super::attributes::Attributes;
use super::bounded;
use crate::path::RelPath;

/// The lanes that a client offers, and what it supports.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct LanesOffer {
    /// The transfer's random name, for the exporter's context.
    #[cbor(n(0), with = "minicbor::bytes")]
    pub transfer: [u8; 16],
    /// The lanes' random names, 1 to [`MAX_LANES`](super::MAX_LANES).
    #[cbor(n(1), with = "bounded::lanes")]
    pub lanes: Vec<u64>,
    /// Numbers of the cipher suites that it supports, at most [`MAX_SUITES`](super::MAX_SUITES),
    /// the preferred one first.
    #[cbor(n(2), with = "bounded::suites")]
    pub suites: Vec<u32>,
    /// Bytes of its socket's receive buffer.
    #[n(3)]
    pub receive_buffer: Option<u64>,
    /// Bytes of files in each packet, for a measurement that both ends allow.
    #[n(4)]
    pub chunk: Option<u32>,
}

/// The server's answer to a [`LanesOffer`].
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct LanesAnswer {
    /// The suite of all lanes, one of those offered.
    #[n(0)]
    pub suite: u32,
    /// Bytes of its socket's receive buffer.
    #[n(1)]
    pub receive_buffer: Option<u64>,
    /// Bytes of files in each packet, as offered.
    #[n(2)]
    pub chunk: Option<u32>,
    /// The server's UDP port for these lanes, if it differs from the connection's.
    #[n(3)]
    pub port: Option<u16>,
}

/// The header of a data stream: which part of which file follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct DataHeader {
    /// The file.
    #[n(0)]
    pub id: u64,
    /// The offset of the first byte in the file: the beginning of a span.
    #[n(1)]
    pub offset: u64,
    /// Bytes that follow: whole spans, except at the end of the file.
    #[n(2)]
    pub len: u64,
    /// Whether each span is a length of four bytes, most significant first, and then either one
    /// zstd frame (RFC 8878) or, if the length is the span's, the span itself.
    #[n(3)]
    pub zstd: Option<bool>,
}

/// The length of an upload's name in messages.
pub const UPLOAD_BYTES: usize = 16;

/// Stands for the name of whichever upload of a file there is: several programs of one client take
/// part in one upload without telling each other its name. No upload has it.
pub const ANY_UPLOAD: [u8; UPLOAD_BYTES] = [0; UPLOAD_BYTES];

/// What a client wants of a server when it divides a file among several of one store, or among
/// several sessions with one. The request has one entry, this file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Encode, Decode)]
#[cbor(map)]
pub struct PartsRequest {
    /// The upload to take part in, as `Message::PartsBegun` named it; `None` begins one,
    /// and [`ANY_UPLOAD`] takes part in the one that there is.
    #[cbor(n(0), with = "minicbor::bytes")]
    pub upload: Option<[u8; UPLOAD_BYTES]>,
    /// Whether all ranges are stored, and the file gets its name; otherwise ranges come.
    #[n(1)]
    pub completes: Option<bool>,
    /// Whether all ranges go to this one server, over several sessions: one of a directory divides
    /// no other file.
    #[n(2)]
    pub one_server: Option<bool>,
}

/// Requests to an object store by kind, repeated ones included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Encode, Decode)]
#[cbor(map)]
pub struct StoreRequests {
    /// Pages of listings.
    #[n(0)]
    pub list: u64,
    /// Questions for an object's size, version and metadata.
    #[n(1)]
    pub head: u64,
    /// Ranges of objects read.
    #[n(2)]
    pub get: u64,
    /// Objects stored in one request.
    #[n(3)]
    pub put: u64,
    /// Uploads in parts that were begun.
    #[n(4)]
    pub create: u64,
    /// Parts stored.
    #[n(5)]
    pub part: u64,
    /// Uploads in parts that were completed.
    #[n(6)]
    pub complete: u64,
    /// Copies within the store.
    #[n(7)]
    pub copy: u64,
    /// Deletions.
    #[n(8)]
    pub delete: u64,
    /// Uploads in parts that were given up.
    #[n(9)]
    pub abort: u64,
    /// How many of those above repeated one that failed.
    #[n(10)]
    pub retried: u64,
    /// How often the store asked for fewer requests.
    #[n(11)]
    pub slowed: u64,
}

/// Whether data is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Encode, Decode)]
#[cbor(index_only)]
pub enum Compress {
    /// Never: over a fast network compression takes more time than it saves.
    #[default]
    #[n(0)]
    Never,
    /// What gets shorter. After some spans that do not, compression pauses, and is tried again
    /// later.
    #[n(1)]
    Auto,
    /// Everything.
    #[n(2)]
    Always,
}

/// What an entry is.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub enum EntryKind {
    /// A directory.
    #[n(0)]
    Directory {
        /// Permission bits.
        #[n(0)]
        mode: u32,
        /// When it was changed.
        #[n(1)]
        mtime: Time,
        /// What else is kept.
        #[n(2)]
        more: Option<Box<Attributes>>,
    },
    /// A symbolic link.
    #[n(1)]
    Symlink {
        /// Its target: at most 4095 bytes, no NUL.
        #[cbor(n(0), with = "bounded::target")]
        target: Vec<u8>,
        /// When it was made.
        #[n(1)]
        mtime: Option<Time>,
        /// What else is kept.
        #[n(2)]
        more: Option<Box<Attributes>>,
    },
    /// A file.
    #[n(2)]
    File {
        /// Bytes.
        #[n(0)]
        size: u64,
        /// Permission bits.
        #[n(1)]
        mode: u32,
        /// When it was changed.
        #[n(2)]
        mtime: Time,
        /// Its whole content, if it is small.
        #[n(3)]
        inline: Option<Inline>,
        /// Its BLAKE3 hash, in a sync that compares files by it.
        #[cbor(n(4), with = "minicbor::bytes")]
        hash: Option<[u8; 32]>,
        /// Bytes of it that are not holes, as far as the sender's file system says.
        #[n(5)]
        data: Option<u64>,
        /// What else is kept.
        #[n(6)]
        more: Option<Box<Attributes>>,
    },
    /// Another name of a file that an earlier entry of the request offered, and whose
    /// [`Attributes`] announced others.
    #[n(3)]
    HardLink {
        /// The name in the earlier entry.
        #[cbor(n(0), with = "bounded::path")]
        to: RelPath,
    },
}

/// A small file's content.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Inline {
    /// At most [`MAX_INLINE`](super::MAX_INLINE) bytes.
    #[cbor(n(0), with = "bounded::content")]
    pub content: Vec<u8>,
    /// Their BLAKE3 hash.
    #[cbor(n(1), with = "minicbor::bytes")]
    pub root: [u8; 32],
}

/// A time, as files have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
#[cbor(map)]
pub struct Time {
    /// Seconds since 1970-01-01 00:00 UTC.
    #[n(0)]
    pub seconds: i64,
    /// And nanoseconds, less than a second.
    #[cbor(n(1), with = "bounded::nanoseconds")]
    pub nanoseconds: u32,
}

/// A file or directory that a client asks for.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Wanted {
    /// The file or directory; `None` is the root.
    #[cbor(n(0), with = "bounded::path_or_root")]
    pub path: Option<RelPath>,
    /// Whether to send what is in the directory, without its own name.
    #[n(1)]
    pub contents: bool,
}

/// One name of a listing.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Listed {
    /// Its name below the listed directory.
    #[cbor(n(0), with = "bounded::path")]
    pub path: RelPath,
    /// What it is.
    #[n(1)]
    pub kind: ListedKind,
    /// Bytes of a file.
    #[n(2)]
    pub size: u64,
    /// Permission bits.
    #[n(3)]
    pub mode: u32,
    /// When it was changed.
    #[n(4)]
    pub mtime: Time,
    /// The target of a symbolic link, if it could be read.
    #[cbor(n(5), with = "bounded::link")]
    pub target: Option<Vec<u8>>,
}

/// What a listed name is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum ListedKind {
    /// A file.
    #[n(0)]
    File,
    /// A directory.
    #[n(1)]
    Directory,
    /// A symbolic link.
    #[n(2)]
    Symlink,
    /// Something that is never sent: a device, pipe or socket.
    #[n(3)]
    Other,
}

/// The reason of a refusal or failure, for programs. Numbers of later versions are unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(transparent)]
pub struct ErrorCode(#[n(0)] pub u32);

impl ErrorCode {
    /// The server does not know the key.
    pub const UNAUTHORIZED: Self = Self(1);
    /// The proof of the key is wrong.
    pub const PROOF: Self = Self(2);
    /// The key may only read.
    pub const READ_ONLY: Self = Self(3);
    /// There is nothing of that name.
    pub const NOT_FOUND: Self = Self(4);
    /// Something else has the name.
    pub const EXISTS: Self = Self(5);
    /// The disk or a quota is full.
    pub const NO_SPACE: Self = Self(6);
    /// The file changed while it was read.
    pub const CHANGED: Self = Self(7);
    /// The share has expired, was revoked, or is not one of this server.
    pub const SHARE_ENDED: Self = Self(8);
    /// Other browsers have used the share as often as it may be.
    pub const SHARE_USED: Self = Self(9);
    /// The share does not allow this request.
    pub const NOT_SHARED: Self = Self(10);
    /// The invitation was used or has expired.
    pub const INVITATION: Self = Self(11);

    /// Returns the code's name; `None` for one of a later version.
    #[must_use]
    pub const fn name(self) -> Option<&'static str> {
        Some(match self {
            Self::UNAUTHORIZED => "unauthorized",
            Self::PROOF => "proof",
            Self::READ_ONLY => "read-only",
            Self::NOT_FOUND => "not-found",
            Self::EXISTS => "exists",
            Self::NO_SPACE => "no-space",
            Self::CHANGED => "changed",
            Self::SHARE_ENDED => "share-ended",
            Self::SHARE_USED => "share-used",
            Self::NOT_SHARED => "not-shared",
            Self::INVITATION => "invitation",
            _ => return None,
        })
    }

    /// Returns the code with a name; `None` if there is none.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        (1..=Self::INVITATION.0).map(Self).find(|code| code.name() == Some(name))
    }
}

/// What a share link allows.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct ShareTerms {
    /// Its ID, which is no secret: at most 64 bytes.
    #[cbor(n(0), with = "bounded::name")]
    pub id: String,
    /// To its maker, the path below the maker's root; to its holder, the last component.
    #[cbor(n(1), with = "bounded::path_or_root")]
    pub path: Option<RelPath>,
    /// Whether it is a file; otherwise it is a directory.
    #[n(2)]
    pub is_file: bool,
    /// Whether its holder may only send files; otherwise only fetch.
    #[n(3)]
    pub write: bool,
    /// When it was made, in seconds since 1970 (UTC).
    #[n(4)]
    pub created: u64,
    /// When it expires, in seconds since 1970 (UTC).
    #[n(5)]
    pub expires: u64,
    /// The most browsers that may use it; `None` is any number.
    #[n(6)]
    pub uses: Option<u32>,
    /// How many have used it.
    #[n(7)]
    pub used: u32,
    /// Its maker's note: at most 64 bytes.
    #[cbor(n(8), with = "bounded::name")]
    pub name: String,
    /// Who made it: the comment of the key in `authorized_keys`, or its fingerprint, at most 64
    /// bytes.
    #[cbor(n(9), with = "bounded::name")]
    pub by: String,
}
