//! The thread that handles the sender's messages in order.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use headroom_transfer_proto::message::{
    Attributes, EntryKind, ErrorCode, Inline, Links, MAX_HOLE, MAX_OPEN_FILES, MAX_VALUES, Message,
    PartsRequest, Time, TreeOptions,
};
use headroom_transfer_proto::path::RelPath;
use headroom_transfer_proto::span::{Hash, Verification};
use tokio::sync::mpsc;

use super::answers::Answers;
use super::destination::Destination;
use super::in_flight::InFlight;
use super::incoming::Incoming;
use super::lanes::Lanes;
use super::linked::Linked;
use super::sent::SentRanges;
use super::shared::{Shared, WorkerEvent};
use super::sync_mode::SyncMode;
use crate::claims::{Claim, FileClaims, Others};
use crate::connection::Connection;
use crate::control::unexpected;
use crate::delivery::divided::Participant;
use crate::delivery::event::Event;
use crate::delivery::failed_directories::FailedDirectories;
use crate::delivery::summary::Summary;
use crate::error::{Error, from_peer};
use crate::failure::Failure;
use crate::files::{self, ErrorKind, Offer, Partial, Seal};
use crate::owners::Owners;

/// The most bytes of names of directories that wait for their mode and time. Further ones get
/// them at once, and then have the time at which something was last put into them.
const MAX_DIRECTORY_BYTES: usize = 16 << 20;
/// How often, and how many times, to retry a busy file whose former transfer is about to end: a
/// server closed it, or it was this client's own and has a write in flight.
pub(super) const HANDOVER: (Duration, u32) = (Duration::from_millis(10), 500);
/// How many times a server retries a busy file that no transfer of the same client has: one of
/// a server that has just ended may still have a write in flight.
pub(super) const LINGER: u32 = 100;

/// A file that was begun and locked, and the claim that covers the lock.
pub(super) struct Begun {
    pub(super) partial: Partial,
    pub(super) claim: Option<Claim>,
}

/// The worker's view of a file that arrives on lanes or data streams.
pub(super) struct File {
    pub(super) incoming: Arc<Incoming>,
    pub(super) mode: u32,
    pub(super) mtime: Time,
    pub(super) attributes: Option<Box<Attributes>>,
    /// Its hash, or its CRC as a value.
    pub(super) sealed: Option<[u8; 32]>,
    /// Bytes of holes.
    pub(super) holes: u64,
    /// Bytes of its old version that the sender requested descriptions of, repetitions included.
    pub(super) described: u64,
    /// Bytes of its old version that the sender had copied.
    pub(super) copied: u64,
}

/// A directory that exists and does not have its final metadata yet.
pub(super) struct Directory {
    pub(super) path: RelPath,
    pub(super) mode: u32,
    pub(super) mtime: Time,
    pub(super) attributes: Option<Box<Attributes>>,
}

pub(super) struct Worker {
    pub(super) lanes: Option<Lanes>,
    pub(super) shared: Arc<Shared>,
    pub(super) connection: Connection,
    pub(super) destination: Destination,
    pub(super) fsync: bool,
    pub(super) claims: Option<FileClaims>,
    pub(super) sync: Option<SyncMode>,
    pub(super) tree: TreeOptions,
    /// The file of which ranges were asked for, in place of whole files.
    pub(super) part: Option<Participant>,
    /// How this takes part in the upload of one file, if several servers or sessions receive it.
    pub(super) parts: Option<PartsRequest>,
    pub(super) owners: Owners,
    pub(super) linked: Linked,
    /// Whether something failed, so that a sync removes nothing.
    pub(super) removes_nothing: Cell<bool>,
    pub(super) answers: Answers,
    pub(super) files: HashMap<u64, File>,
    /// Directories that get mode, time and attributes when they are complete.
    pub(super) directories: Vec<Directory>,
    pub(super) directory_bytes: usize,
    /// The lowest number that the next entry may have; `None` after the highest number.
    pub(super) next_id: Option<u64>,
    pub(super) failed_directories: FailedDirectories,
    pub(super) is_end: bool,
    /// What a store is asked to do.
    pub(super) in_flight: InFlight<Self>,
}

