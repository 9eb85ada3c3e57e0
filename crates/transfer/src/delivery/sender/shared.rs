//! What the tasks of a sender share: entries that are offered and not answered.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use headroom_mutex::lock;
use headroom_transfer_proto::message::{
    ChunkHash, Compress, ErrorCode, MAX_OPEN_FILES, MAX_UNANSWERED, Message, TreeOptions,
};
use headroom_transfer_proto::path::RelPath;
use headroom_transfer_proto::span::{ChainingValue, Spans, Verification};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use super::hash_ahead::HashAhead;
use super::open_file::OpenFile;
use super::range_queue::RangeQueue;
use super::upload::{DividedUpload, UploadParticipant};
use crate::connection::Connection;
use crate::delivery::compression::AdaptiveCompressor;
use crate::delivery::delta::Delta;
use crate::delivery::event::{Event, Observer};
use crate::delivery::failed_directories::FailedDirectories;
use crate::delivery::summary::Counts;
use crate::error::{Error, from_peer};
use crate::failure::Failure;
use crate::files::SourceFile;
use crate::lanes::LaneHandle;
use crate::rate::{RateLimits, Stop};

/// Pieces in flight at once. Each has two spans in memory: one that is read while the other is
/// written.
const PIECES: usize = 3;
/// Spans on streams at once while a lane is silent: they may have to be sent again on the lane
/// when it answers.
const FALLBACK_SPANS: usize = 8;
/// Chunks of old files in memory at once, of about 100 bytes each.
pub(super) const MAX_KNOWN_CHUNKS: u32 = 1 << 20;

/// What is sent with the entry of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Offering {
    /// The content, if it is small.
    Content,
    /// Nothing: in a sync, the receiver may have it already.
    Name,
    /// Its hash: in a sync, the receiver may have it with another time.
    Hash,
}

pub(super) struct Shared {
    pub(super) connection: Connection,
    pub(super) offering: Offering,
    pub(super) tree: TreeOptions,
    /// Whether to search changed files for content that the receiver has.
    pub(super) delta: Delta,
    /// Whether to tell the receiver's user what is left out.
    pub(super) tells_remarks: bool,
    /// Whether the receiver asks for ranges of files instead of whole ones.
    pub(super) by_ranges: bool,
    /// This connection's part in a file of which others send other ranges.
    pub(super) participant: Option<UploadParticipant>,
    /// The file whose ranges are stored, and which this transfer completes.
    pub(super) divided: Option<Arc<DividedUpload>>,
    pub(super) observer: Arc<dyn Observer>,
    /// This side's own limits.
    own_limits: RateLimits,
    /// What both sides have agreed on; not yet while entries go ahead of the answer.
    terms: OnceLock<Terms>,
    /// Whether something waits for a lane.
    wants_lane: AtomicBool,
    /// Set when the transfer ends: blocking threads stop waiting.
    pub(super) stop: Stop,
    pub(super) offered: Mutex<HashMap<u64, Offered>>,
    /// Files that were withdrawn, if the receiver asks for ranges.
    pub(super) withdrawn: Mutex<HashSet<u64>>,
    /// Permits for files that are offered without content.
    pub(super) open_files: Arc<Semaphore>,
    pub(super) unanswered: Arc<Semaphore>,
    pub(super) pieces: Arc<Semaphore>,
    pub(super) compressor: Arc<AdaptiveCompressor>,
    pub(super) counts: Counts,
    pub(super) failed_directories: Mutex<FailedDirectories>,
    /// Permits for spans on streams in place of a silent lane, and for the tasks of files for such
    /// spans.
    pub(super) fallbacks: Semaphore,
    pub(super) fallbacks_begun: Arc<Semaphore>,
    /// Permits for chunks of old files in memory.
    pub(super) known_chunks: Semaphore,
}

/// What both sides have agreed on: how fast to send, what carries data beside streams, and how
/// files are verified of which the receiver has nothing.
pub(crate) struct Terms {
    pub(crate) limits: RateLimits,
    pub(crate) lane: Option<LaneHandle>,
    pub(crate) verification: Verification,
}

