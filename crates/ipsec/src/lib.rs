//! ESP, AH and Q-ESP (RFC 4303, RFC 4302, docs/qesp.md), security associations
//! and policies (RFC 4301). No I/O, no clock: an IP packet goes in, an IP packet
//! comes out.
//!
//! Outbound: [`Headers::read`] says what a packet is, [`Engine::decide`] what is
//! to be done with it, [`Bundle::reserve`] takes sequence numbers, and
//! [`Bundle::seal`] writes the protected packet. A train of segments is read and
//! decided once.
//!
//! Inbound: [`Engine::open`] takes what stands behind the outer IP header, and
//! gives back where the packet is, or the [`Reason`] why there is none.

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
