//! Which connection stores which file, so that a client that comes again takes
//! over what its former connection still holds.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use headroom_transfer_proto::path::RelPath;
use quinn::Connection;

use crate::error::Closing;
use crate::key::PublicKey;

type Slot = (PathBuf, RelPath, PublicKey);

/// The claims of a server, as one client sees them.
#[derive(Debug, Clone)]
pub(crate) struct Claims {
    all: All,
    key: PublicKey,
}

/// The claims of a server.
#[derive(Debug, Clone, Default)]
pub(crate) struct All(Arc<Mutex<HashMap<Slot, Connection>>>);

impl All {
    /// As the holder of this key sees them.
    pub(crate) fn of(&self, key: PublicKey) -> Claims {
        Claims { all: self.clone(), key }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Slot, Connection>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Claims {
    /// This connection stores the file.
    pub(crate) fn claim(&self, root: &Path, path: &RelPath, connection: &Connection) {
        self.all.lock().insert(self.slot(root, path), connection.clone());
    }

    /// It does not any longer.
    pub(crate) fn release(&self, root: &Path, path: &RelPath, connection: &Connection) {
        let slot = self.slot(root, path);
        let mut all = self.all.lock();
        if all.get(&slot).is_some_and(|holder| holder.stable_id() == connection.stable_id()) {
            all.remove(&slot);
        }
    }

    /// Ends the client's other connection that stores the file, if there is one.
    pub(crate) fn supersede(&self, root: &Path, path: &RelPath, by: &Connection) -> bool {
        let holder = self.all.lock().get(&self.slot(root, path)).cloned();
        match holder {
            Some(holder) if holder.stable_id() != by.stable_id() => {
                holder.close(Closing::Superseded.into(), b"");
                true
            }
            _ => false,
        }
    }

    fn slot(&self, root: &Path, path: &RelPath) -> Slot {
        (root.to_owned(), path.clone(), self.key)
    }
}
