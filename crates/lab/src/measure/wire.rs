//! The wire clock: what the packets at the router say of one transfer.
//!
//! A transfer is read from its trace in one pass, connection by connection:
//! when it connected, when it shook hands, when the file's first octet passed,
//! when the completion reply did. Marks from client and server (wall clock)
//! only say *which* packet carried an event that encryption hides.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use headroom_packet::Segment;
use serde::{Deserialize, Serialize};

/// One frame of a trace.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Packet {
    /// Nanoseconds since the epoch.
    pub(crate) time_ns: u64,
    /// Index into [`Trace::connections`].
    connection: u32,
    wire_len: u32,
    payload_len: u32,
    from_client: bool,
    syn: bool,
    fin: bool,
    head: Head,
}

/// What the first octets of a payload say.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Head {
    Plain,
    /// A TLS handshake record in the clear; true for a ClientHello.
    TlsHandshake(bool),
    /// Encrypted TLS records, perhaps after a change-cipher-spec.
    TlsData,
    /// `SSH-2.0-…`, which opens a key exchange.
    SshVersion,
    /// `SSH_MSG_NEWKEYS` (RFC 4253 §7.3), which ends it.
    SshNewKeys,
}

/// All TCP frames of a transfer, in the order in which the router saw them.
#[derive(Debug)]
pub(crate) struct Trace {
    client: IpAddr,
    index: HashMap<(SocketAddr, SocketAddr), u32>,
    /// The server's port of each connection.
    connections: Vec<u16>,
    packets: Vec<Packet>,
    /// Everything that was seen, TCP or not.
    frames: u64,
}

impl Trace {
    pub(crate) fn new(client: IpAddr) -> Self {
        Self {
            client,
            index: HashMap::new(),
            connections: Vec::new(),
            packets: Vec::new(),
            frames: 0,
        }
    }

    /// Adds a captured frame; anything but TCP is passed over.
    pub(crate) fn push(&mut self, time_ns: u64, head: &[u8], wire_len: u32) {
        self.frames += 1;
        let Ok(segment) = Segment::parse(head, wire_len as usize) else { return };
        let from_client = segment.source.ip() == self.client;
        let (client, server) = if from_client {
            (segment.source, segment.destination)
        } else {
            (segment.destination, segment.source)
        };
        let opens = segment.tcp.syn() && !segment.tcp.ack();
        let connection = match self.index.get(&(client, server)) {
            Some(&known) if !opens => known,
            // the tail of an earlier transfer's connection: its SYN is not here
            None if !opens => return,
            _ => {
                let new = self.connections.len() as u32;
                self.connections.push(server.port());
                self.index.insert((client, server), new);
                new
            }
        };
        self.packets.push(Packet {
            time_ns,
            connection,
            wire_len,
            payload_len: u32::try_from(segment.payload_len).unwrap_or(u32::MAX),
            from_client,
            syn: segment.tcp.syn(),
            fin: segment.tcp.fin(),
            head: classify(segment.payload),
        });
    }

    /// Frames seen, TCP or not.
    pub(crate) fn frames(&self) -> u64 {
        self.frames
    }

    /// Octets of the largest frame, Ethernet header included.
    pub(crate) fn largest_frame(&self) -> u32 {
        self.packets.iter().map(|packet| packet.wire_len).max().unwrap_or(0)
    }

    /// Bits per second on the wire of the frames towards the client (or from
    /// it), between `from` and `to` as fractions of the trace; each frame counts
    /// with `framing` more octets.
    pub(crate) fn rate(&self, from_client: bool, framing: u32, from: f64, to: f64) -> Option<f64> {
        let frames: Vec<&Packet> = self
            .packets
            .iter()
            .filter(|packet| packet.from_client == from_client && packet.payload_len > 0)
            .collect();
        let at = |fraction: f64| (frames.len() as f64 * fraction) as usize;
        let window = frames.get(at(from)..at(to)).filter(|window| window.len() > 10)?;
        let seconds = ns_to_s(window.last()?.time_ns - window.first()?.time_ns);
        // the first frame's octets passed before its time stamp
        let octets: u64 =
            window[1..].iter().map(|p| u64::from((p.wire_len + framing).max(84))).sum();
        (seconds > 0.0).then(|| octets as f64 * 8.0 / seconds)
    }
}

