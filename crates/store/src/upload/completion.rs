//! The end of an upload.

use std::time::Duration;

use tokio::time::sleep;

use super::{Inner, NONCE};
use crate::backend::{FailureKind, Head};
use crate::client::RequestError;
use crate::error::Error;
use crate::record::{self, Record};
use crate::replace::{self, ROUNDS};
use crate::version::{Condition, Version};

/// How often, and after which pauses, it is looked for what the store says to have completed:
/// some are seconds behind.
const LOOKS: u32 = 5;
const FIRST_PAUSE: Duration = Duration::from_millis(100);

impl Inner {
    /// Makes the object, looks at it, writes its record, removes the journal.
    pub(super) async fn complete(
        &self,
        root: [u8; 32],
        condition: &Condition,
    ) -> Result<Version, Error> {
        self.check_completes()?;
        let (ids, values) = self.all_parts()?;
        self.check_condition(condition).await?;
        let answer = self.try_complete(&ids, condition).await;
        self.end_with(answer, root, values).await
    }

    /// Makes the object in place of what has its name. Each request requires what was there before
    /// it: one that arrives late replaces nothing newer.
    pub(super) async fn replace(&self, root: [u8; 32]) -> Result<Version, Error> {
        self.check_completes()?;
        let (ids, values) = self.all_parts()?;
        let mut round = 0;
        let answer = loop {
            round += 1;
            let there = self.client.head(&self.key).await?;
            // an earlier attempt whose answer was lost
            if let Some(head) = there.as_ref().filter(|head| self.has_nonce(head)) {
                break Ok(head.version.clone());
            }
            let condition = replace::condition(there.as_ref().map(|head| &head.version), round);
            match self.try_complete(&ids, &condition).await {
                Err(trouble) if trouble.kind == FailureKind::Changed && round < ROUNDS => {}
                Err(trouble) if trouble.kind == FailureKind::Unsupported => {
                    break self.try_complete(&ids, &Condition::Any).await;
                }
                answer => break answer,
            }
        };
        self.end_with(answer, root, values).await
    }

    /// A contributor knows nothing of the parts of others.
    fn check_completes(&self) -> Result<(), Error> {
        self.check_lost()?;
        if self.shared.is_none() {
            return Ok(());
        }
        Err(Error::Misuse(format!(
            "cannot complete {:?}: this stores parts of an upload that others store, too",
            self.key.as_str()
        )))
    }

    async fn try_complete(
        &self,
        ids: &[String],
        condition: &Condition,
    ) -> Result<Version, RequestError> {
        let (client, metadata) = (&self.client, &self.metadata);
        client.complete_upload(&self.key, &self.upload, ids, metadata, condition).await
    }

    /// Looks at the object, writes its record, removes the journal.
    async fn end_with(
        &self,
        answer: Result<Version, RequestError>,
        root: [u8; 32],
        values: Vec<[u8; 32]>,
    ) -> Result<Version, Error> {
        let version = match answer {
            Ok(version) => self.look_for(&version).await?,
            Err(trouble) => self.after(trouble).await?,
        };
        let record = Record { size: self.plan.size, root, values };
        // the object is complete: what follows is not worth its failure
        if let Err(error) = record::write(&self.client, &self.key, &version, &record).await {
            tracing::warn!(%error, "an object has no record");
        }
        if let Err(error) = self.close().await {
            tracing::warn!(%error, "a journal stays behind");
        }
        Ok(version)
    }

    /// The names of all parts and the values of all spans.
    fn all_parts(&self) -> Result<(Vec<String>, Vec<[u8; 32]>), Error> {
        let parts = self.parts();
        let mut ids = Vec::with_capacity(parts.stored.len());
        let mut values = Vec::new();
        for (number, part) in parts.stored.iter().enumerate() {
            let Some(part) = part else {
                return Err(Error::Misuse(format!(
                    "cannot complete {:?}: part {number} of {} is not stored",
                    self.key.as_str(),
                    self.plan.parts
                )));
            };
            ids.push(part.id.clone());
            values.extend(record::apart(&part.values));
        }
        Ok((ids, values))
    }

    /// Not every store compares when it completes.
    async fn check_condition(&self, condition: &Condition) -> Result<(), Error> {
        if *condition == Condition::Any {
            return Ok(());
        }
        let there = self.client.head(&self.key).await?;
        let is_met = match (condition, &there) {
            (Condition::Any, _) | (Condition::New, None) => true,
            // an earlier attempt whose answer was lost
            (_, Some(head)) if self.has_nonce(head) => true,
            (Condition::Is(version), Some(head)) => head.version == *version,
            (Condition::New, Some(_)) | (Condition::Is(_), None) => false,
        };
        if is_met { Ok(()) } else { Err(self.changed()) }
    }

    /// Looks for what the store says to have completed.
    async fn look_for(&self, version: &Version) -> Result<Version, Error> {
        let mut pause = FIRST_PAUSE;
        for look in 1..=LOOKS {
            match self.client.head(&self.key).await? {
                Some(head)
                    if self.has_nonce(&head)
                        || (version.is_known() && head.version == *version) =>
                {
                    return self.checked(&head);
                }
                Some(_) if look == LOOKS => return Err(self.changed()),
                _ => {}
            }
            if look < LOOKS {
                sleep(pause).await;
                pause *= 2;
            }
        }
        Err(Error::Reply(format!(
            "the store says that {:?} is complete, and does not have it. Send the file again",
            self.key.as_str()
        )))
    }

    /// Finds out whether a completion that failed has succeeded all the same.
    async fn after(&self, trouble: RequestError) -> Result<Version, Error> {
        // while that is unknown, the journal stays: who continues finds out
        let there = self.client.head(&self.key).await?;
        if let Some(head) = there
            && self.has_nonce(&head)
        {
            return self.checked(&head);
        }
        match trouble.kind {
            // no such upload, or parts that are not those
            FailureKind::NotFound | FailureKind::Invalid => {
                let error = Error::from(trouble);
                tracing::warn!(%error, "an upload cannot be completed");
                Err(self.vanished().await)
            }
            _ => Err(trouble.into()),
        }
    }

    fn checked(&self, head: &Head) -> Result<Version, Error> {
        if head.size == self.plan.size {
            return Ok(head.version.clone());
        }
        Err(Error::Reply(format!(
            "the store has {} bytes of {:?}, and {} were sent. Send the file again",
            head.size,
            self.key.as_str(),
            self.plan.size
        )))
    }

    fn has_nonce(&self, head: &Head) -> bool {
        head.metadata.get(NONCE) == Some(self.nonce.as_str())
    }

    fn changed(&self) -> Error {
        Error::Changed(format!(
            "cannot complete {:?}: another writer stored it meanwhile. Look at it, then repeat the transfer, which continues",
            self.key.as_str()
        ))
    }
}
