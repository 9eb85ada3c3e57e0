//! What a delivery comes to.

use std::sync::{Mutex, PoisonError};

use headroom_transfer_proto::lane::Cipher;

/// What was delivered; of a dry run, what would be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Summary {
    /// Files, directories and links that lie under their names.
    pub stored: u64,
    /// Those that do not.
    pub failed: u64,
    /// Links, devices, pipes and sockets that were left out, as they should be.
    pub left_out: u64,
    /// Octets of files that went over the network; of a dry run, the most that would.
    pub moved: u64,
    /// Octets that the receiver had.
    pub kept: u64,
    /// Octets of holes, which are not sent.
    pub holes: u64,
    /// Of the octets that went over the network, those that compression saved.
    pub saved: u64,
    /// Files, directories and links that a sync found as they should be.
    pub unchanged: u64,
    /// Those that a sync removed at the receiver's.
    pub removed: u64,
    /// Of those that went over the network, the ones on lanes; the others went on
    /// streams.
    pub on_lanes: u64,
    /// Octets of packets of lanes that were lost, as far as this side sent them.
    pub lost: u64,
    /// The cipher of lanes, if there were any. Streams have TLS's.
    pub cipher: Option<Cipher>,
}

/// What was counted so far, by several tasks.
#[derive(Debug, Default)]
pub(super) struct Counts(Mutex<Summary>);

impl Counts {
    pub(super) fn add(&self, change: impl FnOnce(&mut Summary)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    pub(super) fn get(&self) -> Summary {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