/// What has to be known about a transfer to read its trace.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Expectation {
    /// Port on which the service listens; other ports are FTP data connections.
    pub(crate) port: u16,
    /// Whether file data has connections of its own (FTP).
    pub(crate) data_connections: bool,
    /// Whether the client sends the file.
    pub(crate) upload: bool,
    /// Octets of one file; 0 where there is none.
    pub(crate) size: u64,
    /// Time that a full frame takes on the link, seconds; 0 on an unshaped one.
    pub(crate) frame_s: f64,
    /// Whether the session ends with an exchange of its own behind the last
    /// reply (SSH: end of file, exit status, close; RFC 4254 §6.10).
    pub(crate) parting: bool,
    pub(crate) marks: Marks,
}

/// Wall-clock instants, nanoseconds since the epoch, that name a packet.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Marks {
    /// The client has just written its first data command.
    pub(crate) request_ns: Option<u64>,
    /// The server has just accepted the login.
    pub(crate) login_ns: Option<u64>,
    /// The client has just read the completion reply.
    pub(crate) done_ns: Option<u64>,
}

/// What the wire says of one transfer. Times in seconds.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Record {
    /// First data command to completion.
    pub(crate) transfer_s: f64,
    /// First SYN to completion.
    pub(crate) session_s: f64,
    /// SYN to SYN-ACK at the router.
    pub(crate) rtt_s: Option<f64>,
    /// The longest time between two packets.
    pub(crate) longest_gap_s: f64,
    /// Times that the client spoke and the server answered before the file's
    /// first octet; none where no file data was seen.
    pub(crate) round_trips: Option<u32>,
    pub(crate) connections: u32,
    /// TLS handshakes or SSH key exchanges.
    pub(crate) handshakes: u32,
    /// TLS handshakes in which the server asked for another key share.
    pub(crate) hello_retries: u32,
    /// Octets of all frames, Ethernet headers included.
    pub(crate) bytes: u64,
    /// Of these, in the direction of the file.
    pub(crate) file_direction_bytes: u64,
    pub(crate) packets: u64,
    pub(crate) phases: Phases,
    pub(crate) segments: Vec<Stretch>,
}

/// What a session was doing, in seconds; sums to the session.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Phases {
    /// TCP connections being opened.
    pub connect: f64,
    /// TLS handshakes and SSH key exchanges.
    pub handshake: f64,
    /// Everything else before the file's first octet: greetings, login, commands.
    pub login: f64,
    /// From the wait for the file's first packet to completion.
    pub body: f64,
    /// Stretches without any packet, longer than 3 ms, two round trips and two
    /// full frames.
    pub idle: f64,
}

/// The names of [`Phases`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// See [`Phases::connect`].
    Connect,
    /// See [`Phases::handshake`].
    Handshake,
    /// See [`Phases::login`].
    Login,
    /// See [`Phases::body`].
    Body,
    /// See [`Phases::idle`].
    Idle,
}

/// A stretch of a session in one phase; seconds since the first SYN.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Stretch {
    /// What the session was doing.
    pub kind: Phase,
    /// Beginning.
    pub start_s: f64,
    /// End.
    pub end_s: f64,
}

impl Phases {
    fn of(segments: &[Stretch]) -> Self {
        let mut phases = Self::default();
        for segment in segments {
            *phases.get_mut(segment.kind) += segment.end_s - segment.start_s;
        }
        phases
    }

    fn get_mut(&mut self, phase: Phase) -> &mut f64 {
        match phase {
            Phase::Connect => &mut self.connect,
            Phase::Handshake => &mut self.handshake,
            Phase::Login => &mut self.login,
            Phase::Body => &mut self.body,
            Phase::Idle => &mut self.idle,
        }
    }

    /// The mean of several.
    pub(crate) fn mean<'a>(all: impl ExactSizeIterator<Item = &'a Self>) -> Self {
        let n = all.len().max(1) as f64;
        all.fold(Self::default(), |sum, one| Self {
            connect: sum.connect + one.connect / n,
            handshake: sum.handshake + one.handshake / n,
            login: sum.login + one.login / n,
            body: sum.body + one.body / n,
            idle: sum.idle + one.idle / n,
        })
    }
}

