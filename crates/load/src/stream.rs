//! Sends a stream at a steady rate, as a telephone or a camera does: each RTP packet at
//! its time, and optionally TCP cross traffic.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::ops::Range;
use std::thread;
use std::time::{Duration, Instant};

use headroom_lab_trace::StreamStats;

use crate::cross_traffic::send_cross_traffic;
use crate::datagram::datagram_of;
use crate::net::{is_queue_full, now_ns, wildcard};
use crate::session::{Request, StatsQuery, query, query_stats};
use crate::stamped::{self, MIN_RTP_PACKET};
use crate::stats::PacketStats;

/// The highest rate at which packets are sent one by one.
pub const MAX_PACKETS_PER_SECOND: f64 = 20_000.0;

/// A stream to send.
#[derive(Debug, Clone, PartialEq)]
pub struct Stream {
    /// Bytes of each datagram.
    pub size: usize,
    /// Datagrams per second.
    pub per_second: f64,
    /// Duration.
    pub seconds: f64,
    /// Start and end of TCP cross traffic, in seconds. Totals then cover this time only.
    pub cross_traffic: Option<Range<f64>>,
}

/// Sends a stream to a server and returns its statistics.
///
/// # Errors
/// The stream is out of bounds, the server does not answer, or a system call failed.
pub fn stream(to: SocketAddr, stream: &Stream, fill: &[u8]) -> io::Result<StreamStats> {
    let Stream { size, per_second, seconds, ref cross_traffic } = *stream;
    if size < MIN_RTP_PACKET || !(per_second > 0.0 && per_second <= MAX_PACKETS_PER_SECOND) {
        let sentence = format!(
            "a steady stream has datagrams of at least {MIN_RTP_PACKET} bytes, and at most {MAX_PACKETS_PER_SECOND} of them per second"
        );
        return Err(io::Error::new(io::ErrorKind::InvalidInput, sentence));
    }
    let mut datagram = datagram_of(size, fill)?;
    let ssrc = rand::random();
    let ready: bool = query(to, &Request::Begin { ssrc: Some(ssrc) })?;
    if !ready {
        return Err(io::Error::other(format!("{to} is not ready")));
    }
    let socket = UdpSocket::bind(wildcard(to))?;
    socket.connect(to)?;
    let packets = (seconds * per_second).round().max(1.0) as u64;
    let begun = Instant::now();
    thread::scope(|scope| {
        let bulk = cross_traffic.clone();
        let bulk = bulk.map(|time| scope.spawn(move || send_cross_traffic(to, begun, &time, fill)));
        for number in 0..packets {
            let due = begun + Duration::from_secs_f64(number as f64 / per_second);
            thread::sleep(due.saturating_duration_since(Instant::now()));
            stamped::write(&mut datagram, ssrc, number, per_second, now_ns());
            match socket.send(&datagram) {
                // a full queue here, or an ICMP error for an earlier packet: it is lost
                Err(error)
                    if !is_queue_full(&error)
                        && error.kind() != io::ErrorKind::ConnectionRefused =>
                {
                    return Err(error);
                }
                _ => {}
            }
        }
        let panicked = || io::Error::other("the thread of the cross traffic panicked");
        bulk.map_or(Ok(()), |bulk| bulk.join().map_err(|_| panicked())?)
    })?;
    let stats = StatsQuery::new(Some(packets), cross_traffic.as_ref());
    query_stats(to, stats)?.ok_or_else(|| {
        let sentence = format!("none of {packets} datagrams arrived at {to}");
        io::Error::new(io::ErrorKind::TimedOut, sentence)
    })
}

/// Sends datagrams of `size` bytes at a steady rate for a time, and counts those that
/// arrive after the first.
///
/// # Errors
/// Those of [`stream`].
pub fn paced(to: SocketAddr, sent: &Stream, fill: &[u8]) -> io::Result<PacketStats> {
    let StreamStats { measured_s, arrived, lost, .. } = stream(to, sent, fill)?;
    Ok(PacketStats { seconds: measured_s, packets: arrived.saturating_sub(1), lost })
}
