//! What the streams and buckets of a job hold. Small values are JSON; entries and receipts are
//! bytes behind it.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, RandomState};

use headroom_transfer::files::Requests;
use headroom_transfer::path::RelPath;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::engine::{CopiedFile, Phase, State, Step};
use crate::entry::{Damaged, Entry, decode, encode};
use crate::ranges;
use crate::requests::{RequestCounts, are_none};

/// The most bytes of entries in one message. What is copied of them needs half as many more in the
/// worst case, so that a settlement fits into a message of 1 MiB, the servers' usual limit.
pub(super) const MAX_BYTES: usize = 256 << 10;
/// The most bytes of a reason.
const MAX_REASON: usize = 2000;

/// An item as the queue has it, before its entries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct WorkHead {
    /// The item's name: `c.N` for copying, `rI.N` for the range of index I of a file, `fR.N` for
    /// the R-th time that directories are finished. N is the number of its first entry when it was
    /// made, so that no other item has the name.
    pub(super) id: String,
    /// How many times it was settled before.
    pub(super) round: u64,
    /// How many times it failed.
    pub(super) attempts: u32,
    /// How many workers it lost in the rounds before.
    #[serde(default)]
    pub(super) losses: u32,
    /// When it may be tried again, in milliseconds since 1970.
    #[serde(default)]
    pub(super) ready_ms: u64,
    /// The listing that staged it, and the number of what it staged. Nobody may see it before the
    /// listing's checkpoint.
    #[serde(default)]
    pub(super) staged: Option<(u64, u64)>,
    /// The file that has ranges, if the item is of one.
    #[serde(default)]
    pub(super) ranged: Option<Ranged>,
}

/// A file that has ranges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Ranged {
    pub(super) number: u64,
    pub(super) size: u64,
    pub(super) ranges: u32,
}

impl Ranged {
    /// Returns what an item says of its only file, if that has ranges.
    pub(super) fn of(entries: &[Entry]) -> Option<Self> {
        let [file] = entries else { return None };
        let ranged = Self { number: file.number, size: file.size(), ranges: file.ranges() };
        (ranged.ranges > 0).then_some(ranged)
    }
}

impl WorkHead {
    /// Makes an item of this name that nobody has tried.
    pub(super) const fn new(id: String) -> Self {
        Self { id, round: 0, attempts: 0, losses: 0, ready_ms: 0, staged: None, ranged: None }
    }

    /// What is to be done with the item.
    pub(super) fn step(&self) -> Step {
        match self.range() {
            Some(index) => Step::Range(index),
            None if self.id.starts_with('f') => Step::Finish,
            None => Step::Copy,
        }
    }

    /// The index of the range that it is of, if it is one of a range.
    pub(super) fn range(&self) -> Option<u32> {
        self.id.strip_prefix('r')?.split('.').next()?.parse().ok()
    }

    /// Returns how the bytes of ranges change when the item has ended.
    pub(super) fn ranged_done(&self) -> RangedDone {
        match (self.ranged, self.range()) {
            (Some(Ranged { size, ranges, .. }), Some(index)) => {
                let range = ranges::bytes(size, ranges, index);
                RangedDone { added: range.end - range.start, removed: 0 }
            }
            (Some(Ranged { size, .. }), None) => RangedDone { added: 0, removed: size },
            (None, _) => RangedDone::default(),
        }
    }

    /// Which time directories are finished by it, if it does that.
    pub(super) fn finish_round(&self) -> Option<u64> {
        self.id.strip_prefix('f')?.split('.').next()?.parse().ok()
    }

    /// Returns the name for an item of the same kind that begins with another entry.
    pub(super) fn sibling(&self, number: u64) -> String {
        let kind = self.id.split('.').next().unwrap_or("c");
        format!("{kind}.{number}")
    }
}

