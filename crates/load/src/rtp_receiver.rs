//! Receives a stream of RTP packets and computes rate, loss, order, one-way delay and
//! jitter, in total and over time. No I/O and no clock.

use std::collections::BTreeMap;

use headroom_lab_trace::{DelayStats, StreamBin, StreamStats};

use crate::rtp::{Header, Jitter, Numbers, SenderReport};
use crate::session::StatsQuery;
use crate::stamped::sent_ns;

/// Bound of the packets that are recorded; later ones are ignored.
const MAX_ARRIVALS: usize = 2_000_000;
/// Bound of the slots in which cross traffic is counted, and their length.
const MAX_SLOTS: usize = 100_000;
const SLOT_NS: u64 = 10_000_000;
/// Bound of the intervals reported: a report fits in 64 KiB.
const MAX_BINS: usize = 300;

/// A packet that arrived.
#[derive(Debug, Clone, Copy)]
struct Arrival {
    number: u64,
    /// The send time, if the packet carries it.
    sent_ns: Option<u64>,
    arrived_ns: u64,
    timestamp: u32,
    octets: usize,
}

impl Arrival {
    /// Returns the time that assigns it to an interval.
    fn time_ns(&self) -> u64 {
        self.sent_ns.unwrap_or(self.arrived_ns)
    }
}

/// The receiver of one stream.
#[derive(Debug, Default)]
pub(crate) struct RtpReceiver {
    /// The source; none: any source, without send times.
    ssrc: Option<u32>,
    /// Whether packets carry their send time (`stamped`).
    stamped: bool,
    /// Packets sent from number 0, as the source reports.
    reported: Option<u64>,
    numbers: Numbers,
    arrivals: Vec<Arrival>,
    /// Bytes of cross traffic by slot of time.
    cross_traffic: BTreeMap<u64, u64>,
}

impl RtpReceiver {
    /// Receives a stream from `ssrc` whose packets carry their send time, or from any
    /// source.
    pub(crate) fn new(ssrc: Option<u32>) -> Self {
        Self { ssrc, stamped: ssrc.is_some(), ..Self::default() }
    }

    /// Receives an encoder's stream from `ssrc`, whose packets carry no send time and whose
    /// source reports how many it has sent.
    pub(crate) fn of_video(ssrc: u32) -> Self {
        Self { ssrc: Some(ssrc), ..Self::default() }
    }

    /// Records a datagram; returns whether it is a packet of the stream.
    pub(crate) fn receive(&mut self, arrived_ns: u64, datagram: &[u8]) -> bool {
        let Some(header) = Header::read(datagram) else {
            let report = SenderReport::read(datagram)
                .filter(|report| !self.stamped && self.ssrc == Some(report.ssrc));
            self.reported = report.map(|report| report.packets.into()).max(self.reported);
            return false;
        };
        if self.ssrc.is_some_and(|ssrc| ssrc != header.ssrc) {
            return false;
        }
        if self.arrivals.len() < MAX_ARRIVALS {
            let sent = || sent_ns(datagram).filter(|&sent| sent <= arrived_ns);
            self.arrivals.push(Arrival {
                number: self.numbers.extend(header.sequence),
                sent_ns: self.stamped.then(sent).flatten(),
                arrived_ns,
                timestamp: header.timestamp,
                octets: datagram.len(),
            });
        }
        true
    }

    /// Counts bytes of cross traffic.
    pub(crate) fn receive_cross_traffic(&mut self, arrived_ns: u64, octets: u64) {
        let slot = arrived_ns / SLOT_NS;
        if self.cross_traffic.len() < MAX_SLOTS || self.cross_traffic.contains_key(&slot) {
            *self.cross_traffic.entry(slot).or_default() += octets;
        }
    }

    /// Returns the number of packets that have arrived.
    pub(crate) fn arrived(&self) -> u64 {
        self.arrivals.len() as u64
    }

    /// Returns the number of packets sent from number 0, as the client or else the source
    /// counted them.
    fn sent(&self, query: &StatsQuery) -> Option<u64> {
        query.sent.or(self.reported)
    }

