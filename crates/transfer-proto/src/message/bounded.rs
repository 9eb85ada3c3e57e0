//! Fields whose size or content is bounded, written and read as CBOR.

use minicbor::data::Type;
use minicbor::decode::{Decoder, Error};
use minicbor::encode::{self, Encoder, Write};

use super::attributes::{MOST_ATTRIBUTE_BYTES, MOST_XATTRS, Xattr};
use super::{
    Listed, MOST_INLINE, MOST_LANES, MOST_LISTED, MOST_PATTERNS, MOST_SOURCES, MOST_SUITES,
    MOST_VALUES, Wanted,
};
use crate::path::{RelPath, printable};
use crate::span::ChainingValue;

/// Octets of a program's name.
const MOST_NAME: usize = 64;
/// Octets of a sentence.
const MOST_TEXT: usize = 8192;
/// Octets of a pattern.
const MOST_PATTERN: usize = 1024;
/// Bytes of an extended attribute's name, as Linux has it.
const MOST_XATTR_NAME: usize = 255;
/// Octets of a link's target, as Linux has it.
const MOST_TARGET: usize = 4095;

type Written<W> = Result<(), encode::Error<<W as Write>::Error>>;

/// What people read: whatever a peer says here, it is safe for a terminal once it is parsed.
pub(super) mod name {
    use super::*;

    pub(in super::super) fn encode<C, W: Write>(
        value: &str,
        e: &mut Encoder<W>,
        _: &mut C,
    ) -> Written<W> {
        e.str(shortened(value, MOST_NAME))?.ok()
    }

    pub(in super::super) fn decode<C>(d: &mut Decoder<'_>, _: &mut C) -> Result<String, Error> {
        string(d, MOST_NAME)
    }
}

/// What people read, as [`name`].
pub(super) mod text {
    use super::*;

    pub(in super::super) fn encode<C, W: Write>(
        value: &str,
        e: &mut Encoder<W>,
        _: &mut C,
    ) -> Written<W> {
        e.str(shortened(value, MOST_TEXT))?.ok()
    }

    pub(in super::super) fn decode<C>(d: &mut Decoder<'_>, _: &mut C) -> Result<String, Error> {
        string(d, MOST_TEXT)
    }
}

pub(super) mod path {
    use super::*;

    pub(in super::super) fn encode<C, W: Write>(
        value: &RelPath,
        e: &mut Encoder<W>,
        _: &mut C,
    ) -> Written<W> {
        e.bytes(value.as_bytes())?.ok()
    }

    pub(in super::super) fn decode<C>(d: &mut Decoder<'_>, _: &mut C) -> Result<RelPath, Error> {
        RelPath::parse(d.bytes()?).map_err(Error::custom)
    }
}

/// A path or the root, which is null.
pub(super) mod place {
    use super::*;

    pub(in super::super) fn encode<C, W: Write>(
        value: &Option<RelPath>,
        e: &mut Encoder<W>,
        _: &mut C,
    ) -> Written<W> {
        match value {
            Some(path) => e.bytes(path.as_bytes())?.ok(),
            None => e.null()?.ok(),
        }
    }

    pub(in super::super) fn decode<C>(
        d: &mut Decoder<'_>,
        context: &mut C,
    ) -> Result<Option<RelPath>, Error> {
        if d.datatype()? == Type::Null {
            d.null()?;
            return Ok(None);
        }
        super::path::decode(d, context).map(Some)
    }
}

pub(super) mod target {
    use super::*;

    pub(in super::super) fn encode<C, W: Write>(
        value: &[u8],
        e: &mut Encoder<W>,
        _: &mut C,
    ) -> Written<W> {
        e.bytes(value)?.ok()
    }

    pub(in super::super) fn decode<C>(d: &mut Decoder<'_>, _: &mut C) -> Result<Vec<u8>, Error> {
        let target = octets(d, MOST_TARGET)?;
        if target.is_empty() || target.contains(&0) {
            return Err(Error::message("a link's target is empty or has a zero in it"));
        }
        Ok(target)
    }
}

/// A link's target, if there is one.
pub(super) mod link {
    use super::*;

