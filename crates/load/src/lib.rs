//! The load that the lab measures tunnels with: datagrams as fast as they arrive, at a
//! steady rate, or one round trip at a time.
//!
//! A sender that never waits measures how it starves every stage after it. This sender
//! keeps a window of datagrams in flight and continues when the server reports arrivals,
//! so the slowest stage sets the rate. Trains are sent and received in one piece where the
//! kernel can (`UDP_SEGMENT`, `UDP_GRO`), so the path, not the load, does most of the work.
//!
//! A steady stream is RTP (`rtp`). `rtp_receiver` measures arrivals, timing and order of
//! our own streams and of a real encoder's (`video`), which a real `decoder` decodes behind
//! the server. `stats` holds what the command prints.

mod cross_traffic;
pub mod datagram;
mod decoder;
mod echo;
mod net;
mod packets;
mod process;
pub mod rtp;
mod rtp_receiver;
mod serve;
mod session;
mod stamped;
pub mod stats;
mod stream;
mod video;
pub mod window;

pub use datagram::{MAX_DATAGRAM, MIN_DATAGRAM};
pub use echo::echo;
pub use packets::packets;
pub use serve::Server;
pub use stamped::MIN_RTP_PACKET;
pub use stream::{MAX_PACKETS_PER_SECOND, Stream, paced, stream};
pub use video::{MAX_MARKER, Video, video};

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
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
    fn counts_datagrams() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let to = server(address);
            for size in [MIN_DATAGRAM, 1400, 4096] {
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
    fn measures_a_steady_stream() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let to = server(address);
            let sent = Stream { size: 200, per_second: 500.0, seconds: 0.4, cross_traffic: None };
            let seen = stream(to, &sent, b"x").expect("a server");
            assert_eq!((seen.sent, seen.lost, seen.duplicates), (200, 0, 0), "{seen:?}");
            let delay = seen.delay.expect("one clock");
            assert!(delay.p50_s > 0.0 && delay.p50_s <= delay.max_s, "{seen:?}");
            let counted = paced(to, &sent, b"x").expect("a server");
            assert_eq!((counted.packets, counted.lost), (199, 0));
            // how long depends on when the server comes to read
            assert!(counted.seconds > 0.0, "{counted:?}");
        }
    }

    #[test]
    fn totals_cover_the_time_with_cross_traffic() {
        let to = server("127.0.0.1:0");
        let cross_traffic = Some(0.2..0.6);
        let sent = Stream { size: MIN_RTP_PACKET, per_second: 200.0, seconds: 1.0, cross_traffic };
        let seen = stream(to, &sent, b"x").expect("a server");
        assert!(seen.cross_traffic_bps.is_some_and(|bps| bps > 0.0), "{seen:?}");
        // intervals cover the whole stream
        assert!((1..200).contains(&seen.sent), "{seen:?}");
        assert_eq!(seen.bins.iter().map(|bin| bin.sent).sum::<u64>(), 200);
    }

    #[test]
    fn a_server_without_decoder_rejects_videos() {
        let sent = Video {
            encoder: "/nonexistent/encoder".into(),
            bits_per_second: 220_000,
            size: 1000,
            seconds: 1,
            cross_traffic: None,
            marker: None,
        };
        let error = video(server("127.0.0.1:0"), &sent).expect_err("no decoder");
        assert!(error.to_string().contains("no decoder"), "{error}");
    }

    #[test]
    fn accepts_connections_that_send_no_request() {
        let to = server("127.0.0.1:0");
        for _ in 0..3 {
            std::net::TcpStream::connect(to).expect("it listens");
        }
    }

    #[test]
    fn fails_without_a_server_or_with_values_out_of_bounds() {
        let nobody: SocketAddr = "127.0.0.1:9".parse().expect("an address");
        assert!(packets(nobody, 64, Duration::from_millis(50), b"x").is_err());
        assert!(echo(nobody, 64, Duration::from_millis(50), b"x").is_err());
        for size in [MIN_DATAGRAM - 1, MAX_DATAGRAM + 1] {
            assert!(packets(nobody, size, Duration::from_millis(50), b"x").is_err());
        }
        for (size, per_second) in
            [(MIN_RTP_PACKET - 1, 10.0), (100, 0.0), (100, f64::NAN), (100, 10.0)]
        {
            let sent = Stream { size, per_second, seconds: 0.1, cross_traffic: None };
            assert!(stream(nobody, &sent, b"x").is_err());
        }
    }
}
