//! The thread that handles the sender's messages in order.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use headroom_transfer_proto::message::{
    Attributes, ErrorCode, MAX_HOLE, Message, PartsRequest, Time, TreeOptions,
};
use headroom_transfer_proto::path::RelPath;
use headroom_transfer_proto::span::Hash;
use tokio::sync::mpsc;

use super::answers::Answers;
use super::destination::Destination;
use super::events::Events;
use super::in_flight::InFlight;
use super::incoming::Incoming;
use super::lanes::Lanes;
use super::linked::Linked;
use super::shared::{Shared, WorkerEvent};
use super::sync_mode::SyncMode;
use crate::claims::FileClaims;
use crate::connection::Connection;
use crate::control::unexpected;
use crate::delivery::divided::Participant;
use crate::delivery::event::Event;
use crate::delivery::failed_directories::FailedDirectories;
use crate::delivery::summary::Summary;
use crate::error::{Error, from_peer};
use crate::failure::Failure;
use crate::files::Seal;
use crate::owners::Owners;

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
    pub(super) fn run(mut self, events: mpsc::Receiver<WorkerEvent>) -> Result<bool, Error> {
        let mut events = Events::new(events);
        self.begin_sync();
        while !(self.is_end
            && self.files.is_empty()
            && self.in_flight.is_empty()
            && self.waits_for_none())
        {
            // the channel closes with the connection; its end reports why
            let next = events.next(|| self.answers.flush());
            let Some(next) = next else { return Ok(false) };
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
                file.incoming.wrote(len, new);
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
        if self.fsync {
            // the disk may take long, and the sender waits for what is asked for
            self.answers.flush();
        }
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
        self.answers.later(Message::Stored { id });
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
