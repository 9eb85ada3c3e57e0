//! Uploads in parts that another process can continue.

mod abandoned;
mod begin;
mod completion;
mod conditions;
mod contributors;
mod holder;
mod keeper;
mod plan;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, mpsc};
use std::time::Duration;

use bytes::Bytes;
use headroom_mutex::lock;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::timeout;

pub(crate) use abandoned::abort_older;
pub(crate) use begin::begin;
pub(crate) use contributors::{find_released, join};

use crate::backend::FailureKind;
use crate::client::Client;
use crate::error::Error;
use crate::journal::StoredPart;
use crate::key::Key;
use crate::metadata::Metadata;
use crate::record;
use crate::version::{Condition, Version};
use keeper::Writer;
use plan::Plan;

/// The metadata by which an upload recognises its object.
const NONCE: &str = "headroom-upload";

/// How long a dropped upload waits for its journal.
const RELEASE: Duration = Duration::from_secs(10);

/// What is uploaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UploadOffer {
    /// Bytes of the object, at least 1.
    pub size: u64,
    /// What tells this content from another of the same name: only an upload with the same tag is
    /// continued.
    pub tag: [u8; 16],
    /// The user metadata of the object.
    pub metadata: Metadata,
}

/// An upload in parts, used by any number of threads.
///
/// Every part but the last has [`part_bytes`](Self::part_bytes), and parts are stored in any
/// order. Dropping it keeps the parts, and releases the journal, so that the next process can
/// resume at once. The drop waits for that at most 10 s. On a thread of a runtime, and after the
/// runtime's end, it does not wait.
pub struct Upload {
    inner: Arc<Inner>,
    keeper: JoinHandle<()>,
}

/// What the keeper of the journal shares.
struct Inner {
    client: Arc<Client>,
    key: Key,
    journal: Key,
    /// The store's name of the upload.
    upload: String,
    owner: String,
    nonce: String,
    /// That of the object, with the nonce; a contributor has none.
    metadata: Metadata,
    /// Of a contributor: the parts that the journal of the upload has.
    shared: Option<Vec<Option<StoredPart>>>,
    plan: Plan,
    parts: Mutex<Parts>,
    writer: tokio::sync::Mutex<Writer>,
}

/// The parts that are stored.
#[derive(Debug, Default)]
struct Parts {
    stored: Vec<Option<StoredPart>>,
    /// The journal does not have all of them.
    is_dirty: bool,
    /// Bytes of parts stored since the journal was written.
    since: u64,
    /// Bytes of all values.
    values: u64,
    /// Why nothing can be stored any more.
    lost: Option<Error>,
}

impl Upload {
    /// Bytes of each part but the last: a multiple of 1 MiB, at least 8 MiB.
    pub fn part_bytes(&self) -> u64 {
        self.inner.plan.part_bytes
    }

    /// How many parts there are: 1 to 10 000.
    pub fn parts(&self) -> u32 {
        self.inner.plan.parts
    }

    /// Bytes of the object.
    pub fn size(&self) -> u64 {
        self.inner.plan.size
    }

    /// The values of the spans of a part, counted from 0, that is stored: what was given to
    /// [`put_part`](Self::put_part), perhaps by another process.
    pub fn values(&self, part: u32) -> Option<Vec<[u8; 32]>> {
        let parts = self.inner.parts();
        let own = parts.stored.get(part as usize)?.as_ref();
        let shared = || self.inner.shared.as_ref()?.get(part as usize)?.as_ref();
        Some(record::apart(&own.or_else(shared)?.values))
    }

    /// Returns what names this upload to contributors ([`Store::join_upload`]).
    ///
    /// [`Store::join_upload`]: crate::Store::join_upload
    pub fn nonce(&self) -> [u8; 16] {
        // a journal with another nonce is damaged
        nonce_bytes(&self.inner.nonce).unwrap_or_default()
    }

    /// Writes the journal, and releases the upload: contributors may join it, and any server may
    /// take it over. This handle stores nothing afterwards.
    ///
    /// # Errors
    ///
    /// [`Error::Busy`]: another server has taken it over. Otherwise the store's.
    pub fn release(&self) -> Result<(), Error> {
        self.inner.client.wait(self.inner.release())
    }

    /// Stores a part, counted from 0, in place of what was stored for it before. `values` are
    /// those of its spans of 1 MiB, for [`values`](Self::values) and the record.
    ///
    /// # Errors
    ///
    /// [`Error::Misuse`]: no such part, another length or number of values. [`Error::Busy`]:
    /// another server has taken the upload over. [`Error::Gone`]: the store no longer has it.
    pub fn put_part(&self, part: u32, content: Bytes, values: Vec<[u8; 32]>) -> Result<(), Error> {
        let inner = &self.inner;
        inner.plan.check(part, content.len() as u64, values.len() as u64)?;
        let values = values.into_flattened();
        inner.client.wait(inner.put_part(part, content, values))
    }

    /// Makes the object of all parts, looks at what is stored, and writes its record. `root` is
    /// the BLAKE3 hash of the content.
    ///
    /// # Errors
    ///
    /// [`Error::Misuse`]: a part is missing, or the condition is an unknown version.
    /// [`Error::Changed`]: the condition is not met; parts and journal stay. [`Error::Gone`]: the
    /// store does not have the upload, or not all parts.
    pub fn complete(&self, root: [u8; 32], condition: Condition) -> Result<Version, Error> {
        condition.check(self.inner.key.as_str())?;
        let inner = &self.inner;
        inner.client.wait(async move { inner.complete(root, &condition).await })
    }

