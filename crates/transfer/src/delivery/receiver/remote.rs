//! Stores files where each operation waits for another machine: many at once.

use std::time::Duration;

use headroom_transfer_proto::message::{ANY_UPLOAD, EntryKind, Inline, Links, PartsRequest, Time};
use headroom_transfer_proto::path::RelPath;

use super::in_flight::Done;
use super::opening::Begun;
use super::worker::{File, Worker, seal};
use crate::connection::Connection;
use crate::delivery::event::Event;
use crate::error::Error;
use crate::files::{self, ErrorKind, Offer, Partial, PartialRole, Root};

/// How often, and how many times, to retry a file that another server receives. One that was killed
/// is known to be dead after a minute.
const HANDOVER: (Duration, u32) = (Duration::from_secs(1), 65);

impl Worker {
    /// Whether each operation waits for another machine.
    pub(super) fn is_remote(&self) -> bool {
        self.destination.root.is_remote()
    }

    /// Handles work that is done.
    pub(super) fn take_done(&mut self) -> Result<(), Error> {
        while let Some(done) = self.in_flight.take() {
            done(self)?;
        }
        Ok(())
    }

    /// Runs work on another thread, as soon as less is in flight than may be.
    fn later(&mut self, work: impl FnOnce() -> Done<Self> + Send + 'static) -> Result<(), Error> {
        while self.in_flight.is_full() {
            self.answers.flush();
            let Some(done) = self.in_flight.wait() else { break };
            done(self)?;
        }
        self.in_flight.run(work);
        Ok(())
    }

    /// Stores a small file.
    pub(super) fn store_small_later(
        &mut self,
        id: u64,
        path: &RelPath,
        inline: Inline,
        (mode, mtime): (u32, Time),
    ) -> Result<(), Error> {
        let (root, path) = (self.destination.root.clone(), path.clone());
        let seal = seal(inline.root, mode, mtime, self.fsync);
        let bytes = inline.content.len() as u64;
        self.shared.counts.add(|counts| counts.moved += bytes);
        self.shared.observer.event(Event::Moved { bytes });
        self.later(move || {
            let stored = root.store(&path, &inline.content, &seal);
            Box::new(move |worker: &mut Self| {
                match stored {
                    Ok(_) => {
                        let hash = &inline.root;
                        worker.shared.observer.event(Event::Hashed { path: &path, bytes, hash });
                        worker.stored(id, &path);
                    }
                    Err(error) => worker.failed(id, error),
                }
                Ok(())
            })
        })
    }

    /// Opens a large file for receiving.
    pub(super) fn begin_later(
        &mut self,
        id: u64,
        path: &RelPath,
        offer: Offer,
        mode: u32,
    ) -> Result<(), Error> {
        let (root, path) = (self.destination.root.clone(), path.clone());
        let connection = self.connection.clone();
        let parts = self.parts;
        // other servers store parts of it, too
        let claims = self.claims.as_ref().filter(|_| !self.receives_parts());
        let claim = claims.map(|claims| claims.claim(root.path(), &path, &connection));
        self.in_flight.files += 1;
        self.later(move || {
            let begun = begin(&root, &path, &offer, mode, (&connection, parts));
            Box::new(move |worker: &mut Self| {
                worker.in_flight.files -= 1;
                let begun = begun.and_then(|partial| {
                    if worker.receives_parts()
                        && let Some(upload) = partial.upload()
                    {
                        worker.parts_begun(id, upload, &partial);
                    }
                    worker.have(id, Begun { partial, claim })
                });
                match begun {
                    Ok(incoming) => {
                        worker.shared.observer.event(Event::Begun { path: &path });
                        let file = File {
                            incoming,
                            mode,
                            mtime: offer.mtime,
                            attributes: None,
                            sealed: None,
                            holes: 0,
                            described: 0,
                            copied: 0,
                        };
                        worker.files.insert(id, file);
                    }
                    Err(error) => worker.failed(id, error),
                }
                Ok(())
            })
        })
    }

    /// Verifies a file that has arrived, and gives it its name.
    pub(super) fn finish_later(&mut self, id: u64, root: [u8; 32]) {
        let Some(File { incoming, mode, mtime, .. }) = self.close(id) else { return };
        let seal = seal(root, mode, mtime, self.fsync);
        self.in_flight.files += 1;
        self.in_flight.run(move || {
            let finished = incoming.partial.finish(&seal);
            Box::new(move |worker: &mut Self| {
                worker.in_flight.files -= 1;
                let size = incoming.partial.spans().size();
                let kept = size.saturating_sub(incoming.partial.came());
                let path = incoming.partial.path();
                match finished {
                    Ok(_) => {
                        let (shared, hash) = (&worker.shared, &root);
                        if kept > 0 {
                            shared.counts.add(|counts| counts.kept += kept);
                            shared.observer.event(Event::Kept { bytes: kept });
                        }
                        shared.observer.event(Event::Hashed { path, bytes: size, hash });
                        worker.stored(id, path);
                    }
                    Err(error) => worker.failed(id, error),
                }
                Ok(())
            })
        });
    }

    /// Makes a directory. What is in it may be stored before, and finds out for itself if something
    /// else has the name.
    pub(super) fn make_directory_later(
        &mut self,
        id: u64,
        path: &RelPath,
        (mode, mtime): (u32, Time),
    ) -> Result<(), Error> {
        let (root, path) = (self.destination.root.clone(), path.clone());
        let making = match root.expect_directory(&path) {
            Ok(making) => making,
            Err(error) => {
                self.failed_directories.add(&path);
                self.failed(id, error);
                return Ok(());
            }
        };
        self.later(move || {
            let made = root.make_sealed_directory(&path, mode, mtime);
            drop(making);
            Box::new(move |worker: &mut Self| {
                match made {
                    Ok(()) => worker.stored(id, &path),
                    Err(error) => {
                        worker.failed_directories.add(&path);
                        worker.failed(id, error);
                    }
                }
                Ok(())
            })
        })
    }

