//! There and back: one datagram at a time, each sent when the one before has
//! returned.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use headroom_netio::retried;
use serde::Serialize;

use crate::MOST;
use crate::form::{Header, Kind, filled};

/// After so long a datagram is lost.
const PATIENCE: Duration = Duration::from_millis(200);
/// What is sent before this share of the time has passed only warms up.
const WARM_UP: f64 = 0.1;

/// What round trips took.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Echo {
    /// How many there were.
    pub round_trips: u64,
    /// Datagrams that did not return.
    pub lost: u64,
    /// The median.
    pub median_s: f64,
    /// As many as one in a hundred took longer.
    pub p99_s: f64,
}

/// Sends datagrams of `size` octets there and back for a time.
///
/// # Errors
/// Nobody answers, or what the kernel answered.
pub fn echo(to: SocketAddr, size: usize, time: Duration, fill: &[u8]) -> io::Result<Echo> {
    let mut datagram = filled(size, fill)?;
    let socket = UdpSocket::bind(crate::any(to))?;
    socket.connect(to)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    let session = rand::random();
    let mut inbox = [0; MOST];
    let mut took_ns: Vec<u64> = Vec::new();
    let mut lost = 0;
    let begun = Instant::now();
    for number in 0.. {
        if begun.elapsed() >= time {
            break;
        }
        let header = Header { kind: Kind::Echo, session, number };
        header.write(&mut datagram);
        let sent = Instant::now();
        socket.send(&datagram)?;
        match returned(&socket, &header, &mut inbox) {
            Ok(()) => {
                if sent.duration_since(begun) >= time.mul_f64(WARM_UP) {
                    took_ns.push(sent.elapsed().as_nanos() as u64);
                }
            }
            Err(error) if is_late(&error) => lost += 1,
            Err(error) => return Err(error),
        }
    }
    took_ns.sort_unstable();
    let at = |share: f64| {
        let index = (took_ns.len() as f64 * share) as usize;
        took_ns.get(index.min(took_ns.len().saturating_sub(1))).map(|&ns| ns as f64 / 1e9)
    };
    match (at(0.5), at(0.99)) {
        (Some(median_s), Some(p99_s)) => {
            Ok(Echo { round_trips: took_ns.len() as u64, lost, median_s, p99_s })
        }
        _ => {
            let sentence = format!("{to} sent nothing back");
            Err(io::Error::new(io::ErrorKind::TimedOut, sentence))
        }
    }
}

/// Waits for this datagram; older ones may still come.
fn returned(socket: &UdpSocket, header: &Header, inbox: &mut [u8]) -> io::Result<()> {
    loop {
        let octets = retried(|| socket.recv(inbox))?;
        if Header::read(&inbox[..octets]) == Some(*header) {
            return Ok(());
        }
    }
}

fn is_late(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}
