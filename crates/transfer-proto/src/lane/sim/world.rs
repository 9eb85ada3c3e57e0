//! Flows, the link between them, and time.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::net::SocketAddr;
use std::time::Duration;

use super::super::testing::{Exporter, FromSecret, context};
use super::super::{Direction, Event, Lane, LaneConfig, LaneId, MAX_PACKET, Piece, Received};
use super::bbr::Bbr;
use super::reference::{self, Tcp};
use super::{Chance, Link, Losses};
use crate::rate::RateConfig;

/// Bytes of IP and UDP ahead of a packet, which count on the link.
pub(super) const HEADERS: usize = 28;
/// Bytes of a file that are given at once.
const PART: u64 = 4 << 20;
/// Bytes that wait at a host that does not read them: Linux's default (`rmem_default`).
const SOCKET_BUFFER: usize = 212_992;
/// A bin of the goodput over time.
pub(super) const BIN: Duration = Duration::from_millis(100);

/// One of our transfers.
pub(super) struct Ours<K: FromSecret> {
    pub(super) sender: Lane<Exporter<K>>,
    pub(super) receiver: Lane<Exporter<K>>,
    /// Bytes left to be given to the sender, and what was given.
    left: u64,
    given: u64,
    /// What it keeps waiting to be sent.
    pub(super) ahead: u64,
    /// Files that were given and have not arrived.
    files: BTreeSet<u32>,
    /// What arrived: starts and ends, by file.
    arrived: BTreeMap<u32, BTreeMap<u64, u64>>,
    /// Bytes of it.
    received: u64,
    pub(super) checked: bool,
    pub(super) events: Vec<(Duration, Event)>,
    pub(super) receiver_events: Vec<(Duration, Event)>,
    /// Where the sender is seen from.
    pub(super) sender_at: SocketAddr,
    pub(super) receiver_at: SocketAddr,
    /// When the sender knew that all had arrived.
    pub(super) done_at: Option<Duration>,
    /// When all had arrived.
    pub(super) received_at: Option<Duration>,
    pub(super) sent: u64,
}

/// Which end is the client: the sender as in a `put`, or the receiver as in a `get`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Opener {
    Sender,
    Receiver,
}

enum Flow<K: FromSecret> {
    Ours(Box<Ours<K>>),
    Tcp(Tcp),
    Bbr(Box<Bbr>),
}

enum What {
    ToReceiver(Vec<u8>, SocketAddr, bool),
    ToSender(Vec<u8>, SocketAddr),
    TcpReady(u64),
    TcpPacket(u64),
    TcpAck(u64),
    Start,
}

/// All of it.
pub(super) struct World<K: FromSecret> {
    pub(super) now: Duration,
    pub(super) link: Link,
    /// Bytes ahead of a packet's IP header that count on the link.
    pub(super) framing: usize,
    /// Losses of what goes back.
    pub(super) feedback_losses: Losses,
    /// Nothing passes: forward, back.
    pub(super) dark: [bool; 2],
    /// The sender and the receiver do nothing until then.
    paused: [Duration; 2],
    /// Bytes that wait at them.
    waiting: [usize; 2],
    /// In each of these the receiver is busy with something else at first, so long.
    pub(super) busy: Option<(Duration, Duration)>,
    chance: Chance,
    heap: BinaryHeap<Reverse<(Duration, u64)>>,
    coming: BTreeMap<u64, (usize, What)>,
    events: u64,
    buffer: Vec<u8>,
    tcp_ready: Duration,
    flows: Vec<(Duration, Flow<K>)>,
    /// Bytes of use that arrived, by flow and [`BIN`].
    pub(super) goodput: Vec<Vec<u64>>,
}

/// What a file's bytes are.
fn byte(file: u32, at: u64) -> u8 {
    (at.wrapping_mul(0x9e37_79b9).wrapping_add(u64::from(file) * 77) >> 13) as u8
}

impl<K: FromSecret> Ours<K> {
    pub(super) fn new(seed: u64, bytes: u64, rate: RateConfig, max_packet: usize) -> Self {
        Self::opened_by(Opener::Sender, seed, bytes, rate, max_packet)
    }

