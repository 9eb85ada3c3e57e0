//! What every bound suite can do: seal and open the body of a packet in place.

use std::fmt::Debug;

use thiserror::Error;

/// The longest header that is authenticated: Q-ESP's.
const HEADER_MAX: usize = 16;
/// The longest pair of addresses: two of IPv6.
const ADDRESSES_MAX: usize = 32;
/// The longest additional data: header, high half of the sequence number, addresses.
const ADDITIONAL_MAX: usize = HEADER_MAX + 4 + ADDRESSES_MAX;

/// What is authenticated beside the text.
#[derive(Clone, Copy, Debug)]
pub struct AadInput<'a> {
    /// ESP's 8 or Q-ESP's 16 octets as on the wire, the 32-bit sequence number last.
    pub header: &'a [u8],
    /// The whole sequence number, of which the header carries the low 32 bits.
    pub sequence: u64,
    /// Whether the high 32 bits are authenticated (extended sequence numbers, RFC 4303 §2.2.1).
    pub extended: bool,
    /// Q-ESP: outer source address ‖ outer destination address. ESP: empty.
    pub addresses: &'a [u8],
}

/// One direction of a security association: a suite with its keys.
///
/// A `body` is IV ‖ text ‖ ICV. Sealing and opening are safe from several
/// threads at once; that no sequence number is sealed twice under one key is the
/// caller's duty, for with AES-GCM and ChaCha20-Poly1305 it is the nonce.
pub trait Transform: Send + Sync + Debug {
    /// Octets of the IV at the start of a body.
    fn iv_len(&self) -> usize;

    /// What the text is padded to, in octets: the cipher's block, at least 4.
    fn block_len(&self) -> usize;

    /// Octets of the ICV at the end of a body.
    fn icv_len(&self) -> usize;

    /// Encrypts the text, which is already padded, and writes IV and ICV around it.
    ///
    /// An AEAD's IV is the 64-bit sequence number (RFC 4106 §3.1, RFC 7634 §2), a
    /// CBC cipher's is random (RFC 3602 §3).
    ///
    /// # Errors
    /// When lengths or sequence number cannot be right, or the system has no
    /// random numbers. The body's content is then unspecified and must not be sent.
    fn seal(&self, aad: &AadInput<'_>, body: &mut [u8]) -> Result<(), SealError>;

    /// Verifies the ICV, then decrypts the text.
    ///
    /// The text's length need not be a multiple of 4 for suites without blocks:
    /// ESP's alignment (RFC 4303 §2.4) is the caller's to check.
    ///
    /// # Errors
    /// When anything of body or `aad` is not what was sealed, a body too short
    /// included. The body's content is then unspecified and must not be used.
    fn open(&self, aad: &AadInput<'_>, body: &mut [u8]) -> Result<(), Forged>;

    /// Tells whether a body would verify if its ICV were cut to `icv_len` bytes,
    /// to find out why a peer's packets do not open. Suites without an answer say
    /// no.
    fn verifies_truncated(&self, _aad: &AadInput<'_>, _body: &[u8], _icv_len: usize) -> bool {
        false
    }
}

/// Why a packet was not sealed. Each is a fault of the caller or of the system,
/// none of the traffic.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum SealError {
    /// The body cannot hold IV and ICV, or the text between them is not padded.
    #[error(
        "a body of {found} octets cannot be sealed: between an IV of {iv_len} and an ICV of {icv_len} the text must be a multiple of {block_len}"
    )]
    Length {
        /// Octets of the body given.
        found: usize,
        /// Octets of the suite's IV.
        iv_len: usize,
        /// What the text must be a multiple of, in octets.
        block_len: usize,
        /// Octets of the suite's ICV.
        icv_len: usize,
    },
    /// The header is shorter than 4 or longer than 16 octets, or the addresses longer than 32.
    #[error(
        "a header of {header} octets with {addresses} octets of addresses is of no protocol sealed here"
    )]
    Header {
        /// Octets of the header given.
        header: usize,
        /// Octets of the addresses given.
        addresses: usize,
    },
    /// The number is 0, which follows a wrap, or beyond 32 bits without extended
    /// sequence numbers, or not the one in the header (RFC 4303 §3.3.3).
    #[error(
        "sequence number {0} cannot be sealed: it is 0, longer than the association's numbers, or not the one in the header"
    )]
    Sequence(u64),
    /// The system gave no random numbers for an IV.
    #[error("cannot generate an IV: the system gave no random numbers")]
    Random,
    /// The library refused to encrypt.
    #[error("the cryptographic library refused to encrypt")]
    Refused,
}

/// A packet that is not what the peer sealed: damaged, cut short or forged. More
/// is deliberately not said.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[error("the packet does not verify: it was damaged, forged, or sealed with other keys")]
pub struct Forged;

impl AadInput<'_> {
    /// Whether this can be sealed at all.
    #[inline]
    pub(crate) fn check_seal(&self) -> Result<(), SealError> {
        let (_, low) = self.split()?;
        let fits = self.extended || self.sequence <= u64::from(u32::MAX);
        if self.sequence == 0 || !fits || *low != (self.sequence as u32).to_be_bytes() {
            return Err(SealError::Sequence(self.sequence));
        }
        Ok(())
    }

    /// The header ahead of its sequence number, and the sequence number.
    #[inline]
    pub(crate) fn split(&self) -> Result<(&[u8], &[u8; 4]), SealError> {
        let (header, addresses) = (self.header.len(), self.addresses.len());
        match self.header.split_last_chunk() {
            Some(split) if header <= HEADER_MAX && addresses <= ADDRESSES_MAX => Ok(split),
            _ => Err(SealError::Header { header, addresses }),
        }
    }

    /// The high 32 bits of an extended sequence number, as they are authenticated.
    #[inline]
    pub(crate) fn high(&self) -> [u8; 4] {
        ((self.sequence >> 32) as u32).to_be_bytes()
    }

    /// The additional data of an AEAD: header, with the 64-bit sequence number in
    /// place of the 32-bit one where that is extended (RFC 4106 §5), then addresses.
    #[inline]
    pub(crate) fn additional(&self) -> Result<Additional, SealError> {
        let (ahead, low) = self.split()?;
        let mut additional = Additional { octets: [0; ADDITIONAL_MAX], len: 0 };
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
    octets: [u8; ADDITIONAL_MAX],
    len: usize,
}

impl Additional {
    #[inline]
    fn push(&mut self, part: &[u8]) {
        self.octets[self.len..self.len + part.len()].copy_from_slice(part);
        self.len += part.len();
    }
}

impl AsRef<[u8]> for Additional {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        &self.octets[..self.len]
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
