//! Modes, times, links and hashes in the metadata of objects.

use std::time::{SystemTime, UNIX_EPOCH};

use headroom_store::{Metadata as Tags, Object};
use headroom_transfer_proto::message::Time;
use headroom_transfer_proto::span::Hash;

use crate::files::error::{ErrorKind, FileType};
use crate::files::metadata::Metadata;

/// The modification time: seconds since 1970, a point, and nine digits of nanoseconds.
const MTIME: &str = "headroom-mtime";
/// Permission bits in octal.
const MODE: &str = "headroom-mode";
/// The target of a symbolic link, percent-encoded.
const LINK: &str = "headroom-link";
/// The BLAKE3 hash of the content, of objects that were stored in one request.
const HASH: &str = "headroom-blake3";
/// What says that a large object has a record of its spans.
const UPLOAD: &str = "headroom-upload";
/// The modification time as rclone writes and reads it: seconds since 1970 with a fraction.
const RCLONE_MTIME: &str = "mtime";

/// The mode of an object without one.
pub(super) const FILE_MODE: u32 = 0o644;
/// The mode of a directory without a marker.
pub(super) const DIRECTORY_MODE: u32 = 0o755;
/// The mode that Linux shows for links.
const LINK_MODE: u32 = 0o777;
/// The time of a directory without a marker.
pub(super) const NO_TIME: Time = Time { seconds: 0, nanoseconds: 0 };

/// Makes the metadata of a file; those of a large one have no hash.
pub(super) fn of_file(mode: u32, mtime: Time, root: Option<&Hash>) -> Result<Tags, ErrorKind> {
    let mut tags = of_both(mode & 0o777, mtime)?;
    if let Some(root) = root {
        tags.set(HASH, &root.to_hex())?;
    }
    Ok(tags)
}

/// Makes the metadata of a directory's marker.
pub(super) fn of_directory(mode: u32, mtime: Time) -> Result<Tags, ErrorKind> {
    of_both(mode & 0o3777, mtime)
}

/// Makes the metadata of a symbolic link.
pub(super) fn of_link(target: &[u8], mtime: Time) -> Result<Tags, ErrorKind> {
    let mut tags = of_both(LINK_MODE, mtime)?;
    tags.set(LINK, &encoded(target))?;
    Ok(tags)
}

fn of_both(mode: u32, mtime: Time) -> Result<Tags, ErrorKind> {
    let mut tags = Tags::new();
    let time = format!("{}.{:09}", mtime.seconds, mtime.nanoseconds.min(999_999_999));
    tags.set(MODE, &format!("{mode:o}"))?;
    tags.set(MTIME, &time)?;
    // before 1970 the two notations differ
    if mtime.seconds >= 0 {
        tags.set(RCLONE_MTIME, &time)?;
    }
    Ok(tags)
}

/// Reads the metadata of an object; without tags, as in listings, those of other programs.
pub(super) fn metadata(key: &str, object: &Object) -> Metadata {
    let tag = |name| object.metadata.as_ref().and_then(|tags| tags.get(name));
    let file_type = if target(object).is_some() { FileType::Symlink } else { FileType::File };
    let mode = tag(MODE).and_then(octal).unwrap_or(FILE_MODE);
    let stored = since_1970(object.modified);
    let rclone = || tag(RCLONE_MTIME).and_then(time).filter(|time| time.seconds >= 0);
    let mtime = tag(MTIME).and_then(time).or_else(rclone).unwrap_or(stored);
    Metadata::of_object(file_type, object.size, mode, [mtime, stored], key)
}

/// Reads the metadata of a directory with a marker, or of one without.
pub(super) fn directory(key: &str, marker: Option<&Object>) -> Metadata {
    let tags = marker.and_then(|marker| marker.metadata.as_ref());
    let tag = |name| tags.and_then(|tags| tags.get(name));
    let mode = tag(MODE).and_then(octal).unwrap_or(DIRECTORY_MODE);
    let stored = marker.map_or(NO_TIME, |marker| since_1970(marker.modified));
    let mtime = tag(MTIME).and_then(time).unwrap_or(stored);
    Metadata::of_object(FileType::Directory, 0, mode, [mtime, stored], key)
}

/// Returns the target of a symbolic link.
pub(super) fn target(object: &Object) -> Option<Vec<u8>> {
    let tags = object.metadata.as_ref().filter(|_| object.size == 0)?;
    decoded(tags.get(LINK)?)
}

/// Returns the hash of an object that was stored in one request.
pub(super) fn hash(object: &Object) -> Option<Hash> {
    Hash::from_hex(object.metadata.as_ref()?.get(HASH)?).ok()
}

/// Whether a large object may have a record of its spans.
pub(super) fn has_record(object: &Object) -> bool {
    object.metadata.as_ref().is_some_and(|tags| tags.get(UPLOAD).is_some())
}

