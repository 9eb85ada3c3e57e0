//! The receiver of a sync: reports what it has, requests the rest, and removes what the sender
//! does not have.

use std::sync::Arc;

use headroom_transfer_proto::message::{
    EntryKind, ErrorCode, Inline, MAX_INLINE, MAX_OPEN_FILES, MAX_UNANSWERED, Message,
};
use headroom_transfer_proto::path::RelPath;
use headroom_transfer_proto::span::Hash;

use super::sync_mode::{Small, SyncMode};
use super::worker::Worker;
use crate::delivery::event::Event;
use crate::error::Error;
use crate::failure::Failure;
use crate::files::{self, CompareError, Extraneous, FileType, Removal, Root, Sent, Status};

impl Worker {
    pub(super) fn begin_sync(&mut self) {
        let Some(sync) = self.sync.as_mut().filter(|sync| sync.delete && !sync.is_missing) else {
            return;
        };
        match Extraneous::new(self.destination.root.clone(), Arc::clone(&sync.excludes)) {
            Ok(extraneous) => sync.extraneous = Some(extraneous),
            Err(error) => self.not_removed(error.into(), true),
        }
    }

    /// Whether no file waits to be opened, and no content is awaited.
    pub(super) fn waits_for_none(&self) -> bool {
        self.sync.as_ref().is_none_or(|sync| sync.waiting.is_empty() && sync.wanted.is_empty())
    }

    /// Opens waiting large files, as many as may be open.
    pub(super) fn begin_waiting(&mut self) -> Result<(), Error> {
        while self.open_files() < MAX_OPEN_FILES {
            let next = self.sync.as_mut().and_then(|sync| sync.waiting.pop_front());
            let Some((id, path, kind)) = next else { return Ok(()) };
            self.store(id, &path, kind)?;
        }
        Ok(())
    }

    /// In a sync, answers entries that are up to date and requests small files; returns what is to
    /// be stored at once.
    pub(super) fn compare(
        &mut self,
        id: u64,
        path: &RelPath,
        kind: EntryKind,
    ) -> Result<Option<EntryKind>, Error> {
        let Some(sync) = &self.sync else { return Ok(Some(kind)) };
        self.check_excluded(path, matches!(kind, EntryKind::Directory { .. }))?;
        let is_missing = sync.is_missing;
        if matches!(kind, EntryKind::HardLink { .. }) {
            return Ok(Some(kind));
        }
        if self.is_remote() && !is_missing {
            self.matched(path, matches!(kind, EntryKind::Directory { .. }))?;
            self.compare_later(id, path, kind)?;
            return Ok(None);
        }
        if matches!(kind, EntryKind::File { hash: Some(_), .. }) {
            // hashing what is here may take long
            self.answers.flush();
        }
        let status = match is_missing {
            true => Ok(Status::Missing),
            false => Self::status(&self.destination.root, path, &kind),
        };
        self.matched(path, matches!(kind, EntryKind::Directory { .. }))?;
        self.compared(id, path, kind, status)
    }

    /// Compares an entry with what is here.
    pub(super) fn status(
        root: &Root,
        path: &RelPath,
        kind: &EntryKind,
    ) -> Result<Status, files::Error> {
        let sent = match kind {
            EntryKind::Directory { mode, .. } => Sent::Directory { mode: *mode },
            EntryKind::Symlink { target, .. } => Sent::Symlink { target },
            EntryKind::File { size, mode, mtime, hash, more, .. } => {
                let (hash, attributes) = (hash.map(Hash::from_bytes), more.as_deref());
                Sent::File { size: *size, mode: *mode, mtime: *mtime, hash, attributes }
            }
            // these are not compared
            EntryKind::HardLink { .. } => return Ok(Status::Missing),
        };
        root.compare(path, &sent)
    }

