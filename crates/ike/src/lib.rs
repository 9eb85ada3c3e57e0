//! IKEv2 (RFC 7296) without sockets, files and clocks.
//!
//! An [`Endpoint`] is given datagrams, time and commands, and returns datagrams, deadlines and
//! [`Event`]s that say which CHILD SAs to install, use and remove. [`wire`] reads and writes
//! messages, [`crypto`] derives and uses keys. Randomness is passed in.

pub mod certificate;
mod config;
mod contents;
mod cookie;
mod counters;
pub mod crypto;
pub mod eap;
mod endpoint;
mod event;
mod exchange;
mod half_open;
mod identity;
mod ids;
mod leases;
mod nat;
mod path;
mod peers;
mod proposal;
mod sa;
mod session;
mod traffic;
mod virtual_address;
pub mod wire;

pub use certificate::{Authorities, CertificateError, Credential};
pub use config::{
    Auth, ChildConfig, Config, Connection, Limits, LocalAuth, Mode, Ppk, PpkExchange, QEsp,
    RemoteAuth, Timing,
};
pub use counters::Counters;
pub use endpoint::{Endpoint, SessionInfo};
pub use event::{
    ChildId, ChildSa, Command, Event, HalfSa, MessageReport, NoSuch, PacketFormat, Reason,
    SessionId, Transmit, UsedPpk,
};
pub use identity::Identity;
pub use proposal::{ChildChoice, ChildProposal, IkeChoice, IkeProposal, PostQuantum};
pub use virtual_address::{Assigned, Pool, VirtualAddresses};
