//! The forwarding loop: one thread carries frames between two interfaces, in both
//! directions, and sleeps until the next one is due.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use headroom_link_spec::{Counters, LinkDirection, LinkSpec};
use headroom_mutex::lock;
use headroom_netio::{LinkSocket, link_socket, realtime};
use headroom_packet::header::set_tos;
use headroom_packet::{Ip, ethernet};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::Error;
use crate::intake::Intake;
use crate::line::CLOCK_START_NS;
use crate::managed::{Left, ManagedQueue};
use crate::model::{Delivery, Disposition, Model};
use crate::schedule::Schedule;

/// Index of the direction from interface A to B: client to server.
pub const UP: usize = 0;
/// Index of the direction from interface B to A: server to client.
pub const DOWN: usize = 1;

/// Upper bound of the bytes in transit in each direction.
const MAX_IN_TRANSIT: usize = 256 << 20;
/// Capacity of a reused buffer, bytes.
const BUFFER: usize = 2048;
const SPARE_BUFFERS: usize = 4096;
/// Frames transmitted before the loop receives again.
const TX_BUDGET: usize = 4 * link_socket::BATCH;
/// The shortest sleep. A shorter one costs more CPU than it gains in precision, so frames
/// that are due within it leave together.
const MIN_SLEEP: Duration = Duration::from_micros(20);
/// Bounds of the polling interval, which is half of the shortest delay.
const MIN_POLL: Duration = Duration::from_micros(50);
const MAX_POLL: Duration = Duration::from_millis(1);
/// Interval at which counters are published while frames are in transit.
const PUBLISH: Duration = Duration::from_millis(5);
/// The bits of ECN in an IP header (RFC 3168): both set is the mark.
const ECN: u8 = 3;

/// Which link to emulate, and between which interfaces.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The interface on the client's side.
    pub a: String,
    /// The interface on the server's side.
    pub b: String,
    /// The link.
    pub spec: LinkSpec,
    /// Seed of the random processes.
    pub seed: u64,
}

/// A link that is ready to forward.
#[derive(Debug)]
pub struct Emulator {
    ends: [End; 2],
    directions: [Direction; 2],
    intake: Intake,
    spare: Vec<Vec<u8>>,
    clock: Instant,
    poll_interval: Duration,
    published: Instant,
    shared: Arc<Shared>,
}

/// The interface of a running emulator to other threads.
#[derive(Debug)]
pub struct Shared {
    counters: Mutex<[Counters; 2]>,
    stop: AtomicBool,
    wake: EventFd,
}

impl Shared {
    /// Returns the counters of both directions, [`UP`] and [`DOWN`], at most 5 ms old.
    pub fn counters(&self) -> [Counters; 2] {
        *lock(&self.counters)
    }

    /// Makes [`Emulator::run`] return.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        // an eventfd blocks only near 2⁶⁴, so this cannot fail
        let _ = self.wake.write(1);
    }
}

#[derive(Debug)]
struct End {
    name: String,
    socket: LinkSocket,
}

impl Emulator {
    /// Opens both interfaces, in the network namespace of the calling thread.
    ///
    /// # Errors
    /// An interface is missing or given twice, or the process lacks the privilege.
    pub fn open(settings: &Settings) -> Result<Self, Error> {
        let Settings { a, b, spec, seed } = settings;
        if a == b {
            return Err(Error::Arguments(format!(
                "a link needs two interfaces, and `{a}` is given twice"
            )));
        }
        if let Some(what) = spec.beyond_frames() {
            return Err(Error::Arguments(format!(
                "the link `{spec}` asks for {what}, which needs a router. The lab builds such a link in the kernel"
            )));
        }
        let open = |name: &str| {
            let socket = LinkSocket::open(name).map_err(|error| Error::opening(name, &error))?;
            Ok(End { name: name.to_owned(), socket })
        };
        let wake = EventFd::from_value_and_flags(0, EfdFlags::EFD_CLOEXEC)
            .map_err(|error| Error::Failed(format!("cannot make an event descriptor: {error}")))?;
        let shared = Shared { counters: Mutex::default(), stop: AtomicBool::new(false), wake };
        let least = [&spec.up, &spec.down].map(|one| one.delay.saturating_sub(one.jitter));
        Ok(Self {
            ends: [open(a)?, open(b)?],
            directions: [
                Direction::new(&spec.up, Model::new(&spec.up, *seed, 0)),
                Direction::new(&spec.down, Model::new(&spec.down, *seed, 1)),
            ],
            intake: Intake::default(),
            spare: Vec::new(),
            clock: Instant::now(),
            poll_interval: (least[0].min(least[1]) / 2).clamp(MIN_POLL, MAX_POLL),
            published: Instant::now(),
            shared: Arc::new(shared),
        })
    }

