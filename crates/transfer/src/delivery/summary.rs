//! The result of a transfer.

use std::sync::Mutex;

use headroom_mutex::lock;
use headroom_transfer_proto::lane::Cipher;
use headroom_transfer_proto::span::Verification;

use crate::files::Requests;

/// The counts of a transfer; in a dry run, of what would be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Summary {
    /// Files, directories and links that are stored.
    pub stored: u64,
    /// Those that failed.
    pub failed: u64,
    /// Links, devices, pipes and sockets that were left out by policy.
    pub left_out: u64,
    /// Bytes of files that were sent or received; in a dry run, the most that would be.
    pub moved: u64,
    /// Bytes that the receiver already had.
    pub kept: u64,
    /// Of these, those that a sync copied within spans that changed.
    pub reused: u64,
    /// Bytes of holes, which are not sent.
    pub holes: u64,
    /// Of the moved bytes, those that compression saved.
    pub saved: u64,
    /// Files, directories and links that a sync found up to date.
    pub unchanged: u64,
    /// Those that a sync removed at the receiver.
    pub removed: u64,
    /// Of the moved bytes, those on lanes; the others used streams.
    pub on_lanes: u64,
    /// Bytes of lost packets of lanes, as far as this side sent them.
    pub lost: u64,
    /// The cipher of lanes, if there were any. Streams use TLS's.
    pub cipher: Option<Cipher>,
    /// Bytes of files that CRC-64/NVME verified, as requested. BLAKE3 verified all others.
    pub by_crc: u64,
    /// Servers that sent or received ranges of large files, which were divided among them.
    pub range_servers: u64,
    /// Requests to the object store that it took, if the server has one and counts them.
    pub requests: Option<Requests>,
}

impl Summary {
    /// Adds a file that was verified.
    pub(super) fn add_verified(&mut self, bytes: u64, verification: Verification) {
        if verification == Verification::Crc64 {
            self.by_crc = self.by_crc.saturating_add(bytes);
        }
    }
}

/// Counts that several tasks update.
#[derive(Debug, Default)]
pub(super) struct Counts(Mutex<Summary>);

impl Counts {
    pub(super) fn add(&self, change: impl FnOnce(&mut Summary)) {
        change(&mut lock(&self.0));
    }

    pub(super) fn get(&self) -> Summary {
        *lock(&self.0)
    }
}