impl Worker {
    /// Handles events; returns whether everything arrived and is answered.
    pub(super) fn run(mut self, mut events: mpsc::Receiver<WorkerEvent>) -> Result<bool, Error> {
        self.begin_sync();
        while !(self.is_end
            && self.files.is_empty()
            && self.in_flight.is_empty()
            && self.waits_for_none())
        {
            // the channel closes with the connection; its end reports why
            let Some(next) = self.next_event(&mut events) else { return Ok(false) };
            match next {
                WorkerEvent::Message(message) => self.handle(message)?,
                WorkerEvent::PieceStored(id) => self.try_finish(id),
                WorkerEvent::WriteFailed(id, error) => {
                    if self.close(id).is_some() {
                        self.fail_ranges(&error.to_string());
                        self.failed(id, error);
                    }
                }
                WorkerEvent::NotAsked(offset) => return Err(not_asked(offset)),
                WorkerEvent::WorkDone => {}
            }
            self.take_done()?;
            self.begin_waiting()?;
        }
        self.end_sync();
        // after failures the tree is incomplete: the same command continues it
        if self.shared.counts.get().failed == 0
            && let Err(error) = self.destination.finish_tree()
        {
            self.shared.observer.event(Event::Warning { reason: &error.to_string() });
        }
        if self.is_remote() {
            self.seal_all()?;
        }
        for directory in std::mem::take(&mut self.directories).into_iter().rev() {
            if let Err(error) = self.seal(&directory) {
                // its content is stored: that counts
                self.shared.observer.event(Event::LeftOut { reason: &error.to_string() });
            }
        }
        if let Some(reason) = self.failed_directories.summary() {
            self.shared.observer.event(Event::Failed { reason: &reason, code: None });
        }
        let Summary { stored, failed, .. } = self.shared.counts.get();
        self.send(Message::End { stored, failed });
        Ok(true)
    }

    /// Takes the next event. Before it waits for one, answers are sent.
    fn next_event(&self, events: &mut mpsc::Receiver<WorkerEvent>) -> Option<WorkerEvent> {
        events.try_recv().ok().or_else(|| {
            self.answers.flush();
            events.blocking_recv()
        })
    }

    fn handle(&mut self, message: Message) -> Result<(), Error> {
        match message {
            Message::Entry { id, path, kind } => self.entry(id, path, kind)?,
            message @ Message::Sealed { .. } if self.part.is_some() || self.receives_parts() => {
                return Err(unexpected(&message));
            }
            Message::RangeSent { id, first_span, values } if self.receives_parts() => {
                self.range_of_parts(id, first_span, values)?;
            }
            Message::RangesEnd { id } if self.receives_parts() => self.end_ranges(id),
            Message::RangeSent { id, first_span, values } => {
                self.range_sent(id, first_span, values)?;
            }
            Message::Sealed { id, root, bytes } => {
                // the sender also seals files that failed here
                if let Some(file) = self.files.get_mut(&id) {
                    file.sealed = Some(root);
                    // holes count as well, although they were not sent
                    let all = bytes.saturating_add(file.holes);
                    file.incoming.sealed.store(all, SeqCst);
                    self.try_finish(id);
                }
            }
            Message::Withdrawn { id, reason, .. } if self.part.is_some() => {
                // others may have sent the rest
                if self.close(id).is_some() {
                    self.fail_ranges(&reason);
                }
            }
            Message::Withdrawn { id, reason, code } => {
                if let Some(file) = self.close(id) {
                    // what is received in ranges is not of this session alone
                    if !self.receives_parts() {
                        let _ = file.incoming.partial.abandon();
                    }
                    self.failed_there(&reason, code);
                    self.answer_links(id, false);
                } else if self.is_withdrawn(id) {
                    self.failed_there(&reason, code);
                    self.answer_links(id, false);
                }
            }
            Message::Hole { id, offset, len } => self.hole(id, offset, len)?,
            Message::Content { id, inline } => self.content(id, inline)?,
            message @ (Message::Describe { .. }
            | Message::Copy { .. }
            | Message::Literal { .. }) => self.delta(message)?,
            Message::Passed { path } => self.passed(&path)?,
            Message::Unreadable { reason, path: Some(path), code } => {
                self.failed_there(&reason, code);
                self.passed(&path)?;
            }
            Message::Unreadable { reason, path: None, code } => {
                self.removes_nothing.set(true);
                self.fail_ranges(&reason);
                self.failed_there(&reason, code);
            }
            Message::Remark { text, left_out } => {
                let reason = from_peer(self.connection.side(), &text);
                self.shared.counts.add(|counts| {
                    counts.left_out = counts.left_out.saturating_add(left_out);
                });
                self.shared.observer.event(match left_out {
                    0 => Event::Warning { reason: &reason },
                    _ => Event::LeftOut { reason: &reason },
                });
            }
            Message::EntriesEnd { files, bytes } => {
                self.is_end = true;
                self.shared.observer.event(Event::AllOffered { files, bytes });
            }
            other => return Err(unexpected(&other)),
        }
        Ok(())
    }

