//! One end of a lane: packets in, packets out, and the next deadline.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use super::header::OVERHEAD;
use super::header::{HEADER_LEN, LaneId};
use super::keys::{Context, Direction, Keys, Refused, TransferId};
use super::limits::TAG_LEN;
use super::limits::{MAX_PACKET, MIN_MTU, TRAIN_PACKETS};
use super::measurement::Chunk;
use super::mtu::MtuSearch;
use super::path::{Change, Paths};
use super::payload::{DATA_HEAD, Payload};
use super::queue::Piece;
use super::receiver::ReceiveState;
use super::seal::{Dropped, Opener, Sealer};
use super::sender::{Plan, Sender};
use super::sent::SentFrame;
use crate::rate::RateConfig;

/// The most events that wait for the engine.
const MAX_EVENTS: usize = 4096;
/// The end that opened the lane sends a probe after this time without packets, or after one
/// timeout if that is longer. A peer that only sends then learns this end's address if it has
/// changed, and this end learns whether the path is dead.
const QUIET: Duration = Duration::from_millis(500);

/// The parameters of a lane.
#[derive(Clone, Debug)]
pub struct LaneConfig {
    /// The transfer it belongs to.
    pub transfer: TransferId,
    /// The lane's ID.
    pub lane: LaneId,
    /// The direction in which this end sends.
    pub sends: Direction,
    /// The peer's address, for the end that opens the lane; the other end learns it.
    pub peer: Option<SocketAddr>,
    /// Whether the connection has shown that the peer receives at that address: data may then be
    /// sent there at once.
    pub is_known: bool,
    /// Whether data is expected, and the end that opens the lane should let it come at once.
    pub awaits_data: bool,
    /// The longest packet to probe for, as UDP payload.
    pub max_packet: usize,
    /// Bytes of files in each packet, for measurements; the path's MTU is then ignored.
    pub chunk: Option<Chunk>,
    /// The round-trip time, if it is known from elsewhere.
    pub rtt: Option<Duration>,
    /// The rate control's parameters.
    pub rate: RateConfig,
    /// Random and secret: path challenges are derived from it.
    pub seed: [u8; 32],
}

/// One end of a lane.
pub struct Lane<K: Keys> {
    keys: K,
    sealer: Sealer<K>,
    opener: Opener<K>,
    paths: Paths,
    sender: Sender,
    received: ReceiveState,
    /// The least size of a buffer for packets.
    least_buffer: usize,
    events: VecDeque<Event>,
    closing: Option<u32>,
    ended: bool,
    was_silent: bool,
    /// Whether this end opened the lane.
    is_initiator: bool,
    /// When the last authenticated packet arrived.
    last_received: Duration,
}

/// What the engine needs to know.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Event {
    /// Data may flow: to an address that the connection knows, or within the limit for one that is
    /// not validated yet.
    Opened,
    /// This address of the peer is validated.
    Reached(SocketAddr),
    /// Everything queued of this file has arrived.
    Arrived(u32),
    /// The peer does not answer; only probes are sent.
    Silent,
    /// The peer answers again.
    Answered,
    /// The peer closed the lane with this reason.
    Closed(u32),
    /// Packet numbers or keys are used up, or the connection gives no key: the lane has ended.
    KeyExhausted,
}

/// The source of the bytes to send.
pub trait PayloadSource {
    /// Returns all bytes of a piece, if they are contiguous in memory.
    fn in_memory(&mut self, piece: Piece) -> Option<&[u8]>;
    /// Copies the bytes of a piece.
    fn write(&mut self, piece: Piece, body: &mut [u8]);
}

/// A source that always copies.
struct FillWith<F>(F);

impl<F: FnMut(Piece, &mut [u8])> PayloadSource for FillWith<F> {
    fn in_memory(&mut self, _: Piece) -> Option<&[u8]> {
        None
    }

    fn write(&mut self, piece: Piece, body: &mut [u8]) {
        (self.0)(piece, body);
    }
}

