//! The messages of the control stream.

use std::ops::Range;

use minicbor::{Decode, Encode};

use super::attributes::{Keep, TreeOptions};
use super::delta::{ChunkHash, ChunkKind, ChunkSize};
use super::parts::{
    Compress, EntryKind, ErrorCode, Inline, LanesAnswer, LanesOffer, Listed, PartsRequest,
    ShareTerms, StoreRequests, UPLOAD_BYTES, Wanted,
};
use super::{bounded, delta};
use crate::path::RelPath;
use crate::proof::{Binding, NONCE_BYTES};
use crate::rate::Priority;
use crate::span::{ChainingValue, Verification};

/// The version of the protocol that this program speaks.
pub const VERSION: u32 = 1;
/// The length of an upload's ticket.
pub const TICKET_BYTES: usize = 16;

/// A message.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub enum Message {
    /// The first message of both ends.
    #[n(0)]
    Hello {
        /// The sender's version of the protocol.
        #[n(0)]
        version: u32,
        /// Program and version, for people: at most 64 bytes.
        #[cbor(n(1), with = "bounded::name")]
        program: String,
        /// The most bits of file content per second that it accepts.
        #[n(2)]
        rate_bps: Option<u64>,
        /// The share beside others with which to send it files; `None` is the normal one.
        #[n(3)]
        priority: Option<Priority>,
        /// A client: it wants [`Self::StoreRequests`]. A server: it sends them to such a client.
        #[n(4)]
        counts: Option<bool>,
    },
    /// Client to server: the client will send files.
    #[n(1)]
    Put {
        /// The destination below the root; `None` is the root itself.
        #[cbor(n(0), with = "bounded::path_or_root")]
        to: Option<RelPath>,
        /// One file or directory comes and gets the name `to`, unless that is a directory.
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
        /// The client divides one file among several servers, and sends ranges of it.
        #[n(10)]
        parts: Option<PartsRequest>,
    },
    /// Client to server: the client asks for files.
    #[n(2)]
    Get {
        /// The files and directories.
        #[cbor(n(0), with = "bounded::sources")]
        from: Vec<Wanted>,
        /// Whether to compress data; `None` is never.
        #[n(1)]
        compress: Option<Compress>,
        /// The client can also receive data on lanes.
        #[n(8)]
        lanes: Option<LanesOffer>,
        /// How trees are sent.
        #[n(9)]
        tree: Option<TreeOptions>,
        /// Whether the client asks for ranges of files ([`Self::AskRange`]) instead of whole ones.
        #[n(10)]
        ranges: Option<bool>,
    },
    /// Client to server: list a directory.
    #[n(3)]
    List {
        /// The directory or file; `None` is the root.
        #[cbor(n(0), with = "bounded::path_or_root")]
        path: Option<RelPath>,
    },
    /// Server to client: the request is accepted.
    #[n(4)]
    Accepted {
        /// The lanes, if the client offered any and the server takes them.
        #[n(0)]
        lanes: Option<LanesAnswer>,
        /// Which of the requested attributes the server keeps.
        #[n(1)]
        keep: Option<Keep>,
        /// Whose holder may move data of this upload on other sessions of the same client, by
        /// [`Self::Join`].
        #[cbor(n(2), with = "minicbor::bytes")]
        ticket: Option<[u8; TICKET_BYTES]>,
        /// How files are verified of which the receiver has no span: as requested, or `None` for
        /// BLAKE3. All others are verified by BLAKE3.
        #[n(3)]
        verification: Option<Verification>,
        /// Whether the server sends ranges of files, as the client asked for.
        #[n(4)]
        ranges: Option<bool>,
        /// Whether the server takes the [`PartsRequest`] of the client.
        #[n(5)]
        parts: Option<bool>,
    },
    /// Server to client: the request is refused, or aborted.
    #[n(5)]
    Refused {
        /// A sentence.
        #[cbor(n(0), with = "bounded::text")]
        reason: String,
        /// Whether the reason is a named file: it is missing, or cannot be read or written.
        /// Otherwise it is the client's rights or its request.
        #[n(1)]
        about_files: Option<bool>,
        /// The same reason for programs.
        #[n(2)]
        code: Option<ErrorCode>,
    },
    /// Sender to receiver: something to store.
    #[n(6)]
    Entry {
        /// Its number, unique in the connection.
        #[n(0)]
        id: u64,
        /// Its name below the destination.
        #[cbor(n(1), with = "bounded::path")]
        path: RelPath,
        /// What it is.
        #[n(2)]
        kind: EntryKind,
    },
    /// Sender to receiver: there are no more entries.
    #[n(7)]
    EntriesEnd {
        /// Files offered.
        #[n(0)]
        files: u64,
        /// Bytes in them.
        #[n(1)]
        bytes: u64,
    },
    /// Receiver to sender: a file may be sent, and these spans of it are present.
    #[n(8)]
    Have {
        /// The file.
        #[n(0)]
        id: u64,
        /// The span of the first value; the others follow it.
        #[n(1)]
        first_span: u64,
        /// At most [`MAX_VALUES`](super::MAX_VALUES); empty if nothing is present.
        #[cbor(n(2), with = "bounded::values")]
        values: Vec<ChainingValue>,
        /// Whether this is the last message about the file: now the sender sends the rest.
        #[n(3)]
        last: bool,
        /// With the last message, in a sync: the size in bytes of the receiver's old file, which
        /// the sender may let it [describe](Self::Describe) and [copy](Self::Copy).
        #[n(4)]
        old: Option<u64>,
    },
    /// Sender to receiver: everything was sent, and this is the file's hash.
    #[n(9)]
    Sealed {
        /// The file.
        #[n(0)]
        id: u64,
        /// The BLAKE3 hash; of a file that is verified by CRC-64/NVME its eight bytes, most
        /// significant first, and zeros.
        #[cbor(n(1), with = "minicbor::bytes")]
        root: [u8; 32],
        /// Bytes of the spans that were sent: once they have arrived, the file is complete.
        #[n(2)]
        bytes: u64,
    },
    /// Sender to receiver: the file cannot be sent; discard what arrived.
    #[n(10)]
    Withdrawn {
        /// The file.
        #[n(0)]
        id: u64,
        /// A sentence: it changed, or cannot be read.
        #[cbor(n(1), with = "bounded::text")]
        reason: String,
        /// The reason for programs.
        #[n(2)]
        code: Option<ErrorCode>,
    },
    /// Receiver to sender: the entry is stored and verified.
    #[n(11)]
    Stored {
        /// The entry.
        #[n(0)]
        id: u64,
    },
    /// Receiver to sender: the entry is not stored; send nothing more of it.
    #[n(12)]
    Failed {
        /// The entry.
        #[n(0)]
        id: u64,
        /// A sentence.
        #[cbor(n(1), with = "bounded::text")]
        reason: String,
        /// The reason for programs.
        #[n(2)]
        code: Option<ErrorCode>,
    },
    /// Receiver to sender: every entry is answered.
    #[n(13)]
    End {
        /// Entries that are stored.
        #[n(0)]
        stored: u64,
        /// Entries that are not.
        #[n(1)]
        failed: u64,
    },
    /// Server to client: a part of a listing.
    #[n(14)]
    Listing {
        /// At most [`MAX_LISTED`](super::MAX_LISTED), sorted by name within one listing.
        #[cbor(n(0), with = "bounded::listing")]
        entries: Vec<Listed>,
        /// Whether this is the last part.
        #[n(1)]
        last: bool,
    },
    /// Sender to receiver: something cannot be read.
    #[n(15)]
    Unreadable {
        /// Its name and what was found: a sentence.
        #[cbor(n(0), with = "bounded::text")]
        reason: String,
        /// In a sync, the name of a file. Without a name it may be a directory, and nothing is
        /// known of what is below it.
        #[cbor(n(1), with = "bounded::path_or_root")]
        path: Option<RelPath>,
        /// The reason for programs.
        #[n(2)]
        code: Option<ErrorCode>,
    },
    /// Client to server: make one directory's content that of another.
    #[n(16)]
    Sync {
        /// The directory below the root; `None` is the root itself.
        #[cbor(n(0), with = "bounded::path_or_root")]
        path: Option<RelPath>,
        /// Whether the client is the sender; otherwise the server is.
        #[n(1)]
        upload: bool,
        /// Whether to remove at the receiver what the sender does not have.
        #[n(2)]
        delete: bool,
        /// Whether to change nothing, and only report what would change.
        #[n(3)]
        dry_run: bool,
        /// Whether to compare files by hash instead of size and time.
        #[n(4)]
        checksum: bool,
        /// Write through to the disk before a file counts as stored.
        #[n(5)]
        fsync: bool,
        /// At most [`MAX_PATTERNS`](super::MAX_PATTERNS) lines as of a `.gitignore`: what they match is
        /// neither sent nor removed.
        #[cbor(n(6), with = "bounded::patterns")]
        exclude: Vec<String>,
        /// Whether to compress data; `None` is never.
        #[n(7)]
        compress: Option<Compress>,
        /// How trees are sent.
        #[n(9)]
        tree: Option<TreeOptions>,
    },
    /// Sender to receiver, in a sync: this name exists, and is not sent.
    #[n(17)]
    Passed {
        /// Its name.
        #[cbor(n(0), with = "bounded::path")]
        path: RelPath,
    },
    /// Receiver to sender, in a sync: send the content of this small file.
    #[n(18)]
    Wanted {
        /// The file.
        #[n(0)]
        id: u64,
    },
    /// Sender to receiver, in a sync: the content of a small file.
    #[n(19)]
    Content {
        /// The file.
        #[n(0)]
        id: u64,
        /// All of it.
        #[n(1)]
        inline: Inline,
    },
    /// Receiver to sender, in a sync: the entry is up to date.
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
        /// The most bytes that would be sent.
        #[n(1)]
        bytes: u64,
        /// Whether nothing has its name yet.
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
    /// Receiver to sender, in a sync: something that the sender does not have stays.
    #[n(23)]
    Left {
        /// A sentence.
        #[cbor(n(0), with = "bounded::text")]
        reason: String,
        /// Whether removing it failed; otherwise it was to stay.
        #[n(1)]
        failed: bool,
        /// The reason for programs.
        #[n(2)]
        code: Option<ErrorCode>,
    },
    /// Sender to receiver: a range of a file is zeros, and is not sent.
    #[n(26)]
    Hole {
        /// The file.
        #[n(0)]
        id: u64,
        /// The offset of the range.
        #[n(1)]
        offset: u64,
        /// Its length in bytes, at most [`MAX_HOLE`](super::MAX_HOLE).
        #[n(2)]
        len: u64,
    },
    /// Sender to receiver, if the request has [`TreeOptions`]: something for the user to know.
    #[n(27)]
    Remark {
        /// A sentence.
        #[cbor(n(0), with = "bounded::text")]
        text: String,
        /// How many things were left out by policy.
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
    /// Client to server: the client asks for one file, on one stream.
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
        /// Also make missing parents, and accept a directory that exists.
        #[n(1)]
        parents: bool,
    },
    /// Client to server: rename something.
    #[n(29)]
    Rename {
        /// Its name, below the root.
        #[cbor(n(0), with = "bounded::path")]
        from: RelPath,
        /// The new name, or a directory to move it into; `None` is the root.
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
    /// Client to server, if it showed no certificate: proof of its key.
    #[n(32)]
    Proof {
        /// Its Ed25519 key.
        #[cbor(n(0), with = "minicbor::bytes")]
        key: [u8; 32],
        /// The signature over [`crate::proof::to_sign`], or with a binding over
        /// [`Binding::to_sign`].
        #[cbor(n(1), with = "minicbor::bytes")]
        signature: [u8; 64],
        /// To what it is bound, from a browser.
        #[n(2)]
        binding: Option<Binding>,
        /// A browser's nonce.
        #[cbor(n(3), with = "minicbor::bytes")]
        nonce: Option<[u8; NONCE_BYTES]>,
    },
    /// Server to browser, first on a stream while nothing is proven: a nonce to be signed.
    #[n(33)]
    Challenge {
        /// It, used for one session only.
        #[cbor(n(0), with = "minicbor::bytes")]
        nonce: [u8; NONCE_BYTES],
    },
    /// Client to server, after the proof of its key: the secret of an invitation, by which the
    /// server adds the key to those that it accepts.
    #[n(34)]
    Invited {
        /// The secret.
        #[cbor(n(0), with = "minicbor::bytes")]
        secret: [u8; 32],
        /// A name for the key, for people: at most 64 bytes.
        #[cbor(n(1), with = "bounded::name")]
        name: String,
    },
    /// Client to server: what may this client do?
    #[n(35)]
    Rights,
    /// Server to client: what the client may do.
    #[n(36)]
    Granted {
        /// Whether its key is one that the server knows.
        #[n(0)]
        known: bool,
        /// Whether it may only read.
        #[n(1)]
        read_only: bool,
        /// The most bits per second, for all connections of the key.
        #[n(2)]
        rate_bps: Option<u64>,
        /// Whether it may make share links.
        #[n(3)]
        may_share: Option<bool>,
        /// The share whose link it has shown.
        #[n(4)]
        share: Option<Box<ShareTerms>>,
    },
    /// Client to server: make a share link.
    #[n(37)]
    Share {
        /// The file or directory; `None` is the root.
        #[cbor(n(0), with = "bounded::path_or_root")]
        path: Option<RelPath>,
        /// Whether its holder may only send files into the directory; otherwise only fetch.
        #[n(1)]
        write: bool,
        /// Seconds until it expires.
        #[n(2)]
        seconds: u64,
        /// The most browsers that may use it; `None` is any number.
        #[n(3)]
        uses: Option<u32>,
        /// A note for people: at most 64 bytes.
        #[cbor(n(4), with = "bounded::name")]
        name: String,
    },
    /// Server to client: the share link is made.
    #[n(38)]
    Shared {
        /// The share.
        #[n(0)]
        terms: Box<ShareTerms>,
        /// The secret of its link.
        #[cbor(n(1), with = "minicbor::bytes")]
        secret: [u8; 32],
        /// The URL of the server's page: the link is this and `#share=`, with the secret in
        /// base64url (RFC 4648, section 5) without padding.
        #[cbor(n(2), with = "bounded::text")]
        page: String,
    },
    /// Client to server: which share links has this key made?
    #[n(39)]
    Shares,
    /// Server to client: a part of the answer.
    #[n(40)]
    SharesListed {
        /// At most [`MAX_SHARES_LISTED`](super::MAX_SHARES_LISTED).
        #[cbor(n(0), with = "bounded::shares")]
        shares: Vec<ShareTerms>,
        /// Whether this is the last part.
        #[n(1)]
        last: bool,
    },
    /// Client to server: end a share, and the sessions that it has. Answered by
    /// [`Self::Accepted`] and [`Self::End`].
    #[n(41)]
    Revoke {
        /// The share's ID.
        #[cbor(n(0), with = "bounded::name")]
        id: String,
    },
    /// Client to server, after the proof of its key: the secret of a share link, by which this
    /// session is the share's.
    #[n(42)]
    ShareSecret {
        /// The secret.
        #[cbor(n(0), with = "minicbor::bytes")]
        secret: [u8; 32],
    },
    /// Client to server: this session's data streams are those of an upload on another one, until
    /// that ends. Answered by [`Self::Accepted`]; the server ends the session with the upload.
    #[n(43)]
    Join {
        /// What [`Self::Accepted`] gave for the upload.
        #[cbor(n(0), with = "minicbor::bytes")]
        ticket: [u8; TICKET_BYTES],
    },
    /// Server to client, now and then during an upload that has a ticket, on the request of each of
    /// its sessions: what has arrived on the data streams of this session.
    #[n(44)]
    Arrived {
        /// Bytes since the request.
        #[n(0)]
        bytes: u64,
        /// Streams that have ended since the request: so many more may be opened.
        #[n(1)]
        streams: u64,
    },
    /// Server to client, the last message of a `put`, `get` or `sync` if the [`Self::Hello`] of both
    /// has `counts`: the requests to the server's object store that it took.
    #[n(56)]
    StoreRequests {
        /// They.
        #[n(0)]
        requests: Box<StoreRequests>,
    },
    /// Sender to receiver, in a sync: describe parts of the old file, whose size
    /// [`Self::Have`] gave.
    #[n(48)]
    Describe {
        /// The file.
        #[n(0)]
        id: u64,
        /// The average length of chunks.
        #[cbor(n(1), with = "delta::chunk_size")]
        size: ChunkSize,
        /// How to cut the ranges.
        #[n(2)]
        kind: ChunkKind,
        /// At most [`MAX_DESCRIBED`](super::MAX_DESCRIBED) ranges of the old file, in order,
        /// which neither touch nor overlap.
        #[cbor(n(3), with = "delta::ranges")]
        ranges: Vec<Range<u64>>,
    },
    /// Receiver to sender, in a sync: the content of the old file.
    #[n(49)]
    Described {
        /// The file.
        #[n(0)]
        id: u64,
        /// At most [`MAX_CHUNKS`](super::MAX_CHUNKS): those after the ones before, from the
        /// beginning of the first range on.
        #[cbor(n(1), with = "delta::chunks")]
        chunks: Vec<ChunkHash>,
        /// Whether these are the last.
        #[n(2)]
        last: bool,
    },
    /// Sender to receiver, in a sync: copy a range of the old file.
    #[n(50)]
    Copy {
        /// The file.
        #[n(0)]
        id: u64,
        /// The offset in the old file.
        #[n(1)]
        from: u64,
        /// The offset in the new one.
        #[n(2)]
        to: u64,
        /// Its length in bytes, at most [`MAX_COPY`](super::MAX_COPY).
        #[n(3)]
        len: u64,
    },
    /// Sender to receiver, in a sync: bytes of the file, between those that are copied.
    #[n(51)]
    Literal {
        /// The file.
        #[n(0)]
        id: u64,
        /// The offset of the first.
        #[n(1)]
        offset: u64,
        /// How many, at most [`MAX_INLINE`](super::MAX_INLINE).
        #[n(2)]
        len: u32,
        /// The bytes; if shorter than `len`, one zstd frame (RFC 8878) of them.
        #[cbor(n(3), with = "bounded::content")]
        content: Vec<u8>,
    },
    /// Receiver to sender, if [`Self::Accepted`] allows ranges: send these spans of a file, but
    /// for those whose values the [`Self::Have`] messages before this one gave.
    #[n(52)]
    AskRange {
        /// The file.
        #[n(0)]
        id: u64,
        /// The first span.
        #[n(1)]
        first_span: u64,
        /// How many spans, 1 to [`MAX_VALUES`](super::MAX_VALUES).
        #[n(2)]
        spans: u64,
    },
    /// Sender to receiver: the range was sent, and the file has not changed.
    #[n(53)]
    RangeSent {
        /// The file.
        #[n(0)]
        id: u64,
        /// The first span of the range.
        #[n(1)]
        first_span: u64,
        /// The values of all its spans.
        #[cbor(n(2), with = "bounded::values")]
        values: Vec<ChainingValue>,
    },
    /// Receiver to sender, if [`Self::Accepted`] takes parts, before the first [`Self::Have`]: the
    /// upload of a file, to which this and other servers store parts.
    #[n(57)]
    PartsBegun {
        /// The file.
        #[n(0)]
        id: u64,
        /// The upload, by which other servers take part.
        #[cbor(n(1), with = "minicbor::bytes")]
        upload: [u8; UPLOAD_BYTES],
        /// Spans of each part but the last, 1 to [`MAX_VALUES`](super::MAX_VALUES).
        #[n(2)]
        part_spans: u64,
    },
    /// Receiver to sender: the parts of a range are stored, with the values that
    /// [`Self::RangeSent`] gave.
    #[n(58)]
    RangeStored {
        /// The file.
        #[n(0)]
        id: u64,
        /// The first span of the range.
        #[n(1)]
        first_span: u64,
        /// How many spans.
        #[n(2)]
        spans: u64,
    },
    /// Sender to receiver: no more ranges of a file come. Answered by [`Self::Stored`].
    #[n(59)]
    RangesEnd {
        /// The file.
        #[n(0)]
        id: u64,
    },
}

impl Message {
    /// The request is accepted, and there is nothing to add.
    pub const ACCEPTED: Self = Self::Accepted {
        lanes: None,
        keep: None,
        ticket: None,
        verification: None,
        ranges: None,
        parts: None,
    };
}
