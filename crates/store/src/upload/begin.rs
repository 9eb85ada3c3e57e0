//! The beginning of an upload, or its continuation.

use std::sync::Arc;

use super::conditions::check_conditions;
use super::contributors;
use super::holder::{busy, is_held, write};
use super::keeper::Writer;
use super::plan::Plan;
use super::{Inner, NONCE, Parts, Upload, UploadOffer};
use crate::client::Client;
use crate::error::Error;
use crate::journal::{self, Found, Journal, StoredPart};
use crate::key::Key;
use crate::metadata::Metadata;
use crate::owner;
use crate::version::{Condition, Version};

/// How often another server may be faster.
const ATTEMPTS: u32 = 3;

/// Begins an upload, or takes over what an earlier one of the same tag and its contributors have
/// stored. Contributors of the upload with the nonce `shared`, and a server that completes it, are
/// stopped: the client that completes it names it, or means whichever is left to contributors.
///
/// # Errors
///
/// [`Error::Busy`]: another server uploads this content, or another connection to this one.
/// [`Error::Refused`]: the store ignores the conditions of writes.
pub(crate) async fn begin(
    client: &Arc<Client>,
    key: Key,
    offer: &UploadOffer,
    shared: Option<&str>,
) -> Result<Upload, Error> {
    let plan = Plan::new(&key, offer.size)?;
    check_conditions(client).await?;
    let name = journal::name(&key, &offer.tag);
    let most = plan.most_journal_bytes();
    for _ in 0..ATTEMPTS {
        let found = journal::read(client, &name, most).await?;
        let begun = match found {
            None => fresh(client, &key, &name, &plan, offer, &Condition::New).await?,
            Some(found) => taken(client, &key, &name, &plan, (offer, shared), found).await?,
        };
        if let Some(begun) = begun {
            return Ok(Upload::new(Inner {
                client: Arc::clone(client),
                owner: begun.journal.owner,
                upload: begun.journal.upload,
                nonce: begun.journal.nonce,
                metadata: begun.metadata,
                shared: None,
                plan,
                parts: Parts::new(begun.places).into(),
                writer: tokio::sync::Mutex::new(Writer {
                    version: begun.version,
                    counter: begun.journal.counter,
                    is_closed: false,
                }),
                key,
                journal: name,
            }));
        }
    }
    Err(busy(&key))
}

struct Begun {
    journal: Journal,
    version: Version,
    metadata: Metadata,
    places: Vec<Option<StoredPart>>,
}

/// Begins a new upload; `None`: another server was faster.
async fn fresh(
    client: &Client,
    key: &Key,
    name: &Key,
    plan: &Plan,
    offer: &UploadOffer,
    condition: &Condition,
) -> Result<Option<Begun>, Error> {
    let nonce = format!("{:032x}", rand::random::<u128>());
    let mut metadata = offer.metadata.clone();
    metadata.set(NONCE, &nonce)?;
    let upload = client.create_upload(key, &metadata).await?;
    let journal = Journal {
        key: key.as_str().to_owned(),
        upload,
        size: plan.size,
        part_bytes: plan.part_bytes,
        owner: owner::name(),
        counter: 1,
        is_released: false,
        nonce,
        parts: Vec::new(),
    };
    let written = write(client, (key, name), plan.most_journal_bytes(), &journal, condition).await;
    if !matches!(written, Ok(Some(_)))
        && let Err(error) = client.abort_upload(key, &journal.upload).await
    {
        tracing::warn!(%error, "an upload stays behind");
    }
    Ok(written?.map(|version| Begun {
        places: vec![None; plan.parts as usize],
        journal,
        version,
        metadata,
    }))
}

/// Takes over what another upload left; `None`: another server was faster, or has joined meanwhile
/// and is not to be stopped.
async fn taken(
    client: &Client,
    key: &Key,
    name: &Key,
    plan: &Plan,
    (offer, shared): (&UploadOffer, Option<&str>),
    found: Found,
) -> Result<Option<Begun>, Error> {
    let condition = Condition::Is(found.version);
    let Some(mut journal) = found.journal else {
        tracing::warn!(key = key.as_str(), "a damaged journal is replaced");
        return fresh(client, key, name, plan, offer, &condition).await;
    };
    let may_stop = shared == Some(journal.nonce.as_str());
    // one that is stopped notices with its next write of the journal
    if !may_stop && is_held(client, &journal, found.modified).await? {
        return Err(busy(key));
    }
    let places = plan.places(&journal).filter(|_| journal.key == key.as_str());
    let Some(mut places) = places else {
        // of another version of this program, or forged: the upload that it names need not be
        // ours to give up
        return fresh(client, key, name, plan, offer, &condition).await;
    };
    let merging = contributors::merge(client, name, (key, &journal), plan, &mut places, may_stop);
    let merged = merging.await?;
    let mut metadata = offer.metadata.clone();
    metadata.set(NONCE, &journal.nonce)?;
    journal.owner = owner::name();
    journal.counter = journal.counter.saturating_add(1);
    journal.is_released = false;
    journal.parts = places.iter().flatten().cloned().collect();
    let most = plan.most_journal_bytes();
    let Some(version) = write(client, (key, name), most, &journal, &condition).await? else {
        return Ok(None);
    };
    let begun = Begun { journal, version, metadata, places };
    let listed = contributors::list(client, name).await;
    let has_merged_all =
        listed.as_ref().is_ok_and(|listed| listed.iter().all(|there| merged.contains(&there.name)));
    if !may_stop && !has_merged_all {
        // one joined after they were listed, and before this journal was written, or may have
        give_back(client, key, name, plan, begun).await?;
        return listed.map(|_| None);
    }
    // this journal has now what they have
    match listed {
        Ok(listed) => {
            let names: Vec<_> = listed.into_iter().map(|there| there.name).collect();
            contributors::remove(client, &names).await;
        }
        Err(error) => {
            tracing::warn!(%error, "the journals of contributors cannot be listed again");
            contributors::remove(client, &merged).await;
        }
    }
    Ok(Some(begun))
}

/// Leaves an upload that was taken over to its contributors again.
async fn give_back(
    client: &Client,
    key: &Key,
    name: &Key,
    plan: &Plan,
    mut begun: Begun,
) -> Result<(), Error> {
    begun.journal.counter = begun.journal.counter.saturating_add(1);
    begun.journal.is_released = true;
    let condition = Condition::Is(begun.version);
    write(client, (key, name), plan.most_journal_bytes(), &begun.journal, &condition).await?;
    Ok(())
}
