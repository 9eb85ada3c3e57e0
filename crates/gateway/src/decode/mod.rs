//! Opens captured packets with given keys, and reports the content of each or why it cannot be
//! opened. Unlike a gateway, the decoder also opens replayed and stale packets, opens packets of
//! both directions, tries other assumptions, and drops nothing.

mod attempt;
pub mod capture;
mod decoder;
mod diagnose;
mod ike;
#[cfg(test)]
mod ike_tests;
mod layers;
mod link;
mod open;
mod packet_report;
mod report;
mod sa_decoder;
#[cfg(test)]
mod tests;

pub use decoder::{Decoder, PacketSink};
pub use ike::{Encryption, IkeMessage, IkeTally, PayloadReport};
pub use report::{Clear, Inner, Layer, Outcome, Packet, Summary, Tally};
pub use sa_decoder::Search;