    /// Computes statistics; none: no packet has arrived.
    pub(crate) fn stats(&self, query: &StatsQuery) -> Option<StreamStats> {
        let begun_ns = self.arrivals.iter().map(Arrival::time_ns).min()?;
        let at_s = |ns: u64| (ns as f64 - begun_ns as f64) / 1e9;
        let (mut unique, duplicates) = first_of_each(&self.arrivals);
        let end_s = unique.iter().map(|one| at_s(one.time_ns())).fold(0.0, f64::max);
        let window = query.from_s..query.to_s.unwrap_or(f64::INFINITY);

        let end_ns = unique.iter().map(Arrival::time_ns).max().unwrap_or(begun_ns);
        let least_ns = (end_ns - begun_ns) / (MAX_BINS - 1) as u64 + 1;
        let bin_ns = ((query.bin_s * 1e9) as u64).max(least_ns).max(1_000_000);
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
            let estimate = jitter.update(one.arrived_ns, one.timestamp);
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
        for (&slot, &octets) in &self.cross_traffic {
            let middle_ns = slot * SLOT_NS + SLOT_NS / 2;
            if let Some(bin) = bins.get_mut(bin_of(middle_ns)).filter(|_| middle_ns >= begun_ns) {
                bin.cross_traffic += octets;
            }
        }

        unique.sort_unstable_by_key(|one| one.number);
        let mut lost = 0;
        for (missing, time_ns) in gaps(&unique, self.sent(query)) {
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
        let has_cross_traffic = !self.cross_traffic.is_empty();
        Some(StreamStats {
            measured_s,
            sent: arrived + lost,
            arrived,
            lost,
            duplicates,
            reordered,
            mean_bps: if measured_s > 0.0 { behind_first as f64 * 8.0 / measured_s } else { 0.0 },
            lowest_bps,
            highest_bps,
            delay: percentiles(delays),
            jitter_s: jitters.iter().sum::<f64>() / jitters.len().max(1) as f64,
            cross_traffic_bps: has_cross_traffic
                .then(|| self.cross_traffic_bps(begun_ns, window.start, end_s.min(window.end))),
            frames: None,
            bin_s,
            bins: bins
                .iter()
                .zip(0u32..)
                .map(|(sums, n)| sums.bin(bin_s, n, has_cross_traffic))
                .collect(),
        })
    }

    /// Computes the rate of cross traffic between two times.
    fn cross_traffic_bps(&self, begun_ns: u64, from_s: f64, to_s: f64) -> f64 {
        let within = |slot: &u64| {
            let middle = (slot * SLOT_NS + SLOT_NS / 2) as f64 - begun_ns as f64;
            (from_s..to_s).contains(&(middle / 1e9))
        };
        let octets: u64 = self
            .cross_traffic
            .iter()
            .filter(|(slot, _)| within(slot))
            .map(|(_, octets)| octets)
            .sum();
        octets as f64 * 8.0 / (to_s - from_s).max(1e-9)
    }
}

/// Returns each packet once, in order of arrival, and the number of duplicates.
fn first_of_each(arrivals: &[Arrival]) -> (Vec<Arrival>, u64) {
    let mut seen = std::collections::HashSet::with_capacity(arrivals.len());
    let unique: Vec<Arrival> =
        arrivals.iter().filter(|one| seen.insert(one.number)).copied().collect();
    let again = (arrivals.len() - unique.len()) as u64;
    (unique, again)
}

/// Returns how many packets are missing before each that arrived, in order of numbers, and
/// the latest time at which they can have been sent: that of the next one.
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

/// Computes the lowest and the highest rate of whole seconds.
fn extremes(octets_at: &[(f64, usize)], from_s: f64, to_s: f64) -> [Option<f64>; 2] {
    // the last packet starts an interval that no packet ends
    let seconds = ((to_s - from_s) + 0.02).max(0.0) as usize;
    let mut sums = vec![0.0; seconds];
    for (at_s, octets) in octets_at {
        if let Some(sum) = sums.get_mut((at_s - from_s).max(0.0) as usize) {
            *sum += *octets as f64 * 8.0;
        }
    }
    [sums.iter().copied().reduce(f64::min), sums.iter().copied().reduce(f64::max)]
}

/// Sorts delays and takes their percentiles; none: there are none.
fn percentiles(mut delays_s: Vec<f64>) -> Option<DelayStats> {
    delays_s.sort_unstable_by(f64::total_cmp);
    let max_s = *delays_s.last()?;
    let at = |share: f64| delays_s[((delays_s.len() - 1) as f64 * share).round() as usize];
    Some(DelayStats { p50_s: at(0.5), p95_s: at(0.95), p99_s: at(0.99), max_s })
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
    cross_traffic: u64,
}

impl Sums {
    fn bin(&self, bin_s: f64, number: u32, has_cross_traffic: bool) -> StreamBin {
        let bps = |octets: u64| (octets as f64 * 8.0 / bin_s).round();
        let some = self.delays > 0;
        let short = |seconds: f64| (seconds * 1e9).round() / 1e9;
        StreamBin {
            at_s: short(f64::from(number) * bin_s),
            sent: self.sent,
            lost: self.lost,
            bps: bps(self.octets),
            delay_s: some.then(|| short(self.delay_sum / f64::from(self.delays))),
            delay_max_s: some.then_some(self.delay_max),
            jitter_s: self.jitter_s.map(short),
            cross_traffic_bps: has_cross_traffic.then(|| bps(self.cross_traffic)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stamped;

    const MS: u64 = 1_000_000;
    const ALL: StatsQuery = StatsQuery { sent: None, from_s: 0.0, to_s: None, bin_s: 0.2 };

    /// A stream of 100 packets per second of 125 bytes, each delayed by 5 ms, except lost ones.
    fn received(packets: u64, is_lost: impl Fn(u64) -> bool) -> RtpReceiver {
        let mut receiver = RtpReceiver::new(Some(7));
        let mut datagram = vec![0; 125];
        for number in (0..packets).filter(|&number| !is_lost(number)) {
            let sent = 3_000 * MS + number * 10 * MS;
            stamped::write(&mut datagram, 7, number, 100.0, sent);
            assert!(receiver.receive(sent + 5 * MS, &datagram));
        }
        receiver
    }

    #[test]
    fn an_even_stream_has_even_statistics() {
        let seen = received(300, |_| false).stats(&ALL).expect("a stream");
        assert_eq!((seen.sent, seen.arrived, seen.lost, seen.reordered), (300, 300, 0, 0));
        assert!((seen.measured_s - 2.99).abs() < 1e-9 && (seen.mean_bps - 100_000.0).abs() < 1e-6);
        assert!((seen.lowest_bps.expect("whole seconds") - 100_000.0).abs() < 1e-6);
        let delay = seen.delay.expect("delays");
        assert!([delay.p50_s, delay.max_s].iter().all(|s| (s - 0.005).abs() < 1e-9), "{delay:?}");
        assert!(seen.jitter_s < 1e-5, "{}", seen.jitter_s); // ticks are whole
        assert_eq!(seen.bins.len(), 15);
        assert!(seen.bins.iter().all(|bin| (bin.sent, bin.lost) == (20, 0)), "{:?}", seen.bins);
        assert_eq!((seen.cross_traffic_bps, seen.bins[3].cross_traffic_bps), (None, None));
    }

    #[test]
    fn losses_count_in_the_interval_they_were_sent_in() {
        let receiver = received(300, |n| (100..110).contains(&n) || n >= 290);
        let seen = receiver.stats(&StatsQuery { sent: Some(300), ..ALL }).expect("a stream");
        assert_eq!((seen.sent, seen.arrived, seen.lost), (300, 280, 20));
        let lost: Vec<u64> = seen.bins.iter().map(|bin| bin.lost).collect();
        assert_eq!((lost[5], lost[14], lost.iter().sum::<u64>()), (10, 10, 20));
        // without a count of packets sent, losses at the end are unknown
        assert_eq!(receiver.stats(&ALL).expect("a stream").lost, 10);
        let early = StatsQuery { sent: Some(300), to_s: Some(1.05), ..ALL };
        let early = receiver.stats(&early).expect("a stream");
        assert_eq!((early.sent, early.lost, early.bins.len()), (100, 0, 15));
    }

    #[test]
    fn the_sources_report_counts_packets_sent() {
        let mut receiver = RtpReceiver::of_video(7);
        let mut datagram = vec![0; 125];
        let report = |ssrc: u8, packets: u8| {
            let words = [0, 0, 0, ssrc, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, packets];
            [&[0x80, 200, 0, 6][..], &words, &[0; 4]].concat()
        };
        for number in (1..9).filter(|&number| number != 4) {
            stamped::write(&mut datagram, 7, number, 100.0, 0);
            assert!(receiver.receive(number * 10 * MS, &datagram));
        }
        // without the source's report, losses at the start and end are unknown
        assert_eq!(receiver.stats(&ALL).map(|seen| (seen.sent, seen.lost)), Some((8, 1)));
        for (ssrc, packets) in [(7, 5), (7, 10), (9, 200)] {
            assert!(
                !receiver.receive(100 * MS, &report(ssrc, packets)),
                "a report is no packet of the stream"
            );
        }
        let seen = receiver.stats(&ALL).expect("a stream");
        assert_eq!((seen.sent, seen.arrived, seen.lost, seen.delay), (10, 7, 3, None));
    }

    #[test]
    fn counts_reordered_packets_and_duplicates() {
        let mut receiver = RtpReceiver::new(Some(7));
        let mut datagram = [0; 40];
        for (n, number) in [0u64, 1, 3, 2, 2, 4].into_iter().enumerate() {
            stamped::write(&mut datagram, 7, number, 100.0, 0);
            receiver.receive(MS * n as u64, &datagram);
        }
        stamped::write(&mut datagram, 8, 9, 100.0, 0);
        assert!(!receiver.receive(9 * MS, &datagram), "of another stream");
        let seen = receiver.stats(&ALL).expect("a stream");
        assert_eq!((seen.arrived, seen.reordered, seen.duplicates, seen.lost), (5, 1, 1, 0));
    }

    #[test]
    fn cross_traffic_is_a_rate() {
        let mut receiver = received(200, |_| false);
        for ms in (1_000..2_000).step_by(10) {
            receiver.receive_cross_traffic((3_000 + ms) * MS, 1_250);
        }
        let seen = receiver.stats(&StatsQuery { from_s: 1.0, ..ALL }).expect("a stream");
        let cross_traffic = seen.cross_traffic_bps.expect("some");
        assert!((cross_traffic - 1e6).abs() < 2e4, "{cross_traffic}");
        assert_eq!(seen.bins[0].cross_traffic_bps, Some(0.0));
        assert!(seen.bins[7].cross_traffic_bps.is_some_and(|bps| (bps - 1e6).abs() < 1.0));
    }

    #[test]
    fn a_long_stream_has_a_bounded_number_of_intervals() {
        let seen = received(20_000, |_| false).stats(&StatsQuery { bin_s: 1e-9, ..ALL });
        let seen = seen.expect("a stream");
        assert!((MAX_BINS - 1..=MAX_BINS).contains(&seen.bins.len()), "{}", seen.bins.len());
        assert_eq!(seen.bins.iter().map(|bin| bin.sent).sum::<u64>(), 20_000);
        let text = serde_json::to_string(&seen).expect("JSON");
        assert!(text.len() < 60_000, "{}", text.len());
    }

    #[test]
    fn hostile_packets_do_no_harm() {
        let mut receiver = RtpReceiver::new(None);
        for n in 0..1000u32 {
            let header = Header {
                sequence: (n * 32_767) as u16,
                timestamp: n.wrapping_mul(1 << 31),
                ssrc: n,
            };
            let mut datagram = [0; 12];
            header.write(&mut datagram);
            receiver.receive(u64::from(n ^ 1), &datagram);
        }
        assert!(receiver.stats(&StatsQuery { sent: Some(u64::MAX >> 1), ..ALL }).is_some());
        assert!(RtpReceiver::new(None).stats(&ALL).is_none());
    }
}
