//! The SA payload: proposals and their transforms (RFC 7296 §3.3).

use super::reader::Reader;
use super::{Problem, ProtocolId, TransformType};

/// Most proposals of a payload; RFC 7296 numbers them from 1 in a byte, and nobody needs more.
pub const MAX_PROPOSALS: usize = 64;

/// "More proposals follow" and "more transforms follow" (RFC 7296 §3.3.1, §3.3.2).
const MORE_PROPOSALS: u8 = 2;
const MORE_TRANSFORMS: u8 = 3;
/// Bytes of a proposal before its SPI, and of a transform before its attributes.
const PROPOSAL_LEN: usize = 8;
const TRANSFORM_LEN: usize = 8;
/// The only attribute in use, in its short form (RFC 7296 §3.3.5).
const KEY_LENGTH: u16 = 14;
const SHORT_FORM: u16 = 0x8000;

/// What is offered, the most wanted first, or the one that was chosen.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SecurityAssociation<'a> {
    /// The proposals.
    pub proposals: Vec<Proposal<'a>>,
}

/// Algorithms for one protocol: of each type of transform one is chosen.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Proposal<'a> {
    /// Its number, from 1.
    pub number: u8,
    /// IKE, AH or ESP.
    pub protocol: ProtocolId,
    /// The SPI of the sender's inbound SA: 4 bytes, 8 to rekey an IKE SA, none at first.
    pub spi: &'a [u8],
    /// The algorithms.
    pub transforms: Vec<Transform>,
}

/// One algorithm.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Transform {
    /// What it is for.
    pub transform_type: TransformType,
    /// Its number in the registry of that type.
    pub id: u16,
    /// The length of its key in bits, where the algorithm has several.
    pub key_length: Option<u16>,
    /// Whether it has an attribute that is not understood: it must not be chosen (RFC 7296 §3.3.6).
    pub has_unknown_attribute: bool,
}

impl Transform {
    /// Makes a transform without attributes.
    #[must_use]
    pub fn new(transform_type: TransformType, id: impl Into<u16>) -> Self {
        Self { transform_type, id: id.into(), key_length: None, has_unknown_attribute: false }
    }

    /// Makes a transform with the length of a key in bits.
    #[must_use]
    pub fn with_key_length(transform_type: TransformType, id: impl Into<u16>, bits: u16) -> Self {
        Self { key_length: Some(bits), ..Self::new(transform_type, id) }
    }
}

impl<'a> SecurityAssociation<'a> {
    pub(super) fn parse(body: &'a [u8]) -> Result<Self, Problem> {
        let mut reader = Reader::new(body);
        let mut proposals = Vec::new();
        loop {
            let (proposal, more) = Proposal::parse(&mut reader)?;
            if proposals.len() == MAX_PROPOSALS {
                return Err(Problem::TooMany("proposals"));
            }
            // RFC 7296 §3.3.1: the first is 1, each next one more. A response has the number that
            // was chosen, alone.
            let first =
                proposals.first().map_or(proposal.number, |first: &Proposal<'_>| first.number);
            if usize::from(proposal.number) != usize::from(first) + proposals.len() {
                return Err(Problem::Value {
                    field: "Proposal Num",
                    value: proposal.number.into(),
                });
            }
            proposals.push(proposal);
            if !more {
                break;
            }
        }
        match reader.len() {
            0 => Ok(Self { proposals }),
            len => Err(Problem::Length(len)),
        }
    }

    pub(super) fn emit(&self, out: &mut Vec<u8>) {
        for (at, proposal) in self.proposals.iter().enumerate() {
            proposal.emit(at + 1 < self.proposals.len(), out);
        }
    }
}

impl<'a> Proposal<'a> {
    fn parse(reader: &mut Reader<'a>) -> Result<(Self, bool), Problem> {
        let more = more(reader.u8()?, MORE_PROPOSALS, "Last Substruc of a proposal")?;
        reader.u8()?;
        let length = reader.u16()?;
        let mut body = reader.counted(length, 4)?;
        let (number, protocol) = (body.u8()?, body.u8()?.into());
        let (spi_size, count) = (body.u8()?, body.u8()?);
        if number == 0 {
            return Err(Problem::Value { field: "Proposal Num", value: 0 });
        }
        let fits = match protocol {
            ProtocolId::Ike => matches!(spi_size, 0 | 8),
            ProtocolId::Ah | ProtocolId::Esp => spi_size == 4,
            _ => true,
        };
        if !fits {
            return Err(Problem::Value { field: "SPI Size", value: spi_size.into() });
        }
        let spi = body.bytes(spi_size.into())?;
        let mut transforms = Vec::with_capacity(count.into());
        for left in (0..count).rev() {
            let (transform, more) = Transform::parse(&mut body)?;
            if more != (left > 0) {
                return Err(Problem::Value { field: "Num Transforms", value: count.into() });
            }
            transforms.push(transform);
        }
        match body.len() {
            0 => Ok((Self { number, protocol, spi, transforms }, more)),
            len => Err(Problem::Length(len)),
        }
    }