/// The content of a packet.
#[derive(Debug, Eq, PartialEq)]
pub enum Received<'p> {
    /// Bytes of a file. They may arrive again in other packets.
    Data {
        /// The file's number in the transfer.
        file: u32,
        /// The offset of the first byte in the file.
        offset: u64,
        /// At least one.
        bytes: &'p [u8],
    },
    /// A packet of the protocol itself.
    Control,
}

/// Packets to send: `len` bytes of the buffer, segmented every `segment` (the last may be
/// shorter), as one UDP GSO train.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Transmit {
    /// The destination.
    pub to: SocketAddr,
    /// Bytes of all packets.
    pub len: usize,
    /// Bytes of each packet but the last.
    pub segment: usize,
}

impl<K: Keys> Lane<K> {
    /// Makes one end of a lane with keys from `keys`.
    ///
    /// # Errors
    /// The connection gives no key.
    pub fn new(config: &LaneConfig, mut keys: K) -> Result<Self, Refused> {
        let context = |direction| Context {
            transfer: config.transfer,
            lane: config.lane,
            direction,
            epoch: 0,
        };
        let chunk = config.chunk;
        let mtu = chunk.map_or_else(
            || MtuSearch::new(config.max_packet.clamp(MIN_MTU, MAX_PACKET)),
            |chunk| MtuSearch::fixed(chunk.packet()),
        );
        let mut paths = Paths::new(config.peer, config.seed);
        let mut events = VecDeque::new();
        if config.peer.is_some() && config.is_known {
            paths = paths.knowing_peer();
            events.push_back(Event::Opened);
        }
        if config.awaits_data {
            paths = paths.awaiting_data();
        }
        Ok(Self {
            sealer: Sealer::new(&mut keys, context(config.sends))?.with_chunk(chunk),
            opener: Opener::new(context(config.sends.reverse())).with_chunk(chunk),
            keys,
            paths,
            least_buffer: mtu.current().max(MAX_PACKET),
            sender: Sender::new(config.rate, mtu, config.rtt),
            received: ReceiveState::default(),
            events,
            closing: None,
            ended: false,
            was_silent: false,
            is_initiator: config.peer.is_some(),
            last_received: Duration::ZERO,
        })
    }

    /// Queues bytes of a file. The engine keeps them readable until [`Event::Arrived`], and bounds
    /// how much is queued.
    pub fn send(&mut self, piece: Piece) {
        self.sender.queue().push(piece);
    }

    /// Cancels a file. Packets in flight may still arrive.
    pub fn cancel(&mut self, file: u32) {
        self.sender.queue().cancel(file);
    }

    /// Takes back everything that was queued and is not acknowledged, so that it can be sent by
    /// other means. Some of it may have arrived.
    pub fn reclaim(&mut self) -> Vec<Piece> {
        self.sender.reclaim()
    }

    /// Returns the bytes that wait to be sent, lost ones included.
    pub fn waiting(&self) -> u64 {
        self.sender.waiting()
    }

