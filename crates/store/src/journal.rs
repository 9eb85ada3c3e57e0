//! The journal of an upload: an object beside it that says how to continue it.

use std::time::SystemTime;

use minicbor::{Decode, Encode};

use crate::client::Client;
use crate::error::Error;
use crate::key::{Key, RESERVED};
use crate::record::{self, SPAN};
use crate::version::Version;

/// Bytes of a part's description beyond its values, at most.
const PART: u64 = 9 << 10;

/// Bytes of a journal beyond its parts, at most.
const OTHERS: u64 = 32 << 10;

/// Bytes of any journal, at most.
pub(crate) const MAX: u64 = 256 << 20;

/// Bytes of the name of an upload, at most.
const LONGEST_NAME: usize = 8 << 10;

/// What follows the name of an upload's journal in that of its contributors' directory. No object
/// has the name of a directory, which some stores refuse.
const CONTRIBUTORS: &str = ".parts/";

/// What a server needs to continue an upload.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub(crate) struct Journal {
    /// The name of the object.
    #[n(0)]
    pub(crate) key: String,
    /// The store's name of the upload.
    #[n(1)]
    pub(crate) upload: String,
    /// Bytes of the object.
    #[n(2)]
    pub(crate) size: u64,
    /// Bytes of each part but the last.
    #[n(3)]
    pub(crate) part_bytes: u64,
    /// Who writes it (`owner.rs`).
    #[n(4)]
    pub(crate) owner: String,
    /// How often it was written: no two versions are equal.
    #[n(5)]
    pub(crate) counter: u64,
    /// Its writer has left it to others.
    #[n(6)]
    pub(crate) is_released: bool,
    /// What the object has in its metadata, by which a completion is recognised whose answer was
    /// lost.
    #[n(7)]
    pub(crate) nonce: String,
    /// The parts that are stored.
    #[n(8)]
    pub(crate) parts: Vec<StoredPart>,
}

/// A part that is stored.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub(crate) struct StoredPart {
    /// Its number, from 0.
    #[n(0)]
    pub(crate) number: u32,
    /// What completion needs to name it.
    #[n(1)]
    pub(crate) id: String,
    /// The values of its spans, joined.
    #[cbor(n(2), with = "minicbor::bytes")]
    pub(crate) values: Vec<u8>,
}

/// The name of the journal of an upload.
pub(crate) fn name(key: &Key, tag: &[u8; 16]) -> Key {
    let tag = data_encoding::HEXLOWER.encode(tag);
    Key::reserved(&format!("uploads/{}-{tag}", key.digest()))
}

/// The directory of the journals of an upload's contributors, beside its own journal.
pub(crate) fn contributors(main: &Key) -> String {
    format!("{RESERVED}/uploads/{}{CONTRIBUTORS}", main.name())
}

/// The name of the journal of a contributor.
pub(crate) fn of_contributor(main: &Key, name: &str) -> Key {
    Key::reserved(&format!("uploads/{}{CONTRIBUTORS}{name}", main.name()))
}

/// The name of an upload's journal, from that of its contributors' directory within
/// [`directory`].
pub(crate) fn of_contributors(directory: &str) -> Option<Key> {
    let name = directory.strip_suffix(CONTRIBUTORS)?;
    (!name.is_empty() && !name.contains('/')).then(|| Key::reserved(&format!("uploads/{name}")))
}

/// The directory of all journals.
pub(crate) fn directory() -> String {
    format!("{RESERVED}/uploads/")
}

/// A journal that was read.
#[derive(Debug)]
pub(crate) struct Found {
    /// The version that an update replaces.
    pub(crate) version: Version,
    /// When it was written, by the store's clock.
    pub(crate) modified: SystemTime,
    /// `None`: it is damaged.
    pub(crate) journal: Option<Journal>,
}

/// Reads a journal, `None` when there is none.
pub(crate) async fn read(client: &Client, name: &Key, most: u64) -> Result<Option<Found>, Error> {
    let Some((head, content)) = client.get_whole(name, most.min(MAX)).await? else {
        return Ok(None);
    };
    Ok(Some(Found {
        version: head.version,
        modified: head.modified,
        journal: Journal::parse(&content),
    }))
}

/// Bytes of the journal of an upload, at most.
pub(crate) fn most_bytes(size: u64, parts: u32) -> u64 {
    OTHERS + u64::from(parts) * PART + size.div_ceil(SPAN).saturating_mul(32)
}

impl Journal {
    /// Parses a journal, `None` when it is damaged.
    pub(crate) fn parse(content: &[u8]) -> Option<Self> {
        let journal: Self = minicbor::decode(content).ok()?;
        let is_sound = journal.upload.len() <= LONGEST_NAME
            && is_nonce(&journal.nonce)
            && Key::parse("", &journal.key).is_ok()
            && journal.parts.iter().all(|part| part.id.len() <= LONGEST_NAME);
        is_sound.then_some(journal)
    }

    /// Encodes it.
    pub(crate) fn encode(&self, key: &Key) -> Result<Vec<u8>, Error> {
        record::encode(self, "the journal", key)
    }
}

/// Says whether it could be a nonce: 32 hexadecimal digits.
fn is_nonce(text: &str) -> bool {
    text.len() == 32 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn journal() -> Journal {
        Journal {
            key: "a/b".to_owned(),
            upload: "u".to_owned(),
            size: 9 << 20,
            part_bytes: 8 << 20,
            owner: "o".to_owned(),
            counter: 3,
            is_released: false,
            nonce: "0123456789abcdef0123456789abcdef".to_owned(),
            parts: vec![StoredPart { number: 1, id: "e".to_owned(), values: vec![5; 32] }],
        }
    }

    fn parsed(journal: &Journal) -> Option<Journal> {
        let key = Key::parse("", "a/b").expect("a name");
        Journal::parse(&journal.encode(&key).expect("it is encoded"))
    }

    #[test]
    fn reads_what_was_written() {
        assert_eq!(parsed(&journal()), Some(journal()));
        let name = name(&Key::parse("", "a/b").expect("a name"), &[0xab; 16]);
        let name = name.as_str();
        assert!(name.starts_with(&directory()), "{name}");
        assert!(name.ends_with("-abababababababababababababababab"), "{name}");
    }

    #[test]
    fn journals_of_contributors_lie_beside_that_of_their_upload() {
        let main = name(&Key::parse("", "a/b").expect("a name"), &[0xab; 16]);
        let one = of_contributor(&main, "0123");
        let beside = contributors(&main);
        assert_eq!(one.as_str(), format!("{}.parts/0123", main.as_str()));
        assert!(one.as_str().starts_with(&beside), "{beside}");
        let within = beside.strip_prefix(&directory()).expect("it is in it");
        assert_eq!(of_contributors(within), Some(main));
        for other in ["", ".parts/", "x/", "x/y.parts/"] {
            assert_eq!(of_contributors(other), None, "{other}");
        }
    }

    #[test]
    fn damaged_journals_are_none() {
        assert_eq!(Journal::parse(b""), None);
        assert_eq!(Journal::parse(&[0x9f; 64]), None);
        // a list that promises 2^32 parts
        assert_eq!(Journal::parse(&[0xa1, 8, 0x9a, 0xff, 0xff, 0xff, 0xff]), None);
        for damaged in [
            Journal { nonce: "x".to_owned(), ..journal() },
            Journal { upload: "u".repeat(LONGEST_NAME + 1), ..journal() },
            Journal { key: "../b".to_owned(), ..journal() },
        ] {
            assert_eq!(parsed(&damaged), None);
        }
    }
}
