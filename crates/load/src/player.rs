//! A real player at the end of a film: it is given every packet that arrives, decodes
//! the pictures and throws them away, and says how many there were.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, UdpSocket};
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdout, Command, ExitStatus, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::rtp::{self, DYNAMIC};

/// A player that is not there by then does not come.
const START: Duration = Duration::from_secs(10);
/// One that has not ended by then, after the film, is ended.
const END: Duration = Duration::from_secs(5);
/// Octets of what a program said last.
const LAST_WORDS: usize = 200;

/// An ffmpeg that plays what comes to a port of this host.
#[derive(Debug)]
pub(crate) struct Player {
    child: Child,
    way: UdpSocket,
    frames: Option<JoinHandle<u64>>,
    words: Option<JoinHandle<String>>,
}

impl Player {
    /// Starts a player, and waits until it listens.
    ///
    /// # Errors
    /// It cannot be started, ends, or does not listen; with its words.
    pub(crate) fn start(program: &Path) -> io::Result<Self> {
        let port = free_port()?;
        let mut child = Command::new(program)
            .args(["-hide_banner", "-nostats", "-loglevel", "error", "-threads", "1"])
            // what a film is like is clear after a second of it
            .args(["-analyzeduration", "1000000", "-protocol_whitelist", "pipe,udp,rtp"])
            // where packets are lost most pictures are damaged, and shown all the same
            .args(["-max_error_rate", "1", "-f", "sdp", "-i", "pipe:0"])
            // a picture is one that was decoded, none repeated or left out for the clock's sake
            .args(["-fps_mode", "passthrough", "-progress", "pipe:1", "-f", "null", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| told(format!("start the player {}: {error}", program.display())))?;
        let frames = Some(count_frames(child.stdout.take()));
        let words = Some(last_words(child.stderr.take()));
        let way = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        way.connect((Ipv4Addr::LOCALHOST, port))?;
        way.set_nonblocking(true)?;
        let stdin = child.stdin.take();
        let mut player = Self { child, way, frames, words };
        // one that has ended does not read it, and is heard below
        let _ = stdin.map(|mut stdin| stdin.write_all(description(port).as_bytes()));
        let until = Instant::now() + START;
        while !listens(port)? {
            if let Some(status) = player.child.try_wait()? {
                return Err(told(format!(
                    "the player ended at once ({status}): {}",
                    player.said()
                )));
            }
            if Instant::now() > until {
                let sentence = format!("the player does not listen after {START:?}");
                return Err(told(format!("{sentence}: {}", player.said())));
            }
            thread::sleep(Duration::from_millis(2));
        }
        Ok(player)
    }

    /// The way for packets to it: a connected socket that never waits.
    pub(crate) fn way(&self) -> io::Result<UdpSocket> {
        self.way.try_clone()
    }

    /// Tells it that the source has ended, waits for it, and says how many pictures it
    /// has decoded.
    ///
    /// # Errors
    /// It has decoded none, has failed, or does not end; with its words.
    pub(crate) fn end(mut self, ssrc: u32) -> io::Result<u64> {
        let until = Instant::now() + END;
        let status = loop {
            if let Some(status) = self.child.try_wait()? {
                break Some(status);
            }
            if Instant::now() > until {
                break None;
            }
            // datagrams: one may be lost
            let _ = self.way.send(&rtp::goodbye(ssrc));
            thread::sleep(Duration::from_millis(20));
        };
        let (frames, said) = self.accounts();
        verdict(status, frames, &said).map_err(told)
    }

    /// Ends it, if it has not ended, and reads what is left of its words.
    fn accounts(&mut self) -> (u64, String) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let frames = self.frames.take().and_then(|frames| frames.join().ok());
        let words = self.words.take().and_then(|words| words.join().ok());
        (frames.unwrap_or_default(), words.unwrap_or_default())
    }

    fn said(&mut self) -> String {
        self.accounts().1
    }
}

impl Drop for Player {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What to think of a player that ended so, or did not end by itself.
fn verdict(status: Option<ExitStatus>, frames: u64, said: &str) -> Result<u64, String> {
    match status {
        None => Err(format!(
            "the player did not end {END:?} after the film, of which it had decoded {frames} frames: {said}"
        )),
        Some(status) if !status.success() => {
            Err(format!("the player failed ({status}) after {frames} frames: {said}"))
        }
        Some(_) if frames == 0 => Err(format!("the player decoded no frame of the film: {said}")),
        Some(_) => Ok(frames),
    }
}

/// What a player is told of the film (RFC 8866): H.264 as RFC 6184 packs it, with its
/// parameters in the stream.
fn description(port: u16) -> String {
    let own = Ipv4Addr::LOCALHOST;
    format!(
        "v=0\no=- 0 0 IN IP4 {own}\ns=film\nc=IN IP4 {own}\nt=0 0\nm=video {port} RTP/AVP {DYNAMIC}\n\
         a=rtpmap:{DYNAMIC} H264/{}\na=fmtp:{DYNAMIC} packetization-mode=1\n",
        rtp::CLOCK_HZ
    )
}

/// An even port that nobody has, and neither the one above it, which is RTCP's (RFC 3550
/// §11).
fn free_port() -> io::Result<u16> {
    let mut last = None;
    for _ in 0..100 {
        let port = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?.local_addr()?.port() & !1;
        let both = [port, port + 1].map(|port| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port)));
        match both {
            [Ok(_), Ok(_)] => return Ok(port),
            [Err(error), _] | [_, Err(error)] => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| told("there is no free port for a player".to_owned())))
}

