//! What messages are made of, and the header of data streams.

use minicbor::{Decode, Encode};

use super::attributes::Attributes;
use super::bounded;
use crate::path::RelPath;

/// Lanes that a client would open, and what it can.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct LanesOffer {
    /// The transfer's name in the exporter's context: random.
    #[cbor(n(0), with = "minicbor::bytes")]
    pub transfer: [u8; 16],
    /// The lanes' names: random, 1 to [`MOST_LANES`](super::MOST_LANES).
    #[cbor(n(1), with = "bounded::lanes")]
    pub lanes: Vec<u64>,
    /// Numbers of the cipher suites that it can, at most [`MOST_SUITES`](super::MOST_SUITES), the one it
    /// likes best first.
    #[cbor(n(2), with = "bounded::suites")]
    pub suites: Vec<u32>,
    /// Octets that its socket keeps while its program is busy.
    #[n(3)]
    pub receive_buffer: Option<u64>,
    /// Octets of files that each packet is to carry, in a measurement that both ends
    /// allow.
    #[n(4)]
    pub chunk: Option<u32>,
}

/// What the server makes of a [`LanesOffer`].
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct LanesAnswer {
    /// The suite of all lanes, one of those offered.
    #[n(0)]
    pub suite: u32,
    /// Octets that its socket keeps while its program is busy.
    #[n(1)]
    pub receive_buffer: Option<u64>,
    /// Octets of files in each packet, as offered.
    #[n(2)]
    pub chunk: Option<u32>,
    /// The server's UDP port for these lanes, if it is not that of the connection.
    #[n(3)]
    pub port: Option<u16>,
}

/// The first octets of a data stream: which part of which file follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct DataHeader {
    /// The file.
    #[n(0)]
    pub id: u64,
    /// Where the first octet belongs: the beginning of a span.
    #[n(1)]
    pub offset: u64,
    /// How many follow: whole spans, unless the file ends.
    #[n(2)]
    pub len: u64,
    /// Whether each span follows as four octets of length, most significant first, and
    /// so many octets: one zstd frame (RFC 8878), or the span itself if they are as
    /// many as it has.
    #[n(3)]
    pub zstd: Option<bool>,
}

/// Whether data is compressed on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Encode, Decode)]
#[cbor(index_only)]
pub enum Compress {
    /// Nothing is: over a fast network it takes more time than it saves.
    #[default]
    #[n(0)]
    Never,
    /// What becomes shorter. What does not is noticed after a few spans, left alone
    /// for a time, and tried again.
    #[n(1)]
    Auto,
    /// All is tried.
    #[n(2)]
    Always,
}

/// What is to be stored.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub enum Kind {
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
        /// What it holds: at most 4095 octets, none of them zero.
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
        /// Octets.
        #[n(0)]
        size: u64,
        /// Permission bits.
        #[n(1)]
        mode: u32,
        /// When it was changed.
        #[n(2)]
        mtime: Time,
        /// All of it, where it is small.
        #[n(3)]
        inline: Option<Inline>,
        /// Its BLAKE3 hash, in a sync that compares files by it.
        #[cbor(n(4), with = "minicbor::bytes")]
        hash: Option<[u8; 32]>,
        /// Bytes of it that are no holes, as far as the sender's file system says.
        #[n(5)]
        data: Option<u64>,
        /// What else is kept.
        #[n(6)]
        more: Option<Box<Attributes>>,
    },
    /// Another name of a file that an earlier entry of the request offered, whose
    /// [`Attributes`] say that it has others.
    #[n(3)]
    HardLink {
        /// The name in that entry.
        #[cbor(n(0), with = "bounded::path")]
        to: RelPath,
    },
}

/// A small file's content.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Inline {
    /// At most [`MOST_INLINE`](super::MOST_INLINE) octets.
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

/// Something a client asks for.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Wanted {
    /// A file or directory; nothing is the root.
    #[cbor(n(0), with = "bounded::path_or_root")]
    pub path: Option<RelPath>,
    /// Of a directory, what is in it, without its own name.
    #[n(1)]
    pub contents: bool,
}

/// One name of a listing.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Listed {
    /// Its name below what was asked for.
    #[cbor(n(0), with = "bounded::path")]
    pub path: RelPath,
    /// What it is.
    #[n(1)]
    pub kind: ListedKind,
    /// Octets of a file.
    #[n(2)]
    pub size: u64,
    /// Permission bits.
    #[n(3)]
    pub mode: u32,
    /// When it was changed.
    #[n(4)]
    pub mtime: Time,
    /// What a symbolic link holds, where it could be read.
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
    /// Something that is never sent: a device, a pipe, a socket.
    #[n(3)]
    Other,
}
