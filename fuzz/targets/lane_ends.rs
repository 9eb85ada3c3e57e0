//! Both ends of a lane, a network that does anything, and somebody who has the keys
//! and says anything: nothing spins, nothing is sent to an address that did not ask
//! for it, what arrives is what was sent. Where nobody lied, and the network is kind
//! in the end, all of it arrives.
#![no_main]

mod lane_keys;

use std::collections::{HashMap, HashSet, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use headroom_transfer_proto::lane::{
    Direction, Event, Header, Lane, LaneConfig, Number, Piece, Received,
};
use headroom_transfer_proto::rate::RateConfig;
use lane_keys::{Exporter, LANE, Open, TRANSFER, sealed};
use libfuzzer_sys::fuzz_target;

/// A second way to the other end, and a third.
const HOMES: u16 = 3;
/// Of files, each of which both ends may send.
const FILES: u8 = 3;
const FILE: usize = 1 << 17;
const DELAY: Duration = Duration::from_millis(7);

fuzz_target!(|bytes: &[u8]| {
    let mut input = Input(bytes);
    let mut world = World::new(&mut input);
    for _ in 0..600 {
        if input.0.is_empty() {
            break;
        }
        world.step(&mut input);
    }
    world.end_kindly();
});

struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn byte(&mut self) -> u8 {
        let Some((&byte, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        byte
    }

    fn short(&mut self) -> u16 {
        u16::from_be_bytes([self.byte(), self.byte()])
    }

    fn bytes(&mut self, len: usize) -> &'a [u8] {
        let (bytes, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        bytes
    }
}

struct End {
    lane: Lane<Exporter<Open>>,
    home: SocketAddr,
    /// What it must not be made to flood: all but the peer that it was told of.
    told: Option<SocketAddr>,
    asked: HashMap<SocketAddr, u64>,
    sent: HashMap<SocketAddr, u64>,
    reached: HashSet<SocketAddr>,
    /// Packets that it sealed.
    numbers: u64,
    /// Which bytes of each file came.
    came: Vec<Vec<bool>>,
    given: Vec<Vec<bool>>,
    is_over: bool,
}

impl End {
    fn new(sends: Direction, max_packet: usize) -> Self {
        let (home, other) = (address(sends, 0), address(sends.reverse(), 0));
        let told = (sends == Direction::ToServer).then_some(other);
        let config = LaneConfig {
            transfer: TRANSFER,
            lane: LANE,
            sends,
            peer: told,
            is_known: false,
            awaits_data: told.is_some(),
            max_packet,
            chunk: None,
            rtt: None,
            rate: RateConfig::default(),
            seed: [sends as u8; 32],
        };
        let lane = Lane::new(&config, Exporter::new()).expect("a key");
        let none = || vec![vec![false; FILE]; usize::from(FILES)];
        Self {
            lane,
            home,
            told,
            asked: HashMap::new(),
            sent: HashMap::new(),
            reached: HashSet::new(),
            numbers: 0,
            came: none(),
            given: none(),
            is_over: false,
        }
    }

    fn hear(
        &mut self,
        now: Duration,
        from: SocketAddr,
        congested: bool,
        packet: &mut [u8],
        lied: bool,
    ) {
        *self.asked.entry(from).or_default() += packet.len() as u64;
        let Ok(Received::Data { file, offset, bytes }) =
            self.lane.handle(now, from, congested, packet)
        else {
            return;
        };
        if lied {
            return;
        }
        for (at, byte) in (offset..).zip(bytes) {
            assert_eq!(*byte, content(file, at), "byte {at} of file {file}");
            self.came[file as usize][at as usize] = true;
        }
    }

    fn note_events(&mut self, lied: bool) {
        for n in 0.. {
            assert!(n < 10_000, "events without end");
            match self.lane.poll_event() {
                None => return,
                Some(Event::Reached(address)) => {
                    self.reached.insert(address);
                }
                Some(Event::Closed(_) | Event::KeyExhausted) => self.is_over = true,
                Some(Event::Arrived(file)) => assert!(lied || file < u32::from(FILES)),
                Some(Event::Opened | Event::Silent | Event::Answered) => {}
            }
        }
    }
}

struct World {
    now: Duration,
    ends: [End; 2],
    /// Which end it goes to, from where, and when it gets there at the earliest.
    air: VecDeque<(usize, SocketAddr, Duration, Vec<u8>)>,
    mtu: usize,
    lied: bool,
    ended: bool,
    buffer: Vec<u8>,
}

impl World {
    fn new(input: &mut Input) -> Self {
        let max_packet = 1200 + usize::from(input.byte()) * 4;
        let mtu = 1200 + usize::from(input.byte()) * 4;
        let ends = [Direction::ToServer, Direction::ToClient].map(|way| End::new(way, max_packet));
        let air = VecDeque::new();
        let (now, buffer) = (Duration::ZERO, vec![0; 1 << 16]);
        Self { now, ends, air, mtu, lied: false, ended: false, buffer }
    }

    fn step(&mut self, input: &mut Input) {
        let (what, n) = (input.byte(), usize::from(input.byte()));
        let end = n & 1;
        match what % 14 {
            0 => self.now += Duration::from_micros(1 << (n % 24)),
            1 | 2 => {
                let (file, offset, len) = (n as u8 % FILES, input.short(), input.short());
                let (start, len) = (usize::from(offset), usize::from(len));
                let given = &mut self.ends[end].given[usize::from(file)][start..start + len];
                given.fill(true);
                let piece = Piece { file: file.into(), offset: offset.into(), len: len as u64 };
                self.ends[end].lane.send(piece);
            }
            3..=5 => (0..=n % 64).for_each(|_| self.deliver(None, false)),
            6 => self.air.truncate(self.air.len().saturating_sub(n)),
            7 => drop(self.air.pop_front()),
            8 => {
                if let Some(first) = self.air.pop_front() {
                    if n & 2 != 0 {
                        self.air.push_back(first.clone());
                    }
                    self.air.push_back(first);
                }
            }
            9 => {
                if let Some((_, _, _, packet)) = self.air.get_mut(n) {
                    // the number is not made another: with these keys that would be a lie
                    let at = packet.len() - 1 - n % 16;
                    packet[at] ^= input.byte();
                }
            }
            10 => self.deliver(Some(input.byte().into()), n & 2 != 0),
            11 => {
                self.lied = true;
                let ahead = i64::from(input.short() as i16);
                let number = self.ends[1 - end].numbers.saturating_add_signed(ahead);
                let number = Number::new(number).unwrap_or_default();
                let from = address(self.sends(1 - end), u16::from(input.byte()) % HOMES);
                let len = usize::from(input.byte()) * 4;
                let text = input.bytes(len);
                let mut packet = sealed(Header { lane: LANE, number }, text);
                self.ends[end].hear(self.now, from, n & 2 != 0, &mut packet, true);
            }
            12 if n < 8 => {
                self.ended = true;
                self.ends[end].lane.close(n as u32);
            }
            12 => {
                self.ended = true;
                self.ends[end].lane.cancel(n as u32 % u32::from(FILES));
            }
            _ => drop(self.advance()),
        }
        self.pump();
    }

    fn sends(&self, end: usize) -> Direction {
        if end == 0 { Direction::ToServer } else { Direction::ToClient }
    }

    /// Delivers what is next, perhaps from somewhere else.
    fn deliver(&mut self, elsewhere: Option<u16>, congested: bool) {
        let Some((to, from, at, mut packet)) = self.air.pop_front() else { return };
        let from = elsewhere.map_or(from, |way| address(self.sends(1 - to), way % HOMES));
        self.now = self.now.max(at);
        if packet.len() <= self.mtu {
            self.ends[to].hear(self.now, from, congested, &mut packet, self.lied);
        }
    }

    /// To the next moment at which anything happens.
    fn advance(&mut self) -> bool {
        let timeouts = self.ends.iter().filter_map(|end| end.lane.timeout(self.now));
        let next = timeouts.chain(self.air.front().map(|(_, _, at, _)| *at)).min();
        let Some(next) = next else { return false };
        self.now = self.now.max(next);
        while self.air.front().is_some_and(|(_, _, at, _)| *at <= self.now) {
            self.deliver(None, false);
        }
        true
    }

    /// Both ends send what they have to send now.
    fn pump(&mut self) {
        for (n, end) in self.ends.iter_mut().enumerate() {
            end.lane.handle_timeout(self.now);
            for sends in 0.. {
                assert!(sends < 1000, "it sends without end");
                let fill = |piece: Piece, bytes: &mut [u8]| {
                    assert_eq!(bytes.len() as u64, piece.len);
                    (piece.offset..).zip(bytes).for_each(|(at, o)| *o = content(piece.file, at));
                };
                let Some(train) = end.lane.transmit(self.now, &mut self.buffer, fill) else {
                    break;
                };
                *end.sent.entry(train.to).or_default() += train.len as u64;
                assert!(train.segment <= 2048 && train.len > 0);
                for packet in self.buffer[..train.len].chunks(train.segment) {
                    let header = Header::parse(packet).expect("a packet");
                    assert!(header.number.get() == end.numbers, "a number is used once, each");
                    end.numbers += 1;
                    // what goes elsewhere is lost
                    if train.to == address(other(n), 0) {
                        let at = self.now + DELAY;
                        self.air.push_back((1 - n, end.home, at, packet.to_vec()));
                    }
                }
            }
            end.note_events(self.lied);
            for (to, sent) in &end.sent {
                let asked = end.asked.get(to).copied().unwrap_or_default();
                let may = end.reached.contains(to) || end.told == Some(*to) || *sent <= 3 * asked;
                assert!(may, "{sent} bytes to {to}, which sent {asked}");
            }
            let next = end.lane.timeout(self.now);
            assert!(next.is_none_or(|next| next > self.now), "it would spin");
        }
    }

    /// A kind network delivers the rest.
    fn end_kindly(&mut self) {
        if self.lied || self.ended || self.ends.iter().any(|end| end.is_over) {
            return;
        }
        let until = self.now + Duration::from_secs(900);
        for _ in 0..40_000 {
            let all = (0..2).all(|n| self.ends[n].given == self.ends[1 - n].came);
            if all || self.now > until || !self.advance() {
                break;
            }
            self.pump();
        }
        for n in 0..2 {
            let (given, came) = (&self.ends[n].given, &self.ends[1 - n].came);
            assert!(
                given == came,
                "not all came until {:?}: {:?}, {:?}; {} packets on their way",
                self.now,
                self.ends[n].lane.stats(),
                self.ends[1 - n].lane.stats(),
                self.air.len()
            );
        }
    }
}

fn other(end: usize) -> Direction {
    if end == 0 { Direction::ToClient } else { Direction::ToServer }
}

fn address(of: Direction, way: u16) -> SocketAddr {
    ([192, 0, 2, 1 + of as u8], 1000 + way).into()
}

fn content(file: u32, at: u64) -> u8 {
    (at.wrapping_mul(31) ^ at >> 8 ^ (u64::from(file) * 7)) as u8
}
