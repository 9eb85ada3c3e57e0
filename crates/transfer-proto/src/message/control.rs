//! The messages of the control stream.

use minicbor::{Decode, Encode};

use super::attributes::{Keep, TreeOptions};
use super::bounded;
use super::parts::{Compress, Inline, Kind, LanesAnswer, LanesOffer, Listed, Wanted};
use crate::path::RelPath;
use crate::span::ChainingValue;

/// The version of the protocol that this program speaks.
pub const VERSION: u32 = 1;

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
        #[cbor(n(0), with = "bounded::path_or_root")]
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
        #[cbor(n(0), with = "bounded::path_or_root")]
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
        /// At most [`MOST_VALUES`](super::MOST_VALUES), and none where nothing is there.
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
        /// At most [`MOST_LISTED`](super::MOST_LISTED), sorted by name within one listing.
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
        #[cbor(n(1), with = "bounded::path_or_root")]
        path: Option<RelPath>,
    },
    /// Client to server: one directory's content is to become another's.
    #[n(16)]
    Sync {
        /// The directory below the root; nothing is the root itself.
        #[cbor(n(0), with = "bounded::path_or_root")]
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
        /// At most [`MOST_PATTERNS`](super::MOST_PATTERNS) lines as of a `.gitignore`: what they match is
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
        /// Its octets, at most [`MOST_HOLE`](super::MOST_HOLE).
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
        #[cbor(n(1), with = "bounded::path_or_root")]
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