    fn entry(&mut self, id: u64, path: RelPath, kind: EntryKind) -> Result<(), Error> {
        // messages left by a closed connection are not acted on
        if self.shared.may_have_ended.load(SeqCst)
            && let Some(reason) = self.connection.close_reason()
        {
            return Err(reason.into());
        }
        if self.is_end {
            return Err(Error::Protocol("it offers something after the end".to_owned()));
        }
        if self.next_id.is_none_or(|next| id < next) {
            return Err(Error::Protocol(format!(
                "it numbers an entry {id}, which is not above the one before"
            )));
        }
        self.next_id = id.checked_add(1);
        if let EntryKind::File { size, inline: Some(inline), .. } = &kind
            && inline.content.len() as u64 != *size
        {
            return Err(Error::Protocol(format!(
                "it sends {} bytes of {path} and says that they are {size}",
                inline.content.len()
            )));
        }
        if !self.destination.is_asked_for(&path) {
            return Err(Error::Protocol(format!("it sends {path}, which was not asked for")));
        }
        if let Some(part) = self.part.clone() {
            return self.begin_ranges(id, part, kind);
        }
        let is_large = matches!(kind, EntryKind::File { inline: None, .. });
        if self.receives_parts() && !(is_large && self.open_files() == 0) {
            return Err(Error::Protocol(format!(
                "it divides {path}, which is not a single large file"
            )));
        }
        if let EntryKind::File { size, .. } = kind {
            self.shared.observer.event(Event::Offered { bytes: size });
        }
        let path = match self.destination.renamed(path) {
            Ok(path) => path,
            Err(reason) => {
                self.failed(id, reason);
                return Ok(());
            }
        };
        let kind = match kind {
            EntryKind::HardLink { to } => return self.hard_link(id, &path, &to),
            kind => self.limited(kind),
        };
        if let EntryKind::Symlink { target, .. } = &kind
            && let Some(kind) = self.refuses_link(&path, target)
        {
            return self.leave_out_link(id, &path, &kind);
        }
        self.note_linked(id, &path, &kind)?;
        if self.failed_directories.covers(&path) {
            self.removes_nothing.set(true);
            self.shared.counts.add(|counts| counts.failed += 1);
            let reason = format!("{path} cannot be stored: its directory could not be made");
            self.send(Message::Failed { id, reason, code: None });
            self.answer_links(id, false);
            return Ok(());
        }
        let Some(kind) = self.compare(id, &path, kind)? else { return Ok(()) };
        self.store(id, &path, kind)
    }

