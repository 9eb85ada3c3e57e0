//! The Internet checksum (RFC 1071), and checksums that a sender left to its network card.

use std::ops::Range;

use crate::Error;

/// Bytes of SCTP's header before its checksum, which is a CRC-32C (RFC 9260) instead of an Internet
/// checksum.
const SCTP_OFFSET: usize = 8;

/// The position of an unfinished checksum (`csum_start`, `csum_offset` of a `virtio_net_hdr`): the
/// field contains only the sum of the pseudo header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unfinished {
    /// The offset in the frame where the sum begins: the transport header.
    pub start: usize,
    /// The offset of the checksum in the transport header.
    pub offset: usize,
}

impl Unfinished {
    /// Returns the offset of the field in a frame of `len` bytes.
    pub(crate) fn check(self, len: usize) -> Result<Range<usize>, Error> {
        if self.offset == SCTP_OFFSET {
            return Err(Error::Unsupported);
        }
        let field = self.start.checked_add(self.offset).ok_or(Error::Truncated("transport"))?;
        let end = field.checked_add(2).filter(|end| *end <= len);
        Ok(field..end.ok_or(Error::Truncated("transport"))?)
    }
}

/// Completes the checksum in `frame`.
///
/// # Errors
/// [`Error::Truncated`] if the field is outside the frame, [`Error::Unsupported`] for that of SCTP.
pub fn finish(frame: &mut [u8], at: Unfinished) -> Result<(), Error> {
    let field = at.check(frame.len())?;
    let checksum = finished(frame, at);
    frame[field].copy_from_slice(&checksum.to_be_bytes());
    Ok(())
}

/// Returns the checksum for the field, which must be inside the frame.
pub(crate) fn finished(frame: &[u8], at: Unfinished) -> u16 {
    not_zero(!fold(sum(&frame[at.start..], 0)))
}

/// Returns `initial` plus the sum of bytes, which may exceed 16 bits. The bytes are big-endian 16-bit words; an odd last byte
/// is followed by a zero.
pub(crate) fn sum(bytes: &[u8], initial: u64) -> u64 {
    // Adds 32-bit words, since 2^16 ≡ 1 modulo 2^16 - 1 (RFC 1071, section 2 (C)); 2^32 of them
    // fit. The machine's byte order lets the compiler use vectors; the result is swapped at the end
    // (section 2 (B)).
    let (words, rest) = bytes.as_chunks();
    let sum: u64 = words.iter().map(|word| u64::from(u32::from_ne_bytes(*word))).sum();
    initial + big_endian_sum(sum + last(rest))
}

/// Copies `bytes` to the start of `out`, which must not be shorter, and returns their [`sum`], in
/// one pass.
pub(crate) fn copy_and_sum(bytes: &[u8], out: &mut [u8], initial: u64) -> u64 {
    let mut lanes = [0_u64; 16];
    let (blocks, rest) = bytes.as_chunks::<64>();
    let (out_blocks, _) = out[..bytes.len()].as_chunks_mut::<64>();
    for (block, out_block) in blocks.iter().zip(out_blocks) {
        *out_block = *block;
        for (lane, word) in lanes.iter_mut().zip(block.as_chunks().0) {
            *lane += u64::from(u32::from_ne_bytes(*word));
        }
    }
    let begin = bytes.len() - rest.len();
    out[begin..bytes.len()].copy_from_slice(rest);
    sum(rest, initial + big_endian_sum(lanes.iter().sum()))
}

/// Folds a sum of words that were read in the machine's byte order, and returns what the sum of the
/// same words in big-endian order is (RFC 1071, section 2 (B)).
fn big_endian_sum(native: u64) -> u64 {
    u64::from(u16::from_be(fold(native)))
}

/// Returns the bytes after the last whole word, padded with zeros.
fn last(rest: &[u8]) -> u64 {
    let mut word = [0; 4];
    word[..rest.len()].copy_from_slice(rest);
    u64::from(u32::from_ne_bytes(word))
}

/// Returns the sum of a pseudo header (RFC 9293, section 3.1; RFC 8200, section 8.1): `addresses`
/// are the bytes of source and destination, `len` is the length of the transport header and its
/// payload.
pub(crate) fn pseudo_header(addresses: &[u8], protocol: u8, len: usize) -> u64 {
    sum(addresses, len as u64 + u64::from(protocol))
}

/// Folds a sum to 16 bits with end-around carries.
pub(crate) fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// Returns 0 as 0xffff, since 0 means "no checksum" in UDP (RFC 768); for TCP both are equal.
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
        fn it_is_the_sum_of_big_endian_words(bytes in proptest::collection::vec(any::<u8>(), 0..300), initial in 0_u64..1 << 40) {
            let words = bytes.chunks(2).map(|pair| u64::from(pair[0]) << 8 | pair.get(1).map_or(0, |low| u64::from(*low)));
            let expected = fold(initial + words.sum::<u64>());
            prop_assert_eq!(fold(sum(&bytes, initial)), expected);
            let mut out = vec![7; bytes.len() + 3];
            prop_assert_eq!(fold(copy_and_sum(&bytes, &mut out, initial)), expected);
            prop_assert_eq!(&out[..bytes.len()], &bytes);
            prop_assert_eq!(&out[bytes.len()..], &[7; 3]);
        }

        #[test]
        fn completes_checksums_like_etherparse(payload in proptest::collection::vec(any::<u8>(), 0..200), udp: bool, v6: bool) {
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
            // What a kernel leaves: the folded sum of the pseudo header.
            let addresses = if v6 { 22..54 } else { 26..34 };
            let pseudo = sum(&good[addresses], (good.len() - start) as u64 + protocol);
            let mut frame = good.clone();
            frame[start + offset..start + offset + 2].copy_from_slice(&fold(pseudo).to_be_bytes());
            finish(&mut frame, Unfinished { start, offset }).expect("a whole frame");
            let written = not_zero(crate::bytes::be16(&good, start + offset));
            good[start + offset..start + offset + 2].copy_from_slice(&written.to_be_bytes());
            prop_assert_eq!(frame, good);
        }

        #[test]
        fn no_frame_makes_it_panic(mut frame in proptest::collection::vec(any::<u8>(), 0..100), start in 0usize..120, offset in 0usize..120) {
            let _ = finish(&mut frame, Unfinished { start, offset });
        }
    }
}