fn octal(text: &str) -> Option<u32> {
    u32::from_str_radix(text, 8).ok()
}

fn time(text: &str) -> Option<Time> {
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let seconds = seconds.parse().ok()?;
    let digits = fraction.get(..9).unwrap_or(fraction);
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let nanoseconds = format!("{digits:0<9}").parse().ok()?;
    Some(Time { seconds, nanoseconds })
}

fn since_1970(time: SystemTime) -> Time {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
    Time { seconds, nanoseconds: since.subsec_nanos() }
}

/// Encodes everything but letters, digits and `-._~/` as `%XX` (RFC 3986).
fn encoded(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in bytes {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                text.push(char::from(*byte));
            }
            other => text.push_str(&format!("%{other:02X}")),
        }
    }
    text
}

fn decoded(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut pieces = text.split('%');
    bytes.extend(pieces.next()?.bytes());
    for piece in pieces {
        let (digits, rest) = piece.split_at_checked(2)?;
        if !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        bytes.extend(rest.bytes());
    }
    // as no file system has it
    (!bytes.is_empty() && !bytes.contains(&0)).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use headroom_store::Version;

    use super::*;

    fn object(size: u64, tags: Tags) -> Object {
        let modified = UNIX_EPOCH + Duration::new(5, 6);
        let version = Version::unknown();
        Object { name: "name".to_owned(), size, modified, version, metadata: Some(tags) }
    }

    #[test]
    fn a_file_keeps_mode_time_and_hash() {
        let root = blake3::hash(b"x");
        for mtime in [
            Time { seconds: 1_700_000_000, nanoseconds: 5 },
            Time { seconds: -7, nanoseconds: 999_999_999 },
        ] {
            let object = object(1, of_file(0o4750, mtime, Some(&root)).expect("tags"));
            let read = metadata("a/name", &object);
            assert_eq!((read.file_type, read.size), (FileType::File, 1));
            assert_eq!((read.mode, read.mtime), (0o750, mtime));
            assert_eq!((hash(&object), target(&object)), (Some(root), None));
        }
    }

    #[test]
    fn a_link_keeps_any_target_and_time() {
        let mtime = Time { seconds: 9, nanoseconds: 10 };
        for bytes in [&b"../a b%2f"[..], b"\xff\xfe\n", "ü/é".as_bytes()] {
            let tags = of_link(bytes, mtime).expect("tags");
            let link = object(0, tags.clone());
            assert_eq!(target(&link).as_deref(), Some(bytes));
            let read = metadata("name", &link);
            assert_eq!((read.file_type, read.mtime), (FileType::Symlink, mtime));
            assert_eq!(target(&object(1, tags)), None, "an object with content is a file");
        }
        assert!(of_link(&[b'x'; 2000], mtime).is_err(), "no header holds it");
    }

    #[test]
    fn objects_of_other_programs_have_a_mode_and_the_store_s_time_or_that_of_rclone() {
        let stored = Time { seconds: 5, nanoseconds: 6 };
        let other = metadata("name", &object(3, Tags::new()));
        assert_eq!((other.mode, other.mtime), (FILE_MODE, stored));
        for (text, expected) in [
            ("1700000000.5", Time { seconds: 1_700_000_000, nanoseconds: 500_000_000 }),
            ("1700000000.1234567891", Time { seconds: 1_700_000_000, nanoseconds: 123_456_789 }),
            ("1700000000", Time { seconds: 1_700_000_000, nanoseconds: 0 }),
            ("-1.5", stored),
            ("1.x", stored),
            ("yesterday", stored),
        ] {
            let mut tags = Tags::new();
            tags.set(RCLONE_MTIME, text).expect("a tag");
            assert_eq!(metadata("name", &object(3, tags)).mtime, expected, "{text}");
        }
    }

    #[test]
    fn directories_have_a_mode_without_a_marker() {
        assert_eq!(directory("d/", None).mode, DIRECTORY_MODE);
        let mtime = Time { seconds: 3, nanoseconds: 4 };
        let marker = object(0, of_directory(0o2775, mtime).expect("tags"));
        let read = directory("d/", Some(&marker));
        assert_eq!((read.file_type, read.mode), (FileType::Directory, 0o2775));
        assert_eq!(read.mtime, mtime);
    }

    #[test]
    fn wrong_tags_count_as_none() {
        let mut tags = Tags::new();
        for (name, value) in [(MODE, "9"), (MTIME, "1.5x"), (LINK, "a%2"), (HASH, "12")] {
            tags.set(name, value).expect("a tag");
        }
        let object = object(0, tags);
        let read = metadata("name", &object);
        assert_eq!((read.file_type, read.mode), (FileType::File, FILE_MODE));
        assert_eq!(hash(&object), None);
    }
}
