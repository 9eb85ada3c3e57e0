//! Views of Ethernet, IPv4, IPv6 and TCP headers over borrowed bytes. No I/O.
//!
//! The views are made for captured *heads* of frames: they check that a header
//! is whole, never that the payload behind it is there.

pub mod checksum;
pub mod ethernet;
pub mod ipv4;
pub mod ipv6;
pub mod segment;
pub mod tcp;
pub mod train;

pub use segment::Segment;
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
