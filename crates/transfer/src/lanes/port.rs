//! The sockets of a server: they share QUIC's port, one for each processor, or use a range of
//! ports.

use std::collections::HashSet;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::os::fd::AsFd;
use std::sync::Arc;

use headroom_netio::UdpSocket;
use headroom_netio::udp::{Options, steer_by_field};
use headroom_transfer_proto::lane::{Chunk, LaneId, TransferId};
use headroom_transfer_proto::message::{LanesAnswer, LanesOffer};
use quinn::Connection;

use super::dropped::DropCounts;
use super::engine::Engine;
use super::handle::{Driver, LaneHandle, LaneParams, Negotiated};
use super::ids::engine_of;
use super::options;
use super::range::Range;
use crate::error::Error;

/// Mask and value of the first byte of a lane's packet, and the offset of the low 32 bits of
/// its lane ID.
const MARK: (u8, u8) = (0xf8, 0x08);
const NAME_AT: u32 = 12;
/// The most threads: more gain nothing on one port.
const MAX_SOCKETS: usize = 8;

/// The most lanes that one connection may have had; then its files use streams.
const MAX_NAMES: usize = 4096;

/// The lane IDs that a connection has used. Keys are derived from them and packet numbers start
/// at 0, so a repeated ID would repeat nonces.
#[derive(Debug, Default)]
pub(crate) struct UsedLanes(HashSet<LaneId>);

impl UsedLanes {
    fn take(&mut self, lane: LaneId) -> Option<LaneId> {
        (self.0.len() < MAX_NAMES && self.0.insert(lane)).then_some(lane)
    }
}

/// The lanes of a server.
pub(crate) struct Port {
    sockets: Sockets,
    insecure_measurement: bool,
}

/// The sockets that receive lanes.
enum Sockets {
    /// On QUIC's port.
    Shared {
        port: u16,
        engines: Vec<Arc<Engine>>,
    },
    Range(Range),
}

impl std::fmt::Debug for Port {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Port").finish_non_exhaustive()
    }
}

impl Port {
    /// Opens sockets beside QUIC's, which was bound to `address` first and shares it; from then on
    /// they receive the packets of lanes.
    ///
    /// # Errors
    /// The system cannot create sockets or threads.
    pub(crate) fn open(quic: &impl AsFd, address: SocketAddr) -> io::Result<Self> {
        let count = std::thread::available_parallelism().map_or(1, usize::from).min(MAX_SOCKETS);
        let options = Options {
            join_port: true,
            dual_stack: true,
            ignore_errors: true,
            ..Options::default()
        };
        let sockets = (0..count).map(|_| UdpSocket::bind(address, &options));
        let sockets = sockets.collect::<io::Result<Vec<_>>>()?;
        steer_by_field(quic, MARK, NAME_AT, count as u32)?;
        let engines = sockets.into_iter().map(|socket| Engine::start(socket).map(Arc::new));
        let engines = engines.collect::<io::Result<_>>()?;
        let sockets = Sockets::Shared { port: address.port(), engines };
        Ok(Self { sockets, insecure_measurement: false })
    }

    /// Uses these ports instead, one for each transfer in turn.
    ///
    /// # Errors
    /// None of them can be opened.
    pub(crate) fn range(address: IpAddr, ports: RangeInclusive<u16>) -> io::Result<Self> {
        let sockets = Sockets::Range(Range::open(address, ports)?);
        Ok(Self { sockets, insecure_measurement: false })
    }

    /// Sets whether clients may request what is for measurement only.
    pub(crate) fn allow_measurement(self, insecure_measurement: bool) -> Self {
        Self { insecure_measurement, ..self }
    }

    /// Accepts a lane that a client offers; `None` if it cannot.
    ///
    /// # Errors
    /// The offer is not allowed here ([`Error::Refused`]).
    pub(crate) fn accept(
        &self,
        offer: &LanesOffer,
        connection: &Connection,
        names: &mut UsedLanes,
    ) -> Result<Option<(LanesAnswer, LaneHandle)>, Error> {
        if let Some(reason) = options::refusal(offer).filter(|_| !self.insecure_measurement) {
            return Err(Error::Refused(reason));
        }
        let chunk = offer.chunk.map(|bytes| {
            Chunk::new(bytes)
                .ok_or_else(|| Error::Refused(format!("there are no chunks of {bytes} bytes")))
        });
        let chunk = chunk.transpose()?;
        let Some(cipher) = options::choose(&offer.suites, self.insecure_measurement) else {
            return Ok(None);
        };
        let lane = offer.lanes.first().and_then(|lane| names.take(LaneId(*lane)));
        let Some((lane, (port, engine))) = lane.and_then(|lane| Some((lane, self.turn(lane)?)))
        else {
            return Ok(None);
        };
        let answer = LanesAnswer {
            suite: cipher.number(),
            receive_buffer: Some(engine.receive_buffer() as u64),
            chunk: offer.chunk,
            port: matches!(self.sockets, Sockets::Range(_)).then_some(port),
        };
        let (transfer, peer_buffer) = (TransferId(offer.transfer), offer.receive_buffer);
        let negotiated =
            Negotiated { transfer, lane, params: LaneParams { cipher, chunk, port }, peer_buffer };
        let driver = Driver::Engine(engine);
        Ok(Some((answer, LaneHandle::new(connection.clone(), negotiated, driver, None))))
    }

    /// Returns the port and the engine for a lane.
    fn turn(&self, lane: LaneId) -> Option<(u16, Arc<Engine>)> {
        match &self.sockets {
            Sockets::Shared { port, engines } => {
                let engine = engines.get(engine_of(lane, engines.len().max(1)))?;
                Some((*port, Arc::clone(engine)))
            }
            Sockets::Range(range) => range.turn(),
        }
    }

    /// Reads what was dropped since the start.
    pub(crate) fn drop_counts(&self) -> DropCounts {
        match &self.sockets {
            Sockets::Shared { engines, .. } => {
                engines.iter().map(|engine| engine.drop_counts()).sum()
            }
            Sockets::Range(range) => range.drop_counts(),
        }
    }

    #[cfg(test)]
    pub(crate) fn engines(&self) -> Vec<Arc<Engine>> {
        match &self.sockets {
            Sockets::Shared { engines, .. } => engines.clone(),
            Sockets::Range(range) => range.engines(),
        }
    }
}
