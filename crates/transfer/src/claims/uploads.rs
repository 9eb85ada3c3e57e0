//! Uploads of one file over several sessions of one client: all sessions write into one partial
//! file, which belongs to the upload and not to a session.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard};

use headroom_mutex::lock;
use headroom_transfer_proto::message::{ANY_UPLOAD, Time, UPLOAD_BYTES};
use headroom_transfer_proto::path::RelPath;
use headroom_transfer_proto::span::Spans;

use super::{Claim, FileClaims, Slot};
use crate::connection::Connection;
use crate::error::Closing;
use crate::files::{MAX_REMEMBERED, Partial};

/// The most uploads of one client at once.
const MAX_UPLOADS: usize = 8;

/// Makes a session check again whether its ranges have arrived.
pub(crate) type Wake = Box<dyn Fn() + Send>;

/// The name of an upload.
pub(crate) type UploadName = [u8; UPLOAD_BYTES];

/// What the sessions of an upload agree on: the directory that the client sees, the file's name in
/// it, its size in bytes, and when it was changed.
pub(crate) type UploadedFile<'a> = (&'a Path, &'a RelPath, u64, Time);

/// The uploads of a server.
#[derive(Debug, Clone, Default)]
pub(super) struct UploadTable(Arc<Mutex<Table>>);

#[derive(Debug, Default)]
struct Table {
    /// Sessions of the server, by the numbers of their connections.
    sessions: HashSet<usize>,
    uploads: HashMap<UploadName, Upload>,
    /// Sessions that have received ranges so far, each as often as it did.
    received: u64,
    /// Files of which a session begins whichever upload there is to be.
    beginning: HashSet<Slot>,
}

/// An upload. It ends when the file is stored, or with the last session that took part in it.
struct Upload {
    slot: Slot,
    mtime: Time,
    /// The transfer that began it.
    transfer: u64,
    partial: Arc<Partial>,
    /// Whether a session has received bytes that were there, or that another one was writing.
    overlaps: Arc<AtomicBool>,
    /// Dropped after the lock of `partial`, therefore declared after it.
    claim: Option<Claim>,
    /// Sessions that took part, and are open.
    sessions: HashSet<usize>,
    /// Those of them that receive ranges now.
    receivers: Vec<Receiver>,
}

/// A session that receives ranges.
struct Receiver {
    /// Tells it from an earlier part of the same session, which may end a little later.
    number: u64,
    connection: Connection,
    wake: Wake,
}

impl std::fmt::Debug for Upload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Upload").field("slot", &self.slot).finish_non_exhaustive()
    }
}

impl Upload {
    fn is_of(&self, slot: &Slot, size: u64, mtime: Time) -> bool {
        self.slot == *slot && self.partial.spans().size() == size && self.mtime == mtime
    }

    fn add(&mut self, number: u64, connection: &Connection, wake: Wake) {
        self.sessions.insert(connection.stable_id());
        self.receivers.push(Receiver { number, connection: connection.clone(), wake });
    }

    /// Makes all sessions check their ranges, but for the receiver of this number.
    fn wake_others(&self, number: u64) {
        let others = self.receivers.iter().filter(|other| other.number != number);
        others.for_each(|other| (other.wake)());
    }

    /// Returns the connections that receive ranges, but for this one.
    fn others(&self, own: &Connection) -> Others {
        let connections = self.receivers.iter().map(|receiver| receiver.connection.clone());
        Others(connections.filter(|other| other.stable_id() != own.stable_id()).collect())
    }
}

/// Connections that still receive ranges of a file whose upload has ended.
#[derive(Debug)]
pub(crate) struct Others(Vec<Connection>);

impl Others {
    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Closes them: they did not end by themselves.
    pub(crate) fn close(&self) {
        for other in &self.0 {
            other.close(Closing::Superseded, "");
        }
    }
}

impl UploadTable {
    fn lock(&self) -> MutexGuard<'_, Table> {
        lock(&self.0)
    }

    /// Notes a session, which may take part in uploads until this is dropped.
    pub(super) fn open(&self, connection: &Connection) -> OpenSession {
        let id = connection.stable_id();
        self.lock().sessions.insert(id);
        OpenSession { table: self.clone(), id }
    }
}

/// A session of the server, as long as it is open.
#[derive(Debug)]
pub(crate) struct OpenSession {
    table: UploadTable,
    id: usize,
}

