//! Datagrams as fast as they arrive, and there and back: the load that the lab
//! measures tunnels with.
//!
//! A sender that never waits measures how it starves everything behind it. Here no
//! more than a window of datagrams is on its way at once: the sender goes on when the
//! receiver says that it has some, and the rate is that of the slowest part. Trains
//! are sent and received in one piece where the kernel can (`UDP_SEGMENT`, `UDP_GRO`),
//! so that most of the work is that of what is between.

mod echo;
pub mod form;
mod packets;
mod serve;
pub mod window;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

pub use echo::{Echo, echo};
pub use form::LEAST;
pub use packets::{Packets, packets};
pub use serve::Server;

/// The longest datagram; some of the kernels between may cut longer ones.
pub const MOST: usize = 16_000;

/// Any address of the same family.
fn any(of: SocketAddr) -> SocketAddr {
    let ip: IpAddr = match of {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    SocketAddr::new(ip, 0)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn server(address: &str) -> SocketAddr {
        let server = Server::bind(address.parse().expect("an address")).expect("a server");
        let local = server.local();
        std::thread::spawn(move || server.run());
        local
    }

    #[test]
    fn every_datagram_is_counted_once() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let to = server(address);
            for size in [LEAST, 1400, 4096] {
                let seen = packets(to, size, Duration::from_millis(150), b"x").expect("a server");
                assert!(seen.packets > 0 && seen.seconds > 0.0, "{size}: {seen:?}");
            }
        }
    }

    #[test]
    fn a_round_trip_takes_some_time() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let to = server(address);
            let seen = echo(to, 512, Duration::from_millis(100), b"x").expect("a server");
            assert!(seen.round_trips > 0, "{seen:?}");
            assert!(0.0 < seen.median_s && seen.median_s <= seen.p99_s, "{seen:?}");
        }
    }

    #[test]
    fn a_connection_tells_that_the_server_is_there() {
        let to = server("127.0.0.1:0");
        for _ in 0..3 {
            std::net::TcpStream::connect(to).expect("it listens");
        }
    }

    #[test]
    fn where_nobody_answers_it_says_so() {
        let nobody: SocketAddr = "127.0.0.1:9".parse().expect("an address");
        assert!(packets(nobody, 64, Duration::from_millis(50), b"x").is_err());
        assert!(echo(nobody, 64, Duration::from_millis(50), b"x").is_err());
        for size in [LEAST - 1, MOST + 1] {
            assert!(packets(nobody, size, Duration::from_millis(50), b"x").is_err());
        }
    }
}
