//! Sends datagrams as fast as they arrive: a window of them is in flight, and the server's
//! reports open it.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use headroom_netio::udp::{MAX_TRAIN, Options, Train};
use headroom_netio::{Inbox, UdpSocket, wait_readable};

use crate::datagram::{DatagramKind, Header, Report, datagram_of};
use crate::net::{is_queue_full, wildcard};
use crate::stats::PacketStats;
use crate::window::Window;

/// Datagrams in flight: enough to keep every stage of the path busy, and fewer than an
/// interface's queue holds (500).
const WINDOW: u64 = 256;
/// Bytes in flight: each fragment of a long datagram occupies a place in a queue.
const WINDOW_BYTES: u64 = 192 << 10;
/// Datagrams of a train, the last of which asks for a report.
const TRAIN: usize = 32;
/// Datagrams in flight count as lost after this time without a report.
const REPORT_TIMEOUT: Duration = Duration::from_millis(100);
/// Share of the duration that is warm-up and does not count.
const WARM_UP: f64 = 0.1;

/// Sends datagrams of `size` bytes, which repeat `fill`, for a time.
///
/// # Errors
/// The server does not answer, or a system call failed.
pub fn packets(
    to: SocketAddr,
    size: usize,
    time: Duration,
    fill: &[u8],
) -> io::Result<PacketStats> {
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
        let sentence = format!("{to} did not answer");
        return Err(io::Error::new(io::ErrorKind::TimedOut, sentence));
    };
    let packets = last.report.counted - first.report.counted;
    Ok(PacketStats {
        seconds: last.at.duration_since(first.at).as_secs_f64(),
        packets,
        lost: (last.report.highest - first.report.highest).saturating_sub(packets),
    })
}

/// A report and its time of arrival.
#[derive(Debug, Clone, Copy)]
struct Arrived {
    at: Instant,
    report: Report,
}

struct Sender {
    socket: UdpSocket,
    to: SocketAddr,
    window: Window,
    /// A train, headers included.
    datagrams: Vec<Vec<u8>>,
    inbox: Inbox,
}

impl Sender {
    fn new(to: SocketAddr, size: usize, fill: &[u8]) -> io::Result<Self> {
        let datagram = datagram_of(size, fill)?;
        let socket = UdpSocket::bind(wildcard(to), &Options::default())?;
        let window = WINDOW.min(WINDOW_BYTES / size as u64);
        let train = TRAIN.min(MAX_TRAIN / size).min(window as usize / 2).max(1);
        let datagrams = vec![datagram; train];
        let window = Window::new(rand::random::<u32>() | 1, window);
        let inbox = Inbox::new(16);
        Ok(Self { socket, to, window, datagrams, inbox })
    }

    /// Sends a train if the window has room, else waits for a report; returns the newest.
    fn step(&mut self) -> io::Result<Option<Arrived>> {
        let train = self.datagrams.len() as u64;
        if self.window.has_room(train) {
            self.send()?;
            if self.window.has_room(train) {
                return Ok(None);
            }
        }
        wait_readable(&[&self.socket], Some(REPORT_TIMEOUT))?;
        self.receive()
    }

    fn send(&mut self) -> io::Result<()> {
        let last = self.datagrams.len() - 1;
        for (index, datagram) in self.datagrams.iter_mut().enumerate() {
            let kind = if index == last { DatagramKind::Query } else { DatagramKind::Data };
            let (session, number) = (self.window.session(), self.window.next_number());
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
            // a full queue on this host: the datagrams are lost
            Err((_, error))
                if error.kind() != io::ErrorKind::WouldBlock && !is_queue_full(&error) =>
            {
                Err(error)
            }
            _ => Ok(()),
        }
    }

    /// Receives reports and returns the newest. Without any, datagrams in flight are lost.
    fn receive(&mut self) -> io::Result<Option<Arrived>> {
        let mut newest = None;
        if self.socket.receive(&mut self.inbox)? == 0 {
            self.window.declare_lost();
        }
        let at = Instant::now();
        for message in self.inbox.packets() {
            for datagram in message.body.chunks(message.segment_len.max(1)) {
                if let Some(report) = self.window.on_report(datagram) {
                    newest = Some(Arrived { at, report });
                }
            }
        }
        Ok(newest)
    }
}
