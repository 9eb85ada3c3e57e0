//! The measurements of one transfer.

use serde::{Deserialize, Serialize};

use crate::flow::Flow;
use crate::phases::{PhaseInterval, Phases};
use crate::setup::SetUp;
use crate::tcp::Tcp;

/// The measurements of one transfer, taken from packets. Times in seconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Time from the first data command to completion.
    pub transfer_s: f64,
    /// Time from the first SYN or datagram to completion.
    pub session_s: f64,
    /// Time from SYN to SYN-ACK at the router.
    pub rtt_s: Option<f64>,
    /// The longest time between two packets.
    pub longest_gap_s: f64,
    /// Round trips before the file's first byte: the client sent and the server answered.
    /// None: the trace shows no file data.
    pub round_trips: Option<u32>,
    /// Round trips after the file's last packet, until completion. None: as above.
    #[serde(default)]
    pub round_trips_after: Option<u32>,
    /// TCP connections, plus one for all UDP.
    pub connections: u32,
    /// TLS handshakes or SSH key exchanges.
    pub handshakes: u32,
    /// TLS handshakes in which the server asked for another key share.
    pub hello_retries: u32,
    /// Commands that the server rejected in clear text.
    #[serde(default)]
    pub refused_commands: u32,
    /// The handshake of the control connection, without TCP's.
    pub handshake: Option<SetUp>,
    /// The handshake of the first data connection.
    pub data_handshake: Option<SetUp>,
    /// Time in each phase.
    pub phases: Phases,
    /// The phases in order.
    pub intervals: Vec<PhaseInterval>,
    /// TCP measures of all packets, including those after completion.
    pub tcp: Tcp,
    /// The transfer as a continuous stream.
    pub flow: Option<Flow>,
}
