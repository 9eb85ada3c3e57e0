//! The queue of a transfer: directories to list, and files to copy.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};

use headroom_mutex::lock;
use headroom_transfer_proto::path::RelPath;
use tokio::sync::Notify;

use super::directory::ListedDirectory;
use super::large::{BegunFile, LargeFile};
use crate::delivery::DividedUpload;

/// Batches of a walk that may wait.
const WAITING: usize = 64;
/// Directories that may wait. The last request fetches what further ones have.
const MAX_DIRECTORIES: usize = 1 << 20;

/// Files of one request.
#[derive(Debug)]
pub(super) struct Batch {
    /// The directory below which they are: of this machine in an upload, of the servers in a
    /// download.
    pub(super) from: Arc<Path>,
    /// The directory below that which names are relative to.
    pub(super) directory: Option<ListedDirectory>,
    /// Their names, with sizes in bytes.
    pub(super) files: Vec<(RelPath, u64)>,
    /// Whether the user named each of them.
    pub(super) is_named: bool,
}

impl Batch {
    /// Makes the request that copies a large file whole; it is empty if the caller copies it.
    pub(super) fn of_large(large: LargeFile) -> Self {
        let LargeFile { from, directory, name, alone_as, size, is_named } = large;
        let files = if alone_as.is_some() { Vec::new() } else { vec![(name, size)] };
        Self { from, directory, files, is_named }
    }
}

/// A directory of the servers.
#[derive(Debug)]
pub(super) struct Directory {
    /// The directory that was named.
    pub(super) from: Arc<Path>,
    /// The one below that, if it is not that itself.
    pub(super) below: Option<ListedDirectory>,
}

/// What one connection does next.
#[derive(Debug)]
pub(super) enum Work {
    /// Lists a directory.
    List(Directory),
    /// Copies files.
    Copy(Batch),
    /// Begins a file that is divided.
    Begin(LargeFile),
    /// Copies ranges of a file that is divided.
    Ranges(Arc<BegunFile>),
    /// Completes a file of which no more ranges are sent.
    Complete(Arc<BegunFile>, Arc<DividedUpload>),
    /// Leaves a file that was divided to a request that copies it whole.
    Abandon(Arc<BegunFile>),
}

/// The queue. Files are taken before directories, so that few names wait.
#[derive(Debug, Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// Batches that a lost server has not completed.
    returned: Vec<Batch>,
    batches: VecDeque<Batch>,
    /// Files that are to be divided.
    large: VecDeque<LargeFile>,
    /// Files that are divided, and how many connections copy ranges of them.
    open: Vec<(Arc<BegunFile>, usize)>,
    /// Files of which no more ranges are sent, and which a lost server has not completed.
    incomplete: Vec<(Arc<BegunFile>, Arc<DividedUpload>)>,
    directories: Vec<Directory>,
    /// How many are taken, and neither finished nor returned.
    taken: usize,
    /// Directories that wait or are being listed.
    unlisted: usize,
    /// Whether nothing is added any more but what a listing finds.
    is_filled: bool,
    /// Whether nothing is taken any more.
    is_stopped: bool,
}

enum Next {
    Work(Work),
    Wait,
    End,
}

impl State {
    fn next(&mut self, takes_ranges: bool) -> Next {
        if self.is_stopped || self.is_done() {
            return Next::End;
        }
        let work = self.returned.pop().map(Work::Copy);
        let complete = |(open, upload)| Work::Complete(open, upload);
        let work = work.or_else(|| self.incomplete.pop().map(complete));
        let work = work.or_else(|| takes_ranges.then(|| self.next_ranges()).flatten());
        let work = work.or_else(|| self.batches.pop_front().map(Work::Copy));
        let work = work.or_else(|| match self.large.pop_front() {
            Some(large) if takes_ranges => Some(Work::Begin(large)),
            large => large.map(|large| Work::Copy(Batch::of_large(large))),
        });
        let work = work.or_else(|| self.directories.pop().map(Work::List));
        let work = work.or_else(|| (!takes_ranges).then(|| self.abandoned()).flatten());
        match work {
            Some(work) => {
                self.taken += 1;
                Next::Work(work)
            }
            None => Next::Wait,
        }
    }

    /// Finds a divided file of which ranges are left.
    fn next_ranges(&mut self) -> Option<Work> {
        let (open, fetching) = self.open.iter_mut().find(|(open, _)| open.has_left())?;
        *fetching += 1;
        Some(Work::Ranges(Arc::clone(open)))
    }

    /// Takes a divided file of which nobody fetches ranges any more.
    fn abandoned(&mut self) -> Option<Work> {
        let at = self.open.iter().position(|(_, fetching)| *fetching == 0)?;
        Some(Work::Abandon(self.open.swap_remove(at).0))
    }

