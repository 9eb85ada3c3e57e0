//! IP packets over borrowed bytes: reading, writing, cutting and joining them.
//! No I/O.
//!
//! The views of one header ([`ethernet`], [`ipv4`], [`ipv6`], [`tcp`]) are made
//! for captured *heads* of frames: they check that the header is whole, never
//! that the payload behind it is there. [`Ip`] is a whole packet.

pub mod checksum;
pub mod coalesce;
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
pub use fragment::{Fragmenter, Reassembler};
pub use ip::{Fragment, Ip, Version};
pub use offload::Offload;
pub use segment::{Datagram, Segment};
pub use segmenter::Segmenter;
pub use train::Train;

/// Why a header could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The bytes end inside the header.
    #[error("the {0} header is cut short")]
    Truncated(&'static str),
    /// A field has a value that the standard does not allow.
    #[error("the {0} header is malformed")]
    Malformed(&'static str),
    /// The packet would be longer than its length field can say.
    #[error("the packet is too long for the {0} header")]
    TooLong(&'static str),
    /// A protocol that this crate does not read.
    #[error("a protocol that is not read here")]
    Unsupported,
}

fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn put16(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}
