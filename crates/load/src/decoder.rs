//! Runs a real decoder at the end of a video: it receives every packet that arrives,
//! decodes and discards the frames, and reports their number.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, UdpSocket};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::process::stderr_tail;
use crate::rtp::{self, DYNAMIC};

/// Time that a decoder may take to listen.
const START_TIMEOUT: Duration = Duration::from_secs(10);
/// Time that a decoder may take to exit after the video.
const EXIT_TIMEOUT: Duration = Duration::from_secs(5);

/// An ffmpeg that decodes what arrives at a port of this host.
#[derive(Debug)]
pub(crate) struct VideoDecoder {
    child: Child,
    socket: UdpSocket,
    frames: Option<JoinHandle<u64>>,
    errors: Option<JoinHandle<String>>,
}

impl VideoDecoder {
    /// Starts a decoder and waits until it listens.
    ///
    /// # Errors
    /// It does not start, exits, or does not listen; with the end of its error output.
    pub(crate) fn start(program: &Path) -> io::Result<Self> {
        let port = free_port()?;
        let mut child = Command::new(program)
            .args(["-hide_banner", "-nostats", "-loglevel", "error", "-threads", "1"])
            // a second of video is enough to find its format
            .args(["-analyzeduration", "1000000", "-protocol_whitelist", "pipe,udp,rtp"])
            // after losses most frames are damaged, and decoded all the same
            .args(["-max_error_rate", "1", "-f", "sdp", "-i", "pipe:0"])
            // count decoded frames: repeat and drop none to keep a frame rate
            .args(["-fps_mode", "passthrough", "-progress", "pipe:1", "-f", "null", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| failed(format!("start the decoder {}: {error}", program.display())))?;
        let frames = Some(count_frames(child.stdout.take()));
        let errors = Some(stderr_tail(child.stderr.take()));
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        socket.connect((Ipv4Addr::LOCALHOST, port))?;
        socket.set_nonblocking(true)?;
        let stdin = child.stdin.take();
        let mut decoder = Self { child, socket, frames, errors };
        // a decoder that has exited does not read it; the loop below reports that
        let _ = stdin.map(|mut stdin| stdin.write_all(description(port).as_bytes()));
        let until = Instant::now() + START_TIMEOUT;
        while !listens(port)? {
            if let Some(status) = decoder.child.try_wait()? {
                return Err(failed(format!(
                    "the decoder exited at once ({status}): {}",
                    decoder.stderr()
                )));
            }
            if Instant::now() > until {
                let sentence = format!("the decoder does not listen after {START_TIMEOUT:?}");
                return Err(failed(format!("{sentence}: {}", decoder.stderr())));
            }
            thread::sleep(Duration::from_millis(2));
        }
        Ok(decoder)
    }

    /// Returns a connected, non-blocking socket that sends packets to the decoder.
    pub(crate) fn socket(&self) -> io::Result<UdpSocket> {
        self.socket.try_clone()
    }

    /// Signals the end of the stream (RTCP BYE), waits for the decoder to exit, and returns
    /// the number of frames it decoded.
    ///
    /// # Errors
    /// It decoded none, failed, or did not exit; with the end of its error output.
    pub(crate) fn end(mut self, ssrc: u32) -> io::Result<u64> {
        let until = Instant::now() + EXIT_TIMEOUT;
        let status = loop {
            if let Some(status) = self.child.try_wait()? {
                break Some(status);
            }
            if Instant::now() > until {
                break None;
            }
            // a datagram may be lost
            let _ = self.socket.send(&rtp::bye(ssrc));
            thread::sleep(Duration::from_millis(20));
        };
        let (frames, errors) = self.collect();
        verdict(status, frames, &errors).map_err(failed)
    }

    /// Stops the decoder if it still runs, and reads the rest of its output.
    fn collect(&mut self) -> (u64, String) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let frames = self.frames.take().and_then(|frames| frames.join().ok());
        let errors = self.errors.take().and_then(|errors| errors.join().ok());
        (frames.unwrap_or_default(), errors.unwrap_or_default())
    }

    fn stderr(&mut self) -> String {
        self.collect().1
    }
}

