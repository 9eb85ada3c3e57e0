//! One lane with its data: outgoing parts of files, incoming bytes of files.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use headroom_transfer_proto::lane::{
    Dropped as Unopened, Event, Lane, LaneId, PayloadSource, Piece, Received, Transmit,
};
use tokio::sync::watch;

use super::dropped::Dropped;
use super::exporter::Exporter;
use super::feed::{Feed, Part, Source};
use super::sink::Sink;
use super::store::Store;

/// Bytes queued in the lane below which it gets more.
const AHEAD: u64 = 128 << 10;
/// A lane without an answer for this long hands its data to streams. It is probed, and carries
/// the rest when it answers again.
const SILENCE: Duration = Duration::from_secs(1);

/// The state of a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LaneState {
    /// It was not needed yet.
    Idle,
    /// Data may not flow yet.
    Opening,
    /// Data may flow.
    Ready,
    /// The peer does not answer; streams carry its data until it does.
    Silent,
    /// It has ended; streams carry its data.
    GivenUp,
}

/// The shared status of a lane.
pub(super) struct LaneStatus {
    pub(super) state: watch::Sender<LaneState>,
    /// Bytes of lost packets.
    pub(super) lost: AtomicU64,
}

/// A lane that an engine drives.
pub(super) struct Flow {
    pub(super) id: LaneId,
    pub(super) lane: Lane<Exporter>,
    pub(super) sink: Option<Arc<dyn Sink>>,
    pub(super) status: Arc<LaneStatus>,
    pub(super) feed: Arc<Feed>,
    /// Parts that were not sent completely yet, and how much of them was.
    parts: VecDeque<(Part, usize)>,
    sources: HashMap<u32, Arc<dyn Source>>,
    /// The local address that the peer sends to.
    local: Option<IpAddr>,
    /// Whether anything came from the peer.
    was_answered: bool,
    /// When it got the first part.
    first_fed: Option<Duration>,
    silent_since: Option<Duration>,
    is_paused: bool,
    is_over: bool,
    /// Its deadline in the engine's queue.
    pub(super) queued: Option<Duration>,
    /// With fragmentation: bytes of the longest packet that is not fragmented.
    pub(super) whole: Option<usize>,
}

impl Flow {
    pub(super) fn new(
        (id, lane): (LaneId, Lane<Exporter>),
        feed: Arc<Feed>,
        sink: Option<Arc<dyn Sink>>,
        status: Arc<LaneStatus>,
    ) -> Self {
        Self {
            id,
            lane,
            sink,
            status,
            feed,
            parts: VecDeque::new(),
            sources: HashMap::new(),
            local: None,
            was_answered: false,
            first_fed: None,
            silent_since: None,
            is_paused: false,
            is_over: false,
            queued: None,
            whole: None,
        }
    }

    /// Handles a packet.
    #[inline]
    pub(super) fn handle(
        &mut self,
        now: Duration,
        (from, to, tos): (SocketAddr, IpAddr, u8),
        packet: &mut [u8],
        (store, dropped): (&mut Store, &Dropped),
    ) {
        // a decrypted packet will be acknowledged, so it needs a buffer first
        if self.sink.is_some() && !store.has_buffer() {
            return Dropped::count(&dropped.no_buffer, 1);
        }
        match self.lane.handle(now, from, tos & 3 == 3, packet) {
            Ok(Received::Data { file, offset, bytes }) => {
                if let Some(sink) = self.sink.as_deref() {
                    store.insert(now, (self.id, sink), (file, offset), bytes, dropped);
                } else {
                    Dropped::count(&dropped.unknown_file, bytes.len());
                }
            }
            Ok(Received::Control) => {}
            Err(Unopened::KeyExhausted) => self.give_up(),
            Err(_) => return Dropped::count(&dropped.unopened, 1),
        }
        self.local = Some(to);
        self.was_answered = true;
    }

    /// Returns the local address to send from.
    pub(super) fn local(&self) -> Option<IpAddr> {
        self.local
    }

    /// Lets the kernel choose the source address until the next packet arrives.
    pub(super) fn forget_local(&mut self) {
        self.local = None;
    }

    /// Handles deadlines and events, and queues more data.
    pub(super) fn advance(&mut self, now: Duration) {
        self.lane.handle_timeout(now);
        while let Some(event) = self.lane.poll_event() {
            match event {
                // a receiver sends nothing by which it could notice that nothing passes
                Event::Opened if self.sink.is_some() => {}
                Event::Opened | Event::Reached(_) => {
                    self.status.state.send_if_modified(|state| {
                        let opens = *state == LaneState::Opening;
                        if opens {
                            *state = LaneState::Ready;
                        }
                        opens
                    });
                }
                Event::Silent => self.silent_since = Some(now),
                Event::Answered => self.resume(),
                Event::Closed(_) | Event::KeyExhausted => self.give_up(),
                Event::Arrived(_) => {}
            }
        }
        if self.pauses_at().is_some_and(|at| at <= now) {
            self.pause();
        }
        while !(self.is_over || self.is_paused)
            && self.lane.waiting() < AHEAD
            && let Some(part) = self.feed.take()
        {
            self.first_fed.get_or_insert(now);
            let piece =
                Piece { file: part.file, offset: part.offset, len: part.bytes.len() as u64 };
            self.sources.entry(part.file).or_insert_with(|| Arc::clone(&part.source));
            self.lane.send(piece);
            self.parts.push_back((part, 0));
        }
    }

