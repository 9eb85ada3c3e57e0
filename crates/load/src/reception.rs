//! What became of a stream of RTP packets: rate, loss, order, one-way delay and
//! jitter, in all and over time. No I/O and no clock.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::rtp::{Header, Jitter, Numbers, SenderReport};

/// Packets of which is known what became of them; later ones are not looked at.
const MOST_ARRIVALS: usize = 2_000_000;
/// Times with octets beside the stream; each is this long.
const MOST_SLOTS: usize = 100_000;
const SLOT_NS: u64 = 10_000_000;
/// Pieces of time that are told: what is told fits in 64 KiB.
const MOST_BINS: usize = 300;

/// A packet that arrived.
#[derive(Debug, Clone, Copy)]
struct Arrival {
    number: u64,
    /// By the sender, where it says so.
    sent_ns: Option<u64>,
    arrived_ns: u64,
    timestamp: u32,
    octets: usize,
}

impl Arrival {
    /// When it belongs to the stream.
    fn time_ns(&self) -> u64 {
        self.sent_ns.unwrap_or(self.arrived_ns)
    }
}

/// All that arrived of one stream.
#[derive(Debug, Default)]
pub(crate) struct Reception {
    /// Who sends; none: whoever does, without saying when.
    ssrc: Option<u32>,
    /// Whether its packets say when they were sent, as ours do.
    stamped: bool,
    /// Packets that their source says it has sent, from number 0 on.
    reported: Option<u64>,
    numbers: Numbers,
    arrivals: Vec<Arrival>,
    /// Octets of TCP that arrived meanwhile, by slot of time.
    beside: BTreeMap<u64, u64>,
}

/// What is asked about a stream.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Question {
    /// Packets that were sent, from number 0 on; none: who asks has not counted.
    pub(crate) sent: Option<u64>,
    /// From then on, after the first packet, the totals count.
    pub(crate) from_s: f64,
    /// Until then; none: to the end.
    pub(crate) to_s: Option<f64>,
    /// Length of the pieces of time.
    pub(crate) bin_s: f64,
}

/// What became of a stream. Totals are of the time that was asked about, `bins` of all.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Streamed {
    /// From the first packet that arrived to the last.
    pub measured_s: f64,
    /// Packets that were sent, as far as their numbers tell.
    pub sent: u64,
    /// Of these, arrived.
    pub arrived: u64,
    /// Of these, not.
    pub lost: u64,
    /// Copies of packets that had arrived.
    pub duplicates: u64,
    /// Packets behind one with a higher number (RFC 4737 §3).
    pub reordered: u64,
    /// Octets in datagrams that arrived behind the first, over `measured_s`.
    pub mean_bps: f64,
    /// The same in the worst whole second; none: there was none.
    pub lowest_bps: Option<f64>,
    /// In the best.
    pub highest_bps: Option<f64>,
    /// Sending to arrival; none: the packets do not say when they were sent.
    pub delay: Option<Delay>,
    /// The mean of the estimate after each packet (RFC 3550 §6.4.1).
    pub jitter_s: f64,
    /// TCP that arrived beside it; none: there was none.
    pub beside_bps: Option<f64>,
    /// Length of each of `bins`.
    pub bin_s: f64,
    /// Over time.
    pub bins: Vec<Bin>,
}

/// One-way delays.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "percentiles, in seconds")]
pub struct Delay {
    pub p50_s: f64,
    pub p95_s: f64,
    pub p99_s: f64,
    pub max_s: f64,
}

/// A piece of time: of the packets that were sent in it, and of the octets that
/// arrived in it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Bin {
    /// Its beginning, after the first packet.
    pub at_s: f64,
    /// Packets that were sent.
    pub sent: u64,
    /// Of these, lost.
    pub lost: u64,
    /// Octets of datagrams that arrived, as a rate.
    pub bps: f64,
    /// Mean delay.
    pub delay_s: Option<f64>,
    /// Longest delay.
    pub delay_max_s: Option<f64>,
    /// The estimate after the last packet.
    pub jitter_s: Option<f64>,
    /// TCP that arrived beside it.
    pub beside_bps: Option<f64>,
}

impl Reception {
    /// Of a stream from `ssrc` whose packets say when they were sent, or of any.
    pub(crate) fn new(ssrc: Option<u32>) -> Self {
        Self { ssrc, stamped: ssrc.is_some(), ..Self::default() }
    }

