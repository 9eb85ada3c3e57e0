//! Writes IP headers, and changes single fields.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::bytes::{be16, put16};
use crate::checksum::{fold, sum};
use crate::{Error, ipv4, ipv6};

/// A new IP header, without options or extension headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IpHeader {
    /// The source address.
    pub source: IpAddr,
    /// The destination address, of the same IP version.
    pub destination: IpAddr,
    /// Type of Service or Traffic Class: DSCP and ECN.
    pub tos: u8,
    /// Time to Live or Hop Limit.
    pub hop_limit: u8,
    /// The protocol after the header.
    pub protocol: u8,
    /// Identification (IPv4).
    pub id: u16,
    /// The DF bit (IPv4).
    pub dont_fragment: bool,
    /// The Flow Label, 20 bits (IPv6).
    pub flow_label: u32,
}

impl IpHeader {
    /// Returns the length that [`write`](Self::write) writes.
    pub fn header_len(&self) -> usize {
        match self.source {
            IpAddr::V4(_) => ipv4::MIN_HEADER_LEN,
            IpAddr::V6(_) => ipv6::HEADER_LEN,
        }
    }

    /// Writes the header of a packet with `payload_len` bytes of payload, including its checksum,
    /// to the start of `out` and returns its length.
    ///
    /// # Errors
    /// [`Error::Malformed`] for addresses of two IP versions, [`Error::TooLong`] for a payload too
    /// long for the length field, [`Error::Truncated`] if `out` is too short.
    pub fn write(&self, payload_len: usize, out: &mut [u8]) -> Result<usize, Error> {
        let out = out.get_mut(..self.header_len()).ok_or(Error::Truncated("IP"))?;
        match (self.source, self.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                self.write_v4(
                    source,
                    destination,
                    length(payload_len.saturating_add(out.len()))?,
                    out,
                );
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                self.write_v6(source, destination, length(payload_len)?, out);
            }
            _ => return Err(Error::Malformed("IP")),
        }
        Ok(out.len())
    }

    fn write_v4(&self, source: Ipv4Addr, destination: Ipv4Addr, total_len: u16, out: &mut [u8]) {
        out[0] = 0x45;
        out[1] = self.tos;
        put16(out, 2, total_len);
        put16(out, 4, self.id);
        put16(out, 6, if self.dont_fragment { 0x4000 } else { 0 });
        out[8] = self.hop_limit;
        out[9] = self.protocol;
        out[12..16].copy_from_slice(&source.octets());
        out[16..20].copy_from_slice(&destination.octets());
        write_checksum(out);
    }

    fn write_v6(&self, source: Ipv6Addr, destination: Ipv6Addr, payload_len: u16, out: &mut [u8]) {
        let first = 6 << 28 | u32::from(self.tos) << 20 | self.flow_label & 0x000f_ffff;
        out[..4].copy_from_slice(&first.to_be_bytes());
        put16(out, 4, payload_len);
        out[6] = self.protocol;
        out[7] = self.hop_limit;
        out[8..24].copy_from_slice(&source.octets());
        out[24..40].copy_from_slice(&destination.octets());
    }
}

/// Sets the length field of the packet to `total_len` bytes, including headers, and updates the
/// checksum of IPv4.
///
/// # Errors
/// [`Error::TooLong`] for a length too large for the field, [`Error::Malformed`] for one below the
/// header's, or the error of the header.
pub fn set_total_len(packet: &mut [u8], total_len: usize) -> Result<(), Error> {
    match header_len(packet)? {
        (false, header_len) => {
            if total_len < header_len {
                return Err(Error::Malformed("IPv4"));
            }
            put16(packet, 2, length(total_len)?);
            write_checksum(&mut packet[..header_len]);
        }
        (true, header_len) => {
            let payload_len = total_len.checked_sub(header_len).ok_or(Error::Malformed("IPv6"))?;
            put16(packet, 4, length(payload_len)?);
        }
    }
    Ok(())
}

