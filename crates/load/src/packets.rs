//! As many datagrams as arrive: a window of them on the way, the next ones when the
//! server says that it has some.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use headroom_netio::udp::{MAX_TRAIN, Options, Train};
use headroom_netio::{Inbox, UdpSocket, wait_readable};
use serde::Serialize;

use crate::form::{Answer, Header, Kind, filled};

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
    session: u32,
    /// A train, header and all.
    datagrams: Vec<Vec<u8>>,
    inbox: Inbox,
    /// The next number.
    next: u64,
    /// All below have arrived, or are lost.
    settled: u64,
    /// Beyond these how many may have been sent.
    window: u64,
}

impl Sender {
    fn new(to: SocketAddr, size: usize, fill: &[u8]) -> io::Result<Self> {
        let datagram = filled(size, fill)?;
        let socket = UdpSocket::bind(crate::any(to), &Options::default())?;
        let window = WINDOW.min(WINDOW_OCTETS / size as u64);
        let train = TRAIN.min(MAX_TRAIN / size).min(window as usize / 2).max(1);
        let datagrams = vec![datagram; train];
        let session = rand::random::<u32>() | 1;
        let inbox = Inbox::new(16);
        Ok(Self { socket, to, session, datagrams, inbox, next: 0, settled: 0, window })
    }

    /// Sends a train where the window has room, else waits for an answer; the newest
    /// that came.
    fn step(&mut self) -> io::Result<Option<Seen>> {
        let train = self.datagrams.len() as u64;
        if self.next + train <= self.settled + self.window {
            self.send()?;
            if self.next + train <= self.settled + self.window {
                return Ok(None);
            }
        }
        wait_readable(&[&self.socket], Some(PATIENCE))?;
        let seen = self.answers()?;
        match seen {
            Some(seen) => self.settled = self.settled.max(seen.answer.highest + 1),
            None => self.settled = self.next,
        }
        Ok(seen)
    }

    fn send(&mut self) -> io::Result<()> {
        let last = self.datagrams.len() - 1;
        for (index, datagram) in self.datagrams.iter_mut().enumerate() {
            let kind = if index == last { Kind::Asking } else { Kind::Counted };
            Header { kind, session: self.session, number: self.next }.write(datagram);
            self.next += 1;
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

    fn answers(&mut self) -> io::Result<Option<Seen>> {
        let mut newest: Option<Seen> = None;
        self.socket.receive(&mut self.inbox)?;
        let at = Instant::now();
        for message in self.inbox.packets() {
            for datagram in message.body.chunks(message.segment_len.max(1)) {
                let answer = Answer::read(datagram).filter(|a| a.session == self.session);
                let newer = |a: &Answer| newest.is_none_or(|seen| a.counted > seen.answer.counted);
                if let Some(answer) = answer.filter(newer) {
                    newest = Some(Seen { at, answer });
                }
            }
        }
        Ok(newest)
    }
}

fn is_full(error: &io::Error) -> bool {
    const ENOBUFS: i32 = 105;
    error.raw_os_error() == Some(ENOBUFS)
}