impl Drop for OpenSession {
    fn drop(&mut self) {
        let mut table = self.table.lock();
        table.sessions.remove(&self.id);
        for upload in table.uploads.values_mut() {
            upload.sessions.remove(&self.id);
        }
        let ended = table.remove_all(|upload| upload.sessions.is_empty());
        // claims and locks are released without this lock
        drop(table);
        drop(ended);
    }
}

/// What a session finds that takes part in [`ANY_UPLOAD`] of a file.
pub(crate) enum FoundUpload {
    /// An upload, in which it takes part now.
    Upload(UploadName, Arc<Partial>, Receiving),
    /// None, and the right to begin one.
    Nothing(Beginning),
    /// None yet: another session of the client is about to begin one.
    Begins,
}

/// The right to begin the upload of a file, as long as this is held.
#[derive(Debug)]
pub(crate) struct Beginning {
    table: UploadTable,
    slot: Slot,
}

impl Drop for Beginning {
    fn drop(&mut self) {
        self.table.lock().beginning.remove(&self.slot);
    }
}

impl Table {
    /// Numbers a session that receives ranges.
    fn next_receiver(&mut self) -> u64 {
        self.received += 1;
        self.received
    }

    /// Returns the name of the upload of a file that has this name, or of [`ANY_UPLOAD`] of it.
    fn find(&self, name: UploadName, slot: &Slot, size: u64, mtime: Time) -> Option<UploadName> {
        let is_it = |(there, upload): &(&UploadName, &Upload)| {
            (name == ANY_UPLOAD || **there == name) && upload.is_of(slot, size, mtime)
        };
        self.uploads.iter().find(is_it).map(|(name, _)| *name)
    }

    /// Removes uploads, and returns them.
    fn remove_all(&mut self, is_it: impl Fn(&Upload) -> bool) -> Vec<Upload> {
        let named = self.uploads.iter().filter(|(_, upload)| is_it(upload));
        let names: Vec<UploadName> = named.map(|(name, _)| *name).collect();
        names.iter().filter_map(|name| self.uploads.remove(name)).collect()
    }
}

impl FileClaims {
    /// Checks whether the client may begin one more upload, of a file of this size in bytes.
    ///
    /// # Errors
    /// It has too many, or the file is too large; in words.
    pub(crate) fn may_begin_upload(&self, size: u64) -> Result<(), String> {
        self.may_begin(&self.all.uploads.lock(), size)
    }

    fn may_begin(&self, table: &Table, size: u64) -> Result<(), String> {
        if Spans::new(size).count() > MAX_REMEMBERED {
            return Err(format!(
                "it is larger than {} TiB, the limit of an upload in ranges: send it whole",
                MAX_REMEMBERED >> 20
            ));
        }
        let own = table.uploads.values().filter(|upload| upload.slot.2 == self.key).count();
        if own >= MAX_UPLOADS {
            return Err(format!(
                "{MAX_UPLOADS} other files of this client come in ranges: send this one whole"
            ));
        }
        Ok(())
    }

    /// Begins an upload with this name, into a partial file that keeps what it knows of spans.
    ///
    /// # Errors
    /// As those of [`Self::may_begin_upload`], or the session has ended; in words.
    pub(crate) fn begin_upload(
        &self,
        name: UploadName,
        (root, path, _, mtime): UploadedFile<'_>,
        (partial, claim): (Arc<Partial>, Option<Claim>),
        connection: &Connection,
        wake: Wake,
    ) -> Result<Receiving, String> {
        let mut table = self.all.uploads.lock();
        self.may_begin(&table, partial.spans().size())?;
        if !table.sessions.contains(&connection.stable_id()) {
            return Err("the session has ended".to_owned());
        }
        let overlaps = Arc::<AtomicBool>::default();
        let mut upload = Upload {
            slot: self.slot(root, path),
            mtime,
            transfer: self.transfer,
            partial,
            overlaps: Arc::clone(&overlaps),
            claim,
            sessions: HashSet::new(),
            receivers: Vec::new(),
        };
        let number = table.next_receiver();
        upload.add(number, connection, wake);
        table.uploads.insert(name, upload);
        drop(table);
        Ok(self.receiving(name, number, overlaps))
    }

