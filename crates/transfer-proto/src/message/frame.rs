//! Messages as bytes: a length of four bytes, most significant first, then CBOR.

use minicbor::{Decode, Encode};

use super::control::Message;
use super::parts::DataHeader;

/// The most bytes of a message, without its length.
pub const MAX_BYTES: usize = 1 << 20;

/// Why bytes are not a message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Its length is greater than that of any message.
    #[error("the peer announced a message of {0} bytes; the limit is {MAX_BYTES}")]
    TooLong(usize),
    /// It cannot be parsed.
    #[error("the peer sent a malformed message: {0}")]
    Malformed(String),
    /// Bytes are left over.
    #[error("the peer sent a message with {0} extra bytes")]
    Trailing(usize),
}

/// Returns the size in bytes of the message that this length announces.
pub fn body_len(length: [u8; 4]) -> Result<usize, Error> {
    let len = u32::from_be_bytes(length) as usize;
    if len > MAX_BYTES { Err(Error::TooLong(len)) } else { Ok(len) }
}

impl Message {
    /// Appends the message with its length.
    ///
    /// A message whose lists and texts keep to their bounds is never too long.
    pub fn frame(&self, out: &mut Vec<u8>) -> Result<(), Error> {
        frame(self, out)
    }

    /// Reads the bytes after the length.
    pub fn parse(body: &[u8]) -> Result<Self, Error> {
        parse(body)
    }
}

impl DataHeader {
    /// Appends the header with its length.
    pub fn frame(&self, out: &mut Vec<u8>) -> Result<(), Error> {
        frame(self, out)
    }

    /// Reads the bytes after the length.
    pub fn parse(body: &[u8]) -> Result<Self, Error> {
        parse(body)
    }
}

fn frame(value: &impl Encode<()>, out: &mut Vec<u8>) -> Result<(), Error> {
    let start = out.len();
    out.extend([0; 4]);
    let written = minicbor::encode(value, &mut *out);
    let len = out.len() - start - 4;
    match u32::try_from(len) {
        Ok(length) if written.is_ok() && len <= MAX_BYTES => {
            out[start..start + 4].copy_from_slice(&length.to_be_bytes());
            Ok(())
        }
        _ => {
            out.truncate(start);
            Err(Error::TooLong(len))
        }
    }
}

fn parse<'b, T: Decode<'b, ()>>(body: &'b [u8]) -> Result<T, Error> {
    if body.len() > MAX_BYTES {
        return Err(Error::TooLong(body.len()));
    }
    let mut decoder = minicbor::Decoder::new(body);
    let value = decoder.decode().map_err(|error| Error::Malformed(error.to_string()))?;
    match body.len() - decoder.position() {
        0 => Ok(value),
        left => Err(Error::Trailing(left)),
    }
}
