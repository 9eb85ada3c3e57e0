//! Measures TCP in the file's direction: bytes transmitted and retransmitted, and the
//! round-trip time under load; the raw measures of RFC 6349 §4.
//!
//! Round-trip times come passively from the timestamps of RFC 7323, as in Kathleen Nichols'
//! `pping`: from the first packet with a TSval to its first echo. That is the part of the
//! round trip on one side of the capture; both parts add up to the whole. Linux's TSval
//! ticks every millisecond, so a single time can be off by a millisecond when the first
//! packet of a tick is never answered.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use crate::time::ns_to_s;
use crate::trace::Packet;

/// The raw measures of RFC 6349 in the file's direction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Tcp {
    /// Bytes of TCP payload transmitted, retransmissions included.
    pub transmitted_bytes: u64,
    /// Bytes of these that were retransmissions.
    pub retransmitted_bytes: u64,
    /// Mean round-trip time under load, microseconds.
    pub rtt_mean_us: Option<f64>,
    /// Smallest round-trip time, microseconds.
    pub rtt_min_us: Option<f64>,
}

impl Tcp {
    /// Averages several transfers; `rtt_min_us` is the smallest of all.
    pub fn mean(all: &[Self]) -> Self {
        let n = all.len().max(1) as f64;
        let bytes = |of: fn(&Self) -> u64| (all.iter().map(of).sum::<u64>() as f64 / n).round();
        let means: Vec<f64> = all.iter().filter_map(|one| one.rtt_mean_us).collect();
        Self {
            transmitted_bytes: bytes(|one| one.transmitted_bytes) as u64,
            retransmitted_bytes: bytes(|one| one.retransmitted_bytes) as u64,
            rtt_mean_us: (!means.is_empty())
                .then(|| means.iter().sum::<f64>() / means.len() as f64),
            rtt_min_us: all.iter().filter_map(|one| one.rtt_min_us).reduce(f64::min),
        }
    }
}

/// Measures all connections of a transfer. The mean covers echoes from the `body`-th packet
/// on, the minimum all echoes. An echo after a silence longer than `idle_s` waited for
/// something other than the link and does not count.
pub(crate) fn measure(packets: &[Packet], upload: bool, body: usize, idle_s: f64) -> Tcp {
    let connections = packets.iter().map(|p| p.connection as usize + 1).max().unwrap_or(0);
    let mut sent: Vec<Sent> = vec![Sent::default(); connections];
    for packet in packets.iter().filter(|p| p.from_client == upload) {
        sent[packet.connection as usize].add(packet);
    }
    let trips = RoundTrips::read(packets, connections, body, idle_s);
    let both =
        |of: fn(&Half) -> Option<f64>| Some((of(&trips.halves[0])? + of(&trips.halves[1])?) * 1e6);
    Tcp {
        transmitted_bytes: sent.iter().map(|s| s.transmitted).sum(),
        retransmitted_bytes: sent.iter().map(|s| s.retransmitted).sum(),
        rtt_mean_us: both(Half::mean_s),
        rtt_min_us: both(|half| half.min_s),
    }
}

/// The bytes that one side of a connection has sent, as captured.
#[derive(Debug, Clone, Default)]
struct Sent {
    /// End of the highest byte seen; sequence numbers extended beyond 32 bits.
    high: Option<u64>,
    /// Ranges below it that have not passed: start to end.
    holes: BTreeMap<u64, u64>,
    /// The newest TSval seen.
    newest: Option<u32>,
    transmitted: u64,
    retransmitted: u64,
}

impl Sent {
    fn add(&mut self, packet: &Packet) {
        let len = u64::from(packet.payload_len) + u64::from(packet.syn);
        if len == 0 {
            return;
        }
        let payload = u64::from(packet.payload_len);
        let start = self.extend(packet.seq);
        let high = *self.high.get_or_insert(start);
        let (end, value) = (start + len, packet.timestamps().map(|t| t.value));
        self.transmitted += payload;
        if start > high {
            self.holes.insert(high, start);
        } else if start < high {
            let filled = self.fill(start, end.min(high)).min(payload);
            // older than a segment that overtook it: the original, reordered (RFC 3522 §3)
            let late =
                value.zip(self.newest).is_some_and(|(value, newest)| is_before(value, newest));
            if !late {
                self.retransmitted += (end.min(high) - start).min(payload);
                // the original was transmitted too, and lost before the capture
                self.transmitted += filled;
            }
        }
        self.high = Some(high.max(end));
        if value.is_some_and(|value| self.newest.is_none_or(|newest| is_before(newest, value))) {
            self.newest = value;
        }
    }

    /// Extends a sequence number to the value nearest to the highest so far.
    fn extend(&self, seq: u32) -> u64 {
        match self.high {
            // an offset, so that numbers before the first stay above zero
            None => u64::from(seq) | 1 << 32,
            Some(high) => {
                let ahead = seq.wrapping_sub(high as u32).cast_signed();
                high.saturating_add_signed(i64::from(ahead))
            }
        }
    }