/// Recomputes the header checksum of an IPv4 packet; IPv6 has none.
///
/// # Errors
/// The error of the header.
pub fn refresh_checksum(packet: &mut [u8]) -> Result<(), Error> {
    if let (false, header_len) = header_len(packet)? {
        write_checksum(&mut packet[..header_len]);
    }
    Ok(())
}

/// Sets the byte `field` of the packet ([`Ip::next_header_offset`](crate::Ip::next_header_offset)), which
/// names the next header, to `protocol`.
///
/// # Errors
/// [`Error::Truncated`] if the packet ends before `field`, or the error of the header.
pub fn set_protocol(packet: &mut [u8], field: usize, protocol: u8) -> Result<(), Error> {
    let (v6, header_len) = header_len(packet)?;
    *packet.get_mut(field).ok_or(Error::Truncated("IP"))? = protocol;
    if !v6 {
        write_checksum(&mut packet[..header_len]);
    }
    Ok(())
}

/// Sets Type of Service or Traffic Class (DSCP and ECN).
///
/// # Errors
/// The error of the header.
pub fn set_tos(packet: &mut [u8], tos: u8) -> Result<(), Error> {
    match header_len(packet)? {
        (false, _) => change_v4(packet, 0, u16::from_be_bytes([packet[0], tos])),
        (true, _) => {
            packet[0] = 0x60 | tos >> 4;
            packet[1] = tos << 4 | packet[1] & 0x0f;
        }
    }
    Ok(())
}

/// Decrements Time to Live or Hop Limit and returns the result; None without a change if it is at
/// most 1 (RFC 1812, section 5.3.1).
///
/// # Errors
/// The error of the header.
pub fn decrement_hop_limit(packet: &mut [u8]) -> Result<Option<u8>, Error> {
    let (v6, _) = header_len(packet)?;
    let at = if v6 { 7 } else { 8 };
    if packet[at] <= 1 {
        return Ok(None);
    }
    let left = packet[at] - 1;
    if v6 {
        packet[at] = left;
    } else {
        change_v4(packet, at, u16::from_be_bytes([left, packet[at + 1]]));
    }
    Ok(Some(left))
}

/// Returns the IP version, and the length of the fixed header with the options of IPv4.
fn header_len(packet: &[u8]) -> Result<(bool, usize), Error> {
    match packet.first().map(|byte| byte >> 4) {
        Some(4) => Ok((false, ipv4::Packet::new(packet)?.header_len())),
        Some(6) => ipv6::Packet::new(packet).map(|_| (true, ipv6::HEADER_LEN)),
        Some(_) => Err(Error::Unsupported),
        None => Err(Error::Truncated("IP")),
    }
}

fn length(bytes: usize) -> Result<u16, Error> {
    u16::try_from(bytes).map_err(|_| Error::TooLong("IP"))
}

/// Changes one 16-bit word of an IPv4 header and updates its checksum (RFC 1624, equation 3).
/// (RFC 1624, equation 3).
fn change_v4(packet: &mut [u8], at: usize, word: u16) {
    let (old, checksum) = (be16(packet, at), be16(packet, 10));
    put16(packet, at, word);
    let sum = u64::from(!checksum) + u64::from(!old) + u64::from(word);
    put16(packet, 10, !fold(sum));
}

