//! Counts what happens to a transfer, and what there is to send.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use data_encoding::HEXLOWER;
use headroom_transfer::files::{Source, SourceKind};
use headroom_transfer::{Event, Links, Observer};

use super::now_ms;
use super::transfer::{Counts, Stored, Transfer, UNKNOWN};
use crate::error::name_of;
use crate::names::encode;

/// Files that are remembered of a transfer for its receipt, and failures.
const MAX_FILES: usize = 20_000;
const MAX_FAILURES: usize = 1000;
const MAX_WARNINGS: usize = 20;

/// Counts what happens to a transfer.
pub(super) struct Watching(pub(super) Arc<Transfer>);

impl Observer for Watching {
    fn event(&self, event: Event<'_>) {
        let Counts { files, offered, kept, moved, stored, verified, failed, removed, total } =
            &self.0.counts;
        let add = |count: &AtomicU64, n| {
            count.fetch_add(n, Ordering::Relaxed);
        };
        match event {
            Event::Offered { bytes } => {
                add(files, 1);
                add(offered, bytes);
            }
            Event::AllOffered { bytes, .. } => total.store(bytes, Ordering::Relaxed),
            Event::Kept { bytes } | Event::Hole { bytes } => add(kept, bytes),
            Event::Moved { bytes } => add(moved, bytes),
            Event::Begun { path } => self.0.state().current = Some(encode(path.as_bytes())),
            Event::Hashed { path, bytes, hash } => {
                let path = encode(path.as_bytes());
                let mut state = self.0.state();
                // those of files that failed stay
                if state.hashed.len() == MAX_FILES {
                    state.hashed.clear();
                }
                state.hashed.insert(path, (bytes, HEXLOWER.encode(hash)));
            }
            Event::Stored { path } => {
                add(stored, 1);
                let path = encode(path.as_bytes());
                let mut state = self.0.state();
                // directories and links have no hash
                let Some((size, hash)) = state.hashed.remove(&path) else { return };
                add(verified, 1);
                state.current = Some(path.clone());
                if state.stored.len() == MAX_FILES {
                    state.stored.pop_front();
                }
                state.stored.push_back(Stored { path, at: now_ms(), size, hash });
            }
            Event::Failed { reason, code } => {
                add(failed, 1);
                let mut state = self.0.state();
                if state.failures.len() < MAX_FAILURES {
                    state.failures.push((name_of(code), reason.to_owned()));
                }
            }
            Event::Warning { reason } | Event::LeftOut { reason } => {
                let mut state = self.0.state();
                if state.warnings.len() < MAX_WARNINGS {
                    state.warnings.push(reason.to_owned());
                }
            }
            Event::Removed { .. } => add(removed, 1),
            // it requests no CRCs: its receipts have hashes
            Event::Saved { .. }
            | Event::Summed { .. }
            | Event::Planned { .. }
            | Event::Lanes { .. }
            | Event::LanesSilent
            | Event::LanesBack => {}
        }
    }
}

/// Ends a walk ahead of a transfer when it is dropped.
#[derive(Debug, Default)]
pub(super) struct LookAhead(Arc<()>);

/// Counts what is to be sent while it is being sent, until the result is dropped.
pub(super) fn look_ahead(sources: Vec<PathBuf>, transfer: &Arc<Transfer>) -> LookAhead {
    let transfer = Arc::clone(transfer);
    let links = if transfer.server.is_ssh { Links::Keep } else { Links::Inside };
    let looking = LookAhead::default();
    let wanted = Arc::downgrade(&looking.0);
    std::thread::spawn(move || {
        let Some(sum) = total_bytes(Source::new(sources, links), &wanted) else { return };
        let total = &transfer.counts.total;
        let _ = total.compare_exchange(UNKNOWN, sum, Ordering::Relaxed, Ordering::Relaxed);
    });
    looking
}

/// Returns the bytes of all files; `None` if that is no longer wanted.
fn total_bytes(source: Source, wanted: &Weak<()>) -> Option<u64> {
    let mut sum = 0;
    for found in source.flatten() {
        if wanted.strong_count() == 0 {
            return None;
        }
        if let SourceKind::File(file) = found.kind {
            sum += file.metadata().size;
        }
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_walk_ends_with_the_transfer_that_it_is_ahead_of() {
        let folder = tempfile::tempdir().expect("a folder");
        for name in ["a", "b"] {
            std::fs::write(folder.path().join(name), "four").expect("a file");
        }
        let source = || Source::new([folder.path().to_owned()], Links::Inside);
        let looking = LookAhead::default();
        let wanted = Arc::downgrade(&looking.0);
        assert_eq!(total_bytes(source(), &wanted), Some(8));
        drop(looking);
        assert_eq!(total_bytes(source(), &wanted), None);
    }
}
