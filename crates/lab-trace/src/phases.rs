//! Divides a session into phases: connect, handshake, login, body, idle.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use crate::time::ns_to_s;
use crate::trace::{Head, Packet};

/// The time of a session in each phase, seconds; the sum is the session.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Phases {
    /// Opening TCP connections.
    pub connect: f64,
    /// TLS handshakes and SSH key exchanges.
    pub handshake: f64,
    /// Everything else before the file's first byte: greetings, login, commands.
    pub login: f64,
    /// Time from the wait for the file's first packet to completion.
    pub body: f64,
    /// Silences longer than 3 ms plus two round trips plus two full frames.
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

/// An interval of a session in one phase; seconds since its first packet.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct PhaseInterval {
    /// The phase.
    pub kind: Phase,
    /// Start.
    pub start_s: f64,
    /// End.
    pub end_s: f64,
}

impl Phases {
    pub(crate) fn of(intervals: &[PhaseInterval]) -> Self {
        let mut phases = Self::default();
        for interval in intervals {
            *phases.get_mut(interval.kind) += interval.end_s - interval.start_s;
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

    /// Averages several sessions.
    pub fn mean<'a>(all: impl ExactSizeIterator<Item = &'a Self>) -> Self {
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

/// The phase of a packet within its own connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct State {
    /// Connect, Handshake, or Login for everything else.
    pub(crate) phase: Phase,
    pub(crate) opens_handshake: bool,
    /// Whether it completes the handshake.
    pub(crate) ends_handshake: bool,
    pub(crate) retries_hello: bool,
}

/// Follows each connection from SYN through its handshake.
pub(crate) fn follow(packets: &[Packet]) -> Vec<State> {
    #[derive(Clone, Copy, PartialEq)]
    enum At {
        Connecting,
        Plain,
        Handshake,
        /// TLS up to 1.2: the client has sent its key and Finished, the server's own
        /// Finished is missing (RFC 5246 §7.3).
        Finishing,
        Secured,
    }
    let mut connections: HashMap<u32, At> = HashMap::new();
    packets
        .iter()
        .map(|packet| {
            let at = connections.entry(packet.connection).or_insert(At::Connecting);
            let mut state = State {
                phase: Phase::Login,
                opens_handshake: false,
                ends_handshake: false,
                retries_hello: false,
            };
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
                At::Finishing => state.phase = Phase::Handshake,
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
                    state.ends_handshake = true;
                }
                // TLS up to 1.2 that resumes a session: the server's Finished came first
                (At::Handshake, Head::TlsFinished) if packet.from_client => {
                    *at = At::Secured;
                    state.ends_handshake = true;
                }
                (At::Handshake, Head::TlsHandshake(false)) if packet.from_client => {
                    *at = At::Finishing;
                }
                (At::Finishing, _) if !packet.from_client && packet.payload_len > 0 => {
                    *at = At::Secured;
                    state.ends_handshake = true;
                }
                _ => {}
            }
            state
        })
        .collect()
}

/// Divides a session into intervals: the time before each packet belongs to the packet's
/// phase, or is idle if it is longer than `idle_s`.
pub(crate) fn intervals(
    packets: &[Packet],
    states: &[State],
    body_ns: Option<u64>,
    idle_s: f64,
) -> Vec<PhaseInterval> {
    let start = packets.first().map_or(0, |p| p.time_ns);
    let mut intervals: Vec<PhaseInterval> = Vec::new();
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
        match intervals.last_mut() {
            Some(last) if last.kind == kind => last.end_s = to,
            _ if to > from => intervals.push(PhaseInterval { kind, start_s: from, end_s: to }),
            _ => {}
        }
        previous = now;
    }
    intervals
}
