//! How far the listing is.
//!
//! Items go to the queue when they are staged, and directories to a stream of their own, in pages.
//! Each has the epoch of its listing, which every process that lists begins anew, and a number. A
//! checkpoint sets one value by compare-and-set: up to which number all of that is seen, and which
//! directories are still to be listed. What is not seen is discarded: by whoever gets such an item,
//! if a later epoch has begun.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use headroom_mutex::lock;

use super::Inner;
use super::cells::LISTING;
use super::record::{
    AsideValue, PageHead, Progress, Ranged, WorkHead, bounded, chunks, nonce, read_with_entries,
    with_entries,
};
use super::totals::Walk;
use crate::engine::Checkpoint;
use crate::entry::{Damaged, Entry, Kind};
use crate::error::Error;
use crate::key::DirectoryKey;

/// How many pages are kept in memory.
const PAGES: usize = 8;

/// Whether something that was staged is seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sight {
    Seen,
    /// Not yet, or never.
    Unseen,
    Discarded,
}

/// Where directories are that are to be listed: a page of the stream, from an entry on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    page: u64,
    entry: u32,
}

/// A listing, as the process that lists has it.
#[derive(Debug, Default)]
pub(super) struct Listing {
    /// The last checkpoint, and its revision.
    progress: Progress,
    revision: u64,
    /// Whether this process has begun the epoch: nobody else stages anything in it.
    is_own: bool,
    /// The number of what was staged last.
    staged: u64,
    /// Items that were staged since the checkpoint.
    items: u64,
    /// The pages with directories that are to be listed, by the first of each.
    frontier: Frontier,
    /// The same, as it was at the checkpoint.
    kept: Frontier,
    /// Pages that were staged since the checkpoint, with the first directory of each.
    pages: Vec<(DirectoryKey, Place)>,
}

/// Directories that are to be listed. In memory are the first of each page, and few pages.
#[derive(Debug, Clone, Default)]
struct Frontier {
    first: BTreeMap<DirectoryKey, Place>,
    has_root: bool,
}

/// Pages that were read last, each with its sequence: a walk goes back to those of parents.
pub(super) type Pages = Vec<(u64, Arc<Vec<DirectoryKey>>)>;

impl Inner {
    /// Tells whether what was staged is seen.
    pub(super) async fn sight_of(&self, staged: (u64, u64)) -> Result<Sight, Error> {
        let sight = |progress: &Progress| {
            if progress.is_seen(staged) {
                Sight::Seen
            } else if progress.is_discarded(staged) {
                Sight::Discarded
            } else {
                Sight::Unseen
            }
        };
        // what is seen once remains so
        let known = sight(&lock(&self.known));
        if known != Sight::Unseen {
            return Ok(known);
        }
        let (progress, _) = self.link.progress().await?;
        let now = sight(&progress);
        *lock(&self.known) = progress;
        Ok(now)
    }

    /// Begins or continues the listing.
    pub(super) async fn begin_listing(&self) -> Result<u64, Error> {
        let mut listing = self.listing.lock().await;
        let seen = listing.progress.seen.get(&listing.progress.epoch).copied().unwrap_or(0);
        if listing.is_own && listing.staged == seen {
            // nobody can see anything that was found since
            listing.frontier = listing.kept.clone();
            return Ok(listing.progress.next_number);
        }
        loop {
            let (mut progress, revision) = self.link.progress().await?;
            progress.epoch += 1;
            progress.nonce = nonce();
            if let Some(revision) = self.link.set_cell(LISTING, &progress, revision).await? {
                let frontier = self.load(&progress).await?;
                let next_number = progress.next_number;
                let (is_own, kept) = (true, frontier.clone());
                let begun = Listing { progress, revision, is_own, ..Listing::default() };
                *listing = Listing { frontier, kept, ..begun };
                return Ok(next_number);
            }
        }
    }

