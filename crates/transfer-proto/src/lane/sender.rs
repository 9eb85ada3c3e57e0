//! The sending half: what to send next, when, and how to react to feedback.

use std::time::Duration;

use super::feedback::{Feedback, Ranges};
use super::header::OVERHEAD;
use super::limits::MIN_MTU;
use super::mtu::MtuSearch;
use super::pacer::Pacer;
use super::payload::DATA_HEAD;
use super::queue::{Piece, Queue};
use super::rtt::Rtt;
use super::sent::{Outcome, PacketResult, SentFrame, SentPackets};
use crate::rate::{Controller, RateConfig, Report};

/// Feedback is requested this often in a round trip,
const ASKS_PER_RTT: u32 = 8;
/// this often when a quarter of one has passed without any: losses of feedback may come in bursts,
/// and the window must not close meanwhile
/// (`bursts_that_take_all_feedback_of_a_round_trip_do_not_silence_a_transfer`),
const OVERDUE_ASKS_PER_RTT: u32 = 64;
/// but not more often than this, while the window is open: each costs both
const ASK_INTERVAL: Duration = Duration::from_micros(400);
/// and after this many packets at the latest.
const MAX_UNASKED: u32 = 256;
/// Until the first feedback a packet asks after so many: the spread of the first ten shows the
/// capacity if feedback about two of them arrives that are six apart (`MIN_SPREAD` of `sent.rs`),
/// and so one of four may be lost. Without it startup doubles its way up, for seven round trips at
/// 100 Mbit/s and 150 ms.
const FIRST_UNASKED: u32 = 2;
/// Timeouts without feedback after which only probes are sent (RFC 8085, section 3.1.3, asks
/// for a circuit breaker).
const SILENT_TIMEOUTS: u32 = 3;
/// Until then a probe follows so many times in a timeout: losses of feedback may come in bursts.
/// Ours: of bursts of eight on average, ten probes that can be answered in time outlast three of
/// four.
const PROBES_PER_TIMEOUT: u32 = 8;
/// What the further ones may use of the rate.
const PROBE_SHARE: f64 = 1.0 / 16.0;
const MAX_BACKOFF: u32 = 6;
/// The longest interval between probes of a silent path, unless one timeout is longer: how late
/// the end of an outage is noticed. A packet per second is no load.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);
/// With nothing new to send, what is in flight is sent again where packets are lost at random, at
/// least this share of them: then the last losses cost no further round trip. Ours: a loss in ten
/// thousand packets, which is more than a path without random loss shows.
/// `the_last_losses_cost_no_further_round_trip`.
const REPEAT_LOSS: f64 = 1e-4;
/// Bytes that are sent again are at most this part of what the lane has sent, and so many packets.
/// Ours: what helps is half of what is in flight at the end, one part in 60 of 60 MB at 50 Mbit/s
/// and 300 ms.
const REPEAT_SHARE: u64 = 32;
const REPEAT_PACKETS: u64 = 10;
/// Packets that are sent again, whatever the loss, after a timeout: the last may have been lost,
/// of which nothing later tells (RFC 8985, section 7: tail loss probe).
const REPEATS_OF_TIMEOUT: u32 = 1;
/// The length of a probe: every path carries it, and from a new address it also allows the peer
/// to answer with a challenge at once (RFC 9000, section 8).
const PROBE: usize = MIN_MTU;

/// Sends data, and probes if there is no answer.
#[derive(Debug)]
pub(crate) struct Sender {
    queue: Queue,
    sent: SentPackets,
    rtt: Rtt,
    rate: Controller,
    pacer: Pacer,
    mtu: MtuSearch,
    asked_at: Option<Duration>,
    unasked: u32,
    /// When the last feedback arrived, or the first of what is in flight can.
    answered_at: Duration,
    /// When the awaited answer is overdue.
    overdue_at: Option<Duration>,
    timeouts: u32,
    probe_due: bool,
    probed_at: Duration,
    congested: u32,
    /// Packets that a timeout allows to send again.
    timeout_repeats: u32,
    /// Bytes of packets with data, and of those among them that were sent again before they were
    /// known to be lost.
    data: u64,
    repeated: u64,
    lost: u64,
    settled: Vec<u32>,
    newest_feedback: Option<(u64, u64)>,
}