    /// Stores an entry, or starts to.
    pub(super) fn store(&mut self, id: u64, path: &RelPath, kind: EntryKind) -> Result<(), Error> {
        let root = &self.destination.root;
        let is_directory = matches!(kind, EntryKind::Directory { .. });
        let done = match kind {
            EntryKind::Directory { mode, mtime, .. }
                if self.is_remote() && !self.destination.is_named(path) =>
            {
                return self.make_directory_later(id, path, (mode, mtime));
            }
            EntryKind::Symlink { target, mtime, .. } if self.is_remote() => {
                return self.make_symlink_later(id, path, target, mtime);
            }
            EntryKind::Directory { mode, mtime, more } => {
                let mut made = root.make_directory(path, mode);
                if made.is_ok() && self.destination.is_named(path) {
                    made = self.destination.begin_tree();
                }
                match made {
                    Ok(()) => self.seal_later(path, mode, mtime, more),
                    // nothing of the tree can be stored: report that once
                    Err(error) if self.destination.is_named(path) => return Err(error.into()),
                    Err(_) => {}
                }
                made
            }
            EntryKind::Symlink { target, mtime, more } => {
                let made = match self.tree.links {
                    Links::Keep => root.make_any_symlink(path, &target),
                    _ => root.make_symlink(path, &target),
                };
                // the link is stored: that counts
                if made.is_ok()
                    && let Err(error) = root.seal_symlink(path, mtime, more.as_deref())
                {
                    self.shared.observer.event(Event::Warning { reason: &error.to_string() });
                }
                made.map(drop)
            }
            EntryKind::File { mode, mtime, inline: Some(inline), .. } if self.is_remote() => {
                return self.store_small_later(id, path, inline, (mode, mtime));
            }
            EntryKind::File { mode, mtime, inline: Some(inline), more, .. } => {
                self.store_small(path, &inline, mode, mtime, more.as_deref())
            }
            // handled by `entry`
            EntryKind::HardLink { .. } => return Ok(()),
            EntryKind::File { size, mode, mtime, inline: None, data, more, .. } => {
                if self.open_files() >= MAX_OPEN_FILES {
                    return Err(Error::Protocol(format!(
                        "it offers more than {MAX_OPEN_FILES} files at once"
                    )));
                }
                self.lanes.iter().for_each(Lanes::start);
                let data = data.unwrap_or_default();
                let offer = Offer { size, mtime, data, reuse: true };
                if self.is_remote() {
                    return self.begin_later(id, path, offer, mode);
                }
                let begun = match self.parts {
                    Some(parts) => self.begin_parts(id, path, &offer, parts),
                    None => self.begin_whole(id, path, &offer),
                };
                match begun {
                    Ok(incoming) => {
                        self.shared.observer.event(Event::Begun { path });
                        let attributes = more;
                        self.files.insert(
                            id,
                            File {
                                incoming,
                                mode,
                                mtime,
                                attributes,
                                sealed: None,
                                holes: 0,
                                described: 0,
                                copied: 0,
                            },
                        );
                    }
                    Err(failure) => self.failed(id, failure),
                }
                return Ok(());
            }
        };
        match done {
            Ok(()) => self.stored(id, path),
            Err(error) => {
                if is_directory {
                    self.failed_directories.add(path);
                }
                self.failed(id, error);
            }
        }
        Ok(())
    }

    pub(super) fn store_small(
        &self,
        path: &RelPath,
        inline: &Inline,
        mode: u32,
        mtime: Time,
        attributes: Option<&Attributes>,
    ) -> Result<(), files::Error> {
        let bytes = inline.content.len() as u64;
        let seal = seal(inline.root, mode, mtime, self.fsync);
        let root = &self.destination.root;
        let stored = root.store_with(path, &inline.content, &seal, attributes).map(drop);
        self.shared.counts.add(|counts| counts.moved += bytes);
        self.shared.observer.event(Event::Moved { bytes });
        if stored.is_ok() {
            self.shared.observer.event(Event::Hashed { path, bytes, hash: &inline.root });
        }
        stored
    }