    pub(in super::super) fn encode<C, W: Write>(
        value: &Option<Vec<u8>>,
        e: &mut Encoder<W>,
        context: &mut C,
    ) -> Written<W> {
        match value {
            Some(target) => super::target::encode(target, e, context),
            None => e.null()?.ok(),
        }
    }

    pub(in super::super) fn decode<C>(
        d: &mut Decoder<'_>,
        context: &mut C,
    ) -> Result<Option<Vec<u8>>, Error> {
        if d.datatype()? == Type::Null {
            d.null()?;
            return Ok(None);
        }
        super::target::decode(d, context).map(Some)
    }
}

pub(super) mod content {
    use super::*;

    pub(in super::super) fn encode<C, W: Write>(
        value: &[u8],
        e: &mut Encoder<W>,
        _: &mut C,
    ) -> Written<W> {
        e.bytes(value)?.ok()
    }

    pub(in super::super) fn decode<C>(d: &mut Decoder<'_>, _: &mut C) -> Result<Vec<u8>, Error> {
        octets(d, MOST_INLINE)
    }
}

pub(super) mod nanoseconds {
    use super::*;

    pub(in super::super) fn encode<C, W: Write>(
        value: &u32,
        e: &mut Encoder<W>,
        _: &mut C,
    ) -> Written<W> {
        e.u32(*value)?.ok()
    }

    pub(in super::super) fn decode<C>(d: &mut Decoder<'_>, _: &mut C) -> Result<u32, Error> {
        match d.u32()? {
            value @ 0..1_000_000_000 => Ok(value),
            _ => Err(Error::message("a second has less nanoseconds")),
        }
    }
}

/// Chaining values, one after the other in one octet string.
pub(super) mod values {
    use super::*;

    pub(in super::super) fn encode<C, W: Write>(
        values: &[ChainingValue],
        e: &mut Encoder<W>,
        _: &mut C,
    ) -> Written<W> {
        let octets: Vec<u8> = values.iter().flat_map(|value| value.0).collect();
        e.bytes(&octets)?.ok()
    }

    pub(in super::super) fn decode<C>(
        d: &mut Decoder<'_>,
        _: &mut C,
    ) -> Result<Vec<ChainingValue>, Error> {
        let (values, rest) = d.bytes()?.as_chunks::<32>();
        if values.len() > MOST_VALUES || !rest.is_empty() {
            return Err(Error::message("these are no chaining values, or too many"));
        }
        Ok(values.iter().map(|value| ChainingValue(*value)).collect())
    }
}

pub(super) mod sources {
    use super::*;

    pub(in super::super) fn encode<C, W: Write>(
        value: &Vec<Wanted>,
        e: &mut Encoder<W>,
        _: &mut C,
    ) -> Written<W> {
        e.encode(value)?.ok()
    }

    pub(in super::super) fn decode<C>(
        d: &mut Decoder<'_>,
        _: &mut C,
    ) -> Result<Vec<Wanted>, Error> {
        list(d, MOST_SOURCES)
    }
}

pub(super) mod patterns {
    use super::*;

    pub(in super::super) fn encode<C, W: Write>(
        value: &Vec<String>,
        e: &mut Encoder<W>,
        _: &mut C,
    ) -> Written<W> {
        e.encode(value)?.ok()
    }

    pub(in super::super) fn decode<C>(
        d: &mut Decoder<'_>,
        _: &mut C,
    ) -> Result<Vec<String>, Error> {
        let patterns: Vec<&str> = list(d, MOST_PATTERNS)?;
        if patterns.iter().any(|pattern| pattern.len() > MOST_PATTERN) {
            return Err(Error::message("a pattern is too long"));
        }
        Ok(patterns.into_iter().map(str::to_owned).collect())
    }
}

pub(super) mod listing {
    use super::*;

    pub(in super::super) fn encode<C, W: Write>(
        value: &Vec<Listed>,
        e: &mut Encoder<W>,
        _: &mut C,
    ) -> Written<W> {
        e.encode(value)?.ok()
    }

    pub(in super::super) fn decode<C>(
        d: &mut Decoder<'_>,
        _: &mut C,
    ) -> Result<Vec<Listed>, Error> {
        list(d, MOST_LISTED)
    }
}

