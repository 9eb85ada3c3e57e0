//! What feedback a receiver of data sends, and when.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::feedback::Feedback;
use super::header::Number;
use super::rtt::FEEDBACK_DELAY;
use super::window::Window;

/// Packets that do not ask for feedback, after which it is sent anyway.
const MAX_UNASKED: u32 = 256;

/// Packets that arrived, and when feedback about them is due.
#[derive(Debug, Default)]
pub(crate) struct ReceiveState {
    largest: Option<(Number, Duration)>,
    bytes: u64,
    congested: u32,
    unasked: u32,
    due: Option<Duration>,
}

impl ReceiveState {
    /// Notes an authenticated packet.
    pub(crate) fn received(&mut self, now: Duration, number: Number, len: usize, congested: bool) {
        if self.largest.is_none_or(|(largest, _)| largest < number) {
            self.largest = Some((number, now));
        }
        self.bytes = self.bytes.wrapping_add(len as u64);
        self.congested = self.congested.wrapping_add(u32::from(congested));
    }

    /// Notes that a packet needs feedback: immediately, if it asks for it.
    pub(crate) fn wants_feedback(&mut self, now: Duration, asks: bool) {
        self.unasked += 1;
        let latest = if asks || self.unasked >= MAX_UNASKED { now } else { now + FEEDBACK_DELAY };
        self.due = Some(self.due.map_or(latest, |due| due.min(latest)));
    }

    /// Returns when feedback is due.
    pub(crate) fn due(&self) -> Option<Duration> {
        self.due
    }

    /// Makes the feedback, which is then no longer due.
    pub(crate) fn feedback<'w>(
        &mut self,
        now: Duration,
        window: &'w Window,
    ) -> Option<Feedback<impl Iterator<Item = RangeInclusive<u64>> + use<'w>>> {
        self.due = None;
        self.unasked = 0;
        let (largest, at) = self.largest?;
        Some(Feedback {
            largest,
            arrived_us: at.as_micros() as u64,
            age_us: u32::try_from(now.saturating_sub(at).as_micros()).unwrap_or(u32::MAX),
            bytes: self.bytes,
            congested: self.congested,
            ranges: window.ranges(),
        })
    }
}
