//! A line that follows a recorded trace, as mahimahi's mm-link(1) does. An opportunity delivers
//! up to 1500 bytes of what waits at its time: several small packets, or a part of a large one,
//! which leaves with its last byte. What nothing waits for is lost.

use headroom_link_spec::Trace;
use headroom_packet::ethernet::HEADER_LEN;

/// Bytes of an opportunity.
const OPPORTUNITY: u64 = Trace::OPPORTUNITY_BYTES as u64;
const NS_PER_MS: u64 = 1_000_000;

/// The line, and the next opportunity that has room.
#[derive(Debug)]
pub(crate) struct TraceLine {
    trace: Trace,
    start_ns: u64,
    period_ns: u64,
    /// Whole repetitions before that opportunity.
    cycle: u64,
    /// Its index in the trace.
    index: usize,
    /// Its bytes that frames have taken; always fewer than it has.
    taken: u64,
}

impl TraceLine {
    /// Makes a line whose trace begins at `start_ns`.
    pub(crate) fn new(trace: Trace, start_ns: u64) -> Self {
        // a trace is never shorter than a millisecond
        let period_ns = (trace.period().as_nanos() as u64).max(NS_PER_MS);
        Self { trace, start_ns, period_ns, cycle: 0, index: 0, taken: 0 }
    }

    /// When the next opportunity is that has room.
    pub(crate) fn next_ns(&self) -> u64 {
        let within_ns = u64::from(self.trace.times_ms()[self.index]) * NS_PER_MS;
        let begun_ns = self.start_ns.saturating_add(self.cycle.saturating_mul(self.period_ns));
        begun_ns.saturating_add(within_ns)
    }

    /// Passes the opportunities up to a time, which are too early for a frame that arrives then,
    /// and returns when the next one is.
    pub(crate) fn next_after_ns(&mut self, arrived_ns: u64) -> u64 {
        if self.next_ns() <= arrived_ns {
            let since_ns = arrived_ns.saturating_sub(self.start_ns);
            let within_ns = since_ns % self.period_ns;
            let is_past = |ms: &u32| u64::from(*ms) * NS_PER_MS <= within_ns;
            self.cycle = since_ns / self.period_ns;
            // the last time is the period, which is later than what is left of it
            self.index = self.trace.times_ms().partition_point(is_past);
            self.taken = 0;
        }
        self.next_ns()
    }

    /// Sends a frame of `len` bytes by the next opportunities, and returns when its last byte
    /// leaves.
    pub(crate) fn send(&mut self, len: u64) -> u64 {
        let mut left = len.saturating_sub(HEADER_LEN as u64).max(1);
        loop {
            let at_ns = self.next_ns();
            let sent = left.min(OPPORTUNITY - self.taken);
            self.taken += sent;
            left -= sent;
            if self.taken == OPPORTUNITY {
                self.advance();
            }
            if left == 0 {
                return at_ns;
            }
        }
    }

