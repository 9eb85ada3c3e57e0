//! The loop: one thread carries frames both ways between two interfaces, and
//! sleeps until the next one is due.

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use headroom_link_spec::LinkSpec;
use headroom_netio::{LinkSocket, link_socket, realtime};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::intake::Intake;
use crate::model::{Disposition, Model};
use crate::schedule::Schedule;
use crate::{Counters, Error};

/// Index of the direction from interface A to B: client to server.
pub const UP: usize = 0;
/// Index of the direction from interface B to A: server to client.
pub const DOWN: usize = 1;

/// Octets under way in each direction, at most.
const MEMORY: usize = 256 << 20;
/// Octets of a buffer that is kept for the next frame.
const BUFFER: usize = 2048;
const SPARE_BUFFERS: usize = 4096;
/// Frames sent before the loop looks at what has arrived.
const SENT_AT_ONCE: usize = 4 * link_socket::BATCH;
/// Sleeping until less than this from now costs more than it gains in time:
/// frames due within it go together.
const TOGETHER: Duration = Duration::from_micros(20);
/// Without a delay to hide behind, what arrives is looked for this often.
const LOOK_LEAST: Duration = Duration::from_micros(50);
const LOOK_MOST: Duration = Duration::from_millis(1);
/// How often counters are published while frames are under way.
const PUBLISH: Duration = Duration::from_millis(5);
/// Beginning of the emulator's clock, so that a frame may have arrived before.
const CLOCK_START_NS: u64 = 60_000_000_000;

/// What to emulate, and where.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The interface on the client's side.
    pub a: String,
    /// The interface on the server's side.
    pub b: String,
    /// What the link does.
    pub spec: LinkSpec,
    /// Where its chances begin.
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
    look_every: Duration,
    published: Instant,
    shared: Arc<Shared>,
}

/// What another thread may ask of a running emulator.
#[derive(Debug)]
pub struct Shared {
    counters: Mutex<[Counters; 2]>,
    stop: AtomicBool,
    wake: EventFd,
}

