//! The queue and the state of a job: what an engine keeps, and by which rules.
//!
//! The listing stages items and makes them visible by a checkpoint. A worker takes an item with a
//! lease and extends that while it copies. Settling an item records receipts for what was verified
//! and decides about the rest: back into the queue, split, or set aside. A file that has ranges is
//! an item for each of them first, and when these are done, however they ended, it is an item like
//! any other: that one has the receipt, or is set aside. Every method is one transition: it happens
//! as a whole or not at all, and a lease that was lost changes nothing. So a caller that crashes may
//! repeat whatever it did last.

#[cfg(test)]
pub(crate) mod cases;

use headroom_transfer::files::Requests;
use headroom_transfer::path::RelPath;

use crate::entry::Entry;
use crate::error::Error;
use crate::key::DirectoryKey;
use crate::share::Division;

/// The leases of an item that may end one after another without a settlement. A worker that is
/// killed says nothing about its item, but an item may be what ends its workers.
pub const MAX_LOSSES: u32 = 20;
/// Why an item is set aside that lost as many workers.
pub(crate) const SILENT: &str = "its workers ended, or were silent for longer than their leases";
/// The pause before something that failed is tried again, in milliseconds: at first, and at most.
const PAUSE_MS: (u64, u64) = (500, 30_000);

/// Returns the pause before something that has failed so many times is tried again, in
/// milliseconds.
pub(crate) const fn pause_ms(attempts: u32) -> u64 {
    let doublings = attempts.saturating_sub(1);
    let doubled = PAUSE_MS.0 << if doublings < 16 { doublings } else { 16 };
    if doubled < PAUSE_MS.1 { doubled } else { PAUSE_MS.1 }
}

/// What the user wants a job to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Work.
    Running,
    /// Wait.
    Paused,
    /// End for good.
    Cancelled,
}

/// How far a job is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// The source is listed and copied.
    Copying,
    /// Directories get their final mode and time.
    Finishing,
    /// What the source does not have is removed.
    Deleting,
    /// Nothing is left to do, or only what was set aside.
    Done,
}

/// What steers a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Control {
    /// What the user wants.
    pub state: State,
    /// How far it is.
    pub phase: Phase,
    /// The limit for all workers together, in bits per second.
    pub rate_bps: Option<u64>,
}

/// What a worker is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Orders {
    /// What the user wants.
    pub state: State,
    /// Whether nothing will be left to take.
    pub is_done: bool,
    /// The limit, and how many workers share it: those that have items, if this one has one, else
    /// all that live.
    pub division: Option<Division>,
    /// Whether the worker still has the lease that it extended.
    pub holds_lease: bool,
}

/// What is done with an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Its entries are copied.
    Copy,
    /// A range of its only entry is copied, the one of this index.
    Range(u32),
    /// Its directories get their mode and time.
    Finish,
}

/// The right to settle an item, until it ends or somebody else takes the item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    /// The item.
    pub item: i64,
    /// How many times the item was taken.
    pub take: i64,
}

/// An item that a worker has taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// The right to settle it.
    pub lease: Lease,
    /// What to do with it.
    pub step: Step,
    /// Whether a worker took these entries before: it may have stored files without acknowledging
    /// them.
    pub was_taken: bool,
    /// What is left to do.
    pub entries: Vec<Entry>,
}

/// A file that was copied and verified, or found up to date.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopiedFile {
    /// The number of its entry.
    pub number: u64,
    /// Its path below the source.
    pub path: RelPath,
    /// Bytes.
    pub size: u64,
    /// The BLAKE3 hash of what is stored; `None` if the first worker that came to it found that size
    /// and time agreed, and read nothing.
    pub hash: Option<[u8; 32]>,
}

/// Why entries of an item are left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The worker was interrupted. That is no attempt.
    Interrupted,
    /// They failed, for this reason: a sentence.
    Failed(String),
}

/// What became of an item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settlement {
    /// Files to record.
    pub copied: Vec<CopiedFile>,
    /// Entries that are left; without any the item is done.
    pub left: Vec<Entry>,
    /// How many entries are neither copied nor left: the source has lost them since they were
    /// listed.
    pub vanished: u64,
    /// Why they are.
    pub outcome: Outcome,
    /// Requests that the worker has made to stores since its last settlement.
    pub requests: Requests,
}

/// A receipt: this file is at the destination, and was verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipt {
    /// The file.
    pub file: CopiedFile,
    /// Who copied it.
    pub worker: String,
    /// When, in milliseconds since 1970.
    pub time_ms: u64,
    /// How many times it was tried, this time included.
    pub attempts: u32,
    /// How many ranges of it were items of their own; 0 if it was copied in one piece.
    pub ranges: u32,
}

/// Something that was set aside: it failed as often as the job allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Aside {
    /// Its path below the source, where there is a single one.
    pub path: Option<RelPath>,
    /// A sentence.
    pub reason: String,
}