    /// Removes `from..to` from the holes; returns the bytes that were in one.
    fn fill(&mut self, from: u64, to: u64) -> u64 {
        let mut filled = 0;
        while let Some((&start, &end)) = self.holes.range(..to).next_back() {
            if end <= from {
                break;
            }
            self.holes.remove(&start);
            if start < from {
                self.holes.insert(start, from);
            }
            if end > to {
                self.holes.insert(to, end);
            }
            filled += end.min(to) - start.max(from);
        }
        filled
    }
}

/// Times from a TSval to its echo, for either side of the capture.
#[derive(Debug, Default)]
struct RoundTrips {
    /// For TSvals from the server, and for those from the client.
    halves: [Half; 2],
}

#[derive(Debug, Default)]
struct Half {
    sum_s: f64,
    n: u32,
    min_s: Option<f64>,
}

impl Half {
    fn mean_s(&self) -> Option<f64> {
        (self.n > 0).then(|| self.sum_s / f64::from(self.n))
    }
}

/// The TSvals of one side without an echo so far, oldest first.
#[derive(Debug, Clone, Default)]
struct Clock {
    newest: Option<u32>,
    waiting: VecDeque<(u32, u64)>,
}

impl Clock {
    /// Bound of TSvals without an echo: 16 s of milliseconds.
    const MAX_WAITING: usize = 1 << 14;

    fn sent(&mut self, value: u32, time_ns: u64) {
        if self.newest.is_none_or(|newest| is_before(newest, value)) {
            self.newest = Some(value);
            self.waiting.push_back((value, time_ns));
            if self.waiting.len() > Self::MAX_WAITING {
                self.waiting.pop_front();
            }
        }
    }

    /// Returns when the echoed value was first sent, if this is its first echo.
    fn echoed(&mut self, echo: u32) -> Option<u64> {
        // skipped values arrived out of order and are never echoed
        while self.waiting.front().is_some_and(|&(value, _)| is_before(value, echo)) {
            self.waiting.pop_front();
        }
        let (_, time_ns) = self.waiting.pop_front_if(|&mut (value, _)| value == echo)?;
        Some(time_ns)
    }
}

impl RoundTrips {
    fn read(packets: &[Packet], connections: usize, body: usize, idle_s: f64) -> Self {
        let mut clocks: Vec<[Clock; 2]> = vec![Default::default(); connections];
        let mut trips = Self::default();
        let mut previous_ns = packets.first().map_or(0, |p| p.time_ns);
        for (index, packet) in packets.iter().enumerate() {
            let silence_s = ns_to_s(packet.time_ns.saturating_sub(previous_ns));
            previous_ns = packet.time_ns;
            let Some(timestamps) = packet.timestamps() else { continue };
            let (own, other) = (usize::from(packet.from_client), usize::from(!packet.from_client));
            let clocks = &mut clocks[packet.connection as usize];
            clocks[own].sent(timestamps.value, packet.time_ns);
            // the first SYN echoes nothing; an echo after a silence waited for something else
            if let Some(sent_ns) = clocks[other].echoed(timestamps.echo)
                && silence_s <= idle_s
            {
                let half = &mut trips.halves[other];
                let seconds = ns_to_s(packet.time_ns.saturating_sub(sent_ns));
                half.min_s = Some(half.min_s.map_or(seconds, |least| least.min(seconds)));
                if index >= body {
                    half.sum_s += seconds;
                    half.n += 1;
                }
            }
        }
        trips
    }
}

