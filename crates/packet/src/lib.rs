//! IP packets over borrowed bytes: reads, writes, segments, fragments and coalesces them. No I/O.
//!
//! The views of one header ([`ethernet`], [`ipv4`], [`ipv6`], [`tcp`]) are for captured *heads* of
//! frames: they check that the header is complete, but not the payload. [`Ip`] is a complete
//! packet.

mod bytes;
pub mod checksum;
pub mod coalesce;
mod error;
pub mod ethernet;
pub mod fragment;
pub mod header;
pub mod icmp;
pub mod ip;
pub mod ipv4;
pub mod ipv6;
pub mod mss;
pub mod offload;
pub mod protocol;
pub mod segment;
pub mod segmenter;
pub mod tcp;
#[cfg(test)]
mod testing;
pub mod train;
pub mod udp;

pub use coalesce::Coalescer;
pub use error::Error;
pub use fragment::{Fragmenter, Reassembler};
pub use ip::{Fragment, Ip, Version};
pub use offload::Offload;
pub use segment::{Datagram, Segment};
pub use segmenter::Segmenter;
pub use train::Train;