/// The figures of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Whether the listing is complete.
    pub is_listed: bool,
    /// Files that were listed.
    pub found_files: u64,
    /// Their bytes.
    pub found_bytes: u64,
    /// Files that have receipts.
    pub copied_files: u64,
    /// Their bytes.
    pub copied_bytes: u64,
    /// Of these files, those that were up to date.
    pub unchanged_files: u64,
    /// Links, devices, pipes and sockets that are never copied.
    pub left_out: u64,
    /// Names that the source has lost since they were listed.
    pub vanished: u64,
    /// Names that the delete pass removed.
    pub removed: u64,
    /// Items that wait.
    pub queued: u64,
    /// Items that workers have.
    pub leased: u64,
    /// What was set aside: files, and directories that cannot be listed.
    pub aside: u64,
    /// Workers that were heard of within the last seconds.
    pub workers: u64,
    /// Bytes of files without receipts that were moved or found so far: in ranges that are done, and
    /// of the items that workers have.
    pub in_flight: u64,
    /// Requests to stores, made by workers and runs.
    pub requests: Requests,
}

/// What a worker has reported last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerReport {
    /// Its name: the machine and the process there.
    pub name: String,
    /// When it reported, in milliseconds since 1970: by its own clock, or by that of the servers.
    pub heard_ms: u64,
    /// Whether it has an item.
    pub has_item: bool,
    /// Bytes of the item that it has moved or found so far.
    pub in_flight: u64,
}

/// What a listing has done since its last checkpoint. Staged items become visible with it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Checkpoint<'a> {
    /// Directories that were listed.
    pub listed: &'a [DirectoryKey],
    /// A directory that could not be listed, and why.
    pub failed: Option<(&'a DirectoryKey, &'a str)>,
    /// Directories that were found, with what is needed to finish them.
    pub found: &'a [(DirectoryKey, Entry)],
    /// Names that cannot be copied at all: sentences.
    pub problems: &'a [String],
    /// The number for the next entry.
    pub next_number: u64,
    /// Files that were found.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Names that are never copied.
    pub left_out: u64,
    /// Whether this completes the listing.
    pub is_complete: bool,
}

/// Keeps a job's queue and state. A handle is for one thread; others open their own. All times
/// are milliseconds since 1970; an engine for many machines may have leases end by its own clock.
///
/// Every method waits for the engine, and fails if that cannot be reached or refuses; nothing has
/// happened then, or the same call makes no difference. An engine for many machines waits for
/// servers that are lost until the end of its process is requested.
pub trait Engine {
    /// Returns what steers the job.
    fn control(&mut self) -> Result<Control, Error>;

    /// Sets what the user wants, unless the job was cancelled.
    fn set_state(&mut self, state: State) -> Result<Control, Error>;

    /// Sets the limit for all workers together, in bits per second.
    fn set_rate(&mut self, rate_bps: Option<u64>) -> Result<(), Error>;

    /// Reports that a worker lives, with the bytes that it has moved of its item, extends its
    /// lease, and returns what it is to do.
    fn beat(
        &mut self,
        worker: &str,
        lease: Option<Lease>,
        in_flight: u64,
        now_ms: u64,
    ) -> Result<Orders, Error>;

    /// Notes that a worker has ended. The leases that it has end as well.
    fn leave(&mut self, worker: &str, now_ms: u64) -> Result<(), Error>;

    /// Returns the workers of this machine that have items or were heard of: some may have been
    /// killed.
    fn holders(&mut self) -> Result<Vec<String>, Error>;

    /// Takes the next item for a worker, while the job runs. Items whose lease has ended return to
    /// the queue first. That is no attempt; but one that has lost [`MAX_LOSSES`] workers in a row
    /// is split, or set aside.
    fn take(&mut self, worker: &str, now_ms: u64) -> Result<Option<Item>, Error>;

    /// Records what became of an item; returns whether the lease still held. If not, nothing was
    /// recorded: another worker has the item.
    fn settle(&mut self, lease: Lease, settlement: &Settlement, now_ms: u64)
    -> Result<bool, Error>;

    /// Adds requests to stores that no settlement has.
    fn add_requests(&mut self, requests: &Requests) -> Result<(), Error>;

    /// Enters the next phase if the present one is complete; returns the phase.
    fn advance(&mut self) -> Result<Phase, Error>;

    /// Records a delete pass: what it copied because it had changed since it was listed, and how
    /// many names it removed. One that is complete is the end of the job.
    fn record_delete_pass(
        &mut self,
        copied: &[CopiedFile],
        removed: u64,
        is_complete: bool,
        worker: &str,
        now_ms: u64,
    ) -> Result<(), Error>;

    /// Puts what was set aside back into the queue, to be tried as often again.
    fn retry_aside(&mut self) -> Result<(), Error>;

