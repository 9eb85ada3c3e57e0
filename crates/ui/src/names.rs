//! Paths in JSON. A path is bytes, JSON has text: bytes that are not UTF-8, and `%`, are written
//! as `%XX`.

use std::fmt::Write as _;

use crate::error::ApiError;

/// Writes a path as text.
pub(crate) fn encode(path: &[u8]) -> String {
    let mut text = String::with_capacity(path.len());
    for chunk in path.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '%' => text.push_str("%25"),
                c => text.push(c),
            }
        }
        for byte in chunk.invalid() {
            let _ = write!(text, "%{byte:02X}");
        }
    }
    text
}

/// Reads a path that [`encode`] wrote.
///
/// # Errors
/// A `%` without two hexadecimal digits, or a NUL.
pub(crate) fn decode(text: &str) -> Result<Vec<u8>, ApiError> {
    let wrong = || ApiError::usage("a path is not written as it should be");
    let mut path = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        match first {
            0 => return Err(wrong()),
            b'%' => {
                let digits = after.get(..2).ok_or_else(wrong)?;
                let digits = str::from_utf8(digits).map_err(|_| wrong())?;
                let is_hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
                let byte = u8::from_str_radix(digits, 16).ok().filter(|byte| is_hex && *byte != 0);
                path.push(byte.ok_or_else(wrong)?);
                rest = &after[2..];
            }
            byte => {
                path.push(*byte);
                rest = after;
            }
        }
    }
    Ok(path)
}

/// Reads a path below a root: components without `.`, `..` and empty ones; the empty path is the
/// root.
///
/// # Errors
/// The path has such components, or is not written as it should be.
pub(crate) fn decode_below(text: &str) -> Result<Vec<u8>, ApiError> {
    let path = decode(text)?;
    let is_plain = |part: &[u8]| !matches!(part, b"" | b"." | b"..");
    match path.is_empty() || path.split(|byte| *byte == b'/').all(is_plain) {
        true => Ok(path),
        false => Err(ApiError::usage("a path has a component that is not a name")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_survive_the_round_trip() {
        for path in
            [&b""[..], b"a/b", "größe/日本 %41".as_bytes(), b"\xff\xfe-latin\x80", b"%", b"a\nb"]
        {
            let text = encode(path);
            assert_eq!(decode(&text).ok().as_deref(), Some(path), "{text}");
        }
        assert_eq!(encode(b"50% \xe9"), "50%25 %E9");
    }

    #[test]
    fn refuses_paths_that_are_malformed_or_leave_the_root() {
        for text in ["%", "%4", "%zz", "%+1", "%00", "a\0b", "%é"] {
            assert!(decode(text).is_err(), "{text:?}");
        }
        for text in ["..", "a/../b", "a//b", "/a", "a/", ".", "a/.", "%2E%2E/b", "a%2F..%2Fb"] {
            assert!(decode_below(text).is_err(), "{text:?}");
        }
        for text in ["", "a", "a/..b", "a/...", "home/u"] {
            assert!(decode_below(text).is_ok(), "{text:?}");
        }
    }
}
