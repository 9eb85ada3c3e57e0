//! A stream at a steady rate, as a telephone or a camera sends one: RTP packets, each
//! at its time, and if asked for one TCP connection beside them that takes what it gets.

use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::ops::Range;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::socket::{setsockopt, sockopt};

use crate::form::filled;
use crate::packets::{Packets, is_full};
use crate::reception::{Question, Streamed};
use crate::rtp::{self, CLOCK_HZ, Header};
use crate::session::{Request, answer, ask, connect};

/// Octets of the shortest packet: RTP's header, and when it was sent.
pub const LEAST: usize = rtp::HEADER + 8;
/// The most packets a second that are sent one by one.
pub const MOST_PER_SECOND: f64 = 20_000.0;
/// Length of the pieces of time that are told of.
pub(crate) const BIN_S: f64 = 0.2;

/// What is sent.
#[derive(Debug, Clone, PartialEq)]
pub struct Stream {
    /// Octets of each datagram.
    pub size: usize,
    /// Datagrams a second.
    pub per_second: f64,
    /// For how long.
    pub seconds: f64,
    /// From when until when a TCP connection sends what it can beside it, in seconds;
    /// the totals are then of this time.
    pub beside: Option<Range<f64>>,
}

/// Sends a stream to a server, and says what became of it.
///
/// # Errors
/// Nobody answers, or what the kernel answered.
pub fn stream(to: SocketAddr, stream: &Stream, fill: &[u8]) -> io::Result<Streamed> {
    let Stream { size, per_second, seconds, ref beside } = *stream;
    if size < LEAST || !(per_second > 0.0 && per_second <= MOST_PER_SECOND) {
        let sentence = format!(
            "a steady stream has datagrams of {LEAST} octets or more, and at most {MOST_PER_SECOND} of them a second"
        );
        return Err(io::Error::new(io::ErrorKind::InvalidInput, sentence));
    }
    let mut datagram = filled(size, fill)?;
    let ssrc = rand::random();
    let ready: bool = ask(to, &Request::Begin { ssrc: Some(ssrc) })?;
    if !ready {
        return Err(io::Error::other(format!("{to} is not ready")));
    }
    let socket = UdpSocket::bind(crate::any(to))?;
    socket.connect(to)?;
    let packets = (seconds * per_second).round().max(1.0) as u64;
    let begun = Instant::now();
    thread::scope(|scope| {
        let bulk =
            beside.clone().map(|time| scope.spawn(move || send_bulk(to, begun, &time, fill)));
        for number in 0..packets {
            let due = begun + Duration::from_secs_f64(number as f64 / per_second);
            thread::sleep(due.saturating_duration_since(Instant::now()));
            packet(&mut datagram, ssrc, number, per_second, crate::now_ns());
            match socket.send(&datagram) {
                // a full queue here, or what a server said of an earlier one: it is lost
                Err(error)
                    if !is_full(&error) && error.kind() != io::ErrorKind::ConnectionRefused =>
                {
                    return Err(error);
                }
                _ => {}
            }
        }
        bulk.map_or(Ok(()), |bulk| bulk.join().map_err(|_| io::Error::other("the bulk ended"))?)
    })?;
    let (from_s, to_s) = match beside {
        Some(time) => (time.start, Some(time.end)),
        None => (0.0, None),
    };
    let question = Question { sent: Some(packets), from_s, to_s, bin_s: BIN_S };
    answer(to, question)?.ok_or_else(|| {
        let sentence = format!("of {packets} datagrams none arrived at {to}");
        io::Error::new(io::ErrorKind::TimedOut, sentence)
    })
}

/// Sends datagrams of `size` octets at a steady rate for a time, and counts those that
/// arrive: behind the first, from its arrival to that of the last.
///
/// # Errors
/// As of [`stream`].
pub fn paced(to: SocketAddr, sent: &Stream, fill: &[u8]) -> io::Result<Packets> {
    let Streamed { measured_s, arrived, lost, .. } = stream(to, sent, fill)?;
    Ok(Packets { seconds: measured_s, packets: arrived.saturating_sub(1), lost })
}

/// Writes a packet of a stream over the first [`LEAST`] octets of a datagram.
pub(crate) fn packet(datagram: &mut [u8], ssrc: u32, number: u64, per_second: f64, now_ns: u64) {
    let ticks = number as f64 * f64::from(CLOCK_HZ) / per_second;
    let header = Header { sequence: number as u16, timestamp: ticks as u64 as u32, ssrc };
    header.write(datagram);
    datagram[rtp::HEADER..LEAST].copy_from_slice(&now_ns.to_be_bytes());
}

/// Sends by TCP as fast as it goes, and breaks off at the end of its time.
pub(crate) fn send_bulk(
    to: SocketAddr,
    begun: Instant,
    time: &Range<f64>,
    fill: &[u8],
) -> io::Result<()> {
    thread::sleep(
        (begun + Duration::from_secs_f64(time.start)).saturating_duration_since(Instant::now()),
    );
    let end = begun + Duration::from_secs_f64(time.end);
    let mut socket = connect(to, &Request::Bulk)?;
    let block: Vec<u8> = fill.iter().copied().cycle().take(1 << 16).collect();
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        socket.set_write_timeout(Some(left))?;
        match socket.write(&block) {
            Err(error) if !is_late(&error) && error.kind() != io::ErrorKind::Interrupted => {
                return Err(error);
            }
            _ => {}
        }
    }
    abort(&socket)
}

/// Closes a connection without sending what it holds: its time is over.
fn abort(socket: &TcpStream) -> io::Result<()> {
    let at_once = nix::libc::linger { l_onoff: 1, l_linger: 0 };
    Ok(setsockopt(socket, sockopt::Linger, &at_once)?)
}

fn is_late(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}
