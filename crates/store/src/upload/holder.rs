//! Whether a server still writes a journal, and the writes by which it changes hands.

use std::time::{Duration, SystemTime};

use bytes::Bytes;

use crate::backend::FailureKind;
use crate::client::{Client, RequestError};
use crate::error::Error;
use crate::journal::{self, Journal};
use crate::key::Key;
use crate::metadata::Metadata;
use crate::owner;
use crate::version::{Condition, Version};

/// A journal that was not written for so long belongs to nobody: its writer writes it three
/// times as often.
const HELD: Duration = Duration::from_secs(60);

/// Says whether the writer of a journal, here or on another machine, is still there.
pub(super) async fn is_held(
    client: &Client,
    journal: &Journal,
    modified: SystemTime,
) -> Result<bool, Error> {
    Ok(may_be_held(journal) && is_recent(store_time(client).await?, modified))
}

/// Says whether the writer of a journal may still be there: then the journal's age decides.
pub(super) fn may_be_held(journal: &Journal) -> bool {
    !journal.is_released && !owner::has_ended(&journal.owner)
}

/// Says whether a journal was written so lately that its writer is there.
pub(super) fn is_recent(now: SystemTime, modified: SystemTime) -> bool {
    now.duration_since(modified).unwrap_or_default() < HELD
}

/// Reads the store's clock, by which journals have their times. If this machine's clock is ahead
/// of it, the journal of a living writer would look abandoned.
pub(super) async fn store_time(client: &Client) -> Result<SystemTime, Error> {
    // among the journals, so that `abort_older` removes it if it stays behind
    let name = Key::reserved(&format!("uploads/clock-{:032x}", rand::random::<u128>()));
    let content = Bytes::from_static(b"clock");
    client.put(&name, content, &Metadata::new(), &Condition::Any).await?;
    let head = client.head(&name).await;
    if let Err(error) = client.delete(&name).await {
        tracing::debug!(%error, "an object that told the time stays behind");
    }
    head?.map(|head| head.modified).ok_or_else(|| {
        Error::Reply("the store does not have what was stored just now. Repeat it later".to_owned())
    })
}

/// Writes the journal of an upload that this process begins, takes over or gives back; `None`:
/// another server was faster. `most`: the most bytes that its journal may have.
pub(super) async fn write(
    client: &Client,
    (key, name): (&Key, &Key),
    most: u64,
    journal: &Journal,
    condition: &Condition,
) -> Result<Option<Version>, Error> {
    let content = journal.encode(key)?;
    let trouble: RequestError =
        match client.try_put(name, content.into(), &Metadata::new(), condition).await {
            Ok(version) => return Ok(Some(version)),
            Err(trouble) => trouble,
        };
    if !matches!(trouble.kind, FailureKind::Changed | FailureKind::Conflict) {
        return Err(trouble.into());
    }
    // perhaps it was this one, and the answer was lost
    let there = journal::read(client, name, most).await?;
    Ok(there
        .filter(|found| found.journal.as_ref().is_some_and(|there| there.owner == journal.owner))
        .map(|found| found.version))
}

/// Makes the error about an upload that somebody else has.
pub(super) fn busy(key: &Key) -> Error {
    Error::Busy(format!(
        "another server or connection receives {:?}: wait until it ends, at most {} s after it was stopped",
        key.as_str(),
        HELD.as_secs()
    ))
}
