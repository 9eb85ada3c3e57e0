//! The wire clock: measures one transfer by its packets at the router.
//!
//! One pass over the trace finds, for each connection, the SYN, the handshake, the file's
//! first byte and the completion reply. `datagrams` does the same for UDP. Where encryption
//! hides an event, timestamps by client and server only select the packet that carried it.

use crate::datagrams;
use crate::events::{SURELY_DATA, completion, first_body, request};
use crate::expectation::Expectation;
use crate::flow::Flow;
use crate::phases::{Phases, follow, intervals};
use crate::record::Record;
use crate::setup::SetUp;
use crate::tcp;
use crate::time::{longest_gap, ns_to_s};
use crate::trace::{Head, Packet, Trace};

/// Measures a transfer; `None`: the trace has no connection to the application.
pub fn read(trace: &Trace, expected: &Expectation) -> Option<Record> {
    if expected.over_datagrams {
        return datagrams::read(trace, expected);
    }
    let packets = &trace.packets;
    let first = packets
        .iter()
        .position(|p| p.syn && trace.connections[p.connection as usize] == expected.port)?;
    let start = packets[first].time_ns;
    let last = completion(packets, expected)?;
    let states = follow(packets);
    let rtt_s = packets[first..]
        .iter()
        .find(|p| p.syn && !p.from_client && p.connection == packets[first].connection)
        .map(|syn_ack| ns_to_s(syn_ack.time_ns.saturating_sub(start)));
    let request = request(packets, &states, expected, rtt_s.unwrap_or(0.0));
    let body = first_body(trace, &states, request, expected);

    let session = &packets[first..=last.max(first)];
    let body_ns = body.map(|index| packets[index].time_ns);
    // a busy link can show no packet for a round trip and a frame's serialisation
    let idle_s = 0.003 + 2.0 * (expected.frame_s + rtt_s.unwrap_or(0.0));
    let intervals = intervals(session, &states[first..], body_ns, idle_s);
    let body_index = body.map_or(0, |index| index.saturating_sub(first));
    let end = packets[last].time_ns;
    let is_data = |connection: u32| trace.connections[connection as usize] != expected.port;
    let handshake = |data: bool| {
        SetUp::of_connection(packets, &states, |connection| is_data(connection) == data)
    };
    let tcp = tcp::measure(&packets[first..], expected.upload, body_index, idle_s);
    Some(Record {
        transfer_s: ns_to_s(end.saturating_sub(packets[request].time_ns)),
        session_s: ns_to_s(end.saturating_sub(start)),
        rtt_s,
        longest_gap_s: longest_gap(session.iter().map(|packet| packet.time_ns)),
        round_trips: body.map(|body| round_trips(&packets[first..=body.max(first)])),
        round_trips_after: body.map(|body| {
            let least = packets[body].payload_len.min(SURELY_DATA as u32);
            let carries = |p: &Packet| {
                p.connection == packets[body].connection
                    && p.from_client == expected.upload
                    && p.payload_len >= least
            };
            let end = last.max(body);
            let ends = packets[..=end].iter().rposition(carries).unwrap_or(body);
            round_trips_after(&packets[ends..=end])
        }),
        connections: trace.connections.len() as u32,
        handshakes: states.iter().filter(|state| state.opens_handshake).count() as u32,
        hello_retries: states.iter().filter(|state| state.retries_hello).count() as u32,
        refused_commands: refused_commands(trace, expected),
        handshake: handshake(false),
        data_handshake: handshake(true),
        phases: Phases::of(&intervals),
        intervals,
        flow: Flow::of(&packets[first..], expected.upload, &tcp),
        tcp,
    })
}

/// Counts changes from client to server, over packets that an end waits for: SYN and
/// payload. A server's `SSH_MSG_KEXINIT` answers nothing: whether it passes before the
/// client's or after it is chance.
fn round_trips(packets: &[Packet]) -> u32 {
    let mut client_sent = false;
    let mut count = 0;
    let waited_for =
        |p: &&Packet| (p.syn || p.payload_len > 0) && (p.from_client || p.head != Head::SshKexInit);
    for packet in packets.iter().filter(waited_for) {
        if client_sent && !packet.from_client {
            count += 1;
        }
        client_sent = packet.from_client;
    }
    count
}

