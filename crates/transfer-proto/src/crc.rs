//! CRC-64/NVME of bytes, and of pieces that are joined: the CRC of a whole from those of its parts
//! and their lengths.
//!
//! The CRC of joined pieces is a sum of products of polynomials over GF(2) modulo that of the CRC
//! (zlib's `crc32_combine` computes it so, too). That takes 64 steps for each one bit of a length.
//! `crc_fast::checksum_combine` squares matrices instead: about 100 000 steps for 1 MiB.

/// The polynomial of CRC-64/NVME (NVM Command Set Specification, 64b CRC) without its highest term,
/// reflected: bit 63 is the coefficient of x^0.
const POLYNOMIAL: u64 = 0x9a6c_9329_ac4b_c9b5;

/// x^(2^n) modulo the polynomial, for lengths of up to 2^64 bytes.
static POWERS: [u64; 67] = powers();

/// A CRC-64/NVME. That of no bytes is 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Crc(pub(crate) u64);

impl Crc {
    /// Returns the CRC of these bytes.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self::default().followed_by(bytes)
    }

    /// Returns the CRC of so many zeros, without reading any.
    pub(crate) fn of_zeros(len: u64) -> Self {
        // before the final complement, a zero multiplies by x^8 and adds nothing
        Self(!Self(u64::MAX).moved_up(len).0)
    }

    /// Returns the CRC of what has this CRC, followed by these bytes.
    pub(crate) fn followed_by(self, bytes: &[u8]) -> Self {
        Self(!update(!self.0, bytes))
    }

    /// Returns the CRC of what has this CRC, followed by `len` bytes that have another.
    pub(crate) fn joined_with(self, other: Self, len: u64) -> Self {
        self.moved_up(len).plus(other)
    }

    /// Returns what this CRC contributes to that of a whole in which `len` bytes follow. The
    /// contributions of all pieces, added in any order, are the CRC of the whole.
    pub(crate) fn moved_up(self, len: u64) -> Self {
        let (mut moved, mut left) = (self.0, len);
        // a byte is 2^3 bits
        for power in &POWERS[3..] {
            if left == 0 {
                break;
            }
            if left & 1 == 1 {
                moved = product(*power, moved);
            }
            left >>= 1;
        }
        Self(moved)
    }

    /// Adds another contribution.
    pub(crate) const fn plus(self, other: Self) -> Self {
        Self(self.0 ^ other.0)
    }
}

const fn powers() -> [u64; 67] {
    let mut powers = [0; 67];
    powers[0] = 1_u64 << 62;
    let mut n = 1;
    while n < powers.len() {
        powers[n] = product(powers[n - 1], powers[n - 1]);
        n += 1;
    }
    powers
}

/// Multiplies two polynomials modulo the polynomial of the CRC.
const fn product(one: u64, other: u64) -> u64 {
    let (mut product, mut other, mut bit) = (0_u64, other, 1_u64 << 63);
    while bit != 0 {
        if one & bit != 0 {
            product ^= other;
        }
        other = (other >> 1) ^ if other & 1 == 1 { POLYNOMIAL } else { 0 };
        bit >>= 1;
    }
    product
}

/// Updates the state of a CRC.
#[cfg(not(target_family = "wasm"))]
fn update(state: u64, bytes: &[u8]) -> u64 {
    let algorithm = crc_fast::CrcAlgorithm::Crc64Nvme;
    let mut digest = crc_fast::Digest::new_with_init_state(algorithm, state);
    digest.update(bytes);
    digest.get_state()
}

/// Updates the state of a CRC. A page of a browser requests no CRCs: this is small, not fast.
#[cfg(target_family = "wasm")]
fn update(state: u64, bytes: &[u8]) -> u64 {
    update_by_bits(state, bytes)
}

#[cfg(any(test, target_family = "wasm"))]
fn update_by_bits(state: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(state, |state, byte| {
        (0..8).fold(state ^ u64::from(*byte), |state, _| {
            (state >> 1) ^ if state & 1 == 1 { POLYNOMIAL } else { 0 }
        })
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_check_value_is_that_of_the_catalogue() {
        // CRC RevEng, "CRC-64/NVME": check
        assert_eq!(Crc::of(b"123456789"), Crc(0xae8b_1486_0a79_9888));
        assert_eq!(!update_by_bits(u64::MAX, b"123456789"), 0xae8b_1486_0a79_9888);
        assert_eq!(Crc::of(b""), Crc(0));
        assert_eq!(Crc::of_zeros(0), Crc(0));
        assert_eq!(Crc::of_zeros(1), Crc::of(&[0]));
    }

    #[test]
    fn lengths_of_any_number_of_bits_are_possible() {
        let one = Crc::of(b"1");
        let halves = one.moved_up(1 << 63).moved_up(1 << 63);
        assert_eq!(one.moved_up(u64::MAX).moved_up(1), halves);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        #[test]
        fn parts_give_the_crc_of_the_whole(
            bytes in prop::collection::vec(any::<u8>(), 0..3000), cut in any::<prop::sample::Index>(),
        ) {
            let whole = Crc::of(&bytes);
            prop_assert_eq!(whole.0, crc_fast::crc64_nvme(&bytes));
            prop_assert_eq!(whole.0, !update_by_bits(u64::MAX, &bytes));
            let (first, second) = bytes.split_at(cut.index(bytes.len() + 1));
            prop_assert_eq!(Crc::of(first).followed_by(second), whole);
            let len = second.len() as u64;
            let joined = Crc::of(first).joined_with(Crc::of(second), len);
            prop_assert_eq!(joined, whole);
            let algorithm = crc_fast::CrcAlgorithm::Crc64Nvme;
            let (one, other) = (Crc::of(first).0, Crc::of(second).0);
            prop_assert_eq!(joined.0, crc_fast::checksum_combine(algorithm, one, other, len));
            prop_assert_eq!(Crc::of_zeros(len), Crc::of(&vec![0; second.len()]));
        }
    }
}
