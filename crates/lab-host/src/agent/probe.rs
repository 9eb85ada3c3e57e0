//! A host's part in a link's self-test: sends numbered UDP datagrams at a steady pace,
//! discards them at a port, so that no ICMP error disturbs the test, and names the
//! congestion control of TCP on this route.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use headroom_mutex::lock;
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrStorage, connect, getsockopt, socket, sockopt,
};
use serde::{Deserialize, Serialize};

use crate::error::{Doing, Result};

/// The first bytes of a probe; its number follows, big-endian.
pub(crate) const MAGIC: [u8; 8] = *b"HRprobe\0";
/// Bytes of payload that every probe has at least.
pub(crate) const MIN_PAYLOAD: usize = MAGIC.len() + 4;

/// Probes to be sent, numbered from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Train {
    pub(crate) to: SocketAddr,
    pub(crate) probes: u32,
    /// Bytes of UDP payload.
    pub(crate) payload: usize,
    /// Time from one probe to the next.
    pub(crate) interval_ns: u64,
    /// Whether a late wake-up keeps the interval or the rate.
    pub(crate) keep: Keep,
}

/// The quantity that a sender keeps when it was woken late.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Keep {
    /// No two probes are ever closer than the interval: they must not queue.
    Interval,
    /// Missed probes are sent at once: the bottleneck must never be idle.
    Rate,
}

/// Below this the sender waits awake: a sleep may last 60 µs longer than asked.
const AWAKE: Duration = Duration::from_micros(100);

/// Sends a train.
pub(super) fn send(train: &Train) -> Result<()> {
    let doing = || format!("send probes to {}", train.to);
    let any = if train.to.is_ipv4() { IpAddr::from([0; 4]) } else { IpAddr::from([0; 16]) };
    let socket = UdpSocket::bind((any, 0)).doing(doing)?;
    socket.connect(train.to).doing(doing)?;
    let mut payload = vec![0; train.payload.max(MIN_PAYLOAD)];
    payload[..MAGIC.len()].copy_from_slice(&MAGIC);
    let interval = Duration::from_nanos(train.interval_ns);
    let mut due = Instant::now();
    for number in 0..train.probes {
        wait_until(due, train.keep);
        payload[MAGIC.len()..MIN_PAYLOAD].copy_from_slice(&number.to_be_bytes());
        socket.send(&payload).doing(doing)?;
        due = match train.keep {
            Keep::Interval => due.max(Instant::now()) + interval,
            Keep::Rate => due + interval,
        };
    }
    Ok(())
}

fn wait_until(due: Instant, keep: Keep) {
    loop {
        let left = due.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        match keep {
            Keep::Interval => std::thread::sleep(left),
            Keep::Rate if left > AWAKE => std::thread::sleep(left - AWAKE),
            Keep::Rate => std::thread::yield_now(),
        }
    }
}

/// Binds a port that nobody reads, for as long as this process lives: what comes
/// is dropped when its buffer is full, without a word to the sender.
pub(super) fn swallow(address: SocketAddr) -> Result<()> {
    static PORTS: Mutex<BTreeMap<SocketAddr, UdpSocket>> = Mutex::new(BTreeMap::new());
    let mut ports = lock(&PORTS);
    if let Entry::Vacant(free) = ports.entry(address) {
        free.insert(UdpSocket::bind(address).doing(|| format!("swallow probes at {address}"))?);
    }
    Ok(())
}

/// The congestion control of a connection towards `address`, which the kernel
/// has chosen when it sends the SYN: no answer is needed.
pub(super) fn congestion_control(address: SocketAddr) -> Result<String> {
    let doing = || format!("ask which congestion control TCP has towards {address}");
    let family = if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let stream = socket(family, SockType::Stream, flags, None).doing(doing)?;
    match connect(stream.as_raw_fd(), &SockaddrStorage::from(address)) {
        Ok(()) | Err(Errno::EINPROGRESS) => {}
        Err(error) => return Err(error).doing(doing),
    }
    let name = getsockopt(&stream, sockopt::TcpCongestion).doing(doing)?;
    Ok(name.to_string_lossy().trim_end_matches('\0').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_are_numbered_and_full() {
        let receiver = UdpSocket::bind("127.0.0.1:0").expect("a port");
        receiver.set_read_timeout(Some(Duration::from_secs(10))).expect("a time-out");
        let to = receiver.local_addr().expect("an address");
        let train = Train { to, probes: 3, payload: 100, interval_ns: 1000, keep: Keep::Interval };
        send(&train).expect("sent");
        for number in 0u32..3 {
            let mut datagram = [0; 200];
            let bytes = headroom_netio::retried(|| receiver.recv(&mut datagram)).expect("a probe");
            assert_eq!(bytes, 100);
            assert_eq!(datagram[..8], MAGIC);
            assert_eq!(datagram[8..12], number.to_be_bytes());
        }
    }

    #[test]
    fn a_port_is_swallowed_twice_without_an_error() {
        // another process may bind the free port first
        let bound = (0..100).find_map(|_| {
            let free = UdpSocket::bind("127.0.0.1:0").and_then(|port| port.local_addr());
            let address = free.expect("a free port");
            swallow(address).ok().map(|()| address)
        });
        swallow(bound.expect("bound")).expect("bound already");
    }

    #[test]
    fn tcp_names_its_congestion_control_before_anybody_answers() {
        let name = congestion_control(([127, 0, 0, 1], 9).into()).expect("a name");
        let known = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control");
        assert!(known.expect("Linux").split_whitespace().any(|known| known == name), "{name}");
    }
}