/// A transition of an item.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub(super) enum Record {
    /// A worker has it.
    Taken {
        round: u64,
        worker: String,
        /// Tells this taking from all others.
        nonce: u64,
        /// The sequence of the message by which the queue has given it.
        message: i64,
        /// How many workers it has lost in a row.
        losses: u32,
    },
    /// It was settled.
    Settled {
        round: u64,
        worker: String,
        time_ms: u64,
        /// How many times what was copied was tried.
        attempts: u32,
        /// Where what was copied and what is left is, if anything is.
        body: Option<u64>,
        done: Done,
        next: Next,
        /// How many ranges the file has that was copied.
        #[serde(default, skip_serializing_if = "is_zero")]
        ranges: u32,
        /// What becomes of the bytes of ranges that have ended.
        #[serde(default, skip_serializing_if = "RangedDone::is_none")]
        ranged: RangedDone,
        /// Requests that the worker has made to stores.
        #[serde(default, skip_serializing_if = "are_none", with = "RequestCounts")]
        requests: Requests,
    },
    /// These ranges of a file have ended, however they did.
    RangesEnded { indexes: BTreeSet<u32> },
    /// Requests to stores that no settlement has.
    Requested {
        #[serde(with = "RequestCounts")]
        requests: Requests,
    },
    /// It was set aside, and is tried again.
    Reopened { round: u64, body: u64 },
    /// The delete pass copied files that had changed since they were listed, or were new.
    Corrected { worker: String, time_ms: u64, body: u64, done: Done },
    /// The delete pass removed names.
    Removed { names: u64 },
}

/// What a transition adds to the figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct Done {
    pub(super) files: u64,
    pub(super) bytes: u64,
    pub(super) unchanged: u64,
    #[serde(default)]
    pub(super) vanished: u64,
}

impl Done {
    pub(super) fn of(copied: &[CopiedFile], vanished: u64) -> Self {
        let sum = |sum: u64, file: &CopiedFile| sum.saturating_add(file.size);
        Self {
            files: copied.len() as u64,
            bytes: copied.iter().fold(0, sum),
            unchanged: copied.iter().filter(|file| file.hash.is_none()).count() as u64,
            vanished,
        }
    }
}

/// How a transition changes the bytes of ranges that have ended, of files that have not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct RangedDone {
    /// Those of a range that has ended.
    pub(super) added: u64,
    /// Those of a file that has ended.
    pub(super) removed: u64,
}

impl RangedDone {
    fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// What becomes of an item that was settled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "what")]
pub(super) enum Next {
    /// Nothing is left.
    Done,
    /// What is left returns to the queue.
    Again { attempts: u32, ready_ms: u64 },
    /// What is left returns as two items.
    Split { attempts: u32, losses: u32 },
    /// It is set aside.
    Aside { reason: String },
}

/// What steers a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Steering {
    pub(super) state: StateName,
    pub(super) phase: PhaseName,
    pub(super) rate_bps: Option<u64>,
    /// How many times directories were or are finished.
    pub(super) finish_round: u64,
    /// The items that this made.
    pub(super) finish_items: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum StateName {
    Running,
    Paused,
    Cancelled,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum PhaseName {
    Copying,
    Finishing,
    Deleting,
    Done,
}

impl From<State> for StateName {
    fn from(state: State) -> Self {
        match state {
            State::Running => Self::Running,
            State::Paused => Self::Paused,
            State::Cancelled => Self::Cancelled,
        }
    }
}

impl From<StateName> for State {
    fn from(name: StateName) -> Self {
        match name {
            StateName::Running => Self::Running,
            StateName::Paused => Self::Paused,
            StateName::Cancelled => Self::Cancelled,
        }
    }
}

impl From<Phase> for PhaseName {
    fn from(phase: Phase) -> Self {
        match phase {
            Phase::Copying => Self::Copying,
            Phase::Finishing => Self::Finishing,
            Phase::Deleting => Self::Deleting,
            Phase::Done => Self::Done,
        }
    }
}

impl From<PhaseName> for Phase {
    fn from(name: PhaseName) -> Self {
        match name {
            PhaseName::Copying => Self::Copying,
            PhaseName::Finishing => Self::Finishing,
            PhaseName::Deleting => Self::Deleting,
            PhaseName::Done => Self::Done,
        }
    }
}

/// How far the listing is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct Progress {
    /// How many times a listing was begun or continued, and who did it last.
    pub(super) epoch: u64,
    pub(super) nonce: u64,
    /// Of each of them, how much of what it staged is seen.
    pub(super) seen: BTreeMap<u64, u64>,
    pub(super) next_number: u64,
    pub(super) files: u64,
    pub(super) bytes: u64,
    pub(super) left_out: u64,
    pub(super) is_listed: bool,
    /// Items that were made.
    pub(super) items: u64,
    /// Names that cannot be copied at all.
    pub(super) problems: u64,
    /// Directories that could not be listed.
    pub(super) failed: u64,
    /// What was staged up to here failed and was tried again since: epoch and number.
    pub(super) retried: (u64, u64),
    /// Whether the source itself is still to be listed.
    pub(super) has_root: bool,
    /// Directories that are still to be listed: pages of the directories' stream, each from an
    /// entry on.
    pub(super) frontier: Vec<(u64, u32)>,
}

impl Progress {
    /// Whether what was staged is seen.
    pub(super) fn is_seen(&self, (epoch, number): (u64, u64)) -> bool {
        self.seen.get(&epoch).is_some_and(|seen| number <= *seen)
    }