pub(super) mod lanes {
    use super::*;

    pub(in super::super) fn encode<C, W: Write>(
        value: &Vec<u64>,
        e: &mut Encoder<W>,
        _: &mut C,
    ) -> Written<W> {
        e.encode(value)?.ok()
    }

    pub(in super::super) fn decode<C>(d: &mut Decoder<'_>, _: &mut C) -> Result<Vec<u64>, Error> {
        list(d, MOST_LANES)
    }
}

pub(super) mod suites {
    use super::*;

    pub(in super::super) fn encode<C, W: Write>(
        value: &Vec<u32>,
        e: &mut Encoder<W>,
        _: &mut C,
    ) -> Written<W> {
        e.encode(value)?.ok()
    }

    pub(in super::super) fn decode<C>(d: &mut Decoder<'_>, _: &mut C) -> Result<Vec<u32>, Error> {
        list(d, MOST_SUITES)
    }
}

/// Extended attributes, if there are any.
pub(super) mod xattrs {
    use super::*;

    pub(in super::super) fn encode<C, W: Write>(
        value: &Option<Vec<Xattr>>,
        e: &mut Encoder<W>,
        _: &mut C,
    ) -> Written<W> {
        e.encode(value)?.ok()
    }

    pub(in super::super) fn decode<C>(
        d: &mut Decoder<'_>,
        _: &mut C,
    ) -> Result<Option<Vec<Xattr>>, Error> {
        if d.datatype()? == Type::Null {
            d.null()?;
            return Ok(None);
        }
        let xattrs: Vec<Xattr> = list(d, MOST_XATTRS)?;
        let bytes: usize = xattrs.iter().map(|xattr| xattr.name.len() + xattr.value.len()).sum();
        if bytes > MOST_ATTRIBUTE_BYTES {
            return Err(Error::message("extended attributes are too long"));
        }
        Ok(Some(xattrs))
    }
}

pub(super) mod xattr_name {
    use super::*;

    pub(in super::super) fn encode<C, W: Write>(
        value: &[u8],
        e: &mut Encoder<W>,
        _: &mut C,
    ) -> Written<W> {
        e.bytes(value)?.ok()
    }

    pub(in super::super) fn decode<C>(d: &mut Decoder<'_>, _: &mut C) -> Result<Vec<u8>, Error> {
        let name = octets(d, MOST_XATTR_NAME)?;
        match name.strip_prefix(b"user.") {
            Some(rest) if !rest.is_empty() && !rest.contains(&0) => Ok(name),
            _ => Err(Error::message("this is no extended attribute of a user's")),
        }
    }
}

pub(super) mod attribute {
    use super::*;

    pub(in super::super) fn encode<C, W: Write>(
        value: &[u8],
        e: &mut Encoder<W>,
        _: &mut C,
    ) -> Written<W> {
        e.bytes(value)?.ok()
    }

    pub(in super::super) fn decode<C>(d: &mut Decoder<'_>, _: &mut C) -> Result<Vec<u8>, Error> {
        octets(d, MOST_ATTRIBUTE_BYTES)
    }
}

/// No more than `most` octets of a text, and no half character.
fn shortened(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}

fn string(d: &mut Decoder<'_>, most: usize) -> Result<String, Error> {
    match d.str()? {
        text if text.len() > most => Err(Error::message("a text is too long")),
        text => Ok(shortened(&printable(text), most).to_owned()),
    }
}

fn octets(d: &mut Decoder<'_>, most: usize) -> Result<Vec<u8>, Error> {
    match d.bytes()? {
        octets if octets.len() > most => Err(Error::message("an octet string is too long")),
        octets => Ok(octets.to_vec()),
    }
}

fn list<'b, T: minicbor::Decode<'b, ()>>(
    d: &mut Decoder<'b>,
    most: usize,
) -> Result<Vec<T>, Error> {
    let mut list = Vec::new();
    for item in d.array_iter()? {
        if list.len() == most {
            return Err(Error::message("a list is too long"));
        }
        list.push(item?);
    }
    Ok(list)
}
