//! A film: a real encoder sends a moving picture as RTP at one end, and at the other,
//! behind our server, which follows the packets, a real player decodes it.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::ops::{Range, RangeInclusive};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::player::last_words;
use crate::reception::{Question, Streamed};
use crate::rtp::DYNAMIC;
use crate::session::{self, PATIENCE, Request};
use crate::stream::{BIN_S, send_bulk};

/// Pictures a second.
const PICTURES_HZ: u32 = 25;
/// Pictures up to the next that needs no other: a player that has missed one to a lost
/// packet has the next in half a second.
const GROUP: u32 = 12;
/// What is filmed, 352 × 288 as video telephones have it.
const SCENE: &str = "testsrc2=size=352x288:rate=25";
/// The UUID of what the film says beside its pictures (H.264, annex D.1.7): that of ours.
const MARK: &str = "5b0d2d3c-6f0c-4c5e-9d5b-3f1f0a6f6b1e";
/// The most letters and digits that stand in a film.
pub const LONGEST_MARK: usize = 64;
/// Octets of the shortest packets that are sensible, and of the longest.
const SIZES: RangeInclusive<usize> = 100..=crate::MOST;
/// Bits a second.
const RATES: RangeInclusive<u64> = 16_000..=50_000_000;

/// What is shown.
#[derive(Debug, Clone, PartialEq)]
pub struct Film {
    /// The ffmpeg that encodes it.
    pub encoder: PathBuf,
    /// Bits a second of the picture, as even as the encoder makes it.
    pub bits_per_second: u64,
    /// Octets of the longest packet.
    pub size: usize,
    /// For how long.
    pub seconds: u32,
    /// From when until when a TCP connection sends what it can beside it, in seconds;
    /// the totals are then of this time.
    pub beside: Option<Range<f64>>,
    /// Letters and digits that stand in the film beside its pictures.
    pub mark: Option<String>,
}

/// What became of a film.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Shown {
    /// Of its packets.
    #[serde(flatten)]
    pub streamed: Streamed,
    /// Pictures that the player has decoded.
    pub frames: u64,
}

/// Shows a film to a server's player, and says what became of it.
///
/// # Errors
/// Nobody answers, the encoder or the player fails, or the player has decoded nothing;
/// with the words of whoever it was.
pub fn film(to: SocketAddr, film: &Film) -> io::Result<Shown> {
    film.check()?;
    let ssrc = rand::random();
    let seconds = film.seconds;
    let socket = session::connect(to, &Request::Show { ssrc, seconds })?;
    session::hear_answer::<Result<(), String>>(&socket)?.map_err(io::Error::other)?;
    let begun = Instant::now();
    thread::scope(|scope| {
        let bulk = film.beside.clone();
        let bulk = bulk.map(|time| scope.spawn(move || send_bulk(to, begun, &time, b"film")));
        let encoded = film.encode(to, ssrc, &socket);
        let sent = bulk.map_or(Ok(Ok(())), thread::ScopedJoinHandle::join);
        sent.map_err(|_| io::Error::other("the bulk ended"))??;
        encoded
    })?;
    let (from_s, to_s) = match &film.beside {
        Some(time) => (time.start, Some(time.end)),
        None => (0.0, None),
    };
    let question = Question { sent: None, from_s, to_s, bin_s: BIN_S };
    session::say(&socket, &question)?;
    session::hear_answer::<Result<Shown, String>>(&socket)?.map_err(io::Error::other)
}

impl Film {
    fn check(&self) -> io::Result<()> {
        let told = |sentence: String| Err(io::Error::new(io::ErrorKind::InvalidInput, sentence));
        if !SIZES.contains(&self.size) {
            let (least, most) = (SIZES.start(), SIZES.end());
            return told(format!("a film's packets have at most {least} to {most} octets"));
        }
        if !RATES.contains(&self.bits_per_second) {
            return told("a film has from 16 kbit/s to 50 Mbit/s".to_owned());
        }
        let plain = |mark: &String| {
            mark.len() <= LONGEST_MARK && mark.bytes().all(|octet| octet.is_ascii_alphanumeric())
        };
        if !self.mark.as_ref().is_none_or(plain) {
            return told(format!("a film's mark is letters and digits, at most {LONGEST_MARK}"));
        }
        Ok(())
    }

