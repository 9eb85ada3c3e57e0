//! What becomes of the files of a batch, as the events of its requests say.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use headroom_mutex::lock;
use headroom_transfer_proto::path::RelPath;

use super::servers::SpreadObserver;
use crate::delivery::{Event, Observer, Summary};

/// Warnings that are remembered. Further ones may be repeated.
const MAX_WARNINGS: usize = 1000;

/// What was reported and is the same of each server.
#[derive(Debug, Default)]
pub(super) struct Told {
    warnings: Mutex<HashSet<String>>,
    has_lanes: AtomicBool,
}

impl Told {
    /// Whether an event is reported the first time.
    fn is_new(&self, event: &Event<'_>) -> bool {
        match event {
            Event::Warning { reason } => {
                let mut warnings = lock(&self.warnings);
                if warnings.len() >= MAX_WARNINGS {
                    return !warnings.contains(*reason);
                }
                warnings.insert((*reason).to_owned())
            }
            Event::Lanes { .. } => !self.has_lanes.swap(true, Ordering::Relaxed),
            _ => true,
        }
    }
}

/// Passes on what a batch's requests report, and notes what is stored. Failures are not passed on:
/// the last request tries these files again.
#[derive(Debug)]
pub(super) struct Record<O> {
    observer: Arc<O>,
    told: Arc<Told>,
    /// The directory that names in events are relative to.
    directory: Option<RelPath>,
    noted: Mutex<Option<Noted>>,
}

/// What is known of a batch.
#[derive(Debug, Default)]
pub(super) struct Noted {
    /// Files that are not stored, with their sizes in bytes.
    pub(super) left: HashMap<RelPath, u64>,
    /// Files that are stored, and their bytes.
    pub(super) stored: (u64, u64),
    /// Files that were offered, and their bytes.
    pub(super) offered: (u64, u64),
    /// Bytes that were moved, or are there without.
    pub(super) done: u64,
}

impl<O> Record<O> {
    pub(super) fn new(
        observer: Arc<O>,
        told: Arc<Told>,
        directory: Option<RelPath>,
        files: &[(RelPath, u64)],
    ) -> Arc<Self> {
        let noted = Noted { left: files.iter().cloned().collect(), ..Noted::default() };
        Arc::new(Self { observer, told, directory, noted: Mutex::new(Some(noted)) })
    }

    fn noted(&self) -> MutexGuard<'_, Option<Noted>> {
        lock(&self.noted)
    }

    /// Returns what is known. Later events are ignored: those of a lost connection, whose threads
    /// end a little later.
    pub(super) fn end(&self) -> Noted {
        self.noted().take().unwrap_or_default()
    }

    /// Notes an event; returns whether it is passed on.
    fn note(&self, event: &Event<'_>) -> bool {
        let mut noted = self.noted();
        let Some(noted) = noted.as_mut() else { return false };
        match event {
            Event::Offered { bytes } => {
                noted.offered = (noted.offered.0 + 1, noted.offered.1 + bytes);
            }
            Event::Kept { bytes } | Event::Hole { bytes } | Event::Moved { bytes } => {
                noted.done += bytes;
            }
            Event::Stored { path } => {
                // directories are stored again at last
                let Some(size) = noted.left.remove(*path) else { return false };
                noted.stored = (noted.stored.0 + 1, noted.stored.1 + size);
            }
            Event::Failed { .. }
            | Event::LeftOut { .. }
            | Event::AllOffered { .. }
            | Event::Planned { .. }
            | Event::Removed { .. } => return false,
            Event::Saved { .. }
            | Event::Begun { .. }
            | Event::Hashed { .. }
            | Event::Summed { .. }
            | Event::Lanes { .. }
            | Event::LanesSilent
            | Event::LanesBack
            | Event::Warning { .. } => {}
        }
        true
    }
}

impl<O: SpreadObserver> Observer for Record<O> {
    fn event(&self, event: Event<'_>) {
        if self.note(&event) && self.told.is_new(&event) {
            pass_on(&*self.observer, self.directory.as_ref(), event);
        }
    }
}

/// Passes on what the last request reports, but for what was offered and is there: it offers all
/// again.
#[derive(Debug)]
pub(super) struct Last<O> {
    pub(super) observer: Arc<O>,
    pub(super) told: Arc<Told>,
    /// The directory that names in events are relative to.
    pub(super) directory: Option<RelPath>,
}

