//! The delete pass between two servers: compares both trees directory by directory, copies what
//! differs, and then removes at the destination what the source does not have.
//!
//! An ordinary sync needs one of the trees on this machine. This compares what both servers list.

use std::sync::Arc;

use headroom_transfer::path::{RelPath, shown};
use headroom_transfer::{Client, Error, ErrorCode, Listed, ListedKind};

use crate::copy::{Relay, is_about_files};
use crate::ends::{Clients, listed_on_server, on_server};
use crate::engine::{CopiedFile, Step};
use crate::entry::{Entry, Kind};
use crate::ledger::{Ledger, Noting, Sorted};
use crate::listing::{Found, check, of_listed};

/// The most names of one directory, and their bytes: both servers' are compared in memory.
const MAX_NAMES: usize = 1 << 20;
const MAX_LISTED_BYTES: usize = 256 << 20;
/// The most bytes of what is to be compared, removed or finished later.
const MAX_BYTES: usize = 64 << 20;

/// What a pass has done so far. It stays when the pass is interrupted.
#[derive(Debug, Default)]
pub(crate) struct Mirrored {
    /// Files that had changed since they were listed, and were copied.
    pub(crate) copied: Vec<CopiedFile>,
    /// Names that were removed.
    pub(crate) removed: u64,
    /// Names that could not be compared, copied or removed.
    pub(crate) failed: u64,
    /// The first reason for a failure: a sentence.
    pub(crate) reason: Option<String>,
}

impl Mirrored {
    fn fail(&mut self, count: u64, reason: impl FnOnce() -> String) {
        self.failed += count;
        self.reason.get_or_insert_with(reason);
    }
}

/// Makes one tree that of the other. Nothing is removed if anything has failed.
///
/// # Errors
/// A request failed as a whole. Failures of single names are counted instead.
pub(crate) async fn mirror(
    relay: Relay<'_>,
    clients: &mut Clients,
    done: &mut Mirrored,
) -> Result<(), Error> {
    let (batch, later) = (Vec::new(), Later::default());
    let mut pass = Pass { relay, clients, done, batch, batch_bytes: 0, later };
    pass.compare().await?;
    pass.copy_batch().await?;
    if pass.done.failed > 0 {
        return Ok(());
    }
    pass.remove().await?;
    pass.finish().await
}

/// What is done when everything was compared.
#[derive(Debug, Default)]
struct Later {
    /// Names that the source does not have.
    extraneous: Vec<RelPath>,
    /// Directories in which something changes, or whose mode or time differs.
    finishing: Vec<Entry>,
    /// Directories to compare.
    directories: Vec<Pending>,
    bytes: usize,
}

/// A directory that is to be compared.
#[derive(Debug)]
struct Pending {
    entry: Entry,
    /// Whether the destination has had it.
    is_there: bool,
    /// Whether its mode and time are those of the source.
    is_same: bool,
}

struct Pass<'a> {
    relay: Relay<'a>,
    clients: &'a mut Clients,
    done: &'a mut Mirrored,
    batch: Vec<Entry>,
    batch_bytes: u64,
    later: Later,
}