    pub(super) fn opened_by(
        opener: Opener,
        seed: u64,
        bytes: u64,
        rate: RateConfig,
        max_packet: usize,
    ) -> Self {
        let sender_at: SocketAddr = ([192, 0, 2, 1], 1000 + seed as u16 % 1000).into();
        let receiver_at: SocketAddr = ([192, 0, 2, 2], 7777).into();
        let config = |sends, peer| LaneConfig {
            transfer: context().transfer,
            lane: LaneId(seed),
            sends,
            peer,
            is_known: true,
            awaits_data: opener == Opener::Receiver,
            max_packet,
            chunk: None,
            rtt: None,
            rate,
            seed: [seed as u8; 32],
        };
        let lane = |config: &LaneConfig| Lane::new(config, Exporter::default()).expect("keys");
        let (sends, receives) = match opener {
            Opener::Sender => {
                ((Direction::ToServer, Some(receiver_at)), (Direction::ToClient, None))
            }
            Opener::Receiver => {
                ((Direction::ToClient, None), (Direction::ToServer, Some(sender_at)))
            }
        };
        Self {
            sender: lane(&config(sends.0, sends.1)),
            receiver: lane(&config(receives.0, receives.1)),
            left: bytes,
            given: 0,
            ahead: PART,
            files: BTreeSet::new(),
            arrived: BTreeMap::new(),
            received: 0,
            checked: false,
            events: Vec::new(),
            receiver_events: Vec::new(),
            sender_at,
            receiver_at,
            done_at: None,
            received_at: None,
            sent: 0,
        }
    }

    /// Files of up to 3 MB, one after the other, or one large one.
    fn give(&mut self) {
        while self.left > 0 && self.sender.waiting() < self.ahead {
            let len = if self.checked {
                (self.given % 3_000_000 + 1).min(self.left)
            } else {
                PART.min(self.ahead).min(self.left)
            };
            let (file, offset) = if self.checked {
                (self.arrived.len() as u32 + self.given as u32, 0)
            } else {
                (0, self.given)
            };
            self.sender.send(Piece { file, offset, len });
            self.files.insert(file);
            self.left -= len;
            self.given += len;
        }
    }

    /// Bytes that had not come before.
    fn note(&mut self, file: u32, offset: u64, bytes: &[u8]) -> u64 {
        if self.checked {
            for (at, found) in (offset..).zip(bytes) {
                assert_eq!(*found, byte(file, at), "byte {at} of file {file}");
            }
        }
        let ranges = self.arrived.entry(file).or_default();
        let (mut start, mut end) = (offset, offset + bytes.len() as u64);
        let mut new = end - start;
        let touching: Vec<(u64, u64)> = ranges
            .range(..=end)
            .rev()
            .map(|(&from, &to)| (from, to))
            .take_while(|&(_, to)| to >= start)
            .collect();
        for (from, to) in touching {
            new -= to.min(offset + bytes.len() as u64).saturating_sub(from.max(offset));
            start = start.min(from);
            end = end.max(to);
            ranges.remove(&from);
        }
        ranges.insert(start, end);
        new
    }

    /// Bytes that arrived.
    pub(super) fn bytes_arrived(&self) -> u64 {
        self.arrived.values().flatten().map(|(from, to)| to - from).sum()
    }
}

impl<K: FromSecret> World<K> {
    pub(super) fn new(link: Link, seed: u64) -> Self {
        Self {
            now: Duration::ZERO,
            link,
            framing: 0,
            feedback_losses: Losses::default(),
            dark: [false; 2],
            paused: [Duration::ZERO; 2],
            waiting: [0; 2],
            busy: None,
            chance: Chance(seed),
            heap: BinaryHeap::new(),
            coming: BTreeMap::new(),
            events: 0,
            buffer: vec![0; 1 << 16],
            tcp_ready: Duration::ZERO,
            flows: Vec::new(),
            goodput: Vec::new(),
        }
    }

    pub(super) fn add_ours(&mut self, start: Duration, ours: Ours<K>) {
        self.add(start, Flow::Ours(Box::new(ours)));
    }

    pub(super) fn add_tcp(&mut self, start: Duration) {
        self.add(start, Flow::Tcp(Tcp::new(start)));
    }

    pub(super) fn add_bbr(&mut self, start: Duration) {
        let seed = self.chance.next();
        self.add(start, Flow::Bbr(Box::new(Bbr::new(start, seed))));
    }

    fn add(&mut self, start: Duration, flow: Flow<K>) {
        self.flows.push((start, flow));
        self.goodput.push(Vec::new());
        self.schedule(start, self.flows.len() - 1, What::Start);
    }

    /// Ends a flow: it sends nothing more.
    pub(super) fn end(&mut self, flow: usize) {
        self.flows[flow].0 = Duration::MAX;
    }

