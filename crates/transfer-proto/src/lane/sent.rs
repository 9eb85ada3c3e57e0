//! Packets in flight: acknowledgement, loss by number and by time (RFC 9002, section 6), and
//! the delivery rate (draft-cheng-iccrg-delivery-rate-estimation, measured with the receiver's
//! clock).

use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::time::Duration;

use super::queue::Piece;
use super::rtt::Rtt;
use crate::rate::Capacity;

/// The most packets remembered, which bounds its memory.
pub(crate) const MAX_SENT: usize = 1 << 17;
/// RFC 9002, section 6.1.1.
const REORDERING: u64 = 3;
/// The most reordering by number; beyond it only time detects loss.
const MAX_REORDERING: u64 = 1 << 14;

/// Bytes over which a bottleneck's spreading is measured: six packets of the initial window.
const MIN_SPREAD: f64 = 6.0 * 1200.0;

/// What a packet carried.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum SentFrame {
    /// Bytes of a file.
    Data(Piece),
    /// Bytes that packet `of` carries as well, sent again before its fate is known.
    Repeat { piece: Piece, of: u64 },
    /// A probe, which asks for an answer and may test an MTU.
    Probe,
    /// Something that is not acknowledged.
    Nothing,
}

impl SentFrame {
    /// Whether it carries bytes of a file.
    fn is_data(self) -> bool {
        matches!(self, Self::Data(_) | Self::Repeat { .. })
    }
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    InFlight,
    Lost,
    Settled,
}

#[derive(Clone, Copy, Debug)]
struct Packet {
    at: Duration,
    frame: SentFrame,
    len: u16,
    state: State,
    limited: bool,
    /// How many packets later its bytes were sent again; 0 if they were not.
    repeated_after: u32,
    /// The state when it was sent, for the delivery rate.
    delivered: u64,
    delivered_us: u64,
    first_at: Duration,
}

/// Packets sent and not settled, in order of their numbers, without gaps.
///
/// Bytes that were sent again are in flight in two packets. One of them, [`SentFrame::Data`], is
/// responsible for them: if it is lost, they are sent anew. When it is lost first, the other
/// becomes responsible.
#[derive(Debug, Default)]
pub(crate) struct SentPackets {
    packets: VecDeque<Packet>,
    /// The first one's number.
    base: u64,
    in_flight: u64,
    largest: Option<u64>,
    reordering: u64,
    delivered: u64,
    /// When the last acknowledged packet arrived at the peer.
    delivered_us: u64,
    /// When the first packet of the current rate sample was sent.
    first_at: Duration,
    /// Delivered bytes up to which samples are application-limited.
    limited_until: u64,
    loss_at: Option<Duration>,
    /// The first feedback about packets that were sent at once, so far.
    spread_from: Option<Arrival>,
    /// From this number on, no packet is looked at for [`SentPackets::newest_sole`].
    repeats_below: u64,
}

/// The newest packet of a feedback.
#[derive(Clone, Copy, Debug)]
struct Arrival {
    sent: Duration,
    arrived_us: u64,
    /// Bytes delivered with it.
    delivered: u64,
}

/// What one feedback changed.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// Bytes of packets that are now acknowledged,
    pub(crate) acked: u64,
    /// and of packets that are now declared lost, without MTU probes.
    pub(crate) lost: u64,
    /// The round-trip time of the newest packet.
    pub(crate) rtt: Option<Duration>,
    /// The delivery rate in bytes per second.
    pub(crate) rate: Option<f64>,
    /// Whether the rate was limited by the source, not by the path.
    pub(crate) limited: bool,
    /// The bottleneck's capacity, if it spread what arrived.
    pub(crate) capacity: Option<Capacity>,
    /// Bytes that had been delivered when the newest packet was sent.
    pub(crate) delivered_before: u64,
    /// The longest packet that arrived.
    pub(crate) longest: usize,
    /// When the last of the lost packets was sent.
    pub(crate) lost_sent: Duration,
    /// Packets declared lost that arrived after all.
    pub(crate) spurious: u64,
}

/// The result of a packet: what it carried, its length, its number.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PacketResult {
    Arrived(SentFrame, usize, u64),
    Lost(SentFrame, usize, u64),
    /// The bytes of a packet in flight have arrived in another.
    Covered(Piece),
}

