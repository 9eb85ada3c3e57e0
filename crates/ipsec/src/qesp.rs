//! Q-ESP's header (docs/qesp.md): ports and protocol of the protected packet in clear, ahead of
//! ESP's header.

use std::net::IpAddr;

use crate::headers::Headers;
use crate::reason::Reason;

/// Length of the clear fields before the SPI, in bytes.
pub const CLEAR_LEN: usize = 8;
/// Length of the header in bytes.
pub const HEADER_LEN: usize = 16;
/// Length of two IPv6 addresses in bytes.
pub const MAX_ADDRESSES_LEN: usize = 32;

/// The clear fields, which routers can read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Clear {
    /// Source port; 0 if there is none.
    pub source_port: u16,
    /// Destination port; 0 if there is none.
    pub destination_port: u16,
    /// Transport protocol.
    pub protocol: u8,
}

/// Writes the outer addresses as the check value covers them: source, then destination.
pub fn addresses(
    source: IpAddr,
    destination: IpAddr,
    buffer: &mut [u8; MAX_ADDRESSES_LEN],
) -> &[u8] {
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            buffer[..4].copy_from_slice(&source.octets());
            buffer[4..8].copy_from_slice(&destination.octets());
            &buffer[..8]
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            buffer[..16].copy_from_slice(&source.octets());
            buffer[16..].copy_from_slice(&destination.octets());
            buffer
        }
        // an association has addresses of one family
        _ => &[],
    }
}

impl Clear {
    /// Returns the clear fields for a packet: its ports, if it has any, and its protocol.
    pub fn of(headers: &Headers) -> Self {
        let (source_port, destination_port) = headers.ports.unwrap_or((0, 0));
        Self { source_port, destination_port, protocol: headers.protocol }
    }

    /// Parses the clear fields at the beginning of a Q-ESP header.
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

    /// Returns the fields as they are on the wire.
    pub fn octets(self) -> [u8; CLEAR_LEN] {
        let ([a, b], [c, d]) =
            (self.source_port.to_be_bytes(), self.destination_port.to_be_bytes());
        [a, b, c, d, self.protocol, 0, 0, 0]
    }
}