/// Counts changes from client to server behind a file's last packet. An FTP server may wait
/// for the client's FIN on the data connection before it replies, so a FIN counts here.
fn round_trips_after(packets: &[Packet]) -> u32 {
    let mut client_sent = false;
    let mut count = 0;
    for packet in packets {
        if packet.from_client {
            client_sent |= packet.syn || packet.fin || packet.payload_len > 0;
        } else if client_sent && packet.payload_len > 0 {
            count += 1;
            client_sent = false;
        }
    }
    count
}

/// Counts replies of an FTP server on its control connection that reject a command (RFC 959
/// §4.2.1: 5yz).
fn refused_commands(trace: &Trace, expected: &Expectation) -> u32 {
    let refused = |packet: &&Packet| {
        let port = trace.connections[packet.connection as usize];
        !packet.from_client && port == expected.port && packet.head == Head::FtpRefusal
    };
    if !expected.data_connections {
        return 0;
    }
    trace.packets.iter().filter(refused).count() as u32
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;
    use crate::expectation::{Login, TimeHints};
    use crate::trace::{Framing, classify};

    /// A trace written as a dialogue: (ms, connection, from client, payload).
    fn trace(ports: &[u16], lines: &[(u64, u32, bool, &[u8])]) -> Trace {
        let mut trace = Trace::new(IpAddr::from([10, 0, 0, 1]));
        trace.connections = ports.to_vec();
        trace.packets = lines
            .iter()
            .map(|&(ms, connection, from_client, payload)| Packet {
                time_ns: ms * 1_000_000,
                connection,
                wire_len: 66 + payload.len() as u32,
                payload_len: if payload == SYN { 0 } else { payload.len() as u32 },
                seq: 0,
                ts_value: 0,
                ts_echo: 0,
                timestamped: false,
                from_client,
                syn: payload == SYN,
                fin: false,
                rst: false,
                head: classify(payload),
            })
            .collect();
        trace
    }

    const SYN: &[u8] = b"<syn>";
    const HELLO: &[u8] = &[22, 3, 1, 0, 200, 1, 0];
    const SERVER_HELLO: &[u8] = &[22, 3, 3, 0, 90, 2, 0];
    const HELLO_AGAIN: &[u8] = &[20, 3, 3, 0, 1, 1, 22, 3, 3, 0, 200, 1, 0, 0, 196];
    const FINISHED: &[u8] = &[20, 3, 3, 0, 1, 1, 23, 3, 3, 0, 50];
    const RECORD: &[u8] = &[23, 3, 3, 0, 50];

    fn expect(port: u16, data_connections: bool) -> Expectation {
        Expectation {
            port,
            data_connections,
            over_datagrams: false,
            upload: false,
            size: 1024,
            frame_s: 0.0,
            has_close_exchange: false,
            login: None,
            hints: TimeHints::default(),
        }
    }

    #[test]
    fn an_incomplete_handshake_is_no_set_up() {
        let lines: [(u64, u32, bool, &[u8]); 7] = [
            (0, 0, true, SYN),
            (1, 0, false, SYN),
            (1, 0, true, b""),
            (2, 0, true, HELLO),
            (4, 0, false, SERVER_HELLO),
            (7, 0, true, FINISHED),
            (8, 0, false, RECORD),
        ];
        for seen in 0..=lines.len() {
            let set_up = SetUp::of_tls(&trace(&[443], &lines[..seen]));
            let expected = (seen > 5).then_some((3, 1));
            assert_eq!(set_up.map(|s| (s.packets, s.round_trips)), expected, "{seen} packets");
        }
    }

    #[test]
    fn crossing_key_exchange_offers_are_no_round_trip() {
        let offer = [0, 0, 4, 0, 6, 20, 1, 2];
        let reply = [0, 0, 2, 0, 6, 31, 1, 2];
        let count = |offers_cross: bool| {
            let offers =
                if offers_cross { [(4, false), (5, true)] } else { [(4, true), (5, false)] };
            let lines: Vec<(u64, u32, bool, &[u8])> = [
                (0, 0, true, SYN),
                (1, 0, false, SYN),
                (2, 0, true, b"SSH-2.0-client".as_slice()),
                (3, 0, false, b"SSH-2.0-server".as_slice()),
            ]
            .into_iter()
            .chain(offers.map(|(ms, from_client)| (ms, 0, from_client, offer.as_slice())))
            .chain([(6, 0, true, reply.as_slice()), (7, 0, false, reply.as_slice())])
            .collect();
            round_trips(&trace(&[22], &lines).packets)
        };
        assert_eq!((count(true), count(false)), (3, 3));
    }

    #[test]
    fn counts_commands_that_an_ftp_server_rejects() {
        let lines: [(u64, u32, bool, &[u8]); 8] = [
            (0, 0, true, SYN),
            (1, 0, false, SYN),
            (2, 0, false, b"220 welcome"),
            (3, 0, true, b"AUTH SSL"),
            (4, 0, false, b"500 This security scheme is not implemented"),
            (5, 0, true, b"AUTH TLS"),
            (6, 0, false, b"234 AUTH TLS OK."),
            (7, 1, false, b"500 bytes of a file begin so"),
        ];
        assert_eq!(refused_commands(&trace(&[21, 40_000], &lines), &expect(21, true)), 1);
    }

    #[test]
    fn plain_http_takes_two_round_trips() {
        let body = [7; 1200];
        let trace = trace(
            &[80],
            &[
                (0, 0, true, SYN),
                (1, 0, false, SYN),
                (1, 0, true, b""),
                (2, 0, true, b"GET / HTTP/1.1"),
                (4, 0, false, &body),
                (5, 0, false, b"end"),
            ],
        );
        let record = read(&trace, &expect(80, false)).expect("a session");
        assert_eq!(record.round_trips, Some(2));
        assert_eq!((record.connections, record.handshakes), (1, 0));
        assert!((record.session_s - 0.005).abs() < 1e-9);
        assert!((record.transfer_s - 0.003).abs() < 1e-9);
        assert!((record.phases.body - 0.003).abs() < 1e-9, "{:?}", record.phases);
        assert!((record.phases.connect - 0.001).abs() < 1e-9, "{:?}", record.phases);
    }

    #[test]
    fn the_flow_is_that_of_the_busiest_connection() {
        let full = [7; 1000];
        let mut trace = trace(
            &[5201, 5201],
            &[
                (0, 0, true, SYN),
                (1, 0, false, SYN),
                (2, 0, true, b"the cookie"),
                (3, 1, true, SYN),
                (4, 1, true, b"the cookie"),
                (10, 1, true, &full),
                (20, 1, true, &full),
                (30, 1, true, b"less"),
                (31, 1, false, b""),
                (40, 0, true, b"results"),
                (41, 0, false, b"results"),
            ],
        );
        // a sequence number for each byte
        let mut next = [0; 2];
        for packet in trace.packets.iter_mut().filter(|packet| packet.from_client) {
            let at = &mut next[packet.connection as usize];
            packet.seq = *at;
            *at += packet.payload_len + u32::from(packet.syn);
        }
        let expected = Expectation { upload: true, ..expect(5201, false) };
        let flow = read(&trace, &expected).and_then(|record| record.flow).expect("a flow");
        assert!((flow.seconds - 0.020).abs() < 1e-9, "{flow:?}");
        assert_eq!(flow.bytes, 10 + 10 + 2004 + 7);
        let download = Expectation { upload: false, ..expected };
        assert_eq!(read(&trace, &download).and_then(|record| record.flow), None);
    }

    #[test]
    fn ftps_counts_both_handshakes_and_the_retry_in_each() {
        let body = [23; 1200];
        let mut lines: Vec<(u64, u32, bool, &[u8])> = vec![
            (0, 0, true, SYN),
            (0, 0, false, SYN),
            (0, 0, true, b""),
            (1, 0, false, b"220 hello"),
            (1, 0, true, b"AUTH TLS"),
            (2, 0, false, b"234 go"),
        ];
        let handshake = |connection: u32, at: u64| -> Vec<(u64, u32, bool, &[u8])> {
            vec![
                (at, connection, true, HELLO),
                (at, connection, false, SERVER_HELLO),
                (at, connection, true, HELLO_AGAIN),
                (at + 1, connection, false, SERVER_HELLO),
                (at + 1, connection, true, FINISHED),
            ]
        };
        lines.extend(handshake(0, 3));
        lines.extend([(5, 0, true, RECORD), (5, 0, false, RECORD)]); // EPSV
        lines.extend([(6, 1, true, SYN), (6, 1, false, SYN), (6, 1, true, &b""[..])]);
        lines.extend([(6, 0, true, RECORD), (6, 0, false, RECORD)]); // RETR
        lines.extend(handshake(1, 7));
        lines.extend([(9, 1, false, &body[..]), (30, 0, false, RECORD)]);
        let trace = trace(&[21, 50_000], &lines);
        let expected = Expectation {
            hints: TimeHints {
                start_ns: None,
                request_ns: Some(5_000_000),
                done_ns: Some(31_000_000),
                login_ns: None,
            },
            ..expect(21, true)
        };
        let record = read(&trace, &expected).expect("a session");
        assert_eq!((record.connections, record.handshakes, record.hello_retries), (2, 2, 2));
        // SYN, AUTH, 2 hellos, EPSV, SYN, RETR, 2 hellos, and the Finished
        // that the first byte answers
        assert_eq!(record.round_trips, Some(10));
        assert!((record.transfer_s - 0.025).abs() < 1e-9);
        assert!((record.phases.idle - 0.021).abs() < 1e-9, "{:?}", record.phases);
        let sum = record.intervals.iter().map(|s| s.end_s - s.start_s).sum::<f64>();
        assert!((sum - record.session_s).abs() < 1e-9);
    }

    #[test]
    fn a_handshake_of_tls_1_2_ends_with_the_servers_finished() {
        let (body, certificate) = ([23, 3, 3, 4].repeat(300), [22, 3, 3, 0, 9, 2].repeat(100));
        let key = [22, 3, 3, 0, 70, 16, 0];
        let finished = [20, 3, 3, 0, 1, 1, 22, 3, 3, 0, 40, 1]; // encrypted: as a hello
        let trace = trace(
            &[21, 50_000],
            &[
                (0, 0, true, SYN),
                (0, 0, false, SYN),
                (1, 0, true, HELLO),
                (2, 0, false, &certificate),
                (3, 0, true, &key),
                (5, 0, false, &finished),
                (6, 0, true, RECORD), // RETR
                (7, 1, true, SYN),
                (7, 1, false, SYN),
                (8, 1, true, HELLO),
                (9, 1, false, &certificate),
                (9, 1, true, b""),
                (10, 1, true, &key),
                (11, 1, false, &finished),
                (12, 1, false, &body), // the client says nothing more
                (20, 1, false, &body),
                (21, 0, false, RECORD),
            ],
        );
        let hints = TimeHints { request_ns: Some(6_000_000), ..TimeHints::default() };
        let record = read(&trace, &Expectation { hints, ..expect(21, true) }).expect("a session");
        assert_eq!((record.handshakes, record.hello_retries), (2, 0));
        let handshake = record.handshake.expect("of the control connection");
        assert_eq!((handshake.packets, handshake.round_trips), (4, 2));
        assert!((handshake.seconds - 0.004).abs() < 1e-9, "{handshake:?}");
        let handshake = record.data_handshake.expect("of the data connection");
        assert_eq!((handshake.packets, handshake.round_trips), (5, 2));
        assert!((record.phases.handshake - 0.009).abs() < 1e-9, "{:?}", record.phases);
        assert!(record.phases.body + record.phases.idle >= 0.009, "{:?}", record.phases);
    }

    #[test]
    fn a_resumed_handshake_of_tls_1_2_ends_with_the_clients_finished() {
        // encrypted: as a hello, but for its length
        let finished = [20, 3, 3, 0, 1, 1, 22, 3, 3, 0, 40, 1, 0, 0, 40];
        let body = [23, 3, 3, 4].repeat(300);
        for upload in [false, true] {
            let trace = trace(
                &[21, 50_000],
                &[
                    (0, 0, true, SYN),
                    (0, 0, false, SYN),
                    (1, 0, true, b"EPSV"),
                    (2, 1, true, SYN),
                    (2, 1, false, SYN),
                    (2, 1, true, b""),
                    (3, 1, true, HELLO),
                    (4, 1, false, SERVER_HELLO),
                    (5, 1, true, &finished),
                    (7, 1, upload, &body),
                    (9, 1, upload, &body),
                    (10, 0, false, b"226"),
                ],
            );
            let hints = TimeHints { request_ns: Some(1_000_000), ..TimeHints::default() };
            let expected = Expectation { hints, upload, ..expect(21, true) };
            let record = read(&trace, &expected).expect("a session");
            assert_eq!((record.handshakes, record.hello_retries), (1, 0));
            let handshake = record.data_handshake.expect("of the data connection");
            assert_eq!((handshake.packets, handshake.round_trips), (3, 1));
            assert!((handshake.seconds - 0.002).abs() < 1e-9, "{handshake:?}");
            let phases = record.phases;
            assert!((phases.body + phases.idle - 0.005).abs() < 1e-9, "{phases:?}");
        }
    }

    #[test]
    fn recognises_a_login_by_the_sizes_of_its_answers() {
        let payload = |bytes: usize| vec![7; bytes];
        for streams in [0, 1] {
            let login = Login { opened: 52, granted: 36 }.inside(streams);
            let (accept, success) =
                (payload(login.opened as usize), payload(login.granted as usize));
            let (words, other, body) = (payload(100), payload(500), payload(1200));
            let trace = trace(
                &[22],
                &[
                    (0, 0, true, SYN),
                    (1, 0, false, SYN),
                    (2, 0, false, &success), // a version line may be as long
                    (3, 0, true, &other),
                    (4, 0, false, &other),
                    (5, 0, true, &words),
                    (6, 0, false, &accept),
                    (7, 0, true, &words),
                    (8, 0, false, &accept), // publickey, nothing else
                    (9, 0, true, &other),
                    (10, 0, false, &success),
                    (11, 0, true, &words), // the first data command
                    (12, 0, false, &success),
                    (13, 0, true, &words),
                    (15, 0, false, &body),
                ],
            );
            let expected = Expectation { login: Some(login), ..expect(22, false) };
            let record = read(&trace, &expected).expect("a session");
            assert!((record.transfer_s - 0.004).abs() < 1e-9, "{record:?}");
            assert!((record.session_s - 0.015).abs() < 1e-9, "{record:?}");
        }
    }

    #[test]
    fn a_download_is_complete_when_the_client_has_read_it() {
        let body = [7; 1200];
        let mut trace = trace(
            &[80],
            &[
                (0, 0, true, SYN),
                (1, 0, false, SYN),
                (2, 0, true, b"GET / HTTP/1.1"),
                (4, 0, false, &body),
                (9, 0, true, b""),
            ],
        );
        trace.packets[4].fin = true;
        let hints = TimeHints { done_ns: Some(8_500_000), ..TimeHints::default() };
        let expected = Expectation { hints, ..expect(80, false) };
        let session = |expected| read(&trace, &expected).expect("a session").session_s;
        assert!((session(expected) - 0.009).abs() < 1e-9);
        assert!((session(Expectation { upload: true, ..expected }) - 0.004).abs() < 1e-9);
    }

    #[test]
    fn an_ssh_login_ends_at_the_packet_after_the_servers_timestamp() {
        let body = [9; 1100];
        let new_keys = [0, 0, 0, 12, 10, 21, 0];
        let trace = trace(
            &[22],
            &[
                (0, 0, true, SYN),
                (0, 0, false, SYN),
                (0, 0, true, b"SSH-2.0-x"),
                (1, 0, false, b"SSH-2.0-y"),
                (2, 0, true, &[7; 1400]),
                (2, 0, false, &[7; 1100]),
                (3, 0, true, &new_keys),
                (4, 0, true, &[1; 100]),
                (5, 0, false, &[1; 50]),
                (6, 0, true, &[1; 60]),
                (7, 0, false, &body),
            ],
        );
        let expected = Expectation {
            hints: TimeHints { login_ns: Some(5_200_000), ..TimeHints::default() },
            ..expect(22, false)
        };
        let record = read(&trace, &expected).expect("a session");
        assert!((record.transfer_s - 0.001).abs() < 1e-9);
        assert!((record.phases.handshake - 0.003).abs() < 1e-9, "{:?}", record.phases);
        assert_eq!(record.handshakes, 1);
    }

    #[test]
    fn a_login_whose_log_was_read_late_is_recognised_by_its_answers() {
        let payload = |bytes: usize| vec![7; bytes];
        let login = Login { opened: 52, granted: 36 };
        let (accept, success) = (payload(52), payload(36));
        let (words, body) = (payload(100), payload(1200));
        let trace = trace(
            &[22],
            &[
                (0, 0, true, SYN),
                (1, 0, false, SYN),
                (2, 0, true, &words),
                (3, 0, false, &accept),
                (4, 0, true, &words),
                (5, 0, false, &success),
                (6, 0, true, &words), // the first data command
                (7, 0, false, &words),
                (8, 0, true, &body),
                (9, 0, false, &words),
                (10, 0, true, &words),
                (11, 0, false, &words),
            ],
        );
        for late in [8_900_000, 12_000_000] {
            let hints = TimeHints { login_ns: Some(late), ..TimeHints::default() };
            let expected =
                Expectation { login: Some(login), upload: true, hints, ..expect(22, false) };
            let record = read(&trace, &expected).expect("a session");
            assert!((record.transfer_s - 0.005).abs() < 1e-9, "{record:?}");
        }
    }

    #[test]
    fn a_tls_close_notify_is_no_reply() {
        let (body, close_notify) = ([23, 3, 3, 9, 9].repeat(300), [23, 3, 3, 0, 19].repeat(5));
        let close_notify = &close_notify[..24];
        let trace = trace(
            &[14_401],
            &[
                (0, 0, true, SYN),
                (0, 0, false, SYN),
                (1, 0, true, HELLO),
                (2, 0, false, SERVER_HELLO),
                (3, 0, true, FINISHED),
                (4, 0, true, RECORD),
                (5, 0, false, &body),
                (6, 0, true, RECORD),  // close of the file
                (7, 0, false, RECORD), // its answer: complete
                (8, 0, true, RECORD),  // end of file
                (9, 0, false, RECORD), // exit status
                (10, 0, true, RECORD), // disconnect
                (11, 0, true, close_notify),
                (12, 0, false, close_notify),
            ],
        );
        let expected = Expectation { has_close_exchange: true, ..expect(14_401, false) };
        let record = read(&trace, &expected).expect("a session");
        assert!((record.session_s - 0.007).abs() < 1e-9, "{}", record.session_s);
    }

    #[test]
    fn ignores_the_end_of_an_earlier_connection() {
        let mut trace = Trace::new(IpAddr::from([10, 0, 0, 1]));
        trace.push(Framing::Ethernet, 1, &[0; 10], 10);
        assert!(read(&trace, &expect(21, true)).is_none());
    }
}
