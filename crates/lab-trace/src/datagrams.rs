//! The wire clock of transfers over UDP. They follow no common pattern and most are encrypted,
//! so the trace gives the start and the client the end.

use crate::expectation::Expectation;
use crate::phases::{Phase, PhaseInterval, Phases, follow};
use crate::record::Record;
use crate::tcp::Tcp;
use crate::time::{longest_gap, ns_to_s};
use crate::trace::Trace;

/// One packet of such a session, over TCP or UDP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Timed {
    time_ns: u64,
    from_client: bool,
}

/// Measures a transfer; `None`: no packet went to the application's port.
///
/// The session ends when the client reports completion, which is later than its last packet
/// and includes verifying and renaming the file. Without that timestamp it ends with the last
/// packet. Without a timestamp of the request the whole session counts as transfer.
pub(crate) fn read(trace: &Trace, expected: &Expectation) -> Option<Record> {
    let states = follow(&trace.packets);
    let of_service = |port: u16| port == expected.port;
    let tcp = trace.packets.iter().filter(|p| of_service(trace.connections[p.connection as usize]));
    let tcp = tcp.map(|p| Timed { time_ns: p.time_ns, from_client: p.from_client });
    let udp = || trace.datagrams.iter().filter(|d| d.port.is_some_and(of_service));
    let all = udp().map(|d| Timed { time_ns: d.time_ns, from_client: d.from_client });
    let mut all: Vec<Timed> = tcp.chain(all).collect();
    all.sort_unstable();
    let begin = expected.hints.start_ns.unwrap_or(0);
    let first = all.iter().position(|seen| seen.from_client && seen.time_ns >= begin)?;
    let (all, start) = (&all[first..], all[first].time_ns);
    let end = expected.hints.done_ns.or(all.last().map(|seen| seen.time_ns))?.max(start);
    let request = expected.hints.request_ns.unwrap_or(start).clamp(start, end);
    let answer = all.iter().find(|seen| !seen.from_client);
    let since = |time_ns: u64| ns_to_s(time_ns.saturating_sub(start));
    let phases = [
        PhaseInterval { kind: Phase::Handshake, start_s: 0.0, end_s: since(request) },
        PhaseInterval { kind: Phase::Body, start_s: since(request), end_s: since(end) },
    ];
    let intervals: Vec<PhaseInterval> =
        phases.into_iter().filter(|interval| interval.end_s > interval.start_s).collect();
    let quic = udp().any(|datagram| datagram.opens_quic && datagram.from_client);
    let key_exchanges = states.iter().filter(|state| state.opens_handshake).count() as u32;
    let connections = trace.connections.iter().filter(|&&port| of_service(port)).count() as u32;
    Some(Record {
        transfer_s: ns_to_s(end - request),
        session_s: ns_to_s(end - start),
        rtt_s: answer.map(|seen| since(seen.time_ns)),
        longest_gap_s: longest_gap(all.iter().map(|seen| seen.time_ns)),
        round_trips: None,
        round_trips_after: None,
        connections: connections + u32::from(udp().next().is_some()),
        handshakes: key_exchanges + u32::from(quic),
        hello_retries: 0,
        refused_commands: 0,
        handshake: None,
        data_handshake: None,
        phases: Phases::of(&intervals),
        intervals,
        tcp: Tcp::default(),
        flow: None,
    })
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;
    use crate::expectation::TimeHints;
    use crate::trace::Framing;

    /// Adds a datagram between port 4860 of the server and the client.
    fn push(trace: &mut Trace, ms: u64, from_client: bool, payload: &[u8]) {
        let (client, server) = ([10, 0, 0, 1], [10, 0, 0, 2]);
        let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0];
        packet.extend(if from_client { [client, server] } else { [server, client] }.concat());
        packet[3] = 28 + payload.len() as u8;
        let ports = if from_client { [50_000_u16, 4860] } else { [4860, 50_000] };
        packet.extend(ports.into_iter().flat_map(u16::to_be_bytes));
        packet.extend([0, 8 + payload.len() as u8, 0, 0]);
        packet.extend(payload);
        trace.push(Framing::Ip, ms * 1_000_000, &packet, packet.len() as u32);
    }

    fn expect(hints: TimeHints) -> Expectation {
        Expectation {
            port: 4860,
            data_connections: false,
            over_datagrams: true,
            upload: false,
            size: 1024,
            frame_s: 0.0,
            has_close_exchange: false,
            login: None,
            hints,
        }
    }

    #[test]
    fn a_session_lasts_from_its_first_packet_to_the_clients_timestamp() {
        let mut trace = Trace::new(IpAddr::from([10, 0, 0, 1]));
        push(&mut trace, 1, false, b"the end of an earlier one");
        push(&mut trace, 10, true, &[0xc3, 0, 0, 0, 1, 8]);
        push(&mut trace, 12, false, &[0xc1, 0, 0, 0, 1, 8]);
        push(&mut trace, 15, true, b"request");
        push(&mut trace, 20, false, b"file");
        let hints = |request: u64, done: u64| TimeHints {
            start_ns: None,
            request_ns: Some(request * 1_000_000),
            done_ns: Some(done * 1_000_000),
            login_ns: None,
        };
        let record = read(&trace, &expect(hints(14, 30))).expect("a session");
        assert!((record.session_s - 0.020).abs() < 1e-9, "{record:?}");
        assert!((record.transfer_s - 0.016).abs() < 1e-9, "{record:?}");
        assert!((record.phases.handshake - 0.004).abs() < 1e-9, "{record:?}");
        assert!((record.rtt_s.expect("an answer") - 0.002).abs() < 1e-9, "{record:?}");
        assert_eq!((record.connections, record.handshakes), (1, 1));
        let record = read(&trace, &expect(TimeHints::default())).expect("a session");
        assert!((record.session_s - 0.010).abs() < 1e-9, "{record:?}");
        assert!((record.transfer_s - 0.010).abs() < 1e-9, "{record:?}");
    }

    #[test]
    fn packets_before_the_client_began_do_not_count() {
        let mut trace = Trace::new(IpAddr::from([10, 0, 0, 1]));
        push(&mut trace, 1, true, b"the page loads");
        push(&mut trace, 10, true, &[0xc3, 0, 0, 0, 1, 8]);
        push(&mut trace, 12, false, b"file");
        let hints = TimeHints { start_ns: Some(5_000_000), ..TimeHints::default() };
        let record = read(&trace, &expect(hints)).expect("a session");
        assert!((record.session_s - 0.002).abs() < 1e-9, "{record:?}");
        let hints = TimeHints { start_ns: Some(50_000_000), ..TimeHints::default() };
        assert!(read(&trace, &expect(hints)).is_none());
    }

    #[test]
    fn ignores_other_ports() {
        let mut trace = Trace::new(IpAddr::from([10, 0, 0, 1]));
        push(&mut trace, 1, true, b"hello");
        let elsewhere = Expectation { port: 4500, ..expect(TimeHints::default()) };
        assert!(read(&trace, &elsewhere).is_none());
    }
}
