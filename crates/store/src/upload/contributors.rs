//! Contributors: servers that store parts of the same upload at the same time.
//!
//! The journal of a shared upload is released: no server writes it. Each contributor writes a
//! journal of its own beside it, so that no two servers write one object. A server that takes the
//! upload over merges these into the journal of the upload, and removes them: a contributor that
//! still writes notices that, and stops. A server that may not stop contributors leaves the upload to
//! them again when one has joined meanwhile.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::SystemTime;

use futures_util::future;

use super::conditions::check_conditions;
use super::holder::{busy, is_recent, may_be_held, store_time, write};
use super::keeper::Writer;
use super::plan::Plan;
use super::{Inner, Parts, Upload, UploadOffer, nonce_bytes};
use crate::client::Client;
use crate::error::Error;
use crate::journal::{self, Found, Journal, StoredPart};
use crate::key::Key;
use crate::metadata::Metadata;
use crate::owner;
use crate::pages::Pages;
use crate::version::Condition;

/// The most journals of contributors of one upload: a server writes one each time it takes part, and
/// it counts until the upload is taken over. A fleet has a file of at most 256 ranges, and tries
/// each five times unless its job says otherwise; lost workers begin some once more.
const MAX_CONTRIBUTORS: usize = 2048;

/// The most that are read: several servers may begin to take part at once.
const MAX_JOURNALS: usize = 2 * MAX_CONTRIBUTORS;

/// How many journals are read at once.
const AT_ONCE: usize = 8;

/// Bytes of a journal that is read beside others, at most: so their contents take 32 MiB together,
/// whatever the store answers; a forged one is up to ten times as large when parsed. The journal of a
/// range of 16 GiB has about 512 KiB.
const MAX_CONCURRENT_BYTES: u64 = 4 << 20;

/// The journal of a contributor, as a listing has it.
#[derive(Debug)]
pub(super) struct Listed {
    pub(super) name: Key,
    /// When it was written, by the store's clock.
    pub(super) modified: SystemTime,
}

/// Takes part in a shared upload.
///
/// # Errors
///
/// [`Error::Gone`]: it is not there, or another one. [`Error::Busy`]: it is not shared any more, or
/// another server has taken it over meanwhile. [`Error::Refused`]: too many have taken part, or the
/// store ignores the conditions of writes.
pub(crate) async fn join(
    client: &Arc<Client>,
    key: Key,
    offer: &UploadOffer,
    nonce: &str,
) -> Result<Upload, Error> {
    let plan = Plan::new(&key, offer.size)?;
    check_conditions(client).await?;
    let main = journal::name(&key, &offer.tag);
    let most = plan.most_journal_bytes();
    let found = journal::read(client, &main, most).await?;
    let shared = found.and_then(|found| {
        let journal = found.journal?;
        let is_it = journal.nonce == nonce && journal.key == key.as_str();
        let places = plan.places(&journal).filter(|_| is_it)?;
        Some((found.version, journal, places))
    });
    let Some((shared_version, journal, places)) = shared else { return Err(gone(&key)) };
    if !journal.is_released {
        return Err(busy(&key));
    }
    if list(client, &main).await?.len() >= MAX_CONTRIBUTORS {
        return Err(Error::Refused(format!(
            "{MAX_CONTRIBUTORS} servers or connections have stored parts of {:?} already: send the rest of the file to one of them",
            key.as_str()
        )));
    }
    let own = Journal {
        owner: owner::name(),
        counter: 1,
        is_released: false,
        parts: Vec::new(),
        ..journal
    };
    let name = journal::of_contributor(&main, &format!("{:016x}", rand::random::<u64>()));
    let Some(version) = write(client, (&key, &name), most, &own, &Condition::New).await? else {
        return Err(busy(&key));
    };
    // a server that has taken it over meanwhile may have listed the journals too early for this one
    let is_shared = match client.head(&main).await {
        Ok(Some(there)) if there.version == shared_version => Ok(()),
        // perhaps only to begin at the same time: then it is shared again at once
        Ok(Some(_)) => Err(busy(&key)),
        Ok(None) => Err(gone(&key)),
        Err(error) => Err(error),
    };
    if let Err(error) = is_shared {
        // until it is gone, the upload counts as one to which parts are being stored
        remove(client, &[name]).await;
        return Err(error);
    }
    Ok(Upload::new(Inner {
        client: Arc::clone(client),
        owner: own.owner,
        upload: own.upload,
        nonce: own.nonce,
        metadata: Metadata::new(),
        shared: Some(places),
        parts: Parts::new(vec![None; plan.parts as usize]).into(),
        plan,
        writer: tokio::sync::Mutex::new(Writer { version, counter: own.counter, is_closed: false }),
        key,
        journal: name,
    }))
}

/// Returns the nonce of the upload of an offer that contributors may take part in.
///
/// # Errors
///
/// The store's.
pub(crate) async fn find_released(
    client: &Client,
    key: &Key,
    offer: &UploadOffer,
) -> Result<Option<[u8; 16]>, Error> {
    let plan = Plan::new(key, offer.size)?;
    let main = journal::name(key, &offer.tag);
    let found = journal::read(client, &main, plan.most_journal_bytes()).await?;
    let journal = found.and_then(|found| found.journal).filter(|there| {
        there.is_released && there.key == key.as_str() && plan.places(there).is_some()
    });
    Ok(journal.and_then(|journal| nonce_bytes(&journal.nonce)))
}

fn gone(key: &Key) -> Error {
    Error::Gone(format!(
        "the store does not have the upload of {:?} to which parts are to be stored: it was completed, taken over or given up. Send the file again",
        key.as_str()
    ))
}

