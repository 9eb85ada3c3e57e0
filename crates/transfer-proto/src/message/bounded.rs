//! Fields whose size or content is bounded, written and read as CBOR. Each module here is
//! the codec of one kind of field (minicbor's `with`): it writes what it is given, and
//! refuses to read what exceeds the bound.

use minicbor::data::Type;
use minicbor::decode::{Decoder, Error};
use minicbor::encode::{self, Encoder, Write};

use super::limits::{
    MAX_ATTRIBUTE_BYTES, MAX_INLINE, MAX_LANES, MAX_LISTED, MAX_PATTERNS, MAX_SHARES_LISTED,
    MAX_SOURCES, MAX_SUITES, MAX_VALUES,
};
use crate::path::{RelPath, printable};
use crate::span::ChainingValue;

/// Bytes of a program's name.
const MAX_NAME: usize = 64;
/// Bytes of a sentence.
const MAX_TEXT: usize = 8192;
/// Bytes of a pattern.
const MAX_PATTERN: usize = 1024;
/// Bytes of an extended attribute's name (`XATTR_NAME_MAX` of Linux).
const MAX_XATTR_NAME: usize = 255;
/// Bytes of a link's target (`PATH_MAX` of Linux, without its NUL).
const MAX_TARGET: usize = 4095;

type Written<W> = Result<(), encode::Error<<W as Write>::Error>>;

/// Text that people read. What is too long is shortened when it is written; whatever a peer
/// sends is safe for a terminal once it is parsed.
macro_rules! text {
    ($name:ident, $most:expr) => {
        pub(super) mod $name {
            use crate::message::bounded::*;

            pub(crate) fn encode<C, W: Write>(
                value: &str,
                e: &mut Encoder<W>,
                _: &mut C,
            ) -> Written<W> {
                e.str(shortened(value, $most))?.ok()
            }

            pub(crate) fn decode<C>(d: &mut Decoder<'_>, _: &mut C) -> Result<String, Error> {
                string(d, $most)
            }
        }
    };
}

/// A byte string for which `$check` finds nothing wrong.
macro_rules! bytes {
    ($name:ident, $most:expr, $check:expr) => {
        pub(super) mod $name {
            use crate::message::bounded::*;

            pub(crate) fn encode<C, W: Write>(
                value: &[u8],
                e: &mut Encoder<W>,
                _: &mut C,
            ) -> Written<W> {
                e.bytes(value)?.ok()
            }

            pub(crate) fn decode<C>(d: &mut Decoder<'_>, _: &mut C) -> Result<Vec<u8>, Error> {
                let check: fn(&[u8]) -> Result<(), &'static str> = $check;
                let bytes = byte_string(d, $most)?;
                check(&bytes).map_err(Error::message)?;
                Ok(bytes)
            }
        }
    };
}

/// A list of whatever the field holds.
macro_rules! list {
    ($name:ident, $most:expr) => {
        pub(super) mod $name {
            use crate::message::bounded::*;

            pub(crate) fn encode<C, W: Write, T: minicbor::Encode<C>>(
                value: &Vec<T>,
                e: &mut Encoder<W>,
                context: &mut C,
            ) -> Written<W> {
                e.encode_with(value, context)?.ok()
            }

            pub(crate) fn decode<'b, C, T: minicbor::Decode<'b, ()>>(
                d: &mut Decoder<'b>,
                _: &mut C,
            ) -> Result<Vec<T>, Error> {
                items(d, $most)
            }
        }
    };
}

text!(name, MAX_NAME);
text!(text, MAX_TEXT);

bytes!(content, MAX_INLINE, |_| Ok(()));
bytes!(attribute, MAX_ATTRIBUTE_BYTES, |_| Ok(()));
bytes!(target, MAX_TARGET, |target| match target.is_empty() || target.contains(&0) {
    true => Err("a link's target is empty or contains a NUL"),
    false => Ok(()),
});
bytes!(xattr_name, MAX_XATTR_NAME, |name| match name.strip_prefix(b"user.") {
    Some(rest) if !rest.is_empty() && !rest.contains(&0) => Ok(()),
    _ => Err("an extended attribute's name does not begin with `user.`"),
});

list!(sources, MAX_SOURCES);
list!(listing, MAX_LISTED);
list!(lanes, MAX_LANES);
list!(suites, MAX_SUITES);
list!(shares, MAX_SHARES_LISTED);

pub(super) mod path {
    use crate::message::bounded::*;

    pub(crate) fn encode<C, W: Write>(
        value: &RelPath,
        e: &mut Encoder<W>,
        _: &mut C,
    ) -> Written<W> {
        e.bytes(value.as_bytes())?.ok()
    }

    pub(crate) fn decode<C>(d: &mut Decoder<'_>, _: &mut C) -> Result<RelPath, Error> {
        RelPath::parse(d.bytes()?).map_err(Error::custom)
    }
}