    /// Takes part in an upload; `None` if there is none of this name for this file.
    pub(crate) fn join_upload(
        &self,
        name: UploadName,
        (root, path, size, mtime): UploadedFile<'_>,
        connection: &Connection,
        wake: Wake,
    ) -> Option<(UploadName, Arc<Partial>, Receiving)> {
        let mut table = self.all.uploads.lock();
        if !table.sessions.contains(&connection.stable_id()) {
            return None;
        }
        let name = table.find(name, &self.slot(root, path), size, mtime)?;
        let number = table.next_receiver();
        let upload = table.uploads.get_mut(&name)?;
        upload.add(number, connection, wake);
        let (partial, overlaps) = (Arc::clone(&upload.partial), Arc::clone(&upload.overlaps));
        drop(table);
        Some((name, partial, self.receiving(name, number, overlaps)))
    }

    /// Takes part in whichever upload of a file there is, or says who begins one.
    ///
    /// # Errors
    /// The session has ended; in words.
    pub(crate) fn join_any_upload(
        &self,
        file: UploadedFile<'_>,
        connection: &Connection,
        wake: Wake,
    ) -> Result<FoundUpload, String> {
        if let Some((name, partial, receiving)) =
            self.join_upload(ANY_UPLOAD, file, connection, wake)
        {
            return Ok(FoundUpload::Upload(name, partial, receiving));
        }
        let (root, path, size, mtime) = file;
        let slot = self.slot(root, path);
        let mut table = self.all.uploads.lock();
        if !table.sessions.contains(&connection.stable_id()) {
            return Err("the session has ended".to_owned());
        }
        // another session may just have begun it
        let is_begun = table.find(ANY_UPLOAD, &slot, size, mtime).is_some();
        if is_begun || !table.beginning.insert(slot.clone()) {
            return Ok(FoundUpload::Begins);
        }
        drop(table);
        Ok(FoundUpload::Nothing(Beginning { table: self.all.uploads.clone(), slot }))
    }

    fn receiving(&self, name: UploadName, number: u64, overlaps: Arc<AtomicBool>) -> Receiving {
        Receiving { table: self.all.uploads.clone(), name, number, overlaps }
    }

    /// Ends an upload, whose file is then stored; `None` as [`Self::join_upload`] says. When the
    /// partial file has one owner, no other session writes.
    pub(crate) fn end_upload(
        &self,
        name: UploadName,
        (root, path, size, mtime): UploadedFile<'_>,
        connection: &Connection,
    ) -> Option<(Arc<Partial>, Option<Claim>, Others)> {
        let mut table = self.all.uploads.lock();
        let name = table.find(name, &self.slot(root, path), size, mtime)?;
        let upload = table.uploads.remove(&name)?;
        drop(table);
        let others = upload.others(connection);
        // whoever stores the file next has to end this connection, and not the one that began
        upload.claim.iter().for_each(|claim| self.pass_on(claim, connection));
        Some((upload.partial, upload.claim, others))
    }

    /// Gives up uploads of a file that earlier transfers of this client have begun, because this one
    /// stores it. Returns the sessions that still have to release it.
    pub(crate) fn give_up_uploads(
        &self,
        root: &Path,
        path: &RelPath,
        connection: &Connection,
    ) -> Others {
        let slot = self.slot(root, path);
        let mut table = self.all.uploads.lock();
        let ended =
            table.remove_all(|upload| upload.slot == slot && upload.transfer < self.transfer);
        drop(table);
        Others(ended.iter().flat_map(|upload| upload.others(connection).0).collect())
    }
}

/// A session's part in an upload, shared by all that write for it: when it is dropped, nothing is
/// being written for the session, and the others look whether their ranges are here.
#[derive(Debug)]
pub(crate) struct Receiving {
    table: UploadTable,
    name: UploadName,
    number: u64,
    overlaps: Arc<AtomicBool>,
}

impl Receiving {
    /// Notes that of `len` bytes that arrived, `new` were written. The others were there, or another
    /// session was writing them: a range whose last bytes are such is complete only when that
    /// session has written them. So from then on every write makes the other sessions check.
    pub(crate) fn wrote(&self, len: u64, new: u64) {
        if new < len {
            self.overlaps.store(true, SeqCst);
        }
        // what was written counts before this is read, and who overlaps checks after it has set it
        if self.overlaps.load(SeqCst)
            && let Some(upload) = self.table.lock().uploads.get(&self.name)
        {
            upload.wake_others(self.number);
        }
    }
}

impl Drop for Receiving {
    fn drop(&mut self) {
        let mut table = self.table.lock();
        if let Some(upload) = table.uploads.get_mut(&self.name) {
            upload.receivers.retain(|other| other.number != self.number);
            upload.wake_others(self.number);
        }
    }
}