impl<O: SpreadObserver> Observer for Last<O> {
    fn event(&self, event: Event<'_>) {
        let is_again = matches!(
            event,
            Event::Offered { .. }
                | Event::AllOffered { .. }
                | Event::Kept { .. }
                | Event::Hole { .. }
        );
        if !is_again && self.told.is_new(&event) {
            pass_on(&*self.observer, self.directory.as_ref(), event);
        }
    }
}

/// Passes on an event, with whole paths.
fn pass_on(observer: &dyn Observer, directory: Option<&RelPath>, event: Event<'_>) {
    let whole = |path: &RelPath| directory.and_then(|directory| directory.join(path).ok());
    match event {
        Event::Stored { path } => match whole(path) {
            Some(whole) => observer.event(Event::Stored { path: &whole }),
            None => observer.event(event),
        },
        Event::Begun { path } => match whole(path) {
            Some(whole) => observer.event(Event::Begun { path: &whole }),
            None => observer.event(event),
        },
        Event::Hashed { path, bytes, hash } => match whole(path) {
            Some(whole) => observer.event(Event::Hashed { path: &whole, bytes, hash }),
            None => observer.event(event),
        },
        Event::Summed { path, bytes, crc } => match whole(path) {
            Some(whole) => observer.event(Event::Summed { path: &whole, bytes, crc }),
            None => observer.event(event),
        },
        event => observer.event(event),
    }
}

/// What is stored by all servers.
#[derive(Debug, Default)]
pub(super) struct Totals {
    stored: u64,
    stored_bytes: u64,
    /// Of these, files that the user named.
    named: u64,
    /// What was moved, and how.
    moved: Summary,
    /// Servers that have moved ranges of divided files.
    range_servers: HashSet<SocketAddr>,
}

impl Totals {
    /// Adds a batch. Without a summary, because the connection was lost, everything that is stored
    /// counts as moved.
    pub(super) fn add(&mut self, noted: &Noted, summary: Option<&Summary>, is_named: bool) {
        let (stored, bytes) = noted.stored;
        self.stored += stored;
        self.named += if is_named { stored } else { 0 };
        self.stored_bytes += bytes;
        match summary {
            Some(summary) => {
                // a sync also counts what it found unchanged as kept
                let kept = bytes.saturating_sub(summary.moved + summary.holes);
                add(&mut self.moved, &Summary { kept, ..*summary });
            }
            None => self.moved.moved += bytes,
        }
    }

    /// Adds what one server has moved of a divided file.
    pub(super) fn add_ranges(&mut self, server: SocketAddr, summary: &Summary) {
        if summary.moved + summary.kept + summary.holes > 0 {
            self.range_servers.insert(server);
        }
        self.add_moved(summary);
    }

    /// Adds what the completion of a divided file has moved.
    pub(super) fn add_moved(&mut self, summary: &Summary) {
        add(&mut self.moved, summary);
    }

    /// Adds a divided file, of which so many bytes were there from before.
    pub(super) fn add_divided(&mut self, bytes: u64, kept: u64, is_named: bool) {
        self.stored += 1;
        self.named += u64::from(is_named);
        self.stored_bytes += bytes;
        self.moved.kept += kept;
    }

    /// Returns how many files are stored.
    pub(super) const fn stored(&self) -> u64 {
        self.stored
    }

    /// Adds the last request of a copy, which has sent what is left.
    pub(super) fn of_copy(&self, last: Summary) -> Summary {
        let mut all = last;
        add(&mut all, &self.moved);
        let range_servers = self.range_servers.len() as u64;
        Summary { stored: last.stored + self.stored, range_servers, ..all }
    }

    /// Adds the last request of a copy, which has sent everything again.
    pub(super) fn of_whole(&self, last: Summary) -> Summary {
        Summary { stored: last.stored, ..self.of_copy(last) }
    }

    /// Adds the last requests of a download, which count what is stored but for named files.
    pub(super) fn of_get(&self, last: Summary) -> Summary {
        Summary { stored: last.stored + self.named, ..self.of_copy(last) }
    }

    /// Adds the last request of a sync, which has found unchanged what is stored.
    pub(super) fn of_sync(&self, last: Summary) -> Summary {
        let kept = last.kept.saturating_sub(self.stored_bytes);
        let unchanged = last.unchanged.saturating_sub(self.stored);
        self.of_copy(Summary { kept, unchanged, ..last })
    }
}