/// Compares numbers of 32 bits that wrap around.
fn is_before(a: u32, b: u32) -> bool {
    a.wrapping_sub(b).cast_signed() < 0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::trace::Head;

    const LEN: u32 = 1000;

    fn packet(us: u64, from_client: bool, seq: u32, payload_len: u32, value: u32) -> Packet {
        Packet {
            time_ns: us * 1000,
            connection: 0,
            wire_len: 66 + payload_len,
            payload_len,
            seq,
            ts_value: value,
            ts_echo: 0,
            timestamped: true,
            from_client,
            syn: false,
            fin: false,
            rst: false,
            head: Head::Plain,
        }
    }

    /// A download in segments of 1000 bytes, named by their number and TSval.
    fn download(segments: &[(u32, u32)]) -> Tcp {
        let first = 0u32.wrapping_sub(2 * LEN); // the third begins at zero
        let packets: Vec<Packet> = segments
            .iter()
            .zip(0..)
            .map(|(&(n, value), us)| packet(us, false, first.wrapping_add(n * LEN), LEN, value))
            .collect();
        measure(&packets, false, 0, 1.0)
    }

    fn sent(tcp: Tcp) -> (u64, u64) {
        (tcp.transmitted_bytes, tcp.retransmitted_bytes)
    }

    #[test]
    fn without_loss_each_byte_is_transmitted_once() {
        assert_eq!(sent(download(&[(0, 1), (1, 1), (2, 1), (3, 2)])), (4000, 0));
    }

    #[test]
    fn before_the_bottleneck_a_retransmission_repeats() {
        assert_eq!(sent(download(&[(0, 1), (1, 1), (2, 1), (3, 2), (1, 9)])), (5000, 1000));
    }

    #[test]
    fn after_the_bottleneck_a_retransmission_fills_a_hole() {
        assert_eq!(sent(download(&[(0, 1), (2, 1), (3, 2), (1, 9)])), (5000, 1000));
    }

    #[test]
    fn a_reordered_segment_is_no_retransmission() {
        assert_eq!(sent(download(&[(0, 1), (2, 3), (1, 2), (3, 4)])), (4000, 0));
    }

    #[test]
    fn ignores_the_other_direction() {
        let packets = [packet(0, false, 5, 700, 1), packet(1, true, 9, 300, 1)];
        assert_eq!(sent(measure(&packets, true, 0, 1.0)), (300, 0));
    }

    /// Client and server exchange time stamps: (µs, from client, TSval, TSecr).
    fn exchange(lines: &[(u64, bool, u32, u32)], body: usize) -> Tcp {
        let packets: Vec<Packet> = lines
            .iter()
            .map(|&(us, from_client, value, echo)| Packet {
                ts_echo: echo,
                ..packet(us, from_client, 0, 0, value)
            })
            .collect();
        measure(&packets, false, body, 0.1)
    }

    #[test]
    fn both_sides_add_up_to_a_round_trip() {
        let tcp = exchange(
            &[
                (0, true, 100, 0),
                (20_000, false, 900, 100), // 20 ms from the capture to the server and back
                (20_300, true, 120, 900),  // 0.3 ms to the client and back
                (50_300, false, 930, 120), // 30 ms: the body, under load
                (50_400, false, 930, 120), // the same tick again says nothing new
                (50_800, true, 150, 930),
                (90_800, false, 970, 150),
            ],
            3,
        );
        let close = |us: Option<f64>, to: f64| us.is_some_and(|us| (us - to).abs() < 1e-6);
        assert!(close(tcp.rtt_min_us, 20_300.0), "{tcp:?}");
        assert!(close(tcp.rtt_mean_us, 35_500.0), "{tcp:?}");
    }

    #[test]
    fn ignores_echoes_after_a_long_silence() {
        let lines =
            [(0, true, 1, 0), (2000, false, 7, 1), (2100, true, 3, 7), (902_100, false, 907, 3)];
        let tcp = exchange(&lines, 0);
        assert!(tcp.rtt_mean_us.is_some_and(|us| (us - 2100.0).abs() < 1e-6), "{tcp:?}");
    }

    #[test]
    fn a_wrapped_timestamp_clock_continues() {
        let lines = [(0, true, u32::MAX, 0), (2000, false, 7, u32::MAX), (2100, true, 1, 7)];
        let wrapped = exchange(&[&lines[..], &[(6100, false, 11, 1)]].concat(), 0);
        assert!(wrapped.rtt_mean_us.is_some_and(|us| (us - 3100.0).abs() < 1e-6), "{wrapped:?}");
        assert_eq!(exchange(&lines[..2], 0).rtt_mean_us, None, "one half is no round trip");
    }

    proptest! {
        /// Losses on both sides of the capture, each mended once everything was
        /// sent, in pieces of one or two segments.
        #[test]
        fn counts_retransmissions_wherever_packets_were_lost(
            fates in proptest::collection::vec(0u8..10, 1..200),
            pairs: bool,
        ) {
            let n = fates.len() as u32;
            // the last segment must be seen, or its loss would be nobody's knowledge
            let fate = |i: u32| if i + 1 < n { fates[i as usize] } else { 9 };
            let passed = (0..n).filter(|&i| fate(i) != 0).map(|i| (i * LEN, LEN, i));
            let again: Vec<u32> = (0..n).filter(|&i| fate(i) < 2).collect();
            let mended = again.iter().map(|&i| {
                let len = if pairs && i + 1 < n { 2 * LEN } else { LEN };
                (i * LEN, len, n + i)
            });
            let sent_again: u64 = mended.clone().map(|(_, len, _)| u64::from(len)).sum();
            let syn = Packet { syn: true, ..packet(0, false, u32::MAX, 0, 0) };
            let data = passed
                .chain(mended)
                .map(|(seq, len, at)| packet(at.into(), false, seq, len, at));
            let packets: Vec<Packet> = std::iter::once(syn).chain(data).collect();
            let tcp = measure(&packets, false, 0, 1.0);
            prop_assert_eq!(tcp.retransmitted_bytes, sent_again);
            prop_assert_eq!(tcp.transmitted_bytes, u64::from(n * LEN) + sent_again);
        }

        #[test]
        fn never_panics(
            raw in proptest::collection::vec(any::<(u64, bool, u32, u32, u32, u32)>(), 0..300),
            upload: bool,
        ) {
            let packets: Vec<Packet> = raw
                .into_iter()
                .map(|(time_ns, from_client, seq, payload_len, value, echo)| Packet {
                    time_ns,
                    ts_echo: echo,
                    syn: echo % 7 == 0,
                    ..packet(0, from_client, seq, payload_len, value)
                })
                .collect();
            let tcp = measure(&packets, upload, 3, 0.1);
            prop_assert!(tcp.retransmitted_bytes <= tcp.transmitted_bytes);
        }
    }
}
