//! Captures whole frames on the link between two hosts, in both directions.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, sleep};
use std::time::Duration;

use headroom_netio::LinkSocket;

use crate::Host;

/// Frames with the kernel's timestamps.
type Frames = Arc<Mutex<Vec<(Duration, Vec<u8>)>>>;

/// A running capture of all frames that arrive at `eth0` of either host.
#[derive(Debug)]
pub struct Capture {
    frames: Frames,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Capture {
    /// Starts to capture.
    ///
    /// # Panics
    /// A socket cannot be opened.
    pub fn start(hosts: [&Host; 2]) -> Self {
        let mut capture =
            Self { frames: Arc::default(), stop: Arc::default(), threads: Vec::new() };
        for host in hosts {
            let socket = host.run(|| LinkSocket::open("eth0").expect("a packet socket"));
            let (frames, stop) = (Arc::clone(&capture.frames), Arc::clone(&capture.stop));
            capture.threads.push(std::thread::spawn(move || receive(socket, &frames, &stop)));
        }
        capture
    }

    /// Returns the frames since the last call, by timestamp.
    ///
    /// # Panics
    /// A receiving thread has panicked.
    pub fn take(&self) -> Vec<Vec<u8>> {
        let mut frames = std::mem::take(&mut *self.frames.lock().expect("frames"));
        frames.sort_by_key(|(time, _)| *time);
        frames.into_iter().map(|(_, frame)| frame).collect()
    }

    /// Stops the capture and returns all remaining frames.
    ///
    /// # Panics
    /// The kernel dropped a frame.
    pub fn finish(mut self) -> Vec<Vec<u8>> {
        self.stop.store(true, Ordering::Release);
        for thread in std::mem::take(&mut self.threads) {
            thread.join().expect("every frame");
        }
        self.take()
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
    }
}

fn receive(mut socket: LinkSocket, frames: &Frames, stop: &AtomicBool) {
    loop {
        let last = stop.load(Ordering::Acquire);
        let got = socket.receive(|frame| {
            assert!(!frame.truncated, "a frame was truncated");
            let time = frame.time.expect("the time of a frame");
            frames.lock().expect("frames").push((time, frame.bytes.to_vec()));
        });
        match got.expect("frames") {
            0 if last => break,
            0 => sleep(Duration::from_millis(1)),
            _ => {}
        }
    }
    assert_eq!(socket.dropped().expect("a count"), 0, "the kernel dropped frames");
}

/// Tells whether `bytes` contains `part`.
pub fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}
