//! Measures a continuous stream: bytes and duration.

use serde::{Deserialize, Serialize};

use crate::tcp::Tcp;
use crate::time::ns_to_s;
use crate::trace::Packet;

/// The busiest connection, in the file's direction.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Flow {
    /// Bytes of payload, without retransmissions.
    pub bytes: u64,
    /// Time from the first full packet to the last packet with payload.
    pub seconds: f64,
}

impl Flow {
    /// Measures a stream, of which `tcp` counts the same direction; none: it has no full
    /// packet.
    pub(crate) fn of(packets: &[Packet], upload: bool, tcp: &Tcp) -> Option<Self> {
        // greetings and commands are shorter
        const FULL: u32 = 536;
        let full = |p: &&Packet| p.from_client == upload && p.payload_len >= FULL;
        let first = packets.iter().find(full)?;
        let last = packets.iter().rfind(|p| {
            p.connection == first.connection && p.from_client == upload && p.payload_len > 0
        })?;
        let seconds = ns_to_s(last.time_ns.saturating_sub(first.time_ns));
        let bytes = tcp.transmitted_bytes.saturating_sub(tcp.retransmitted_bytes);
        (seconds > 0.0).then_some(Self { bytes, seconds })
    }
}
