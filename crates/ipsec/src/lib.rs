//! ESP, AH and Q-ESP (RFC 4303, RFC 4302, docs/qesp.md), security associations and policies
//! (RFC 4301), without I/O and without a clock: an IP packet goes in, an IP packet comes out.
//!
//! Outbound: [`Headers::read`] reads a packet's headers, [`Engine::decide`] finds its policy,
//! [`Bundle::reserve`] takes sequence numbers, and [`Bundle::seal`] writes the protected packet. A
//! train of segments is read and decided once.
//!
//! Inbound: [`Engine::open`] takes the bytes behind the outer IP header, and returns where the inner
//! packet is, or the [`Reason`] to drop it.

pub mod ah;
mod bundle;
mod engine;
pub mod esp;
mod headers;
mod inbound;
mod open_scratch;
mod peer;
mod policy;
pub mod qesp;
mod reason;
pub mod replay;
mod sa;
mod sequence_counter;
pub mod spec;
pub mod tos;
mod transform;

pub use bundle::{Bundle, Reservation};
pub use engine::{Engine, SpecError};
pub use headers::{Headers, Outer};
pub use inbound::Opened;
pub use open_scratch::{HeaderBuf, OpenScratch};
pub use peer::{Peer, PeerMoved};
pub use policy::{FlowCache, Policy, Verdict};
pub use reason::{Counters, Reason};
pub use sa::{Event, Sa, Stage};
pub use sequence_counter::SequenceCounter;
pub use spec::{Mode, PolicySpec, Protocol, SaSpec};
pub use transform::SaTransform;
