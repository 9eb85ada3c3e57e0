//! The interface of a suite with its keys: seal and open the body of a packet in place.

use std::fmt::Debug;

use thiserror::Error;

/// The longest authenticated header: that of Q-ESP.
const HEADER_MAX: usize = 16;
/// The longest pair of addresses: two of IPv6.
const ADDRESSES_MAX: usize = 32;
/// The longest additional data: header, high half of the sequence number, addresses.
const ADDITIONAL_MAX: usize = HEADER_MAX + 4 + ADDRESSES_MAX;

/// The authenticated data besides the text.
#[derive(Clone, Copy, Debug)]
pub struct AadInput<'a> {
    /// The 8 bytes of ESP's header or the 16 of Q-ESP's; the 32-bit sequence number is last.
    pub header: &'a [u8],
    /// The full sequence number; the header has its low 32 bits.
    pub sequence: u64,
    /// Whether the high 32 bits are authenticated (extended sequence numbers, RFC 4303 §2.2.1).
    pub extended: bool,
    /// Q-ESP: outer source address ‖ outer destination address. ESP: empty.
    pub addresses: &'a [u8],
}

/// One direction of an SA: a suite with its keys.
///
/// A `body` is IV ‖ text ‖ ICV. Several threads may seal and open at once. The caller must never
/// seal a sequence number twice under one key, since AES-GCM and ChaCha20-Poly1305 make their nonce
/// from it.
pub trait Transform: Send + Sync + Debug {
    /// Returns the length of the IV at the start of a body, in bytes.
    fn iv_len(&self) -> usize;

    /// Returns the number to whose multiples the text is padded: the cipher's block, at least 4 bytes.
    fn block_len(&self) -> usize;

    /// Returns the length of the ICV at the end of a body, in bytes.
    fn icv_len(&self) -> usize;

    /// Encrypts the text, which is already padded, and writes the IV before and the ICV after it.
    ///
    /// An AEAD's IV is the 64-bit sequence number (RFC 4106 §3.1, RFC 7634 §2), a
    /// CBC cipher's is random (RFC 3602 §3).
    ///
    /// # Errors
    /// A length or the sequence number is invalid, or the system returned no random bytes. The
    /// content of the body is then undefined and must not be sent.
    fn seal(&self, aad: &AadInput<'_>, body: &mut [u8]) -> Result<(), SealError>;

    /// Verifies the ICV, then decrypts the text.
    ///
    /// For suites without blocks the length of the text may be any; the caller checks the alignment
    /// of ESP (RFC 4303 §2.4).
    ///
    /// # Errors
    /// The body or `aad` differs from what was sealed, or the body is too short. The content of the
    /// body is then undefined and must not be used.
    fn open(&self, aad: &AadInput<'_>, body: &mut [u8]) -> Result<(), Forged>;

    /// Checks whether a body would verify if its ICV were truncated to `icv_len` bytes, to diagnose
    /// a peer's packets. False for suites that cannot tell.
    fn verifies_truncated(&self, _aad: &AadInput<'_>, _body: &[u8], _icv_len: usize) -> bool {
        false
    }
}

/// Why a packet was not sealed: an error of the caller or of the system, never of the traffic.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum SealError {
    /// The body has no place for IV and ICV, or the text between them is not padded.
    #[error(
        "a body of {found} bytes cannot be sealed: the text between an IV of {iv_len} and an ICV of {icv_len} bytes must be a multiple of {block_len}"
    )]
    Length {
        /// The length of the body.
        found: usize,
        /// The length of the suite's IV.
        iv_len: usize,
        /// The number of which the length of the text must be a multiple.
        block_len: usize,
        /// The length of the suite's ICV.
        icv_len: usize,
    },
    /// The header is shorter than 4 or longer than 16 bytes, or the addresses are longer than 32.
    #[error("no protocol has a header of {header} bytes with {addresses} bytes of addresses")]
    Header {
        /// The length of the header.
        header: usize,
        /// The length of the addresses.
        addresses: usize,
    },
    /// The sequence number is 0 (after a wrap), longer than 32 bits without extended sequence
    /// numbers, or not that of the header (RFC 4303 §3.3.3).
    #[error(
        "sequence number {0} cannot be sealed: it is 0, longer than the association's numbers, or not the one in the header"
    )]
    Sequence(u64),
    /// The system returned no random bytes for an IV.
    #[error("cannot generate an IV: the system returned no random bytes")]
    Random,
    /// The library refused to encrypt.
    #[error("the cryptographic library refused to encrypt")]
    Refused,
}