/// An entry that is offered and not answered.
pub(super) struct Offered {
    pub(super) path: RelPath,
    pub(super) is_directory: bool,
    pub(super) bytes: u64,
    /// The hash with which it was offered, if it was.
    pub(super) hash: Option<[u8; 32]>,
    /// The file, until it is opened.
    pub(super) file: Option<SourceFile>,
    /// What the receiver has reported so far.
    pub(super) held: Held,
    /// The size in bytes of the receiver's old file, if the receiver offers to reuse it.
    pub(super) old: Option<u64>,
    /// The description of the old file that was requested.
    pub(super) described: Option<Described>,
    /// The ranges that the receiver has asked for, if it asks for ranges.
    pub(super) ranges: Option<RangeQueue>,
    /// The file, while it is sent.
    pub(super) opened: Option<Arc<OpenFile>>,
    /// Permits that are released when it is answered.
    pub(super) permits: (OwnedSemaphorePermit, Option<OwnedSemaphorePermit>),
}

/// What the receiver reports to have of a file.
#[derive(Default)]
pub(super) struct Held {
    /// Spans, and their values there.
    pub(super) spans: Vec<(u64, ChainingValue)>,
    /// Their values here, of those that are hashed before all are reported.
    pub(super) ahead: Option<HashAhead>,
}

/// A description that was requested, until its last part has arrived.
pub(super) struct Described {
    pub(super) parts: mpsc::UnboundedSender<Vec<ChunkHash>>,
    /// The most chunks that may still arrive.
    pub(super) left: usize,
}

impl Shared {
    pub(super) fn new(
        connection: Connection,
        offering: Offering,
        observer: Arc<dyn Observer>,
        own_limits: RateLimits,
    ) -> Self {
        Self {
            connection,
            offering,
            tree: TreeOptions::default(),
            delta: Delta::On,
            tells_remarks: false,
            by_ranges: false,
            participant: None,
            divided: None,
            observer,
            own_limits,
            terms: OnceLock::new(),
            wants_lane: AtomicBool::new(false),
            stop: Stop::default(),
            offered: Mutex::default(),
            withdrawn: Mutex::default(),
            open_files: Arc::new(Semaphore::new(MAX_OPEN_FILES)),
            unanswered: Arc::new(Semaphore::new(MAX_UNANSWERED)),
            pieces: Arc::new(Semaphore::new(PIECES)),
            compressor: Arc::new(AdaptiveCompressor::new(Compress::Never)),
            counts: Counts::default(),
            failed_directories: Mutex::default(),
            fallbacks: Semaphore::new(FALLBACK_SPANS),
            fallbacks_begun: Arc::new(Semaphore::new(FALLBACK_SPANS)),
            known_chunks: Semaphore::new(MAX_KNOWN_CHUNKS as usize),
        }
    }

    /// Notes what both sides have agreed on, once.
    pub(super) fn agree(&self, terms: Terms) {
        // before anybody can start it
        if let Some(lane) = &terms.lane {
            lane.limit(terms.limits.rate_bps());
        }
        let _ = self.terms.set(terms);
        // of this and the change in `want_lane`, the later one sees what the other side noted
        let is_wanted = self.wants_lane.fetch_or(false, Ordering::AcqRel);
        if let Some(lane) = self.lane().filter(|_| is_wanted) {
            lane.start(None);
        }
    }

    /// Returns the lane that carries data, if there is one.
    pub(super) fn lane(&self) -> Option<&LaneHandle> {
        self.terms.get()?.lane.as_ref()
    }

    /// Returns how a file is verified of which the receiver reports these spans.
    pub(super) fn verification(&self, held: &[(u64, ChainingValue)]) -> Verification {
        match held {
            [] => self.terms.get().map_or(Verification::Blake3, |terms| terms.verification),
            // they are BLAKE3's
            _ => Verification::Blake3,
        }
    }

    /// Starts the lane, or has it started as soon as there is one.
    pub(super) fn want_lane(&self) {
        self.wants_lane.swap(true, Ordering::AcqRel);
        if let Some(lane) = self.lane() {
            lane.start(None);
        }
    }

    /// Returns the limits that are known.
    pub(super) fn limits(&self) -> &RateLimits {
        self.terms.get().map_or(&self.own_limits, |terms| &terms.limits)
    }

