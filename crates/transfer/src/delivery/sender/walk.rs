//! Walks the trees to send, and offers what it finds.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use headroom_transfer_proto::message::{EntryKind, Inline, MAX_INLINE, Message};
use headroom_transfer_proto::path::RelPath;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use super::open_file::{changed, sent_changed};
use super::outgoing::{Ended, Outgoing};
use super::shared::{Held, Offered, Offering, Shared};
use crate::delivery::event::Event;
use crate::delivery::limits::MAX_LINKED_BYTES;
use crate::failure::Failure;
use crate::files::{self, Attributes, Found, Identity, Keep, Source, SourceFile, SourceKind};
use crate::owners::Owners;

/// Permits for entries without an answer that are taken at once: so not each answer wakes a walk
/// that waits for one.
const PERMITS: u32 = 32;

/// A walk through the trees to send.
pub(super) struct Walk {
    pub(super) shared: Arc<Shared>,
    outgoing: Outgoing,
    pub(super) id: u64,
    /// Permits for the next entries.
    permits: Option<OwnedSemaphorePermit>,
    /// Files with hard links, by identity.
    linked: HashMap<Identity, RelPath>,
    linked_bytes: usize,
    owners: Owners,
    /// How many were left out, and how many of them by a policy, with the first reason.
    left_out: u64,
    by_policy: Option<(u64, String)>,
}

impl Walk {
    pub(super) fn new(shared: Arc<Shared>, messages: mpsc::Sender<Message>, id: u64) -> Self {
        Self {
            shared,
            outgoing: Outgoing::new(messages),
            id,
            permits: None,
            linked: HashMap::new(),
            linked_bytes: 0,
            owners: Owners::default(),
            left_out: 0,
            by_policy: None,
        }
    }

    /// Offers everything; returns the number of the next entry.
    pub(super) fn run(mut self, source: Source) -> u64 {
        let (mut files, mut total) = (0, 0);
        for found in source {
            let offered = match found {
                Ok(found) => {
                    files += u64::from(matches!(found.kind, SourceKind::File(_)));
                    self.offer(found).map(|size| total += size)
                }
                Err(error) if error.is_remark() => {
                    self.left_out += 1;
                    let reason = error.to_string();
                    if !error.is_policy() {
                        self.shared.observer.event(Event::LeftOut { reason: &reason });
                    } else if let Some((count, _)) = &mut self.by_policy {
                        *count += 1;
                    } else {
                        self.by_policy = Some((1, reason));
                    }
                    match error.name().filter(|_| self.shared.offering != Offering::Content) {
                        Some(path) => self.send(Message::Passed { path: path.clone() }),
                        None => Ok(()),
                    }
                }
                Err(error) => self.unreadable(error.into(), None),
            };
            if offered.is_err() {
                return self.id;
            }
        }
        if self.tell_left_out().is_err() {
            return self.id;
        }
        self.shared.observer.event(Event::AllOffered { files, bytes: total });
        let _ = self.send(Message::EntriesEnd { files, bytes: total });
        let _ = self.outgoing.flush();
        self.id
    }

