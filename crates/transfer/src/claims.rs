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
pub(crate) struct All(Arc<Mutex<Table>>);

#[derive(Debug, Default)]
struct Table {
    holders: HashMap<Slot, (u64, Connection)>,
    /// Claims made so far: each has a number.
    made: u64,
}

impl All {
    /// As the holder of this key sees them.
    pub(crate) fn of(&self, key: PublicKey) -> Claims {
        Claims { all: self.clone(), key }
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Claims {
    /// This connection stores the file, for as long as the claim is held. The
    /// client's other connection that has the claim, if there is one, is told to end.
    pub(crate) fn claim(&self, root: &Path, path: &RelPath, connection: &Connection) -> Claim {
        let slot = (root.to_owned(), path.clone(), self.key);
        let mut table = self.all.lock();
        table.made += 1;
        let number = table.made;
        let former = table.holders.get(&slot).map(|(_, holder)| holder.clone());
        let is_own = former.as_ref().is_some_and(|it| it.stable_id() == connection.stable_id());
        if !is_own {
            table.holders.insert(slot.clone(), (number, connection.clone()));
        }
        drop(table);
        let former = former.filter(|_| !is_own);
        if let Some(former) = &former {
            former.close(Closing::Superseded.into(), b"");
        }
        Claim { all: self.all.clone(), slot, number, supersedes: former.is_some() }
    }
}

/// That a connection stores a file. It is made before the file is locked, and must
/// be dropped after the lock: who finds the lock taken finds the claim.
#[derive(Debug)]
pub(crate) struct Claim {
    all: All,
    slot: Slot,
    number: u64,
    supersedes: bool,
}

impl Claim {
    /// Whether another connection had it, and will let the file go.
    pub(crate) fn supersedes(&self) -> bool {
        self.supersedes
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut table = self.all.lock();
        // a newer connection may have taken it over
        if table.holders.get(&self.slot).is_some_and(|(number, _)| *number == self.number) {
            table.holders.remove(&self.slot);
        }
    }
}