    /// Reads the first directory of each page that has some to be listed.
    async fn load(&self, progress: &Progress) -> Result<Frontier, Error> {
        let mut frontier = Frontier { has_root: progress.has_root, ..Frontier::default() };
        for &(page, entry) in &progress.frontier {
            let keys = self.page(page).await?;
            let at = usize::try_from(entry).unwrap_or(usize::MAX);
            let first = self.link.whole(keys.get(at).ok_or(Damaged), "directories")?;
            frontier.first.insert(first.clone(), Place { page, entry });
        }
        Ok(frontier)
    }

    /// Reads the directories of a page.
    async fn page(&self, page: u64) -> Result<Arc<Vec<DirectoryKey>>, Error> {
        let known = |pages: &Pages| {
            let found = pages.iter().find(|(known, _)| *known == page);
            found.map(|(_, keys)| Arc::clone(keys))
        };
        let found = known(&lock(&self.pages));
        if let Some(keys) = found {
            return Ok(keys);
        }
        let message = self.link.get(&self.link.names.directories(), page).await?;
        let read = message.map_or(Err(Damaged), |page| read_with_entries(&page.payload));
        let (_, entries): (PageHead, Vec<Entry>) = self.link.whole(read, "directories")?;
        let keys = entries.iter().map(|entry| DirectoryKey::of(Some(&entry.path)));
        let keys = Arc::new(keys.collect::<Vec<_>>());
        let mut pages = lock(&self.pages);
        if pages.len() >= PAGES {
            pages.remove(0);
        }
        pages.push((page, Arc::clone(&keys)));
        Ok(keys)
    }

    /// Leaves out the directories of a frontier up to this one.
    async fn pass(&self, frontier: &mut Frontier, up_to: &DirectoryKey) -> Result<(), Error> {
        // the source itself is the first of all
        frontier.has_root = false;
        while let Some((first, place)) = frontier.first.pop_first() {
            if first > *up_to {
                frontier.first.insert(first, place);
                break;
            }
            let keys = self.page(place.page).await?;
            // a page is sorted
            let next = keys.partition_point(|key| key <= up_to);
            if let (Some(key), Ok(entry)) = (keys.get(next), u32::try_from(next)) {
                frontier.first.insert(key.clone(), Place { entry, ..place });
            }
        }
        Ok(())
    }

    /// Returns the next directory to list.
    pub(super) async fn next_directory(
        &self,
        after: Option<&DirectoryKey>,
    ) -> Result<Option<DirectoryKey>, Error> {
        let mut listing = self.listing.lock().await;
        if listing.revision == 0 {
            let (progress, revision) = self.link.progress().await?;
            let frontier = self.load(&progress).await?;
            let kept = frontier.clone();
            *listing = Listing { progress, revision, frontier, kept, ..Listing::default() };
        }
        match after {
            Some(after) => self.pass(&mut listing.frontier, after).await?,
            // from the beginning
            None => listing.frontier = listing.kept.clone(),
        }
        if listing.frontier.has_root {
            return Ok(Some(DirectoryKey::of(None)));
        }
        Ok(listing.frontier.first.first_key_value().map(|(key, _)| key.clone()))
    }

    /// Adds an item that nobody sees yet, or those of a file's ranges.
    pub(super) async fn stage(&self, entries: &[Entry]) -> Result<(), Error> {
        let mut listing = self.listing.lock().await;
        let listing = &mut *listing;
        let Some(ranged) = Ranged::of(entries) else {
            for part in chunks(entries, usize::MAX) {
                let Some(first) = part.first() else { continue };
                listing.items += 1;
                self.stage_item(listing, format!("c.{}", first.number), None, part).await?;
            }
            return Ok(());
        };
        // the file is counted with them, and so never missing: the last of them puts it into the
        // queue
        listing.items += u64::from(ranged.ranges) + 1;
        for index in 0..ranged.ranges {
            let id = format!("r{index}.{}", ranged.number);
            self.stage_item(listing, id, Some(ranged), entries).await?;
        }
        Ok(())
    }

