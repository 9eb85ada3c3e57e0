//! What the wire says of one transfer.

use serde::{Deserialize, Serialize};

use crate::flow::Flow;
use crate::phases::{Phases, Stretch};
use crate::setup::SetUp;
use crate::tcp::Tcp;

/// What the wire says of one transfer. Times in seconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// First data command to completion.
    pub transfer_s: f64,
    /// First SYN or datagram to completion.
    pub session_s: f64,
    /// SYN to SYN-ACK at the router.
    pub rtt_s: Option<f64>,
    /// The longest time between two packets.
    pub longest_gap_s: f64,
    /// Times that the client spoke and the server answered before the file's
    /// first octet; none where no file data was seen.
    pub round_trips: Option<u32>,
    /// TCP connections, and one for all UDP.
    pub connections: u32,
    /// TLS handshakes or SSH key exchanges.
    pub handshakes: u32,
    /// TLS handshakes in which the server asked for another key share.
    pub hello_retries: u32,
    /// Commands that the server refused in the clear.
    #[serde(default)]
    pub refused_commands: u32,
    /// The handshake of the connection to the service's own port, TCP's left out,
    pub handshake: Option<SetUp>,
    /// and of the first data connection.
    pub data_handshake: Option<SetUp>,
    /// What the session was doing, summed up,
    pub phases: Phases,
    /// and in its order.
    pub segments: Vec<Stretch>,
    /// Of all packets, those after completion too.
    pub tcp: Tcp,
    /// What went on for a time, seen as that.
    pub flow: Option<Flow>,
}
