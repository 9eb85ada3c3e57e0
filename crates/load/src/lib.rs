//! Datagrams as fast as they arrive, at a steady rate, and there and back: the load
//! that the lab measures tunnels with.
//!
//! A sender that never waits measures how it starves everything behind it. Here no
//! more than a window of datagrams is on its way at once: the sender goes on when the
//! receiver says that it has some, and the rate is that of the slowest part. Trains
//! are sent and received in one piece where the kernel can (`UDP_SEGMENT`, `UDP_GRO`),
//! so that most of the work is that of what is between.
//!
//! A steady stream is RTP (`rtp`): what arrived of it, when and in which order, is
//! `reception`, of streams of our own and of those of a real encoder alike. Such a one
//! is a `film`, which a real `player` decodes behind the server.

mod echo;
mod film;
pub mod form;
mod packets;
mod player;
mod reception;
pub mod rtp;
mod serve;
mod session;
mod stream;
pub mod window;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

pub use echo::{Echo, echo};
pub use film::{Film, LONGEST_MARK, Shown, film};
pub use form::LEAST;
pub use packets::{Packets, packets};
pub use reception::{Bin, Delay, Streamed};
pub use serve::Server;
pub use stream::{LEAST as LEAST_STREAMED, MOST_PER_SECOND, Stream, paced, stream};

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

/// The clock that both ends on one machine share, whatever their namespaces.
fn now_ns() -> u64 {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC);
    now.map_or(0, |now| now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn server(address: &str) -> SocketAddr {
        let address = address.parse().expect("an address");
        let server = Server::bind(address, None).expect("a server");
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
    fn a_steady_stream_is_told_of() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let to = server(address);
            let sent = Stream { size: 200, per_second: 500.0, seconds: 0.4, beside: None };
            let seen = stream(to, &sent, b"x").expect("a server");
            assert_eq!((seen.sent, seen.lost, seen.duplicates), (200, 0, 0), "{seen:?}");
            let delay = seen.delay.expect("one clock");
            assert!(delay.p50_s > 0.0 && delay.p50_s <= delay.max_s, "{seen:?}");
            let counted = paced(to, &sent, b"x").expect("a server");
            assert_eq!((counted.packets, counted.lost), (199, 0));
            // it cannot be over before the last packet's time
            assert!(counted.seconds > 0.2, "{counted:?}");
        }
    }

    #[test]
    fn a_stream_has_company_for_a_time() {
        let to = server("127.0.0.1:0");
        let beside = Some(0.2..0.6);
        let sent = Stream { size: LEAST_STREAMED, per_second: 200.0, seconds: 1.0, beside };
        let seen = stream(to, &sent, b"x").expect("a server");
        assert!(seen.beside_bps.is_some_and(|bps| bps > 0.0), "{seen:?}");
        // the totals are of that time, the pieces of all
        assert!((1..200).contains(&seen.sent), "{seen:?}");
        assert_eq!(seen.bins.iter().map(|bin| bin.sent).sum::<u64>(), 200);
    }

    #[test]
    fn a_film_that_nobody_can_play_is_refused() {
        let shown = Film {
            encoder: "/nonexistent/encoder".into(),
            bits_per_second: 220_000,
            size: 1000,
            seconds: 1,
            beside: None,
            mark: None,
        };
        let error = film(server("127.0.0.1:0"), &shown).expect_err("there is no player");
        assert!(error.to_string().contains("no player"), "{error}");
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
        for (size, per_second) in
            [(LEAST_STREAMED - 1, 10.0), (100, 0.0), (100, f64::NAN), (100, 10.0)]
        {
            let sent = Stream { size, per_second, seconds: 0.1, beside: None };
            assert!(stream(nobody, &sent, b"x").is_err());
        }
    }
}
