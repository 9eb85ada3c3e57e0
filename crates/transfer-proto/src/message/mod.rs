//! What the two ends say to each other on the control stream, in CBOR (RFC 8949).
//!
//! A message is an array of its number and a map of its fields, whose keys are
//! numbers too. Unknown fields are passed over, so that a version can add some.
//! Everything is bounded: a message by [`MOST_OCTETS`], each list by what its
//! field says.

mod attributes;
mod bounded;
mod frame;
#[cfg(test)]
mod tests;

use minicbor::{Decode, Encode};

pub use attributes::{
    Acls, Attributes, Keep, Links, MOST_ATTRIBUTE_BYTES, MOST_XATTRS, Owner, TreeOptions, Xattr,
};
pub use frame::{Error, MOST_OCTETS, body_len};

use crate::path::RelPath;
use crate::span::ChainingValue;

/// The version of the protocol that this program speaks.
pub const VERSION: u32 = 1;
/// Files up to this size travel within their [`Message::Entry`].
pub const MOST_INLINE: usize = 64 << 10;
/// The most chaining values in one [`Message::Have`].
pub const MOST_VALUES: usize = 16 << 10;
/// The most sources of one [`Message::Get`].
pub const MOST_SOURCES: usize = 1024;
/// The most names in one [`Message::Listing`].
pub const MOST_LISTED: usize = 1024;
/// The most lanes of one transfer.
pub const MOST_LANES: usize = 8;
/// The most suites in one [`LanesOffer`].
pub const MOST_SUITES: usize = 16;
/// Files offered without content that may await their end at once.
pub const MOST_OPEN_FILES: usize = 64;
/// Entries that may await their answers at once.
pub const MOST_UNANSWERED: usize = 4096;
/// The most octets of one [`Message::Hole`].
pub const MOST_HOLE: u64 = 64 << 20;
/// The most patterns of one [`Message::Sync`].
pub const MOST_PATTERNS: usize = 256;

