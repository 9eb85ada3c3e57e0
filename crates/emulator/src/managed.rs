//! A bottleneck whose queue is managed actively: CoDel (RFC 8289), alone or for each of many flows
//! that take turns (FQ-CoDel, RFC 8290). Without I/O and without a clock, as [`crate::model`].
//!
//! What such a queue does with a frame is known when the frame leaves it, not when it arrives:
//! [`ManagedQueue::push`] takes frames, [`ManagedQueue::pop`] what the line has sent or dropped
//! until a time.

use std::collections::VecDeque;

use headroom_link_spec::{Aqm, LinkDirection, Queue};

use crate::line::Line;

/// Parameters of both, as Linux has them and the RFCs recommend.
const TARGET_NS: u64 = 5_000_000;
const INTERVAL_NS: u64 = 100_000_000;
/// Bytes that a flow sends in its turn, and below which a queue is no standing one: a full frame.
const QUANTUM: i64 = 1514;
const FLOWS: usize = 1024;

/// What became of a frame.
#[derive(Debug, PartialEq, Eq)]
pub enum Left<T> {
    /// It was dropped.
    Dropped(T),
    /// Its last bit left.
    Sent {
        /// The frame.
        item: T,
        /// When, nanoseconds.
        at_ns: u64,
        /// Whether the sender is to learn of congestion by ECN (RFC 3168).
        marked: bool,
    },
}

/// A frame that waits.
#[derive(Debug)]
struct Waiting<T> {
    arrived_ns: u64,
    len: u64,
    /// Whether a mark can take the place of its loss.
    takes_mark: bool,
    item: T,
}

/// The frames of one flow, the oldest first.
#[derive(Debug)]
struct Flow<T> {
    waiting: VecDeque<Waiting<T>>,
    bytes: u64,
    /// Bytes that it may still send in its turn.
    credit: i64,
    /// Whether it is in one of the lists.
    listed: bool,
    codel: Codel,
}

impl<T> Default for Flow<T> {
    fn default() -> Self {
        let codel = Codel::default();
        Self { waiting: VecDeque::new(), bytes: 0, credit: 0, listed: false, codel }
    }
}

/// The queue and the line behind it.
#[derive(Debug)]
pub struct ManagedQueue<T> {
    line: Line,
    limit: Queue,
    flows: Vec<Flow<T>>,
    /// Flows that have just begun to wait, and all others that wait: indices.
    new: VecDeque<usize>,
    old: VecDeque<usize>,
    frames: usize,
    bytes: u64,
    last_arrival_ns: u64,
}

impl<T> ManagedQueue<T> {
    /// Makes the empty one of a direction; none: its queue is not managed, or it has none.
    pub fn of(direction: &LinkDirection) -> Option<Self> {
        let (line, aqm) = Line::of(direction).zip(direction.aqm)?;
        Some(Self::new(line, direction.queue(), aqm))
    }

    fn new(line: Line, limit: Queue, aqm: Aqm) -> Self {
        let flows = match aqm {
            Aqm::Codel => 1,
            Aqm::FqCodel => FLOWS,
        };
        Self {
            line,
            limit,
            flows: std::iter::repeat_with(Flow::default).take(flows).collect(),
            new: VecDeque::new(),
            old: VecDeque::new(),
            frames: 0,
            bytes: 0,
            last_arrival_ns: 0,
        }
    }

    /// Adds a frame of `len` bytes (Ethernet header counted, checksum not) of the flow with this
    /// hash, and returns the frame that was dropped because the queue is full, if one was: the
    /// oldest of the flow that has the most bytes. `takes_mark` says that its sender knows ECN.
    pub fn push(
        &mut self,
        arrived_ns: u64,
        len: usize,
        flow: u64,
        takes_mark: bool,
        item: T,
    ) -> Option<T> {
        // a clock that goes backwards counts as standing still
        self.last_arrival_ns = self.last_arrival_ns.max(arrived_ns);
        let (arrived_ns, len) = (self.last_arrival_ns, len as u64);
        let index = (flow % self.flows.len() as u64) as usize;
        let flow = &mut self.flows[index];
        flow.waiting.push_back(Waiting { arrived_ns, len, takes_mark, item });
        flow.bytes += len;
        (self.frames, self.bytes) = (self.frames + 1, self.bytes + len);
        if !flow.listed {
            (flow.listed, flow.credit) = (true, QUANTUM);
            self.new.push_back(index);
        }
        // of what was popped until now, what is on the line has left the queue
        let is_full = match self.limit {
            Queue::Packets(packets) => self.frames > packets as usize,
            Queue::Bytes(bytes) => self.bytes > bytes,
        };
        is_full.then(|| self.drop_of_the_largest()).flatten()
    }

