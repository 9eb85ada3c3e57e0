//! The KE payload (RFC 7296 §3.4) and the Nonce payload (§3.9).

use std::ops::RangeInclusive;

use super::reader::Reader;
use super::{KeyExchangeMethod, Problem};

/// The lengths that a nonce may have, in bytes (RFC 7296 §3.9).
pub const NONCE_LEN: RangeInclusive<usize> = 16..=256;

/// A public value.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct KeyExchange<'a> {
    /// The method that it is for.
    pub method: KeyExchangeMethod,
    /// A Diffie-Hellman value, or the public key or ciphertext of a KEM.
    pub data: &'a [u8],
}

impl<'a> KeyExchange<'a> {
    pub(super) fn parse(body: &'a [u8]) -> Result<Self, Problem> {
        let mut reader = Reader::new(body);
        let method = reader.u16()?.into();
        reader.u16()?;
        match reader.rest() {
            [] => Err(Problem::Empty("key exchange data")),
            data => Ok(Self { method, data }),
        }
    }

    pub(super) fn emit(&self, out: &mut Vec<u8>) {
        out.extend(u16::from(self.method).to_be_bytes());
        out.extend([0; 2]);
        out.extend(self.data);
    }
}

/// A number used once.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Nonce<'a>(
    /// 16 to 256 bytes.
    pub &'a [u8],
);

impl<'a> Nonce<'a> {
    pub(super) fn parse(body: &'a [u8]) -> Result<Self, Problem> {
        match NONCE_LEN.contains(&body.len()) {
            true => Ok(Self(body)),
            false => Err(Problem::Length(body.len())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonces_have_16_to_256_bytes() {
        for (len, fits) in [(0, false), (15, false), (16, true), (256, true), (257, false)] {
            assert_eq!(Nonce::parse(&vec![0; len]).is_ok(), fits, "{len}");
        }
    }

    #[test]
    fn a_public_value_is_not_empty() {
        assert_eq!(KeyExchange::parse(&[0, 31, 0]), Err(Problem::Truncated));
        let empty = KeyExchange::parse(&[0, 31, 0, 0]);
        assert_eq!(empty, Err(Problem::Empty("key exchange data")));
    }
}
