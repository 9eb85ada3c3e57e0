//! Measures round trips: one datagram at a time, each sent when the one before has
//! returned.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use headroom_netio::retried;

use crate::datagram::{DatagramKind, Header, MAX_DATAGRAM, datagram_of};
use crate::net::{is_timeout, wildcard};
use crate::stats::EchoStats;

/// A datagram that has not returned by then is lost.
const ECHO_TIMEOUT: Duration = Duration::from_millis(200);
/// Share of the time that warms up and does not count.
const WARM_UP: f64 = 0.1;

/// Measures round trips of datagrams of `size` bytes for a time.
///
/// # Errors
/// The server does not answer, or a system call failed.
pub fn echo(to: SocketAddr, size: usize, time: Duration, fill: &[u8]) -> io::Result<EchoStats> {
    let mut datagram = datagram_of(size, fill)?;
    let socket = UdpSocket::bind(wildcard(to))?;
    socket.connect(to)?;
    socket.set_read_timeout(Some(ECHO_TIMEOUT))?;
    let session = rand::random();
    let mut inbox = [0; MAX_DATAGRAM];
    let mut took_ns: Vec<u64> = Vec::new();
    let mut lost = 0;
    let begun = Instant::now();
    for number in 0.. {
        if begun.elapsed() >= time {
            break;
        }
        let header = Header { kind: DatagramKind::Echo, session, number };
        header.write(&mut datagram);
        let sent = Instant::now();
        socket.send(&datagram)?;
        match returned(&socket, &header, &mut inbox) {
            Ok(()) => {
                if sent.duration_since(begun) >= time.mul_f64(WARM_UP) {
                    took_ns.push(sent.elapsed().as_nanos() as u64);
                }
            }
            Err(error) if is_timeout(&error) => lost += 1,
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
            Ok(EchoStats { round_trips: took_ns.len() as u64, lost, median_s, p99_s })
        }
        _ => {
            let sentence = format!("{to} returned no datagram");
            Err(io::Error::new(io::ErrorKind::TimedOut, sentence))
        }
    }
}

/// Waits for this datagram and skips older ones.
fn returned(socket: &UdpSocket, header: &Header, inbox: &mut [u8]) -> io::Result<()> {
    loop {
        let octets = retried(|| socket.recv(inbox))?;
        if Header::read(&inbox[..octets]) == Some(*header) {
            return Ok(());
        }
    }
}
