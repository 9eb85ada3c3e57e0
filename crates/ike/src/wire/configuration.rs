//! The CP payload (RFC 7296 §3.15) and the EAP payload (§3.16).

use super::reader::Reader;
use super::{ConfigurationAttributeType, ConfigurationType, EapCode, Problem};

/// Addresses and servers that a peer wants or assigns.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Configuration<'a> {
    /// Request, reply, set or acknowledgement.
    pub configuration_type: ConfigurationType,
    /// The attributes; one without a value asks for any.
    pub attributes: Vec<(ConfigurationAttributeType, &'a [u8])>,
}

impl<'a> Configuration<'a> {
    /// The high bit of the type is reserved and ignored.
    const ATTRIBUTE_TYPE: u16 = 0x7fff;

    pub(super) fn parse(body: &'a [u8]) -> Result<Self, Problem> {
        let mut reader = Reader::new(body);
        let configuration_type = reader.u8()?.into();
        reader.bytes(3)?;
        let mut attributes = Vec::new();
        while !reader.is_empty() {
            let attribute = (reader.u16()? & Self::ATTRIBUTE_TYPE).into();
            let length = reader.u16()?;
            attributes.push((attribute, reader.bytes(length.into())?));
        }
        Ok(Self { configuration_type, attributes })
    }

    pub(super) fn emit(&self, out: &mut Vec<u8>) {
        out.extend([self.configuration_type.into(), 0, 0, 0]);
        for (attribute, value) in &self.attributes {
            out.extend(u16::from(*attribute).to_be_bytes());
            out.extend((value.len() as u16).to_be_bytes());
            out.extend(*value);
        }
    }
}

/// A message of the Extensible Authentication Protocol (RFC 3748 §4).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Eap<'a> {
    /// What it is.
    pub code: EapCode,
    /// Matches a response to its request.
    pub identifier: u8,
    /// The type and its data; empty in a success or a failure.
    pub data: &'a [u8],
}

impl<'a> Eap<'a> {
    pub(super) fn parse(body: &'a [u8]) -> Result<Self, Problem> {
        let mut reader = Reader::new(body);
        let (code, identifier, length) = (reader.u8()?.into(), reader.u8()?, reader.u16()?);
        if usize::from(length) != body.len() {
            return Err(Problem::Length(length.into()));
        }
        let data = reader.rest();
        let typed = matches!(code, EapCode::Request | EapCode::Response);
        match typed && data.is_empty() {
            true => Err(Problem::Empty("EAP type")),
            false => Ok(Self { code, identifier, data }),
        }
    }

    pub(super) fn emit(&self, out: &mut Vec<u8>) {
        out.extend([self.code.into(), self.identifier]);
        out.extend((4 + self.data.len() as u16).to_be_bytes());
        out.extend(self.data);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_end_with_the_payload() {
        let body = [1, 0, 0, 0, 0x80, 1, 0, 4, 10, 0, 0, 1, 0, 3, 0, 0];
        let parsed = Configuration::parse(&body).expect("well formed");
        let address = ConfigurationAttributeType::InternalIp4Address;
        assert_eq!(parsed.attributes[0], (address, &[10, 0, 0, 1][..]));
        for len in [3, 5, 7, 11, 13, 15] {
            assert_eq!(Configuration::parse(&body[..len]), Err(Problem::Truncated), "{len}");
        }
    }

    #[test]
    fn an_eap_message_is_as_long_as_it_says() {
        assert!(Eap::parse(&[1, 7, 0, 5, 1]).is_ok());
        assert!(Eap::parse(&[3, 7, 0, 4]).is_ok());
        for wrong in [&[1, 7, 0, 4][..], &[1, 7, 0, 6, 1], &[3, 7, 0]] {
            assert!(Eap::parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