/// Reads a trace; `None` where it holds no connection to the service.
pub(crate) fn read(trace: &Trace, expected: &Expectation) -> Option<Record> {
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
        .map(|syn_ack| ns_to_s(syn_ack.time_ns - start));
    let request = request(packets, &states, expected, rtt_s.unwrap_or(0.0));
    let body = first_body(trace, &states, request, expected);

    let session = &packets[first..=last.max(first)];
    let body_ns = body.map(|index| packets[index].time_ns);
    let segments =
        stretches(session, &states[first..], body_ns, expected.frame_s + rtt_s.unwrap_or(0.0));
    let end = packets[last].time_ns;
    Some(Record {
        transfer_s: ns_to_s(end.saturating_sub(packets[request].time_ns)),
        session_s: ns_to_s(end.saturating_sub(start)),
        rtt_s,
        longest_gap_s: longest_gap(session),
        round_trips: body.map(|body| round_trips(&packets[first..=body.max(first)])),
        connections: trace.connections.len() as u32,
        handshakes: states.iter().filter(|state| state.opens_handshake).count() as u32,
        hello_retries: states.iter().filter(|state| state.retries_hello).count() as u32,
        bytes: octets(packets.iter()),
        file_direction_bytes: octets(packets.iter().filter(|p| p.from_client == expected.upload)),
        packets: packets.len() as u64,
        phases: Phases::of(&segments),
        segments,
    })
}

/// Index of the packet that says that the transfer is complete.
///
/// For an upload it is the server's reply: the last payload from the server that
/// the client had read when it said that it was done. For a download it is the
/// client's first word or FIN after it: megabytes can wait in the client's socket
/// buffer, still to be decrypted, when the last packet has passed. A client that
/// says nothing (SFTP) has an answer to its last close; where the session parts
/// with an exchange of its own, that answer is the one before it.
fn completion(packets: &[Packet], expected: &Expectation) -> Option<usize> {
    let reply = |p: &Packet| !p.from_client && p.payload_len > 0;
    let speaks = |p: &Packet| p.from_client && p.payload_len > 0;
    let last = packets.iter().rposition(reply)?;
    let Some(done) = expected.marks.done_ns else {
        let goodbye = packets[..last].iter().rposition(speaks).filter(|_| expected.parting);
        return goodbye.and_then(|at| packets[..at].iter().rposition(reply)).or(Some(last));
    };
    let replied = packets.iter().rposition(|p| reply(p) && p.time_ns <= done).unwrap_or(last);
    let parts = |p: &Packet| p.from_client && (p.fin || p.payload_len > 0) && p.time_ns >= done;
    let parted = packets[replied..].iter().position(parts).map(|after| replied + after);
    Some(if expected.upload { replied } else { parted.unwrap_or(replied) })
}

/// Index of the packet that carried the first data command.
fn request(packets: &[Packet], states: &[State], expected: &Expectation, rtt_s: f64) -> usize {
    let speaks = |p: &Packet| p.from_client && p.payload_len > 0;
    let from_mark =
        if let Some(mark) = expected.marks.request_ns.filter(|_| expected.data_connections) {
            // FTP: the client takes the time after it has written
            packets
                .iter()
                .rposition(|p| speaks(p) && p.time_ns <= mark)
                .or_else(|| packets.iter().position(|p| speaks(p) && p.time_ns >= mark))
        } else if let Some(mark) = expected.marks.login_ns {
            // the server logs when it answers, the answer passes here half a round
            // trip later, and the client speaks next
            let mark = mark + (rtt_s * 0.5e9) as u64;
            packets
                .iter()
                .enumerate()
                .filter(|(_, p)| !p.from_client && p.payload_len > 0)
                .min_by_key(|(_, p)| p.time_ns.abs_diff(mark))
                .and_then(|(success, _)| {
                    packets[success..].iter().position(speaks).map(|next| success + next)
                })
        } else {
            None
        };
    // HTTP: the first that the client says when hands are shaken
    let first_word = || {
        packets
            .iter()
            .zip(states)
            .position(|(p, state)| speaks(p) && state.phase != Phase::Handshake)
    };
    from_mark.or_else(first_word).unwrap_or(0)
}