    fn drop_of_the_largest(&mut self) -> Option<T> {
        let largest = (0..self.flows.len()).max_by_key(|&index| self.flows[index].bytes)?;
        self.take(largest).map(|frame| frame.item)
    }

    /// Returns the next frame that has left until now.
    pub fn pop(&mut self, now_ns: u64) -> Option<Left<T>> {
        loop {
            if self.line.free_ns() > now_ns {
                return None;
            }
            let (index, is_new) = match (self.new.front(), self.old.front()) {
                (Some(&index), _) => (index, true),
                (None, Some(&index)) => (index, false),
                (None, None) => return None,
            };
            let flow = &mut self.flows[index];
            if flow.credit <= 0 {
                flow.credit += QUANTUM;
                self.leave(is_new);
                self.old.push_back(index);
                continue;
            }
            let Some(arrived_ns) = flow.waiting.front().map(|frame| frame.arrived_ns) else {
                self.flows[index].codel.is_idle();
                self.leave(is_new);
                // a flow that sends little would be a new one each time, and starve the old
                if is_new {
                    self.old.push_back(index);
                } else {
                    self.flows[index].listed = false;
                }
                continue;
            };
            let begun_ns = self.line.begin_ns(arrived_ns);
            // it came after the last opportunity of a trace until now
            if begun_ns > now_ns.max(arrived_ns) {
                return None;
            }
            let frame = self.take(index)?;
            let waited_ns = begun_ns - arrived_ns;
            let flow = &mut self.flows[index];
            let is_too_old = flow.codel.drops(begun_ns, waited_ns, flow.bytes);
            if is_too_old && !frame.takes_mark {
                return Some(Left::Dropped(frame.item));
            }
            flow.credit -= frame.len as i64;
            let at_ns = self.line.send(begun_ns, frame.len);
            return Some(Left::Sent { item: frame.item, at_ns, marked: is_too_old });
        }
    }

    /// When the next frame leaves the queue; none: it is empty.
    pub fn next_ns(&self) -> Option<u64> {
        (self.frames > 0).then(|| self.line.free_ns())
    }

    fn take(&mut self, index: usize) -> Option<Waiting<T>> {
        let flow = &mut self.flows[index];
        let frame = flow.waiting.pop_front()?;
        flow.bytes -= frame.len;
        (self.frames, self.bytes) = (self.frames - 1, self.bytes - frame.len);
        Some(frame)
    }

    /// Removes the first flow of a list.
    fn leave(&mut self, is_new: bool) {
        let list = if is_new { &mut self.new } else { &mut self.old };
        list.pop_front();
    }
}

/// Controlled delay (RFC 8289, section 5): drops when frames have waited longer than 5 ms for
/// 100 ms, and from then on the more often the longer it lasts.
#[derive(Debug, Default)]
struct Codel {
    /// When the wait will have been too long for an interval; 0: it is not too long.
    first_above_ns: u64,
    dropping: bool,
    next_drop_ns: u64,
    count: u32,
    count_before: u32,
}

impl Codel {
    /// Whether the frame that leaves now is dropped. `bytes` wait behind it.
    fn drops(&mut self, now_ns: u64, waited_ns: u64, bytes: u64) -> bool {
        let is_above = self.is_above(now_ns, waited_ns, bytes);
        if self.dropping {
            self.dropping = is_above;
            if !is_above || now_ns < self.next_drop_ns {
                return false;
            }
            self.count = self.count.saturating_add(1);
            self.next_drop_ns = after(self.next_drop_ns, self.count);
        } else if is_above {
            // it begins at the rate that it had when the last time is not long ago
            let delta = self.count.saturating_sub(self.count_before);
            let is_recent = now_ns.saturating_sub(self.next_drop_ns) < 16 * INTERVAL_NS;
            self.count = if delta > 1 && is_recent { delta } else { 1 };
            self.count_before = self.count;
            self.dropping = true;
            self.next_drop_ns = after(now_ns, self.count);
        } else {
            return false;
        }
        true
    }