    /// Closes the lane with one packet; reason 0 is success.
    pub fn close(&mut self, reason: u32) {
        self.closing.get_or_insert(reason);
    }

    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        if let Some(file) = self.sender.settled() {
            return Some(Event::Arrived(file));
        }
        self.events.pop_front()
    }

    /// Returns statistics.
    pub fn stats(&self) -> Stats {
        Stats {
            rate: self.sender.rate(),
            rtt: self.sender.rtt().smoothed(),
            mtu: self.sender.mtu(),
            in_flight: self.sender.in_flight(),
            lost: self.sender.lost(),
            repeated: self.sender.repeated(),
        }
    }

    /// Describes the rate control's state, for figures.
    #[cfg(test)]
    pub(super) fn describe(&self) -> String {
        self.sender.describe()
    }

    /// Handles a packet, which is decrypted in place. `congested`: it was marked Congestion
    /// Experienced.
    ///
    /// # Errors
    /// Why the packet is dropped; [`Dropped::KeyExhausted`] ends the lane.
    pub fn handle<'p>(
        &mut self,
        now: Duration,
        from: SocketAddr,
        congested: bool,
        packet: &'p mut [u8],
    ) -> Result<Received<'p>, Dropped> {
        let len = packet.len();
        let highest = self.opener.window().highest();
        let (number, text) = match self.opener.open(&mut self.keys, packet) {
            Ok(opened) => opened,
            Err(Dropped::KeyExhausted) => {
                self.end(Event::KeyExhausted);
                return Err(Dropped::KeyExhausted);
            }
            Err(dropped) => return Err(dropped),
        };
        self.last_received = now;
        self.sender.peer_is_there(now);
        self.paths.received(from, len, highest.is_none_or(|highest| highest < number));
        if highest.is_none() && !self.is_initiator {
            self.push_event(Event::Opened);
        }
        self.received.received(now, number, len, congested);
        let (payload, asks) = Payload::parse(text).ok_or(Dropped::Malformed)?;
        if asks || matches!(payload, Payload::Data { .. }) {
            self.received.wants_feedback(now, asks);
        }
        // up to the limit, data and feedback also come from an end that has not validated this one
        if self.paths.exceeds_limit() {
            self.paths.confirm();
        }
        match payload {
            Payload::Data { file, offset, bytes } => {
                return Ok(Received::Data { file, offset, bytes });
            }
            Payload::Path(path) => {
                if let Some(change) = self.paths.answer(now, from, &path) {
                    self.path_changed(now, from, change);
                }
            }
            Payload::Feedback(feedback) => {
                self.sender.feedback(now, self.sealer.next(), feedback);
                self.report_silence();
            }
            Payload::Close { reason } => self.end(Event::Closed(reason)),
            Payload::Probe | Payload::Unknown => {}
        }
        Ok(Received::Control)
    }

    /// Returns when to call [`Lane::handle_timeout`], and then [`Lane::transmit`].
    pub fn timeout(&self, now: Duration) -> Option<Duration> {
        if self.ended {
            return None;
        }
        let reached = self.paths.reach(MIN_MTU).is_some();
        let path = self.paths.timeout(self.sender.rtt().timeout(), MIN_MTU);
        let feedback = self.received.due().filter(|_| reached);
        let sender = self.paths.data_to().and_then(|(_, room)| {
            if self.may_send(room) { self.sender.timeout(now) } else { self.sender.overdue() }
        });
        [path, feedback, sender, self.quiet_at()].into_iter().flatten().min()
    }

    /// Whether there is room for a packet of any length.
    fn may_send(&self, room: u64) -> bool {
        room >= self.least_buffer as u64
    }

    /// When to probe a path on which nothing arrives.
    fn quiet_at(&self) -> Option<Duration> {
        let watches =
            self.is_initiator && !self.sender.awaits_answer() && self.paths.validated().is_some();
        watches.then(|| self.last_received + QUIET.max(self.sender.rtt().timeout()))
    }

    /// Handles the passing of time.
    pub fn handle_timeout(&mut self, now: Duration) {
        if !self.ended && self.paths.data_to().is_some() {
            self.sender.handle_timeout(now);
            if self.quiet_at().is_some_and(|at| at <= now) {
                self.sender.probe();
            }
            self.report_silence();
        }
    }

    /// Writes packets to send now into `buffer`, which has 64 KB or room for one packet. Call it
    /// until it returns `None`. `fill` copies a piece's bytes.
    pub fn transmit(
        &mut self,
        now: Duration,
        buffer: &mut [u8],
        fill: impl FnMut(Piece, &mut [u8]),
    ) -> Option<Transmit> {
        self.transmit_from(now, buffer, &mut FillWith(fill))
    }

    /// Does what [`Self::transmit`] does, with pieces that may be in memory.
    pub fn transmit_from(
        &mut self,
        now: Duration,
        buffer: &mut [u8],
        contents: &mut impl PayloadSource,
    ) -> Option<Transmit> {
        if self.ended || buffer.len() < self.least_buffer {
            return None;
        }
        if let Some(reason) = self.closing {
            let transmit = self.paths.reach(OVERHEAD + 5).and_then(|to| {
                Payload::write_close(reason, &mut buffer[HEADER_LEN..]);
                self.single(now, to, buffer, OVERHEAD + 5, SentFrame::Nothing)
            });
            self.ended = true;
            return transmit;
        }
        let timeout = self.sender.rtt().timeout();
        if let Some((to, path)) = self.paths.poll(now, timeout, MIN_MTU) {
            path.write(&mut buffer[HEADER_LEN..MIN_MTU - TAG_LEN]);
            return self.single(now, to, buffer, MIN_MTU, SentFrame::Nothing);
        }
        if self.received.due().is_some_and(|due| due <= now)
            && let Some(to) = self.paths.reach(MIN_MTU)
        {
            let feedback = self.received.feedback(now, self.opener.window());
            let text = &mut buffer[HEADER_LEN..MIN_MTU - TAG_LEN];
            let len = feedback.map(|feedback| Payload::write_feedback(feedback, text));
            if let Some(len) = len {
                return self.single(now, to, buffer, OVERHEAD + len, SentFrame::Nothing);
            }
        }
        let (to, room) = self.paths.data_to().filter(|&(_, room)| self.may_send(room))?;
        match self.sender.plan(now)? {
            Plan::Probe(len) => {
                Payload::write_probe(&mut buffer[HEADER_LEN..len - TAG_LEN]);
                self.single(now, to, buffer, len, SentFrame::Probe)
            }
            Plan::Data { len, packets } => {
                let room = usize::try_from(room).unwrap_or(usize::MAX);
                let packets = packets.min(buffer.len().min(room) / len).min(TRAIN_PACKETS);
                self.train(now, to, buffer, (len, packets), contents)
            }
        }
    }

    fn train(
        &mut self,
        now: Duration,
        to: SocketAddr,
        buffer: &mut [u8],
        (segment, packets): (usize, usize),
        contents: &mut impl PayloadSource,
    ) -> Option<Transmit> {
        let mut at = 0;
        for packet in 0..packets {
            let Some(frame) = self.sender.take(segment) else { break };
            let (SentFrame::Data(piece) | SentFrame::Repeat { piece, .. }) = frame else { break };
            let len = OVERHEAD + DATA_HEAD + piece.len as usize;
            // a short packet ends its train: the others are cut at one length
            let last = packet + 1 == packets || len < segment || !self.sender.has_more();
            let left = if last { 0 } else { packets - packet - 1 };
            let ask = self.sender.asks(now, packet == 0, left);
            let packet_bytes = &mut buffer[at..at + len];
            let (head, body) = packet_bytes[HEADER_LEN..len - TAG_LEN].split_at_mut(DATA_HEAD);
            Payload::write_data_head(piece.file, piece.offset, ask, head);
            let sealed = match contents.in_memory(piece) {
                Some(bytes) if bytes.len() == body.len() => {
                    self.sealer.seal_with(&mut self.keys, packet_bytes, bytes)
                }
                _ => {
                    contents.write(piece, body);
                    self.sealer.seal(&mut self.keys, packet_bytes)
                }
            };
            let Ok(number) = sealed else {
                self.end(Event::KeyExhausted);
                break;
            };
            self.sender.sent(now, number.get(), frame, len);
            at += len;
            if last {
                break;
            }
        }
        self.paths.sent(to, at);
        (at > 0).then_some(Transmit { to, len: at, segment })
    }

    fn single(
        &mut self,
        now: Duration,
        to: SocketAddr,
        buffer: &mut [u8],
        len: usize,
        frame: SentFrame,
    ) -> Option<Transmit> {
        let Ok(number) = self.sealer.seal(&mut self.keys, &mut buffer[..len]) else {
            self.end(Event::KeyExhausted);
            return None;
        };
        self.sender.sent(now, number.get(), frame, len);
        self.paths.sent(to, len);
        Some(Transmit { to, len, segment: len })
    }

    fn path_changed(&mut self, now: Duration, from: SocketAddr, change: Change) {
        match change {
            Change::Validated(rtt) => self.sender.validated(now, rtt),
            // another port is a NAT that forgot: the path is the same
            Change::Moved { elsewhere, rtt } => self.sender.moved(now, elsewhere, rtt),
        }
        self.push_event(Event::Reached(from));
        self.report_silence();
    }

    fn report_silence(&mut self) {
        let silent = self.sender.silent();
        if silent != self.was_silent {
            self.was_silent = silent;
            self.push_event(if silent { Event::Silent } else { Event::Answered });
        }
    }

    fn end(&mut self, event: Event) {
        if !self.ended {
            self.ended = true;
            self.push_event(event);
        }
    }

    fn push_event(&mut self, event: Event) {
        if self.events.len() < MAX_EVENTS {
            self.events.push_back(event);
        }
    }
}