    pub(super) fn seal_later(
        &mut self,
        path: &RelPath,
        mode: u32,
        mtime: Time,
        attributes: Option<Box<Attributes>>,
    ) {
        let more = attributes.as_deref().map_or(0, |of| of.bytes() + size_of::<Attributes>());
        let bytes = path.as_bytes().len() + size_of::<Directory>() + more;
        let directory = Directory { path: path.clone(), mode, mtime, attributes };
        if self.directory_bytes + bytes <= MAX_DIRECTORY_BYTES {
            self.directory_bytes += bytes;
            self.directories.push(directory);
        } else {
            let _ = self.seal(&Directory { mode: mode | 0o700, ..directory });
        }
    }

    fn seal(&self, directory: &Directory) -> Result<(), files::Error> {
        let Directory { path, mode, mtime, attributes } = directory;
        let root = &self.destination.root;
        root.seal_directory(path, *mode, *mtime, self.fsync, attributes.as_deref())
    }

    /// Opens a file for receiving. One that an older connection of the same client still has is
    /// taken over: a client that starts again need not wait until the server notices that the first
    /// connection is dead.
    pub(super) fn begin(&self, path: &RelPath, offer: &Offer) -> Result<Begun, files::Error> {
        // it may take long
        self.answers.flush();
        let root = &self.destination.root;
        let claims = self.claims.as_ref();
        let others =
            claims.map(|claims| claims.give_up_uploads(root.path(), path, &self.connection));
        let others = others.filter(|others| !others.is_empty());
        let claim = claims.map(|claims| claims.claim(root.path(), path, &self.connection));
        let mut waits = match &claim {
            Some(claim) if !claim.supersedes() && others.is_none() => LINGER,
            _ => HANDOVER.1,
        };
        loop {
            match root.begin(path, offer) {
                Err(error) if matches!(error.kind(), ErrorKind::Busy) && waits > 0 => {
                    waits -= 1;
                    // sessions of an upload that do not end by themselves
                    if waits == HANDOVER.1 - LINGER {
                        others.iter().for_each(Others::close);
                    }
                    std::thread::sleep(HANDOVER.0);
                }
                begun => return Ok(Begun { partial: begun?, claim }),
            }
        }
    }

    /// Sends the hashes of the spans that are present.
    pub(super) fn have(&self, id: u64, begun: Begun) -> Result<Arc<Incoming>, files::Error> {
        let Begun { mut partial, claim } = begun;
        let (mut first_span, mut values) = (0, Vec::new());
        let mut has_some = false;
        let mut next = partial.next_present(0)?;
        while let Some(span) = next {
            // hashing takes long, and the client's next transfer may wait for this file
            if self.connection.close_reason().is_some() {
                break;
            }
            let value = partial.present(span)?;
            next = partial.next_present(span + 1)?;
            let is_behind = first_span + values.len() as u64 != span;
            if !values.is_empty() && (value.is_none() || is_behind || values.len() == MAX_VALUES) {
                let values = std::mem::take(&mut values);
                self.send(Message::Have { id, first_span, values, last: false, old: None });
            }
            if let Some(value) = value {
                has_some = true;
                if values.is_empty() {
                    first_span = span;
                }
                values.push(value);
            }
        }
        // the sender does the same: of what is present it compares BLAKE3's values
        if self.tree.verification == Some(Verification::Crc64) && !has_some {
            partial.set_verification(Verification::Crc64);
        }
        let old = self.old_to_reuse(&partial);
        let incoming = Arc::new(Incoming {
            partial: Arc::new(partial),
            _claim: claim,
            _receiving: None,
            ranges: None,
            sent: self.receives_parts().then(SentRanges::default),
            sealed: AtomicU64::new(u64::MAX),
            writing: AtomicU64::new(0),
        });
        self.shared.open().insert(id, Arc::clone(&incoming));
        self.send(Message::Have { id, first_span, values, last: true, old });
        Ok(incoming)
    }

