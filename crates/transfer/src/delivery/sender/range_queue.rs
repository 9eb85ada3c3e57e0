//! The ranges of a file that the receiver has asked for and that are not sent yet.

use std::ops::Range;

use headroom_transfer_proto::span::ChainingValue;
use tokio::sync::mpsc;

use crate::files::Ranges;

/// Ranges of one file that may be unsent at once.
const MAX_UNSENT: usize = 4;
/// Separate ranges of one file that may be asked for.
const MAX_SEPARATE: usize = 1 << 16;

/// A range that the receiver asks for.
pub(super) struct RangeRequest {
    pub(super) spans: Range<u64>,
    /// Spans that the receiver reports to have.
    pub(super) held: Vec<(u64, ChainingValue)>,
}

/// The ranges of a file that the receiver has asked for and that are not sent yet.
pub(super) struct RangeQueue {
    requests: mpsc::UnboundedSender<RangeRequest>,
    /// All ranges that it has ever asked for.
    ever: Ranges,
    /// How many are not sent yet.
    unsent: usize,
}

impl RangeQueue {
    /// Makes an empty queue. Also returns its end, from which requests are taken.
    pub(super) fn new() -> (Self, mpsc::UnboundedReceiver<RangeRequest>) {
        let (requests, end) = mpsc::unbounded_channel();
        (Self { requests, ever: Ranges::default(), unsent: 0 }, end)
    }

    /// Adds a request.
    ///
    /// # Errors
    /// The range overlaps an earlier one, or there are too many: says what the receiver asks for.
    pub(super) fn add(&mut self, request: RangeRequest) -> Result<(), &'static str> {
        if self.unsent >= MAX_UNSENT || self.ever.len() >= MAX_SEPARATE {
            return Err("too many ranges of a file");
        }
        if self.ever.gaps(&request.spans) != std::slice::from_ref(&request.spans) {
            return Err("a range that overlaps one that it asked for before");
        }
        self.ever.insert(&request.spans);
        self.unsent += 1;
        // the task that takes it ends with the file
        let _ = self.requests.send(request);
        Ok(())
    }

    /// Notes that a range that was taken is sent.
    pub(super) fn note_sent(&mut self) {
        self.unsent -= 1;
    }
}
