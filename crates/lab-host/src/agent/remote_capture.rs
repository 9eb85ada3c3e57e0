//! Captures on a real host, where the client is, and reads what was captured there, so
//! that no packet's time leaves the clock that took it.

use std::io::{ErrorKind, Read};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use headroom_lab_trace::{self, Expectation, Framing, Record, SetUp, Trace};
use serde::{Deserialize, Serialize};

use crate::capture::RunningCapture;
use crate::error::{Doing, Error, Result};

/// The packets to capture.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct CaptureSpec {
    pub(crate) interface: String,
    pub(crate) framing: Framing,
    pub(crate) client: IpAddr,
    /// Nothing but connections to these ports of the server is kept.
    pub(crate) server: IpAddr,
    pub(crate) ports: RangeInclusive<u16>,
}

impl CaptureSpec {
    pub(super) fn open(self) -> Result<RunningCapture> {
        let trace = Trace::only(self.client, self.server, self.ports);
        RunningCapture::open_in_current_namespace(&self.interface, self.framing, trace)
    }
}

/// Reads what was captured as one transfer.
pub(super) fn record(capture: &RunningCapture, expected: &Expectation) -> Result<Option<Record>> {
    Ok(headroom_lab_trace::read(&capture.take()?, expected))
}

/// Reads what was captured as the set-up of a stream.
pub(super) fn set_up(capture: &RunningCapture) -> Result<Option<SetUp>> {
    Ok(SetUp::of_tls(&capture.take()?))
}

/// Accepts connections and says nothing, for as long as this process lives.
pub(super) fn answer(address: SocketAddr) -> Result<()> {
    let listener = TcpListener::bind(address).doing(|| format!("listen on {address}"))?;
    std::thread::spawn(move || while listener.accept().is_ok() {});
    Ok(())
}

/// Connects to a relay, ends without a word, and waits until it has ended too. A reset is
/// no error: who is behind it may not like so short a talk. A relay that could not go on
/// ends as well: what passed between its two ends is for the capture to tell.
pub(super) fn connect_through(address: SocketAddr) -> std::io::Result<()> {
    const CONNECTING: Duration = Duration::from_millis(200);
    const PATIENCE: Duration = Duration::from_secs(5);
    /// More bytes than any server's greeting has.
    const GREETING_MAX: u64 = 64 << 10;
    let stream = TcpStream::connect_timeout(&address, CONNECTING)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let ended = stream.shutdown(Shutdown::Write).and_then(|()| {
        std::io::copy(&mut stream.take(GREETING_MAX), &mut std::io::sink()).map(drop)
    });
    match ended {
        Err(error) if error.kind() == ErrorKind::ConnectionReset => Ok(()),
        // it was reset before
        Err(error) if error.kind() == ErrorKind::NotConnected => Ok(()),
        ended => ended,
    }
}

/// Seconds that connecting takes, so many times: a SYN and its answer.
pub(super) fn round_trips(address: SocketAddr, times: u32) -> Result<Vec<f64>> {
    const PATIENCE: Duration = Duration::from_secs(5);
    (0..times)
        .map(|_| {
            let started = Instant::now();
            TcpStream::connect_timeout(&address, PATIENCE)
                .map(|_| started.elapsed().as_secs_f64())
                .map_err(|error| Error::Failed(error.to_string()))
        })
        .collect()
}
