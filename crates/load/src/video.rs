//! Sends a video: a real encoder sends RTP at the client; at the server, which measures the
//! packets, a real decoder decodes it.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::ops::{Range, RangeInclusive};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use headroom_lab_trace::StreamStats;

use crate::cross_traffic::send_cross_traffic;
use crate::datagram::MAX_DATAGRAM;
use crate::process::stderr_tail;
use crate::rtp::DYNAMIC;
use crate::session::{self, Request, StatsQuery, TIMEOUT};

/// Frames per second.
const FRAME_RATE_HZ: u32 = 25;
/// Frames from one intra frame to the next (GOP): a decoder recovers from a lost packet
/// within half a second.
const GOP: u32 = 12;
/// The test picture, in CIF as video telephones use it.
const SCENE: &str = "testsrc2=size=352x288:rate=25";
/// UUID of the user data that carries the marker (SEI, H.264 annex D.1.7), ours alone.
const MARKER_UUID: &str = "5b0d2d3c-6f0c-4c5e-9d5b-3f1f0a6f6b1e";
/// Length of the longest marker.
pub const MAX_MARKER: usize = 64;
/// Bounds of the packet size, bytes.
const SIZES: RangeInclusive<usize> = 100..=MAX_DATAGRAM;
/// Bounds of the bit rate.
const RATES: RangeInclusive<u64> = 16_000..=50_000_000;

/// A video to send.
#[derive(Debug, Clone, PartialEq)]
pub struct Video {
    /// The ffmpeg that encodes it.
    pub encoder: PathBuf,
    /// Constant bit rate of the video.
    pub bits_per_second: u64,
    /// Bytes of the longest packet.
    pub size: usize,
    /// Duration.
    pub seconds: u32,
    /// Start and end of TCP cross traffic, in seconds. Totals then cover this time only.
    pub cross_traffic: Option<Range<f64>>,
    /// Letters and digits to carry as user data.
    pub marker: Option<String>,
}

/// Sends a video to a server and its decoder, and returns statistics.
///
/// # Errors
/// The video is out of bounds, the server does not answer, or the encoder or decoder
/// failed or decoded nothing; with the end of its error output.
pub fn video(to: SocketAddr, video: &Video) -> io::Result<StreamStats> {
    video.check()?;
    let ssrc = rand::random();
    let seconds = video.seconds;
    let socket = session::connect(to, &Request::Show { ssrc, seconds })?;
    session::recv_answer::<Result<(), String>>(&socket)?.map_err(io::Error::other)?;
    let begun = Instant::now();
    thread::scope(|scope| {
        let bulk = video.cross_traffic.clone();
        let bulk =
            bulk.map(|time| scope.spawn(move || send_cross_traffic(to, begun, &time, b"video")));
        let encoded = video.encode(to, ssrc, &socket);
        let sent = bulk.map_or(Ok(Ok(())), thread::ScopedJoinHandle::join);
        sent.map_err(|_| io::Error::other("the thread of the cross traffic panicked"))??;
        encoded
    })?;
    session::send(&socket, &StatsQuery::new(None, video.cross_traffic.as_ref()))?;
    session::recv_answer::<Result<StreamStats, String>>(&socket)?.map_err(io::Error::other)
}

impl Video {
    fn check(&self) -> io::Result<()> {
        let invalid = |sentence: String| Err(io::Error::new(io::ErrorKind::InvalidInput, sentence));
        if !SIZES.contains(&self.size) {
            let (min, max) = (SIZES.start(), SIZES.end());
            return invalid(format!("the longest packet of a video has {min} to {max} bytes"));
        }
        if !RATES.contains(&self.bits_per_second) {
            return invalid("a video has from 16 kbit/s to 50 Mbit/s".to_owned());
        }
        let plain = |marker: &String| {
            marker.len() <= MAX_MARKER && marker.bytes().all(|octet| octet.is_ascii_alphanumeric())
        };
        if !self.marker.as_ref().is_none_or(plain) {
            return invalid(format!(
                "a video's marker has at most {MAX_MARKER} letters and digits"
            ));
        }
        Ok(())
    }

