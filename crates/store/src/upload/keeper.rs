//! The journal of an upload while it is written.

use std::sync::Weak;
use std::time::{Duration, Instant};

use tokio::time::sleep;

use super::Inner;
use crate::backend::FailureKind;
use crate::error::Error;
use crate::journal::{self, Journal};
use crate::metadata::Metadata;
use crate::version::{Condition, Version};

/// How often a journal is written at most, and at least.
const OFTEN: Duration = Duration::from_secs(1);
const SELDOM: Duration = Duration::from_secs(20);

/// A journal is written again when this many times its own bytes were stored in parts: what it
/// costs stays below 2 %.
const SHARE: u64 = 64;

/// Where the journal stands.
#[derive(Debug)]
pub(super) struct Writer {
    /// The version that is replaced next.
    pub(super) version: Version,
    /// How often it was written.
    pub(super) counter: u64,
    /// It is not written any more.
    pub(super) is_closed: bool,
}

/// Writes the journal while the upload lives.
pub(super) async fn keep(upload: Weak<Inner>) {
    let mut written = Instant::now();
    loop {
        sleep(OFTEN).await;
        let Some(inner) = upload.upgrade() else {
            return;
        };
        if !inner.is_due(written.elapsed()) {
            continue;
        }
        match inner.write(false).await {
            Ok(()) => written = Instant::now(),
            Err(Error::Busy(_)) => return,
            // the parts are stored all the same, and the next attempt may succeed
            Err(error) => tracing::warn!(%error, "a journal cannot be written"),
        }
    }
}

impl Inner {
    fn is_due(&self, elapsed: Duration) -> bool {
        let parts = self.parts();
        elapsed >= SELDOM || (parts.is_dirty && parts.since >= SHARE.saturating_mul(parts.values))
    }

    /// Writes the journal in place of the version that this upload wrote last. Once it is released,
    /// it is not written again: whoever waits to write it would take it back.
    ///
    /// # Errors
    ///
    /// [`Error::Busy`]: another server wrote it, and has the upload now.
    pub(super) async fn write(&self, is_released: bool) -> Result<(), Error> {
        let mut writer = self.writer.lock().await;
        if writer.is_closed {
            return Ok(());
        }
        self.check_lost()?;
        let (parts, since) = {
            let mut parts = self.parts();
            parts.is_dirty = false;
            let since = std::mem::take(&mut parts.since);
            (parts.stored.iter().flatten().cloned().collect(), since)
        };
        let mut journal = Journal {
            key: self.key.as_str().to_owned(),
            upload: self.upload.clone(),
            size: self.plan.size,
            part_bytes: self.plan.part_bytes,
            owner: self.owner.clone(),
            counter: 0,
            is_released,
            nonce: self.nonce.clone(),
            parts,
        };
        // the second time in place of a version of which the answer was lost
        for _ in 0..2 {
            writer.counter = writer.counter.wrapping_add(1);
            journal.counter = writer.counter;
            let content = journal.encode(&self.key)?;
            let condition = Condition::Is(writer.version.clone());
            let answer = self
                .client
                .try_put(&self.journal, content.into(), &Metadata::new(), &condition)
                .await;
            match answer {
                Ok(version) => {
                    writer.version = version;
                    writer.is_closed = is_released;
                    return Ok(());
                }
                Err(trouble)
                    if matches!(trouble.kind, FailureKind::Changed | FailureKind::Conflict) => {}
                Err(trouble) => {
                    self.unwritten(since);
                    return Err(trouble.into());
                }
            }
            let most = self.plan.most_journal_bytes();
            let found = match journal::read(&self.client, &self.journal, most).await {
                Ok(found) => found,
                Err(error) => {
                    self.unwritten(since);
                    return Err(error);
                }
            };
            let Some(found) = found else { break };
            let Some(there) = found.journal.filter(|there| there.owner == self.owner) else {
                break;
            };
            writer.version = found.version;
            if there.counter == writer.counter {
                writer.is_closed = is_released;
                return Ok(());
            }
        }
        Err(self.lose(Error::Busy(format!(
            "another server receives {:?} now, or has given its upload up: this one stops. Repeat the transfer, which continues",
            self.key.as_str()
        ))))
    }

    /// Removes the journal once; nobody writes it any more.
    pub(super) async fn close(&self) -> Result<(), Error> {
        let mut writer = self.writer.lock().await;
        if std::mem::replace(&mut writer.is_closed, true) {
            return Ok(());
        }
        self.client.delete(&self.journal).await
    }

    fn unwritten(&self, since: u64) {
        let mut parts = self.parts();
        parts.is_dirty = true;
        parts.since += since;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::runtime::Handle;

    use super::super::{UploadOffer, begin, find_released};
    use super::*;
    use crate::client::{Client, Patience};
    use crate::key::Key;
    use crate::memory::Memory;

    #[tokio::test]
    async fn a_released_upload_stays_released_though_its_keeper_waits_to_write() {
        let (prefix, url) = (String::new(), "memory://".to_owned());
        let backend = Arc::new(Memory::new());
        let client = Client::new(backend, prefix, url, Handle::current(), Patience::default());
        let (client, key) = (Arc::new(client), Key::parse("", "a").expect("a name"));
        let offer = UploadOffer { size: 9 << 20, tag: [1; 16], metadata: Metadata::new() };
        let upload = begin(&client, key.clone(), &offer, None).await.expect("it is begun");
        let writer = upload.inner.writer.lock().await;
        // they get the lock in this order
        let (released, written, ()) =
            tokio::join!(upload.inner.release(), upload.inner.write(false), async {
                drop(writer);
            });
        released.expect("it is released");
        written.expect("there is nothing to write");
        let found = find_released(&client, &key, &offer).await.expect("an answer");
        assert_eq!(found, Some(upload.nonce()));
    }
}
