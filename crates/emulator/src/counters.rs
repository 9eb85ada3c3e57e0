//! Counters of one direction.

use serde::Serialize;

/// Counts single frames: a train counts as the frames it was split into. Each received
/// frame was forwarded (second copies aside), lost or dropped, or is in transit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Counters {
    /// Frames offered to the link.
    pub received: u64,
    /// Frames transmitted, second copies included.
    pub forwarded: u64,
    /// Frames that the loss process removed.
    pub lost: u64,
    /// Frames that the full queue dropped.
    pub dropped_by_queue: u64,
    /// Frames dropped because too many bytes were in transit.
    pub dropped_by_memory: u64,
    /// Frames that the kernel dropped before the emulator read them, or refused to
    /// transmit (longer than the interface's MTU, no memory).
    pub dropped_by_kernel: u64,
    /// Frames transmitted twice.
    pub duplicated: u64,
    /// Frames transmitted with a flipped bit.
    pub corrupted: u64,
    /// Frames held back.
    pub reordered: u64,
    /// Trains (TSO, GSO) that were split.
    pub trains_cut: u64,
    /// Partial checksums of single frames that were completed.
    pub checksums_finished: u64,
    /// Unreadable frames and trains, discarded.
    pub malformed: u64,
    /// Bytes of received frames, Ethernet header counted.
    pub octets_received: u64,
    /// Bytes of forwarded frames.
    pub octets_forwarded: u64,
}
