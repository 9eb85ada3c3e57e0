//! Q-ESP's header (docs/qesp.md): ports and protocol of the protected packet in
//! clear, ahead of ESP's own.

use std::net::IpAddr;

use crate::headers::Headers;
use crate::reason::Reason;

/// Octets before the security parameters index.
pub const CLEAR_LEN: usize = 8;
/// Octets of the header.
pub const HEADER_LEN: usize = 16;
/// Octets of two IPv6 addresses.
pub const MAX_ADDRESSES_LEN: usize = 32;

/// What a router can read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Clear {
    /// Source port; 0 where there is none.
    pub source_port: u16,
    /// Destination port; 0 where there is none.
    pub destination_port: u16,
    /// Transport protocol.
    pub protocol: u8,
}

/// The outer addresses, as they are covered by the check value: source, then
/// destination.
pub fn addresses(source: IpAddr, destination: IpAddr, room: &mut [u8; MAX_ADDRESSES_LEN]) -> &[u8] {
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            room[..4].copy_from_slice(&source.octets());
            room[4..8].copy_from_slice(&destination.octets());
            &room[..8]
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            room[..16].copy_from_slice(&source.octets());
            room[16..].copy_from_slice(&destination.octets());
            room
        }
        // an association has addresses of one family
        _ => &[],
    }
}

impl Clear {
    /// What is shown of a packet: ports where it has them, and its protocol.
    pub fn of(headers: &Headers) -> Self {
        let (source_port, destination_port) = headers.ports.unwrap_or((0, 0));
        Self { source_port, destination_port, protocol: headers.protocol }
    }

    /// Reads the first octets of a Q-ESP header.
    ///
    /// # Errors
    /// [`Reason::Truncated`], [`Reason::ReservedNotZero`].
    pub fn read(octets: &[u8]) -> Result<Self, Reason> {
        let Some([a, b, c, d, protocol, reserved @ ..]) = octets.first_chunk::<CLEAR_LEN>() else {
            return Err(Reason::Truncated);
        };
        if *reserved != [0; 3] {
            return Err(Reason::ReservedNotZero);
        }
        Ok(Self {
            source_port: u16::from_be_bytes([*a, *b]),
            destination_port: u16::from_be_bytes([*c, *d]),
            protocol: *protocol,
        })
    }

    /// The octets.
    pub fn octets(self) -> [u8; CLEAR_LEN] {
        let ([a, b], [c, d]) =
            (self.source_port.to_be_bytes(), self.destination_port.to_be_bytes());
        [a, b, c, d, self.protocol, 0, 0, 0]
    }
}