    /// Of an encoder's stream from `ssrc`, whose packets carry a film and nothing else,
    /// and whose source reports how many it has sent.
    pub(crate) fn of_film(ssrc: u32) -> Self {
        Self { ssrc: Some(ssrc), ..Self::default() }
    }

    /// Takes a datagram that arrived; whether it is a packet of the stream.
    pub(crate) fn hear(&mut self, arrived_ns: u64, datagram: &[u8]) -> bool {
        let Some(header) = Header::read(datagram) else {
            let report = SenderReport::read(datagram)
                .filter(|report| !self.stamped && self.ssrc == Some(report.ssrc));
            self.reported = report.map(|report| report.packets.into()).max(self.reported);
            return false;
        };
        if self.ssrc.is_some_and(|ssrc| ssrc != header.ssrc) {
            return false;
        }
        if self.arrivals.len() < MOST_ARRIVALS {
            let said = || sent_ns(datagram).filter(|&sent| sent <= arrived_ns);
            self.arrivals.push(Arrival {
                number: self.numbers.extend(header.sequence),
                sent_ns: self.stamped.then(said).flatten(),
                arrived_ns,
                timestamp: header.timestamp,
                octets: datagram.len(),
            });
        }
        true
    }

    /// Notes octets of TCP that arrived.
    pub(crate) fn hear_beside(&mut self, arrived_ns: u64, octets: u64) {
        let slot = arrived_ns / SLOT_NS;
        if self.beside.len() < MOST_SLOTS || self.beside.contains_key(&slot) {
            *self.beside.entry(slot).or_default() += octets;
        }
    }

    /// Packets that arrived so far.
    pub(crate) fn arrived(&self) -> u64 {
        self.arrivals.len() as u64
    }

    /// Packets that were sent from number 0 on, by who counted them: whoever asks, or
    /// the source.
    fn sent(&self, question: &Question) -> Option<u64> {
        question.sent.or(self.reported)
    }

    /// What became of the stream; none: nothing of it arrived.
    pub(crate) fn answer(&self, question: &Question) -> Option<Streamed> {
        let begun_ns = self.arrivals.iter().map(Arrival::time_ns).min()?;
        let at_s = |ns: u64| (ns as f64 - begun_ns as f64) / 1e9;
        let (mut unique, duplicates) = first_of_each(&self.arrivals);
        let end_s = unique.iter().map(|one| at_s(one.time_ns())).fold(0.0, f64::max);
        let window = question.from_s..question.to_s.unwrap_or(f64::INFINITY);

        let end_ns = unique.iter().map(Arrival::time_ns).max().unwrap_or(begun_ns);
        let least_ns = (end_ns - begun_ns) / (MOST_BINS - 1) as u64 + 1;
        let bin_ns = ((question.bin_s * 1e9) as u64).max(least_ns).max(1_000_000);
        let bin_of = |ns: u64| (ns.saturating_sub(begun_ns) / bin_ns) as usize;
        let bin_s = bin_ns as f64 / 1e9;
        let mut bins = vec![Sums::default(); bin_of(end_ns) + 1];
        let last_bin = bins.len() - 1;
        let (mut jitter, mut highest) = (Jitter::default(), 0);
        let (mut jitters, mut reordered) = (Vec::new(), 0);
        let mut octets_at: Vec<(f64, usize)> = Vec::with_capacity(unique.len());
        let mut delays: Vec<f64> = Vec::new();
        for one in &unique {
            let (time_s, arrived_s) = (at_s(one.time_ns()), at_s(one.arrived_ns));
            let estimate = jitter.hear(one.arrived_ns, one.timestamp);
            let counts = window.contains(&time_s);
            let bin = &mut bins[bin_of(one.time_ns())];
            bin.sent += 1;
            bin.jitter_s = Some(estimate);
            if let Some(sent_ns) = one.sent_ns {
                let delay = (one.arrived_ns - sent_ns) as f64 / 1e9;
                bin.delay_sum += delay;
                bin.delays += 1;
                bin.delay_max = bin.delay_max.max(delay);
                delays.extend(counts.then_some(delay));
            }
            bins[bin_of(one.arrived_ns).min(last_bin)].octets += one.octets as u64;
            if counts {
                octets_at.push((arrived_s, one.octets));
                jitters.push(estimate);
                reordered += u64::from(one.number < highest);
            }
            highest = highest.max(one.number);
        }
        for (&slot, &octets) in &self.beside {
            let middle_ns = slot * SLOT_NS + SLOT_NS / 2;
            if let Some(bin) = bins.get_mut(bin_of(middle_ns)).filter(|_| middle_ns >= begun_ns) {
                bin.beside += octets;
            }
        }

        unique.sort_unstable_by_key(|one| one.number);
        let mut lost = 0;
        for (missing, time_ns) in gaps(&unique, self.sent(question)) {
            let bin = &mut bins[bin_of(time_ns)];
            bin.sent += missing;
            bin.lost += missing;
            lost += if window.contains(&at_s(time_ns)) { missing } else { 0 };
        }
        let arrived = octets_at.len() as u64;
        let first_s = octets_at.iter().map(|(s, _)| *s).fold(f64::INFINITY, f64::min);
        let last_s = octets_at.iter().map(|(s, _)| *s).fold(first_s.min(0.0), f64::max);
        let measured_s = if arrived > 1 { last_s - first_s } else { 0.0 };
        let behind_first: usize = octets_at.iter().skip(1).map(|(_, octets)| octets).sum();
        let [lowest_bps, highest_bps] = extremes(&octets_at, window.start, end_s.min(window.end));
        let told = !self.beside.is_empty();
        Some(Streamed {
            measured_s,
            sent: arrived + lost,
            arrived,
            lost,
            duplicates,
            reordered,
            mean_bps: if measured_s > 0.0 { behind_first as f64 * 8.0 / measured_s } else { 0.0 },
            lowest_bps,
            highest_bps,
            delay: Delay::of(delays),
            jitter_s: jitters.iter().sum::<f64>() / jitters.len().max(1) as f64,
            beside_bps: told
                .then(|| self.beside_bps(begun_ns, window.start, end_s.min(window.end))),
            bin_s,
            bins: bins.iter().zip(0u32..).map(|(sums, n)| sums.bin(bin_s, n, told)).collect(),
        })
    }