    async fn stage_item(
        &self,
        listing: &mut Listing,
        id: String,
        ranged: Option<Ranged>,
        entries: &[Entry],
    ) -> Result<(), Error> {
        listing.staged += 1;
        let staged = Some((listing.progress.epoch, listing.staged));
        self.queue(&WorkHead { staged, ranged, ..WorkHead::new(id) }, entries).await
    }

    /// Adds directories that nobody sees yet.
    pub(super) async fn stage_directories(
        &self,
        found: &[(DirectoryKey, Entry)],
    ) -> Result<(), Error> {
        let mut listing = self.listing.lock().await;
        self.add_pages(&mut listing, found, false).await
    }

    async fn add_pages(
        &self,
        listing: &mut Listing,
        found: &[(DirectoryKey, Entry)],
        is_again: bool,
    ) -> Result<(), Error> {
        let mut found = found.to_vec();
        found.sort_by(|one, other| one.0.cmp(&other.0));
        let entries: Vec<_> = found.into_iter().map(|(_, entry)| entry).collect();
        let most = usize::try_from(self.rules.batch.files).unwrap_or(usize::MAX);
        for part in chunks(&entries, most) {
            let Some(first) = part.first() else { continue };
            listing.staged += 1;
            let staged = (listing.progress.epoch, listing.staged);
            let page = with_entries(&PageHead { staged, is_again }, part);
            let subject = self.link.names.directories_subject();
            let id = format!("p.{}.{}", staged.0, staged.1);
            let page = self.link.publish(&subject, Some(&id), page).await?;
            let key = DirectoryKey::of(Some(&first.path));
            listing.pages.push((key, Place { page, entry: 0 }));
        }
        Ok(())
    }

    /// Notes how far the listing is: what was staged is seen from now on.
    pub(super) async fn checkpoint(&self, checkpoint: &Noted) -> Result<(), Error> {
        let mut listing = self.listing.lock().await;
        let listing = &mut *listing;
        self.add_pages(listing, &checkpoint.found, false).await?;
        let epoch = listing.progress.epoch;
        if let Some((key, reason)) = &checkpoint.failed {
            listing.staged += 1;
            let staged = (epoch, listing.staged);
            let (key, reason) = (key.as_bytes().to_vec(), bounded(reason));
            let value = AsideValue::Directory { staged, key, reason };
            self.put_aside(&format!("d.{epoch}.{}", staged.1), &value).await?;
        }
        for problem in &checkpoint.problems {
            listing.staged += 1;
            let staged = (epoch, listing.staged);
            let value = AsideValue::Problem { staged, reason: bounded(problem) };
            self.put_aside(&format!("n.{epoch}.{}", staged.1), &value).await?;
        }
        let failed = checkpoint.failed.as_ref().map(|(key, _)| key);
        let up_to = checkpoint.listed.iter().chain(failed).max();
        let mut frontier = listing.kept.clone();
        frontier.first.extend(std::mem::take(&mut listing.pages));
        if let Some(up_to) = up_to {
            self.pass(&mut frontier, up_to).await?;
        }
        let mut progress = listing.progress.clone();
        if listing.staged > 0 {
            progress.seen.insert(epoch, listing.staged);
        }
        progress.next_number = checkpoint.next_number;
        progress.files = progress.files.saturating_add(checkpoint.files);
        progress.bytes = progress.bytes.saturating_add(checkpoint.bytes);
        progress.left_out = progress.left_out.saturating_add(checkpoint.left_out);
        progress.items += listing.items;
        progress.problems += checkpoint.problems.len() as u64;
        progress.failed += u64::from(checkpoint.failed.is_some());
        progress.is_listed |= checkpoint.is_complete;
        progress.has_root = frontier.has_root;
        progress.frontier =
            frontier.first.values().map(|place| (place.page, place.entry)).collect();
        let set = self.link.set_cell(LISTING, &progress, listing.revision).await?;
        let Some(revision) = set else {
            let place = format!("the job at NATS ({})", self.link.servers);
            return Err(Error::Busy(place.into()));
        };
        (listing.progress, listing.revision, listing.items) = (progress, revision, 0);
        listing.kept = frontier.clone();
        listing.frontier = frontier;
        Ok(())
    }