    /// Handles a hole, which is not sent.
    fn hole(&mut self, id: u64, offset: u64, len: u64) -> Result<(), Error> {
        if len > MAX_HOLE {
            return Err(Error::Protocol(format!("it announces a hole of {len} bytes at once")));
        }
        // the sender also sends holes of files that failed here
        let Some(file) = self.files.get_mut(&id) else { return Ok(()) };
        if !file.incoming.is_asked_for(offset, len) {
            return Err(not_asked(offset));
        }
        match file.incoming.partial.write_zeros(offset, len) {
            Ok(new) => {
                file.holes += new;
                self.shared.counts.add(|counts| counts.holes += len);
                self.shared.observer.event(Event::Hole { bytes: len });
            }
            Err(error) => {
                self.close(id);
                self.fail_ranges(&error.to_string());
                self.failed(id, error);
            }
        }
        Ok(())
    }

    /// Verifies a file and gives it its name, if it is complete.
    fn try_finish(&mut self, id: u64) {
        if self.part.is_some() {
            return self.settle_ranges(id);
        }
        if self.receives_parts() {
            return self.settle_parts(id);
        }
        let Some(file) = self.files.get(&id) else { return };
        let Some(root) = file.sealed else { return };
        if !file.incoming.is_whole() {
            return;
        }
        if self.is_remote() {
            return self.finish_later(id, root);
        }
        let came = file.incoming.partial.came();
        let spans = file.incoming.partial.spans();
        let (size, verification) = (spans.size(), spans.verification());
        let kept = size.saturating_sub(came);
        let seal = seal(root, file.mode, file.mtime, self.fsync);
        let attributes = file.attributes.as_deref();
        let finished = file.incoming.partial.finish_with(&seal, attributes);
        let path = file.incoming.partial.path().clone();
        self.close(id);
        match finished {
            Ok(_) => {
                if kept > 0 {
                    self.shared.counts.add(|counts| counts.kept += kept);
                    self.shared.observer.event(Event::Kept { bytes: kept });
                }
                self.shared.counts.add(|counts| counts.add_verified(size, verification));
                self.shared.observer.event(Event::hashed(&path, size, (&root, verification)));
                self.stored(id, &path);
            }
            Err(error) => self.failed(id, error),
        }
    }

    /// Returns how many files are open, or are being opened or finished.
    pub(super) fn open_files(&self) -> usize {
        self.files.len() + self.in_flight.files
    }

    /// Stops receiving a file.
    pub(super) fn close(&mut self, id: u64) -> Option<File> {
        self.shared.open().remove(&id);
        self.files.remove(&id)
    }

    pub(super) fn stored(&mut self, id: u64, path: &RelPath) {
        self.shared.counts.add(|counts| counts.stored += 1);
        self.shared.observer.event(Event::Stored { path });
        self.answers.stored(id);
        self.answer_links(id, true);
    }

    pub(super) fn failed(&mut self, id: u64, failure: impl Into<Failure>) {
        let failure = failure.into();
        self.removes_nothing.set(true);
        self.count_failed(&failure);
        let Failure { reason, code } = failure;
        self.send(Message::Failed { id, reason, code });
        self.answer_links(id, false);
    }

    /// Counts a failure that the sender reported.
    fn failed_there(&self, reason: &str, code: Option<ErrorCode>) {
        let reason = from_peer(self.connection.side(), reason);
        self.count_failed(&Failure { reason, code });
    }

    pub(super) fn count_failed(&self, failure: &Failure) {
        self.shared.counts.add(|counts| counts.failed += 1);
        self.shared.observer.event(failure.event());
    }

    /// Sends an answer; it is lost if the connection has ended.
    pub(super) fn send(&self, message: Message) {
        self.answers.send(message);
    }
}

/// Makes the error about bytes of a file that were not asked for.
pub(super) fn not_asked(offset: u64) -> Error {
    Error::Protocol(format!("it sends bytes at {offset} of a range that was not asked for"))
}

pub(super) fn seal(root: [u8; 32], mode: u32, mtime: Time, fsync: bool) -> Seal {
    Seal { root: Hash::from_bytes(root), mode, mtime, fsync }
}