impl Shared {
    /// Counters of both directions, [`UP`] and [`DOWN`], at most 5 ms old.
    pub fn counters(&self) -> [Counters; 2] {
        *self.counters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes [`Emulator::run`] return.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        // its counter is never near its limit, so this cannot fail
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
    /// No such interface, twice the same, no privilege.
    pub fn open(settings: &Settings) -> Result<Self, Error> {
        let Settings { a, b, spec, seed } = settings;
        if a == b {
            return Err(Error::Arguments(format!(
                "a link needs two interfaces, and `{a}` is given twice"
            )));
        }
        if let Some(what) = spec.beyond_frames() {
            return Err(Error::Arguments(format!(
                "the link `{spec}` asks for {what}, which a router does: the emulator looks at no header. The lab makes \
                 such a link by the kernel"
            )));
        }
        let open = |name: &str| {
            let socket = LinkSocket::open(name).map_err(|error| Error::opening(name, &error))?;
            Ok(End { name: name.to_owned(), socket })
        };
        let wake = EventFd::from_value_and_flags(0, EfdFlags::EFD_CLOEXEC)
            .map_err(|error| Error::Failed(format!("cannot make an event descriptor: {error}")))?;
        let shared = Shared { counters: Mutex::default(), stop: AtomicBool::new(false), wake };
        let least = [&spec.up, &spec.down].map(|way| way.delay.saturating_sub(way.jitter));
        Ok(Self {
            ends: [open(a)?, open(b)?],
            directions: [
                Direction::new(Model::new(&spec.up, *seed, 0)),
                Direction::new(Model::new(&spec.down, *seed, 1)),
            ],
            intake: Intake::default(),
            spare: Vec::new(),
            clock: Instant::now(),
            look_every: (least[0].min(least[1]) / 2).clamp(LOOK_LEAST, LOOK_MOST),
            published: Instant::now(),
            shared: Arc::new(shared),
        })
    }

    /// The way to ask for counters and for the end.
    pub fn shared(&self) -> Arc<Shared> {
        self.shared.clone()
    }

    /// Forwards until it is stopped. What is under way then is thrown away.
    /// The calling thread becomes one that wakes on time, if it may.
    ///
    /// # Errors
    /// An interface went down or away.
    pub fn run(&mut self) -> Result<(), Error> {
        // Without the privilege the link works and is less punctual.
        let _ = realtime::prefer_this_thread();
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

    /// Takes in what has arrived; true: there may be more.
    fn receive(&mut self, direction: usize) -> Result<bool, Error> {
        let Self { ends, directions, intake, spare, clock, .. } = self;
        let End { name, socket } = &mut ends[direction];
        let way = &mut directions[direction];
        let now_ns = clock_ns(clock);
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let got = socket.receive(|received| {
            let age = received.time.map_or(Duration::ZERO, |time| wall.saturating_sub(time));
            // an age beyond a minute is a clock that was set
            let age_ns = (age.as_nanos() as u64).min(CLOCK_START_NS);
            let arrival_ns = now_ns.saturating_sub(age_ns);
            let Direction { model, schedule, counters, octets } = &mut *way;
            intake.frames(received, counters, |frame, counters| {
                counters.received += 1;
                counters.octets_received += frame.len() as u64;
                if *octets + frame.len() > MEMORY {
                    counters.dropped_by_memory += 1;
                    return;
                }
                match model.offer(arrival_ns, frame.len()) {
                    Disposition::Lost => counters.lost += 1,
                    Disposition::DroppedByQueue => counters.dropped_by_queue += 1,
                    Disposition::Delivered(delivery) => {
                        let mut buffer = take_buffer(spare, frame);
                        if let Some(bit) = delivery.wrong_bit {
                            buffer[bit as usize / 8] ^= 1 << (bit % 8);
                            counters.corrupted += 1;
                        }
                        counters.reordered += u64::from(delivery.held_back);
                        if delivery.twice {
                            counters.duplicated += 1;
                            let copy = take_buffer(spare, &buffer);
                            *octets += copy.capacity();
                            schedule.push(delivery.at_ns, copy, delivery.held_back);
                        }
                        *octets += buffer.capacity();
                        schedule.push(delivery.at_ns, buffer, delivery.held_back);
                    }
                }
            });
        });
        match got {
            Ok(got) => Ok(got == link_socket::BATCH),
            // one frame that the kernel cannot describe, such as a train of SCTP
            Err(error) if error.raw_os_error() == Some(Errno::EINVAL as i32) => {
                way.counters.malformed += 1;
                Ok(true)
            }
            Err(error) => Err(Error::using(name, &error)),
        }
    }

    /// Sends what is due; true: there is more.
    fn send_due(&mut self, direction: usize) -> Result<bool, Error> {
        let End { name, socket } = &self.ends[1 - direction];
        let way = &mut self.directions[direction];
        let mut batch: Vec<Vec<u8>> = Vec::with_capacity(link_socket::BATCH);
        for _ in 0..SENT_AT_ONCE / link_socket::BATCH {
            let now_ns = clock_ns(&self.clock);
            while batch.len() < link_socket::BATCH
                && let Some((_, frame)) = way.schedule.pop(now_ns)
            {
                batch.push(frame);
            }
            if batch.is_empty() {
                return Ok(false);
            }
            way.send(socket, &batch).map_err(|error| Error::using(name, &error))?;
            for buffer in batch.drain(..) {
                way.octets -= buffer.capacity();
                if buffer.capacity() <= BUFFER && self.spare.len() < SPARE_BUFFERS {
                    self.spare.push(buffer);
                }
            }
        }
        Ok(true)
    }

    /// Sleeps until there is something to do.
    fn wait(&mut self) -> Result<(), Error> {
        let next = self.directions.iter().filter_map(|way| way.schedule.next_ns()).min();
        let Some(next_ns) = next else { return self.wait_for_frames() };
        // Arrivals carry the kernel's time stamp, so that nobody needs to be
        // woken by each; what they are due at is later than the next look.
        let due = Duration::from_nanos(next_ns.saturating_sub(clock_ns(&self.clock)));
        std::thread::sleep(due.max(TOGETHER).min(self.look_every));
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

    /// Makes the counters known to other threads.
    fn publish(&mut self) -> Result<(), Error> {
        for (end, way) in self.ends.iter().zip(&mut self.directions) {
            let dropped = end.socket.dropped().map_err(|error| Error::using(&end.name, &error))?;
            way.counters.dropped_by_kernel += u64::from(dropped);
        }
        let counters = [self.directions[UP].counters, self.directions[DOWN].counters];
        *self.shared.counters.lock().unwrap_or_else(PoisonError::into_inner) = counters;
        self.published = Instant::now();
        Ok(())
    }
}

#[derive(Debug)]
struct Direction {
    model: Model,
    schedule: Schedule<Vec<u8>>,
    counters: Counters,
    /// Octets of the buffers under way.
    octets: usize,
}

impl Direction {
    fn new(model: Model) -> Self {
        Self { model, schedule: Schedule::default(), counters: Counters::default(), octets: 0 }
    }

    /// Sends frames; one that the kernel refuses is counted.
    fn send(&mut self, socket: &LinkSocket, batch: &[Vec<u8>]) -> io::Result<()> {
        let mut rest = batch;
        while !rest.is_empty() {
            match socket.send(rest) {
                Ok(sent) => {
                    self.counters.forwarded += sent as u64;
                    let octets: usize = rest[..sent].iter().map(Vec::len).sum();
                    self.counters.octets_forwarded += octets as u64;
                    rest = &rest[sent..];
                }
                Err(error) => match error.raw_os_error().map(Errno::from_raw) {
                    Some(Errno::EINTR) => {}
                    Some(Errno::EMSGSIZE | Errno::ENOBUFS | Errno::EAGAIN | Errno::EINVAL) => {
                        self.counters.dropped_by_kernel += 1;
                        rest = &rest[1..];
                    }
                    _ => return Err(error),
                },
            }
        }
        Ok(())
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