/// Writes the checksum of a whole IPv4 header.
pub(crate) fn write_checksum(header: &mut [u8]) {
    put16(header, 10, 0);
    put16(header, 10, !fold(sum(header, 0)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::{IpHeaders, Ipv4Header};
    use proptest::prelude::*;

    fn fresh(v6: bool) -> IpHeader {
        let [source, destination] = if v6 {
            ["fd00::1", "fd00::2"].map(|text| text.parse().expect("an address"))
        } else {
            ["10.0.0.1", "10.0.0.2"].map(|text| text.parse().expect("an address"))
        };
        IpHeader {
            source,
            destination,
            tos: 0xb9,
            hop_limit: 64,
            protocol: 50,
            id: 0xbeef,
            dont_fragment: true,
            flow_label: 0x000a_bcde,
        }
    }

    /// Reads an IPv4 header and checks its checksum.
    fn v4(bytes: &[u8]) -> Ipv4Header {
        let (header, _) = Ipv4Header::from_slice(bytes).expect("an IPv4 header");
        assert_eq!(header.header_checksum, header.calc_header_checksum());
        header
    }

    #[test]
    fn etherparse_parses_written_headers() {
        let mut bytes = [7; 60];
        assert_eq!(fresh(false).write(40, &mut bytes), Ok(20));
        let header = v4(&bytes);
        assert_eq!((header.total_len, header.identification), (60, 0xbeef));
        assert_eq!(header.source, [10, 0, 0, 1]);
        assert_eq!(header.destination, [10, 0, 0, 2]);
        assert!(header.dont_fragment && !header.more_fragments);
        assert_eq!((header.time_to_live, header.protocol.0, bytes[1]), (64, 50, 0xb9));

        assert_eq!(fresh(true).write(20, &mut bytes), Ok(40));
        let (IpHeaders::Ipv6(header, _), _) = IpHeaders::from_slice(&bytes).expect("a packet")
        else {
            panic!("not IPv6")
        };
        assert_eq!((header.payload_length, header.traffic_class), (20, 0xb9));
        assert_eq!(header.flow_label.value(), 0x000a_bcde);
        assert_eq!((header.hop_limit, header.next_header.0), (64, 50));
        assert_eq!(header.destination[15], 2);
    }

    #[test]
    fn refuses_impossible_headers() {
        let mut out = [0; 60];
        let mixed = IpHeader { source: fresh(true).source, ..fresh(false) };
        assert_eq!(mixed.write(0, &mut out), Err(Error::Malformed("IP")));
        assert_eq!(fresh(false).write(0, &mut out[..19]), Err(Error::Truncated("IP")));
        assert_eq!(fresh(false).write(65_516, &mut out), Err(Error::TooLong("IP")));
        assert_eq!(fresh(true).write(65_536, &mut out), Err(Error::TooLong("IP")));
        assert_eq!(fresh(false).write(65_515, &mut out), Ok(20));
    }

    #[test]
    fn a_used_up_hop_limit_stays() {
        for v6 in [false, true] {
            let mut bytes = [0; 40];
            let used_up = IpHeader { hop_limit: 1, ..fresh(v6) };
            used_up.write(0, &mut bytes).expect("room");
            let before = bytes;
            assert_eq!(decrement_hop_limit(&mut bytes), Ok(None));
            assert_eq!(bytes, before);
        }
    }

    proptest! {
        #[test]
        fn a_changed_field_keeps_the_checksum_right(tos: u8, hop_limit in 2u8.., protocol: u8, total_len in 20u16.., v6: bool) {
            let mut bytes = [0; 40];
            let size = IpHeader { hop_limit, ..fresh(v6) }.write(0, &mut bytes).expect("room");
            set_tos(&mut bytes, tos).expect("a header");
            decrement_hop_limit(&mut bytes).expect("a header");
            if !v6 {
                let header = v4(&bytes);
                prop_assert_eq!((bytes[1], header.time_to_live), (tos, hop_limit - 1));
            }
            set_protocol(&mut bytes, if v6 { 6 } else { 9 }, protocol).expect("a header");
            let total_len = usize::from(total_len).max(size);
            set_total_len(&mut bytes, total_len).expect("a header");
            let expected = IpHeader { tos, hop_limit: hop_limit - 1, protocol, ..fresh(v6) };
            let mut again = [0; 40];
            expected.write(total_len - size, &mut again).expect("room");
            prop_assert_eq!(bytes, again);
        }

        #[test]
        fn no_bytes_make_it_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..80), v6: bool, field in 0usize..90, total_len in 0usize..70_000) {
            if let Some(first) = bytes.first_mut() {
                *first = if v6 { 0x60 } else { 0x40 | *first & 0x0f };
            }
            let _ = set_tos(&mut bytes, 3);
            let _ = decrement_hop_limit(&mut bytes);
            let _ = set_protocol(&mut bytes, field, 3);
            let _ = set_total_len(&mut bytes, total_len);
            let _ = refresh_checksum(&mut bytes);
        }
    }
}