    /// Lets directories be listed again that could not be listed.
    pub(super) async fn list_again(&self, keys: Vec<DirectoryKey>) -> Result<(), Error> {
        self.begin_listing().await?;
        let mut listing = self.listing.lock().await;
        let listing = &mut *listing;
        let has_root = keys.iter().any(|key| key.path().is_none());
        let entry = |key: DirectoryKey| {
            let path = key.path()?;
            let mtime = headroom_transfer::Time { seconds: 0, nanoseconds: 0 };
            Some((key, Entry { number: 0, path, kind: Kind::Directory { mode: 0, mtime } }))
        };
        let found: Vec<_> = keys.into_iter().filter_map(entry).collect();
        self.add_pages(listing, &found, true).await?;
        let mut progress = listing.progress.clone();
        progress.retried = (progress.epoch, listing.staged);
        if listing.staged > 0 {
            progress.seen.insert(progress.epoch, listing.staged);
        }
        (progress.failed, progress.is_listed) = (0, false);
        progress.has_root |= has_root;
        let pages = listing.pages.iter().map(|(_, place)| (place.page, place.entry));
        progress.frontier.extend(pages);
        if self.link.set_cell(LISTING, &progress, listing.revision).await?.is_none() {
            let place = format!("the job at NATS ({})", self.link.servers);
            return Err(Error::Busy(place.into()));
        }
        // this handle lists nothing
        *listing = Listing::default();
        Ok(())
    }

    /// Puts items into the queue that finish all directories that were found; returns how many.
    pub(super) async fn queue_directories(&self, finish: u64) -> Result<u64, Error> {
        let (progress, _) = self.link.progress().await?;
        let stream = self.link.names.directories();
        let (last, _) = self.link.extent(&stream).await?;
        let mut walk = Walk::new(stream, 1, last);
        let (mut items, mut known) = (0, HashSet::new());
        while let Some(page) = walk.next(&self.link).await? {
            let read = read_with_entries(&page.payload);
            let (head, entries): (PageHead, Vec<Entry>) = self.link.whole(read, "directories")?;
            // one that was written twice, because the first answer was lost, is there twice
            let is_new = known.insert(head.staged);
            if head.is_again || !is_new || !progress.is_seen(head.staged) {
                continue;
            }
            let Some(first) = entries.first() else { continue };
            let id = format!("f{finish}.{}", first.number);
            self.queue(&WorkHead::new(id), &entries).await?;
            items += 1;
        }
        Ok(items)
    }
}

/// A [`Checkpoint`] that owns what it says.
#[derive(Debug)]
pub(super) struct Noted {
    listed: Vec<DirectoryKey>,
    failed: Option<(DirectoryKey, String)>,
    found: Vec<(DirectoryKey, Entry)>,
    problems: Vec<String>,
    next_number: u64,
    files: u64,
    bytes: u64,
    left_out: u64,
    is_complete: bool,
}

impl From<&Checkpoint<'_>> for Noted {
    fn from(checkpoint: &Checkpoint<'_>) -> Self {
        let failed = checkpoint.failed.map(|(key, reason)| (key.clone(), reason.to_owned()));
        Self {
            listed: checkpoint.listed.to_vec(),
            failed,
            found: checkpoint.found.to_vec(),
            problems: checkpoint.problems.to_vec(),
            next_number: checkpoint.next_number,
            files: checkpoint.files,
            bytes: checkpoint.bytes,
            left_out: checkpoint.left_out,
            is_complete: checkpoint.is_complete,
        }
    }
}
