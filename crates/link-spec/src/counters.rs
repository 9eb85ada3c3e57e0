//! What `headroom link --json` prints and the lab reads: a line when the link is ready, and
//! the counters of each direction.

use serde::{Deserialize, Serialize};

/// The line that says that the link forwards frames.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ready {
    /// Always true: it tells this line from others.
    pub ready: bool,
    /// The interface on the client's side.
    pub a: String,
    /// The interface on the server's side.
    pub b: String,
    /// The link, as a plan writes it.
    pub spec: String,
    /// Seed of the random processes.
    pub seed: u64,
}

/// The line with the counters of one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectionCounters {
    /// Their values,
    #[serde(flatten)]
    pub counters: Counters,
    /// and the direction.
    pub direction: Direction,
}

/// A direction of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// From client to server; from interface A to interface B.
    Up,
    /// From server to client; from interface B to interface A.
    Down,
}

/// Counts single frames: a train counts as the frames it was split into. Each received
/// frame was forwarded (second copies aside), lost or dropped, or is in transit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Counters {
    /// Frames offered to the link.
    pub received: u64,
    /// Frames transmitted, second copies included.
    pub forwarded: u64,
    /// Frames that the loss process removed.
    pub lost: u64,
    /// Frames that the queue dropped: it was full, or its management did.
    pub dropped_by_queue: u64,
    /// Frames in which its management set the mark of ECN instead.
    pub marked: u64,
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
    pub trains_split: u64,
    /// Partial checksums of single frames that were completed.
    pub checksums_finished: u64,
    /// Unreadable frames, and trains that are unreadable or of an unsupported kind; discarded.
    pub malformed: u64,
    /// Bytes of received frames, Ethernet header counted.
    pub bytes_received: u64,
    /// Bytes of forwarded frames.
    pub bytes_forwarded: u64,
}

impl Counters {
    /// Returns what was counted since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            received: self.received.saturating_sub(earlier.received),
            forwarded: self.forwarded.saturating_sub(earlier.forwarded),
            lost: self.lost.saturating_sub(earlier.lost),
            dropped_by_queue: self.dropped_by_queue.saturating_sub(earlier.dropped_by_queue),
            marked: self.marked.saturating_sub(earlier.marked),
            dropped_by_memory: self.dropped_by_memory.saturating_sub(earlier.dropped_by_memory),
            dropped_by_kernel: self.dropped_by_kernel.saturating_sub(earlier.dropped_by_kernel),
            duplicated: self.duplicated.saturating_sub(earlier.duplicated),
            corrupted: self.corrupted.saturating_sub(earlier.corrupted),
            reordered: self.reordered.saturating_sub(earlier.reordered),
            trains_split: self.trains_split.saturating_sub(earlier.trains_split),
            checksums_finished: self.checksums_finished.saturating_sub(earlier.checksums_finished),
            malformed: self.malformed.saturating_sub(earlier.malformed),
            bytes_received: self.bytes_received.saturating_sub(earlier.bytes_received),
            bytes_forwarded: self.bytes_forwarded.saturating_sub(earlier.bytes_forwarded),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_round_trips_and_counters_subtract() {
        let counters = Counters { received: 5, lost: 1, ..Counters::default() };
        let line = DirectionCounters { counters, direction: Direction::Down };
        let text = serde_json::to_string(&line).expect("JSON");
        assert!(text.starts_with("{\"received\":5,") && text.ends_with("\"direction\":\"down\"}"));
        assert_eq!(serde_json::from_str::<DirectionCounters>(&text).expect("a line"), line);
        let later = Counters { received: 9, forwarded: 8, lost: 1, ..Counters::default() };
        let since = Counters { received: 4, forwarded: 8, ..Counters::default() };
        assert_eq!(later.since(&counters), since);
    }
}
