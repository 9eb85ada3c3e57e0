//! A thread that drives the lanes of one socket: receives trains, sends trains, and sleeps
//! until the next train or deadline.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use headroom_mutex::lock;
use headroom_netio::udp::Path;
use headroom_netio::{Inbox, UdpSocket, Wake, wait_readable};
use headroom_transfer_proto::lane::{HEADER_LEN, Header, LaneId};
use nix::sys::prctl::set_timerslack;

use super::dropped::{DropCounts, Dropped};
use super::feed::Feed;
use super::flow::Flow;
use super::store::Store;

/// Trains received at once: more do not fit in the cache.
const TRAINS_IN: usize = 4;
/// Trains that a lane sends before others have their turn.
const TRAINS_OUT: usize = 4;
/// Lanes that have their turn before packets are received again.
const TURNS: usize = 64;
/// Bytes of a sent train.
const TRAIN: usize = 65_000;
/// The interval of looking for incomplete chunks and unused memory.
const SWEEP: Duration = Duration::from_millis(250);
/// ECN-capable transport (RFC 3168): congested routers mark instead of dropping.
const ECT: u8 = 2;

/// A command for the thread. Anybody who sees a lane's packets knows its ID, so its owner is
/// identified by its feed.
pub(super) enum Command {
    Open(Box<Flow>),
    Close(LaneId, Arc<Feed>),
    /// There is something to send again.
    Fed(LaneId, Arc<Feed>),
    /// Cancel a file.
    Cancel(LaneId, Arc<Feed>, u32),
}

/// The thread of a socket. It ends when this is dropped.
pub(crate) struct Engine {
    shared: Arc<Shared>,
    receive_buffer: usize,
}

struct Shared {
    commands: Mutex<Vec<Command>>,
    /// Whether there are commands, or it is to end.
    has_commands: AtomicBool,
    ended: AtomicBool,
    wake: Wake,
    dropped: Dropped,
    #[cfg(test)]
    blocked: AtomicBool,
}

impl Engine {
    /// Starts a thread for the lanes of this socket.
    pub(super) fn start(socket: UdpSocket) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            commands: Mutex::default(),
            has_commands: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            wake: Wake::new()?,
            dropped: Dropped::default(),
            #[cfg(test)]
            blocked: AtomicBool::new(false),
        });
        let receive_buffer = socket.receive_buffer();
        let work = Loop {
            socket,
            shared: Arc::clone(&shared),
            flows: Vec::new(),
            slots: HashMap::new(),
            due: BinaryHeap::new(),
            store: Store::new()?,
            train: vec![0; TRAIN].into(),
            started: Instant::now(),
            swept: Duration::ZERO,
        };
        std::thread::Builder::new().name("lanes".to_owned()).spawn(move || work.run())?;
        Ok(Self { shared, receive_buffer })
    }

    /// Returns the size of its socket's receive buffer.
    pub(super) fn receive_buffer(&self) -> usize {
        self.receive_buffer
    }

    pub(super) fn command(&self, command: Command) {
        let shared = &self.shared;
        lock(&shared.commands).push(command);
        shared.has_commands.store(true, Ordering::SeqCst);
        shared.wake.wake();
    }

    /// Reads what was dropped so far.
    pub(super) fn drop_counts(&self) -> DropCounts {
        self.shared.dropped.counts()
    }

    /// Drops everything that is received from now on.
    #[cfg(test)]
    pub(crate) fn block(&self) {
        self.shared.blocked.store(true, Ordering::Relaxed);
    }

    /// Returns what was dropped so far.
    #[cfg(test)]
    pub(crate) fn dropped(&self) -> &Dropped {
        &self.shared.dropped
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Release);
        self.shared.has_commands.store(true, Ordering::SeqCst);
        self.shared.wake.wake();
    }
}

