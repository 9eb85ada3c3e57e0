//! Transfers bytes over TCP and hashes them at both ends.

use std::fmt;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::namespace::Namespace;

/// Timeout of a stalled transfer.
const SILENCE: Duration = Duration::from_secs(20);
/// Bytes of one write.
const PIECE: usize = 64 * 1024;

/// One end of a transfer.
#[derive(Debug, Clone, Copy)]
pub struct End<'a> {
    /// Its namespace.
    pub namespace: &'a Namespace,
    /// Its address.
    pub address: IpAddr,
}

/// Transfers `octets` from `one` to `other` and as many back, at the same
/// time, and compares hashes.
///
/// # Errors
/// A transfer fails, or the hashes differ.
pub fn both_ways(one: End<'_>, other: End<'_>, octets: u64) -> Result<()> {
    let there = start(one, other, 1, octets)?;
    let back = start(other, one, 2, octets)?;
    there().context("one way")?;
    back().context("the other way")
}

/// Starts a transfer; returns a function that waits for its end.
fn start(
    from: End<'_>,
    to: End<'_>,
    seed: u64,
    octets: u64,
) -> Result<impl FnOnce() -> Result<()> + use<>> {
    let (ready, listening) = channel();
    let address = SocketAddr::new(to.address, 0);
    let receiver = to.namespace.spawn(move || receive(address, &ready));
    let Ok(address) = listening.recv() else {
        receiver.join()?;
        bail!("the receiver ended early");
    };
    let source = from.address;
    let sender = from.namespace.spawn(move || send(source, address, seed, octets));
    Ok(move || {
        let sent = sender.join().context("sending")?;
        let received = receiver.join().context("receiving")?;
        if sent != received {
            bail!("what arrived ({received}) is not what was sent ({sent})");
        }
        Ok(())
    })
}

/// Number of bytes and their hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sum {
    octets: u64,
    hash: blake3::Hash,
}

impl fmt::Display for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.octets, self.hash)
    }
}

/// Accepts one connection at an address, whose port may be 0, and reads to its end.
/// `ready` receives the address with its port.
///
/// # Errors
/// No byte arrives for 20 seconds.
pub fn receive(address: SocketAddr, ready: &Sender<SocketAddr>) -> Result<Sum> {
    let listener = TcpListener::bind(address).context("listening")?;
    let _ = ready.send(listener.local_addr()?);
    let (mut stream, _) = listener.accept()?;
    stream.set_read_timeout(Some(SILENCE))?;
    let (mut hasher, mut moved) = (blake3::Hasher::new(), 0);
    let mut piece = vec![0; PIECE];
    loop {
        match headroom_netio::retried(|| stream.read(&mut piece))? {
            0 => return Ok(Sum { octets: moved, hash: hasher.finalize() }),
            length => {
                hasher.update(&piece[..length]);
                moved += length as u64;
            }
        }
    }
}

/// Sends `octets` bytes from a local address; equal seeds give equal bytes.
///
/// # Errors
/// No byte can be sent for 20 seconds.
pub fn send(source: IpAddr, to: SocketAddr, seed: u64, octets: u64) -> Result<Sum> {
    let mut stream = connect(source, to).with_context(|| format!("connecting to {to}"))?;
    stream.set_write_timeout(Some(SILENCE))?;
    let mut content = blake3::Hasher::new().update(&seed.to_be_bytes()).finalize_xof();
    let (mut hasher, mut moved) = (blake3::Hasher::new(), 0);
    let mut piece = vec![0; PIECE];
    while moved < octets {
        let length = piece.len().min((octets - moved) as usize);
        content.fill(&mut piece[..length]);
        stream.write_all(&piece[..length])?;
        hasher.update(&piece[..length]);
        moved += length as u64;
    }
    Ok(Sum { octets: moved, hash: hasher.finalize() })
}

/// Binds a local address, because policies select both.
fn connect(source: IpAddr, to: SocketAddr) -> Result<TcpStream> {
    use nix::sys::socket::{
        AddressFamily, SockFlag, SockType, SockaddrStorage, bind, connect, setsockopt, socket,
        sockopt,
    };
    use nix::sys::time::{TimeVal, TimeValLike};
    use std::os::fd::AsRawFd;
    let family = if to.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let socket = socket(family, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    bind(socket.as_raw_fd(), &SockaddrStorage::from(SocketAddr::new(source, 0)))?;
    // bounds the time that connecting may take (socket(7))
    setsockopt(&socket, sockopt::SendTimeout, &TimeVal::seconds(SILENCE.as_secs() as i64))?;
    connect(socket.as_raw_fd(), &SockaddrStorage::from(to))?;
    Ok(TcpStream::from(socket))
}