    /// Whether what was staged will never be seen: the listing that did it has ended.
    pub(super) fn is_discarded(&self, staged: (u64, u64)) -> bool {
        staged.0 < self.epoch && !self.is_seen(staged)
    }
}

/// A page of directories, before its entries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PageHead {
    pub(super) staged: (u64, u64),
    /// Whether another page has them as well: they are listed again.
    pub(super) is_again: bool,
}

/// Something that was set aside, as its bucket has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub(super) enum AsideValue {
    /// An item, whose log says the same.
    Item { id: String, round: u64, body: u64, path: Option<Vec<u8>>, reason: String },
    /// A directory that cannot be listed, by its key.
    Directory { staged: (u64, u64), key: Vec<u8>, reason: String },
    /// A name that cannot be copied at all.
    Problem { staged: (u64, u64), reason: String },
}

/// A worker that lives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct WorkerValue {
    pub(super) name: String,
    /// Its machine, since that was started.
    pub(super) machine: String,
    pub(super) in_flight: u64,
    /// Where the delivery of its item is acknowledged, if it has one.
    pub(super) reply: Option<String>,
}

/// The run that has the job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Owner {
    pub(super) process: String,
    /// Its machine, since that was started: others may have the same name.
    pub(super) machine: String,
    /// Tells this run from all others; 0 if it has ended.
    pub(super) nonce: u64,
    pub(super) beat: u64,
}

/// Returns a number that nobody else has.
pub(super) fn nonce() -> u64 {
    // its keys are random, and others for each
    RandomState::new().hash_one(std::process::id()).max(1)
}

/// Returns the beginning of a reason, which has a bound.
pub(super) fn bounded(reason: &str) -> String {
    let mut end = reason.len().min(MAX_REASON);
    while !reason.is_char_boundary(end) {
        end -= 1;
    }
    reason[..end].to_owned()
}

/// Writes a value as JSON.
pub(super) fn json(value: &impl Serialize) -> Vec<u8> {
    // texts and numbers alone, which are always written
    serde_json::to_vec(value).unwrap_or_default()
}

/// Reads a value.
pub(super) fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Damaged> {
    serde_json::from_slice(bytes).map_err(|_| Damaged)
}

/// Writes a value, and entries behind it.
pub(super) fn with_entries(head: &impl Serialize, entries: &[Entry]) -> Vec<u8> {
    let head = json(head);
    [&length(head.len())[..], &head, &encode(entries)].concat()
}

/// Reads a value, and the entries behind it.
pub(super) fn read_with_entries<T: DeserializeOwned>(
    bytes: &[u8],
) -> Result<(T, Vec<Entry>), Damaged> {
    let (head, entries) = section(bytes)?;
    Ok((read(head)?, decode(entries)?))
}

