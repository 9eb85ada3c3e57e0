//! Walks what is to be sent, and offers it.

use std::sync::Arc;

use headroom_transfer_proto::message::{Inline, Kind as Sent, MOST_INLINE, Message};
use headroom_transfer_proto::path::RelPath;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use super::opened::changed;
use super::{Event, Offered, Offering, Shared};
use crate::files::{self, Found, Kind, Source, SourceFile};

/// On its way through what is to be sent.
pub(super) struct Walk {
    pub(super) shared: Arc<Shared>,
    pub(super) say: mpsc::Sender<Message>,
    pub(super) id: u64,
}

/// The delivery has ended; there is nobody to offer to.
struct Ended;

impl Walk {
    /// The number of the next entry.
    pub(super) fn run(mut self, source: Source) -> u64 {
        let (mut files, mut bytes) = (0, 0);
        for found in source {
            let offered = match found {
                Ok(Found { path, kind }) => {
                    if let Kind::File(file) = &kind {
                        files += 1;
                        bytes += file.seen().size;
                    }
                    self.offer(path, kind)
                }
                Err(error) if error.is_remark() => {
                    let reason = error.to_string();
                    self.shared.observer.event(Event::LeftOut { reason: &reason });
                    match error.name().filter(|_| self.shared.offering != Offering::Content) {
                        Some(path) => self.say(Message::Passed { path: path.clone() }),
                        None => Ok(()),
                    }
                }
                Err(error) => self.unreadable(error.to_string()),
            };
            if offered.is_err() {
                return self.id;
            }
        }
        self.shared.observer.event(Event::AllOffered { files, octets: bytes });
        let _ = self.say(Message::EntriesEnd { files, bytes });
        self.id
    }

    fn offer(&mut self, path: RelPath, kind: Kind) -> Result<(), Ended> {
        let mut octets = 0;
        let mut open = None;
        let kind = match kind {
            Kind::Directory(seen) => Sent::Directory { mode: seen.mode, mtime: seen.mtime },
            Kind::Symlink { target } => Sent::Symlink { target },
            Kind::File(file) => {
                let seen = *file.seen();
                octets = seen.size;
                self.shared.observer.event(Event::Offered { octets });
                let mut hash = None;
                let inline = if self.shared.offering != Offering::Content {
                    if self.shared.offering == Offering::Hash {
                        match whole_hash(&file) {
                            Ok(whole) => hash = Some(whole),
                            Err(reason) => return self.unreadable(reason),
                        }
                    }
                    open = Some((file, None));
                    None
                } else if octets <= MOST_INLINE as u64 {
                    match content(&file) {
                        Ok(inline) => {
                            let take = self.shared.pace.take(inline.content.len());
                            tokio::runtime::Handle::current().block_on(take);
                            Some(inline)
                        }
                        Err(reason) => return self.unreadable(reason),
                    }
                } else {
                    self.shared.lanes.iter().for_each(|lane| lane.start(None));
                    let room = room(&self.shared.open_files)?;
                    open = Some((file, Some(room)));
                    None
                };
                Sent::File { size: octets, mode: seen.mode, mtime: seen.mtime, inline, hash }
            }
        };
        let unanswered = room(&self.shared.unanswered)?;
        let (file, open_room) = open.unzip();
        let is_inline = file.is_none() && octets > 0;
        let offered = Offered {
            path: path.clone(),
            octets,
            file,
            held: Vec::new(),
            opened: None,
            room: (unanswered, open_room.flatten()),
        };
        self.shared.offered().insert(self.id, offered);
        self.say(Message::Entry { id: self.id, path, kind })?;
        self.id += 1;
        if is_inline {
            self.shared.counts.add(|counts| counts.moved += octets);
            self.shared.observer.event(Event::Moved { octets });
        }
        Ok(())
    }

    fn unreadable(&self, reason: String) -> Result<(), Ended> {
        self.shared.failed(&reason);
        self.say(Message::Unreadable { reason })
    }

    fn say(&self, message: Message) -> Result<(), Ended> {
        self.say.blocking_send(message).map_err(|_| Ended)
    }
}

/// A file's hash, of one state of it.
fn whole_hash(file: &SourceFile) -> Result<[u8; 32], String> {
    let read = || {
        let reader = file.open()?;
        let hash = reader.hash()?;
        Ok::<_, files::Error>((hash, reader.is_unchanged()?))
    };
    match read().map_err(|error| error.to_string())? {
        (hash, true) => Ok(*hash.as_bytes()),
        (_, false) => Err(changed(file.path())),
    }
}

/// A small file's content, of one state of it.
pub(super) fn content(file: &SourceFile) -> Result<Inline, String> {
    let read = || {
        let reader = file.open()?;
        let mut content = vec![0; usize::try_from(reader.size()).unwrap_or(0)];
        reader.read_at(0, &mut content)?;
        Ok::<_, files::Error>((content, reader.is_unchanged()?))
    };
    match read().map_err(|error| error.to_string())? {
        (content, true) => Ok(Inline { root: *blake3::hash(&content).as_bytes(), content }),
        (_, false) => Err(changed(file.path())),
    }
}

/// Waits on a thread of its own until there is room.
fn room(semaphore: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit, Ended> {
    let room = Arc::clone(semaphore).acquire_owned();
    tokio::runtime::Handle::current().block_on(room).map_err(|_| Ended)
}