    /// Runs the encoder until it ends, or until the server closes its connection.
    fn encode(&self, to: SocketAddr, ssrc: u32, server: &TcpStream) -> io::Result<()> {
        let mut encoder = Command::new(&self.encoder)
            .args(self.encoder_arguments(to, ssrc))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| {
                io::Error::other(format!("start the encoder {}: {error}", self.encoder.display()))
            })?;
        let errors = stderr_tail(encoder.stderr.take());
        let patience = Duration::from_secs(u64::from(self.seconds)) + TIMEOUT / 2;
        let ended = wait(&mut encoder, patience, server);
        let _ = encoder.kill();
        let _ = encoder.wait();
        let errors = errors.join().unwrap_or_default();
        match ended? {
            Some(status) if status.success() => Ok(()),
            Some(status) => {
                Err(io::Error::other(format!("the encoder failed ({status}): {errors}")))
            }
            None => Err(io::Error::other(format!(
                "the encoder took more than {patience:?} for a video of {} s: {errors}",
                self.seconds
            ))),
        }
    }

    /// Returns the encoder's arguments: real time, constant bit rate with a buffer of one
    /// second.
    fn encoder_arguments(&self, to: SocketAddr, ssrc: u32) -> Vec<String> {
        let rate = self.bits_per_second.to_string();
        let mut arguments: Vec<String> = Vec::new();
        let mut add = |more: &[&str]| arguments.extend(more.iter().map(|&one| one.to_owned()));
        add(&["-hide_banner", "-nostdin", "-nostats", "-loglevel", "error"]);
        add(&["-re", "-f", "lavfi", "-i", SCENE, "-t", &self.seconds.to_string()]);
        add(&["-threads", "1", "-c:v", "libx264", "-preset", "veryfast", "-tune", "zerolatency"]);
        add(&["-r", &FRAME_RATE_HZ.to_string(), "-g", &GOP.to_string()]);
        add(&["-b:v", &rate, "-minrate", &rate, "-maxrate", &rate, "-bufsize", &rate]);
        add(&["-x264-params", "nal-hrd=cbr"]);
        if let Some(marker) = &self.marker {
            add(&["-bsf:v", &format!("h264_metadata=sei_user_data={MARKER_UUID}+{marker}")]);
        }
        // numbers from 0, and at the end a sender report with their count
        add(&["-f", "rtp", "-payload_type", &DYNAMIC.to_string(), "-seq", "0"]);
        add(&["-ssrc", &ssrc.cast_signed().to_string(), "-rtpflags", "send_bye"]);
        // RTCP to the same port (RFC 5761)
        let (port, size) = (to.port(), self.size);
        add(&[&format!("rtp://{to}?rtcpport={port}&pkt_size={size}")]);
        arguments
    }
}

/// Waits for a process up to `patience`; none: it has not ended. Fails if the server closes
/// its connection.
fn wait(
    child: &mut Child,
    patience: Duration,
    server: &TcpStream,
) -> io::Result<Option<ExitStatus>> {
    let until = Instant::now() + patience;
    server.set_nonblocking(true)?;
    loop {
        let ended = child.try_wait()?;
        if ended.is_some() || Instant::now() > until {
            server.set_nonblocking(false)?;
            return Ok(ended);
        }
        // the server sends nothing before the query
        match server.peek(&mut [0]) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            _ => return Err(io::Error::other("the server closed the connection during the video")),
        }
        thread::sleep(Duration::from_millis(20));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn short() -> Video {
        Video {
            encoder: PathBuf::from("/nonexistent/encoder"),
            bits_per_second: 220_000,
            size: 1000,
            seconds: 1,
            cross_traffic: None,
            marker: Some("0123abcd".to_owned()),
        }
    }

    #[test]
    fn arguments_carry_rate_duration_marker_and_address() {
        let arguments = short()
            .encoder_arguments("[::1]:5004".parse().expect("an address"), u32::MAX)
            .join(" ");
        for part in [
            " -re ",
            " -t 1 ",
            " -b:v 220000 -minrate 220000 -maxrate 220000 ",
            "+0123abcd ",
            " -seq 0 -ssrc -1 -rtpflags send_bye ",
        ] {
            assert!(arguments.contains(part), "{part} in {arguments}");
        }
        assert!(
            arguments.ends_with(" rtp://[::1]:5004?rtcpport=5004&pkt_size=1000"),
            "{arguments}"
        );
        let without_marker = Video { marker: None, ..short() };
        let arguments =
            without_marker.encoder_arguments("127.0.0.1:5004".parse().expect("an address"), 1);
        assert!(!arguments.iter().any(|one| one.contains("sei_user_data")), "{arguments:?}");
    }

    #[test]
    fn waiting_ends_in_time_and_with_the_server() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a socket");
        let to = listener.local_addr().expect("its address");
        let connection = TcpStream::connect(to).expect("it listens");
        let (server, _) = listener.accept().expect("a connection");
        let sleep = || Command::new("sleep").arg("60").spawn().expect("sleep runs");
        let (mut slow, mut deserted) = (sleep(), sleep());
        let in_time = wait(&mut slow, Duration::from_millis(50), &connection).expect("no trouble");
        assert!(in_time.is_none(), "{in_time:?}");
        drop(server);
        let gone = wait(&mut deserted, Duration::from_secs(50), &connection);
        assert!(gone.is_err_and(|error| error.to_string().contains("closed the connection")));
        for child in [&mut slow, &mut deserted] {
            child.kill().and_then(|()| child.wait()).expect("it runs");
        }
    }

    #[test]
    fn rejects_values_out_of_bounds_before_it_connects() {
        let nobody = "127.0.0.1:9".parse().expect("an address");
        for bad in [
            Video { size: 99, ..short() },
            Video { size: MAX_DATAGRAM + 1, ..short() },
            Video { bits_per_second: 15_999, ..short() },
            Video { marker: Some("a,b=c".to_owned()), ..short() },
            Video { marker: Some("x".repeat(65)), ..short() },
        ] {
            let error = video(nobody, &bad).expect_err("refused");
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{error}");
        }
        assert!(video(nobody, &short()).is_err());
    }
}