/// What to send next.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Plan {
    /// A probe of this length, sealed.
    Probe(usize),
    /// Data packets.
    Data {
        /// Bytes of each packet, sealed.
        len: usize,
        /// Packets that rate and window allow.
        packets: usize,
    },
}

impl Sender {
    pub(crate) fn new(rate: RateConfig, mtu: MtuSearch, rtt: Option<Duration>) -> Self {
        Self {
            queue: Queue::default(),
            sent: SentPackets::default(),
            rtt: rtt.map_or_else(Rtt::default, Rtt::guess),
            rate: Controller::new(rate, mtu.current()),
            pacer: Pacer::default(),
            mtu,
            asked_at: None,
            unasked: 0,
            answered_at: Duration::ZERO,
            overdue_at: None,
            timeouts: 0,
            probe_due: false,
            probed_at: Duration::ZERO,
            congested: 0,
            timeout_repeats: 0,
            data: 0,
            repeated: 0,
            lost: 0,
            settled: Vec::new(),
            newest_feedback: None,
        }
    }

    pub(crate) fn queue(&mut self) -> &mut Queue {
        &mut self.queue
    }

    /// Takes back everything that is not acknowledged. A silent path is still probed.
    pub(crate) fn reclaim(&mut self) -> Vec<Piece> {
        self.lose_in_flight();
        if !self.silent() {
            self.overdue_at = None;
        }
        self.queue.drain()
    }

    /// Declares everything in flight lost.
    fn lose_in_flight(&mut self) {
        self.asked_at = None;
        let Self { sent, queue, mtu, settled, .. } = self;
        sent.lose_all(|result| apply_result(queue, mtu, settled, result));
    }

    pub(crate) fn waiting(&self) -> u64 {
        self.queue.waiting()
    }

    pub(crate) fn rtt(&self) -> &Rtt {
        &self.rtt
    }

    pub(crate) fn mtu(&self) -> usize {
        self.mtu.current()
    }

    /// Returns the sending rate in bytes per second.
    pub(crate) fn rate(&self) -> f64 {
        self.rate.rate()
    }

    /// Describes the rate control's state, for figures.
    #[cfg(test)]
    pub(crate) fn describe(&self) -> String {
        format!("{} in flight {} lost {}", self.rate.describe(), self.in_flight(), self.lost)
    }

    pub(crate) fn in_flight(&self) -> u64 {
        self.sent.in_flight()
    }

    /// Returns the bytes of lost packets since the beginning.
    pub(crate) fn lost(&self) -> u64 {
        self.lost
    }

    /// Returns the bytes of packets that were sent again before they were known to be lost.
    pub(crate) fn repeated(&self) -> u64 {
        self.repeated
    }

    /// Whether only probes are sent, because the peer does not answer.
    pub(crate) fn silent(&self) -> bool {
        self.timeouts >= SILENT_TIMEOUTS
    }

    /// Returns a file that has arrived completely, once.
    pub(crate) fn settled(&mut self) -> Option<u32> {
        self.settled.pop()
    }

    /// Handles a validated path.
    pub(crate) fn validated(&mut self, now: Duration, rtt: Duration) {
        self.rtt.sample(rtt);
        self.rate.first_rtt(now, rtt);
    }

    /// Handles a peer that moved to another address and so answers again. `elsewhere`: the path is
    /// another, of which only the round-trip time is known.
    pub(crate) fn moved(&mut self, now: Duration, elsewhere: bool, rtt: Duration) {
        // it was sent to the old address, which is no sign of congestion
        self.lose_in_flight();
        self.overdue_at = None;
        (self.timeouts, self.probe_due) = (0, false);
        if elsewhere {
            self.rtt = Rtt::default();
            self.mtu.restart();
            self.rate.restart();
            self.rate.set_mss(self.mtu.current());
        }
        self.validated(now, rtt);
    }

    /// Whether an answer is awaited: without it a probe follows.
    pub(crate) fn awaits_answer(&self) -> bool {
        self.probe_due || self.overdue_at.is_some()
    }

    /// Handles a packet from a silent peer: it may answer again, so it is probed at once, but not
    /// more than once per timeout.
    pub(crate) fn peer_is_there(&mut self, now: Duration) {
        if self.silent() && now >= self.probed_at + self.rtt.timeout() {
            self.probe_due = true;
        }
    }

    /// Sends a probe.
    pub(crate) fn probe(&mut self) {
        self.probe_due = true;
    }

