//! Shares: links, each of which lets its holder fetch one path, or send into it, until a time or a
//! number of uses. They are kept in a file; of their secrets only hashes are.

mod file;
mod share;
#[cfg(test)]
mod tests;

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{SHA256, digest};
use data_encoding::BASE32_NOPAD;
use headroom_file_lock::LockedFile;
use headroom_mutex::lock;
use headroom_transfer_proto::path::RelPath;

pub use self::file::root_name;
pub use self::share::Share;
use self::share::{note, now};
use super::error::Error;
use crate::key::PublicKey;

/// The most shares of a server.
pub(crate) const MAX_SHARES: usize = 256;
/// The most shares of one key, so that none takes the places of all others.
pub(crate) const MAX_OF_ONE: usize = 64;
/// The most browsers that are counted for a share.
pub(crate) const MAX_USES: u32 = 100;
/// The longest time that a share is open.
pub(crate) const LONGEST: Duration = Duration::from_secs(366 * 24 * 3600);

/// The shares of a server, and the file that keeps them.
#[derive(Debug)]
pub struct Shares {
    path: PathBuf,
    /// Locked as long as this server uses the file.
    _lock: LockedFile,
    list: Mutex<Vec<Arc<Share>>>,
}

/// What a new share allows.
#[derive(Debug, Clone)]
pub struct NewShare {
    /// The key that makes it.
    pub by: PublicKey,
    /// The file or directory below the server's root; `None` is the root.
    pub path: Option<RelPath>,
    /// Whether that is a file.
    pub is_file: bool,
    /// Whether its holder may only send files; otherwise only fetch.
    pub write: bool,
    /// How long it is open.
    pub open_for: Duration,
    /// The most browsers that may use it.
    pub uses: Option<u32>,
    /// A note for people.
    pub name: String,
}

/// A share that was made, and its secret.
pub type NewLink = (Arc<Share>, [u8; 32]);

/// Why a share cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unusable {
    /// It has expired, was revoked, or never was.
    Ended,
    /// Other browsers have used it as often as it may be.
    Used,
}

impl Shares {
    /// Makes a share, and returns its secret, which is stored nowhere else. `None`: there are too
    /// many.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn make(&self, new: NewShare) -> Result<Option<NewLink>, Error> {
        let (mut secret, mut id) = ([0; 32], [0; 5]);
        let filled = aws_lc_rs::rand::fill(&mut secret).and(aws_lc_rs::rand::fill(&mut id));
        filled.map_err(|_| self.system(io::Error::other("no randomness")))?;
        let created = now();
        let share = Share {
            id: BASE32_NOPAD.encode(&id).to_ascii_lowercase(),
            hash: hash(&secret),
            by: new.by,
            path: new.path,
            is_file: new.is_file,
            write: new.write,
            created,
            expires: created + new.open_for.min(LONGEST).as_secs(),
            uses: new.uses.map(|uses| uses.clamp(1, MAX_USES)),
            name: note(&new.name),
            used: Vec::new(),
        };
        let mut list = self.lock();
        let mut next: Vec<_> = list.iter().filter(|it| it.expires > created).cloned().collect();
        let of_one = next.iter().filter(|it| it.by == share.by).count();
        if next.len() >= MAX_SHARES || of_one >= MAX_OF_ONE {
            return Ok(None);
        }
        let share = Arc::new(share);
        next.push(Arc::clone(&share));
        self.replace(&mut list, next)?;
        Ok(Some((share, secret)))
    }

    /// Returns the share with this secret, if this key may use it.
    pub(crate) fn find(&self, secret: &[u8; 32], key: &PublicKey) -> Result<Arc<Share>, Unusable> {
        let (hash, now) = (hash(secret), now());
        let list = self.lock();
        let found = list.iter().find(|it| verify_slices_are_equal(&it.hash, &hash).is_ok());
        let share = found.filter(|it| it.expires > now).ok_or(Unusable::Ended)?;
        if share.is_used_up_for(key) { Err(Unusable::Used) } else { Ok(Arc::clone(share)) }
    }

    /// Whether a share is still open.
    pub(crate) fn is_open(&self, id: &str) -> bool {
        let now = now();
        self.lock().iter().any(|it| it.id == id && it.expires > now)
    }

    /// Counts the holder of a key as one use of a share, once. The count is on the disk before this
    /// returns.
    ///
    /// # Errors
    /// The outer one if the file cannot be written.
    pub(crate) fn claim(&self, id: &str, key: &PublicKey) -> Result<Result<(), Unusable>, Error> {
        let now = now();
        let mut list = self.lock();
        let Some(at) = list.iter().position(|it| it.id == id && it.expires > now) else {
            return Ok(Err(Unusable::Ended));
        };
        let share = &list[at];
        if share.used.contains(key) {
            return Ok(Ok(()));
        }
        if share.is_used_up_for(key) {
            return Ok(Err(Unusable::Used));
        }
        if share.used.len() >= MAX_USES as usize {
            // any number may use it; these are not counted
            return Ok(Ok(()));
        }
        let mut used = Share::clone(share);
        used.used.push(*key);
        let mut next = list.clone();
        next[at] = Arc::new(used);
        self.replace(&mut list, next)?;
        Ok(Ok(()))
    }

    /// Removes a share; only of this maker, if one is named. Returns whether there was one.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn revoke(&self, id: &str, by: Option<&PublicKey>) -> Result<bool, Error> {
        let mut list = self.lock();
        let is_it = |it: &Arc<Share>| it.id == id && by.is_none_or(|by| it.by == *by);
        let next: Vec<_> = list.iter().filter(|it| !is_it(it)).cloned().collect();
        let was_there = next.len() < list.len();
        if was_there {
            self.replace(&mut list, next)?;
        }
        Ok(was_there)
    }

    /// Returns the open shares; only of this maker, if one is named.
    pub fn list(&self, by: Option<&PublicKey>) -> Vec<Arc<Share>> {
        let now = now();
        let list = self.lock();
        let open = list.iter().filter(|it| it.expires > now);
        open.filter(|it| by.is_none_or(|by| it.by == *by)).cloned().collect()
    }

    /// Writes a new list, and uses it once it is on the disk.
    fn replace(
        &self,
        list: &mut MutexGuard<'_, Vec<Arc<Share>>>,
        next: Vec<Arc<Share>>,
    ) -> Result<(), Error> {
        self.write(&next).map_err(|cause| self.system(cause))?;
        **list = next;
        Ok(())
    }

    fn system(&self, cause: io::Error) -> Error {
        Error::System { doing: "write", path: self.path.clone(), cause }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Share>>> {
        lock(&self.list)
    }

    #[cfg(test)]
    fn expire(&self, id: &str) {
        for share in &mut *self.lock() {
            if share.id == id {
                Arc::make_mut(share).expires = now();
            }
        }
    }
}

fn hash(secret: &[u8; 32]) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes.copy_from_slice(digest(&SHA256, secret).as_ref());
    bytes
}