    pub(super) fn offered(&self) -> MutexGuard<'_, HashMap<u64, Offered>> {
        lock(&self.offered)
    }

    pub(super) fn answered(&self, id: u64) -> Result<Offered, Error> {
        let entry = self.offered().remove(&id);
        // nothing of a file that was not opened, such as a small one, is on the lane, whose thread
        // each command wakes
        if entry.as_ref().is_some_and(|entry| entry.opened.is_some())
            && let (Some(lane), Ok(file)) = (self.lane(), u32::try_from(id))
        {
            lane.cancel(file);
        }
        entry.ok_or_else(|| Error::Protocol("it answers what was not offered".to_owned()))
    }

    /// Warns this side's user, and returns the message for the other's, unless that runs an older
    /// version.
    pub(super) fn warn(&self, text: String) -> Option<Message> {
        self.observer.event(Event::Warning { reason: &text });
        self.tells_remarks.then_some(Message::Remark { text, left_out: 0 })
    }

    pub(super) fn failed_directories(&self) -> MutexGuard<'_, FailedDirectories> {
        lock(&self.failed_directories)
    }

    /// Counts an entry that the receiver could not store. Failures that follow from a failed
    /// directory are reported once.
    pub(super) fn failed_there(&self, entry: &Offered, reason: &str, code: Option<ErrorCode>) {
        let mut failed_directories = self.failed_directories();
        if failed_directories.covers(&entry.path) {
            return self.counts.add(|counts| counts.failed += 1);
        }
        if entry.is_directory {
            failed_directories.add(&entry.path);
        }
        drop(failed_directories);
        let reason = from_peer(self.connection.side(), reason);
        self.failed(&Failure { reason, code });
    }

    pub(super) fn failed(&self, failure: &Failure) {
        self.counts.add(|counts| counts.failed += 1);
        self.observer.event(failure.event());
    }

    /// Whether a file is still sent: neither has it failed at the receiver, nor has the transfer
    /// ended.
    pub(super) fn is_sending(&self, id: u64) -> bool {
        !self.stop.is_stopped() && self.offered().contains_key(&id)
    }

    /// Notes spans that the receiver has. With the last message about a file, returns the file to
    /// be sent.
    pub(super) fn note_held(
        &self,
        id: u64,
        first_span: u64,
        values: Vec<ChainingValue>,
        last: bool,
        old: Option<u64>,
    ) -> Result<Option<(SourceFile, Held)>, Error> {
        let wrong = |what: &str| Err(Error::Protocol(format!("it says that it has {what}")));
        let mut offered = self.offered();
        let Some(entry) = offered.get_mut(&id) else {
            return wrong("spans of a file that was not offered");
        };
        if entry.file.is_none() && (entry.ranges.is_none() || last) {
            return wrong("spans of a file when it has said so before");
        }
        if entry.permits.1.is_none() {
            // in a sync the receiver chooses which files are open, and keeps to the bound
            let permit = Arc::clone(&self.open_files).try_acquire_owned();
            entry.permits.1 = Some(permit.map_err(|_| {
                Error::Protocol(format!("it asks for more than {MAX_OPEN_FILES} files at once"))
            })?);
        }
        let count = Spans::new(entry.bytes).count();
        let next = entry.held.spans.last().map_or(0, |(span, _)| span + 1);
        let end = first_span.checked_add(values.len() as u64);
        if !values.is_empty() && (first_span < next || end.is_none_or(|end| end > count)) {
            return wrong("spans that the file has not");
        }
        let new = values.len() as u64;
        entry.held.spans.extend((first_span..).zip(values));
        if !last {
            let file = entry.file.as_ref().filter(|file| new > 0 && self.hashes_ahead(file));
            if let Some(file) = file {
                let begin = || HashAhead::begin(file.clone());
                let ahead = entry.held.ahead.get_or_insert_with(begin);
                ahead.add(first_span..first_span + new);
            }
            return Ok(None);
        }
        entry.old = old;
        let held = std::mem::take(&mut entry.held);
        Ok(entry.file.take().map(|file| (file, held)))
    }

    /// Whether to hash what is reported of a file before all of it is: not if only ranges of it may
    /// be asked for, if the values are known, nor if reading it waits for a store.
    fn hashes_ahead(&self, file: &SourceFile) -> bool {
        let is_whole = !self.by_ranges && self.participant.is_none();
        is_whole && self.divided.is_none() && !file.is_remote()
    }
}