    /// Begins or continues the listing: what was staged since the last checkpoint is discarded.
    /// Returns the number for the next entry.
    fn begin_listing(&mut self) -> Result<u64, Error>;

    /// Returns the next directory to list after this one, in the order of a walk.
    fn next_directory(
        &mut self,
        after: Option<&DirectoryKey>,
    ) -> Result<Option<DirectoryKey>, Error>;

    /// Adds an item, which nobody sees before the next checkpoint. A file that has ranges comes
    /// alone.
    fn stage(&mut self, entries: &[Entry]) -> Result<(), Error>;

    /// Adds directories that were found, as [`Checkpoint::found`] does, which nobody sees before
    /// the next checkpoint: a directory may have more of them than fit into memory.
    fn stage_directories(&mut self, found: &[(DirectoryKey, Entry)]) -> Result<(), Error>;

    /// Notes how far the listing is.
    fn checkpoint(&mut self, checkpoint: &Checkpoint<'_>) -> Result<(), Error>;

    /// Returns the figures.
    fn counts(&mut self, now_ms: u64) -> Result<Counts, Error>;

    /// Returns what each worker has reported last, by name. One that was killed may still be there.
    fn workers(&mut self) -> Result<Vec<WorkerReport>, Error>;

    /// Returns what was set aside, at most so much of it.
    fn aside(&mut self, most: usize) -> Result<Vec<Aside>, Error>;

    /// Passes every receipt to `each`, each file once, until it returns `false`.
    fn receipts(&mut self, each: &mut dyn FnMut(Receipt) -> bool) -> Result<(), Error>;
}

/// A handle of an engine that is chosen when the program runs.
impl<E: Engine + ?Sized> Engine for Box<E> {
    fn control(&mut self) -> Result<Control, Error> {
        (**self).control()
    }

    fn set_state(&mut self, state: State) -> Result<Control, Error> {
        (**self).set_state(state)
    }

    fn set_rate(&mut self, rate_bps: Option<u64>) -> Result<(), Error> {
        (**self).set_rate(rate_bps)
    }

    fn beat(
        &mut self,
        worker: &str,
        lease: Option<Lease>,
        in_flight: u64,
        now_ms: u64,
    ) -> Result<Orders, Error> {
        (**self).beat(worker, lease, in_flight, now_ms)
    }

    fn leave(&mut self, worker: &str, now_ms: u64) -> Result<(), Error> {
        (**self).leave(worker, now_ms)
    }

    fn holders(&mut self) -> Result<Vec<String>, Error> {
        (**self).holders()
    }

    fn take(&mut self, worker: &str, now_ms: u64) -> Result<Option<Item>, Error> {
        (**self).take(worker, now_ms)
    }

    fn settle(
        &mut self,
        lease: Lease,
        settlement: &Settlement,
        now_ms: u64,
    ) -> Result<bool, Error> {
        (**self).settle(lease, settlement, now_ms)
    }

    fn add_requests(&mut self, requests: &Requests) -> Result<(), Error> {
        (**self).add_requests(requests)
    }

    fn advance(&mut self) -> Result<Phase, Error> {
        (**self).advance()
    }

    fn record_delete_pass(
        &mut self,
        copied: &[CopiedFile],
        removed: u64,
        is_complete: bool,
        worker: &str,
        now_ms: u64,
    ) -> Result<(), Error> {
        (**self).record_delete_pass(copied, removed, is_complete, worker, now_ms)
    }

    fn retry_aside(&mut self) -> Result<(), Error> {
        (**self).retry_aside()
    }

    fn begin_listing(&mut self) -> Result<u64, Error> {
        (**self).begin_listing()
    }

    fn next_directory(
        &mut self,
        after: Option<&DirectoryKey>,
    ) -> Result<Option<DirectoryKey>, Error> {
        (**self).next_directory(after)
    }

    fn stage(&mut self, entries: &[Entry]) -> Result<(), Error> {
        (**self).stage(entries)
    }

    fn stage_directories(&mut self, found: &[(DirectoryKey, Entry)]) -> Result<(), Error> {
        (**self).stage_directories(found)
    }

    fn checkpoint(&mut self, checkpoint: &Checkpoint<'_>) -> Result<(), Error> {
        (**self).checkpoint(checkpoint)
    }

    fn counts(&mut self, now_ms: u64) -> Result<Counts, Error> {
        (**self).counts(now_ms)
    }

    fn workers(&mut self) -> Result<Vec<WorkerReport>, Error> {
        (**self).workers()
    }

    fn aside(&mut self, most: usize) -> Result<Vec<Aside>, Error> {
        (**self).aside(most)
    }

    fn receipts(&mut self, each: &mut dyn FnMut(Receipt) -> bool) -> Result<(), Error> {
        (**self).receipts(each)
    }
}