    /// Does what [`complete`](Self::complete) does in place of what has the name, of whatever
    /// version. A request that arrives late replaces nothing that was stored since.
    ///
    /// # Errors
    ///
    /// [`Error::Changed`]: others store it at the same time again and again; parts and journal
    /// stay. Otherwise as those of [`complete`](Self::complete).
    pub fn complete_over(&self, root: [u8; 32]) -> Result<Version, Error> {
        self.inner.client.wait(self.inner.replace(root))
    }

    /// Gives the upload up: the store forgets its parts, the journal goes. A contributor gives up
    /// what it has stored, and no other part.
    ///
    /// # Errors
    ///
    /// [`Error::Busy`]: another server has taken it over, and keeps it. Otherwise the store's.
    pub fn abandon(&self) -> Result<(), Error> {
        self.inner.client.wait(self.inner.abandon())
    }

    fn new(inner: Inner) -> Self {
        let inner = Arc::new(inner);
        let keeper = inner.client.runtime().spawn(keeper::keep(Arc::downgrade(&inner)));
        Self { inner, keeper }
    }
}

impl Inner {
    fn parts(&self) -> MutexGuard<'_, Parts> {
        lock(&self.parts)
    }

    /// Notes why nothing can be stored any more.
    fn lose(&self, error: Error) -> Error {
        self.parts().lost.get_or_insert(error).clone()
    }

    fn check_lost(&self) -> Result<(), Error> {
        match &self.parts().lost {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }

    async fn put_part(&self, part: u32, content: Bytes, values: Vec<u8>) -> Result<(), Error> {
        self.check_lost()?;
        // a journal must not promise what is about to be replaced
        let is_replaced = self.parts().remove(part);
        if is_replaced {
            self.write(false).await?;
        }
        let bytes = content.len() as u64;
        match self.client.put_part(&self.key, &self.upload, part, content).await {
            Ok(id) => {
                let stored = StoredPart { number: part, id, values };
                self.parts().insert(stored, bytes);
                Ok(())
            }
            Err(trouble) if trouble.kind == FailureKind::NotFound => Err(self.vanished().await),
            Err(trouble) => Err(trouble.into()),
        }
    }

    async fn release(&self) -> Result<(), Error> {
        self.write(true).await?;
        self.lose(Error::Misuse("this upload was left to others".to_owned()));
        Ok(())
    }

    async fn abandon(&self) -> Result<(), Error> {
        // if another server has taken it over, that fails, and its journal and parts stay
        self.write(false).await?;
        self.end().await?;
        self.lose(Error::Misuse("this upload was given up".to_owned()));
        Ok(())
    }

    /// Removes the journal of an upload that the store no longer has, or not all parts of, and
    /// returns the error for it.
    async fn vanished(&self) -> Error {
        let ended = match self.write(false).await {
            Ok(()) => self.end().await,
            // another server has taken it over, or has begun again
            Err(error @ Error::Busy(_)) => return error,
            Err(error) => Err(error),
        };
        if let Err(error) = ended {
            tracing::warn!(%error, "a journal stays behind");
        }
        self.lose(Error::Gone(format!(
            "the store no longer has the unfinished upload of {:?}, or not all of its parts: it was given up elsewhere or expired. Send the file again",
            self.key.as_str()
        )))
    }

    /// Aborts the upload, whose parts the store would charge for, and removes the journal. The
    /// caller has just written the journal: until it is gone, other processes leave it alone.
    async fn end(&self) -> Result<(), Error> {
        // that of a contributor is not its own
        if self.shared.is_none() {
            self.client.abort_upload(&self.key, &self.upload).await?;
        }
        self.close().await
    }
}

impl Parts {
    fn new(stored: Vec<Option<StoredPart>>) -> Self {
        let values = stored.iter().flatten().map(|part| part.values.len() as u64).sum();
        Self { stored, values, ..Self::default() }
    }

    /// Forgets a part, and says whether it was stored.
    fn remove(&mut self, part: u32) -> bool {
        let Some(before) = self.stored.get_mut(part as usize).and_then(Option::take) else {
            return false;
        };
        self.values -= before.values.len() as u64;
        self.is_dirty = true;
        true
    }

    fn insert(&mut self, part: StoredPart, bytes: u64) {
        self.remove(part.number);
        self.values += part.values.len() as u64;
        self.since += bytes;
        self.is_dirty = true;
        if let Some(place) = self.stored.get_mut(part.number as usize) {
            *place = Some(part);
        }
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        self.keeper.abort();
        let inner = Arc::clone(&self.inner);
        let (done, released) = mpsc::channel::<()>();
        // a task, which cannot panic here: the runtime may have ended
        self.inner.client.runtime().spawn(async move {
            match timeout(RELEASE, inner.write(true)).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::debug!(%error, "a journal is not released"),
                Err(_) => tracing::debug!("a journal is not released: the store is slow"),
            }
            drop(done);
        });
        if Handle::try_current().is_err() {
            // nothing is sent: it waits until the task, or the runtime, is done with it
            let _ = released.recv();
        }
    }
}

/// Reads the nonce of a journal; `None`: it is damaged.
fn nonce_bytes(nonce: &str) -> Option<[u8; 16]> {
    data_encoding::HEXLOWER.decode(nonce.as_bytes()).ok()?.try_into().ok()
}

impl fmt::Debug for Upload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upload")
            .field("key", &self.inner.key)
            .field("plan", &self.inner.plan)
            .finish_non_exhaustive()
    }
}
