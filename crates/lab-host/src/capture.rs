//! Captures on one interface: a ring that a thread drains every 4 ms.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use headroom_lab_trace::{ClientSide, Framing, MarkerSearch, Trace};
use headroom_mutex::lock;
use headroom_netio::capture::{HEAD, slot_len};
use headroom_netio::{Capture, Frame};

use crate::error::{Doing, Error, Result};
use crate::namespace;

/// Bytes of a ring. It holds 262 144 headers: those of 2 s at 1 Gbit/s, acknowledgements included, for
/// which a busy machine may keep the thread that drains it from running.
const RING: usize = 64 << 20;
const INTERVAL: Duration = Duration::from_millis(4);
/// A wire without a frame for so long is quiet.
const QUIET: Duration = Duration::from_millis(20);
/// The longest wait for quiet.
const LONGEST: Duration = Duration::from_secs(2);

/// Receives the frames of a capture.
pub trait Sink: std::fmt::Debug + Send + 'static {
    /// Takes a frame that begins as `framing` says.
    fn take(&mut self, framing: Framing, frame: Frame<'_>);
}

impl Sink for Trace {
    fn take(&mut self, framing: Framing, frame: Frame<'_>) {
        self.push(framing, frame.time.as_nanos() as u64, frame.bytes, frame.wire_len);
    }
}

impl Sink for MarkerSearch {
    fn take(&mut self, _: Framing, frame: Frame<'_>) {
        self.add(frame.bytes, frame.wire_len);
    }
}

/// A running capture.
#[derive(Debug)]
pub struct RunningCapture<S: Sink = Trace> {
    state: Arc<Mutex<State<S>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct State<S> {
    capture: Capture,
    framing: Framing,
    sink: S,
}

impl RunningCapture {
    /// Opens a capture on an interface of a namespace, for the wire clock.
    pub(crate) fn open(
        namespace: &str,
        interface: &str,
        framing: Framing,
        client: impl Into<ClientSide>,
    ) -> Result<Self> {
        Self::start(namespace, interface, framing, HEAD, Trace::new(client))
    }

    /// Opens a capture on an interface of this process's namespace.
    ///
    /// # Errors
    /// The error of the kernel.
    pub(crate) fn open_in_current_namespace(
        interface: &str,
        framing: Framing,
        trace: Trace,
    ) -> Result<Self> {
        Ok(Self::of(capture(interface, HEAD)?, framing, trace))
    }

    /// Waits until all connections have ended and no frame arrives for 20 ms. Gives up after
    /// `LONGEST`; the packet count reveals what is missing.
    pub fn settle(&self) {
        let deadline = Instant::now() + LONGEST;
        let look = || {
            let mut state = lock(&self.state);
            state.drain();
            (state.sink.totals().frames(), state.sink.is_over())
        };
        let mut before = look();
        loop {
            std::thread::sleep(QUIET);
            let now = look();
            if (now == before && now.1) || Instant::now() > deadline {
                return;
            }
            before = now;
        }
    }

    /// Discards what was captured so far.
    pub(crate) fn clear(&self) {
        let mut state = lock(&self.state);
        state.drain();
        state.sink = state.sink.fresh();
        let _ = state.capture.dropped();
    }

    /// Returns what was captured since the last call.
    ///
    /// # Errors
    /// The ring was too small and frames are missing.
    pub(crate) fn take(&self) -> Result<Trace> {
        let fresh = lock(&self.state).sink.fresh();
        self.exchange(fresh)
    }
}

impl<S: Sink> RunningCapture<S> {
    /// Opens a capture of the first `snaplen` bytes of each frame.
    pub(crate) fn start(
        namespace: &str,
        interface: &str,
        framing: Framing,
        snaplen: usize,
        sink: S,
    ) -> Result<Self> {
        let interface = interface.to_owned();
        let capture = namespace::inside(namespace, move || capture(&interface, snaplen))?;
        Ok(Self::of(capture, framing, sink))
    }

    fn of(capture: Capture, framing: Framing, sink: S) -> Self {
        let state = Arc::new(Mutex::new(State { capture, framing, sink }));
        let stop = Arc::new(AtomicBool::new(false));
        let thread = {
            let (state, stop) = (Arc::clone(&state), Arc::clone(&stop));
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    lock(&state).drain();
                    std::thread::sleep(INTERVAL);
                }
            })
        };
        Self { state, stop, thread: Some(thread) }
    }

    /// Pauses or resumes the capture.
    ///
    /// # Errors
    /// The error of the kernel.
    pub(crate) fn pause(&self, paused: bool) -> Result<()> {
        let doing = || "pause or resume a capture".to_owned();
        lock(&self.state).capture.pause(paused).doing(doing)
    }

    /// Returns the sink with everything captured so far; later frames go to `fresh`.
    ///
    /// # Errors
    /// The ring was too small and frames are missing.
    pub fn exchange(&self, fresh: S) -> Result<S> {
        let sink = self.swap(fresh);
        match lock(&self.state).capture.dropped().doing(|| "read the capture's counters".into())? {
            0 => Ok(sink),
            lost => Err(Error::FramesLost(lost)),
        }
    }

    fn swap(&self, fresh: S) -> S {
        let mut state = lock(&self.state);
        state.drain();
        std::mem::replace(&mut state.sink, fresh)
    }
}

impl<S: Sink> State<S> {
    fn drain(&mut self) {
        let (sink, framing) = (&mut self.sink, self.framing);
        self.capture.drain(|frame| sink.take(framing, frame));
    }
}

impl<S: Sink> Drop for RunningCapture<S> {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn capture(interface: &str, snaplen: usize) -> Result<Capture> {
    let frames = RING / slot_len(snaplen);
    Capture::open(interface, frames, snaplen).doing(|| format!("capture on {interface}"))
}