struct Loop {
    socket: UdpSocket,
    shared: Arc<Shared>,
    flows: Vec<Option<Box<Flow>>>,
    slots: HashMap<LaneId, usize>,
    due: BinaryHeap<Reverse<(Duration, LaneId)>>,
    store: Store,
    train: Box<[u8]>,
    started: Instant,
    swept: Duration,
}

impl Loop {
    fn run(mut self) {
        // a wait may end later by 50 µs otherwise (prctl(2)): two packets at 500 Mbit/s. If the
        // kernel refuses, trains are as late as they were
        let _ = set_timerslack(1);
        let mut inbox = Inbox::new(TRAINS_IN);
        let mut turn = Vec::new();
        loop {
            // errors concern single datagrams, or will occur again
            let received = self.socket.receive(&mut inbox).unwrap_or(0);
            #[cfg(test)]
            if self.shared.blocked.load(Ordering::Relaxed) {
                inbox.clear();
            }
            let now = self.started.elapsed();
            self.take(now, &mut inbox, &mut turn);
            if self.shared.has_commands.load(Ordering::Acquire)
                && self.run_commands(&mut turn).is_err()
            {
                return self.end();
            }
            self.collect_due(now, &mut turn);
            for slot in turn.drain(..) {
                self.serve(slot);
            }
            if !self.store.is_empty() && now >= self.swept + SWEEP {
                self.swept = now;
                self.store.sweep(now);
            }
            if received == 0 {
                self.sleep();
            }
        }
    }

    /// Handles received packets.
    fn take(&mut self, now: Duration, inbox: &mut Inbox, turn: &mut Vec<usize>) {
        let Self { flows, slots, store, shared, .. } = self;
        let mut last: Option<(LaneId, usize)> = None;
        for train in inbox.packets() {
            if train.truncated {
                Dropped::count(&shared.dropped.unopened, 1);
                continue;
            }
            let addresses = (train.source, train.destination, train.tos);
            for packet in train.body.chunks_mut(train.segment_len.max(HEADER_LEN)) {
                let Some(header) = Header::parse(packet) else {
                    Dropped::count(&shared.dropped.unopened, 1);
                    continue;
                };
                let slot = match last {
                    Some((lane, slot)) if lane == header.lane => slot,
                    _ => {
                        let Some(slot) = slots.get(&header.lane).copied() else {
                            Dropped::count(&shared.dropped.unknown_lane, 1);
                            continue;
                        };
                        last = Some((header.lane, slot));
                        if !turn.contains(&slot) {
                            turn.push(slot);
                        }
                        slot
                    }
                };
                if let Some(flow) = &mut flows[slot] {
                    flow.handle(now, addresses, packet, (store, &shared.dropped));
                }
            }
        }
        inbox.clear();
    }

    /// Runs commands; an error is the end.
    fn run_commands(&mut self, turn: &mut Vec<usize>) -> Result<(), ()> {
        self.shared.has_commands.store(false, Ordering::Release);
        let commands = std::mem::take(&mut *lock(&self.shared.commands));
        for command in commands {
            match command {
                Command::Open(flow) => self.open(flow, turn),
                Command::Close(lane, feed) => {
                    if self.slot_of(lane, &feed).is_some() {
                        self.close(lane);
                    }
                }
                Command::Fed(lane, feed) => turn.extend(self.slot_of(lane, &feed)),
                Command::Cancel(lane, feed, file) => {
                    if let Some(slot) = self.slot_of(lane, &feed)
                        && let Some(flow) = &mut self.flows[slot]
                    {
                        flow.cancel(file);
                        turn.push(slot);
                    }
                }
            }
        }
        if self.shared.ended.load(Ordering::Acquire) { Err(()) } else { Ok(()) }
    }

    /// Finds a lane by its ID and feed.
    fn slot_of(&self, lane: LaneId, feed: &Arc<Feed>) -> Option<usize> {
        let slot = *self.slots.get(&lane)?;
        self.flows[slot].as_ref().filter(|flow| Arc::ptr_eq(&flow.feed, feed)).map(|_| slot)
    }

