//! As many datagrams as arrive: a window of them on the way, the next ones when the
//! server says that it has some.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use headroom_netio::udp::{MAX_TRAIN, Options, Train};
use headroom_netio::{Inbox, UdpSocket, wait_readable};
use serde::Serialize;

use crate::form::{Answer, Header, Kind, filled};
use crate::window::Window;

/// Datagrams on their way: enough for everyone between to work on some at the same
/// time, and fewer than an interface's queue takes (500).
const WINDOW: u64 = 256;
/// Octets of these: long ones are cut, and each piece has its place in a queue.
const WINDOW_OCTETS: u64 = 192 << 10;
/// Datagrams sent at once, the last of which asks for an answer.
const TRAIN: usize = 32;
/// After so long without an answer what is on its way counts as lost.
const PATIENCE: Duration = Duration::from_millis(100);
/// What is sent before this share of the time has passed only warms up.
const WARM_UP: f64 = 0.1;

/// What the server counted.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Packets {
    /// First answer that counts to the last.
    pub seconds: f64,
    /// Datagrams that arrived between them.
    pub packets: u64,
    /// Datagrams that were sent between them and did not.
    pub lost: u64,
}

/// Sends datagrams of `size` octets for a time.
///
/// # Errors
/// Nobody answers, or what the kernel answered.
pub fn packets(to: SocketAddr, size: usize, time: Duration, fill: &[u8]) -> io::Result<Packets> {
    let mut sender = Sender::new(to, size, fill)?;
    let begun = Instant::now();
    let (mut first, mut last) = (None, None);
    while begun.elapsed() < time {
        if let Some(seen) = sender.step()? {
            if first.is_none() && begun.elapsed() >= time.mul_f64(WARM_UP) {
                first = Some(seen);
            }
            last = Some(seen);
        }
    }
    let (Some(first), Some(last)) = (first, last) else {
        let sentence = format!("{to} answered nothing");
        return Err(io::Error::new(io::ErrorKind::TimedOut, sentence));
    };
    let packets = last.answer.counted - first.answer.counted;
    Ok(Packets {
        seconds: last.at.duration_since(first.at).as_secs_f64(),
        packets,
        lost: (last.answer.highest - first.answer.highest).saturating_sub(packets),
    })
}

/// An answer, and when it came.
#[derive(Debug, Clone, Copy)]
struct Seen {
    at: Instant,
    answer: Answer,
}

struct Sender {
    socket: UdpSocket,
    to: SocketAddr,
    window: Window,
    /// A train, header and all.
    datagrams: Vec<Vec<u8>>,
    inbox: Inbox,
}

impl Sender {
    fn new(to: SocketAddr, size: usize, fill: &[u8]) -> io::Result<Self> {
        let datagram = filled(size, fill)?;
        let socket = UdpSocket::bind(crate::any(to), &Options::default())?;
        let window = WINDOW.min(WINDOW_OCTETS / size as u64);
        let train = TRAIN.min(MAX_TRAIN / size).min(window as usize / 2).max(1);
        let datagrams = vec![datagram; train];
        let window = Window::new(rand::random::<u32>() | 1, window);
        let inbox = Inbox::new(16);
        Ok(Self { socket, to, window, datagrams, inbox })
    }

    /// Sends a train where the window has room, else waits for an answer; the newest
    /// that came.
    fn step(&mut self) -> io::Result<Option<Seen>> {
        let train = self.datagrams.len() as u64;
        if self.window.has_room(train) {
            self.send()?;
            if self.window.has_room(train) {
                return Ok(None);
            }
        }
        wait_readable(&[&self.socket], Some(PATIENCE))?;
        self.answers()
    }

    fn send(&mut self) -> io::Result<()> {
        let last = self.datagrams.len() - 1;
        for (index, datagram) in self.datagrams.iter_mut().enumerate() {
            let kind = if index == last { Kind::Asking } else { Kind::Counted };
            let (session, number) = (self.window.session(), self.window.number());
            Header { kind, session, number }.write(datagram);
        }
        let slices: Vec<IoSlice<'_>> =
            self.datagrams.iter().map(|datagram| IoSlice::new(datagram)).collect();
        let train = Train {
            destination: self.to,
            source: None,
            tos: 0,
            dont_fragment: false,
            datagrams: &slices,
        };
        match self.socket.send(&train) {
            // a full queue between: what did not go is lost
            Err((_, error)) if error.kind() != io::ErrorKind::WouldBlock && !is_full(&error) => {
                Err(error)
            }
            _ => Ok(()),
        }
    }

    /// The newest of those that came. Where nothing came, what is on its way is lost.
    fn answers(&mut self) -> io::Result<Option<Seen>> {
        let mut newest = None;
        if self.socket.receive(&mut self.inbox)? == 0 {
            self.window.give_up();
        }
        let at = Instant::now();
        for message in self.inbox.packets() {
            for datagram in message.body.chunks(message.segment_len.max(1)) {
                if let Some(answer) = self.window.hear(datagram) {
                    newest = Some(Seen { at, answer });
                }
            }
        }
        Ok(newest)
    }
}

/// Whether a queue of this host had no room.
pub(crate) fn is_full(error: &io::Error) -> bool {
    const ENOBUFS: i32 = 105;
    error.raw_os_error() == Some(ENOBUFS)
}