    /// The rate of what arrived beside it between two times.
    fn beside_bps(&self, begun_ns: u64, from_s: f64, to_s: f64) -> f64 {
        let within = |slot: &u64| {
            let middle = (slot * SLOT_NS + SLOT_NS / 2) as f64 - begun_ns as f64;
            (from_s..to_s).contains(&(middle / 1e9))
        };
        let octets: u64 =
            self.beside.iter().filter(|(slot, _)| within(slot)).map(|(_, octets)| octets).sum();
        octets as f64 * 8.0 / (to_s - from_s).max(1e-9)
    }
}

/// Where a packet of ours says when it was sent, by the clock of this machine.
pub(crate) fn sent_ns(datagram: &[u8]) -> Option<u64> {
    let octets = datagram.get(crate::rtp::HEADER..crate::stream::LEAST)?;
    octets.try_into().ok().map(u64::from_be_bytes)
}

/// In order of arrival, each number once, and how many came again.
fn first_of_each(arrivals: &[Arrival]) -> (Vec<Arrival>, u64) {
    let mut seen = std::collections::HashSet::with_capacity(arrivals.len());
    let unique: Vec<Arrival> =
        arrivals.iter().filter(|one| seen.insert(one.number)).copied().collect();
    let again = (arrivals.len() - unique.len()) as u64;
    (unique, again)
}

/// How many are missing before each that arrived, in order of numbers, and when they
/// were sent at the latest: then when the next one was.
fn gaps(arrived: &[Arrival], sent: Option<u64>) -> Vec<(u64, u64)> {
    let mut gaps = Vec::new();
    let (Some(first), Some(last)) = (arrived.first(), arrived.last()) else { return gaps };
    let mut expected = if sent.is_some() { Numbers::BEFORE } else { first.number };
    for one in arrived {
        if one.number > expected {
            gaps.push((one.number - expected, one.time_ns()));
        }
        expected = expected.max(one.number + 1);
    }
    let end = sent.map_or(expected, |sent| Numbers::BEFORE.saturating_add(sent));
    if end > expected {
        gaps.push((end - expected, last.time_ns()));
    }
    gaps
}