    /// Answers an entry that is up to date and requests a small file; returns what is to be stored
    /// at once.
    pub(super) fn compared(
        &mut self,
        id: u64,
        path: &RelPath,
        kind: EntryKind,
        status: Result<Status, files::Error>,
    ) -> Result<Option<EntryKind>, Error> {
        let dry_run = self.is_dry_run();
        let status = match status {
            Ok(status) => status,
            Err(error) => {
                self.failed(id, error);
                return Ok(None);
            }
        };
        if status == Status::Same {
            match &kind {
                _ if dry_run => {}
                EntryKind::Directory { mode, mtime, more } => {
                    self.seal_later(path, *mode, *mtime, more.clone());
                }
                EntryKind::Symlink { mtime, .. } if self.is_remote() => {
                    self.seal_symlink_later(path, *mtime)?;
                }
                EntryKind::Symlink { mtime, more, .. } => {
                    // its owner may have set another time since
                    let _ = self.destination.root.seal_symlink(path, *mtime, more.as_deref());
                }
                _ => {}
            }
            self.current(id, &kind);
            return Ok(None);
        }
        if let Status::TypeDiffers(here) = status
            && !self.clear_way(path, here, &kind)
        {
            let reason = format!(
                "{path} cannot be stored: {here} is here under that name; remove or rename it first"
            );
            self.failed(id, Failure::coded(ErrorCode::EXISTS, reason));
            return Ok(None);
        }
        if dry_run {
            self.planned(id, path, &kind, status);
            return Ok(None);
        }
        if let (Status::MetadataDiffers, EntryKind::File { mode, mtime, more, .. }) =
            (status, &kind)
        {
            if self.is_remote() {
                let sealed = (*mode, *mtime);
                self.update_later(id, path, kind, sealed)?;
                return Ok(None);
            }
            match self.destination.root.update_metadata(path, *mode, *mtime, more.as_deref()) {
                Ok(()) => self.current(id, &kind),
                Err(error) => self.failed(id, error),
            }
            return Ok(None);
        }
        self.ask(id, path, kind)
    }

    /// Handles the content of a small file.
    pub(super) fn content(&mut self, id: u64, inline: Inline) -> Result<(), Error> {
        let wanted = self.sync.as_mut().and_then(|sync| sync.wanted.remove(&id));
        let Some(Small { path, size, mode, mtime, attributes }) = wanted else {
            return Err(Error::Protocol(
                "it sends the content of a file that was not requested".to_owned(),
            ));
        };
        if inline.content.len() as u64 != size {
            return Err(Error::Protocol(format!(
                "it sends {path} with another length than it said"
            )));
        }
        if self.is_remote() {
            return self.store_small_later(id, &path, inline, (mode, mtime));
        }
        match self.store_small(&path, &inline, mode, mtime, attributes.as_deref()) {
            Ok(()) => self.stored(id, &path),
            Err(error) => self.failed(id, error),
        }
        Ok(())
    }

    /// Notes a name that the sender has and does not send.
    pub(super) fn passed(&mut self, path: &RelPath) -> Result<(), Error> {
        if self.sync.is_none() {
            return Err(Error::Protocol("it names something that it does not send".to_owned()));
        }
        self.matched(path, false)
    }

    /// Whether a small file was requested and is withdrawn.
    pub(super) fn is_withdrawn(&mut self, id: u64) -> bool {
        self.sync.as_mut().is_some_and(|sync| sync.wanted.remove(&id).is_some())
    }

    /// Removes what the sender does not have, if nothing failed.
    pub(super) fn end_sync(&mut self) {
        let Some(sync) = &mut self.sync else { return };
        let (excludes, dry_run) = (Arc::clone(&sync.excludes), sync.dry_run);
        let Some(extraneous) = sync.extraneous.take() else { return };
        if self.removes_nothing.get() {
            let reason = "nothing was removed at the destination, because not everything could be read or stored";
            return self.not_removed(reason.to_owned().into(), false);
        }
        let extraneous = match extraneous.finish() {
            Ok(extraneous) => extraneous,
            Err(error) => return self.not_removed(error.to_string().into(), true),
        };
        let root = self.destination.root.clone();
        root.remove_trees(extraneous, &excludes, dry_run, &mut |removal| self.removal(removal));
    }

    /// Notes that the sender has this name: it is not removed here.
    fn matched(&mut self, path: &RelPath, is_directory: bool) -> Result<(), Error> {
        let Some(sync) = &mut self.sync else { return Ok(()) };
        let Some(extraneous) = &mut sync.extraneous else { return Ok(()) };
        match extraneous.pass(path, is_directory) {
            Ok(()) => Ok(()),
            Err(CompareError::OutOfOrder) => {
                Err(Error::Protocol("it does not name files in the order of a walk".to_owned()))
            }
            Err(error) => {
                sync.extraneous = None;
                self.not_removed(error.to_string().into(), true);
                Ok(())
            }
        }
    }

    /// Refuses a sender that writes excluded names (rsync's did, CVE-2022-29154).
    pub(super) fn check_excluded(&self, path: &RelPath, is_directory: bool) -> Result<(), Error> {
        let covers = |sync: &SyncMode| sync.excludes.cover(path, is_directory);
        match self.sync.as_ref().is_some_and(covers) {
            true => Err(Error::Protocol(format!("it sends {path}, which is excluded"))),
            false => Ok(()),
        }
    }

