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
                    files += u64::from(matches!(kind, Kind::File(_)));
                    self.offer(path, kind).map(|octets| bytes += octets)
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

    /// Offers something, and returns how many bytes it has.
    fn offer(&mut self, path: RelPath, kind: Kind) -> Result<u64, Ended> {
        let mut octets = 0;
        let mut open = None;
        let kind = match kind {
            Kind::Directory(seen) => Sent::Directory { mode: seen.mode, mtime: seen.mtime },
            Kind::Symlink { target } => Sent::Symlink { target },
            Kind::File(file) => {
                let seen = *file.seen();
                octets = seen.size;
                let mut hash = None;
                let inline = if self.shared.offering != Offering::Content {
                    if self.shared.offering == Offering::Hash {
                        match whole_hash(&file) {
                            Ok(whole) => hash = Some(whole),
                            Err(reason) => return self.unreadable(reason).map(|()| 0),
                        }
                    }
                    open = Some((file, None));
                    None
                } else if octets <= MOST_INLINE as u64 {
                    match content(&file, Size::AsRead) {
                        Ok(inline) => {
                            octets = inline.content.len() as u64;
                            let take = self.shared.pace.take(inline.content.len());
                            tokio::runtime::Handle::current().block_on(take);
                            Some(inline)
                        }
                        Err(reason) => return self.unreadable(reason).map(|()| 0),
                    }
                } else {
                    self.shared.lanes.iter().for_each(|lane| lane.start(None));
                    let room = room(&self.shared.open_files)?;
                    open = Some((file, Some(room)));
                    None
                };
                self.shared.observer.event(Event::Offered { octets });
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
        Ok(octets)
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

/// How many bytes a small file has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Size {
    /// Those that can be read: files of `/proc` say that they have none.
    AsRead,
    /// Those that were offered.
    AsOffered,
}

/// Reads a small file's content, of one state of it.
pub(super) fn content(file: &SourceFile, size: Size) -> Result<Inline, String> {
    let read = || {
        let reader = file.open()?;
        let content = reader.read_to_end(MOST_INLINE + 1)?;
        Ok::<_, files::Error>((content, reader.is_unchanged()?))
    };
    let (content, is_unchanged) = read().map_err(|error| error.to_string())?;
    let is_whole = match size {
        Size::AsRead => content.len() <= MOST_INLINE,
        Size::AsOffered => content.len() as u64 == file.seen().size,
    };
    match is_unchanged {
        false => Err(changed(file.path())),
        true if !is_whole => Err(format!(
            "{} was not sent: it has other bytes than its size of {} says; send what can be read from it with `put -`",
            file.path(),
            file.seen().size
        )),
        true => Ok(Inline { root: *blake3::hash(&content).as_bytes(), content }),
    }
}

/// Waits on a thread of its own until there is room.
fn room(semaphore: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit, Ended> {
    let room = Arc::clone(semaphore).acquire_owned();
    tokio::runtime::Handle::current().block_on(room).map_err(|_| Ended)
}