    /// Offers an entry, and returns its size in bytes.
    fn offer(&mut self, found: Found) -> Result<u64, Ended> {
        if let Some(participant) = self.shared.participant.as_ref()
            && !participant.is_of(&found)
        {
            participant.fail("it has changed since it was found");
            return Ok(0);
        }
        let Found { path, kind, attributes } = found;
        let mut more = attributes;
        if let Some(attributes) = &mut more {
            self.name_owners(attributes);
        }
        let mut bytes = 0;
        let mut open = None;
        let mut identity = None;
        let kind = match kind {
            SourceKind::Directory(metadata) => {
                EntryKind::Directory { mode: metadata.mode, mtime: metadata.mtime, more }
            }
            SourceKind::Symlink { target, metadata } => {
                EntryKind::Symlink { target, mtime: Some(metadata.mtime), more }
            }
            SourceKind::File(file) => {
                let metadata = *file.metadata();
                if self.shared.tree.keep.has(Keep::HARD_LINKS) && metadata.links > 1 {
                    if let Some(to) = self.linked.get(&metadata.identity) {
                        let to = to.clone();
                        return self.entry(path, EntryKind::HardLink { to }, 0, None).map(|()| 0);
                    }
                    let memory = path.as_bytes().len() + size_of::<(Identity, RelPath)>();
                    if self.linked_bytes + memory <= MAX_LINKED_BYTES {
                        self.linked_bytes += memory;
                        more.get_or_insert_default().linked = Some(true);
                        identity = Some(metadata.identity);
                    }
                }
                let changing = self.shared.tree.changing;
                bytes = metadata.size;
                let mut hash = None;
                let inline = if self.shared.offering != Offering::Content {
                    if self.shared.offering == Offering::Hash {
                        // it may take long
                        self.outgoing.flush()?;
                        match whole_hash(&file, changing) {
                            Ok(whole) => hash = Some(whole),
                            Err(failure) => {
                                return self.unreadable(failure, Some(path)).map(|()| 0);
                            }
                        }
                    }
                    open = Some((file, None));
                    None
                } else if bytes <= MAX_INLINE as u64 {
                    match content(&file, Size::AsRead, changing) {
                        Ok((inline, warning)) => {
                            if let Some(remark) = warning.and_then(|text| self.shared.warn(text)) {
                                self.send(remark)?;
                            }
                            let len = inline.content.len();
                            bytes = len as u64;
                            let shared = &self.shared;
                            self.outgoing.take_turn(len, shared.limits(), &shared.stop)?;
                            let hash = &inline.root;
                            self.shared.observer.event(Event::Hashed { path: &path, bytes, hash });
                            Some(inline)
                        }
                        Err(failure) => return self.unreadable(failure, None).map(|()| 0),
                    }
                } else {
                    self.shared.want_lane();
                    let open_files = Arc::clone(&self.shared.open_files);
                    let permit = self.acquire(open_files, 1)?;
                    open = Some((file, Some(permit)));
                    None
                };
                // of a divided file this is reported once
                if self.shared.participant.is_none() {
                    self.shared.observer.event(Event::Offered { bytes });
                }
                let data = (bytes > 0).then(|| bytes.min(metadata.allocated));
                let (mode, mtime) = (metadata.mode, metadata.mtime);
                EntryKind::File { size: bytes, mode, mtime, inline, hash, data, more }
            }
        };
        if let Some(identity) = identity {
            self.linked.insert(identity, path.clone());
        }
        self.entry(path, kind, bytes, open)?;
        Ok(bytes)
    }

    fn entry(
        &mut self,
        path: RelPath,
        kind: EntryKind,
        bytes: u64,
        open: Option<(SourceFile, Option<OwnedSemaphorePermit>)>,
    ) -> Result<(), Ended> {
        let unanswered = self.unanswered()?;
        let begins = open.as_ref().is_some_and(|(_, permit)| permit.is_some());
        let (file, open_permit) = open.unzip();
        let is_inline = file.is_none() && bytes > 0;
        let offered = Offered {
            path: path.clone(),
            is_directory: matches!(kind, EntryKind::Directory { .. }),
            bytes,
            hash: match &kind {
                EntryKind::File { hash, .. } => *hash,
                _ => None,
            },
            file,
            held: Held::default(),
            old: None,
            described: None,
            ranges: None,
            opened: None,
            permits: (unanswered, open_permit.flatten()),
        };
        self.shared.offered().insert(self.id, offered);
        self.send(Message::Entry { id: self.id, path, kind })?;
        if begins {
            // the receiver has to answer before content of it is sent
            self.outgoing.flush()?;
        }
        self.id += 1;
        if is_inline {
            self.shared.counts.add(|counts| counts.moved += bytes);
            self.shared.observer.event(Event::Moved { bytes });
        }
        Ok(())
    }

    /// Adds the local names of owner and group, which the receiver maps to its own numbers.
    fn name_owners(&mut self, attributes: &mut Attributes) {
        if self.shared.tree.keep.has(Keep::NUMERIC_IDS) {
            return;
        }
        if let Some(owner) = &mut attributes.owner {
            owner.name = self.owners.user(owner.id);
        }
        if let Some(group) = &mut attributes.group {
            group.name = self.owners.group(group.id);
        }
    }