impl SentPackets {
    /// Returns the bytes in flight.
    pub(crate) fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// Returns the bytes delivered since the beginning.
    pub(crate) fn delivered(&self) -> u64 {
        self.delivered
    }

    /// Whether nothing may be sent until packets are settled.
    pub(crate) fn full(&self) -> bool {
        self.packets.len() >= MAX_SENT
    }

    /// Returns when the next packet is to be declared lost.
    pub(crate) fn loss_at(&self) -> Option<Duration> {
        self.loss_at
    }

    /// Marks the current data as application-limited: the source had nothing to send.
    pub(crate) fn set_limited(&mut self) {
        self.limited_until = (self.delivered + self.in_flight).max(1);
    }

    /// Notes a sent packet; numbers have no gaps.
    pub(crate) fn push(&mut self, now: Duration, number: u64, frame: SentFrame, len: usize) {
        if self.packets.is_empty() {
            self.base = number;
        }
        if frame == SentFrame::Nothing {
            if !self.packets.is_empty() {
                self.packets.push_back(Packet {
                    at: now,
                    frame,
                    len: 0,
                    state: State::Settled,
                    limited: false,
                    repeated_after: 0,
                    delivered: 0,
                    delivered_us: 0,
                    first_at: now,
                });
            }
            return;
        }
        match frame {
            SentFrame::Data(_) => self.repeats_below = u64::MAX,
            SentFrame::Repeat { of, .. } => {
                if let Some(original) = self.in_flight_packet(of) {
                    original.repeated_after = (number - of) as u32;
                }
            }
            SentFrame::Probe | SentFrame::Nothing => {}
        }
        if self.in_flight == 0 {
            self.first_at = now;
        }
        self.in_flight += len as u64;
        self.packets.push_back(Packet {
            at: now,
            frame,
            len: len as u16,
            state: State::InFlight,
            limited: self.limited_until > 0,
            repeated_after: 0,
            delivered: self.delivered,
            delivered_us: self.delivered_us,
            first_at: self.first_at,
        });
    }

    /// Returns number and bytes of the newest packet in flight whose bytes no other packet in
    /// flight carries, and that `fits`: bytes and length.
    pub(crate) fn newest_sole(
        &self,
        mut fits: impl FnMut(Piece, usize) -> bool,
    ) -> Option<(u64, Piece)> {
        let below = self.repeats_below.saturating_sub(self.base).min(self.packets.len() as u64);
        let packets = self.packets.range(..below as usize).enumerate().rev();
        packets
            .filter(|(_, packet)| packet.state == State::InFlight && packet.repeated_after == 0)
            .find_map(|(at, packet)| {
                let SentFrame::Data(piece) = packet.frame else { return None };
                fits(piece, usize::from(packet.len)).then_some((self.base + at as u64, piece))
            })
    }

    /// Looks for [`SentPackets::newest_sole`] only below `number`, until there are others.
    pub(crate) fn look_below(&mut self, number: u64) {
        self.repeats_below = number;
    }

    /// Returns packet `number`, if it is in flight.
    fn in_flight_packet(&mut self, number: u64) -> Option<&mut Packet> {
        let at = usize::try_from(number.checked_sub(self.base)?).ok()?;
        self.packets.get_mut(at).filter(|packet| packet.state == State::InFlight)
    }

