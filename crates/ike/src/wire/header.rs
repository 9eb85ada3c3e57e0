//! The IKE header (RFC 7296 §3.1) and what precedes it on port 4500 (RFC 3948 §2.2).

use super::reader::Reader;
use super::{Error, ExchangeType, PayloadType, Problem};

/// Bytes of the header.
pub const HEADER_LEN: usize = 28;
/// The four zero bytes before IKE on port 4500, where ESP has its SPI (RFC 3948 §2.2).
pub const NON_ESP_MARKER: [u8; 4] = [0; 4];
/// The version that is spoken: 2.0.
const VERSION: u8 = 0x20;

mod field {
    use std::ops::Range;

    pub(super) const NEXT_PAYLOAD: usize = 16;
    pub(super) const LENGTH: Range<usize> = 24..28;
}

mod flag {
    pub(super) const INITIATOR: u8 = 1 << 3;
    pub(super) const RESPONSE: u8 = 1 << 5;
}

/// The IKE header without the fields that a message computes: next payload and length.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Header {
    /// The SPI that the original initiator chose.
    pub spi_initiator: u64,
    /// The SPI that the original responder chose; 0 in the first request.
    pub spi_responder: u64,
    /// What the exchange is for.
    pub exchange: ExchangeType,
    /// Whether the original initiator of the IKE SA sent the message.
    pub from_initiator: bool,
    /// Whether the message is a response.
    pub response: bool,
    /// The number of the exchange among those of its requester.
    pub message_id: u32,
}

impl Header {
    /// Reads the header of `message` and the type of its first payload.
    ///
    /// # Errors
    /// The message is shorter than the header, is not as long as the header says, has another major
    /// version, or an initiator's SPI of 0.
    pub fn parse(message: &[u8]) -> Result<(Self, PayloadType), Error> {
        let (header, next, major, length) = Self::fields(message).map_err(Error::Header)?;
        if major != VERSION >> 4 {
            return Err(Error::MajorVersion(major));
        }
        if length as usize != message.len() {
            return Err(Error::Header(Problem::Length(length as usize)));
        }
        if header.spi_initiator == 0 {
            return Err(Error::Header(Problem::Value { field: "initiator's SPI", value: 0 }));
        }
        Ok((header, next))
    }

    /// Reads the header of any major version, to answer INVALID_MAJOR_VERSION.
    #[must_use]
    pub fn of_any_version(message: &[u8]) -> Option<Self> {
        Self::fields(message).ok().map(|(header, ..)| header)
    }

    fn fields(message: &[u8]) -> Result<(Self, PayloadType, u8, u32), Problem> {
        let mut reader = Reader::new(message);
        let (spi_initiator, spi_responder) = (reader.u64()?, reader.u64()?);
        let next = reader.u8()?.into();
        let major = reader.u8()? >> 4;
        let exchange = reader.u8()?.into();
        let flags = reader.u8()?;
        let message_id = reader.u32()?;
        let header = Self {
            spi_initiator,
            spi_responder,
            exchange,
            from_initiator: flags & flag::INITIATOR != 0,
            response: flags & flag::RESPONSE != 0,
            message_id,
        };
        Ok((header, next, major, reader.u32()?))
    }

    /// Appends the header; next payload and length are written by [`finish`].
    pub(crate) fn emit(&self, message: &mut Vec<u8>) {
        message.extend(self.spi_initiator.to_be_bytes());
        message.extend(self.spi_responder.to_be_bytes());
        let flags = if self.from_initiator { flag::INITIATOR } else { 0 }
            | if self.response { flag::RESPONSE } else { 0 };
        message.extend([PayloadType::None.into(), VERSION, self.exchange.into(), flags]);
        message.extend(self.message_id.to_be_bytes());
        message.extend([0; 4]);
    }

    /// Returns the header of the response to this request.
    #[must_use]
    pub fn respond(&self) -> Self {
        Self { from_initiator: !self.from_initiator, response: true, ..*self }
    }
}

/// Writes the type of the first payload and the length into the header of `message`, to which
/// `more` bytes will be appended.
pub(crate) fn finish(message: &mut [u8], first: PayloadType, more: usize) {
    message[field::NEXT_PAYLOAD] = first.into();
    let length = ((message.len() + more) as u32).to_be_bytes();
    message[field::LENGTH].copy_from_slice(&length);
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: Header = Header {
        spi_initiator: 0x0102_0304_0506_0708,
        spi_responder: 9,
        exchange: ExchangeType::IkeAuth,
        from_initiator: true,
        response: false,
        message_id: 1,
    };

    fn emitted() -> Vec<u8> {
        let mut message = Vec::new();
        HEADER.emit(&mut message);
        finish(&mut message, PayloadType::Encrypted, 0);
        message
    }

    #[test]
    fn fields_are_where_the_rfc_has_them() {
        let expected = [
            1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0, 0, 0, 0, 9, 46, 0x20, 35, 8, 0, 0, 0, 1, 0, 0, 0,
            28,
        ];
        assert_eq!(emitted(), expected);
        assert_eq!(Header::parse(&expected), Ok((HEADER, PayloadType::Encrypted)));
    }

    #[test]
    fn refuses_other_versions_lengths_and_no_spi() {
        let mut version = emitted();
        version[17] = 0x10;
        assert_eq!(Header::parse(&version), Err(Error::MajorVersion(1)));
        // a minor version is ignored (RFC 7296 §2.5)
        version[17] = 0x2f;
        assert!(Header::parse(&version).is_ok());
        let mut longer = emitted();
        longer.push(0);
        assert_eq!(Header::parse(&longer), Err(Error::Header(Problem::Length(28))));
        let mut no_spi = emitted();
        no_spi[..8].fill(0);
        assert!(matches!(Header::parse(&no_spi), Err(Error::Header(Problem::Value { .. }))));
        assert_eq!(Header::parse(&emitted()[..27]), Err(Error::Header(Problem::Truncated)));
    }
}
