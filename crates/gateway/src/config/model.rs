//! A tunnel as it is configured.

use std::net::IpAddr;
use std::path::PathBuf;

use headroom_ipsec::spec::SaSpec;
use headroom_ipsec::{PolicySpec, Protocol};

use crate::ledger::{self, KeyId};

/// Everything a gateway needs to know, checked.
#[derive(Debug)]
pub struct Config {
    /// The tunnel's name, and that of its TUN interface.
    pub name: String,
    /// Addresses of the TUN interface, each with its prefix length.
    pub addresses: Vec<(IpAddr, u8)>,
    /// MTU of the TUN interface, in octets; none: computed.
    pub mtu: Option<u32>,
    /// MTU of the path between the gateways, in octets; none: learned.
    pub path_mtu: Option<u32>,
    /// Queues, each served by one thread out and one in.
    pub queues: usize,
    /// Seconds between keepalives on ESP in UDP; 0: none (RFC 3948, section 4).
    pub keepalive_seconds: u64,
    /// Whether the segment size that TCP announces through a tunnel is lowered to
    /// what passes.
    pub clamp_mss: bool,
    /// Where the ledger is.
    pub ledger: ledger::LedgerPaths,
    /// Security associations.
    pub associations: Vec<Association>,
    /// Policies, in order.
    pub policies: Vec<PolicySpec>,
    /// What is allowed, but should be known: sentences.
    pub warnings: Vec<String>,
    /// Files that keys were read from.
    pub key_files: Vec<PathBuf>,
}

/// A security association and what the gateway does with it.
#[derive(Debug)]
pub struct Association {
    /// What the engine is built of.
    pub spec: SaSpec,
    /// Dummy packets a second while there is nothing to send; 0: none.
    pub dummies_per_second: u32,
    /// Whether the outer packet is to be padded to the path's MTU, whatever it
    /// turns out to be.
    pub pad_to_path_mtu: bool,
    /// The line of the configuration that it begins with.
    pub line: usize,
}

/// What a configuration is read for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// To send and receive: whatever is unsafe is refused.
    Tunnel,
    /// To open captured packets, of whatever makes them: what is unsafe is
    /// loaded with a warning.
    Decode,
}

impl Config {
    /// The IP protocol number of its Q-ESP associations, if it has any.
    pub fn qesp_number(&self) -> Option<u8> {
        self.associations.iter().find_map(|association| {
            match association.spec.protection.protocol() {
                Protocol::QEsp(number) => Some(number),
                Protocol::Esp | Protocol::Ah => None,
            }
        })
    }

    /// The accounts that the ledger must have, each with its SA's name.
    pub fn key_ids(&self) -> Vec<(KeyId, &str)> {
        let key_ids = self.associations.iter().map(|a| (KeyId::of(&a.spec), a.spec.name.as_str()));
        key_ids.collect()
    }
}
