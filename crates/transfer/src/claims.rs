//! Tracks which connection stores which file, so that a client that reconnects takes over the
//! files of its former connection.

mod uploads;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use headroom_mutex::lock;
use headroom_transfer_proto::path::RelPath;

pub(crate) use self::uploads::{FoundUpload, Others, Receiving, Wake};
use self::uploads::{OpenSession, UploadTable};
use crate::connection::Connection;
use crate::error::Closing;
use crate::key::PublicKey;

type Slot = (PathBuf, RelPath, PublicKey);

/// The claims of a server, from the view of one transfer.
#[derive(Debug, Clone)]
pub(crate) struct FileClaims {
    all: ClaimTable,
    key: PublicKey,
    /// The transfer's number; later ones have larger numbers.
    transfer: u64,
}

/// The claims of a server, and the uploads that several sessions share.
#[derive(Debug, Clone, Default)]
pub(crate) struct ClaimTable {
    claims: Arc<Mutex<Table>>,
    uploads: UploadTable,
}

#[derive(Debug, Default)]
struct Table {
    /// The claims of each file: those of one that has it, and of others that wait until it is
    /// released.
    holders: HashMap<Slot, Vec<Holder>>,
    /// Claims made so far, which numbers them.
    made: u64,
    /// Transfers begun so far.
    transfers: u64,
}

#[derive(Debug)]
struct Holder {
    claim: u64,
    transfer: u64,
    connection: Connection,
}

impl ClaimTable {
    /// Begins a transfer by the holder of this key.
    pub(crate) fn of(&self, key: PublicKey) -> FileClaims {
        let mut table = self.lock();
        table.transfers += 1;
        FileClaims { all: self.clone(), key, transfer: table.transfers }
    }

    /// Notes a session, which may share uploads until this is dropped.
    pub(crate) fn open_session(&self, connection: &Connection) -> OpenSession {
        self.uploads.open(connection)
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        lock(&self.claims)
    }
}

impl FileClaims {
    fn slot(&self, root: &Path, path: &RelPath) -> Slot {
        (root.to_owned(), path.clone(), self.key)
    }

    /// Claims a file for this connection, as long as the claim is held. Other connections of the
    /// same client that have the file or wait for it are closed, unless a transfer that began later
    /// than this one claims it, too: what a dead client has left to be read must not end its
    /// successor.
    pub(crate) fn claim(&self, root: &Path, path: &RelPath, connection: &Connection) -> Claim {
        let slot = self.slot(root, path);
        let mut table = self.all.lock();
        table.made += 1;
        let number = table.made;
        let holders = table.holders.entry(slot.clone()).or_default();
        let is_newer = holders.iter().any(|it| it.transfer > self.transfer);
        let is_former =
            |it: &&Holder| !is_newer && it.connection.stable_id() != connection.stable_id();
        let former: Vec<Connection> =
            holders.iter().filter(is_former).map(|it| it.connection.clone()).collect();
        let connection = connection.clone();
        holders.push(Holder { claim: number, transfer: self.transfer, connection });
        drop(table);
        for former in &former {
            former.close(Closing::Superseded, "");
        }
        Claim { all: self.all.clone(), slot, number, supersedes: !former.is_empty() }
    }

    /// Passes a claim on to this connection, which has the file from now on.
    fn pass_on(&self, claim: &Claim, connection: &Connection) {
        let mut table = self.all.lock();
        let holders = table.holders.get_mut(&claim.slot).into_iter().flatten();
        for holder in holders.filter(|it| it.claim == claim.number) {
            holder.transfer = self.transfer;
            holder.connection = connection.clone();
        }
    }
}

/// The right of a connection to store a file. It is made before the file is locked and dropped
/// after the lock is released: whoever finds the lock taken also finds the claim.
#[derive(Debug)]
pub(crate) struct Claim {
    all: ClaimTable,
    slot: Slot,
    number: u64,
    supersedes: bool,
}

impl Claim {
    /// Whether another connection had it and will release the file.
    pub(crate) fn supersedes(&self) -> bool {
        self.supersedes
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut table = self.all.lock();
        if let Some(holders) = table.holders.get_mut(&self.slot) {
            holders.retain(|it| it.claim != self.number);
            if holders.is_empty() {
                table.holders.remove(&self.slot);
            }
        }
    }
}