    /// Returns what to send now.
    pub(crate) fn plan(&mut self, now: Duration) -> Option<Plan> {
        if self.probe_due {
            return Some(Plan::Probe(PROBE));
        }
        if self.silent() || self.sent.full() {
            return None;
        }
        // the path's MTU matters only while there is data to send
        if self.queue.outstanding()
            && self.rtt.smoothed().is_some()
            && self.sent.delivered() > 0
            && let Some(len) = self.mtu.probe(now)
        {
            return Some(Plan::Probe(len));
        }
        let len = self.mtu.current();
        if now < self.pacer.next() {
            return None;
        }
        if self.queue.waiting() == 0 && self.may_repeat() {
            // what was looked at is not looked at again
            let next = self.next_repeat();
            self.sent.look_below(next.map_or(0, |(of, _)| of + 1));
        }
        if !self.has_more() {
            return None;
        }
        let left = self.rate.window().checked_sub(self.sent.in_flight())?;
        let packets =
            (left as usize / len).min((Pacer::train(self.rate.rate()) as usize / len).max(1));
        (packets > 0).then_some(Plan::Data { len, packets })
    }

    /// Takes what the next packet of a train carries, which is at most `len` bytes long.
    pub(crate) fn take(&mut self, len: usize) -> Option<SentFrame> {
        if let Some(piece) = self.queue.take((len - OVERHEAD - DATA_HEAD) as u64) {
            return Some(SentFrame::Data(piece));
        }
        let (of, piece) = self.next_repeat()?;
        self.sent.look_below(of);
        Some(SentFrame::Repeat { piece, of })
    }

    /// Whether there is anything to send: data that waits, or data in flight to send again.
    pub(crate) fn has_more(&self) -> bool {
        self.queue.waiting() > 0 || self.next_repeat().is_some()
    }

    /// Whether data in flight may be sent again, if there is nothing else to send.
    fn may_repeat(&self) -> bool {
        let packet = self.mtu.current() as u64;
        let most = self.data / REPEAT_SHARE + REPEAT_PACKETS * packet;
        self.queue.outstanding()
            && self.repeated + packet <= most
            && (self.timeout_repeats > 0 || self.rate.random_loss() >= REPEAT_LOSS)
    }

    /// Returns the packet whose data to send again next: the newest first. An older one will be
    /// known to be lost, or not, before it is its turn: its feedback is nearer.
    fn next_repeat(&self) -> Option<(u64, Piece)> {
        if !self.may_repeat() {
            return None;
        }
        let mtu = self.mtu.current();
        self.sent.newest_sole(|piece, len| len <= mtu && self.queue.expects(piece.file))
    }

    /// Whether the next data packet asks for feedback. `is_first`: it is the first of its train.
    /// `left`: the packets that follow in its train, at most.
    ///
    /// The first asks: a queue that overflows drops the last packets of a train, and an overflow
    /// must not silence the feedback that reports it. It also finds the queue without its own
    /// train.
    pub(crate) fn asks(&mut self, now: Duration, is_first: bool, left: usize) -> bool {
        let rtt = self.rtt.get();
        // startup sends in flights: there is none between them
        let is_overdue = !self.rate.starts_up() && now >= self.answered_at + rtt / 4;
        let asks = if is_overdue { OVERDUE_ASKS_PER_RTT } else { ASKS_PER_RTT };
        let interval = (rtt / asks).max(ASK_INTERVAL);
        let is_time = self.asked_at.is_some_and(|asked_at| now >= asked_at + interval);
        // nothing may follow the train that could ask; neither the packet itself nor what is left
        // of its train is counted yet
        let ends = |left: usize| {
            let mtu = self.mtu.current() as u64;
            let after = self.sent.in_flight() + (left as u64 + 2) * mtu;
            let follows = self.queue.waiting() > left as u64 * mtu || self.next_repeat().is_some();
            !follows || after > self.rate.window()
        };
        let most = if self.newest_feedback.is_none() { FIRST_UNASKED } else { MAX_UNASKED };
        // the first feedback of all is where the next measures from
        let due = self.unasked >= most
            || self.asked_at.is_none()
            || (is_first && is_time && !ends(left))
            || (left == 0 && (is_time || ends(0)));
        if due {
            self.asked_at = Some(now);
            self.unasked = 0;
        } else {
            self.unasked += 1;
        }
        due
    }

