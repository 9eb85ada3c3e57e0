//! The ear of an agent on a real host: a capture where the client is, read there,
//! so that no packet's time leaves the clock it was taken by.

use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::error::{Doing, Error, Result};
use crate::measure::wire::{self, Expectation, Framing, Record, SetUp, Trace};
use crate::testbed::Tap;

/// What is listened to.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Ear {
    pub(crate) interface: String,
    pub(crate) framing: Framing,
    pub(crate) client: IpAddr,
    /// Nothing but connections to these ports of the server is kept.
    pub(crate) server: IpAddr,
    pub(crate) ports: RangeInclusive<u16>,
}

impl Ear {
    pub(super) fn open(self) -> Result<Tap> {
        let trace = Trace::only(self.client, self.server, self.ports);
        Tap::here(&self.interface, self.framing, trace)
    }
}

/// Reads what was captured as one transfer.
pub(super) fn record(tap: &Tap, expected: &Expectation) -> Result<Option<Record>> {
    Ok(wire::read(&tap.take()?, expected))
}

/// Reads what was captured as the set-up of a stream.
pub(super) fn set_up(tap: &Tap) -> Result<Option<SetUp>> {
    Ok(SetUp::of_tls(&tap.take()?))
}

/// Accepts connections and says nothing, for as long as this process lives.
pub(super) fn answer(address: SocketAddr) -> Result<()> {
    let listener = TcpListener::bind(address).doing(|| format!("listen on {address}"))?;
    std::thread::spawn(move || while listener.accept().is_ok() {});
    Ok(())
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