/// A path, or null, which is the root.
pub(super) mod path_or_root {
    use crate::message::bounded::*;

    pub(crate) fn encode<C, W: Write>(
        value: &Option<RelPath>,
        e: &mut Encoder<W>,
        _: &mut C,
    ) -> Written<W> {
        match value {
            Some(path) => e.bytes(path.as_bytes())?.ok(),
            None => e.null()?.ok(),
        }
    }

    pub(crate) fn decode<C>(
        d: &mut Decoder<'_>,
        context: &mut C,
    ) -> Result<Option<RelPath>, Error> {
        optional(d, |d| path::decode(d, context))
    }
}

/// A link's target, or null.
pub(super) mod link {
    use crate::message::bounded::*;

    pub(crate) fn encode<C, W: Write>(
        value: &Option<Vec<u8>>,
        e: &mut Encoder<W>,
        context: &mut C,
    ) -> Written<W> {
        match value {
            Some(target) => target::encode(target, e, context),
            None => e.null()?.ok(),
        }
    }

    pub(crate) fn decode<C>(
        d: &mut Decoder<'_>,
        context: &mut C,
    ) -> Result<Option<Vec<u8>>, Error> {
        optional(d, |d| target::decode(d, context))
    }
}

pub(super) mod nanoseconds {
    use crate::message::bounded::*;

    pub(crate) fn encode<C, W: Write>(value: &u32, e: &mut Encoder<W>, _: &mut C) -> Written<W> {
        e.u32(*value)?.ok()
    }

    pub(crate) fn decode<C>(d: &mut Decoder<'_>, _: &mut C) -> Result<u32, Error> {
        match d.u32()? {
            value @ 0..1_000_000_000 => Ok(value),
            _ => Err(Error::message("a second has fewer nanoseconds")),
        }
    }
}

/// Chaining values, one after the other in one byte string.
pub(super) mod values {
    use crate::message::bounded::*;

    pub(crate) fn encode<C, W: Write>(
        values: &[ChainingValue],
        e: &mut Encoder<W>,
        _: &mut C,
    ) -> Written<W> {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.0).collect();
        e.bytes(&bytes)?.ok()
    }

    pub(crate) fn decode<C>(d: &mut Decoder<'_>, _: &mut C) -> Result<Vec<ChainingValue>, Error> {
        let (values, rest) = d.bytes()?.as_chunks::<32>();
        if values.len() > MAX_VALUES || !rest.is_empty() {
            return Err(Error::message("these are no chaining values, or too many"));
        }
        Ok(values.iter().map(|value| ChainingValue(*value)).collect())
    }
}

pub(super) mod patterns {
    use crate::message::bounded::*;

    pub(crate) fn encode<C, W: Write>(
        value: &Vec<String>,
        e: &mut Encoder<W>,
        _: &mut C,
    ) -> Written<W> {
        e.encode(value)?.ok()
    }

    pub(crate) fn decode<C>(d: &mut Decoder<'_>, _: &mut C) -> Result<Vec<String>, Error> {
        let patterns: Vec<&str> = items(d, MAX_PATTERNS)?;
        if patterns.iter().any(|pattern| pattern.len() > MAX_PATTERN) {
            return Err(Error::message("a pattern is too long"));
        }
        Ok(patterns.into_iter().map(str::to_owned).collect())
    }
}

/// Reads a list of at most `most` items.
pub(super) fn items<'b, T: minicbor::Decode<'b, ()>>(
    d: &mut Decoder<'b>,
    most: usize,
) -> Result<Vec<T>, Error> {
    let mut items = Vec::new();
    for item in d.array_iter()? {
        if items.len() == most {
            return Err(Error::message("a list is too long"));
        }
        items.push(item?);
    }
    Ok(items)
}

/// Reads null as nothing, and anything else by `read`.
pub(super) fn optional<'b, T>(
    d: &mut Decoder<'b>,
    read: impl FnOnce(&mut Decoder<'b>) -> Result<T, Error>,
) -> Result<Option<T>, Error> {
    if d.datatype()? == Type::Null {
        d.null()?;
        return Ok(None);
    }
    read(d).map(Some)
}

/// Returns no more than `most` bytes of a text, and no half character.
fn shortened(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}

fn string(d: &mut Decoder<'_>, most: usize) -> Result<String, Error> {
    match d.str()? {
        text if text.len() > most => Err(Error::message("a text is too long")),
        text => Ok(shortened(&printable(text), most).to_owned()),
    }
}

fn byte_string(d: &mut Decoder<'_>, most: usize) -> Result<Vec<u8>, Error> {
    match d.bytes()? {
        bytes if bytes.len() > most => Err(Error::message("a byte string is too long")),
        bytes => Ok(bytes.to_vec()),
    }
}
