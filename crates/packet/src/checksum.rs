//! The Internet checksum (RFC 1071), and finishing one that a sender left to
//! its network card.

use crate::Error;

/// Octets of SCTP's header before its checksum, which is a CRC-32C (RFC 9260)
/// and not an Internet checksum.
const SCTP_OFFSET: usize = 8;

/// Where a sender left a checksum unfinished (`csum_start`, `csum_offset` of a
/// `virtio_net_hdr`): the field holds the sum of the pseudo header only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unfinished {
    /// Octet of the frame at which the sum begins: the transport header.
    pub start: usize,
    /// Octet of the transport header at which the checksum stands.
    pub offset: usize,
}

/// Finishes the checksum in `frame`.
///
/// # Errors
/// [`Error::Truncated`] where the field lies outside the frame,
/// [`Error::Unsupported`] for SCTP's.
pub fn finish(frame: &mut [u8], at: Unfinished) -> Result<(), Error> {
    if at.offset == SCTP_OFFSET {
        return Err(Error::Unsupported);
    }
    let field = at.start.checked_add(at.offset).ok_or(Error::Truncated("transport"))?;
    let end = field.checked_add(2).filter(|end| *end <= frame.len());
    let end = end.ok_or(Error::Truncated("transport"))?;
    let sum = not_zero(!fold(sum(&frame[at.start..], 0)));
    frame[field..end].copy_from_slice(&sum.to_be_bytes());
    Ok(())
}

/// Adds octets, taken as big-endian 16-bit words with a zero behind an odd one,
/// to a sum that is to be folded.
pub(crate) fn sum(bytes: &[u8], initial: u64) -> u64 {
    // Words of 32 bits, as 2^16 ≡ 1 modulo 2^16 - 1 (RFC 1071, section 2 (C)):
    // 2^32 of them fit.
    let mut words = bytes.chunks_exact(4);
    let mut sum = initial;
    for word in &mut words {
        sum += u64::from(u32::from_be_bytes([word[0], word[1], word[2], word[3]]));
    }
    let mut rest = [0; 4];
    rest[..words.remainder().len()].copy_from_slice(words.remainder());
    sum + u64::from(u32::from_be_bytes(rest))
}

/// Folds a sum to 16 bits, carries added.
pub(crate) fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// UDP writes 0 as 0xffff, for 0 means "no checksum" (RFC 768); for TCP the two
/// are the same number.
pub(crate) fn not_zero(checksum: u16) -> u16 {
    if checksum == 0 { 0xffff } else { checksum }
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::PacketBuilder;
    use proptest::prelude::*;

    #[test]
    fn the_example_of_rfc_1071() {
        assert_eq!(fold(sum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7], 0)), 0xddf2);
    }

    #[test]
    fn a_field_outside_the_frame_is_an_error() {
        let mut frame = [0; 40];
        for (start, offset) in [(39, 0), (0, 39), (usize::MAX, 1), (1, usize::MAX), (50, 6)] {
            assert!(finish(&mut frame, Unfinished { start, offset }).is_err());
        }
        assert_eq!(finish(&mut frame, Unfinished { start: 0, offset: 8 }), Err(Error::Unsupported));
    }

    proptest! {
        #[test]
        fn what_is_finished_is_what_etherparse_computes(payload in proptest::collection::vec(any::<u8>(), 0..200), udp: bool, v6: bool) {
            let ethernet = PacketBuilder::ethernet2([2; 6], [4; 6]);
            let ip = if v6 { ethernet.ipv6([0xfd; 16], [0xfc; 16], 64) } else { ethernet.ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64) };
            let mut good = Vec::new();
            if udp {
                ip.udp(1, 2).write(&mut good, &payload)
            } else {
                ip.tcp(1, 2, 3, 4).write(&mut good, &payload)
            }.expect("etherparse writes to a vector");
            let start = if v6 { 54 } else { 34 };
            let (protocol, offset) = if udp { (17, 6) } else { (6, 16) };
            // what a kernel leaves: the folded sum of the pseudo header
            let addresses = if v6 { 22..54 } else { 26..34 };
            let pseudo = sum(&good[addresses], (good.len() - start) as u64 + protocol);
            let mut frame = good.clone();
            frame[start + offset..start + offset + 2].copy_from_slice(&fold(pseudo).to_be_bytes());
            finish(&mut frame, Unfinished { start, offset }).expect("a whole frame");
            prop_assert_eq!(frame, good);
        }

        #[test]
        fn no_frame_makes_it_panic(mut frame in proptest::collection::vec(any::<u8>(), 0..100), start in 0usize..120, offset in 0usize..120) {
            let _ = finish(&mut frame, Unfinished { start, offset });
        }
    }
}