/// Writes what was copied and what is left.
pub(super) fn body(copied: &[CopiedFile], left: &[Entry]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(copied.len() * 96);
    for CopiedFile { number, path, size, hash } in copied {
        bytes.extend(number.to_le_bytes());
        bytes.extend(size.to_le_bytes());
        bytes.push(u8::from(hash.is_some()));
        bytes.extend(hash.iter().flatten());
        bytes.extend(length(path.as_bytes().len()));
        bytes.extend(path.as_bytes());
    }
    [&length(bytes.len())[..], &bytes, &encode(left)].concat()
}

/// Reads what was copied and what is left.
pub(super) fn read_body(bytes: &[u8]) -> Result<(Vec<CopiedFile>, Vec<Entry>), Damaged> {
    let (mut files, left) = section(bytes)?;
    let mut copied = Vec::new();
    while !files.is_empty() {
        let number = u64::from_le_bytes(array(&mut files)?);
        let size = u64::from_le_bytes(array(&mut files)?);
        let [has_hash] = array(&mut files)?;
        let hash = match has_hash {
            0 => None,
            1 => Some(array(&mut files)?),
            _ => return Err(Damaged),
        };
        let (path, rest) = section(files)?;
        files = rest;
        let path = RelPath::parse(path).map_err(|_| Damaged)?;
        copied.push(CopiedFile { number, path, size, hash });
    }
    Ok((copied, decode(left)?))
}

fn length(bytes: usize) -> [u8; 4] {
    // all that is written fits into a message
    u32::try_from(bytes).unwrap_or(u32::MAX).to_le_bytes()
}

/// Splits off what follows its length.
fn section(mut bytes: &[u8]) -> Result<(&[u8], &[u8]), Damaged> {
    let len = u32::from_le_bytes(array(&mut bytes)?);
    let len = usize::try_from(len).map_err(|_| Damaged)?;
    bytes.split_at_checked(len).ok_or(Damaged)
}

fn array<const N: usize>(bytes: &mut &[u8]) -> Result<[u8; N], Damaged> {
    let (array, rest) = bytes.split_first_chunk().ok_or(Damaged)?;
    *bytes = rest;
    Ok(*array)
}

/// Splits entries into as few messages as they fit into, each with at most so many of them.
pub(super) fn chunks(entries: &[Entry], most: usize) -> Vec<&[Entry]> {
    let (mut chunks, mut start, mut bytes) = (Vec::new(), 0, 0);
    for (n, entry) in entries.iter().enumerate() {
        // beside its names an entry has at most 41 bytes
        let more = entry.name_bytes() + 41;
        if n > start && (bytes + more > MAX_BYTES || n - start >= most) {
            chunks.push(&entries[start..n]);
            (start, bytes) = (n, 0);
        }
        bytes += more;
    }
    if start < entries.len() {
        chunks.push(&entries[start..]);
    }
    chunks
}

#[cfg(test)]
mod tests {
    use headroom_transfer::Time;
    use proptest::prelude::*;

    use super::*;
    use crate::entry::Kind;

    fn entry(number: u64, name: &str) -> Entry {
        let path = RelPath::parse(name.as_bytes()).expect("a path");
        let mtime = Time { seconds: 5, nanoseconds: 6 };
        Entry { number, path, kind: Kind::File { size: 7, mode: 0o644, mtime, ranges: 0 } }
    }

    fn head() -> WorkHead {
        let id = "f3.17".to_owned();
        WorkHead { round: 2, attempts: 1, ready_ms: 9, staged: Some((4, 5)), ..WorkHead::new(id) }
    }

    #[test]
    fn messages_are_read_as_they_were_written() {
        let entries = [entry(1, "a"), entry(2, "b/c")];
        let (read, left) = read_with_entries(&with_entries(&head(), &entries)).expect("a message");
        assert_eq!((read, left), (head(), entries.to_vec()));
        let copied = [Some([9; 32]), None].map(|hash| CopiedFile {
            number: 3,
            path: entry(3, "d").path,
            size: u64::MAX,
            hash,
        });
        let bytes = body(&copied, &entries);
        assert_eq!(read_body(&bytes).expect("a body"), (copied.to_vec(), entries.to_vec()));
        let done = Done { files: 2, bytes: u64::MAX, unchanged: 1, vanished: 1 };
        assert_eq!(Done::of(&copied, 1), done);
    }

