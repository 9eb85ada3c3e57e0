//! The configuration of a tunnel, after its checks.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use headroom_ike::{Auth, Identity, PostQuantum, Ppk, QEsp, VirtualAddresses};
use headroom_ipsec::spec::{Addresses, Limits, SaSpec, Selector};
use headroom_ipsec::{Mode, PolicySpec, Protocol};
use headroom_suite::Suite;

use crate::ledger::{self, KeyId};

/// The configuration of a tunnel, after its checks.
#[derive(Debug)]
pub struct Config {
    /// The name of the tunnel and of its TUN interface.
    pub name: String,
    /// Addresses of the TUN interface with their prefix lengths.
    pub addresses: Vec<(IpAddr, u8)>,
    /// MTU of the TUN interface in bytes; None: computed.
    pub mtu: Option<u32>,
    /// MTU of the path between the gateways in bytes; None: learned.
    pub path_mtu: Option<u32>,
    /// The number of queues; two threads serve each, one per direction.
    pub queues: usize,
    /// Seconds between keepalives on ESP in UDP; 0: none (RFC 3948, section 4).
    pub keepalive_seconds: u64,
    /// Whether to lower the MSS that TCP announces through the tunnel.
    pub clamp_mss: bool,
    /// The paths of the ledger and its second copy.
    pub ledger: ledger::LedgerPaths,
    /// Security associations.
    pub associations: Vec<Association>,
    /// The peers with which keys are negotiated.
    pub ike: Vec<IkePeer>,
    /// Policies, in order.
    pub policies: Vec<PolicySpec>,
    /// Warnings about settings that are allowed.
    pub warnings: Vec<String>,
    /// The files from which keys were read.
    pub key_files: Vec<PathBuf>,
}

/// A security association and the gateway's settings for it.
#[derive(Debug)]
pub struct Association {
    /// The description from which the engine builds the SA.
    pub spec: SaSpec,
    /// Dummy packets per second while there is no traffic; 0: none.
    pub dummies_per_second: u32,
    /// Whether to pad outer packets to the path's current MTU.
    pub pad_to_path_mtu: bool,
    /// The line of the configuration where it begins.
    pub line: usize,
    /// Whether it stands for associations that will be negotiated; it carries no packet.
    pub negotiated: bool,
}

/// A peer with which keys are negotiated.
#[derive(Debug)]
pub struct IkePeer {
    /// A unique name.
    pub name: String,
    /// This host's address and port of the first message.
    pub local: SocketAddr,
    /// Whether this host keeps this address, also when another leads to the peer.
    pub local_is_fixed: bool,
    /// The peer's; none for any, and then the peer begins.
    pub remote: Option<SocketAddr>,
    /// This host's name.
    pub local_id: Identity,
    /// The peer's name; none for any that proves who it is.
    pub remote_id: Option<Identity>,
    /// Whether one end assigns addresses to the other. Many peers share an end that assigns.
    pub virtual_addresses: VirtualAddresses,
    /// The networks of the addresses that this host assigns.
    pub pool: Vec<Addresses>,
    /// How both prove who they are.
    pub auth: Auth,
    /// A key beside the key exchange, against quantum computers.
    pub ppk: Option<Ppk>,
    /// The ciphers of the IKE SA, the most wanted first; empty: the usual ones.
    pub suites: Vec<Suite>,
    /// Whether key exchanges must resist quantum computers.
    pub post_quantum: PostQuantum,
    /// Whether the 2048-bit MODP group may be used, where there is nothing better.
    pub modp2048: bool,
    /// Whether this host begins.
    pub initiate: bool,
    /// The age at which the IKE SA is rekeyed.
    pub rekey: Duration,
    /// The age at which a new IKE SA takes its place, with new proofs of identity; none: never.
    pub reauthenticate: Option<Duration>,
    /// The time after which a silent peer is asked whether it is alive.
    pub liveness: Duration,
    /// What is protected.
    pub children: Vec<IkeChild>,
}

/// Traffic to protect with a peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IkeChild {
    /// A unique name, also of its policy.
    pub name: String,
    /// The packets, those of any of the selectors.
    pub selectors: Vec<Selector>,
    /// Whether many peers have it at once, each with addresses from the pool.
    pub is_shared: bool,
    /// Transport or tunnel.
    pub mode: Mode,
    /// The ciphers of its SAs, the most wanted first; empty: the usual ones.
    pub suites: Vec<Suite>,
    /// Whether packets may have Q-ESP's header.
    pub qesp: Option<QEsp>,
    /// The age at which its SAs are rekeyed.
    pub rekey: Duration,
    /// The number of queues of which each has SAs of its own (RFC 9611); 0: none has.
    pub per_queue: u32,
    /// What one SA carries until it is rekeyed.
    pub rekey_limits: Limits,
    /// The age, and what one SA has carried, at which it ends even if it was not replaced.
    pub life: Limits,
    /// What this host does about it.
    pub actions: ChildActions,
}

impl IkeChild {
    /// Returns the name of one of its policies. No name in a file has a slash.
    pub(crate) fn policy_name(&self, number: usize) -> String {
        match number {
            0 => self.name.clone(),
            _ => format!("{}/{}", self.name, number + 1),
        }
    }
}

/// What this host does about a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChildActions {
    /// When the tunnel comes up.
    pub start: ChildAction,
    /// When the peer closes it.
    pub close: ChildAction,
    /// When the peer does not answer any more.
    pub dpd: ChildAction,
}

/// How a child comes about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChildAction {
    /// This host sets it up, and tries until it stands.
    Start,
    /// The first packet makes this host set it up, and waits for it.
    Trap,
    /// The peer sets it up.
    None,
}

/// The purpose of reading a configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// To send and receive: unsafe settings are errors.
    Tunnel,
    /// To open captured packets of any sender: unsafe settings are warnings.
    Decode,
}

impl Config {
    /// Returns the IP protocol number of the Q-ESP SAs, if there are any.
    pub fn qesp_number(&self) -> Option<u8> {
        self.associations.iter().find_map(|association| {
            match association.spec.protection.protocol() {
                Protocol::QEsp(number) => Some(number),
                Protocol::Esp | Protocol::Ah => None,
            }
        })
    }

    /// Returns the keys that the ledger must contain, each with its SA's name.
    pub fn key_ids(&self) -> Vec<(KeyId, &str)> {
        let fixed = self.associations.iter().filter(|a| !a.negotiated);
        let key_ids = fixed.map(|a| (KeyId::of(&a.spec), a.spec.name.as_str()));
        key_ids.collect()
    }
}