    /// Notes that a packet was sent.
    pub(crate) fn sent(&mut self, now: Duration, number: u64, frame: SentFrame, len: usize) {
        if self.in_flight() == 0 {
            self.answered_at = now + self.rtt.get();
        }
        self.sent.push(now, number, frame, len);
        match frame {
            SentFrame::Nothing => return,
            SentFrame::Probe => {
                self.probe_due = false;
                self.probed_at = now;
            }
            SentFrame::Data(_) | SentFrame::Repeat { .. } => {
                self.data += len as u64;
                if matches!(frame, SentFrame::Repeat { .. }) {
                    self.repeated += len as u64;
                    self.timeout_repeats = self.timeout_repeats.saturating_sub(1);
                }
                self.pacer.sent(now, len as u64, self.rate.rate());
                // with a full window the source is not the limit
                let is_open =
                    self.sent.in_flight() + self.mtu.current() as u64 <= self.rate.window();
                if self.queue.waiting() == 0 && is_open {
                    self.sent.set_limited();
                }
            }
        }
        // measured from the last answer, not from the last packet
        if self.overdue_at.is_none() {
            self.await_answer(now);
        }
    }

    /// Returns when an answer, or the time for it, is overdue.
    pub(crate) fn overdue(&self) -> Option<Duration> {
        [self.overdue_at, self.probe_again_at(), self.sent.loss_at()].into_iter().flatten().min()
    }

    /// Returns the next deadline.
    pub(crate) fn timeout(&self, now: Duration) -> Option<Duration> {
        let mut at = self.overdue();
        let window = self.rate.window();
        let open = window >= self.sent.in_flight() + self.mtu.current() as u64;
        if self.probe_due {
            at = Some(now);
        } else if open && !self.silent() && !self.sent.full() && self.has_more() {
            at = Some(at.map_or(self.pacer.next(), |at| at.min(self.pacer.next())));
        }
        at
    }

    /// Handles the passing of time.
    pub(crate) fn handle_timeout(&mut self, now: Duration) {
        if self.sent.loss_at().is_some_and(|at| at <= now) {
            let Self { sent, rtt, queue, mtu, settled, .. } = self;
            let outcome = sent.expire(now, rtt, |result| apply_result(queue, mtu, settled, result));
            self.report(now, &outcome, false);
        }
        if self.probe_again_at().is_some_and(|at| at <= now) {
            self.probe_due = true;
        }
        if self.overdue_at.is_some_and(|at| at <= now) {
            self.timeouts += 1;
            self.probe_due = true;
            self.timeout_repeats = REPEATS_OF_TIMEOUT;
            if self.timeouts == SILENT_TIMEOUTS {
                self.lose_in_flight();
                self.rate.fall_silent();
                self.rate.set_mss(self.mtu.current());
            }
            self.await_answer(now);
        }
    }

    /// Handles feedback. Feedback about packets that were never sent is ignored.
    pub(crate) fn feedback(&mut self, now: Duration, next: u64, feedback: Feedback<Ranges<'_>>) {
        let largest = feedback.largest.get();
        // feedback may be reordered; an older one says nothing new
        let order = (largest, feedback.arrived_us.saturating_add(u64::from(feedback.age_us)));
        if largest >= next || self.newest_feedback.is_some_and(|newest| order < newest) {
            return;
        }
        self.newest_feedback = Some(order);
        self.answered_at = now;
        self.timeouts = 0;
        self.timeout_repeats = 0;
        self.probe_due = false;
        let age = Duration::from_micros(u64::from(feedback.age_us));
        let Self { sent, rtt, queue, mtu, settled, .. } = self;
        let outcome = sent.acknowledge(
            now,
            (largest, feedback.arrived_us, age),
            feedback.ranges,
            rtt,
            |result| apply_result(queue, mtu, settled, result),
        );
        if let Some(sample) = outcome.rtt {
            self.rtt.sample(sample);
        }
        if outcome.longest > 0 && outcome.longest <= MIN_MTU {
            self.mtu.short_arrived();
        }
        self.rate.set_mss(self.mtu.current());
        let congested = feedback.congested != self.congested;
        self.congested = feedback.congested;
        self.report(now, &outcome, congested);
        self.overdue_at = None;
        if self.sent.in_flight() > 0 {
            self.await_answer(now);
        }
    }

