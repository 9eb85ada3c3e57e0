//! What a receiver of data tells, and when.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::feedback::Feedback;
use super::header::Number;
use super::rtt::FEEDBACK_DELAY;
use super::window::Window;

/// Packets that nobody asked about before feedback is sent all the same.
const MOST_UNASKED: u32 = 256;

/// Arrivals, and when they are to be told.
#[derive(Debug, Default)]
pub(crate) struct ReceiveState {
    largest: Option<(Number, Duration)>,
    octets: u64,
    congested: u32,
    unasked: u32,
    due: Option<Duration>,
}

impl ReceiveState {
    /// Notes a packet that was opened.
    pub(crate) fn received(&mut self, now: Duration, number: Number, len: usize, congested: bool) {
        if self.largest.is_none_or(|(largest, _)| largest < number) {
            self.largest = Some((number, now));
        }
        self.octets = self.octets.wrapping_add(len as u64);
        self.congested = self.congested.wrapping_add(u32::from(congested));
    }

    /// Notes that the packet wants feedback: now, if it asks for it.
    pub(crate) fn wants_feedback(&mut self, now: Duration, asks: bool) {
        self.unasked += 1;
        let latest = if asks || self.unasked >= MOST_UNASKED { now } else { now + FEEDBACK_DELAY };
        self.due = Some(self.due.map_or(latest, |due| due.min(latest)));
    }

    /// When feedback is due.
    pub(crate) fn due(&self) -> Option<Duration> {
        self.due
    }

    /// The feedback, which is then not due any more.
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
            octets: self.octets,
            congested: self.congested,
            ranges: window.ranges(),
        })
    }
}
