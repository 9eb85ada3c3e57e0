//! The capture at the router: one ring, drained by a thread now and then.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use headroom_netio::Capture;
use headroom_netio::capture::HEAD;

use crate::error::{Doing, Error, Result};
use crate::measure::wire::{Framing, Trace};

/// Slots of the ring: 32 MiB, a third of a second of the busiest traffic.
const FRAMES: usize = 1 << 17;
const INTERVAL: Duration = Duration::from_millis(4);
/// A wire without a frame for so long is quiet.
const QUIET: Duration = Duration::from_millis(20);
/// The longest wait for quiet.
const LONGEST: Duration = Duration::from_secs(2);

/// A running capture.
#[derive(Debug)]
pub(crate) struct Tap {
    state: Arc<Mutex<State>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    client: IpAddr,
}

#[derive(Debug)]
struct State {
    capture: Capture,
    framing: Framing,
    trace: Trace,
}

impl Tap {
    /// Opens a capture on an interface of a namespace.
    pub(super) fn open(
        namespace: &str,
        interface: &str,
        framing: Framing,
        client: IpAddr,
    ) -> Result<Self> {
        let interface = interface.to_owned();
        let capture = super::netns::inside(namespace, move || {
            Capture::open(&interface, FRAMES, HEAD).doing(|| format!("capture on {interface}"))
        })?;
        let state = Arc::new(Mutex::new(State { capture, framing, trace: Trace::new(client) }));
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
        Ok(Self { state, stop, thread: Some(thread), client })
    }

    /// Waits until all connections have ended and nothing more comes, but not
    /// for ever: what is missing then is found by whoever counts.
    pub(crate) fn settle(&self) {
        let deadline = Instant::now() + LONGEST;
        let look = || {
            let mut state = lock(&self.state);
            state.drain();
            (state.trace.totals().frames(), state.trace.is_over())
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

    /// Forgets what was captured so far.
    pub(crate) fn clear(&self) {
        drop(self.take_trace());
        let _ = lock(&self.state).capture.dropped();
    }

    /// What was captured since the last call.
    ///
    /// # Errors
    /// The ring was too small and frames are missing.
    pub(crate) fn take(&self) -> Result<Trace> {
        let trace = self.take_trace();
        match lock(&self.state).capture.dropped().doing(|| "read the capture's counters".into())? {
            0 => Ok(trace),
            lost => Err(Error::Failed(format!(
                "the capture lost {lost} frames, so the wire clock cannot be trusted; is the machine overloaded?"
            ))),
        }
    }

    fn take_trace(&self) -> Trace {
        let mut state = lock(&self.state);
        state.drain();
        std::mem::replace(&mut state.trace, Trace::new(self.client))
    }
}

impl State {
    fn drain(&mut self) {
        let (trace, framing) = (&mut self.trace, self.framing);
        self.capture.drain(|frame| {
            trace.push(framing, frame.time.as_nanos() as u64, frame.bytes, frame.wire_len);
        });
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