    fn emit(&self, more: bool, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend([if more { MORE_PROPOSALS } else { 0 }, 0, 0, 0]);
        out.extend([self.number, self.protocol.into()]);
        out.extend([self.spi.len() as u8, self.transforms.len() as u8]);
        out.extend(self.spi);
        for (at, transform) in self.transforms.iter().enumerate() {
            transform.emit(at + 1 < self.transforms.len(), out);
        }
        let length = ((out.len() - start) as u16).to_be_bytes();
        out[start + 2..start + 4].copy_from_slice(&length);
        debug_assert!(out.len() - start >= PROPOSAL_LEN);
    }
}

impl Transform {
    fn parse(reader: &mut Reader<'_>) -> Result<(Self, bool), Problem> {
        let more = more(reader.u8()?, MORE_TRANSFORMS, "Last Substruc of a transform")?;
        reader.u8()?;
        let length = reader.u16()?;
        let mut body = reader.counted(length, 4)?;
        let transform_type = body.u8()?.into();
        body.u8()?;
        let mut transform = Self::new(transform_type, body.u16()?);
        while !body.is_empty() {
            let (attribute, value) = (body.u16()?, body.u16()?);
            if attribute == SHORT_FORM | KEY_LENGTH && transform.key_length.is_none() {
                transform.key_length = Some(value);
            } else {
                transform.has_unknown_attribute = true;
                if attribute & SHORT_FORM == 0 {
                    body.bytes(value.into())?;
                }
            }
        }
        Ok((transform, more))
    }

    fn emit(&self, more: bool, out: &mut Vec<u8>) {
        let attributes = if self.key_length.is_some() { 4 } else { 0 };
        out.extend([if more { MORE_TRANSFORMS } else { 0 }, 0]);
        out.extend(((TRANSFORM_LEN + attributes) as u16).to_be_bytes());
        out.extend([self.transform_type.into(), 0]);
        out.extend(self.id.to_be_bytes());
        if let Some(bits) = self.key_length {
            out.extend((SHORT_FORM | KEY_LENGTH).to_be_bytes());
            out.extend(bits.to_be_bytes());
        }
    }
}

fn more(value: u8, more: u8, field: &'static str) -> Result<bool, Problem> {
    match value {
        0 => Ok(false),
        value if value == more => Ok(true),
        value => Err(Problem::Value { field, value: value.into() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::EncryptionId;

    fn proposal(number: u8) -> Proposal<'static> {
        let gcm = EncryptionId::AesGcm16;
        Proposal {
            number,
            protocol: ProtocolId::Esp,
            spi: &[1, 2, 3, 4],
            transforms: vec![
                Transform::with_key_length(TransformType::Encryption, gcm, 128),
                Transform::new(TransformType::SequenceNumbers, 0_u16),
            ],
        }
    }

    fn emitted(proposals: &[Proposal<'static>]) -> Vec<u8> {
        let mut out = Vec::new();
        SecurityAssociation { proposals: proposals.to_vec() }.emit(&mut out);
        out
    }

    #[test]
    fn refuses_proposal_numbers_that_skip() {
        assert!(SecurityAssociation::parse(&emitted(&[proposal(1), proposal(2)])).is_ok());
        for second in [0, 1, 3] {
            let bytes = emitted(&[proposal(1), proposal(second)]);
            let field = "Proposal Num";
            let error = Problem::Value { field, value: second.into() };
            assert_eq!(SecurityAssociation::parse(&bytes), Err(error));
        }
    }

    #[test]
    fn refuses_counts_and_lengths_that_do_not_fit() {
        let good = emitted(&[proposal(1)]);
        for (at, value) in [(7, 1), (7, 3), (3, 31), (3, 33), (3, 3), (6, 3), (0, 2), (0, 1)] {
            let mut bytes = good.clone();
            bytes[at] = value;
            assert!(SecurityAssociation::parse(&bytes).is_err(), "byte {at} = {value}");
        }
        for len in 0..good.len() {
            assert!(SecurityAssociation::parse(&good[..len]).is_err());
        }
    }

    #[test]
    fn marks_a_transform_with_an_attribute_that_is_not_understood() {
        let mut bytes = emitted(&[proposal(1)]);
        // the key length of the first transform, as a long attribute of another type
        bytes[20..24].copy_from_slice(&[0, 77, 0, 0]);
        let sa = SecurityAssociation::parse(&bytes).expect("well formed");
        assert!(sa.proposals[0].transforms[0].has_unknown_attribute);
        assert!(!sa.proposals[0].transforms[1].has_unknown_attribute);
    }
}