/// Index of the first packet with the file's octets: big enough, in the file's
/// direction, after the request, outside any handshake.
fn first_body(
    trace: &Trace,
    states: &[State],
    request: usize,
    expected: &Expectation,
) -> Option<usize> {
    // two TLS session tickets may come in one packet of 500 octets
    const SURELY_DATA: u64 = 1000;
    let least = expected.size.min(SURELY_DATA) as u32;
    // what is smaller cannot be told from set-up where both are encrypted
    let hidden = states.iter().any(|state| state.opens_handshake) && expected.size < SURELY_DATA;
    if least == 0 || hidden {
        return None;
    }
    trace.packets.iter().zip(states).enumerate().skip(request).find_map(|(index, (p, state))| {
        let port = trace.connections[p.connection as usize];
        let right_connection = (port != expected.port) == expected.data_connections;
        let carries = p.payload_len >= least
            && p.from_client == expected.upload
            && state.phase != Phase::Handshake;
        (right_connection && carries).then_some(index)
    })
}

/// Times that the direction changed from client to server's answer, counting
/// only what must be waited for: SYN and payload.
fn round_trips(packets: &[Packet]) -> u32 {
    let mut client_spoke = false;
    let mut count = 0;
    for packet in packets.iter().filter(|p| p.syn || p.payload_len > 0) {
        if client_spoke && !packet.from_client {
            count += 1;
        }
        client_spoke = packet.from_client;
    }
    count
}

fn octets<'a>(packets: impl Iterator<Item = &'a Packet>) -> u64 {
    packets.map(|packet| u64::from(packet.wire_len)).sum()
}

fn longest_gap(packets: &[Packet]) -> f64 {
    let gaps = packets.windows(2).map(|pair| pair[1].time_ns.saturating_sub(pair[0].time_ns));
    ns_to_s(gaps.max().unwrap_or(0))
}

/// What a packet is part of, seen from its own connection.
#[derive(Debug, Clone, Copy)]
struct State {
    /// Connect, Handshake, or Login for everything else.
    phase: Phase,
    opens_handshake: bool,
    retries_hello: bool,
}

/// Follows each connection from SYN through its handshake.
fn follow(packets: &[Packet]) -> Vec<State> {
    #[derive(Clone, Copy, PartialEq)]
    enum At {
        Connecting,
        Plain,
        Handshake,
        Secured,
    }
    let mut connections: HashMap<u32, At> = HashMap::new();
    packets
        .iter()
        .map(|packet| {
            let at = connections.entry(packet.connection).or_insert(At::Connecting);
            let mut state =
                State { phase: Phase::Login, opens_handshake: false, retries_hello: false };
            match *at {
                At::Connecting => {
                    state.phase = Phase::Connect;
                    if !packet.syn {
                        *at = At::Plain; // the ACK that ends the TCP handshake, or data with it
                    }
                }
                At::Handshake => {
                    state.phase = Phase::Handshake;
                    state.retries_hello = packet.head == Head::TlsHandshake(true);
                }
                At::Plain | At::Secured => {}
            }
            match (*at, packet.head) {
                (At::Plain, Head::TlsHandshake(true) | Head::SshVersion) => {
                    *at = At::Handshake;
                    state.phase = Phase::Handshake;
                    state.opens_handshake = true;
                }
                (At::Handshake, Head::TlsData | Head::SshNewKeys) if packet.from_client => {
                    *at = At::Secured;
                }
                _ => {}
            }
            state
        })
        .collect()
}

/// Cuts a session into stretches: the time before each packet belongs to what
/// that packet is part of. `quiet_s` is how long a busy link may show no packet:
/// a round trip, and a frame's own time.
fn stretches(
    packets: &[Packet],
    states: &[State],
    body_ns: Option<u64>,
    quiet_s: f64,
) -> Vec<Stretch> {
    let idle_s = 0.003 + 2.0 * quiet_s;
    let start = packets.first().map_or(0, |p| p.time_ns);
    let mut stretches: Vec<Stretch> = Vec::new();
    let mut previous = start;
    for (packet, state) in packets.iter().zip(states) {
        let now = packet.time_ns.max(previous);
        let kind = if ns_to_s(now - previous) > idle_s {
            Phase::Idle
        } else if state.phase == Phase::Login && body_ns.is_some_and(|body| now >= body) {
            Phase::Body
        } else {
            state.phase
        };
        let (from, to) = (ns_to_s(previous - start), ns_to_s(now - start));
        match stretches.last_mut() {
            Some(last) if last.kind == kind => last.end_s = to,
            _ if to > from => stretches.push(Stretch { kind, start_s: from, end_s: to }),
            _ => {}
        }
        previous = now;
    }
    stretches
}