/// Whether a socket of this namespace has the port: binding it to see would take it from
/// the player.
fn listens(port: u16) -> io::Result<bool> {
    Ok(has_port(&std::fs::read_to_string("/proc/self/net/udp")?, port))
}

/// Whether a table as of proc(5), `/proc/net/udp`, has the local port.
fn has_port(table: &str, port: u16) -> bool {
    let local = |line: &str| {
        let (_, port) = line.split_whitespace().nth(1)?.rsplit_once(':')?;
        u16::from_str_radix(port, 16).ok()
    };
    table.lines().skip(1).any(|line| local(line) == Some(port))
}

/// Reads what ffmpeg says of its progress, `frame=…` now and then, to its end: the last
/// count.
fn count_frames(stdout: Option<ChildStdout>) -> JoinHandle<u64> {
    thread::spawn(move || stdout.map_or(0, |stdout| frames_in(BufReader::new(stdout))))
}

fn frames_in(mut progress: impl BufRead) -> u64 {
    let (mut frames, mut line) = (0, Vec::new());
    while let Ok(1..) = (&mut progress).take(4096).read_until(b'\n', &mut line) {
        let told = str::from_utf8(&line).ok().and_then(|line| line.trim().strip_prefix("frame="));
        frames = told.and_then(|count| count.trim().parse().ok()).unwrap_or(frames);
        line.clear();
    }
    frames
}

/// Reads what a program says of its errors, to its end; the last of it, in one line.
pub(crate) fn last_words(stderr: Option<ChildStderr>) -> JoinHandle<String> {
    thread::spawn(move || stderr.map_or(String::new(), tail))
}

fn tail(mut said: impl Read) -> String {
    let (mut kept, mut piece) = (Vec::new(), [0; 1024]);
    while let Ok(octets @ 1..) = said.read(&mut piece) {
        kept.extend_from_slice(&piece[..octets]);
        kept.drain(..kept.len().saturating_sub(LAST_WORDS));
    }
    let text = String::from_utf8_lossy(&kept);
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    if lines.is_empty() { "it said nothing".to_owned() } else { lines.join(" | ") }
}

fn told(sentence: String) -> io::Error {
    io::Error::other(sentence)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::ExitStatusExt;
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn progress_is_read_to_its_end() {
        let said = "frame=12\nfps=25.0\nprogress=continue\nframe=  149\nprogress=end\n";
        assert_eq!(frames_in(said.as_bytes()), 149);
        assert_eq!(frames_in(&b"frame=\n\xff=9\nframe=x\nprogress=end\n"[..]), 0);
        let endless = [b"frame=3\n".to_vec(), vec![b'x'; 100_000]].concat();
        assert_eq!(frames_in(&endless[..]), 3);
    }

    #[test]
    fn a_table_of_sockets_tells_of_a_port() {
        let table = "   sl  local_address rem_address   st tx_queue rx_queue tr tm->when\n \
            5332: 0100007F:138C 00000000:0000 07 00000000:00000000 00:00000000\n \
            6332: 00000000:1774 00000000:0000 07 00000000:00000000 00:00000000\nodd\n";
        assert!(has_port(table, 5004) && has_port(table, 6004));
        assert!(!has_port(table, 6005) && !has_port("", 5004));
        let own = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let port = own.local_addr().expect("its address").port();
        assert!(listens(port).expect("the kernel's table"));
        assert_eq!(free_port().expect("a port") % 2, 0);
    }

    #[test]
    fn last_words_are_few_and_in_one_line() {
        assert_eq!(tail(&b"one\n\n two \n"[..]), "one | two");
        assert_eq!(tail(&b""[..]), "it said nothing");
        assert!(tail(&[b'x'; 5000][..]).len() <= LAST_WORDS);
    }

    #[test]
    fn who_decoded_nothing_failed_or_hung_has_not_played() {
        let (well, badly) = (ExitStatus::from_raw(0), ExitStatus::from_raw(3 << 8));
        assert_eq!(verdict(Some(well), 149, ""), Ok(149));
        for (status, frames, why) in
            [(Some(well), 0, "no frame"), (Some(badly), 149, "failed"), (None, 149, "did not end")]
        {
            let error = verdict(status, frames, "oh").expect_err("it has not played");
            assert!(error.contains(why) && error.ends_with(": oh"), "{error}");
        }
    }

    #[test]
    fn a_player_that_does_not_play_is_an_error_that_says_so() {
        let nobody = Player::start(Path::new("/nonexistent/player")).expect_err("no such program");
        assert!(nobody.to_string().contains("/nonexistent/player"), "{nobody}");
        let broken = program("broken", "echo no such codec >&2; exit 3");
        let error = Player::start(&broken).expect_err("it ends").to_string();
        assert!(error.contains("ended at once") && error.contains("no such codec"), "{error}");
        let _ = std::fs::remove_dir_all(broken.parent().expect("its folder"));
    }

    /// A script in a folder of its own.
    fn program(name: &str, script: &str) -> PathBuf {
        let id = rand::random::<u64>();
        let folder = std::env::temp_dir().join(format!("headroom-player-{id:x}"));
        std::fs::create_dir_all(&folder).expect("a folder");
        let path = folder.join(name);
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("a script");
        let executable = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&path, executable).expect("its mode");
        path
    }
}
