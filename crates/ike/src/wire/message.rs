//! A whole message: header and payloads.

use super::header::{self, Header};
use super::payload::{emit_chain, parse_chain};
use super::{Error, HEADER_LEN, Payload};

/// A message as it is on the wire; its last payload may be encrypted.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Message<'a> {
    /// The header.
    pub header: Header,
    /// The payloads.
    pub payloads: Vec<Payload<'a>>,
}

impl<'a> Message<'a> {
    /// Reads a message, without the non-ESP marker of port 4500.
    ///
    /// # Errors
    /// The header or a payload is malformed, or a payload is unknown and critical.
    pub fn parse(message: &'a [u8]) -> Result<Self, Error> {
        let (header, first) = Header::parse(message)?;
        Ok(Self { header, payloads: parse_chain(first, &message[HEADER_LEN..])? })
    }

    /// Returns the bytes.
    ///
    /// # Panics
    /// A payload is longer than 65535 bytes.
    #[must_use]
    pub fn emit(&self) -> Vec<u8> {
        let mut message = Vec::new();
        self.header.emit(&mut message);
        let first = emit_chain(&self.payloads, &mut message);
        header::finish(&mut message, first, 0);
        message
    }
}