    /// Returns the handle by which other threads read counters and stop the loop.
    pub fn shared(&self) -> Arc<Shared> {
        self.shared.clone()
    }

    /// Forwards until it is stopped, then discards frames in transit. Gives the calling
    /// thread real-time priority where the process may.
    ///
    /// # Errors
    /// An interface went down or away.
    pub fn run(&mut self) -> Result<(), Error> {
        // without the privilege the link works, but less precisely
        let _ = realtime::use_realtime_priority();
        let _ = nix::sys::prctl::set_timerslack(1);
        let outcome = self.forward();
        self.publish()?;
        outcome
    }

    fn forward(&mut self) -> Result<(), Error> {
        while !self.shared.stop.load(Ordering::Relaxed) {
            let mut more = false;
            for direction in [UP, DOWN] {
                more |= self.receive(direction)?;
            }
            for direction in [UP, DOWN] {
                more |= self.send_due(direction)?;
            }
            if self.published.elapsed() > PUBLISH {
                self.publish()?;
            }
            if !more {
                self.wait()?;
            }
        }
        Ok(())
    }

    /// Receives a batch; returns whether more may be waiting.
    fn receive(&mut self, direction: usize) -> Result<bool, Error> {
        let Self { ends, directions, intake, spare, clock, .. } = self;
        let End { name, socket } = &mut ends[direction];
        let path = &mut directions[direction];
        let now_ns = clock_ns(clock);
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let got = socket.receive(|received| {
            let age = received.time.map_or(Duration::ZERO, |time| wall.saturating_sub(time));
            // a frame older than a minute means that somebody set the clock
            let age_ns = (age.as_nanos() as u64).min(CLOCK_START_NS);
            let arrival_ns = now_ns.saturating_sub(age_ns);
            let Direction { model, managed, schedule, counters, in_transit } = &mut *path;
            intake.frames(received, counters, |frame, counters| {
                counters.received += 1;
                counters.bytes_received += frame.len() as u64;
                if *in_transit + frame.len() > MAX_IN_TRANSIT {
                    counters.dropped_by_memory += 1;
                    return;
                }
                if let Some(queue) = managed {
                    if model.loses() {
                        counters.lost += 1;
                        return;
                    }
                    // frames of a batch came before now: what left before this one did takes no place
                    drain(queue, arrival_ns, model, schedule, counters, in_transit, spare);
                    let buffer = take_buffer(spare, frame);
                    *in_transit += buffer.capacity();
                    let (flow, takes_mark) = flow_of(&buffer);
                    let full = queue.push(arrival_ns, frame.len(), flow, takes_mark, buffer);
                    if let Some(dropped) = full {
                        counters.dropped_by_queue += 1;
                        *in_transit -= dropped.capacity();
                        give_back(spare, dropped);
                    }
                    return;
                }
                match model.offer(arrival_ns, frame.len()) {
                    Disposition::Lost => counters.lost += 1,
                    Disposition::DroppedByQueue => counters.dropped_by_queue += 1,
                    Disposition::Delivered(delivery) => {
                        let buffer = take_buffer(spare, frame);
                        *in_transit += buffer.capacity();
                        schedule_frame(delivery, buffer, schedule, counters, in_transit, spare);
                    }
                }
            });
        });
        match got {
            Ok(got) => Ok(got == link_socket::BATCH),
            // a frame that the kernel cannot describe, such as a train of SCTP
            Err(error) if error.raw_os_error() == Some(Errno::EINVAL as i32) => {
                path.counters.malformed += 1;
                Ok(true)
            }
            Err(error) => Err(Error::using(name, &error)),
        }
    }

