//! The SK payload (RFC 7296 §3.14) and the SKF payload (RFC 7383 §2.5).

use super::reader::Reader;
use super::{PayloadType, Problem};

/// An encrypted rest of a message, or a fragment of one.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Encrypted<'a> {
    /// The type of the first payload inside; none in a fragment after the first.
    pub first: PayloadType,
    /// Which fragment it is; none for the whole.
    pub fragment: Option<Fragment>,
    /// IV, ciphertext and ICV.
    pub body: &'a [u8],
}

/// The position of a fragment.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Fragment {
    /// Its number, from 1.
    pub number: u16,
    /// How many there are.
    pub total: u16,
}

impl Fragment {
    /// Bytes of its two fields.
    pub const LEN: usize = 4;
}

impl<'a> Encrypted<'a> {
    pub(super) fn whole(first: PayloadType, body: &'a [u8]) -> Self {
        Self { first, fragment: None, body }
    }

    pub(super) fn parse_fragment(first: PayloadType, body: &'a [u8]) -> Result<Self, Problem> {
        let mut reader = Reader::new(body);
        let (number, total) = (reader.u16()?, reader.u16()?);
        // RFC 7383 §2.5: both are from 1, the number is not above the total, and only the first
        // names a payload.
        if number == 0 || number > total {
            return Err(Problem::Value { field: "Fragment Number", value: number.into() });
        }
        if number > 1 && first != PayloadType::None {
            let value = u8::from(first).into();
            return Err(Problem::Value { field: "Next Payload of a later fragment", value });
        }
        Ok(Self { first, fragment: Some(Fragment { number, total }), body: reader.rest() })
    }

    pub(super) fn emit(&self, out: &mut Vec<u8>) {
        if let Some(fragment) = self.fragment {
            out.extend(fragment.number.to_be_bytes());
            out.extend(fragment.total.to_be_bytes());
        }
        out.extend(self.body);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fragments_are_numbered_from_1_to_their_total() {
        let parse = |number, total, first| {
            Encrypted::parse_fragment(first, &[0, number, 0, total, 1, 2, 3]).is_ok()
        };
        assert!(parse(1, 1, PayloadType::Nonce));
        assert!(parse(2, 2, PayloadType::None));
        assert!(!parse(0, 0, PayloadType::Nonce));
        assert!(!parse(0, 1, PayloadType::Nonce));
        assert!(!parse(3, 2, PayloadType::None));
        assert!(!parse(2, 2, PayloadType::Nonce));
    }
}