    /// Whether the directory is missing, in a dry run.
    pub(super) fn is_missing(&self) -> bool {
        self.sync.as_ref().is_some_and(|sync| sync.is_missing)
    }

    /// Whether this is a dry run.
    pub(super) fn is_dry_run(&self) -> bool {
        self.sync.as_ref().is_some_and(|sync| sync.dry_run)
    }

    pub(super) fn current(&mut self, id: u64, kind: &EntryKind) {
        let bytes = if let EntryKind::File { size, .. } = kind { *size } else { 0 };
        self.shared.counts.add(|counts| {
            counts.unchanged += 1;
            counts.kept += bytes;
        });
        self.shared.observer.event(Event::Kept { bytes });
        self.answers.later(Message::Current { id });
        self.answer_links(id, true);
    }

    fn planned(&mut self, id: u64, path: &RelPath, kind: &EntryKind, status: Status) {
        let bytes = match (status, kind) {
            (Status::MetadataDiffers, _) => 0,
            (_, EntryKind::File { size, .. }) => *size,
            _ => 0,
        };
        self.tell_planned(id, path, bytes, status == Status::Missing);
    }

    /// Reports something that would be made without sending data.
    pub(super) fn plan(&mut self, id: u64, path: &RelPath, is_new: bool) {
        self.tell_planned(id, path, 0, is_new);
    }

    fn tell_planned(&mut self, id: u64, path: &RelPath, bytes: u64, new: bool) {
        self.shared.counts.add(|counts| {
            counts.stored += 1;
            counts.moved += bytes;
        });
        self.shared.observer.event(Event::Planned { path, bytes, new });
        self.answers.later(Message::Planned { id, bytes, new });
        self.answer_links(id, true);
    }

    /// Removes something of another type than the entry: a file in favour of a directory, and a
    /// directory, if it may be removed, in favour of a file. Returns whether that is allowed.
    pub(super) fn clear_way(&self, path: &RelPath, here: FileType, kind: &EntryKind) -> bool {
        let Some(sync) = &self.sync else { return false };
        let (delete, dry_run, excludes) = (sync.delete, sync.dry_run, Arc::clone(&sync.excludes));
        let is_directory = matches!(kind, EntryKind::Directory { .. });
        let may = match here {
            FileType::File | FileType::Symlink => is_directory && !sync.keeps_files,
            FileType::Directory => delete,
            FileType::Pipe | FileType::Socket | FileType::Device => false,
        };
        if may {
            let root = &self.destination.root;
            root.remove_tree(path, &excludes, dry_run, &mut |removal| self.removal(removal));
        }
        may
    }

    /// Requests the content of an entry, or returns it to be stored at once.
    fn ask(
        &mut self,
        id: u64,
        path: &RelPath,
        kind: EntryKind,
    ) -> Result<Option<EntryKind>, Error> {
        let Some(sync) = &mut self.sync else { return Ok(Some(kind)) };
        let EntryKind::File { size, mode, mtime, inline: None, .. } = kind else {
            return Ok(Some(kind));
        };
        if sync.waiting.len() + sync.wanted.len() >= MAX_UNANSWERED {
            return Err(Error::Protocol(format!(
                "it offers more than {MAX_UNANSWERED} files without an answer"
            )));
        }
        if size <= MAX_INLINE as u64 {
            let EntryKind::File { more: attributes, .. } = kind else { return Ok(None) };
            let small = Small { path: path.clone(), size, mode, mtime, attributes };
            sync.wanted.insert(id, small);
            self.answers.later(Message::Wanted { id });
        } else {
            sync.waiting.push_back((id, path.clone(), kind));
        }
        Ok(None)
    }

    fn removal(&self, removal: Removal) {
        match removal {
            Removal::Removed(path) => {
                self.shared.counts.add(|counts| counts.removed += 1);
                self.shared.observer.event(Event::Removed { path: &path });
                self.send(Message::Removed { path });
            }
            Removal::Kept(path) => {
                let reason = format!("{path} stays: it contains something excluded or unfinished");
                self.not_removed(reason.into(), false);
            }
            Removal::Failed(error) => self.not_removed(error.into(), true),
        }
    }

    fn not_removed(&self, failure: Failure, failed: bool) {
        if failed {
            self.count_failed(&failure);
            self.removes_nothing.set(true);
        } else {
            self.shared.observer.event(Event::LeftOut { reason: &failure.reason });
        }
        let Failure { reason, code } = failure;
        self.send(Message::Left { reason, failed, code });
    }
}
