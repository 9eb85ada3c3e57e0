//! A stream that goes on for a time: how much of it passed, and how long it took.

use serde::{Deserialize, Serialize};

use crate::tcp::Tcp;
use crate::time::ns_to_s;
use crate::trace::Packet;

/// What the connection that carried most did, in the file's direction.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Flow {
    /// Octets of payload, without those sent again.
    pub octets: u64,
    /// First full packet to last packet with payload.
    pub seconds: f64,
}

impl Flow {
    /// `tcp` is what was sent in the same direction; none where next to nothing was.
    pub(crate) fn of(packets: &[Packet], upload: bool, tcp: &Tcp) -> Option<Self> {
        // what ends greet each other with is shorter
        const FULL: u32 = 536;
        let full = |p: &&Packet| p.from_client == upload && p.payload_len >= FULL;
        let first = packets.iter().find(full)?;
        let last = packets.iter().rfind(|p| {
            p.connection == first.connection && p.from_client == upload && p.payload_len > 0
        })?;
        let seconds = ns_to_s(last.time_ns.saturating_sub(first.time_ns));
        let octets = tcp.transmitted_bytes.saturating_sub(tcp.retransmitted_bytes);
        (seconds > 0.0).then_some(Self { octets, seconds })
    }
}