    pub(super) fn ours(&mut self, flow: usize) -> &mut Ours<K> {
        match &mut self.flows[flow].1 {
            Flow::Ours(ours) => ours,
            Flow::Tcp(_) | Flow::Bbr(_) => panic!("flow {flow} is a TCP"),
        }
    }

    /// Megabits a second of use, between two times.
    pub(super) fn mbps(&self, flow: usize, from: Duration, to: Duration) -> f64 {
        let bin = |at: Duration| (at.as_millis() / BIN.as_millis()) as usize;
        let bytes: u64 = self.goodput[flow].iter().skip(bin(from)).take(bin(to) - bin(from)).sum();
        bytes as f64 * 8e-6 / (to - from).as_secs_f64()
    }

    /// Lets time pass.
    pub(super) fn run(&mut self, until: Duration) {
        let mut turns = 0;
        while let Some(next) = self.next().filter(|&next| next <= until) {
            turns = if next > self.now { 0 } else { turns + 1 };
            assert!(turns < 10_000, "time stands still at {next:?}");
            self.now = self.now.max(next);
            while let Some(&Reverse((at, key))) = self.heap.peek() {
                if at > self.now {
                    break;
                }
                self.heap.pop();
                if let Some((flow, what)) = self.coming.remove(&key) {
                    self.arrive(flow, what);
                }
            }
            for flow in 0..self.flows.len() {
                if self.flows[flow].0 <= self.now {
                    self.drive(flow);
                }
            }
        }
        self.now = until;
    }

    /// Stops the sender (0) or the receiver (1), as a host does whose memory or processor
    /// is taken away.
    pub(super) fn pause(&mut self, host: usize, until: Duration) {
        (self.paused[host], self.waiting[host]) = (until, 0);
    }

    fn next(&self) -> Option<Duration> {
        let coming = self.heap.peek().map(|Reverse((at, _))| *at);
        let timers =
            self.flows.iter().filter(|(start, _)| *start <= self.now).filter_map(|(_, flow)| {
                match flow {
                    Flow::Ours(ours) => {
                        let timers =
                            [ours.sender.timeout(self.now), ours.receiver.timeout(self.now)];
                        let awake = |(at, paused): (Option<Duration>, Duration)| {
                            at.map(|at| if paused > self.now { at.max(paused) } else { at })
                        };
                        timers.into_iter().zip(self.paused).filter_map(awake).min()
                    }
                    Flow::Tcp(tcp) => Some(tcp.last_ack + Duration::from_secs(1)),
                    Flow::Bbr(bbr) => Some(bbr.timeout()),
                }
            });
        coming.into_iter().chain(timers).min()
    }

    fn schedule(&mut self, at: Duration, flow: usize, what: What) {
        self.events += 1;
        self.heap.push(Reverse((at, self.events)));
        self.coming.insert(self.events, (flow, what));
    }

    fn arrive(&mut self, flow: usize, what: What) {
        let now = self.now;
        let (host, len) = match &what {
            What::ToReceiver(packet, ..) => (1, packet.len()),
            What::ToSender(packet, _) => (0, packet.len()),
            _ => (0, 0),
        };
        if len > 0 && self.paused[host] > now {
            self.waiting[host] += len;
            if self.waiting[host] <= SOCKET_BUFFER {
                self.schedule(self.paused[host], flow, what);
            }
            return;
        }
        let mut new = 0;
        match (what, &mut self.flows[flow].1) {
            (What::ToReceiver(mut packet, from, marked), Flow::Ours(ours)) => {
                if let Ok(Received::Data { file, offset, bytes }) =
                    ours.receiver.handle(now, from, marked, &mut packet)
                {
                    new = ours.note(file, offset, bytes);
                    ours.received += new;
                    if ours.left == 0 && ours.received == ours.given {
                        ours.received_at.get_or_insert(now);
                    }
                }
            }
            (What::ToSender(mut packet, from), Flow::Ours(ours)) => {
                let _ = ours.sender.handle(now, from, false, &mut packet);
            }
            (What::TcpPacket(number), Flow::Tcp(_) | Flow::Bbr(_)) => {
                new = reference::LEN as u64 - 52;
                let delay = self.link.delay;
                self.schedule(now + delay, flow, What::TcpAck(number));
            }
            (What::TcpReady(number), Flow::Tcp(_) | Flow::Bbr(_)) => {
                let len = reference::LEN + self.framing;
                for arrival in self.link.offer(now, len, &mut self.chance) {
                    self.schedule(arrival.at, flow, What::TcpPacket(number));
                }
            }
            (What::TcpAck(number), Flow::Tcp(tcp)) => tcp.acked(now, number),
            (What::TcpAck(number), Flow::Bbr(bbr)) => bbr.acked(now, number),
            _ => {}
        }
        if new > 0 {
            let bin = (now.as_millis() / BIN.as_millis()) as usize;
            if self.goodput[flow].len() <= bin {
                self.goodput[flow].resize(bin + 1, 0);
            }
            self.goodput[flow][bin] += new;
        }
    }

