//! Stores an object in place of whatever has its name.
//!
//! A request whose answer does not come in time may still arrive, after it was repeated and after
//! others have stored something newer. So each request requires what was there before it: then one
//! that is late fails. A condition compares ETags, which many stores make of the content alone: a
//! late request succeeds if the very content from before it has come back meanwhile, and one for a
//! new name if the object was removed meanwhile.

use bytes::Bytes;

use crate::backend::{FailureKind, Head};
use crate::client::{Client, is_surely};
use crate::error::Error;
use crate::key::Key;
use crate::metadata::Metadata;
use crate::version::{Condition, Version};

/// How often something else may be found under the name than was expected.
pub(crate) const ROUNDS: u32 = 4;

/// What a caller believes to be under a name. A wrong belief costs requests, and nothing else.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Expected {
    /// No object.
    #[default]
    Nothing,
    /// An object, of a version that has to be asked for.
    Something,
    /// This version.
    Version(Version),
}

/// What was stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replaced {
    /// The version of the object.
    pub version: Version,
    /// Whether an object had the name.
    pub was_there: bool,
}

/// Requires what was found under a name, in this round. A store that has something and does not
/// show it takes the last request without a condition.
pub(crate) fn condition(here: Option<&Version>, round: u32) -> Condition {
    match here {
        None if round == ROUNDS => Condition::Any,
        here => Condition::over(here),
    }
}

/// Stores an object in place of what has its name.
pub(crate) async fn replace(
    client: &Client,
    key: &Key,
    content: Bytes,
    metadata: &Metadata,
    expected: &Expected,
) -> Result<Replaced, Error> {
    let size = content.len() as u64;
    let mut here = match expected {
        Expected::Nothing => None,
        Expected::Something => client.head(key).await?.map(|head| head.version),
        Expected::Version(version) => Some(version.clone()),
    };
    let mut round = 0;
    loop {
        round += 1;
        let condition = condition(here.as_ref(), round);
        let trouble = match client.try_put(key, content.clone(), metadata, &condition).await {
            Ok(version) => return Ok(Replaced { version, was_there: here.is_some() }),
            Err(trouble) => trouble,
        };
        // a store without conditions takes it without one
        if trouble.kind == FailureKind::Unsupported && condition != Condition::Any {
            let version = client.put(key, content, metadata, &Condition::Any).await?;
            return Ok(Replaced { version, was_there: here.is_some() });
        }
        let is_other = match trouble.kind {
            FailureKind::Changed => condition != Condition::Any,
            // what was to be replaced is gone
            FailureKind::NotFound => matches!(condition, Condition::Is(_)),
            _ => false,
        };
        if !is_other {
            return Err(trouble.into());
        }
        let head = client.head(key).await?;
        // an earlier attempt whose answer was lost. Otherwise even the same file is stored again:
        // its content may have been damaged since
        let is_own = |head: &&Head| trouble.is_repeated && is_surely(head, size, metadata);
        if let Some(head) = head.as_ref().filter(is_own) {
            return Ok(Replaced { version: head.version.clone(), was_there: here.is_some() });
        }
        if round == ROUNDS {
            return Err(trouble.into());
        }
        here = head.map(|head| head.version);
    }
}