    fn report(&mut self, now: Duration, outcome: &Outcome, congested: bool) {
        self.lost += outcome.lost;
        self.rate.report(
            now,
            &Report {
                acked: outcome.acked,
                lost: outcome.lost,
                lost_sent: outcome.lost_sent,
                rtt: outcome.rtt,
                rate: outcome.rate,
                limited: outcome.limited,
                capacity: outcome.capacity,
                in_flight: self.sent.in_flight(),
                delivered: self.sent.delivered(),
                delivered_before: outcome.delivered_before,
                congested,
            },
        );
    }

    /// Returns when to probe again before the path counts as silent.
    fn probe_again_at(&self) -> Option<Duration> {
        if self.timeouts == 0 || self.silent() || self.probe_due {
            return None;
        }
        let timeout = self.rtt.timeout();
        // before the first feedback there is no rate to take a share of
        let rate = Some(self.rate.rate()).filter(|rate| rate.is_finite());
        let affordable = rate.map_or(f64::INFINITY, |rate| PROBE as f64 / (rate * PROBE_SHARE));
        let interval =
            affordable.clamp((timeout / PROBES_PER_TIMEOUT).as_secs_f64(), timeout.as_secs_f64());
        Some(self.probed_at + Duration::from_secs_f64(interval))
    }

    fn await_answer(&mut self, now: Duration) {
        // before the path counts as silent, timeouts do not grow
        let backoff = self.timeouts.saturating_sub(SILENT_TIMEOUTS - 1).min(MAX_BACKOFF);
        let timeout = self.rtt.timeout();
        self.overdue_at = Some(now + (timeout * (1 << backoff)).min(timeout.max(PROBE_INTERVAL)));
    }
}

/// Applies the result of a packet to queue and MTU search.
fn apply_result(
    queue: &mut Queue,
    mtu: &mut MtuSearch,
    settled: &mut Vec<u32>,
    result: PacketResult,
) {
    match result {
        PacketResult::Arrived(frame, len, number) => {
            mtu.arrived(len, number);
            if let SentFrame::Data(piece) = frame
                && queue.arrived(piece)
            {
                settled.push(piece.file);
            }
        }
        PacketResult::Lost(SentFrame::Data(piece), len, number) => {
            mtu.data_lost(len, number);
            queue.lose(piece);
        }
        PacketResult::Lost(SentFrame::Repeat { .. }, len, number) => mtu.data_lost(len, number),
        PacketResult::Lost(SentFrame::Probe, len, _) => mtu.probe_lost(len),
        PacketResult::Lost(SentFrame::Nothing, ..) => {}
        PacketResult::Covered(piece) => {
            if queue.arrived(piece) {
                settled.push(piece.file);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn piece(number: u64) -> Piece {
        Piece { file: 1, offset: number * 1000, len: 1000 }
    }

    /// A sender with a megabyte to send, and a round trip of 80 ms.
    fn sender() -> Sender {
        let mut sender = Sender::new(RateConfig::default(), MtuSearch::new(1472), Some(80 * MS));
        sender.queue().push(Piece { file: 1, offset: 0, len: 1_000_000 });
        sender
    }

    #[test]
    fn every_third_of_the_first_packets_asks() {
        let mut sender = sender();
        let asking: Vec<u64> = (0..10)
            .filter(|&number| {
                let asks = sender.asks(Duration::ZERO, number == 0, 9 - number as usize);
                sender.sent(Duration::ZERO, number, SentFrame::Data(piece(number)), MIN_MTU);
                asks
            })
            .collect();
        assert_eq!(asking, [0, 3, 6, 9]);
    }

    #[test]
    fn the_first_packet_of_a_train_asks_and_the_last_where_nothing_may_follow() {
        let mut sender = sender();
        assert!(sender.asks(Duration::ZERO, true, 3), "the first of all");
        sender.sent(Duration::ZERO, 0, SentFrame::Data(piece(0)), MIN_MTU);
        assert!(!sender.asks(5 * MS, true, 3), "an eighth of a round trip is 10 ms");
        assert!(!sender.asks(15 * MS, false, 2), "in the middle of a train");
        assert!(sender.asks(15 * MS, true, 3));
        assert!(!sender.asks(15 * MS, false, 0), "the first has asked");
        // one packet is in flight, and the window has room for ten
        assert!(!sender.asks(30 * MS, true, 9), "the window ends with this train");
        assert!(sender.asks(30 * MS, false, 0), "so that its last packet asks");
    }
}
