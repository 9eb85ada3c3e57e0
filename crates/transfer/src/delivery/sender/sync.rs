//! The sender of a sync: learns what is up to date, and sends requested small files.

use std::sync::Arc;
use std::time::Instant;

use headroom_transfer_proto::message::{MAX_INLINE, Message};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::spawn_blocking;

use super::outgoing::{Ended, Outgoing};
use super::shared::{Offering, Shared};
use super::walk::{Size, content};
use crate::control::unexpected;
use crate::delivery::event::Event;
use crate::error::{Error, from_peer};
use crate::failure::Failure;
use crate::files::SourceFile;

/// Files of a store that are read at once.
const READ_AT_ONCE: usize = 64;

/// Files whose content was requested, bounded by the entries without an answer.
pub(super) type Wanted = mpsc::UnboundedSender<(u64, SourceFile)>;

impl Shared {
    /// Sends requested content, one file after the other; files of a store several at once.
    pub(super) fn send_contents(self: &Arc<Self>, messages: &mpsc::Sender<Message>) -> Wanted {
        let (wanted, mut wants): (Wanted, _) = mpsc::unbounded_channel();
        if self.offering != Offering::Content {
            let (shared, messages) = (Arc::clone(self), messages.clone());
            spawn_blocking(move || {
                let at_once = Arc::new(Semaphore::new(READ_AT_ONCE));
                let mut outgoing = Outgoing::new(messages.clone());
                loop {
                    if wants.is_empty() && outgoing.flush().is_err() {
                        return;
                    }
                    let Some((id, file)) = wants.blocking_recv() else { return };
                    if file.is_remote() {
                        let permit = Arc::clone(&at_once).acquire_owned();
                        let permit = Handle::current().block_on(permit);
                        let (shared, messages) = (Arc::clone(&shared), messages.clone());
                        drop(spawn_blocking(move || {
                            let mut outgoing = Outgoing::new(messages);
                            let sent = shared.send_content(id, &file, &mut outgoing);
                            // nobody receives it after the transfer has ended
                            let _ = sent.and_then(|()| outgoing.flush());
                            drop(permit);
                        }));
                    } else if shared.send_content(id, &file, &mut outgoing).is_err() {
                        return;
                    }
                }
            });
        }
        wanted
    }

    /// Handles answers that only the receiver of a sync sends.
    pub(super) fn handle_sync_answer(
        &self,
        message: Message,
        wanted: &Wanted,
    ) -> Result<(), Error> {
        if self.offering == Offering::Content {
            return Err(unexpected(&message));
        }
        match message {
            Message::Wanted { id } => {
                let mut offered = self.offered();
                let entry = offered.get_mut(&id).filter(|entry| entry.bytes <= MAX_INLINE as u64);
                let Some(file) = entry.and_then(|entry| entry.file.take()) else {
                    return Err(Error::Protocol(
                        "it requests the content of something that was not offered".to_owned(),
                    ));
                };
                // the reading thread ends only with the transfer
                let _ = wanted.send((id, file));
            }
            Message::Current { id } => {
                let entry = self.answered(id)?;
                let bytes = entry.bytes;
                self.counts.add(|counts| {
                    counts.unchanged += 1;
                    counts.kept += bytes;
                });
                if let Some(hash) = &entry.hash {
                    self.observer.event(Event::Hashed { path: &entry.path, bytes, hash });
                }
                self.observer.event(Event::Kept { bytes });
            }
            Message::Planned { id, bytes, new } => {
                let entry = self.answered(id)?;
                self.counts.add(|counts| {
                    counts.stored += 1;
                    counts.moved = counts.moved.saturating_add(bytes);
                });
                self.observer.event(Event::Planned { path: &entry.path, bytes, new });
            }
            Message::Removed { path } => {
                self.counts.add(|counts| counts.removed += 1);
                self.observer.event(Event::Removed { path: &path });
            }
            Message::Left { reason, failed: true, code } => {
                let reason = from_peer(self.connection.side(), &reason);
                self.failed(&Failure { reason, code });
            }
            Message::Left { reason, failed: false, .. } => {
                let reason = from_peer(self.connection.side(), &reason);
                self.observer.event(Event::LeftOut { reason: &reason });
            }
            other => return Err(unexpected(&other)),
        }
        Ok(())
    }

    /// Sends one file's content.
    fn send_content(
        &self,
        id: u64,
        file: &SourceFile,
        outgoing: &mut Outgoing,
    ) -> Result<(), Ended> {
        let message = match content(file, Size::AsOffered, self.tree.changing) {
            Ok((inline, warning)) => {
                if let Some(remark) = warning.and_then(|text| self.warn(text)) {
                    outgoing.send(remark, Instant::now())?;
                }
                let bytes = inline.content.len() as u64;
                outgoing.take_turn(inline.content.len(), self.limits(), &self.stop)?;
                self.counts.add(|counts| counts.moved += bytes);
                self.observer.event(Event::Moved { bytes });
                let path = self.offered().get(&id).map(|entry| entry.path.clone());
                if let Some(path) = path {
                    let hash = &inline.root;
                    self.observer.event(Event::Hashed { path: &path, bytes, hash });
                }
                Message::Content { id, inline }
            }
            Err(failure) => {
                let entry = self.offered().remove(&id);
                self.failed(&failure);
                let Failure { reason, code } = failure;
                outgoing.send(Message::Withdrawn { id, reason, code }, Instant::now())?;
                outgoing.flush()?;
                // released only now, so that the next entry follows this message
                drop(entry);
                return Ok(());
            }
        };
        outgoing.send(message, Instant::now())
    }
}