    /// Writes the next train.
    pub(super) fn transmit(&mut self, now: Duration, buffer: &mut [u8]) -> Option<Transmit> {
        let Self { lane, parts, sources, .. } = self;
        let transmit = lane.transmit_from(now, buffer, &mut Parts { parts, sources })?;
        while self.parts.front().is_some_and(|(part, sent)| *sent == part.bytes.len()) {
            if let Some((part, _)) = self.parts.pop_front() {
                self.feed.recycle(part.bytes);
            }
        }
        self.status.lost.store(self.lane.stats().lost, Ordering::Relaxed);
        Some(transmit)
    }

    /// Returns the next deadline.
    pub(super) fn due(&self, now: Duration) -> Option<Duration> {
        let lane = self.lane.timeout(now);
        match (lane, self.pauses_at()) {
            (Some(lane), Some(silent)) => Some(lane.min(silent)),
            (one, other) => one.or(other),
        }
    }

    /// Cancels a file.
    pub(super) fn cancel(&mut self, file: u32) {
        self.lane.cancel(file);
        self.sources.remove(&file);
        let (gone, kept): (Vec<_>, Vec<_>) =
            self.parts.drain(..).partition(|(part, _)| part.file == file);
        self.parts.extend(kept);
        gone.into_iter().for_each(|(part, _)| self.feed.recycle(part.bytes));
    }

    /// Returns when to pause without an answer.
    fn pauses_at(&self) -> Option<Duration> {
        let since = self.silent_since.filter(|_| !(self.is_paused || self.is_over))?;
        // if nothing ever came, something on the way may let QUIC pass and not lanes
        let first_fed = self.first_fed.filter(|_| !self.was_answered);
        Some(first_fed.map_or(since + SILENCE, |first| since.max(first + SILENCE)))
    }

    /// Hands unacknowledged data to streams, until the peer answers.
    fn pause(&mut self) {
        self.is_paused = true;
        self.feed.pause(self.lane.reclaim());
        self.drop_parts();
        self.status.state.send_replace(LaneState::Silent);
    }

    /// Continues when the peer answers again.
    fn resume(&mut self) {
        self.silent_since = None;
        if std::mem::take(&mut self.is_paused) && !self.is_over {
            self.feed.resume();
            self.status.state.send_replace(LaneState::Ready);
        }
    }

    /// Hands unacknowledged data to streams, forever.
    fn give_up(&mut self) {
        if !self.is_over {
            self.is_over = true;
            self.feed.close(self.lane.reclaim());
            self.drop_parts();
            self.status.state.send_replace(LaneState::GivenUp);
        }
    }

    fn drop_parts(&mut self) {
        self.parts.drain(..).for_each(|(part, _)| self.feed.recycle(part.bytes));
    }
}

impl Drop for Flow {
    fn drop(&mut self) {
        self.give_up();
    }
}

/// The source of bytes to send: parts in memory, or files to read again.
struct Parts<'a> {
    parts: &'a mut VecDeque<(Part, usize)>,
    sources: &'a HashMap<u32, Arc<dyn Source>>,
}

impl Parts<'_> {
    /// Returns bytes from `at` on, `len` at most, from the first part that has them.
    #[inline]
    fn take(&mut self, file: u32, at: u64, len: usize) -> Option<&[u8]> {
        self.parts.iter_mut().find_map(|(part, sent)| {
            let within = at.checked_sub(part.offset).filter(|_| part.file == file)?;
            let within = usize::try_from(within).ok()?;
            let bytes = part.bytes.get(within..).filter(|bytes| !bytes.is_empty())?;
            let bytes = &bytes[..bytes.len().min(len)];
            *sent = (*sent).max(within + bytes.len());
            Some(bytes)
        })
    }
}

impl PayloadSource for Parts<'_> {
    #[inline]
    fn in_memory(&mut self, piece: Piece) -> Option<&[u8]> {
        let len = usize::try_from(piece.len).ok()?;
        self.take(piece.file, piece.offset, len).filter(|bytes| bytes.len() == len)
    }

    fn write(&mut self, piece: Piece, buffer: &mut [u8]) {
        let (mut at, mut buffer) = (piece.offset, buffer);
        while !buffer.is_empty() {
            let Some(bytes) = self.take(piece.file, at, buffer.len()) else {
                return match self.sources.get(&piece.file) {
                    Some(source) => source.read(at, buffer),
                    None => buffer.fill(0),
                };
            };
            let (now, rest) = buffer.split_at_mut(bytes.len());
            now.copy_from_slice(bytes);
            at += bytes.len() as u64;
            buffer = rest;
        }
    }
}