    fn drive(&mut self, flow: usize) {
        let now = self.now;
        let [sends, receives] = self.paused.map(|until| until <= now);
        let mut buffer = std::mem::take(&mut self.buffer);
        let (mut forward, mut back) = (Vec::new(), Vec::new());
        match &mut self.flows[flow].1 {
            Flow::Ours(ours) => {
                if sends {
                    ours.give();
                    ours.sender.handle_timeout(now);
                }
                if receives {
                    ours.receiver.handle_timeout(now);
                }
                let checked = ours.checked;
                let fill = |piece: Piece, bytes: &mut [u8]| {
                    if checked {
                        for (at, place) in (piece.offset..).zip(bytes) {
                            *place = byte(piece.file, at);
                        }
                    }
                };
                while sends && let Some(transmit) = ours.sender.transmit(now, &mut buffer, fill) {
                    for packet in buffer[..transmit.len].chunks(transmit.segment) {
                        assert!(packet.len() <= MAX_PACKET);
                        ours.sent += 1;
                        forward.push((
                            packet.to_vec(),
                            ours.sender_at,
                            transmit.to == ours.receiver_at,
                        ));
                    }
                }
                while receives
                    && let Some(transmit) = ours.receiver.transmit(now, &mut buffer, fill)
                {
                    let packet = buffer[..transmit.len].to_vec();
                    back.push((packet, ours.receiver_at, transmit.to == ours.sender_at));
                }
                while let Some(event) = ours.sender.poll_event() {
                    ours.events.push((now, event));
                    if let Event::Arrived(file) = event {
                        ours.files.remove(&file);
                        if ours.left == 0 && ours.files.is_empty() {
                            ours.done_at = Some(now);
                        }
                    }
                }
                while let Some(event) = ours.receiver.poll_event() {
                    ours.receiver_events.push((now, event));
                }
            }
            Flow::Tcp(tcp) => {
                if now >= tcp.last_ack + Duration::from_secs(1) {
                    tcp.timeout(now);
                }
                let mut numbers = Vec::new();
                while let Some(number) = tcp.send(now) {
                    numbers.push(number);
                }
                // a host's own jitter: without it an acknowledgement always sends
                // its packet into the place that has just become free (Floyd and
                // Jacobson, "On traffic phase effects", 1992)
                for number in numbers {
                    let service = reference::LEN as f64 / self.link.rate;
                    let late = Duration::from_secs_f64(service * self.chance.share());
                    self.tcp_ready = self.tcp_ready.max(now + late);
                    self.schedule(self.tcp_ready, flow, What::TcpReady(number));
                }
            }
            Flow::Bbr(bbr) => {
                if now >= bbr.last_ack + Duration::from_secs(1) {
                    bbr.timeout_over(now);
                }
                for number in bbr.send(now) {
                    self.schedule(now, flow, What::TcpReady(number));
                }
            }
        }
        self.buffer = buffer;
        let headers = HEADERS + self.framing;
        for (packet, from, there) in forward {
            // what goes to an address where nobody is uses the link all the same
            for arrival in self.link.offer(now, packet.len() + headers, &mut self.chance) {
                if there && !self.dark[0] {
                    let mut packet = packet.clone();
                    if let Some(bit) = arrival.wrong_bit {
                        let bit = bit as usize % (packet.len() * 8);
                        packet[bit / 8] ^= 1 << (bit % 8);
                    }
                    let mut at = arrival.at;
                    if let Some((period, busy)) = self.busy {
                        let begun = period * (at.as_nanos() / period.as_nanos()) as u32;
                        at = at.max(begun + busy);
                    }
                    self.schedule(at, flow, What::ToReceiver(packet, from, arrival.marked));
                }
            }
        }
        for (packet, from, there) in back {
            if there && !self.dark[1] && !self.feedback_losses.take(&mut self.chance) {
                let at = now + self.link.delay;
                self.schedule(at, flow, What::ToSender(packet, from));
            }
        }
    }
}