/// The lowest and the highest rate of whole seconds.
fn extremes(octets_at: &[(f64, usize)], from_s: f64, to_s: f64) -> [Option<f64>; 2] {
    // the last packet begins the piece of time that nothing follows
    let seconds = ((to_s - from_s) + 0.02).max(0.0) as usize;
    let mut sums = vec![0.0; seconds];
    for (at_s, octets) in octets_at {
        if let Some(sum) = sums.get_mut((at_s - from_s).max(0.0) as usize) {
            *sum += *octets as f64 * 8.0;
        }
    }
    [sums.iter().copied().reduce(f64::min), sums.iter().copied().reduce(f64::max)]
}

impl Delay {
    fn of(mut delays_s: Vec<f64>) -> Option<Self> {
        delays_s.sort_unstable_by(f64::total_cmp);
        let max_s = *delays_s.last()?;
        let at = |share: f64| delays_s[((delays_s.len() - 1) as f64 * share).round() as usize];
        Some(Self { p50_s: at(0.5), p95_s: at(0.95), p99_s: at(0.99), max_s })
    }
}

#[derive(Debug, Clone, Default)]
struct Sums {
    sent: u64,
    lost: u64,
    octets: u64,
    delays: u32,
    delay_sum: f64,
    delay_max: f64,
    jitter_s: Option<f64>,
    beside: u64,
}

