//! What a listing found, and how an engine keeps it.

use std::ops::Range;

use headroom_transfer::Time;
use headroom_transfer::path::RelPath;

use crate::ranges;

/// A name of the source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its number: no other entry of the job has it.
    pub number: u64,
    /// Its path below the source.
    pub path: RelPath,
    /// What it is.
    pub kind: Kind,
}

/// What an entry is, with what the listing said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// A directory. What is in it are entries of their own.
    Directory {
        /// Mode bits.
        mode: u32,
        /// When it was changed.
        mtime: Time,
    },
    /// A symbolic link.
    Symlink {
        /// Its target.
        target: Vec<u8>,
        /// When it was changed.
        mtime: Time,
    },
    /// A file.
    File {
        /// Bytes.
        size: u64,
        /// Permission bits.
        mode: u32,
        /// When it was changed.
        mtime: Time,
        /// How many ranges of it are items of their own, before the file is one; 0 of most.
        ranges: u32,
    },
}

impl Entry {
    /// Returns the size of a file in bytes; that of anything else is 0.
    #[must_use]
    pub const fn size(&self) -> u64 {
        match self.kind {
            Kind::File { size, .. } => size,
            Kind::Directory { .. } | Kind::Symlink { .. } => 0,
        }
    }

    /// Whether it is a file.
    #[must_use]
    pub const fn is_file(&self) -> bool {
        matches!(self.kind, Kind::File { .. })
    }

    /// Returns how many ranges of a file are items of their own, before the file is one.
    #[must_use]
    pub const fn ranges(&self) -> u32 {
        match self.kind {
            Kind::File { ranges, .. } => ranges,
            Kind::Directory { .. } | Kind::Symlink { .. } => 0,
        }
    }

    /// Returns the bytes of one of these ranges.
    pub(crate) fn range(&self, index: u32) -> Range<u64> {
        ranges::bytes(self.size(), self.ranges(), index)
    }

    /// Returns the bytes of its path and of a link's target.
    pub(crate) fn name_bytes(&self) -> usize {
        let target = match &self.kind {
            Kind::Symlink { target, .. } => target.len(),
            Kind::Directory { .. } | Kind::File { .. } => 0,
        };
        self.path.as_bytes().len() + target
    }
}

/// Bytes that are not entries.
#[derive(Debug, thiserror::Error)]
#[error("an item is damaged")]
pub(crate) struct Damaged;

/// Writes entries as bytes. Numbers are little-endian, and texts follow their lengths.
pub(crate) fn encode(entries: &[Entry]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(entries.len() * 64);
    for Entry { number, path, kind } in entries {
        bytes.extend(number.to_le_bytes());
        text(&mut bytes, path.as_bytes());
        match kind {
            Kind::Directory { mode, mtime } => {
                bytes.push(0);
                bytes.extend(mode.to_le_bytes());
                time(&mut bytes, *mtime);
            }
            Kind::Symlink { target, mtime } => {
                bytes.push(1);
                text(&mut bytes, target);
                time(&mut bytes, *mtime);
            }
            Kind::File { size, mode, mtime, ranges } => {
                bytes.push(if *ranges == 0 { 2 } else { 3 });
                bytes.extend(size.to_le_bytes());
                bytes.extend(mode.to_le_bytes());
                time(&mut bytes, *mtime);
                if *ranges > 0 {
                    bytes.extend(ranges.to_le_bytes());
                }
            }
        }
    }
    bytes
}

fn text(bytes: &mut Vec<u8>, text: &[u8]) {
    // paths and targets have at most 4096 bytes, and messages bound both
    bytes.extend(u32::try_from(text.len()).unwrap_or(u32::MAX).to_le_bytes());
    bytes.extend(text);
}

fn time(bytes: &mut Vec<u8>, time: Time) {
    bytes.extend(time.seconds.to_le_bytes());
    bytes.extend(time.nanoseconds.to_le_bytes());
}

/// Reads entries.
pub(crate) fn decode(bytes: &[u8]) -> Result<Vec<Entry>, Damaged> {
    let mut reader = Reader(bytes);
    let mut entries = Vec::new();
    while !reader.0.is_empty() {
        entries.push(reader.entry().ok_or(Damaged)?);
    }
    Ok(entries)
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn entry(&mut self) -> Option<Entry> {
        let number = u64::from_le_bytes(self.bytes()?);
        let path = RelPath::parse(self.text()?).ok()?;
        let [kind] = self.bytes()?;
        let kind = match kind {
            0 => {
                let mode = u32::from_le_bytes(self.bytes()?);
                Kind::Directory { mode, mtime: self.time()? }
            }
            1 => {
                let target = self.text()?.to_vec();
                Kind::Symlink { target, mtime: self.time()? }
            }
            2 | 3 => {
                let size = u64::from_le_bytes(self.bytes()?);
                let mode = u32::from_le_bytes(self.bytes()?);
                let mtime = self.time()?;
                let ranges = match kind {
                    2 => 0,
                    // without any it would be of the other kind
                    _ => Some(u32::from_le_bytes(self.bytes()?)).filter(|ranges| *ranges > 0)?,
                };
                Kind::File { size, mode, mtime, ranges }
            }
            _ => return None,
        };
        Some(Entry { number, path, kind })
    }

    fn time(&mut self) -> Option<Time> {
        let seconds = i64::from_le_bytes(self.bytes()?);
        let nanoseconds = u32::from_le_bytes(self.bytes()?);
        Some(Time { seconds, nanoseconds })
    }

    fn text(&mut self) -> Option<&'a [u8]> {
        let len = u32::from_le_bytes(self.bytes()?);
        self.take(usize::try_from(len).ok()?)
    }

    fn bytes<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn entries() -> Vec<Entry> {
        let path = |bytes: &[u8]| RelPath::parse(bytes).expect("a path");
        let mtime = Time { seconds: -7, nanoseconds: 999_999_999 };
        vec![
            Entry { number: 0, path: path(b"a"), kind: Kind::Directory { mode: 0o2755, mtime } },
            Entry {
                number: u64::MAX,
                path: path(b"a/\xff\n"),
                kind: Kind::File { size: u64::MAX, mode: 0o640, mtime, ranges: 0 },
            },
            Entry {
                number: 1,
                path: path(b"large"),
                kind: Kind::File { size: 5 << 20, mode: 0o640, mtime, ranges: 2 },
            },
            Entry {
                number: 2,
                path: path(b"link"),
                kind: Kind::Symlink { target: b"a/\xff\n".to_vec(), mtime },
            },
        ]
    }

    #[test]
    fn entries_are_read_as_they_were_written() {
        let bytes = encode(&entries());
        assert_eq!(decode(&bytes).expect("entries"), entries());
        assert!(decode(b"").expect("entries").is_empty());
        for len in 1..bytes.len() {
            // what ends between two entries is fewer of them
            if let Ok(fewer) = decode(&bytes[..len]) {
                assert_eq!(fewer, entries()[..fewer.len()]);
            }
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_entries_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(entries) = decode(&bytes) {
                prop_assert_eq!(encode(&entries), bytes);
            }
        }
    }
}