    /// Handles the ranges of a feedback: `largest` arrived `age` before it was made, at
    /// `arrived_us` by the receiver's clock.
    pub(crate) fn acknowledge(
        &mut self,
        now: Duration,
        (largest, arrived_us, age): (u64, u64, Duration),
        ranges: impl Iterator<Item = RangeInclusive<u64>>,
        rtt: &Rtt,
        mut report: impl FnMut(PacketResult),
    ) -> Outcome {
        let mut outcome = Outcome::default();
        let mut newest: Option<(u64, Packet)> = None;
        let mut repeats = Vec::new();
        for range in ranges {
            let (first, last) = (*range.start().max(&self.base), *range.end());
            if last < self.base {
                break;
            }
            let from = (first - self.base) as usize;
            let to = ((last - self.base + 1) as usize).min(self.packets.len());
            for (at, packet) in self.packets.range_mut(from.min(to)..to).enumerate() {
                match packet.state {
                    State::Settled => continue,
                    State::InFlight => self.in_flight -= u64::from(packet.len),
                    State::Lost => {
                        // it was only late: packets may be reordered by this much
                        let late = largest.saturating_sub(first + at as u64);
                        self.reordering = self.reordering.max(late + late / 4).min(MAX_REORDERING);
                        outcome.spurious += 1;
                    }
                }
                let (len, number) = (usize::from(packet.len), first + at as u64);
                outcome.acked += u64::from(packet.len);
                outcome.longest = outcome.longest.max(len);
                if packet.state == State::InFlight {
                    report(PacketResult::Arrived(packet.frame, len, number));
                    if let SentFrame::Repeat { piece, of } = packet.frame {
                        repeats.push((piece, of));
                    }
                }
                packet.state = State::Settled;
                if newest.is_none_or(|(newest, _)| newest < number) {
                    newest = Some((number, *packet));
                }
            }
        }
        for (piece, of) in repeats {
            if let Some(original) = self.in_flight_packet(of)
                && original.frame == SentFrame::Data(piece)
            {
                original.frame = SentFrame::Repeat { piece, of };
                report(PacketResult::Covered(piece));
            }
        }
        self.delivered += outcome.acked;
        if let Some((number, packet)) = newest {
            self.largest = self.largest.max(Some(number));
            outcome.delivered_before = packet.delivered;
            outcome.limited = packet.limited;
            if number == largest {
                let elapsed = now.saturating_sub(packet.at);
                outcome.rtt = Some(elapsed.saturating_sub(age.min(elapsed / 2)));
                self.rate(&packet, arrived_us, &mut outcome);
                outcome.capacity = self.capacity(packet.at, arrived_us);
            }
        }
        if self.limited_until > 0 && self.delivered > self.limited_until {
            self.limited_until = 0;
        }
        self.find_lost(now, rtt, &mut outcome, &mut report);
        outcome
    }

    fn rate(&mut self, packet: &Packet, arrived_us: u64, outcome: &mut Outcome) {
        self.first_at = packet.at;
        let (since, until) = (packet.delivered_us, arrived_us);
        self.delivered_us = arrived_us;
        // before the first feedback there is no start time
        if since == 0 {
            return;
        }
        let received = Duration::from_micros(until.saturating_sub(since));
        let interval = received.max(packet.at.saturating_sub(packet.first_at));
        if !interval.is_zero() {
            let bytes = self.delivered - packet.delivered;
            outcome.rate = Some(bytes as f64 / interval.as_secs_f64());
        }
    }

    /// Returns the capacity by what arrived since the first feedback about packets that were sent
    /// at once, if the bottleneck spread them: they were sent in half of the time.
    fn capacity(&mut self, sent: Duration, arrived_us: u64) -> Option<Capacity> {
        let arrival = Arrival { sent, arrived_us, delivered: self.delivered };
        let first = *self.spread_from.get_or_insert(arrival);
        let sending = sent.saturating_sub(first.sent);
        let took = Duration::from_micros(arrived_us.saturating_sub(first.arrived_us));
        if sending >= took / 2 {
            self.spread_from = Some(arrival);
            return None;
        }
        let bytes = (self.delivered - first.delivered) as f64;
        (bytes >= MIN_SPREAD).then_some(Capacity { bytes, took })
    }

    /// Declares packets lost whose time threshold has passed.
    pub(crate) fn expire(
        &mut self,
        now: Duration,
        rtt: &Rtt,
        mut report: impl FnMut(PacketResult),
    ) -> Outcome {
        let mut outcome = Outcome::default();
        self.find_lost(now, rtt, &mut outcome, &mut report);
        outcome
    }

    /// Declares everything in flight lost.
    pub(crate) fn lose_all(&mut self, mut report: impl FnMut(PacketResult)) {
        for (number, packet) in (self.base..).zip(&mut self.packets) {
            if packet.state == State::InFlight {
                packet.state = State::Lost;
                report(PacketResult::Lost(packet.frame, usize::from(packet.len), number));
            }
        }
        self.in_flight = 0;
        self.loss_at = None;
        self.spread_from = None;
    }

    /// Makes the repeat of lost packet `number`, if it is in flight, responsible for the bytes.
    /// Returns what the lost packet was then.
    fn hand_over(&mut self, number: u64, packet: &Packet) -> SentFrame {
        if let SentFrame::Data(piece) = packet.frame
            && let Some(repeat) = self.in_flight_packet(number + u64::from(packet.repeated_after))
            && repeat.frame == (SentFrame::Repeat { piece, of: number })
        {
            repeat.frame = SentFrame::Data(piece);
            return SentFrame::Repeat { piece, of: number };
        }
        packet.frame
    }

