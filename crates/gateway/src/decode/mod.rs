//! Opens captured packets with given keys and says what each is, or why it
//! fails. Unlike a gateway it opens replays and stale packets too, takes packets
//! of both directions, tries what else might have been meant, and drops nothing.

mod attempt;
pub mod capture;
mod decoder;
mod diagnose;
mod layers;
mod link;
mod open;
mod packet_report;
mod report;
mod sa_decoder;
#[cfg(test)]
mod tests;

pub use decoder::{Decoder, PacketSink};
pub use report::{Clear, Inner, Layer, Outcome, Packet, Summary, Tally};
pub use sa_decoder::Search;