    /// Runs the encoder to its end, or to that of the server, whose connection this is.
    fn encode(&self, to: SocketAddr, ssrc: u32, server: &TcpStream) -> io::Result<()> {
        let mut encoder = Command::new(&self.encoder)
            .args(self.words(to, ssrc))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| {
                io::Error::other(format!("start the encoder {}: {error}", self.encoder.display()))
            })?;
        let said = last_words(encoder.stderr.take());
        let patience = Duration::from_secs(u64::from(self.seconds)) + PATIENCE / 2;
        let ended = wait(&mut encoder, patience, server);
        let _ = encoder.kill();
        let _ = encoder.wait();
        let said = said.join().unwrap_or_default();
        match ended? {
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(io::Error::other(format!("the encoder failed ({status}): {said}"))),
            None => Err(io::Error::other(format!(
                "the encoder took more than {patience:?} for a film of {} s: {said}",
                self.seconds
            ))),
        }
    }

    /// The encoder's arguments: each picture at its time, at a constant rate with a second's
    /// room.
    fn words(&self, to: SocketAddr, ssrc: u32) -> Vec<String> {
        let rate = self.bits_per_second.to_string();
        let mut words: Vec<String> = Vec::new();
        let mut add = |more: &[&str]| words.extend(more.iter().map(|&word| word.to_owned()));
        add(&["-hide_banner", "-nostdin", "-nostats", "-loglevel", "error"]);
        add(&["-re", "-f", "lavfi", "-i", SCENE, "-t", &self.seconds.to_string()]);
        add(&["-threads", "1", "-c:v", "libx264", "-preset", "veryfast", "-tune", "zerolatency"]);
        add(&["-r", &PICTURES_HZ.to_string(), "-g", &GROUP.to_string()]);
        add(&["-b:v", &rate, "-minrate", &rate, "-maxrate", &rate, "-bufsize", &rate]);
        add(&["-x264-params", "nal-hrd=cbr"]);
        if let Some(mark) = &self.mark {
            add(&["-bsf:v", &format!("h264_metadata=sei_user_data={MARK}+{mark}")]);
        }
        // numbers from 0 on, and at the end a report that says how many there were
        add(&["-f", "rtp", "-payload_type", &DYNAMIC.to_string(), "-seq", "0"]);
        add(&["-ssrc", &ssrc.cast_signed().to_string(), "-rtpflags", "send_bye"]);
        // RTCP to the same port (RFC 5761)
        let (port, size) = (to.port(), self.size);
        add(&[&format!("rtp://{to}?rtcpport={port}&pkt_size={size}")]);
        words
    }
}

/// Waits for a process, so long; none: it has not ended. A server that is gone ends the
/// waiting: nobody would see the rest.
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
        // it says nothing before it is asked
        match server.peek(&mut [0]) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            _ => return Err(io::Error::other("the server went away in the middle of the film")),
        }
        thread::sleep(Duration::from_millis(20));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn short() -> Film {
        Film {
            encoder: PathBuf::from("/nonexistent/encoder"),
            bits_per_second: 220_000,
            size: 1000,
            seconds: 1,
            beside: None,
            mark: Some("0123abcd".to_owned()),
        }
    }

    #[test]
    fn the_encoder_is_told_rate_length_mark_and_place() {
        let words = short().words("[::1]:5004".parse().expect("an address"), u32::MAX).join(" ");
        for part in [
            " -re ",
            " -t 1 ",
            " -b:v 220000 -minrate 220000 -maxrate 220000 ",
            "+0123abcd ",
            " -seq 0 -ssrc -1 -rtpflags send_bye ",
        ] {
            assert!(words.contains(part), "{part} in {words}");
        }
        assert!(words.ends_with(" rtp://[::1]:5004?rtcpport=5004&pkt_size=1000"), "{words}");
        let unmarked = Film { mark: None, ..short() };
        let words = unmarked.words("127.0.0.1:5004".parse().expect("an address"), 1);
        assert!(!words.iter().any(|word| word.contains("sei_user_data")), "{words:?}");
    }

    #[test]
    fn an_encoder_is_ended_in_time_and_with_its_server() {
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
        assert!(gone.is_err_and(|error| error.to_string().contains("went away")));
        for child in [&mut slow, &mut deserted] {
            child.kill().and_then(|()| child.wait()).expect("it runs");
        }
    }

    #[test]
    fn what_makes_no_film_is_refused_before_anybody_is_asked() {
        let nobody = "127.0.0.1:9".parse().expect("an address");
        for bad in [
            Film { size: 99, ..short() },
            Film { size: crate::MOST + 1, ..short() },
            Film { bits_per_second: 15_999, ..short() },
            Film { mark: Some("a,b=c".to_owned()), ..short() },
            Film { mark: Some("x".repeat(65)), ..short() },
        ] {
            let error = film(nobody, &bad).expect_err("refused");
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{error}");
        }
        assert!(film(nobody, &short()).is_err());
    }
}
