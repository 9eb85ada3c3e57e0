//! UDP datagrams (RFC 768; over IPv6: RFC 8200, section 8.1).

use crate::bytes::{be16, put16};
use crate::checksum::{fold, not_zero, pseudo_header, sum};
use crate::{Error, protocol};

/// Bytes of the header.
pub const HEADER_LEN: usize = 8;
/// The offset of the checksum in the header.
pub const CHECKSUM_OFFSET: usize = 6;

/// A complete datagram.
#[derive(Debug, Clone, Copy)]
pub struct Packet<'a>(&'a [u8]);

impl<'a> Packet<'a> {
    /// Parses a datagram; bytes after its length are ignored.
    ///
    /// # Errors
    /// [`Error::Truncated`] if the datagram is not complete, [`Error::Malformed`] for a length
    /// below 8 bytes.
    pub fn new(bytes: &'a [u8]) -> Result<Self, Error> {
        if bytes.len() < HEADER_LEN {
            return Err(Error::Truncated("UDP"));
        }
        let len = usize::from(be16(bytes, 4));
        if len < HEADER_LEN {
            return Err(Error::Malformed("UDP"));
        }
        bytes.get(..len).map(Self).ok_or(Error::Truncated("UDP"))
    }

    /// Returns the source port.
    pub fn source_port(&self) -> u16 {
        be16(self.0, 0)
    }

    /// Returns the destination port.
    pub fn destination_port(&self) -> u16 {
        be16(self.0, 2)
    }

    /// Returns the checksum; 0 if the sender computed none.
    pub fn checksum(&self) -> u16 {
        be16(self.0, CHECKSUM_OFFSET)
    }

    /// Checks the checksum with these addresses, source and destination in network byte order
    /// ([`Ip::addresses`](crate::Ip::addresses)). True without a checksum, which only IPv4 allows.
    pub fn is_checksum_right(&self, addresses: &[u8]) -> bool {
        if self.checksum() == 0 {
            return addresses.len() == 8;
        }
        fold(sum(self.0, pseudo_header(addresses, protocol::UDP, self.0.len()))) == 0xffff
    }

    /// Returns the payload.
    pub fn payload(&self) -> &'a [u8] {
        &self.0[HEADER_LEN..]
    }
}

/// Writes the header of a datagram with `payload_len` bytes of payload, without a checksum, to the
/// start of `out` and returns its length, 8.
///
/// # Errors
/// [`Error::TooLong`] for a payload too long for the length field, [`Error::Truncated`] if `out` is
/// too short.
pub fn write(
    source_port: u16,
    destination_port: u16,
    payload_len: usize,
    out: &mut [u8],
) -> Result<usize, Error> {
    let len =
        u16::try_from(payload_len.saturating_add(HEADER_LEN)).map_err(|_| Error::TooLong("UDP"))?;
    let out = out.get_mut(..HEADER_LEN).ok_or(Error::Truncated("UDP"))?;
    for (at, word) in [source_port, destination_port, len, 0].into_iter().enumerate() {
        put16(out, at * 2, word);
    }
    Ok(HEADER_LEN)
}

/// Computes the checksum of a whole datagram with these addresses, source and destination in
/// network byte order.
///
/// # Errors
/// [`Error::Truncated`] below 8 bytes.
pub fn write_checksum(addresses: &[u8], datagram: &mut [u8]) -> Result<(), Error> {
    if datagram.len() < HEADER_LEN {
        return Err(Error::Truncated("UDP"));
    }
    put16(datagram, CHECKSUM_OFFSET, 0);
    let sum = sum(datagram, pseudo_header(addresses, protocol::UDP, datagram.len()));
    put16(datagram, CHECKSUM_OFFSET, not_zero(!fold(sum)));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::PacketBuilder;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn writes_the_same_as_etherparse(payload in proptest::collection::vec(any::<u8>(), 0..300), v6: bool, source: u16, destination: u16) {
            let ip = if v6 { PacketBuilder::ipv6([0xfd; 16], [0xfc; 16], 64) } else { PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64) };
            let mut good = Vec::new();
            ip.udp(source, destination).write(&mut good, &payload).expect("etherparse writes to a vector");
            let (addresses, datagram) = if v6 { (&good[8..40], &good[40..]) } else { (&good[12..20], &good[20..]) };
            let mut written = vec![0; HEADER_LEN];
            prop_assert_eq!(write(source, destination, payload.len(), &mut written), Ok(HEADER_LEN));
            written.extend_from_slice(&payload);
            prop_assert!(Packet::new(&written).expect("a datagram").is_checksum_right(addresses) != v6);
            write_checksum(addresses, &mut written).expect("a header");
            prop_assert_eq!(&written, datagram);

            written.push(7); // bytes after the datagram are ignored
            let packet = Packet::new(&written).expect("a datagram");
            prop_assert!(packet.is_checksum_right(addresses));
            prop_assert_eq!((packet.source_port(), packet.destination_port(), packet.payload()), (source, destination, &payload[..]));
            written[0] ^= 0x10;
            prop_assert!(!Packet::new(&written).is_ok_and(|packet| packet.is_checksum_right(addresses)));
        }

        #[test]
        fn no_bytes_make_it_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            if let Ok(packet) = Packet::new(&bytes) {
                let _ = (packet.payload(), packet.is_checksum_right(&[1; 32]));
            }
            let _ = write_checksum(&[1; 8], &mut bytes);
            let _ = write(1, 2, bytes.len(), &mut bytes);
        }
    }

    #[test]
    fn refuses_malformed_datagrams() {
        assert_eq!(Packet::new(&[0; 7]).err(), Some(Error::Truncated("UDP")));
        assert_eq!(Packet::new(&[0; 8]).err(), Some(Error::Malformed("UDP")));
        assert_eq!(Packet::new(&[0, 1, 0, 2, 0, 9, 0, 0]).err(), Some(Error::Truncated("UDP")));
        assert_eq!(write(1, 2, 65_528, &mut [0; 8]), Err(Error::TooLong("UDP")));
        assert_eq!(write(1, 2, 0, &mut [0; 7]), Err(Error::Truncated("UDP")));
    }
}