    #[test]
    fn an_item_is_named_by_its_kind_and_first_entry() {
        assert_eq!((head().step(), head().finish_round()), (Step::Finish, Some(3)));
        assert_eq!(head().sibling(18), "f3.18");
        let copying = WorkHead { id: "c.1".to_owned(), ..head() };
        assert_eq!((copying.step(), copying.finish_round()), (Step::Copy, None));
        assert_eq!(copying.sibling(2), "c.2");
    }

    #[test]
    fn a_range_is_named_by_its_index_and_its_file() {
        let ranged = Some(Ranged { number: 7, size: (5 << 20) - 1, ranges: 3 });
        let range = WorkHead { id: "r2.7".to_owned(), ranged, ..head() };
        assert_eq!((range.step(), range.finish_round()), (Step::Range(2), None));
        assert_eq!(range.ranged_done(), RangedDone { added: (1 << 20) - 1, removed: 0 });
        let file = WorkHead { id: "c.7".to_owned(), ranged, ..head() };
        assert_eq!(file.step(), Step::Copy);
        assert_eq!(file.ranged_done(), RangedDone { added: 0, removed: (5 << 20) - 1 });
        assert_eq!(head().ranged_done(), RangedDone::default());
        assert_eq!(read::<WorkHead>(&json(&range)).expect("a head"), range);
    }

    #[test]
    fn a_transition_says_what_it_adds_and_an_older_one_adds_nothing_more() {
        let settled = |ranges, requests| Record::Settled {
            round: 0,
            worker: "one".to_owned(),
            time_ms: 0,
            attempts: 1,
            body: None,
            done: Done::default(),
            next: Next::Done,
            ranges,
            ranged: RangedDone { added: 0, removed: u64::from(ranges) },
            requests,
        };
        let plain = settled(0, Requests::default());
        let bytes = json(&plain);
        assert!(!String::from_utf8_lossy(&bytes).contains("range"), "it is short");
        assert_eq!(read::<Record>(&bytes).expect("a record"), plain);
        let requests = Requests { list: 3, slowed: 1, ..Requests::default() };
        let ended = Record::RangesEnded { indexes: [0, 5].into() };
        for record in [settled(9, requests), Record::Requested { requests }, ended] {
            assert_eq!(read::<Record>(&json(&record)).expect("a record"), record);
        }
    }

    #[test]
    fn what_a_listing_staged_is_seen_after_its_checkpoint_alone() {
        let progress = Progress { epoch: 3, seen: [(1, 5), (3, 2)].into(), ..Progress::default() };
        for (staged, is_seen, is_discarded) in [
            ((1, 5), true, false),
            ((1, 6), false, true),
            ((2, 1), false, true),
            ((3, 2), true, false),
            ((3, 3), false, false),
        ] {
            assert_eq!(progress.is_seen(staged), is_seen, "{staged:?}");
            assert_eq!(progress.is_discarded(staged), is_discarded, "{staged:?}");
        }
    }

    #[test]
    fn entries_are_split_by_bytes_and_by_number() {
        let long = "x".repeat(200);
        let entries: Vec<_> = (0..3000).map(|n| entry(n, &format!("{long}/{n}"))).collect();
        let parts = chunks(&entries, usize::MAX);
        assert_eq!(parts.concat(), entries);
        assert!(parts.len() > 2 && parts.iter().all(|part| encode(part).len() <= MAX_BYTES));
        assert!(chunks(&entries, 7).iter().all(|part| (1..=7).contains(&part.len())));
        assert!(chunks(&[], 7).is_empty());
    }

    #[test]
    fn a_reason_has_a_bound_and_stays_a_text() {
        assert_eq!(bounded("short"), "short");
        let long = "ä".repeat(MAX_REASON);
        assert!(bounded(&format!("x{long}")).len() <= MAX_REASON);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = read_body(&bytes);
            let _ = read_with_entries::<WorkHead>(&bytes);
            let _ = read::<Record>(&bytes);
        }
    }
}