    /// Reports once what a policy left out, and to the receiver's user everything that was left
    /// out.
    fn tell_left_out(&mut self) -> Result<(), Ended> {
        let left_out = std::mem::take(&mut self.left_out);
        if left_out == 0 {
            return Ok(());
        }
        self.shared.counts.add(|counts| counts.left_out += left_out);
        let mut text = format!("{left_out} in all");
        if let Some((count, first)) = self.by_policy.take() {
            text = match count {
                1 => first,
                more => format!("{first}; --links leaves out {} more", more - 1),
            };
            self.shared.observer.event(Event::LeftOut { reason: &text });
        }
        match self.shared.tells_remarks {
            true => self.send(Message::Remark { text, left_out }),
            false => Ok(()),
        }
    }

    fn unreadable(&mut self, failure: Failure, path: Option<RelPath>) -> Result<(), Ended> {
        self.shared.failed(&failure);
        let path = path.filter(|_| self.shared.offering != Offering::Content);
        let Failure { reason, code } = failure;
        self.send(Message::Unreadable { reason, path, code })
    }

    fn send(&mut self, message: Message) -> Result<(), Ended> {
        self.outgoing.send(message, Instant::now())
    }

    /// Takes the permit for an entry.
    fn unanswered(&mut self) -> Result<OwnedSemaphorePermit, Ended> {
        // permits that were taken before are still there when the transfer has ended
        if self.shared.unanswered.is_closed() {
            return Err(Ended);
        }
        if let Some(permit) = self.permits.as_mut().and_then(|permits| permits.split(1)) {
            return Ok(permit);
        }
        let unanswered = Arc::clone(&self.shared.unanswered);
        let mut permits = self.acquire(unanswered, PERMITS)?;
        let permit = permits.split(1).ok_or(Ended);
        self.permits = Some(permits);
        permit
    }

    /// Takes permits. Where it has to wait for them, what is found is sent before. A semaphore
    /// needs no timer of the runtime, and is closed when the transfer ends.
    fn acquire(
        &mut self,
        semaphore: Arc<Semaphore>,
        count: u32,
    ) -> Result<OwnedSemaphorePermit, Ended> {
        if let Ok(permits) = Arc::clone(&semaphore).try_acquire_many_owned(count) {
            return Ok(permits);
        }
        self.outgoing.flush()?;
        let permits = semaphore.acquire_many_owned(count);
        Handle::current().block_on(permits).map_err(|_| Ended)
    }
}

/// Hashes a file, which must not change meanwhile unless that is allowed.
fn whole_hash(file: &SourceFile, changing: bool) -> Result<[u8; 32], Failure> {
    let read = || {
        // the walk may have waited for the peer since it has found the file
        let reader = if changing { file.open_changed()? } else { file.open()? };
        let hash = reader.hash()?;
        Ok::<_, files::Error>((hash, reader.is_unchanged()?))
    };
    match read()? {
        (hash, is_unchanged) if is_unchanged || changing => Ok(*hash.as_bytes()),
        _ => Err(changed(file.path())),
    }
}

/// Which size a small file must have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Size {
    /// What can be read: files of `/proc` report a size of 0.
    AsRead,
    /// The size that was offered.
    AsOffered,
}

/// Reads a small file, which must not change meanwhile unless that is allowed; then it returns
/// a warning.
pub(super) fn content(
    file: &SourceFile,
    size: Size,
    changing: bool,
) -> Result<(Inline, Option<String>), Failure> {
    let read = || {
        let reader = match size {
            // the walk has found it just now
            Size::AsRead => file.open_found(changing)?,
            Size::AsOffered if changing => file.open_changed()?,
            Size::AsOffered => file.open()?,
        };
        let mut content = reader.read_to_end(MAX_INLINE + 1)?;
        let is_unchanged = reader.is_as_found()?;
        if !is_unchanged {
            // what was appended since is not sent
            content.truncate(usize::try_from(file.metadata().size).unwrap_or(usize::MAX));
        }
        Ok::<_, files::Error>((content, is_unchanged))
    };
    let (content, is_unchanged) = read()?;
    let warning = (!is_unchanged).then(|| sent_changed(file.path()));
    let is_whole = match size {
        Size::AsRead => content.len() <= MAX_INLINE,
        Size::AsOffered => content.len() as u64 == file.metadata().size,
    };
    match is_unchanged || changing {
        false => Err(changed(file.path())),
        true if !is_whole => {
            let reason = format!(
                "{} cannot be sent: its content does not have its size of {} bytes; pipe it to `put -`",
                file.path(),
                file.metadata().size
            );
            Err(reason.into())
        }
        true => Ok((Inline { root: *blake3::hash(&content).as_bytes(), content }, warning)),
    }
}
