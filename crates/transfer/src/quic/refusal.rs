//! Learns from the network that a server is unreachable. QUIC's socket is not connected, and
//! the kernel reports ICMP errors (RFC 792, RFC 4443) only to connected ones; so a socket of
//! our own sends to the same port at the same time.

use std::convert::Infallible;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::time::Duration;

use nix::sys::socket::{setsockopt, sockopt};
use tokio::io::Interest;
use tokio::net::UdpSocket;

use super::socket::any_address;

/// A datagram that servers ignore: neither a QUIC packet (its fixed bit is 0, and it is too
/// short) nor a lane's.
const NOTHING: [u8; 1] = [0];
/// The interval of resending: ICMP errors may be lost, and are rate-limited.
const AGAIN: Duration = Duration::from_secs(1);

/// Waits until the network reports that an address is unreachable: a closed port, no such host,
/// no route. Never returns otherwise.
pub(super) async fn refusal(address: SocketAddr) -> io::Error {
    match ask(address).await {
        Err(error) if is_refusal(&error) => error,
        // other errors of this socket say nothing about the host
        _ => std::future::pending().await,
    }
}

async fn ask(address: SocketAddr) -> io::Result<Infallible> {
    let socket = std::net::UdpSocket::bind(SocketAddr::new(any_address(address), 0))?;
    // without it, the kernel does not report `no such host` (ip(7), ipv6(7))
    match address {
        SocketAddr::V4(_) => setsockopt(&socket, sockopt::Ipv4RecvErr, &true)?,
        SocketAddr::V6(_) => setsockopt(&socket, sockopt::Ipv6RecvErr, &true)?,
    }
    socket.set_nonblocking(true)?;
    socket.connect(address)?;
    let socket = UdpSocket::from_std(socket)?;
    loop {
        socket.send(&NOTHING).await?;
        let error = tokio::time::timeout(AGAIN, socket.ready(Interest::ERROR)).await;
        if let (Ok(_), Some(error)) = (error, socket.take_error()?) {
            return Err(error);
        }
        tokio::time::sleep(AGAIN / 10).await;
    }
}

fn is_refusal(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ConnectionRefused
            | ErrorKind::HostUnreachable
            | ErrorKind::NetworkUnreachable
            | ErrorKind::NetworkDown
            | ErrorKind::PermissionDenied
    )
}

#[cfg(test)]
mod tests {
    use headroom_testing::{link, privileged};

    use super::*;

    /// Nobody has the address: neighbours are asked for it (ARP, neighbour discovery) in vain.
    #[test]
    fn a_host_that_nobody_is_is_reported() {
        if !privileged() {
            return;
        }
        let [here, _there] = link();
        here.run(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(async {
                for address in ["192.0.2.77:4860", "[2001:db8::77]:4860"] {
                    let address = address.parse().expect("an address");
                    let error = tokio::time::timeout(Duration::from_secs(60), refusal(address));
                    let error = error.await.expect("it is told");
                    assert_eq!(error.kind(), ErrorKind::HostUnreachable, "{address}: {error}");
                }
            });
        });
    }

    #[test]
    fn a_closed_port_is_reported_and_an_open_one_is_not() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            for address in ["127.0.0.1:0", "[::1]:0"] {
                let open = std::net::UdpSocket::bind(address).expect("a port");
                let address = open.local_addr().expect("an address");
                let told = tokio::time::timeout(Duration::from_millis(300), refusal(address));
                assert!(told.await.is_err(), "{address} is open");
                drop(open);
                let error = tokio::time::timeout(Duration::from_secs(60), refusal(address));
                let error = error.await.expect("it is told");
                assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{address}: {error}");
            }
        });
    }
}
