//! Uploads that nobody continues.

use std::time::{Duration, SystemTime};

use super::contributors;
use super::holder::{is_held, store_time, write};
use crate::client::Client;
use crate::error::Error;
use crate::journal::{self, Journal};
use crate::key::Key;
use crate::owner;
use crate::pages::Pages;
use crate::version::{Condition, Version};

/// Gives up all uploads whose journals are older, and returns how many.
pub(crate) async fn abort_older(client: &Client, older_than: Duration) -> Result<u64, Error> {
    let directory = journal::directory();
    let mut count = 0;
    let mut page: Option<String> = None;
    let mut pages = Pages::default();
    // journals have their times by the store's clock, of which this machine's may be ahead
    let mut now: Option<SystemTime> = None;
    loop {
        let answer = client.list(&directory, page.as_deref()).await?;
        let prefix = format!("{}{directory}", client.prefix());
        let keys = answer.objects.iter().map(|listed| listed.key.as_str());
        pages
            .follow(keys.clone().min().zip(keys.max()))
            .map_err(|found| Error::Reply(format!("cannot list unfinished uploads: {found}")))?;
        for listed in answer.objects {
            let name = listed
                .key
                .strip_prefix(prefix.as_str())
                .filter(|name| !name.is_empty() && !name.contains('/'));
            let Some(name) = name else {
                continue;
            };
            let time = match now {
                Some(time) => time,
                None => *now.insert(store_time(client).await?),
            };
            if time.duration_since(listed.modified).unwrap_or_default() < older_than {
                continue;
            }
            let name_of = Key::reserved(&format!("uploads/{name}"));
            match abort(client, &name_of, (time, older_than)).await {
                Ok(is_given_up) => count += u64::from(is_given_up),
                // a forged journal, or one of a store with a shorter prefix, keeps no other one
                Err(error @ (Error::Reply(_) | Error::Name(_))) => {
                    tracing::warn!(name, %error, "an unfinished upload stays behind");
                }
                Err(error) => return Err(error),
            }
        }
        for directory in answer.prefixes {
            let within = directory.strip_prefix(prefix.as_str());
            if let Some(main) = within.and_then(journal::of_contributors) {
                remove_orphans(client, &main).await?;
            }
        }
        if answer.next.is_some() && answer.next == page {
            return Err(Error::Reply(
                "cannot list unfinished uploads: the next page is the same one".to_owned(),
            ));
        }
        match answer.next {
            Some(next) => page = Some(next),
            None => return Ok(count),
        }
    }
}

/// Removes journals of contributors whose upload is not there any more.
async fn remove_orphans(client: &Client, main: &Key) -> Result<(), Error> {
    if client.head(main).await?.is_some() {
        return Ok(());
    }
    let listed = match contributors::list(client, main).await {
        Ok(listed) => listed,
        // a forged directory keeps no upload
        Err(error @ Error::Reply(_)) => {
            tracing::warn!(%error, "journals beside an upload stay behind");
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    // a server began the upload before they were listed: one of them may take part in it
    if client.head(main).await?.is_some() {
        return Ok(());
    }
    let names: Vec<_> = listed.into_iter().map(|listed| listed.name).collect();
    contributors::remove(client, &names).await;
    Ok(())
}

/// Aborts an upload, unless a server continues it, or has stored parts of it within `older_than`
/// before `now`, by the store's clock.
async fn abort(
    client: &Client,
    name: &Key,
    (now, older_than): (SystemTime, Duration),
) -> Result<bool, Error> {
    let Some(found) = journal::read(client, name, journal::MAX).await? else {
        return Ok(false);
    };
    let is_upload = found.journal.is_some();
    if let Some(mut journal) = found.journal {
        if is_held(client, &journal, found.modified).await? {
            return Ok(false);
        }
        let contributors = contributors::list(client, name).await?;
        for contributor in &contributors {
            if now.duration_since(contributor.modified).unwrap_or_default() < older_than {
                return Ok(false);
            }
            let theirs = journal::read(client, &contributor.name, journal::MAX).await?;
            if let Some(theirs) = theirs
                && let Some(at_work) = theirs.journal
                && is_held(client, &at_work, theirs.modified).await?
            {
                return Ok(false);
            }
        }
        let names: Vec<_> = contributors.into_iter().map(|contributor| contributor.name).collect();
        let key = Key::parse(client.prefix(), &journal.key)?;
        // who would resume it now sees that it has changed; until it is gone, it is this process's
        journal.owner = owner::name();
        journal.is_released = false;
        let Some(version) = replace(client, name, &key, &mut journal, found.version).await? else {
            return Ok(false);
        };
        let listed = contributors::list(client, name).await;
        let has_seen_all = listed
            .as_ref()
            .is_ok_and(|listed| listed.iter().all(|there| names.contains(&there.name)));
        if !has_seen_all {
            // one joined after they were listed, and before this journal was written, or may have
            journal.is_released = true;
            replace(client, name, &key, &mut journal, version).await?;
            return listed.map(|_| false);
        }
        client.abort_upload(&key, &journal.upload).await?;
        contributors::remove(client, &names).await;
    }
    client.delete(name).await?;
    Ok(is_upload)
}

/// Writes the journal of an upload in place of this version; `None`: a server was faster.
async fn replace(
    client: &Client,
    name: &Key,
    key: &Key,
    journal: &mut Journal,
    version: Version,
) -> Result<Option<Version>, Error> {
    journal.counter = journal.counter.saturating_add(1);
    write(client, (key, name), journal::MAX, journal, &Condition::Is(version)).await
}