impl Drop for VideoDecoder {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Judges a decoder by its exit status (none: it had to be stopped) and its frames.
fn verdict(status: Option<ExitStatus>, frames: u64, errors: &str) -> Result<u64, String> {
    match status {
        None => Err(format!(
            "the decoder did not exit within {EXIT_TIMEOUT:?} after the video; it had decoded {frames} frames: {errors}"
        )),
        Some(status) if !status.success() => {
            Err(format!("the decoder failed ({status}) after {frames} frames: {errors}"))
        }
        Some(_) if frames == 0 => {
            Err(format!("the decoder decoded no frame of the video: {errors}"))
        }
        Some(_) => Ok(frames),
    }
}

/// Describes the video in SDP (RFC 8866): H.264 over RTP (RFC 6184), parameter sets in the
/// stream.
fn description(port: u16) -> String {
    let own = Ipv4Addr::LOCALHOST;
    format!(
        "v=0\no=- 0 0 IN IP4 {own}\ns=video\nc=IN IP4 {own}\nt=0 0\nm=video {port} RTP/AVP {DYNAMIC}\n\
         a=rtpmap:{DYNAMIC} H264/{}\na=fmtp:{DYNAMIC} packetization-mode=1\n",
        rtp::CLOCK_HZ
    )
}

/// Finds an even port that is free, as is the next one, which RTCP uses (RFC 3550 §11).
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
    Err(last.unwrap_or_else(|| failed("no port is free for the decoder".to_owned())))
}

/// Tells whether a socket of this namespace uses the port. Binding it to find out could
/// take it from the decoder.
fn listens(port: u16) -> io::Result<bool> {
    Ok(has_port(&std::fs::read_to_string("/proc/self/net/udp")?, port))
}

/// Tells whether a table like `/proc/net/udp` (proc(5)) has the local port.
fn has_port(table: &str, port: u16) -> bool {
    let local = |line: &str| {
        let (_, port) = line.split_whitespace().nth(1)?.rsplit_once(':')?;
        u16::from_str_radix(port, 16).ok()
    };
    table.lines().skip(1).any(|line| local(line) == Some(port))
}

/// Reads ffmpeg's progress to its end, in a thread; returns the last `frame=` count.
fn count_frames(stdout: Option<ChildStdout>) -> JoinHandle<u64> {
    thread::spawn(move || stdout.map_or(0, |stdout| frames_in(BufReader::new(stdout))))
}

fn frames_in(mut progress: impl BufRead) -> u64 {
    let (mut frames, mut line) = (0, Vec::new());
    while let Ok(1..) = (&mut progress).take(4096).read_until(b'\n', &mut line) {
        let count = str::from_utf8(&line).ok().and_then(|line| line.trim().strip_prefix("frame="));
        frames = count.and_then(|count| count.trim().parse().ok()).unwrap_or(frames);
        line.clear();
    }
    frames
}

fn failed(sentence: String) -> io::Error {
    io::Error::other(sentence)
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn reads_progress_to_its_end() {
        let progress = "frame=12\nfps=25.0\nprogress=continue\nframe=  149\nprogress=end\n";
        assert_eq!(frames_in(progress.as_bytes()), 149);
        assert_eq!(frames_in(&b"frame=\n\xff=9\nframe=x\nprogress=end\n"[..]), 0);
        let endless = [b"frame=3\n".to_vec(), vec![b'x'; 100_000]].concat();
        assert_eq!(frames_in(&endless[..]), 3);
    }

    #[test]
    fn finds_a_port_in_a_table_of_sockets() {
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
    fn rejects_decoders_that_failed_hung_or_decoded_nothing() {
        let (well, badly) = (ExitStatus::from_raw(0), ExitStatus::from_raw(3 << 8));
        assert_eq!(verdict(Some(well), 149, ""), Ok(149));
        for (status, frames, why) in
            [(Some(well), 0, "no frame"), (Some(badly), 149, "failed"), (None, 149, "did not exit")]
        {
            let error = verdict(status, frames, "oh").expect_err("rejected");
            assert!(error.contains(why) && error.ends_with(": oh"), "{error}");
        }
    }

    #[test]
    fn a_decoder_that_does_not_start_is_an_error() {
        let nobody =
            VideoDecoder::start(Path::new("/nonexistent/decoder")).expect_err("no such program");
        assert!(nobody.to_string().contains("/nonexistent/decoder"), "{nobody}");
        let broken = program("broken", "echo no such codec >&2; exit 3");
        let error = VideoDecoder::start(&broken).expect_err("it exits").to_string();
        assert!(error.contains("exited at once") && error.contains("no such codec"), "{error}");
        let _ = std::fs::remove_dir_all(broken.parent().expect("its folder"));
    }

    /// A script in a folder of its own.
    fn program(name: &str, script: &str) -> PathBuf {
        let id = rand::random::<u64>();
        let folder = std::env::temp_dir().join(format!("headroom-decoder-{id:x}"));
        std::fs::create_dir_all(&folder).expect("a folder");
        let path = folder.join(name);
        headroom_testing::write_executable(&path, format!("#!/bin/sh\n{script}\n").as_bytes());
        path
    }
}
