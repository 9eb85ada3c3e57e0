//! Variable-length integers (RFC 9000, section 16).

/// One more than the largest.
#[cfg(test)]
pub(crate) const END: u64 = 1 << 62;

/// Returns the encoded length of `value`, which has 62 bits at most.
pub(crate) fn len(value: u64) -> usize {
    match value {
        0..0x40 => 1,
        0x40..0x4000 => 2,
        0x4000..0x4000_0000 => 4,
        _ => 8,
    }
}

/// Writes `value` to the front of `out`, if it fits, and returns the rest of `out`.
pub(crate) fn write(value: u64, out: &mut [u8]) -> Option<&mut [u8]> {
    let len = len(value);
    let (place, rest) = out.split_at_mut_checked(len)?;
    place.copy_from_slice(&value.to_be_bytes()[8 - len..]);
    place[0] |= (len.ilog2() as u8) << 6;
    Some(rest)
}

/// Reads one from the front of `bytes`; returns it and the rest.
pub(crate) fn read(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let len = 1 << (bytes.first()? >> 6);
    let (place, rest) = bytes.split_at_checked(len)?;
    let mut value = [0; 8];
    value[8 - len..].copy_from_slice(place);
    value[8 - len] &= 0x3f;
    Some((u64::from_be_bytes(value), rest))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_examples_of_rfc_9000_appendix_a_1() {
        let examples: [(u64, &[u8]); 4] = [
            (151_288_809_941_952_652, &[0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c]),
            (494_878_333, &[0x9d, 0x7f, 0x3e, 0x7d]),
            (15_293, &[0x7b, 0xbd]),
            (37, &[0x25]),
        ];
        for (value, bytes) in examples {
            assert_eq!(read(bytes), Some((value, &[][..])));
            let mut out = [0; 8];
            assert_eq!(write(value, &mut out).expect("room").len(), 8 - bytes.len());
            assert_eq!(&out[..bytes.len()], bytes);
        }
        assert_eq!(read(&[0x40, 0x25]), Some((37, &[][..])));
        assert_eq!(read(&[0x40]), None);
        assert!(write(64, &mut [0]).is_none());
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(value in 0..END) {
            let mut out = [0xff; 9];
            let left = write(value, &mut out).expect("room").len();
            prop_assert_eq!(9 - left, len(value));
            prop_assert_eq!(read(&out[..9 - left]), Some((value, &[][..])));
        }
    }
}