/// One thing said.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub enum Message {
    /// The first message of both ends.
    #[n(0)]
    Hello {
        /// The version of the protocol it speaks.
        #[n(0)]
        version: u32,
        /// Program and version, for people: at most 64 octets.
        #[cbor(n(1), with = "bounded::name")]
        program: String,
        /// It takes no more than so many bits of files per second.
        #[n(2)]
        rate_bps: Option<u64>,
    },
    /// Client to server: it will send files.
    #[n(1)]
    Put {
        /// Where to, below the root; nothing is the root itself.
        #[cbor(n(0), with = "bounded::place")]
        to: Option<RelPath>,
        /// One file comes, and `to` is its name unless it is a directory.
        #[n(1)]
        rename: bool,
        /// Write through to the disk before a file counts as stored.
        #[n(2)]
        fsync: bool,
        /// The client can also send data on lanes.
        #[n(8)]
        lanes: Option<LanesOffer>,
        /// How trees are sent.
        #[n(9)]
        tree: Option<TreeOptions>,
    },
    /// Client to server: it asks for files.
    #[n(2)]
    Get {
        /// What it asks for.
        #[cbor(n(0), with = "bounded::sources")]
        from: Vec<Wanted>,
        /// Whether data is to be compressed; not, if nothing is said.
        #[n(1)]
        compress: Option<Compress>,
        /// The client can also take data on lanes.
        #[n(8)]
        lanes: Option<LanesOffer>,
        /// How trees are sent.
        #[n(9)]
        tree: Option<TreeOptions>,
    },
    /// Client to server: what is there?
    #[n(3)]
    List {
        /// The directory or file; nothing is the root.
        #[cbor(n(0), with = "bounded::place")]
        path: Option<RelPath>,
    },
    /// The server does what was asked.
    #[n(4)]
    Accepted {
        /// It does so with lanes, too; only where the client offered them.
        #[n(0)]
        lanes: Option<LanesAnswer>,
        /// Of what the client asked to be kept, what the server keeps.
        #[n(1)]
        keep: Option<Keep>,
    },
    /// The server does not, or not any longer.
    #[n(5)]
    Refused {
        /// A sentence.
        #[cbor(n(0), with = "bounded::text")]
        reason: String,
        /// Whether it is about what was named: that is missing, or cannot be read or
        /// written. Else it is about the client's rights or how it asks.
        #[n(1)]
        about_files: Option<bool>,
    },
    /// Sender to receiver: something to store.
    #[n(6)]
    Entry {
        /// Its number, which no other of the connection has.
        #[n(0)]
        id: u64,
        /// Its name below the destination.
        #[cbor(n(1), with = "bounded::path")]
        path: RelPath,
        /// What it is.
        #[n(2)]
        kind: Kind,
    },
    /// Sender to receiver: there are no more entries.
    #[n(7)]
    EntriesEnd {
        /// Files offered.
        #[n(0)]
        files: u64,
        /// Octets in them.
        #[n(1)]
        bytes: u64,
    },
    /// Receiver to sender: a file can come, and these spans of it lie here already.
    #[n(8)]
    Have {
        /// The file.
        #[n(0)]
        id: u64,
        /// The span of the first value; the others follow it.
        #[n(1)]
        first_span: u64,
        /// At most [`MOST_VALUES`], and none where nothing is there.
        #[cbor(n(2), with = "bounded::values")]
        values: Vec<ChainingValue>,
        /// Whether all that is there has been said: now the sender sends the rest.
        #[n(3)]
        last: bool,
    },
    /// Sender to receiver: all has been sent, and this is the file's BLAKE3 hash.
    #[n(9)]
    Sealed {
        /// The file.
        #[n(0)]
        id: u64,
        /// The hash.
        #[cbor(n(1), with = "minicbor::bytes")]
        root: [u8; 32],
        /// Octets of it on data streams: when so many came, it is whole.
        #[n(2)]
        bytes: u64,
    },
    /// Sender to receiver: the file cannot be sent; drop what came.
    #[n(10)]
    Withdrawn {
        /// The file.
        #[n(0)]
        id: u64,
        /// A sentence: it changed, or cannot be read.
        #[cbor(n(1), with = "bounded::text")]
        reason: String,
    },
    /// Receiver to sender: it lies under its name, verified.
    #[n(11)]
    Stored {
        /// The entry.
        #[n(0)]
        id: u64,
    },
    /// Receiver to sender: it does not, and no more is to be sent of it.
    #[n(12)]
    Failed {
        /// The entry.
        #[n(0)]
        id: u64,
        /// A sentence.
        #[cbor(n(1), with = "bounded::text")]
        reason: String,
    },
    /// Receiver to sender: every entry has its answer.
    #[n(13)]
    End {
        /// Entries that are stored.
        #[n(0)]
        stored: u64,
        /// Entries that are not.
        #[n(1)]
        failed: u64,
    },
    /// Server to client: what is there.
    #[n(14)]
    Listing {
        /// At most [`MOST_LISTED`], sorted by name within one listing.
        #[cbor(n(0), with = "bounded::listing")]
        entries: Vec<Listed>,
        /// Whether this is all.
        #[n(1)]
        last: bool,
    },
    /// Sender to receiver: something that was to be sent cannot be read.
    #[n(15)]
    Unreadable {
        /// Its name and what was found: a sentence.
        #[cbor(n(0), with = "bounded::text")]
        reason: String,
        /// In a sync, the name of a file. Without it, nobody knows what is below it.
        #[cbor(n(1), with = "bounded::place")]
        path: Option<RelPath>,
    },
    /// Client to server: one directory's content is to become another's.
    #[n(16)]
    Sync {
        /// The directory below the root; nothing is the root itself.
        #[cbor(n(0), with = "bounded::place")]
        path: Option<RelPath>,
        /// Whether the client sends; else the server does.
        #[n(1)]
        upload: bool,
        /// Whether what the sender has not is removed at the receiver's.
        #[n(2)]
        delete: bool,
        /// Whether nothing is changed, and only told what would be.
        #[n(3)]
        dry_run: bool,
        /// Whether files are compared by their hashes, not by size and time.
        #[n(4)]
        checksum: bool,
        /// Write through to the disk before a file counts as stored.
        #[n(5)]
        fsync: bool,
        /// At most [`MOST_PATTERNS`] lines as of a `.gitignore`: what they match is
        /// neither sent nor removed.
        #[cbor(n(6), with = "bounded::patterns")]
        exclude: Vec<String>,
        /// Whether data is to be compressed; not, if nothing is said.
        #[n(7)]
        compress: Option<Compress>,
        /// How trees are sent.
        #[n(9)]
        tree: Option<TreeOptions>,
    },
    /// Sender to receiver, in a sync: it has something of this name, which is not sent.
    #[n(17)]
    Passed {
        /// Its name.
        #[cbor(n(0), with = "bounded::path")]
        path: RelPath,
    },
    /// Receiver to sender, in a sync: the content of this small file is to come.
    #[n(18)]
    Wanted {
        /// The file.
        #[n(0)]
        id: u64,
    },
    /// Sender to receiver, in a sync: what was wanted.
    #[n(19)]
    Content {
        /// The file.
        #[n(0)]
        id: u64,
        /// All of it.
        #[n(1)]
        inline: Inline,
    },
    /// Receiver to sender, in a sync: the entry is there already.
    #[n(20)]
    Current {
        /// The entry.
        #[n(0)]
        id: u64,
    },
    /// Receiver to sender, in a dry run: the entry would be stored.
    #[n(21)]
    Planned {
        /// The entry.
        #[n(0)]
        id: u64,
        /// At most so many octets would be sent.
        #[n(1)]
        octets: u64,
        /// Whether nothing has its name.
        #[n(2)]
        new: bool,
    },
    /// Receiver to sender, in a sync: this was removed, or in a dry run would be.
    #[n(22)]
    Removed {
        /// Its name.
        #[cbor(n(0), with = "bounded::path")]
        path: RelPath,
    },
    /// Receiver to sender, in a sync: something that the sender has not stays.
    #[n(23)]
    Left {
        /// A sentence.
        #[cbor(n(0), with = "bounded::text")]
        reason: String,
        /// Whether it could not be removed; else it is not to be.
        #[n(1)]
        failed: bool,
    },
    /// Sender to receiver: so much of a file is zeros, and is not sent.
    #[n(26)]
    Hole {
        /// The file.
        #[n(0)]
        id: u64,
        /// Where it begins.
        #[n(1)]
        offset: u64,
        /// Its octets, at most [`MOST_HOLE`].
        #[n(2)]
        len: u64,
    },
    /// Sender to receiver, where the request has [`TreeOptions`]: something that the user
    /// is to know.
    #[n(27)]
    Remark {
        /// A sentence.
        #[cbor(n(0), with = "bounded::text")]
        text: String,
        /// So much was left out, as it should be.
        #[n(1)]
        left_out: u64,
    },
    /// Client to server: one file of unknown length comes, on one stream.
    #[n(24)]
    PutStream {
        /// Its name, below the root.
        #[cbor(n(0), with = "bounded::path")]
        to: RelPath,
        /// Write through to the disk before it counts as stored.
        #[n(1)]
        fsync: bool,
    },
    /// Client to server: it asks for one file, on one stream.
    #[n(25)]
    GetStream {
        /// Its name, below the root.
        #[cbor(n(0), with = "bounded::path")]
        from: RelPath,
        /// How it is sent.
        #[n(1)]
        tree: Option<TreeOptions>,
    },
    /// Client to server: make a directory.
    #[n(28)]
    MakeDirectory {
        /// Its name, below the root.
        #[cbor(n(0), with = "bounded::path")]
        path: RelPath,
        /// Make those above it, too, and take one that is there for made.
        #[n(1)]
        parents: bool,
    },
    /// Client to server: give something another name.
    #[n(29)]
    Rename {
        /// Its name, below the root.
        #[cbor(n(0), with = "bounded::path")]
        from: RelPath,
        /// The other name. If that is a directory, it keeps its own name in there; nothing is
        /// the root.
        #[cbor(n(1), with = "bounded::place")]
        to: Option<RelPath>,
        /// Replace a file or link of that name.
        #[n(2)]
        replace: bool,
    },
    /// Client to server: remove something. Answered by [`Self::Removed`] and [`Self::Left`],
    /// then [`Self::End`], as the other two are.
    #[n(30)]
    Remove {
        /// Its name, below the root.
        #[cbor(n(0), with = "bounded::path")]
        path: RelPath,
        /// With all that is in it, if it is a directory.
        #[n(1)]
        recursive: bool,
    },
    /// Client to server, where it showed no certificate: it holds this key.
    #[n(32)]
    Proof {
        /// Its Ed25519 key.
        #[cbor(n(0), with = "minicbor::bytes")]
        key: [u8; 32],
        /// The signature over [`crate::proof::to_sign`].
        #[cbor(n(1), with = "minicbor::bytes")]
        signature: [u8; 64],
    },
}

/// Lanes that a client would open, and what it can.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct LanesOffer {
    /// The transfer's name in the exporter's context: random.
    #[cbor(n(0), with = "minicbor::bytes")]
    pub transfer: [u8; 16],
    /// The lanes' names: random, 1 to [`MOST_LANES`].
    #[cbor(n(1), with = "bounded::lanes")]
    pub lanes: Vec<u64>,
    /// Numbers of the cipher suites that it can, at most [`MOST_SUITES`], the one it
    /// likes best first.
    #[cbor(n(2), with = "bounded::suites")]
    pub suites: Vec<u32>,
    /// Octets that its socket keeps while its program is busy.
    #[n(3)]
    pub room: Option<u64>,
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
    pub room: Option<u64>,
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
    /// At most [`MOST_INLINE`] octets.
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
    #[cbor(n(0), with = "bounded::place")]
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