    fn advance(&mut self) {
        self.taken = 0;
        self.index += 1;
        if self.index == self.trace.times_ms().len() {
            self.index = 0;
            self.cycle += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use proptest::prelude::*;

    const MS: u64 = NS_PER_MS;
    /// A full frame: an Ethernet header and 1500 bytes.
    const FULL: u64 = 1514;

    fn line(text: &str) -> TraceLine {
        let trace = Trace::parse(Path::new("/"), "a.trace", text.as_bytes()).expect("a trace");
        TraceLine::new(trace, 0)
    }

    /// When frames leave that arrive at these milliseconds, in milliseconds.
    fn departures(line: &mut TraceLine, frames: &[(u64, u64)]) -> Vec<u64> {
        let departures = frames.iter().map(|&(arrived_ms, len)| {
            line.next_after_ns(arrived_ms * MS);
            line.send(len) / MS
        });
        departures.collect()
    }

    #[test]
    fn a_full_frame_takes_one_opportunity() {
        let mut line = line("2\n5\n5\n9\n");
        assert_eq!(departures(&mut line, &[(0, FULL); 6]), [2, 5, 5, 9, 11, 14]);
    }

    #[test]
    fn small_frames_share_an_opportunity_and_large_ones_take_several() {
        let mut shared = line("2\n5\n9\n");
        // 500 bytes each, without the header
        assert_eq!(departures(&mut shared, &[(0, 514); 7]), [2, 2, 2, 5, 5, 5, 9]);
        let mut large = line("2\n5\n9\n");
        assert_eq!(departures(&mut large, &[(0, 4014), (0, 514), (0, 514)]), [9, 9, 11]);
        let mut split = line("2\n5\n9\n");
        // the second frame begins in what the first leaves, and ends in the next opportunity
        assert_eq!(departures(&mut split, &[(0, 1014), (0, 1014), (0, 1014)]), [2, 5, 5]);
    }

    #[test]
    fn what_is_not_used_is_lost() {
        let mut line = line("2\n5\n9\n");
        assert_eq!(departures(&mut line, &[(0, 514), (3, FULL), (6, FULL)]), [2, 5, 9]);
        // at the instant of an opportunity it is too late for it, whatever room it has
        assert_eq!(departures(&mut line, &[(11, 514), (14, 514), (14, 514)]), [14, 18, 18]);
    }

    #[test]
    fn the_trace_begins_again_when_it_ends() {
        let mut line = line("0\n4\n10\n");
        assert_eq!(departures(&mut line, &[(0, FULL); 5]), [4, 10, 10, 14, 20]);
        // after years it is still in step
        let years = 10_000_000_000;
        let late = [(years + 5, FULL), (years + 5, FULL), (years + 5, FULL)];
        assert_eq!(departures(&mut line, &late), [years + 10, years + 10, years + 14]);
    }

    #[test]
    fn a_trace_begins_when_it_is_told_to() {
        let trace = Trace::parse(Path::new("/"), "a.trace", b"3\n").expect("a trace");
        let mut line = TraceLine::new(trace, 60 * MS);
        assert_eq!(departures(&mut line, &[(0, FULL), (50, FULL), (80, FULL)]), [63, 66, 81]);
    }

    proptest! {
        #[test]
        fn delivers_what_a_walk_through_all_opportunities_delivers(
            gaps_ms in proptest::collection::vec(0u32..20, 1..12),
            frames in proptest::collection::vec((0u64..40, 60u64..4000), 1..60),
        ) {
            let mut at_ms = 0u32;
            let times: Vec<u32> = gaps_ms.into_iter().map(|gap| { at_ms += gap; at_ms }).collect();
            prop_assume!(at_ms > 0);
            let text: String = times.iter().map(|ms| format!("{ms}\n")).collect();
            let mut arrived_ms = 0u64;
            let frames: Vec<(u64, u64)> = frames.into_iter().map(|(gap, len)| { arrived_ms += gap; (arrived_ms, len) }).collect();
            let found = departures(&mut line(&text), &frames);
            // every opportunity takes from the front of a list, as mm-link has it
            let mut waiting: std::collections::VecDeque<(u64, u64)> = frames.iter().map(|&(at, len)| (at, len - 14)).collect();
            let mut walked = Vec::new();
            let period = u64::from(at_ms);
            let all = (0u64..).flat_map(|cycle| times.iter().map(move |&ms| cycle * period + u64::from(ms)));
            for at in all {
                let mut room = 1500u64;
                while room > 0 && let Some((_, left)) = waiting.front_mut().filter(|(arrived, _)| *arrived < at) {
                    let sent = room.min(*left);
                    (room, *left) = (room - sent, *left - sent);
                    if *left == 0 {
                        waiting.pop_front();
                        walked.push(at);
                    }
                }
                if waiting.is_empty() {
                    break;
                }
            }
            prop_assert_eq!(found, walked);
        }
    }
}