    fn open(&mut self, flow: Box<Flow>, turn: &mut Vec<usize>) {
        // lane IDs cannot be predicted: an existing one was guessed, or seen
        if self.slots.contains_key(&flow.id) {
            return;
        }
        let slot = self.flows.iter().position(Option::is_none).unwrap_or(self.flows.len());
        self.slots.insert(flow.id, slot);
        turn.push(slot);
        match self.flows.get_mut(slot) {
            Some(free) => *free = Some(flow),
            None => self.flows.push(Some(flow)),
        }
    }

    fn close(&mut self, lane: LaneId) {
        let Some(slot) = self.slots.remove(&lane) else { return };
        if let Some(mut flow) = self.flows[slot].take() {
            flow.lane.close(0);
            let now = self.started.elapsed();
            send(&self.socket, &mut flow, now, &mut self.train, 1);
        }
        self.store.forget(lane);
    }

    /// Collects lanes with a deadline that has passed.
    fn collect_due(&mut self, now: Duration, turn: &mut Vec<usize>) {
        while turn.len() < TURNS
            && let Some(Reverse((due, lane))) = self.due.peek().copied()
            && due <= now
        {
            self.due.pop();
            let Some(slot) = self.slots.get(&lane).copied() else { continue };
            if let Some(flow) = &mut self.flows[slot]
                && flow.queued == Some(due)
            {
                flow.queued = None;
                if !turn.contains(&slot) {
                    turn.push(slot);
                }
            }
        }
    }

    /// Gives a lane its turn.
    fn serve(&mut self, slot: usize) {
        let Some(flow) = &mut self.flows[slot] else { return };
        let now = self.started.elapsed();
        flow.advance(now);
        send(&self.socket, flow, now, &mut self.train, TRAINS_OUT);
        if let Some(due) = flow.due(now)
            && flow.queued.is_none_or(|queued| due < queued)
        {
            flow.queued = Some(due);
            self.due.push(Reverse((due, flow.id)));
        }
    }

    fn sleep(&self) {
        let wake = &self.shared.wake;
        wake.will_wait();
        if self.shared.has_commands.load(Ordering::SeqCst) {
            return wake.has_waited();
        }
        let now = self.started.elapsed();
        let due = self.due.peek().map(|Reverse((due, _))| *due);
        let sweep = (!self.store.is_empty()).then(|| self.swept + SWEEP);
        let next = due.into_iter().chain(sweep).min();
        let wait = next.map(|next| next.saturating_sub(now));
        if wait != Some(Duration::ZERO) {
            let _ = wait_readable(&[&self.socket, wake], wait);
        }
        wake.has_waited();
    }

    /// Closes all lanes.
    fn end(mut self) {
        let lanes: Vec<LaneId> = self.slots.keys().copied().collect();
        lanes.into_iter().for_each(|lane| self.close(lane));
    }
}

/// Sends a lane's next trains.
fn send(socket: &UdpSocket, flow: &mut Flow, now: Duration, buffer: &mut [u8], most: usize) {
    for _ in 0..most {
        let Some(transmit) = flow.transmit(now, buffer) else { return };
        let path = Path { destination: transmit.to, source: flow.local(), tos: ECT };
        let (segment, bytes) = (transmit.segment, &buffer[..transmit.len]);
        // what cannot be sent, such as a probe that is too long, counts as lost on the path
        let sent = match flow.whole {
            None => socket.send_segmented(path, segment, bytes),
            Some(whole) => socket.send_fragmented(path, segment, bytes, whole),
        };
        // this host may have lost the address: IPv4 has no route from it then, and IPv6
        // refuses it (ip6_datagram_send_ctl of the kernel's net/ipv6/datagram.c)
        if sent.is_err_and(|error| {
            matches!(error.kind(), io::ErrorKind::NetworkUnreachable | io::ErrorKind::InvalidInput)
        }) {
            flow.forget_local();
        }
    }
}