    /// Transmits frames that are due; returns whether more of them are.
    fn send_due(&mut self, direction: usize) -> Result<bool, Error> {
        let End { name, socket } = &self.ends[1 - direction];
        let path = &mut self.directions[direction];
        let mut batch: Vec<Vec<u8>> = Vec::with_capacity(link_socket::BATCH);
        for _ in 0..TX_BUDGET / link_socket::BATCH {
            let now_ns = clock_ns(&self.clock);
            path.drain_queue(now_ns, &mut self.spare);
            while batch.len() < link_socket::BATCH
                && let Some((_, frame)) = path.schedule.pop(now_ns)
            {
                batch.push(frame);
            }
            if batch.is_empty() {
                return Ok(false);
            }
            path.send(socket, &batch).map_err(|error| Error::using(name, &error))?;
            for buffer in batch.drain(..) {
                path.in_transit -= buffer.capacity();
                give_back(&mut self.spare, buffer);
            }
        }
        Ok(true)
    }

    /// Sleeps until a frame is due or the next poll.
    fn wait(&mut self) -> Result<(), Error> {
        let next = self.directions.iter().filter_map(Direction::next_ns).min();
        let Some(next_ns) = next else { return self.wait_for_frames() };
        // Frames carry the kernel's timestamp and are due later than the next poll, so no
        // arrival has to wake this thread.
        let due = Duration::from_nanos(next_ns.saturating_sub(clock_ns(&self.clock)));
        std::thread::sleep(due.max(MIN_SLEEP).min(self.poll_interval));
        Ok(())
    }

    fn wait_for_frames(&mut self) -> Result<(), Error> {
        self.publish()?;
        let [a, b] = &self.ends;
        let sources = [a.socket.as_fd(), b.socket.as_fd(), self.shared.wake.as_fd()];
        let mut sources = sources.map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        match poll(&mut sources, PollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(error) => Err(Error::Failed(format!("cannot wait for frames: {error}"))),
        }
    }

    /// Publishes the counters to other threads.
    fn publish(&mut self) -> Result<(), Error> {
        for (end, path) in self.ends.iter().zip(&mut self.directions) {
            let dropped = end.socket.dropped().map_err(|error| Error::using(&end.name, &error))?;
            path.counters.dropped_by_kernel += u64::from(dropped);
        }
        let counters = [self.directions[UP].counters, self.directions[DOWN].counters];
        *lock(&self.shared.counters) = counters;
        self.published = Instant::now();
        Ok(())
    }
}

#[derive(Debug)]
struct Direction {
    model: Model,
    /// A queue that is managed actively, in place of the model's own.
    managed: Option<ManagedQueue<Vec<u8>>>,
    schedule: Schedule<Vec<u8>>,
    counters: Counters,
    /// Capacity of the buffers in transit, bytes.
    in_transit: usize,
}

impl Direction {
    fn new(spec: &LinkDirection, model: Model) -> Self {
        Self {
            model,
            managed: ManagedQueue::of(spec),
            schedule: Schedule::default(),
            counters: Counters::default(),
            in_transit: 0,
        }
    }

    /// Schedules what has left the managed queue.
    fn drain_queue(&mut self, now_ns: u64, spare: &mut Vec<Vec<u8>>) {
        let Self { model, managed, schedule, counters, in_transit } = self;
        let Some(queue) = managed else { return };
        drain(queue, now_ns, model, schedule, counters, in_transit, spare);
    }

    /// When something is to be done next.
    fn next_ns(&self) -> Option<u64> {
        let queue = self.managed.as_ref().and_then(ManagedQueue::next_ns);
        queue.into_iter().chain(self.schedule.next_ns()).min()
    }