impl Pass<'_> {
    /// Compares all directories, and copies what differs.
    async fn compare(&mut self) -> Result<(), Error> {
        self.compare_directory(None).await?;
        while let Some(pending) = self.later.directories.pop() {
            self.later.bytes -= size_of_path(&pending.entry.path);
            self.compare_directory(Some(pending)).await?;
            if self.later.bytes > MAX_BYTES {
                let most = MAX_BYTES >> 20;
                self.done.fail(1, || {
                    format!("nothing is removed: more names differ than fit in memory ({most} MiB)")
                });
                return Ok(());
            }
        }
        Ok(())
    }

    /// Compares a directory; `None` is the top.
    async fn compare_directory(&mut self, pending: Option<Pending>) -> Result<(), Error> {
        let path = pending.as_ref().map(|pending| pending.entry.path.clone());
        let Relay { job, from, to, .. } = self.relay;
        // the destination first: what is copied meanwhile is not taken for extraneous
        let copies = match pending.as_ref().is_none_or(|pending| pending.is_there) {
            true => self.list(false, to, path.as_ref()).await?,
            false => Some(Vec::new()),
        };
        let Some(copies) = copies else { return Ok(()) };
        let Some(originals) = self.list(true, from, path.as_ref()).await? else { return Ok(()) };
        if path.is_none() && originals.is_empty() && !job.allow_empty_source {
            self.done.fail(1, || "nothing is removed: the source has become empty".to_owned());
            return Ok(());
        }
        let mut copies = copies.into_iter().peekable();
        let mut is_changed = false;
        for listed in originals {
            while let Some(other) = copies.next_if(|other| other.path < listed.path) {
                is_changed |= self.extraneous(path.as_ref(), &other.path);
            }
            let other = copies.next_if(|other| other.path == listed.path);
            is_changed |= self.compare_name(path.as_ref(), &listed, other.as_ref()).await?;
        }
        for other in copies {
            is_changed |= self.extraneous(path.as_ref(), &other.path);
        }
        if let Some(Pending { entry, is_same, .. }) = pending
            && (is_changed || !is_same)
        {
            self.later.bytes += size_of_path(&entry.path);
            self.later.finishing.push(entry);
        }
        Ok(())
    }

    /// Compares a name of the source with that of the destination; returns whether it is copied.
    async fn compare_name(
        &mut self,
        directory: Option<&RelPath>,
        listed: &Listed,
        other: Option<&Listed>,
    ) -> Result<bool, Error> {
        // what the source has and does not send is not removed
        let Found::Entry(kind) = of_listed(listed) else { return Ok(false) };
        let path = match in_directory(directory, &listed.path) {
            Ok(path) => path,
            Err(reason) => {
                self.done.fail(1, || reason);
                return Ok(false);
            }
        };
        if let Kind::Symlink { target, .. } = &kind
            && !path.holds_link_to(target)
        {
            return Ok(false);
        }
        let entry = Entry { number: 0, path, kind };
        let is_same = is_same(&entry.kind, other);
        if !is_same {
            self.push(entry.clone()).await?;
        }
        if let Kind::Directory { mode, mtime } = entry.kind {
            let is_sealed = |other: &Listed| (other.mode, other.mtime) == (mode, mtime);
            let is_sealed = is_same && other.is_some_and(is_sealed);
            self.later.bytes += size_of_path(&entry.path);
            self.later.directories.push(Pending { entry, is_there: is_same, is_same: is_sealed });
        }
        Ok(!is_same)
    }

    /// Notes a name that the source does not have; returns whether it will be removed.
    fn extraneous(&mut self, directory: Option<&RelPath>, name: &RelPath) -> bool {
        match in_directory(directory, name) {
            Ok(path) => {
                self.later.bytes += size_of_path(&path);
                self.later.extraneous.push(path);
                true
            }
            Err(reason) => {
                self.done.fail(1, || reason);
                false
            }
        }
    }

    /// Lists a directory of the source or of the destination; `None` if that cannot be done.
    async fn list(
        &mut self,
        is_source: bool,
        top: &[u8],
        directory: Option<&RelPath>,
    ) -> Result<Option<Vec<Listed>>, Error> {
        let place = listed_on_server(top, directory);
        let client: &mut Client =
            if is_source { self.clients.reading() } else { &mut self.clients.client };
        let (mut names, mut wrong) = (Vec::<Listed>::new(), None);
        let (mut count, mut bytes) = (0_usize, 0_usize);
        let listed = client.list(&place, |found| {
            count += 1;
            bytes += size_of_listed(&found);
            if count > MAX_NAMES || bytes > MAX_LISTED_BYTES || wrong.is_some() {
                return;
            }
            match check(names.last().map(|last| &last.path), &found) {
                Ok(()) => names.push(found),
                Err(error) => wrong = Some(error),
            }
        });
        let listed = listed.await;
        if let Some(error) = wrong {
            return Err(error);
        }
        match listed {
            Ok(()) if count > MAX_NAMES || bytes > MAX_LISTED_BYTES => {
                let (place, most) = (shown(&place), MAX_LISTED_BYTES >> 20);
                self.done.fail(1, || {
                    format!(
                        "nothing is removed: {place} has {count} names, and at most {MAX_NAMES} of {most} MiB are compared"
                    )
                });
                Ok(None)
            }
            Ok(()) => Ok(Some(names)),
            // nothing was there to copy
            Err(error)
                if !is_source
                    && directory.is_none()
                    && error.code() == Some(ErrorCode::NOT_FOUND) =>
            {
                Ok(Some(Vec::new()))
            }
            Err(error) if is_about_files(&error) => {
                self.done.fail(1, || error.to_string());
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    async fn push(&mut self, entry: Entry) -> Result<(), Error> {
        let most = self.relay.job.batch;
        if self.batch_bytes.saturating_add(entry.size()) > most.bytes {
            self.copy_batch().await?;
        }
        self.batch_bytes = self.batch_bytes.saturating_add(entry.size());
        self.batch.push(entry);
        if self.batch.len() as u64 >= u64::from(most.files) {
            self.copy_batch().await?;
        }
        Ok(())
    }

    async fn copy_batch(&mut self) -> Result<(), Error> {
        let entries = std::mem::take(&mut self.batch);
        self.batch_bytes = 0;
        if entries.is_empty() {
            return Ok(());
        }
        let ledger = Ledger::new(Arc::default());
        self.relay.copy(self.clients, (Step::Copy, false), &entries, &ledger).await?;
        let Sorted { copied, left, reason, .. } = ledger.sorted(entries);
        // those without a hash were not changed
        self.done.copied.extend(copied.into_iter().filter(|file| file.hash.is_some()));
        self.check_left(&left, reason);
        Ok(())
    }

    fn check_left(&mut self, left: &[Entry], reason: Option<String>) {
        if let Some(first) = left.first() {
            let nameless = || format!("{} was neither stored nor refused", first.path);
            self.done.fail(left.len() as u64, || reason.unwrap_or_else(nameless));
        }
    }

    async fn remove(&mut self) -> Result<(), Error> {
        for path in std::mem::take(&mut self.later.extraneous) {
            let ledger = Ledger::new(Arc::default());
            let observer = Arc::new(Noting { ledger: Arc::clone(&ledger), directory: None });
            let place = on_server(self.relay.to, &path);
            match self.clients.client.remove(&place, true, observer).await {
                Ok(summary) => {
                    self.done.removed += summary.removed;
                    if summary.failed > 0 {
                        let reason = ledger.verified().1;
                        let nameless = || format!("{path} cannot be removed");
                        self.done.fail(summary.failed, || reason.unwrap_or_else(nameless));
                    }
                }
                // somebody else has removed it
                Err(error) if error.code() == Some(ErrorCode::NOT_FOUND) => {}
                Err(error) if is_about_files(&error) => self.done.fail(1, || error.to_string()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    async fn finish(&mut self) -> Result<(), Error> {
        let directories = std::mem::take(&mut self.later.finishing);
        for entries in directories.chunks(self.relay.job.batch.files.max(1) as usize) {
            let ledger = Ledger::new(Arc::default());
            self.relay.copy(self.clients, (Step::Finish, false), entries, &ledger).await?;
            let Sorted { left, reason, .. } = ledger.sorted(entries.to_vec());
            self.check_left(&left, reason);
        }
        Ok(())
    }
}

/// Whether the destination has what the source has, as far as listings tell.
fn is_same(kind: &Kind, other: Option<&Listed>) -> bool {
    let Some(other) = other else { return false };
    match kind {
        Kind::Directory { .. } => other.kind == ListedKind::Directory,
        Kind::Symlink { target, .. } => {
            other.kind == ListedKind::Symlink && other.target.as_ref() == Some(target)
        }
        Kind::File { size, mode, mtime, .. } => {
            let listed = (other.size, other.mode, other.mtime);
            other.kind == ListedKind::File && listed == (*size, *mode, *mtime)
        }
    }
}

/// Returns the path of a name in a directory. An error is a sentence.
fn in_directory(directory: Option<&RelPath>, name: &RelPath) -> Result<RelPath, String> {
    let Some(directory) = directory else { return Ok(name.clone()) };
    directory.join(name).map_err(|error| format!("{directory}/{name} cannot be sent: {error}"))
}

/// Returns what a listed name needs in memory, about.
fn size_of_listed(listed: &Listed) -> usize {
    let target = listed.target.as_ref().map_or(0, Vec::len);
    size_of::<Listed>() + listed.path.as_bytes().len() + target
}

/// Returns what a path needs in memory, about.
fn size_of_path(path: &RelPath) -> usize {
    path.as_bytes().len() + size_of::<Pending>()
}

#[cfg(test)]
mod tests {
    use headroom_transfer::Time;

    use super::*;

    #[test]
    fn what_is_the_same_is_not_copied_again() {
        let mtime = Time { seconds: 7, nanoseconds: 8 };
        let later = Time { seconds: 8, nanoseconds: 8 };
        let path = RelPath::single(b"a").expect("a name");
        let listed = |kind, target: Option<&[u8]>| Listed {
            path: path.clone(),
            kind,
            size: 3,
            mode: 0o644,
            mtime,
            target: target.map(<[u8]>::to_vec),
        };
        let file = listed(ListedKind::File, None);
        let directory = listed(ListedKind::Directory, None);
        let link = listed(ListedKind::Symlink, Some(b"b"));
        let of = |size, mode, mtime| Kind::File { size, mode, mtime, ranges: 0 };
        assert!(is_same(&of(3, 0o644, mtime), Some(&file)));
        for other in [of(4, 0o644, mtime), of(3, 0o600, mtime), of(3, 0o644, later)] {
            assert!(!is_same(&other, Some(&file)), "{other:?}");
        }
        assert!(!is_same(&of(3, 0o644, mtime), Some(&directory)));
        assert!(!is_same(&of(3, 0o644, mtime), None));
        // its mode and time are finished later
        assert!(is_same(&Kind::Directory { mode: 0o700, mtime: later }, Some(&directory)));
        let to = |target: &[u8]| Kind::Symlink { target: target.to_vec(), mtime: later };
        assert!(is_same(&to(b"b"), Some(&link)) && !is_same(&to(b"c"), Some(&link)));
        assert!(!is_same(&to(b"b"), Some(&file)));
    }
}