/// Lists the journals of the contributors of an upload.
pub(super) async fn list(client: &Client, main: &Key) -> Result<Vec<Listed>, Error> {
    let directory = journal::contributors(main);
    let prefix = format!("{}{directory}", client.prefix());
    let refuse = |found: &str| Error::Reply(format!("cannot list {directory:?}: {found}"));
    let mut listed = Vec::new();
    let mut page: Option<String> = None;
    let mut pages = Pages::default();
    loop {
        let answer = client.list(&directory, page.as_deref()).await?;
        let keys = answer.objects.iter().map(|object| object.key.as_str());
        pages.follow(keys.clone().min().zip(keys.max())).map_err(refuse)?;
        for object in answer.objects {
            let name = object.key.strip_prefix(prefix.as_str());
            let Some(name) = name.filter(|name| !name.is_empty() && !name.contains('/')) else {
                return Err(refuse("the store's answer has names that are not in it"));
            };
            let name = journal::of_contributor(main, name);
            listed.push(Listed { name, modified: object.modified });
        }
        if listed.len() > MAX_JOURNALS {
            return Err(refuse(&format!(
                "it has more than {MAX_JOURNALS} journals. Remove it, and send the file again"
            )));
        }
        match answer.next {
            Some(next) if page.as_ref() == Some(&next) => {
                return Err(refuse("the next page is the same one"));
            }
            Some(next) => page = Some(next),
            None => return Ok(listed),
        }
    }
}

/// Adds the parts that contributors have stored to those that the journal of the upload has, and
/// returns the names of all journals of contributors. A part that two have stored, under different
/// IDs, counts as missing: the store has one of them, and nothing says which.
///
/// # Errors
///
/// [`Error::Busy`]: a contributor is at work, unless the caller may stop it. [`Error::Reply`]:
/// there are too many, or one is too large.
pub(super) async fn merge(
    client: &Client,
    main: &Key,
    (key, journal): (&Key, &Journal),
    plan: &Plan,
    places: &mut [Option<StoredPart>],
    may_stop: bool,
) -> Result<Vec<Key>, Error> {
    let most = plan.most_journal_bytes();
    let mut differing = HashSet::new();
    let mut names = Vec::new();
    let is_its = |there: &Journal| {
        (&there.upload, &there.nonce, &there.key) == (&journal.upload, &journal.nonce, &journal.key)
    };
    // all of some are read before anything else is asked: a request that nobody drives would keep
    // its slot
    for some in list(client, main).await?.chunks(AT_ONCE) {
        let reading = some.iter().map(|listed| read_concurrently(client, &listed.name, most));
        let read = future::join_all(reading).await;
        // asked once after these were read: none looks older than it is
        let mut now = None;
        for (Listed { name, .. }, read) in some.iter().zip(read) {
            let read = match read {
                Some(read) => read,
                None => journal::read(client, name, most).await,
            };
            let Some(found) = read? else { continue };
            let theirs = found.journal.filter(is_its);
            if let Some(theirs) = &theirs
                && !may_stop
                && may_be_held(theirs)
            {
                let now = match now {
                    Some(now) => now,
                    None => *now.insert(store_time(client).await?),
                };
                if is_recent(now, found.modified) {
                    return Err(busy(key));
                }
            }
            match theirs.and_then(|theirs| plan.places(&theirs)) {
                Some(stored) => add(places, stored, &mut differing),
                None => tracing::warn!(
                    name = name.as_str(),
                    "a journal beside an upload is damaged or of another one: it is removed"
                ),
            }
            names.push(name.clone());
        }
    }
    Ok(names)
}

/// Reads a journal beside others; `None`: it is to be read alone, because it may be too long.
async fn read_concurrently(
    client: &Client,
    name: &Key,
    most: u64,
) -> Option<Result<Option<Found>, Error>> {
    let read = journal::read(client, name, most.min(MAX_CONCURRENT_BYTES)).await;
    let is_too_long = most > MAX_CONCURRENT_BYTES && matches!(read, Err(Error::Reply(_)));
    (!is_too_long).then_some(read)
}

/// Adds the parts of one contributor. `differing`: numbers of parts that were stored twice.
fn add(
    places: &mut [Option<StoredPart>],
    stored: Vec<Option<StoredPart>>,
    differing: &mut HashSet<u32>,
) {
    for (place, part) in places.iter_mut().zip(stored) {
        let Some(part) = part else { continue };
        match place {
            None if !differing.contains(&part.number) => *place = Some(part),
            Some(there) if *there != part => {
                differing.insert(part.number);
                *place = None;
            }
            _ => {}
        }
    }
}

/// Removes journals of contributors: of those that still write, the next write fails.
pub(super) async fn remove(client: &Client, names: &[Key]) {
    for name in names {
        if let Err(error) = client.delete(name).await {
            tracing::warn!(%error, "the journal of a contributor stays behind");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(number: u32, id: &str) -> Option<StoredPart> {
        Some(StoredPart { number, id: id.to_owned(), values: vec![7; 32] })
    }

    #[test]
    fn parts_stored_twice_under_different_ids_are_missing() {
        let mut differing = HashSet::new();
        let mut places = vec![part(0, "a"), part(1, "b"), None, None];
        add(&mut places, vec![None, part(1, "c"), part(2, "d"), None], &mut differing);
        assert_eq!(places, [part(0, "a"), None, part(2, "d"), None]);
        // whatever a third one says
        add(&mut places, vec![part(0, "a"), part(1, "b"), None, part(3, "e")], &mut differing);
        assert_eq!(places, [part(0, "a"), None, part(2, "d"), part(3, "e")]);
    }
}