/// Adds what was moved, and how.
pub(super) fn add(to: &mut Summary, more: &Summary) {
    let Summary { moved, kept, holes, saved, on_lanes, lost, cipher, by_crc, requests, .. } = *more;
    to.moved = to.moved.saturating_add(moved);
    to.kept += kept;
    to.holes += holes;
    to.saved += saved;
    to.on_lanes += on_lanes;
    to.lost += lost;
    to.cipher = to.cipher.or(cipher);
    to.by_crc += by_crc;
    if let Some(requests) = requests {
        to.requests = Some(to.requests.unwrap_or_default().and(&requests));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;
    use crate::spread::servers::Returned;

    #[derive(Debug, Default)]
    struct Notes(Mutex<Vec<String>>);

    impl Observer for Notes {
        fn event(&self, event: Event<'_>) {
            self.0.lock().expect("nobody panicked").push(match event {
                Event::Stored { path } => format!("stored {path}"),
                Event::Warning { reason } => format!("warning {reason}"),
                Event::Lanes { .. } => "lanes".to_owned(),
                Event::Moved { bytes } => format!("moved {bytes}"),
                event => format!("{event:?}"),
            });
        }
    }

    impl SpreadObserver for Notes {
        fn connected(&self) {}
        fn lost(&self, _server: usize, _error: &Error, _is_final: bool) {}
        fn returned(&self, _returned: Returned) {}
        fn restarted(&self) {}
    }

    fn path(text: &str) -> RelPath {
        RelPath::parse(text.as_bytes()).expect("a path")
    }

    #[test]
    fn files_count_once_under_their_whole_paths_and_failures_are_left_to_the_last_request() {
        let (notes, told) = (Arc::new(Notes::default()), Arc::new(Told::default()));
        let files = [(path("a"), 10), (path("b"), 20)];
        let record = || Record::new(Arc::clone(&notes), Arc::clone(&told), Some(path("d")), &files);
        let (first, second) = (record(), record());
        for event in [
            Event::Warning { reason: "once" },
            Event::Moved { bytes: 10 },
            Event::Stored { path: &path("a") },
            Event::Stored { path: &path("a") },
            Event::Stored { path: &path("directory") },
            Event::Failed { reason: "b", code: None },
        ] {
            first.event(event);
        }
        second.event(Event::Warning { reason: "once" });
        let noted = first.end();
        assert_eq!((noted.stored, noted.done), ((1, 10), 10));
        assert_eq!(noted.left.into_iter().collect::<Vec<_>>(), [(path("b"), 20)]);
        // it comes too late
        first.event(Event::Stored { path: &path("b") });
        let notes = notes.0.lock().expect("nobody panicked");
        assert_eq!(*notes, ["warning once", "moved 10", "stored d/a"]);
    }

    #[test]
    fn servers_of_ranges_count_once_if_they_moved_some() {
        let mut totals = Totals::default();
        let some = Summary { moved: 5, ..Summary::default() };
        for (port, summary) in [(1, some), (2, some), (1, some), (3, Summary::default())] {
            totals.add_ranges(SocketAddr::from(([127, 0, 0, 1], port)), &summary);
        }
        totals.add_moved(&some);
        let all = totals.of_sync(Summary::default());
        assert_eq!((all.range_servers, all.moved), (2, 20));
    }

    #[test]
    fn summaries_count_each_file_once() {
        let noted = |stored, bytes| Noted { stored: (stored, bytes), ..Noted::default() };
        let mut totals = Totals::default();
        let summary =
            Summary { stored: 5, moved: 70, kept: 400, unchanged: 3, ..Summary::default() };
        // 30 bytes of these were there from before
        totals.add(&noted(2, 100), Some(&summary), false);
        totals.add(&noted(1, 50), None, true);
        let last = Summary {
            stored: 4,
            moved: 5,
            kept: 150 + 370,
            unchanged: 3 + 9,
            removed: 2,
            failed: 1,
            ..Summary::default()
        };
        let sync = totals.of_sync(last);
        assert_eq!((sync.stored, sync.unchanged, sync.removed, sync.failed), (7, 9, 2, 1));
        assert_eq!((sync.moved, sync.kept), (125, 400));
        let copy = totals.of_copy(Summary { stored: 4, moved: 5, ..Summary::default() });
        assert_eq!((copy.stored, copy.moved, copy.kept), (7, 125, 30));
        // it has sent these three again
        let whole = totals.of_whole(Summary { stored: 4 + 3, moved: 155, ..Summary::default() });
        assert_eq!((whole.stored, whole.moved), (7, 275));
        // it has found two of the files again
        let get = totals.of_get(Summary { stored: 4 + 2, moved: 5, ..Summary::default() });
        assert_eq!((get.stored, get.moved, get.kept), (7, 125, 30));
    }
}