    /// Transmits frames; counts those that the kernel refuses.
    fn send(&mut self, socket: &LinkSocket, batch: &[Vec<u8>]) -> io::Result<()> {
        let mut left = batch;
        while !left.is_empty() {
            match socket.send(left) {
                Ok(sent) => {
                    self.counters.forwarded += sent as u64;
                    let octets: usize = left[..sent].iter().map(Vec::len).sum();
                    self.counters.bytes_forwarded += octets as u64;
                    left = &left[sent..];
                }
                Err(error) => match error.raw_os_error().map(Errno::from_raw) {
                    Some(Errno::EINTR) => {}
                    Some(Errno::EMSGSIZE | Errno::ENOBUFS | Errno::EAGAIN | Errno::EINVAL) => {
                        self.counters.dropped_by_kernel += 1;
                        left = &left[1..];
                    }
                    _ => return Err(error),
                },
            }
        }
        Ok(())
    }
}

/// Schedules what has left a managed queue.
fn drain(
    queue: &mut ManagedQueue<Vec<u8>>,
    now_ns: u64,
    model: &mut Model,
    schedule: &mut Schedule<Vec<u8>>,
    counters: &mut Counters,
    in_transit: &mut usize,
    spare: &mut Vec<Vec<u8>>,
) {
    while let Some(left) = queue.pop(now_ns) {
        match left {
            Left::Dropped(buffer) => {
                counters.dropped_by_queue += 1;
                *in_transit -= buffer.capacity();
                give_back(spare, buffer);
            }
            Left::Sent { item: mut buffer, at_ns, marked } => {
                if marked {
                    mark(&mut buffer);
                    counters.marked += 1;
                }
                let delivery = model.deliver(at_ns, buffer.len());
                schedule_frame(delivery, buffer, schedule, counters, in_transit, spare);
            }
        }
    }
}

/// Schedules a frame that passed the bottleneck, as the model has decided.
fn schedule_frame(
    delivery: Delivery,
    mut buffer: Vec<u8>,
    schedule: &mut Schedule<Vec<u8>>,
    counters: &mut Counters,
    in_transit: &mut usize,
    spare: &mut Vec<Vec<u8>>,
) {
    if let Some(bit) = delivery.flipped_bit {
        buffer[bit as usize / 8] ^= 1 << (bit % 8);
        counters.corrupted += 1;
    }
    counters.reordered += u64::from(delivery.held_back);
    if delivery.twice {
        counters.duplicated += 1;
        let copy = take_buffer(spare, &buffer);
        *in_transit += copy.capacity();
        schedule.push(delivery.at_ns, copy, delivery.held_back);
    }
    schedule.push(delivery.at_ns, buffer, delivery.held_back);
}

/// A hash of the frame's flow (addresses, protocol, ports), and whether its sender knows ECN. What is
/// no IP is one flow.
fn flow_of(frame: &[u8]) -> (u64, bool) {
    let network = frame.get(ethernet::network_offset(frame)..).unwrap_or_default();
    let Ok(packet) = Ip::parse(network) else { return (0, false) };
    let mut hasher = DefaultHasher::new();
    (packet.addresses(), packet.upper(), packet.ports()).hash(&mut hasher);
    // ECT(0) and ECT(1); what is marked already can be marked again
    (hasher.finish(), packet.tos() & ECN != 0)
}

/// Marks a packet of a sender that knows ECN: congestion was experienced.
fn mark(frame: &mut [u8]) {
    let network = ethernet::network_offset(frame);
    let Some(packet) = frame.get_mut(network..) else { return };
    let Ok(tos) = Ip::parse(packet).map(|packet| packet.tos()) else { return };
    // it was parsed, so its header is whole
    let _ = set_tos(packet, tos | ECN);
}

fn give_back(spare: &mut Vec<Vec<u8>>, buffer: Vec<u8>) {
    if buffer.capacity() <= BUFFER && spare.len() < SPARE_BUFFERS {
        spare.push(buffer);
    }
}

fn take_buffer(spare: &mut Vec<Vec<u8>>, frame: &[u8]) -> Vec<u8> {
    let mut buffer = if frame.len() <= BUFFER {
        spare.pop().unwrap_or_else(|| Vec::with_capacity(BUFFER))
    } else {
        Vec::with_capacity(frame.len())
    };
    buffer.clear();
    buffer.extend_from_slice(frame);
    buffer
}

fn clock_ns(clock: &Instant) -> u64 {
    CLOCK_START_NS + clock.elapsed().as_nanos() as u64
}