    fn find_lost(
        &mut self,
        now: Duration,
        rtt: &Rtt,
        outcome: &mut Outcome,
        report: &mut impl FnMut(PacketResult),
    ) {
        self.loss_at = None;
        let Some(largest) = self.largest else { return };
        let delay = rtt.loss_delay();
        let reordering = self.reordering.max(REORDERING);
        let below = (largest.saturating_sub(self.base) as usize).min(self.packets.len());
        let (mut repeated, mut repeats) = (Vec::new(), Vec::new());
        for (number, packet) in (self.base..).zip(self.packets.range_mut(..below)) {
            if packet.state != State::InFlight {
                continue;
            }
            let due = packet.at + delay;
            if largest - number >= reordering || due <= now {
                packet.state = State::Lost;
                self.in_flight -= u64::from(packet.len);
                if packet.frame.is_data() {
                    outcome.lost += u64::from(packet.len);
                    outcome.lost_sent = outcome.lost_sent.max(packet.at);
                }
                if let SentFrame::Repeat { of, .. } = packet.frame {
                    repeats.push(of);
                }
                if packet.repeated_after > 0 {
                    repeated.push((number, *packet));
                } else {
                    report(PacketResult::Lost(packet.frame, usize::from(packet.len), number));
                }
            } else if self.loss_at.is_none_or(|loss_at| due < loss_at) {
                self.loss_at = Some(due);
            }
        }
        if !(repeats.is_empty() && repeated.is_empty()) {
            self.repeats_below = u64::MAX;
        }
        for of in repeats {
            if let Some(original) = self.in_flight_packet(of) {
                original.repeated_after = 0;
            }
        }
        for (number, packet) in repeated {
            let frame = self.hand_over(number, &packet);
            report(PacketResult::Lost(frame, usize::from(packet.len), number));
        }
        // lost packets are remembered for a while: they may arrive after all
        while let Some(packet) = self.packets.front() {
            let settled = match packet.state {
                State::Settled => true,
                State::Lost => packet.at + delay * 2 < now,
                State::InFlight => false,
            };
            if !settled && self.packets.len() < MAX_SENT / 2 {
                break;
            }
            if packet.state == State::InFlight {
                break;
            }
            self.packets.pop_front();
            self.base += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const LEN: usize = 1000;

    fn rtt() -> Rtt {
        let mut rtt = Rtt::default();
        rtt.sample(80 * MS);
        rtt
    }

    fn piece(number: u64) -> Piece {
        Piece { file: 1, offset: number * 900, len: 900 }
    }

    /// Ten packets, a millisecond apart.
    fn ten() -> SentPackets {
        let mut sent = SentPackets::default();
        for number in 0..10 {
            let at = MS * number as u32;
            sent.push(at, number, SentFrame::Data(piece(number)), LEN);
        }
        sent
    }

    /// What a feedback about `ranges` changes: outcome, and numbers lost.
    fn feedback(
        sent: &mut SentPackets,
        now: Duration,
        ranges: &[RangeInclusive<u64>],
    ) -> (Outcome, Vec<u64>) {
        let mut lost = Vec::new();
        let largest = (*ranges[0].end(), 1_000_000, Duration::ZERO);
        let outcome = sent.acknowledge(now, largest, ranges.iter().cloned(), &rtt(), |result| {
            if let PacketResult::Lost(_, _, number) = result {
                lost.push(number);
            }
        });
        (outcome, lost)
    }

    #[test]
    fn a_packet_is_lost_when_the_third_after_it_arrived_or_its_time_is_over() {
        let mut sent = ten();
        let (outcome, lost) = feedback(&mut sent, 90 * MS, &[7..=7, 0..=2]);
        assert_eq!((outcome.acked, outcome.lost, lost), (4000, 2000, vec![3, 4]));
        assert_eq!(outcome.rtt, Some(83 * MS));
        assert_eq!(sent.in_flight(), 4000);
        // 5 and 6 by time: nine eighths of 80 ms after they were sent
        assert_eq!(sent.loss_at(), Some(95 * MS));
        let mut lost = Vec::new();
        let outcome = sent.expire(96 * MS, &rtt(), |result| lost.push(result));
        assert_eq!((outcome.lost, lost.len()), (2000, 2));
        // 8 and 9 may be on their way: nothing later has arrived
        assert_eq!((sent.in_flight(), sent.loss_at()), (2000, None));
    }

    #[test]
    fn reordering_that_was_seen_is_expected() {
        let mut sent = ten();
        let (_, lost) = feedback(&mut sent, 90 * MS, &[7..=7]);
        assert_eq!(lost, [0, 1, 2, 3, 4]);
        let (outcome, _) = feedback(&mut sent, 91 * MS, &[8..=8, 0..=7]);
        assert_eq!((outcome.spurious, sent.in_flight()), (5, 1000));
        for number in 10..20 {
            sent.push(91 * MS, number, SentFrame::Data(piece(number)), LEN);
        }
        let (_, lost) = feedback(&mut sent, 92 * MS, &[17..=17]);
        assert_eq!(lost, [] as [u64; 0], "the eighth after it is none too many now");
    }

    /// Sends the bytes of packet `of` again as packet `number`, at 10 ms.
    fn repeat(sent: &mut SentPackets, number: u64, of: u64) {
        sent.push(10 * MS, number, SentFrame::Repeat { piece: piece(of), of }, LEN);
    }

    /// Handles a feedback about `ranges`; returns the numbers of pieces that are now known to have
    /// arrived, and of those that must be sent anew.
    fn settled(
        sent: &mut SentPackets,
        now: Duration,
        ranges: &[RangeInclusive<u64>],
    ) -> (Vec<u64>, Vec<u64>) {
        let (mut arrived, mut lost) = (Vec::new(), Vec::new());
        let largest = (*ranges[0].end(), 1_000_000, Duration::ZERO);
        sent.acknowledge(now, largest, ranges.iter().cloned(), &rtt(), |result| match result {
            PacketResult::Arrived(SentFrame::Data(piece), ..) | PacketResult::Covered(piece) => {
                arrived.push(piece.offset / 900);
            }
            PacketResult::Lost(SentFrame::Data(piece), ..) => lost.push(piece.offset / 900),
            _ => {}
        });
        (arrived, lost)
    }

    #[test]
    fn the_newest_packet_is_repeated_first_and_each_once() {
        let mut sent = ten();
        let all = |_: Piece, _: usize| true;
        assert_eq!(sent.newest_sole(|piece, _| piece.offset < 900 * 8), Some((7, piece(7))));
        assert_eq!(sent.newest_sole(all), Some((9, piece(9))));
        repeat(&mut sent, 10, 9);
        assert_eq!(sent.newest_sole(all), Some((8, piece(8))), "10 and 9 are the same");
        sent.look_below(8);
        assert_eq!(sent.newest_sole(all), Some((7, piece(7))));
        settled(&mut sent, 90 * MS, &[0..=7]);
        assert_eq!(sent.newest_sole(all), None);
        sent.push(110 * MS, 11, SentFrame::Data(piece(11)), LEN);
        assert_eq!(sent.newest_sole(all), Some((11, piece(11))), "there is another");
        // 8 is lost, and 9 as well as 10
        assert_eq!(settled(&mut sent, 190 * MS, &[11..=11, 0..=7]), (vec![11], vec![8, 9]));
        assert_eq!(sent.newest_sole(all), None);
    }

    #[test]
    fn repeated_bytes_are_sent_anew_only_when_both_packets_are_lost() {
        // the original arrives, the repeat is lost
        let mut sent = ten();
        repeat(&mut sent, 10, 9);
        sent.push(10 * MS, 11, SentFrame::Probe, LEN);
        sent.push(10 * MS, 12, SentFrame::Probe, LEN);
        sent.push(10 * MS, 13, SentFrame::Probe, LEN);
        assert_eq!(settled(&mut sent, 90 * MS, &[13..=13, 9..=9]), (vec![9], (0..9).collect()));
        assert_eq!(sent.in_flight(), 2000, "11 and 12");

        // the original is lost, the repeat arrives
        let mut sent = ten();
        repeat(&mut sent, 10, 0);
        let (arrived, lost) = settled(&mut sent, 90 * MS, &[9..=9, 1..=8]);
        assert_eq!((arrived.len(), lost), (9, vec![]));
        assert_eq!(settled(&mut sent, 91 * MS, &[10..=10, 1..=9]), (vec![0], vec![]));
        assert_eq!(sent.in_flight(), 0);

        // both are lost, one after the other or at once
        let mut sent = ten();
        repeat(&mut sent, 10, 0);
        settled(&mut sent, 90 * MS, &[9..=9, 1..=8]);
        sent.push(90 * MS, 11, SentFrame::Data(piece(11)), LEN);
        assert_eq!(settled(&mut sent, 180 * MS, &[11..=11, 1..=9]), (vec![11], vec![0]));
        let mut sent = ten();
        repeat(&mut sent, 10, 0);
        sent.push(90 * MS, 11, SentFrame::Data(piece(11)), LEN);
        assert_eq!(settled(&mut sent, 180 * MS, &[11..=11, 1..=9]).1, [0]);

        // the repeat arrives first, and the original never
        let mut sent = ten();
        repeat(&mut sent, 10, 9);
        assert_eq!(settled(&mut sent, 90 * MS, &[10..=10, 0..=8]).0.len(), 10);
        sent.push(90 * MS, 11, SentFrame::Data(piece(11)), LEN);
        assert_eq!(settled(&mut sent, 180 * MS, &[10..=11, 0..=8]), (vec![11], vec![]));
        assert_eq!(sent.in_flight(), 0);

        // all is lost at once
        let mut sent = ten();
        repeat(&mut sent, 10, 9);
        let mut lost = Vec::new();
        sent.lose_all(|result| {
            if let PacketResult::Lost(SentFrame::Data(piece), ..) = result {
                lost.push(piece.offset / 900);
            }
        });
        assert_eq!(lost, (0..10).collect::<Vec<_>>());
    }

    #[test]
    fn a_repeated_feedback_changes_nothing() {
        let mut sent = ten();
        feedback(&mut sent, 90 * MS, &[9..=9, 0..=5]);
        let (outcome, lost) = feedback(&mut sent, 90 * MS, &[9..=9, 0..=5]);
        assert_eq!((outcome.acked, outcome.lost, outcome.rtt), (0, 0, None));
        assert!(lost.is_empty());
    }

    #[test]
    fn the_rate_is_taken_at_the_receiver() {
        let mut sent = ten();
        let all = |sent: &mut SentPackets, now, numbers: RangeInclusive<u64>, arrived_us| {
            let largest = (*numbers.end(), arrived_us, Duration::ZERO);
            sent.acknowledge(now, largest, std::iter::once(numbers), &rtt(), |_| {})
        };
        assert_eq!(all(&mut sent, 90 * MS, 0..=9, 1_000_000).rate, None);
        for number in 10..30 {
            sent.push(90 * MS, number, SentFrame::Data(piece(number)), LEN);
        }
        // 20 000 bytes in 100 ms there, however late we hear of it
        let outcome = all(&mut sent, 900 * MS, 0..=29, 1_100_000);
        assert_eq!(outcome.rate.map(f64::round), Some(200_000.0));
    }

    /// Ten packets that leave at once and arrive so many µs apart, with feedback about these.
    fn capacity_of_ten(apart_us: u64, sent_apart: Duration, told: &[u64]) -> Option<f64> {
        const LEN: usize = 1200;
        let mut sent = SentPackets::default();
        for number in 0..10 {
            let at = sent_apart * number as u32;
            sent.push(at, number, SentFrame::Data(piece(number)), LEN);
        }
        let mut capacity = None;
        for &last in told {
            let newest = (last, 50_000 + last * apart_us, Duration::ZERO);
            let ranges = [0..=last].into_iter();
            capacity = sent.acknowledge(100 * MS, newest, ranges, &rtt(), |_| {}).capacity;
        }
        capacity.map(|Capacity { bytes, took }| (bytes / took.as_secs_f64()).round())
    }

    #[test]
    fn a_bottleneck_that_spreads_packets_shows_its_capacity() {
        let at_once = Duration::ZERO;
        // whichever one of four feedbacks is lost
        for told in [&[0, 3, 6, 9][..], &[3, 6, 9], &[0, 6, 9], &[0, 3, 9], &[0, 3, 6], &[0, 9]] {
            let capacity = capacity_of_ten(1500, at_once, told);
            assert_eq!(capacity, Some(8e5), "1200 bytes in 1.5 ms, {told:?}");
            assert_eq!(capacity_of_ten(1500, 2 * MS, told), None, "they were sent as far apart");
            assert_eq!(capacity_of_ten(0, at_once, told), None, "nothing spread them");
        }
    }
}