    /// Whether there is something to take, for a connection that takes ranges.
    fn has_some(&self) -> bool {
        let divided = self.large.len() + self.incomplete.len();
        let waits = self.returned.len() + self.batches.len() + self.directories.len() + divided;
        waits > 0 || self.open.iter().any(|(open, _)| open.has_left())
    }

    fn is_done(&self) -> bool {
        let divided = self.large.len() + self.open.len() + self.incomplete.len();
        let waits = self.returned.len() + self.batches.len() + self.directories.len() + divided;
        self.is_filled && waits == 0 && self.taken == 0
    }
}

impl Queue {
    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let changed = change(&mut self.state());
        self.changed.notify_waiters();
        changed
    }

    /// Adds a batch, when there is room. Returns whether it will be taken: not if the queue was
    /// stopped.
    pub(super) async fn add(&self, batch: Batch) -> bool {
        let mut left = Some(batch);
        loop {
            let changed = self.changed.notified();
            let is_stopped = self.change_if_room(&mut left);
            match left {
                None => return true,
                Some(_) if is_stopped => return false,
                Some(_) => changed.await,
            }
        }
    }

    /// Takes the batch if there is room for it. Returns whether the queue was stopped.
    fn change_if_room(&self, batch: &mut Option<Batch>) -> bool {
        let mut state = self.state();
        if state.is_stopped || state.batches.len() >= WAITING {
            return state.is_stopped;
        }
        state.batches.extend(batch.take());
        drop(state);
        self.changed.notify_waiters();
        false
    }

    /// Adds files that are to be divided.
    pub(super) fn add_large(&self, large: Vec<LargeFile>) {
        self.change(|state| state.large.extend(large));
    }

    /// Adds a divided file, of which the session that has begun it copies ranges.
    pub(super) fn opened(&self, open: Arc<BegunFile>) {
        self.change(|state| state.open.push((open, 1)));
    }

    /// Notes that more of a divided file may be taken than before.
    pub(super) fn wake(&self) {
        self.changed.notify_waiters();
    }

    /// Notes that a session copies no ranges of a file any more. Returns whether this was the last
    /// one, and none is left to be fetched: the file is then removed from the queue, and is still
    /// taken.
    pub(super) fn leave(&self, open: &Arc<BegunFile>) -> bool {
        self.change(|state| {
            let is_it = |(other, _): &(Arc<BegunFile>, usize)| Arc::ptr_eq(other, open);
            let Some(at) = state.open.iter().position(is_it) else { return false };
            let fetching = &mut state.open[at].1;
            *fetching -= 1;
            let is_over = *fetching == 0 && open.is_settled();
            if is_over {
                state.open.swap_remove(at);
            }
            is_over
        })
    }

    /// Notes the end of a request for ranges, after which a file may have to be fetched whole.
    pub(super) fn end_ranges(&self, left: Option<Batch>) {
        match left {
            Some(batch) => self.put_back(Work::Copy(batch)),
            None => self.finished(),
        }
    }

    /// Notes that everything was added.
    pub(super) fn filled(&self) {
        self.change(|state| state.is_filled = true);
    }

    /// Fills the queue at once.
    pub(super) fn fill(&self, batches: Vec<Batch>, directories: Vec<Directory>) {
        self.change(|state| {
            state.unlisted += directories.len();
            state.batches.extend(batches);
            state.directories.extend(directories.into_iter().rev());
            state.is_filled = true;
        });
    }

    /// Takes what is to be done next, and waits for it; `None` if nothing is left, or the queue was
    /// stopped. With `takes_ranges`, it may be a file that is divided; otherwise such files are
    /// fetched whole.
    pub(super) async fn take(&self, takes_ranges: bool) -> Option<Work> {
        loop {
            let changed = self.changed.notified();
            let next = self.change_by_taking(takes_ranges);
            match next {
                Next::Work(work) => return Some(work),
                Next::End => return None,
                Next::Wait => changed.await,
            }
        }
    }

    /// Waits until there is something that nobody has taken. Returns whether there is: not if
    /// nothing is left, or the queue was stopped.
    pub(super) async fn has_spare(&self) -> bool {
        loop {
            let changed = self.changed.notified();
            match self.spare() {
                Some(has_spare) => return has_spare,
                None => changed.await,
            }
        }
    }

    /// Returns whether there is something to take; `None` if there may be later.
    fn spare(&self) -> Option<bool> {
        let state = self.state();
        let is_over = state.is_stopped || state.is_done();
        if is_over { Some(false) } else { state.has_some().then_some(true) }
    }

    fn change_by_taking(&self, takes_ranges: bool) -> Next {
        let next = self.state().next(takes_ranges);
        if matches!(next, Next::Work(_)) {
            // who adds may wait for room
            self.changed.notify_waiters();
        }
        next
    }

    /// Notes that something that was taken is done, or that the last request does it.
    pub(super) fn finished(&self) {
        self.change(|state| state.taken -= 1);
    }

    /// Notes what a directory has. Returns whether all directories are listed.
    pub(super) fn listed(&self, batches: Vec<Batch>, mut directories: Vec<Directory>) -> bool {
        self.change(|state| {
            directories.truncate(MAX_DIRECTORIES.saturating_sub(state.directories.len()));
            state.taken -= 1;
            state.unlisted = state.unlisted + directories.len() - 1;
            state.batches.extend(batches);
            state.directories.extend(directories.into_iter().rev());
            state.unlisted == 0
        })
    }

    /// Returns what was taken, or what is left of it.
    pub(super) fn put_back(&self, work: Work) {
        self.change(|state| {
            state.taken -= 1;
            match work {
                Work::List(directory) => state.directories.push(directory),
                Work::Copy(batch) if batch.files.is_empty() => {}
                Work::Copy(batch) => state.returned.push(batch),
                Work::Begin(large) => state.large.push_front(large),
                // it is still among those that are open
                Work::Ranges(_) => {}
                Work::Complete(open, upload) => state.incomplete.push((open, upload)),
                Work::Abandon(open) => state.open.push((open, 0)),
            }
        });
    }

    /// Lets nothing be taken any more.
    pub(super) fn stop(&self) {
        self.change(|state| state.is_stopped = true);
    }

    /// Lets nothing be taken any more, and frees the files that are divided: another request may
    /// resume them.
    pub(super) fn close(&self) {
        self.change(|state| {
            state.is_stopped = true;
            state.open.clear();
            state.incomplete.clear();
        });
    }

    /// Whether everything is done.
    pub(super) fn is_done(&self) -> bool {
        self.state().is_done()
    }

    /// Waits until nothing is left to be taken.
    pub(super) async fn ended(&self) {
        loop {
            let changed = self.changed.notified();
            if self.is_over() {
                return;
            }
            changed.await;
        }
    }

    fn is_over(&self) -> bool {
        let state = self.state();
        state.is_stopped || state.is_done()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::spread::large::Divided;

    fn batch(name: &str) -> Batch {
        let file = RelPath::parse(name.as_bytes()).expect("a path");
        let from = Path::new("x").into();
        Batch { from, directory: None, files: vec![(file, 1)], is_named: false }
    }

    fn directory(name: &str) -> Directory {
        let path = RelPath::parse(name.as_bytes()).expect("a path");
        let below = ListedDirectory::new(None, path, 0o755);
        Directory { from: Path::new("x").into(), below: Some(below) }
    }

    fn name(work: &Work) -> String {
        match work {
            Work::List(directory) => {
                format!("list {}", directory.below.as_ref().expect("a path").path)
            }
            Work::Copy(batch) => format!("copy {}", batch.files[0].0),
            Work::Begin(large) => format!("begin {}", large.name),
            Work::Ranges(open) => format!("ranges of {}", open.large.name),
            Work::Complete(open, _) => format!("complete {}", open.large.name),
            Work::Abandon(open) => format!("abandon {}", open.large.name),
        }
    }

    fn run<T>(work: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            tokio::time::timeout(Duration::from_secs(60), work).await.expect("it hangs")
        })
    }

    #[test]
    fn what_was_returned_comes_first_then_files_then_directories() {
        run(async {
            let queue = Queue::default();
            queue.fill(vec![batch("a"), batch("b")], vec![directory("c"), directory("d")]);
            let first = queue.take(true).await.expect("a batch");
            assert_eq!(name(&first), "copy a");
            queue.put_back(first);
            for expected in ["copy a", "copy b", "list c"] {
                assert_eq!(name(&queue.take(true).await.expect("work")), expected);
            }
            assert!(!queue.listed(vec![batch("c/e")], vec![directory("c/f")]));
            for expected in ["copy c/e", "list c/f"] {
                assert_eq!(name(&queue.take(true).await.expect("work")), expected);
            }
            assert!(!queue.listed(vec![], vec![]), "d is not listed yet");
            assert_eq!(name(&queue.take(true).await.expect("work")), "list d");
            assert!(queue.listed(vec![], vec![]));
            (0..3).for_each(|_| queue.finished());
            assert!(queue.is_done() && queue.take(true).await.is_none());
        });
    }

    #[test]
    fn who_waits_takes_what_another_returns() {
        run(async {
            let queue = Queue::default();
            queue.fill(vec![batch("a")], vec![]);
            let taken = queue.take(true).await.expect("a batch");
            let waiting = async { name(&queue.take(true).await.expect("it is returned")) };
            let returning = async {
                tokio::task::yield_now().await;
                queue.put_back(taken);
            };
            assert_eq!(tokio::join!(waiting, returning).0, "copy a");
            let ended = queue.ended();
            let finishing = async {
                tokio::task::yield_now().await;
                queue.finished();
            };
            tokio::join!(ended, finishing);
        });
    }

    #[test]
    fn a_further_session_waits_for_what_nobody_else_takes() {
        run(async {
            let queue = Queue::default();
            queue.fill(vec![batch("a")], vec![]);
            queue.take(true).await.expect("a batch");
            assert_eq!(queue.spare(), None);
            let adding = async {
                tokio::task::yield_now().await;
                queue.put_back(Work::Copy(batch("b")));
            };
            assert!(tokio::join!(queue.has_spare(), adding).0);
            queue.take(true).await.expect("it was returned");
            let ending = async {
                tokio::task::yield_now().await;
                queue.finished();
            };
            assert!(!tokio::join!(queue.has_spare(), ending).0);
        });
    }

    #[test]
    fn who_takes_no_ranges_fetches_large_files_whole() {
        run(async {
            let large = |name: &str| {
                let name = RelPath::parse(name.as_bytes()).expect("a path");
                let from: Arc<Path> = Path::new("x").into();
                LargeFile::new((&from, None), name, 1 << 30, false)
            };
            let queue = Queue::default();
            queue.add_large(vec![large("a"), large("b"), large("c")]);
            queue.fill(vec![batch("small")], vec![directory("d")]);
            for (takes_ranges, expected) in
                [(true, "copy small"), (true, "begin a"), (false, "copy b"), (true, "begin c")]
            {
                assert_eq!(name(&queue.take(takes_ranges).await.expect("work")), expected);
            }
            queue.put_back(Work::Begin(large("c")));
            assert_eq!(name(&queue.take(true).await.expect("work")), "begin c");
            assert!(!queue.is_done());
            assert_eq!(name(&queue.take(true).await.expect("work")), "list d");
            queue.listed(vec![], vec![]);
            (0..4).for_each(|_| queue.finished());
            assert!(queue.is_done());
        });
    }

    #[test]
    fn what_a_lost_server_has_not_completed_any_other_one_completes() {
        run(async {
            let large = RelPath::parse(b"a").expect("a path");
            let from: Arc<Path> = Path::new("x").into();
            let large = LargeFile::new((&from, None), large, 1 << 30, false);
            let upload = DividedUpload::new(large.path(), large.size, (2, 1 << 20), false);
            let open = Arc::new(BegunFile::new(large.clone(), Divided::Sent(Arc::clone(&upload))));
            let queue = Queue::default();
            queue.add_large(vec![large]);
            queue.fill(vec![batch("small")], vec![]);
            assert_eq!(name(&queue.take(true).await.expect("work")), "copy small");
            assert_eq!(name(&queue.take(true).await.expect("work")), "begin a");
            queue.opened(Arc::clone(&open));
            upload.fail("a reason".to_owned());
            assert!(queue.leave(&open), "nobody else sends ranges");
            assert_eq!(queue.spare(), None, "it is being completed");
            queue.put_back(Work::Complete(open, upload));
            assert!(!queue.is_done());
            assert_eq!(queue.spare(), Some(true), "also for a session that is not connected yet");
            // also one that takes no ranges
            assert_eq!(name(&queue.take(false).await.expect("work")), "complete a");
            (0..2).for_each(|_| queue.finished());
            assert!(queue.is_done());
        });
    }

    #[test]
    fn a_walk_waits_for_room_and_ends_with_a_stopped_queue() {
        run(async {
            let queue = Queue::default();
            for n in 0..WAITING {
                assert!(queue.add(batch(&n.to_string())).await);
            }
            let adding = async { queue.add(batch("last")).await };
            let taking = async {
                tokio::task::yield_now().await;
                name(&queue.take(true).await.expect("a batch"))
            };
            assert_eq!(tokio::join!(adding, taking), (true, "copy 0".to_owned()));
            let adding = async { queue.add(batch("no room")).await };
            let stopping = async {
                tokio::task::yield_now().await;
                queue.stop();
            };
            assert!(!tokio::join!(adding, stopping).0);
            assert!(queue.take(true).await.is_none() && !queue.is_done());
        });
    }
}
