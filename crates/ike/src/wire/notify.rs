//! The Notify (RFC 7296 §3.10) and Delete (§3.11) payloads.

use super::reader::Reader;
use super::{NotifyType, Problem, ProtocolId};

/// An error or a status.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Notify<'a> {
    /// The protocol of the SA that it is about; none without an SPI.
    pub protocol: ProtocolId,
    /// The SPI of the SA that it is about; empty for this IKE SA.
    pub spi: &'a [u8],
    /// What it notifies of.
    pub notify_type: NotifyType,
    /// Its data.
    pub data: &'a [u8],
}

impl<'a> Notify<'a> {
    /// Makes a notification about this IKE SA.
    #[must_use]
    pub fn new(notify_type: NotifyType, data: &'a [u8]) -> Self {
        Self { protocol: ProtocolId::None, spi: &[], notify_type, data }
    }

    pub(super) fn parse(body: &'a [u8]) -> Result<Self, Problem> {
        let mut reader = Reader::new(body);
        let protocol = reader.u8()?.into();
        let spi_size = reader.u8()?;
        let notify_type = reader.u16()?.into();
        let spi = reader.bytes(spi_size.into())?;
        Ok(Self { protocol, spi, notify_type, data: reader.rest() })
    }

    pub(super) fn emit(&self, out: &mut Vec<u8>) {
        out.extend([self.protocol.into(), self.spi.len() as u8]);
        out.extend(u16::from(self.notify_type).to_be_bytes());
        out.extend(self.spi);
        out.extend(self.data);
    }
}

/// The SAs that the sender removes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Delete {
    /// This IKE SA.
    Ike,
    /// ESP or AH SAs.
    Children {
        /// ESP or AH.
        protocol: ProtocolId,
        /// The SPIs of the sender's inbound SAs.
        spis: Vec<u32>,
    },
}

impl Delete {
    pub(super) fn parse(body: &[u8]) -> Result<Self, Problem> {
        let mut reader = Reader::new(body);
        let protocol = reader.u8()?.into();
        let (spi_size, count) = (reader.u8()?, reader.u16()?);
        let wrong = Problem::Value { field: "SPI Size", value: spi_size.into() };
        let delete = match protocol {
            ProtocolId::Ike if spi_size == 0 && count == 0 => Self::Ike,
            ProtocolId::Ah | ProtocolId::Esp if spi_size == 4 => {
                if reader.len() != 4 * usize::from(count) {
                    return Err(Problem::Length(reader.len()));
                }
                let spis = (0..count).map(|_| reader.u32()).collect::<Result<_, _>>()?;
                Self::Children { protocol, spis }
            }
            ProtocolId::Ike | ProtocolId::Ah | ProtocolId::Esp => return Err(wrong),
            other => {
                return Err(Problem::Value { field: "Protocol ID", value: u8::from(other).into() });
            }
        };
        if reader.is_empty() { Ok(delete) } else { Err(Problem::Length(reader.len())) }
    }

    pub(super) fn emit(&self, out: &mut Vec<u8>) {
        match self {
            Self::Ike => out.extend([ProtocolId::Ike.into(), 0, 0, 0]),
            Self::Children { protocol, spis } => {
                out.extend([(*protocol).into(), 4]);
                out.extend((spis.len() as u16).to_be_bytes());
                spis.iter().for_each(|spi| out.extend(spi.to_be_bytes()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deletion_has_as_many_spis_as_it_says() {
        let body = [3, 4, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2];
        let parsed = Delete::Children { protocol: ProtocolId::Esp, spis: vec![1, 2] };
        assert_eq!(Delete::parse(&body), Ok(parsed));
        for (at, value) in [(0, 0), (0, 1), (1, 8), (3, 1), (3, 3), (2, 1)] {
            let mut body = body;
            body[at] = value;
            assert!(Delete::parse(&body).is_err(), "byte {at} = {value}");
        }
        assert_eq!(Delete::parse(&[1, 0, 0, 0]), Ok(Delete::Ike));
        assert!(Delete::parse(&[1, 0, 0, 1]).is_err());
        assert!(Delete::parse(&[1, 0, 0, 0, 0]).is_err());
    }
}