/// The packet is not what the peer sealed: damaged, truncated or forged. The error deliberately
/// does not tell which.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[error("the packet does not verify: it was damaged, forged, or sealed with other keys")]
pub struct Forged;

impl AadInput<'_> {
    /// Checks whether this can be sealed.
    #[inline]
    pub(crate) fn check_seal(&self) -> Result<(), SealError> {
        let (_, low) = self.split()?;
        let fits = self.extended || self.sequence <= u64::from(u32::MAX);
        if self.sequence == 0 || !fits || *low != (self.sequence as u32).to_be_bytes() {
            return Err(SealError::Sequence(self.sequence));
        }
        Ok(())
    }

    /// Returns the header without its sequence number, and the sequence number.
    #[inline]
    pub(crate) fn split(&self) -> Result<(&[u8], &[u8; 4]), SealError> {
        let (header, addresses) = (self.header.len(), self.addresses.len());
        match self.header.split_last_chunk() {
            Some(split) if header <= HEADER_MAX && addresses <= ADDRESSES_MAX => Ok(split),
            _ => Err(SealError::Header { header, addresses }),
        }
    }

    /// Returns the authenticated high 32 bits of an extended sequence number.
    #[inline]
    pub(crate) fn high(&self) -> [u8; 4] {
        ((self.sequence >> 32) as u32).to_be_bytes()
    }

    /// Returns the additional data of an AEAD: the header, with a 64-bit sequence number if it is
    /// extended (RFC 4106 §5), then the addresses.
    #[inline]
    pub(crate) fn additional(&self) -> Result<Additional, SealError> {
        let (ahead, low) = self.split()?;
        let mut additional = Additional { bytes: [0; ADDITIONAL_MAX], len: 0 };
        additional.push(ahead);
        if self.extended {
            additional.push(&self.high());
        }
        additional.push(low);
        additional.push(self.addresses);
        Ok(additional)
    }
}

/// An AEAD's additional data, on the stack.
pub(crate) struct Additional {
    bytes: [u8; ADDITIONAL_MAX],
    len: usize,
}

impl Additional {
    #[inline]
    fn push(&mut self, part: &[u8]) {
        self.bytes[self.len..self.len + part.len()].copy_from_slice(part);
        self.len += part.len();
    }
}

impl AsRef<[u8]> for Additional {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: [u8; 16] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0, 0, 0, 7];

    fn aad(sequence: u64, extended: bool) -> AadInput<'static> {
        AadInput { header: &HEADER, sequence, extended, addresses: &[0xaa; 32] }
    }

    #[test]
    fn additional_data_widens_the_sequence_number_in_place() {
        let plain = aad(7, false).additional().expect("fits");
        assert_eq!(plain.as_ref(), [&HEADER[..], &[0xaa; 32]].concat());
        let wide = aad(0x0102_0304_0000_0007, true).additional().expect("fits");
        let expected = [&HEADER[..12], &[1, 2, 3, 4], &[0, 0, 0, 7], &[0xaa; 32]].concat();
        assert_eq!(wide.as_ref(), expected);
    }

    #[test]
    fn sequence_numbers_that_cannot_be_right_are_refused() {
        assert_eq!(aad(7, false).check_seal(), Ok(()));
        assert_eq!(aad((9 << 32) + 7, true).check_seal(), Ok(()));
        for (sequence, extended) in [(0, true), (8, true), ((1 << 32) + 7, false)] {
            assert_eq!(aad(sequence, extended).check_seal(), Err(SealError::Sequence(sequence)));
        }
        let zero = AadInput { header: &[0; 8], sequence: 1 << 32, extended: true, addresses: &[] };
        assert_eq!(zero.check_seal(), Ok(()), "only the whole number may not be 0");
        let last = AadInput { header: &[0xff; 8], sequence: u64::MAX, ..zero };
        assert_eq!(last.check_seal(), Ok(()));
    }

    #[test]
    fn headers_of_no_protocol_are_refused() {
        for (header, addresses) in [(3, 0), (17, 0), (8, 33)] {
            let aad = AadInput {
                header: &vec![0; header],
                sequence: 0,
                extended: true,
                addresses: &vec![0; addresses],
            };
            assert_eq!(aad.check_seal(), Err(SealError::Header { header, addresses }));
            assert!(aad.additional().is_err());
        }
    }
}
