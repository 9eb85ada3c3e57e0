//! One end of a lane: packets in, packets out, and the next deadline.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use super::header::{HEADER_LEN, OVERHEAD};
use super::interface::{Event, LaneConfig, PayloadSource, Received, Stats, Transmit};
use super::keys::{Context, Keys, Refused};
use super::limits::{MAX_PACKET, MIN_MTU, TAG_LEN, TRAIN_PACKETS};
use super::mtu::MtuSearch;
use super::path::{Change, Paths};
use super::payload::{DATA_HEAD, Payload};
use super::queue::Piece;
use super::receiver::ReceiveState;
use super::seal::{Dropped, Opener, Sealer};
use super::sender::{Plan, Sender};
use super::sent::SentFrame;

/// The most events that wait for the engine.
const MAX_EVENTS: usize = 4096;
/// The end that opened the lane sends a probe after this time without packets, or after one
/// timeout if that is longer. A peer that only sends then learns this end's address if it has
/// changed, and this end learns whether the path is dead.
const QUIET: Duration = Duration::from_millis(500);

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

#[cfg(test)]
mod tests;
