//! Stores what the sender offers: directories, links and small files at once, larger files when
//! their content has arrived.

use std::sync::atomic::Ordering::SeqCst;

use headroom_transfer_proto::message::{
    Attributes, EntryKind, Inline, Links, MAX_OPEN_FILES, Message, Time,
};
use headroom_transfer_proto::path::RelPath;

use super::lanes::Lanes;
use super::worker::{Directory, File, Worker, seal};
use crate::delivery::event::Event;
use crate::error::Error;
use crate::files::{self, Offer};

/// The most bytes of names of directories that wait for their mode and time. Further ones get
/// them at once, and then have the time at which something was last put into them.
const MAX_DIRECTORY_BYTES: usize = 16 << 20;

impl Worker {
    pub(super) fn entry(&mut self, id: u64, path: RelPath, kind: EntryKind) -> Result<(), Error> {
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

    pub(super) fn seal(&self, directory: &Directory) -> Result<(), files::Error> {
        let Directory { path, mode, mtime, attributes } = directory;
        let root = &self.destination.root;
        root.seal_directory(path, *mode, *mtime, self.fsync, attributes.as_deref())
    }
}
