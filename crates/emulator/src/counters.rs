//! What happened to the frames of one direction.

use serde::Serialize;

/// Single frames: a train counts as the frames it was cut into. Those received
/// were forwarded (less the second copies), lost, dropped, or are under way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Counters {
    /// Offered to the link.
    pub received: u64,
    /// Sent on, second copies included.
    pub forwarded: u64,
    /// Lost by chance.
    pub lost: u64,
    /// Dropped by the full queue.
    pub dropped_by_queue: u64,
    /// Dropped because too many octets were under way.
    pub dropped_by_memory: u64,
    /// Dropped by the kernel before the emulator saw them, or refused by it
    /// when they were to be sent (longer than the interface's MTU, no memory).
    pub dropped_by_kernel: u64,
    /// Sent twice.
    pub duplicated: u64,
    /// Sent with a wrong bit.
    pub corrupted: u64,
    /// Held back.
    pub reordered: u64,
    /// Trains that were cut.
    pub trains_cut: u64,
    /// Unfinished checksums of single frames that were finished.
    pub checksums_finished: u64,
    /// Neither frames nor trains that could be read; thrown away.
    pub malformed: u64,
    /// Octets of the frames received, Ethernet header counted.
    pub octets_received: u64,
    /// Octets of the frames forwarded.
    pub octets_forwarded: u64,
}