fn classify(payload: &[u8]) -> Head {
    const CHANGE_CIPHER_SPEC: &[u8] = &[20, 3, 3, 0, 1, 1];
    // RFC 8446 §5: one such record may stand before any other, for middleboxes
    let record = payload.strip_prefix(CHANGE_CIPHER_SPEC).unwrap_or(payload);
    match record {
        // type handshake, legacy version 3.x, length, ClientHello or other
        [22, 3, 1..=4, _, _, kind, ..] => Head::TlsHandshake(*kind == 1),
        [23, 3, 3, ..] => Head::TlsData,
        _ if payload.starts_with(b"SSH-2.0-") => Head::SshVersion,
        // RFC 4253 §6: length (4), padding length, then the message number
        [0, 0, _, _, _, 21, ..] => Head::SshNewKeys,
        _ => Head::Plain,
    }
}

fn ns_to_s(ns: u64) -> f64 {
    ns as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

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
                from_client,
                syn: payload == SYN,
                fin: false,
                head: classify(payload),
            })
            .collect();
        trace
    }

    const SYN: &[u8] = b"<syn>";
    const HELLO: &[u8] = &[22, 3, 1, 0, 200, 1, 0];
    const SERVER_HELLO: &[u8] = &[22, 3, 3, 0, 90, 2, 0];
    const HELLO_AGAIN: &[u8] = &[20, 3, 3, 0, 1, 1, 22, 3, 3, 0, 200, 1];
    const FINISHED: &[u8] = &[20, 3, 3, 0, 1, 1, 23, 3, 3, 0, 50];
    const RECORD: &[u8] = &[23, 3, 3, 0, 50];

    fn expect(port: u16, data_connections: bool) -> Expectation {
        Expectation {
            port,
            data_connections,
            upload: false,
            size: 1024,
            frame_s: 0.0,
            parting: false,
            marks: Marks::default(),
        }
    }

    #[test]
    fn plain_http_is_two_round_trips() {
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
            marks: Marks { request_ns: Some(5_000_000), done_ns: Some(31_000_000), login_ns: None },
            ..expect(21, true)
        };
        let record = read(&trace, &expected).expect("a session");
        assert_eq!((record.connections, record.handshakes, record.hello_retries), (2, 2, 2));
        // SYN, AUTH, 2 hellos, EPSV, SYN, RETR, 2 hellos, and the Finished
        // that the first octet answers
        assert_eq!(record.round_trips, Some(10));
        assert!((record.transfer_s - 0.025).abs() < 1e-9);
        assert!((record.phases.idle - 0.021).abs() < 1e-9, "{:?}", record.phases);
        let sum = record.segments.iter().map(|s| s.end_s - s.start_s).sum::<f64>();
        assert!((sum - record.session_s).abs() < 1e-9);
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
        let marks = Marks { done_ns: Some(8_500_000), ..Marks::default() };
        let expected = Expectation { marks, ..expect(80, false) };
        let session = |expected| read(&trace, &expected).expect("a session").session_s;
        assert!((session(expected) - 0.009).abs() < 1e-9);
        assert!((session(Expectation { upload: true, ..expected }) - 0.004).abs() < 1e-9);
    }

    #[test]
    fn ssh_login_ends_at_the_packet_after_the_servers_word() {
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
            marks: Marks { login_ns: Some(5_200_000), ..Marks::default() },
            ..expect(22, false)
        };
        let record = read(&trace, &expected).expect("a session");
        assert!((record.transfer_s - 0.001).abs() < 1e-9);
        assert!((record.phases.handshake - 0.003).abs() < 1e-9, "{:?}", record.phases);
        assert_eq!(record.handshakes, 1);
    }

    #[test]
    fn tail_of_an_earlier_connection_is_not_part_of_the_trace() {
        let mut trace = Trace::new(IpAddr::from([10, 0, 0, 1]));
        trace.push(1, &[0; 10], 10);
        assert!(read(&trace, &expect(21, true)).is_none());
    }
}
