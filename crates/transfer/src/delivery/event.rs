//! Events of a transfer, for observers.

use headroom_transfer_proto::lane::{Chunk, Cipher};
use headroom_transfer_proto::message::ErrorCode;
use headroom_transfer_proto::path::RelPath;
use headroom_transfer_proto::span::{Verification, crc_in};

use crate::failure::Failure;

/// An event of a transfer.
#[derive(Debug, Clone, Copy)]
pub enum Event<'a> {
    /// A file was found or announced.
    Offered {
        /// Its size in bytes.
        bytes: u64,
    },
    /// All files are known.
    AllOffered {
        /// The number of files.
        files: u64,
        /// Their bytes.
        bytes: u64,
    },
    /// The receiver already has this many bytes.
    Kept {
        /// How many.
        bytes: u64,
    },
    /// This many bytes are a hole and are not sent.
    Hole {
        /// How many.
        bytes: u64,
    },
    /// Of the bytes of content that moved, compression kept this many off the wire.
    Saved {
        /// How many.
        bytes: u64,
    },
    /// This many bytes of content were sent or received, counted before compression.
    Moved {
        /// How many.
        bytes: u64,
    },
    /// The transfer of a file's content begins.
    Begun {
        /// Its name.
        path: &'a RelPath,
    },
    /// The content of a file has this BLAKE3 hash, as it was sent or has arrived. It is stored only
    /// if both are the same. The sender of a sync by hashes also reports it of a file that the
    /// receiver has already.
    Hashed {
        /// Its name.
        path: &'a RelPath,
        /// Its size in bytes.
        bytes: u64,
        /// The hash.
        hash: &'a [u8; 32],
    },
    /// The content of a file has this CRC-64/NVME, as [`Self::Hashed`] reports a hash: the request
    /// had the file verified by that.
    Summed {
        /// Its name.
        path: &'a RelPath,
        /// Its size in bytes.
        bytes: u64,
        /// The CRC.
        crc: u64,
    },
    /// Something is stored and verified.
    Stored {
        /// Its name.
        path: &'a RelPath,
    },
    /// Something failed.
    Failed {
        /// A sentence that names it.
        reason: &'a str,
        /// The reason for programs.
        code: Option<ErrorCode>,
    },
    /// Something would be stored, in a dry run.
    Planned {
        /// Its name.
        path: &'a RelPath,
        /// The most bytes that would be sent.
        bytes: u64,
        /// Whether nothing has the name yet.
        new: bool,
    },
    /// Something that the sender does not have was removed at the receiver; in a dry run it would
    /// be.
    Removed {
        /// Its name.
        path: &'a RelPath,
    },
    /// Big files use lanes with these parameters.
    Lanes {
        /// The cipher. One that is not secure protects nothing; both sides must have allowed it,
        /// for a measurement.
        cipher: Cipher,
        /// Bytes of files in each packet, in a measurement that fixes it.
        chunk: Option<Chunk>,
        /// The server's UDP port.
        port: u16,
    },
    /// Lanes do not answer: the rest uses streams until they do.
    LanesSilent,
    /// Lanes answer again: the rest uses them.
    LanesBack,
    /// Something was sent or stored with a restriction.
    Warning {
        /// A sentence that names it.
        reason: &'a str,
    },
    /// Something was left out by policy.
    LeftOut {
        /// A sentence that names it.
        reason: &'a str,
    },
}

impl<'a> Event<'a> {
    /// Makes the event that the content of a file has this hash, as a verification gives it.
    pub(crate) fn hashed(
        path: &'a RelPath,
        bytes: u64,
        (hash, verification): (&'a [u8; 32], Verification),
    ) -> Self {
        match verification {
            Verification::Blake3 => Self::Hashed { path, bytes, hash },
            Verification::Crc64 => Self::Summed { path, bytes, crc: crc_in(hash) },
        }
    }
}

impl Failure {
    /// Makes the event for an observer.
    pub(crate) fn event(&self) -> Event<'_> {
        Event::Failed { reason: &self.reason, code: self.code }
    }
}

/// Receives events. Called from several threads.
pub trait Observer: Send + Sync {
    /// Handles an event.
    fn event(&self, event: Event<'_>);
}

/// Ignores all events.
impl Observer for () {
    fn event(&self, _event: Event<'_>) {}
}
