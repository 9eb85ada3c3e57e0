//! Symbolic links, hard links and attributes at the receiver.

use headroom_transfer_proto::message::{EntryKind, Keep, Links, Message};
use headroom_transfer_proto::path::RelPath;

use super::linked::State;
use super::worker::Worker;
use crate::delivery::event::Event;
use crate::error::Error;
use crate::files::{ErrorKind, FileType};

impl Worker {
    /// Drops attributes that are not kept here, and maps owners to local numbers.
    pub(super) fn limited(&mut self, mut kind: EntryKind) -> EntryKind {
        let more = match &mut kind {
            EntryKind::Directory { more, .. }
            | EntryKind::Symlink { more, .. }
            | EntryKind::File { more, .. } => more,
            EntryKind::HardLink { .. } => return kind,
        };
        if let Some(sent) = more.take() {
            let mut kept = Box::new(sent.limited(self.tree.keep));
            if let Some(owner) = &mut kept.owner {
                self.owners.set_user(owner);
            }
            if let Some(group) = &mut kept.group {
                self.owners.set_group(group);
            }
            *more = Some(kept);
        }
        kind
    }

    /// Returns why a policy forbids a symbolic link, if one does.
    pub(super) fn refuses_link(&self, path: &RelPath, target: &[u8]) -> Option<ErrorKind> {
        match self.tree.links {
            Links::Keep => None,
            Links::Skip => Some(ErrorKind::LinkLeftOut),
            _ if self.destination.tree_holds_link(path, target) => None,
            Links::Refuse => Some(ErrorKind::LeavesRoot),
            Links::Inside | Links::Follow => Some(ErrorKind::LinkLeavesTree),
        }
    }

    /// Answers a symbolic link that is not made. One that this side leaves out is not a failure.
    pub(super) fn leave_out_link(
        &mut self,
        id: u64,
        path: &RelPath,
        kind: &ErrorKind,
    ) -> Result<(), Error> {
        let reason = format!("{path} cannot be made: {kind}");
        if self.sync.is_some() {
            self.passed(path)?;
        }
        if matches!(kind, ErrorKind::LeavesRoot) {
            self.failed(id, reason);
            return Ok(());
        }
        self.shared.counts.add(|counts| counts.left_out += 1);
        self.shared.observer.event(Event::LeftOut { reason: &reason });
        self.send(Message::Failed { id, reason, code: None });
        Ok(())
    }

    /// Notes a file whose hard links may follow.
    pub(super) fn note_linked(
        &mut self,
        id: u64,
        path: &RelPath,
        kind: &EntryKind,
    ) -> Result<(), Error> {
        let EntryKind::File { more: Some(more), .. } = kind else { return Ok(()) };
        if more.linked == Some(true) {
            self.linked.take_room(path)?;
            self.linked.files.insert(path.clone(), State::Coming(Vec::new()));
            self.linked.unanswered.insert(id, path.clone());
        }
        Ok(())
    }

    /// Answers names that waited for a file.
    pub(super) fn answer_links(&mut self, id: u64, is_stored: bool) {
        let Some(to) = self.linked.unanswered.remove(&id) else { return };
        let state = if is_stored { State::Stored } else { State::Failed };
        let waited = self.linked.files.insert(to.clone(), state);
        if let Some(State::Coming(names)) = waited {
            for (id, path) in names {
                self.make_hard_link(id, &path, &to, is_stored);
            }
        }
    }

    /// Makes a hard link to an earlier file, now or when that file has arrived.
    pub(super) fn hard_link(&mut self, id: u64, path: &RelPath, to: &RelPath) -> Result<(), Error> {
        let unknown = || Error::Protocol(format!("it sends a hard link to {to}, which it did not"));
        if !self.tree.keep.has(Keep::HARD_LINKS) || !self.destination.is_asked_for(to) {
            return Err(unknown());
        }
        let Ok(to) = self.destination.renamed(to.clone()) else { return Err(unknown()) };
        self.check_excluded(path, false)?;
        if self.sync.is_some() {
            self.passed(path)?;
        }
        let is_stored = match self.linked.files.get_mut(&to) {
            None => return Err(unknown()),
            Some(State::Coming(names)) => {
                names.push((id, path.clone()));
                return self.linked.take_room(path);
            }
            Some(State::Stored) => true,
            Some(State::Failed) => false,
        };
        self.make_hard_link(id, path, &to, is_stored);
        Ok(())
    }

    fn make_hard_link(&mut self, id: u64, path: &RelPath, to: &RelPath, is_stored: bool) {
        if !is_stored {
            return self.failed(
                id,
                format!("{path} cannot be made: {to}, which it is a hard link to, was not stored"),
            );
        }
        let kind = EntryKind::HardLink { to: to.clone() };
        let root = self.destination.root.clone();
        let here = match root.look(path) {
            // another directory stands in for the one that would be made
            _ if self.is_missing() => None,
            Err(error) if !matches!(error.kind(), ErrorKind::Missing) => {
                return self.failed(id, error);
            }
            here => here.ok().flatten(),
        };
        let is_there = here.is_some() && root.is_hard_link(path, to).unwrap_or(false);
        if self.sync.is_some() && is_there {
            return self.current(id, &kind);
        }
        if here.is_some_and(|here| here.file_type == FileType::Directory) {
            self.clear_way(path, FileType::Directory, &kind);
        }
        if self.is_dry_run() {
            return self.plan(id, path, here.is_none());
        }
        match root.make_hard_link(path, to) {
            Ok(()) => self.stored(id, path),
            Err(error) => self.failed(id, error),
        }
    }
}