    /// Makes a symbolic link.
    pub(super) fn make_symlink_later(
        &mut self,
        id: u64,
        path: &RelPath,
        target: Vec<u8>,
        mtime: Option<Time>,
    ) -> Result<(), Error> {
        let (root, path) = (self.destination.root.clone(), path.clone());
        let confined = self.tree.links != Links::Keep;
        self.later(move || {
            let made = root.make_sealed_symlink(&path, &target, mtime, confined);
            Box::new(move |worker: &mut Self| {
                match made {
                    Ok(_) => worker.stored(id, &path),
                    Err(error) => worker.failed(id, error),
                }
                Ok(())
            })
        })
    }

    /// Sets the time of a symbolic link that is up to date otherwise.
    pub(super) fn seal_symlink_later(
        &mut self,
        path: &RelPath,
        mtime: Option<Time>,
    ) -> Result<(), Error> {
        let (root, path) = (self.destination.root.clone(), path.clone());
        self.later(move || {
            // its owner may have set another time since
            let _ = root.seal_symlink(&path, mtime, None);
            Box::new(|_: &mut Self| Ok(()))
        })
    }

    /// Compares an entry of a sync with what is here.
    pub(super) fn compare_later(
        &mut self,
        id: u64,
        path: &RelPath,
        kind: EntryKind,
    ) -> Result<(), Error> {
        let (root, path) = (self.destination.root.clone(), path.clone());
        // what is in a directory is compared when it is known whether that is new. A name that it
        // cannot have fails when it is made
        let making = match kind {
            EntryKind::Directory { .. } => root.expect_directory(&path).ok().flatten(),
            _ => None,
        };
        self.later(move || {
            let status = Self::status(&root, &path, &kind);
            Box::new(move |worker: &mut Self| {
                let done = match worker.compared(id, &path, kind, status)? {
                    Some(kind) => worker.store(id, &path, kind),
                    None => Ok(()),
                };
                drop(making);
                done
            })
        })
    }

    /// Sets permissions and time of a file of a sync.
    pub(super) fn update_later(
        &mut self,
        id: u64,
        path: &RelPath,
        kind: EntryKind,
        (mode, mtime): (u32, Time),
    ) -> Result<(), Error> {
        let (root, path) = (self.destination.root.clone(), path.clone());
        self.later(move || {
            let updated = root.update_metadata(&path, mode, mtime, None);
            Box::new(move |worker: &mut Self| {
                match updated {
                    Ok(()) => worker.current(id, &kind),
                    Err(error) => worker.failed(id, error),
                }
                Ok(())
            })
        })
    }

    /// Sets mode and time of all directories.
    pub(super) fn seal_all(&mut self) -> Result<(), Error> {
        let fsync = self.fsync;
        for directory in std::mem::take(&mut self.directories) {
            let root = self.destination.root.clone();
            self.later(move || {
                let (path, mode, mtime) = (&directory.path, directory.mode, directory.mtime);
                let sealed = root.seal_directory(path, mode, mtime, fsync, None);
                Box::new(move |worker: &mut Self| {
                    if let Err(error) = sealed {
                        // its content is stored: that counts
                        let reason = error.to_string();
                        worker.shared.observer.event(Event::LeftOut { reason: &reason });
                    }
                    Ok(())
                })
            })?;
        }
        while let Some(done) = self.in_flight.wait() {
            done(self)?;
        }
        Ok(())
    }
}

/// Begins a file, if necessary when another server has ended.
fn begin(
    root: &Root,
    path: &RelPath,
    offer: &Offer,
    mode: u32,
    (connection, parts): (&Connection, Option<PartsRequest>),
) -> Result<Partial, files::Error> {
    let (pause, mut waits) = HANDOVER;
    if parts.is_some_and(|parts| parts.upload.is_some() && parts.completes != Some(true)) {
        // the server that has taken the upload over completes it; whichever upload there is, is
        // waited for below
        waits = 0;
    }
    loop {
        match begin_once(root, path, offer, mode, parts) {
            // an upload that is found may be taken over in the same moment
            Err(error)
                if matches!(error.kind(), ErrorKind::Busy | ErrorKind::UploadGone(_))
                    && waits > 0
                    && connection.close_reason().is_none() =>
            {
                waits -= 1;
                std::thread::sleep(pause);
            }
            begun => return begun,
        }
    }
}

fn begin_once(
    root: &Root,
    path: &RelPath,
    offer: &Offer,
    mode: u32,
    parts: Option<PartsRequest>,
) -> Result<Partial, files::Error> {
    let Some(PartsRequest { upload, completes, .. }) = parts else {
        return root.begin_as(path, offer, mode);
    };
    let role = match (upload, completes == Some(true)) {
        (None, true) => return root.begin_as(path, offer, mode),
        (Some(ANY_UPLOAD), true) => PartialRole::TakeOverAny,
        (Some(name), true) => PartialRole::TakeOver(name),
        (Some(ANY_UPLOAD), false) => PartialRole::JoinOrBegin,
        (Some(name), false) => PartialRole::Join(name),
        (None, false) => PartialRole::Begin,
    };
    let partial = root.begin_shared(path, offer, mode, role)?;
    partial.ok_or_else(|| files::Error::undivided(path))
}