    /// The queue is empty.
    fn is_idle(&mut self) {
        (self.first_above_ns, self.dropping) = (0, false);
    }

    fn is_above(&mut self, now_ns: u64, waited_ns: u64, bytes: u64) -> bool {
        if waited_ns < TARGET_NS || bytes <= QUANTUM as u64 {
            self.first_above_ns = 0;
            return false;
        }
        if self.first_above_ns == 0 {
            self.first_above_ns = now_ns + INTERVAL_NS;
            return false;
        }
        now_ns >= self.first_above_ns
    }
}

/// The time of the next drop: the interval over the root of the number of drops.
fn after(ns: u64, count: u32) -> u64 {
    ns + (INTERVAL_NS as f64 / f64::from(count).sqrt()) as u64
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use headroom_link_spec::Trace;

    use super::*;
    use crate::line::{CLOCK_START_NS, RateLine};

    const MS: u64 = 1_000_000;
    /// 1 Mbit/s: a full frame takes 12.304 ms.
    const RATE: u64 = 1_000_000;

    fn line(rate_bps: u64) -> Line {
        Line::Rate(RateLine::new(rate_bps))
    }

    /// Flow, arrival, end of sending, mark.
    type Sent = (u64, u64, u64, bool);

    /// Offers frames of flows at a steady pace for some seconds, and returns what left, and
    /// the flows of frames that were dropped.
    fn run(
        aqm: Aqm,
        rate_bps: u64,
        seconds: u64,
        flows: &[(u64, u64, bool)],
    ) -> (Vec<Sent>, Vec<u64>) {
        let mut queue = ManagedQueue::new(line(rate_bps), Queue::Packets(10_240), aqm);
        let (mut sent, mut dropped) = (Vec::new(), Vec::new());
        for now in (0..seconds * 1000 * MS).step_by(MS as usize / 4) {
            for &(flow, every_ns, takes_mark) in flows {
                if now % every_ns == 0 {
                    dropped
                        .extend(queue.push(now, 1514, flow, takes_mark, (flow, now)).map(|f| f.0));
                }
            }
            while let Some(left) = queue.pop(now) {
                match left {
                    Left::Dropped((flow, _)) => dropped.push(flow),
                    Left::Sent { item: (flow, arrived), at_ns, marked } => {
                        sent.push((flow, arrived, at_ns, marked));
                    }
                }
            }
        }
        (sent, dropped)
    }

    #[test]
    fn a_line_that_keeps_up_drops_nothing() {
        for aqm in [Aqm::Codel, Aqm::FqCodel] {
            let (sent, dropped) = run(aqm, 10 * RATE, 3, &[(1, 2 * MS, false)]);
            assert!(dropped.is_empty() && sent.len() == 1500);
            assert!(sent.iter().all(|(_, arrived, at, _)| at - arrived == 1_230_400));
        }
    }

    #[test]
    fn drops_begin_after_an_interval_and_become_more_frequent() {
        // a quarter more than passes
        let (_, dropped) = run(Aqm::Codel, 10 * RATE, 1, &[(1, MS, false)]);
        let (_, later) = run(Aqm::Codel, 10 * RATE, 4, &[(1, MS, false)]);
        assert!(!dropped.is_empty() && dropped.len() < 40, "{}", dropped.len());
        assert!(later.len() > 10 * dropped.len(), "{} then {}", dropped.len(), later.len());
    }

    #[test]
    fn the_control_law_is_that_of_the_rfc() {
        let mut codel = Codel::default();
        let long = 50 * MS;
        let drops: Vec<u64> = (0..1000).filter(|&ms| codel.drops(ms * MS, long, 100_000)).collect();
        // 100 ms after the first frame that waited too long, then 100/√1, 100/√2, 100/√3 …
        assert_eq!(drops[..6], [100, 200, 271, 329, 379, 424]);
        assert!(!codel.drops(1000 * MS, 4 * MS, 100_000) && !codel.dropping, "it waited less");
        let mut alone = Codel::default();
        assert!((0..1000).all(|ms| !alone.drops(ms * MS, long, 1514)), "one frame is no queue");
    }

    #[test]
    fn a_sparse_flow_does_not_wait_behind_a_full_one() {
        let flows = [(1, MS, false), (2, 50 * MS, false)];
        let longest = |aqm| {
            let (sent, _) = run(aqm, 10 * RATE, 3, &flows);
            sent.iter().filter(|one| one.0 == 2).map(|(_, arrived, at, _)| at - arrived).max()
        };
        // its own time on the line and one frame of the other
        assert!(longest(Aqm::FqCodel) <= Some(4 * MS), "{:?}", longest(Aqm::FqCodel));
        assert!(longest(Aqm::Codel) > Some(20 * MS), "{:?}", longest(Aqm::Codel));
    }

    #[test]
    fn flows_that_want_more_than_there_is_get_the_same() {
        let (sent, _) = run(Aqm::FqCodel, 10 * RATE, 4, &[(1, MS, false), (2, MS / 2, false)]);
        let of = |flow| sent.iter().filter(|one| one.0 == flow).count() as f64;
        assert!((0.95..1.05).contains(&(of(1) / of(2))), "{} {}", of(1), of(2));
    }

    #[test]
    fn senders_that_know_ecn_are_told_without_a_loss() {
        let (sent, dropped) = run(Aqm::Codel, 10 * RATE, 3, &[(1, MS, true)]);
        assert!(dropped.is_empty() && sent.iter().any(|(.., marked)| *marked));
    }

    /// A managed queue before a trace.
    fn traced(text: &str, aqm: Aqm) -> ManagedQueue<u32> {
        let trace = Trace::parse(Path::new("/"), "a.trace", text.as_bytes()).expect("a trace");
        let direction =
            LinkDirection { trace: Some(trace), aqm: Some(aqm), ..LinkDirection::default() };
        ManagedQueue::of(&direction).expect("a managed queue")
    }

    /// What has left until a millisecond of the trace's clock, and when.
    fn left_until(queue: &mut ManagedQueue<u32>, ms: u64) -> Vec<(u32, u64)> {
        let left = std::iter::from_fn(|| queue.pop(CLOCK_START_NS + ms * MS));
        let sent = left.map(|left| match left {
            Left::Sent { item, at_ns, .. } => (item, (at_ns - CLOCK_START_NS) / MS),
            Left::Dropped(item) => panic!("{item} was dropped"),
        });
        sent.collect()
    }

    #[test]
    fn frames_leave_a_managed_queue_at_the_opportunities_of_a_trace() {
        for aqm in [Aqm::Codel, Aqm::FqCodel] {
            let mut queue = traced("4\n4\n10\n", aqm);
            for item in 0..4 {
                let arrived_ns = CLOCK_START_NS + MS;
                assert_eq!(queue.push(arrived_ns, 1514, item.into(), false, item), None);
            }
            assert!(left_until(&mut queue, 3).is_empty());
            assert_eq!(queue.next_ns(), Some(CLOCK_START_NS + 4 * MS));
            assert_eq!(left_until(&mut queue, 9), [(0, 4), (1, 4)]);
            assert_eq!(left_until(&mut queue, 100), [(2, 10), (3, 14)]);
            assert_eq!(queue.next_ns(), None);
            // what nobody waited for is lost, and the next frame waits for what comes after it
            assert_eq!(queue.push(CLOCK_START_NS + 105 * MS, 1514, 1, false, 9), None);
            assert!(left_until(&mut queue, 106).is_empty());
            assert_eq!(queue.next_ns(), Some(CLOCK_START_NS + 110 * MS));
            assert_eq!(left_until(&mut queue, 110), [(9, 110)]);
        }
    }

    #[test]
    fn a_full_queue_drops_of_the_largest_flow() {
        let mut queue = ManagedQueue::new(line(RATE), Queue::Packets(4), Aqm::FqCodel);
        for item in 0..4 {
            assert_eq!(queue.push(0, 1514, 7, false, item), None);
        }
        assert_eq!(queue.push(0, 100, 8, false, 4), Some(0), "the oldest of flow 7");
        let mut bytes = ManagedQueue::new(line(RATE), Queue::Bytes(3000), Aqm::Codel);
        assert_eq!(bytes.push(0, 1514, 1, false, 0), None);
        assert_eq!(bytes.push(0, 1514, 1, false, 1), Some(0));
    }
}
