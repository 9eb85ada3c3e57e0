//! What passes the link between two hosts, whole and both ways.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, sleep};
use std::time::Duration;

use headroom_netio::LinkSocket;

use crate::Host;

/// Frames and when the kernel saw them.
type Frames = Arc<Mutex<Vec<(Duration, Vec<u8>)>>>;

/// All frames that arrive at `eth0` of either host, from when it was started.
#[derive(Debug)]
pub struct Capture {
    frames: Frames,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Capture {
    /// Captures from now on.
    ///
    /// # Panics
    /// Where the sockets cannot be opened.
    pub fn start(hosts: [&Host; 2]) -> Self {
        let mut capture =
            Self { frames: Arc::default(), stop: Arc::default(), threads: Vec::new() };
        for host in hosts {
            let socket = host.run(|| LinkSocket::open("eth0").expect("a packet socket"));
            let (frames, stop) = (Arc::clone(&capture.frames), Arc::clone(&capture.stop));
            capture.threads.push(std::thread::spawn(move || listen(socket, &frames, &stop)));
        }
        capture
    }

    /// The frames since the last time, in the order in which they were seen.
    ///
    /// # Panics
    /// Where a listening thread has panicked.
    pub fn take(&self) -> Vec<Vec<u8>> {
        let mut frames = std::mem::take(&mut *self.frames.lock().expect("frames"));
        frames.sort_by_key(|(time, _)| *time);
        frames.into_iter().map(|(_, frame)| frame).collect()
    }

    /// Ends it, and gives the frames since the last time: none that has arrived is
    /// missing.
    ///
    /// # Panics
    /// Where the kernel had no room for a frame.
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

fn listen(mut socket: LinkSocket, frames: &Frames, stop: &AtomicBool) {
    loop {
        let last = stop.load(Ordering::Acquire);
        let got = socket.receive(|frame| {
            assert!(!frame.truncated, "a frame was cut");
            let time = frame.time.expect("the time of a frame");
            frames.lock().expect("frames").push((time, frame.bytes.to_vec()));
        });
        match got.expect("frames") {
            0 if last => break,
            0 => sleep(Duration::from_millis(1)),
            _ => {}
        }
    }
    assert_eq!(socket.dropped().expect("a count"), 0, "frames were lost to the capture");
}

/// Whether these octets stand somewhere among the others.
pub fn contains(octets: &[u8], what: &[u8]) -> bool {
    octets.windows(what.len()).any(|window| window == what)
}