/// Statistics of a lane's sending half.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stats {
    /// The sending rate in bytes per second.
    pub rate: f64,
    /// The smoothed round-trip time.
    pub rtt: Option<Duration>,
    /// The path's MTU as UDP payload.
    pub mtu: usize,
    /// Bytes in flight.
    pub in_flight: u64,
    /// Bytes of lost packets.
    pub lost: u64,
    /// Bytes of packets with data that another packet in flight carried, too.
    pub repeated: u64,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::header::Header;
    use super::super::header::Number;
    use super::super::testing::{Aes, Cheap, Exporter, context};
    use super::*;

    fn lane(peer: Option<SocketAddr>) -> Lane<Exporter<Cheap>> {
        let sends = if peer.is_some() { Direction::ToServer } else { Direction::ToClient };
        Lane::new(&lane_config(sends, peer), Exporter::default()).expect("a key")
    }

    fn lane_config(sends: Direction, peer: Option<SocketAddr>) -> LaneConfig {
        LaneConfig {
            transfer: context().transfer,
            lane: context().lane,
            sends,
            peer,
            is_known: false,
            awaits_data: false,
            max_packet: 1472,
            chunk: None,
            rtt: None,
            rate: RateConfig::default(),
            seed: [1; 32],
        }
    }

    #[test]
    fn each_packet_carries_the_chunk_that_was_agreed_on() {
        let (there, here) = (([192, 0, 2, 2], 7777).into(), ([192, 0, 2, 1], 9).into());
        for chunk in [200, 1000, 4000] {
            let end = |sends, peer| {
                let (chunk, base) = (Chunk::new(chunk), lane_config(sends, peer));
                Lane::new(&LaneConfig { chunk, ..base }, Exporter::<Cheap>::default())
                    .expect("a key")
            };
            let mut sender = end(Direction::ToServer, Some(there));
            let mut receiver = end(Direction::ToClient, None);
            let (whole, rest) = (300, 7);
            let len = u64::from(chunk * whole + rest);
            sender.send(Piece { file: 1, offset: 0, len });
            let (mut buffer, mut came, mut now) = (vec![0; 1 << 16], Vec::new(), Duration::ZERO);
            while came.iter().sum::<usize>() < len as usize {
                now += Duration::from_millis(1);
                assert!(now < Duration::from_secs(60), "it does not come");
                sender.handle_timeout(now);
                while let Some(transmit) = sender.transmit(now, &mut buffer, |_, _| {}) {
                    assert!(transmit.len.div_ceil(transmit.segment) <= TRAIN_PACKETS);
                    for packet in buffer[..transmit.len].chunks_mut(transmit.segment) {
                        let received = receiver.handle(now, here, false, packet).expect("opened");
                        if let Received::Data { bytes, .. } = received {
                            came.push(bytes.len());
                        }
                    }
                }
                receiver.handle_timeout(now);
                while let Some(transmit) = receiver.transmit(now, &mut buffer, |_, _| {}) {
                    let packet = &mut buffer[..transmit.len];
                    sender.handle(now, there, false, packet).expect("opened");
                }
            }
            assert_eq!(came.pop(), Some(rest as usize));
            assert_eq!(came, vec![chunk as usize; whole as usize]);
        }
    }

    #[test]
    fn packets_are_the_same_whether_their_bytes_are_in_memory_or_written() {
        struct Memory(Vec<u8>);
        impl PayloadSource for Memory {
            fn in_memory(&mut self, piece: Piece) -> Option<&[u8]> {
                // of the second half not all that is asked for
                let from = piece.offset as usize;
                let len = piece.len as usize - usize::from(from > self.0.len() / 2);
                self.0.get(from..from + len)
            }
            fn write(&mut self, piece: Piece, body: &mut [u8]) {
                body.copy_from_slice(&self.0[piece.offset as usize..][..piece.len as usize]);
            }
        }
        let at = |port| SocketAddr::from(([192, 0, 2, 1], port));
        let mut memory = Memory((0..20_000_u32).map(|at| (at >> 4) as u8).collect());
        let sent = [false, true].map(|in_memory| {
            let end = |sends, peer| {
                Lane::new(&lane_config(sends, peer), Exporter::<Aes>::default()).expect("a key")
            };
            let mut sender = end(Direction::ToServer, Some(at(2)));
            let mut receiver = end(Direction::ToClient, None);
            sender.send(Piece { file: 1, offset: 0, len: 20_000 });
            let (mut buffer, mut sent, mut came) = (vec![0; 1 << 16], Vec::new(), vec![0; 20_000]);
            for now in (0..500).map(Duration::from_millis) {
                sender.handle_timeout(now);
                while let Some(train) = match in_memory {
                    true => sender.transmit_from(now, &mut buffer, &mut memory),
                    false => {
                        sender.transmit(now, &mut buffer, |piece, body| memory.write(piece, body))
                    }
                } {
                    sent.extend_from_slice(&buffer[..train.len]);
                    for packet in buffer[..train.len].chunks_mut(train.segment) {
                        if let Ok(Received::Data { offset, bytes, .. }) =
                            receiver.handle(now, at(1), false, packet)
                        {
                            came[offset as usize..][..bytes.len()].copy_from_slice(bytes);
                        }
                    }
                }
                receiver.handle_timeout(now);
                while let Some(train) = receiver.transmit(now, &mut buffer, |_, _| {}) {
                    let packet = &mut buffer[..train.len];
                    sender.handle(now, at(2), false, packet).expect("opened");
                }
            }
            assert!(came == memory.0, "not all came");
            sent
        });
        assert!(sent[0] == sent[1], "other packets");
    }

    #[test]
    fn a_server_that_sent_only_feedback_gets_more_until_it_validates() {
        let at = |port| SocketAddr::from(([192, 0, 2, 1], port));
        let mut ends = [lane(Some(at(2))), lane(None)];
        let piece = Piece { file: 1, offset: 0, len: 100 };
        ends.iter_mut().for_each(|end| end.send(piece));
        let (mut now, mut buffer) = (Duration::ZERO, vec![0; 1 << 16]);
        let mut came = [0, 0];
        // no answer of the client's to a challenge arrives in the first half minute
        while came != [100, 100] {
            for (n, from) in [(0, at(1)), (1, at(2))] {
                ends[n].handle_timeout(now);
                while let Some(train) = ends[n].transmit(now, &mut buffer, |_, _| {}) {
                    let packet = &mut buffer[..train.len];
                    let answers = packet[HEADER_LEN] == 3 && packet[HEADER_LEN + 1] & 2 > 0;
                    if n == 0 && answers && now < Duration::from_secs(30) {
                        continue;
                    }
                    let heard = ends[1 - n].handle(now, from, false, packet);
                    if let Ok(Received::Data { bytes, .. }) = heard {
                        came[1 - n] += bytes.len();
                    }
                }
            }
            let next = ends.iter().filter_map(|end| end.timeout(now)).min();
            now = now.max(next.expect("somebody has something to do")) + Duration::from_millis(1);
            assert!(now < Duration::from_secs(300), "{came:?} bytes came");
        }
    }

    /// RFC 9000, section 21.4: who acknowledges what did not come yet makes the sender
    /// hurry. What it may send at most it does not exceed.
    #[test]
    fn acknowledging_unreceived_packets_does_not_exceed_the_rate_limit() {
        let peer = SocketAddr::from(([192, 0, 2, 1], 2));
        let mut config = lane_config(Direction::ToServer, Some(peer));
        config.rate.limit = Some(1e6);
        let mut sender: Lane<Exporter<Cheap>> =
            Lane::new(&config, Exporter::default()).expect("a key");
        sender.send(Piece { file: 1, offset: 0, len: 1 << 40 });
        let (mut now, mut buffer) = (Duration::ZERO, vec![0; 1 << 16]);
        let (mut sent, mut answers) = (0, 0);
        while now < Duration::from_secs(20) {
            now += Duration::from_millis(1);
            sender.handle_timeout(now);
            for _ in 0..10_000 {
                let Some(train) = sender.transmit(now, &mut buffer, |_, _| {}) else { break };
                sent += train.len;
                let last = buffer[..train.len].chunks(train.segment).next_back().expect("one");
                let number = Header::parse(last).expect("a packet").number.get();
                let text = match &last[HEADER_LEN..] {
                    [3, 1, token @ ..] => {
                        let mut text = vec![3, 2];
                        text.extend([0; 8]);
                        text.extend(&token[..8]);
                        text
                    }
                    // all that was ever sent, and it came a moment after the last
                    _ => {
                        let mut text = vec![4];
                        text.extend(number.to_be_bytes());
                        text.extend((1_000_000 + number).to_be_bytes());
                        text.extend([0; 16]);
                        text.extend([0, 1]);
                        text.extend((number | 3 << 62).to_be_bytes());
                        text
                    }
                };
                let mut packet = sealed(answers, &text);
                answers += 1;
                sender.handle(now, peer, false, &mut packet).expect("it is well made");
            }
        }
        assert!((18_000_000..21_000_000).contains(&sent), "{sent} bytes in 20 s");
    }

    fn sealed(number: u64, text: &[u8]) -> Vec<u8> {
        let number = Number::new(number).expect("48 bits");
        let header = Header { lane: context().lane, number }.bytes();
        [&header[..], text, &header[..]].concat()
    }

    /// A peer that holds the keys and says anything, at any time, from anywhere.
    fn hostile() -> impl Strategy<Value = Vec<(u8, u16, u32, Vec<u8>)>> {
        let payload = prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..60),
            // a feedback about few or many packets, the first of them sent
            (0_u64..40, any::<u64>(), any::<u32>(), proptest::collection::vec(0_u8..9, 2..20))
                .prop_map(|(largest, arrived, age, ranges)| {
                    let mut text = vec![4];
                    text.extend(largest.to_be_bytes());
                    text.extend(arrived.to_be_bytes());
                    text.extend(age.to_be_bytes());
                    text.extend([0xff; 12]);
                    text.extend((ranges.len() as u16 / 2).to_be_bytes());
                    text.extend(ranges);
                    text
                }),
        ];
        proptest::collection::vec((any::<u8>(), 0_u16..500, 0_u32..100_000, payload), 1..80)
    }

    proptest! {
        #[test]
        fn a_hostile_peer_gets_no_panic_no_memory_and_no_flood(steps in hostile(), opener: bool) {
            let address = |port| SocketAddr::from(([192, 0, 2, 1], port));
            let mut lane = lane(opener.then(|| address(1)));
            lane.send(Piece { file: 1, offset: u64::MAX - 5_000_000, len: 5_000_000 });
            let (mut now, mut buffer) = (Duration::ZERO, vec![0; 1 << 16]);
            let (mut number, mut received, mut sent) = (0, 0, 0);
            for (kind, step, micros, mut text) in steps {
                if let Some(first) = text.first_mut().filter(|_| kind & 1 == 0) {
                    *first = *first & 0x80 | kind >> 1 & 7;
                }
                now += Duration::from_micros(micros.into());
                number += u64::from(step);
                let mut packet = sealed(number, &text);
                received += packet.len();
                let _ = lane.handle(now, address(u16::from(kind >> 6)), kind & 32 > 0, &mut packet);
                lane.handle_timeout(now);
                let mut turns = 0;
                while let Some(transmit) = lane.transmit(now, &mut buffer, |_, _| {}) {
                    sent += transmit.len;
                    turns += 1;
                    prop_assert!(turns < 100, "it never ends");
                }
                if let Some(at) = lane.timeout(now) {
                    prop_assert!(at > now, "{at:?} at {now:?}: time stands still");
                }
                while lane.poll_event().is_some() {}
            }
            // challenges of the opener come beside what others are allowed
            if lane.paths.validated().is_none() && !opener {
                prop_assert!(sent <= 3 * received, "{sent} for {received}");
            }
        }
    }
}
