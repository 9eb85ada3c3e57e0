//! Measures set-ups: the packets between two ends before any data.

use serde::{Deserialize, Serialize};

use crate::phases::{Phase, State, follow};
use crate::time::ns_to_s;
use crate::trace::{Packet, Trace};

/// The set-up of a layer, or the handshake of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct SetUp {
    /// Packets of both directions.
    pub packets: u64,
    /// Bytes of these,
    pub bytes: u64,
    /// and of those that the client sent.
    pub client_bytes: u64,
    /// Bytes of the longest frame.
    pub largest_frame_bytes: u32,
    /// Time from the first packet to the last.
    pub seconds: f64,
    /// Round trips: the client sent and the server answered.
    pub round_trips: u32,
}

impl SetUp {
    /// Measures a whole trace, which holds nothing but the set-up of a tunnel; none: it is
    /// empty.
    pub fn of_tunnel(trace: &Trace) -> Option<Self> {
        let packets = trace.packets.iter().map(|p| (p.time_ns, p.wire_len, p.from_client));
        let datagrams = trace.datagrams.iter().map(|d| (d.time_ns, d.wire_len, d.from_client));
        let mut all: Vec<_> = packets.chain(datagrams).collect();
        all.sort_unstable();
        Self::of(&all)
    }

    /// Measures the TLS handshake of the first connection, from ClientHello to Finished.
    pub fn of_tls(trace: &Trace) -> Option<Self> {
        Self::of_connection(&trace.packets, &follow(&trace.packets), |connection| connection == 0)
    }

    /// Measures the handshake of the first of these connections that has one; none: the
    /// trace does not show its end.
    pub(crate) fn of_connection(
        packets: &[Packet],
        states: &[State],
        wanted: impl Fn(u32) -> bool,
    ) -> Option<Self> {
        let mut handshakes = packets
            .iter()
            .zip(states)
            .filter(|(p, state)| wanted(p.connection) && state.phase == Phase::Handshake)
            .peekable();
        let connection = handshakes.peek().map(|(p, _)| p.connection)?;
        let handshake: Vec<_> = handshakes.filter(|(p, _)| p.connection == connection).collect();
        if !handshake.last()?.1.ends_handshake {
            return None;
        }
        let seen: Vec<_> =
            handshake.iter().map(|(p, _)| (p.time_ns, p.wire_len, p.from_client)).collect();
        Self::of(&seen)
    }

    fn of(packets: &[(u64, u32, bool)]) -> Option<Self> {
        let (first, last) = (packets.first()?, packets.last()?);
        let answers = packets.windows(2).filter(|pair| pair[0].2 && !pair[1].2).count();
        Some(Self {
            packets: packets.len() as u64,
            bytes: packets.iter().map(|(_, len, _)| u64::from(*len)).sum(),
            client_bytes: packets.iter().filter(|p| p.2).map(|(_, len, _)| u64::from(*len)).sum(),
            largest_frame_bytes: packets.iter().map(|p| p.1).max().unwrap_or(0),
            seconds: ns_to_s(last.0.saturating_sub(first.0)),
            round_trips: answers as u32,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handshake_of_three_packets_is_one_round_trip() {
        let wireguard = [(5_000_000, 210, true), (6_000_000, 154, false), (6_500_000, 94, true)];
        let set_up = SetUp::of(&wireguard).expect("packets");
        assert_eq!((set_up.packets, set_up.bytes, set_up.round_trips), (3, 458, 1));
        assert_eq!(set_up.client_bytes, 304);
        assert!((set_up.seconds - 0.0015).abs() < 1e-12);
        assert_eq!(SetUp::of(&[]), None);
    }
}