impl Sums {
    fn bin(&self, bin_s: f64, number: u32, told: bool) -> Bin {
        let bps = |octets: u64| (octets as f64 * 8.0 / bin_s).round();
        let some = self.delays > 0;
        let short = |seconds: f64| (seconds * 1e9).round() / 1e9;
        Bin {
            at_s: short(f64::from(number) * bin_s),
            sent: self.sent,
            lost: self.lost,
            bps: bps(self.octets),
            delay_s: some.then(|| short(self.delay_sum / f64::from(self.delays))),
            delay_max_s: some.then_some(self.delay_max),
            jitter_s: self.jitter_s.map(short),
            beside_bps: told.then(|| bps(self.beside)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::packet;

    const MS: u64 = 1_000_000;
    const ALL: Question = Question { sent: None, from_s: 0.0, to_s: None, bin_s: 0.2 };

    /// A stream of 100 packets a second of 125 octets, each 5 ms on its way, less some.
    fn received(packets: u64, is_lost: impl Fn(u64) -> bool) -> Reception {
        let mut reception = Reception::new(Some(7));
        let mut datagram = vec![0; 125];
        for number in (0..packets).filter(|&number| !is_lost(number)) {
            let sent = 3_000 * MS + number * 10 * MS;
            packet(&mut datagram, 7, number, 100.0, sent);
            assert!(reception.hear(sent + 5 * MS, &datagram));
        }
        reception
    }

    #[test]
    fn an_even_stream_is_even() {
        let seen = received(300, |_| false).answer(&ALL).expect("a stream");
        assert_eq!((seen.sent, seen.arrived, seen.lost, seen.reordered), (300, 300, 0, 0));
        assert!((seen.measured_s - 2.99).abs() < 1e-9 && (seen.mean_bps - 100_000.0).abs() < 1e-6);
        assert!((seen.lowest_bps.expect("whole seconds") - 100_000.0).abs() < 1e-6);
        let delay = seen.delay.expect("delays");
        assert!([delay.p50_s, delay.max_s].iter().all(|s| (s - 0.005).abs() < 1e-9), "{delay:?}");
        assert!(seen.jitter_s < 1e-5, "{}", seen.jitter_s); // ticks are whole
        assert_eq!(seen.bins.len(), 15);
        assert!(seen.bins.iter().all(|bin| (bin.sent, bin.lost) == (20, 0)), "{:?}", seen.bins);
        assert_eq!((seen.beside_bps, seen.bins[3].beside_bps), (None, None));
    }

    #[test]
    fn what_is_lost_is_counted_where_it_was_sent() {
        let reception = received(300, |n| (100..110).contains(&n) || n >= 290);
        let seen = reception.answer(&Question { sent: Some(300), ..ALL }).expect("a stream");
        assert_eq!((seen.sent, seen.arrived, seen.lost), (300, 280, 20));
        let lost: Vec<u64> = seen.bins.iter().map(|bin| bin.lost).collect();
        assert_eq!((lost[5], lost[14], lost.iter().sum::<u64>()), (10, 10, 20));
        // of a stream that nobody counted the end is not missed
        assert_eq!(reception.answer(&ALL).expect("a stream").lost, 10);
        let early = Question { sent: Some(300), to_s: Some(1.05), ..ALL };
        let early = reception.answer(&early).expect("a stream");
        assert_eq!((early.sent, early.lost, early.bins.len()), (100, 0, 15));
    }

    #[test]
    fn a_film_is_counted_by_its_source() {
        let mut reception = Reception::of_film(7);
        let mut datagram = vec![0; 125];
        let report = |ssrc: u8, packets: u8| {
            let words = [0, 0, 0, ssrc, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, packets];
            [&[0x80, 200, 0, 6][..], &words, &[0; 4]].concat()
        };
        for number in (1..9).filter(|&number| number != 4) {
            packet(&mut datagram, 7, number, 100.0, 0);
            assert!(reception.hear(number * 10 * MS, &datagram));
        }
        // without a word of its source neither the first nor the last are missed
        assert_eq!(reception.answer(&ALL).map(|seen| (seen.sent, seen.lost)), Some((8, 1)));
        for (ssrc, packets) in [(7, 5), (7, 10), (9, 200)] {
            assert!(!reception.hear(100 * MS, &report(ssrc, packets)), "no packet of the film");
        }
        let seen = reception.answer(&ALL).expect("a stream");
        assert_eq!((seen.sent, seen.arrived, seen.lost, seen.delay), (10, 7, 3, None));
    }

    #[test]
    fn order_and_copies_are_told() {
        let mut reception = Reception::new(Some(7));
        let mut datagram = [0; 40];
        for (n, number) in [0u64, 1, 3, 2, 2, 4].into_iter().enumerate() {
            packet(&mut datagram, 7, number, 100.0, 0);
            reception.hear(MS * n as u64, &datagram);
        }
        packet(&mut datagram, 8, 9, 100.0, 0);
        assert!(!reception.hear(9 * MS, &datagram), "of another stream");
        let seen = reception.answer(&ALL).expect("a stream");
        assert_eq!((seen.arrived, seen.reordered, seen.duplicates, seen.lost), (5, 1, 1, 0));
    }

    #[test]
    fn what_comes_beside_is_a_rate() {
        let mut reception = received(200, |_| false);
        for ms in (1_000..2_000).step_by(10) {
            reception.hear_beside((3_000 + ms) * MS, 1_250);
        }
        let seen = reception.answer(&Question { from_s: 1.0, ..ALL }).expect("a stream");
        let beside = seen.beside_bps.expect("some");
        assert!((beside - 1e6).abs() < 2e4, "{beside}");
        assert_eq!(seen.bins[0].beside_bps, Some(0.0));
        assert!(seen.bins[7].beside_bps.is_some_and(|bps| (bps - 1e6).abs() < 1.0));
    }

    #[test]
    fn a_stream_that_lasts_has_no_more_pieces_than_are_told() {
        let seen = received(20_000, |_| false).answer(&Question { bin_s: 1e-9, ..ALL });
        let seen = seen.expect("a stream");
        assert!((MOST_BINS - 1..=MOST_BINS).contains(&seen.bins.len()), "{}", seen.bins.len());
        assert_eq!(seen.bins.iter().map(|bin| bin.sent).sum::<u64>(), 20_000);
        let text = serde_json::to_string(&seen).expect("JSON");
        assert!(text.len() < 60_000, "{}", text.len());
    }

    #[test]
    fn hostile_packets_do_no_harm() {
        let mut reception = Reception::new(None);
        for n in 0..1000u32 {
            let header = Header {
                sequence: (n * 32_767) as u16,
                timestamp: n.wrapping_mul(1 << 31),
                ssrc: n,
            };
            let mut datagram = [0; 12];
            header.write(&mut datagram);
            reception.hear(u64::from(n ^ 1), &datagram);
        }
        assert!(reception.answer(&Question { sent: Some(u64::MAX >> 1), ..ALL }).is_some());
        assert!(Reception::new(None).answer(&ALL).is_none());
    }
}
