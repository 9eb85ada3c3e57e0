//! The report on one packet while it is opened.

use super::attempt::Sealed;
use super::report::{Clear, Layer, Outcome};

/// The report on one packet.
pub(super) struct PacketReport {
    pub(super) layers: Vec<Layer>,
    pub(super) outcome: Outcome,
    pub(super) notes: Vec<String>,
    /// The inner packet.
    pub(super) clear: Option<Vec<u8>>,
}

impl PacketReport {
    pub(super) fn new(outcome: Outcome) -> Self {
        Self { layers: Vec::new(), outcome, notes: Vec::new(), clear: None }
    }
}

pub(super) fn layer(sealed: &Sealed<'_>, spi: u32, sequence: u64, sa: Option<String>) -> Layer {
    let clear = sealed.clear().ok().flatten().map(|clear| Clear {
        source_port: clear.source_port,
        destination_port: clear.destination_port,
        protocol: clear.protocol,
    });
    Layer { protocol: sealed.protocol.to_string(), spi, sequence, udp: sealed.udp, clear, sa }
}
