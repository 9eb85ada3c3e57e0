//! The server's side: sockets that share QUIC's port, one for each processor.

use std::collections::HashSet;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;

use headroom_netio::UdpSocket;
use headroom_netio::udp::{Options, spread_marked};
use headroom_transfer_proto::lane::{LaneId, TransferId};
use headroom_transfer_proto::message::{LanesAnswer, LanesOffer};
use quinn::Connection;

use super::carrier::{Agreed, Carrier, Way};
use super::engine::Engine;
use super::exporter::Suite;

/// The first octet of a lane's packet, and where its lane's name ends.
const MARK: (u8, u8) = (0xf8, 0x08);
const NAME_AT: u32 = 12;
/// More threads than this gain nothing on one port.
const MOST_SOCKETS: usize = 8;

/// Lanes that one connection may have had; then its files go on streams.
const MOST_NAMES: usize = 4096;

/// The names of the lanes that a connection has had. Keys follow from them and numbers
/// begin anew, so a name that came again would seal twice with the same nonces.
#[derive(Debug, Default)]
pub(crate) struct Names(HashSet<LaneId>);

impl Names {
    fn take(&mut self, lane: LaneId) -> Option<LaneId> {
        (self.0.len() < MOST_NAMES && self.0.insert(lane)).then_some(lane)
    }
}

/// The lanes of a server.
pub(crate) struct Port {
    engines: Vec<Arc<Engine>>,
}

impl std::fmt::Debug for Port {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Port").field("sockets", &self.engines.len()).finish()
    }
}

impl Port {
    /// Opens sockets beside QUIC's, which was bound to `address` first and lets others
    /// share it; from then on packets of lanes come to these.
    ///
    /// # Errors
    /// The system gives no sockets or threads.
    pub(crate) fn open(quic: &impl AsFd, address: SocketAddr) -> io::Result<Self> {
        let count = std::thread::available_parallelism().map_or(1, usize::from).min(MOST_SOCKETS);
        let options = Options { shared: true, dual: true, deaf: true, ..Options::default() };
        let sockets = (0..count).map(|_| UdpSocket::bind(address, &options));
        let sockets = sockets.collect::<io::Result<Vec<_>>>()?;
        spread_marked(quic, MARK, NAME_AT, count as u32)?;
        let engines = sockets.into_iter().map(|socket| Engine::start(socket).map(Arc::new));
        Ok(Self { engines: engines.collect::<io::Result<_>>()? })
    }

    /// Takes lanes that a client offers; none where it cannot be.
    pub(crate) fn accept(
        &self,
        offer: &LanesOffer,
        connection: &Connection,
        names: &mut Names,
    ) -> Option<(LanesAnswer, Carrier)> {
        let lane = names.take(LaneId(*offer.lanes.first()?))?;
        let suite = Suite::choose(&offer.suites)?;
        // the low 32 bits, as the kernel's program has it
        let engine = self.engines.get(lane.0 as u32 as usize % self.engines.len().max(1))?;
        let (transfer, room) = (TransferId(offer.transfer), offer.room);
        let agreed = Agreed { transfer, lane, suite, room };
        let carrier = Carrier::new(connection.clone(), agreed, Way::Engine(Arc::clone(engine)));
        let room = Some(engine.room() as u64);
        Some((LanesAnswer { suite: suite.number(), room, chunk: None, port: None }, carrier))
    }

    #[cfg(test)]
    pub(crate) fn engines(&self) -> &[Arc<Engine>] {
        &self.engines
    }
}
