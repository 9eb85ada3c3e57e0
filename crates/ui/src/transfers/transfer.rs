//! One transfer: what it does, what it has moved, and what the page is shown of it.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use headroom_mutex::lock;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::history::History;
use super::job::Job;
use super::now_ms;
use super::status::{Intent, Status};
use crate::error::ApiError;
use crate::servers::Server;

/// A transfer. Its counters are of the present attempt: what an earlier one moved, this one keeps.
#[derive(Debug)]
pub(crate) struct Transfer {
    pub(super) id: u64,
    pub(super) job: Job,
    pub(super) server: Arc<Server>,
    /// What the page shows: names of source and destination, and how many more sources.
    labels: Value,
    pub(super) counts: Counts,
    state: Mutex<State>,
    pub(super) intent: watch::Sender<Intent>,
    created: u64,
}

#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) files: AtomicU64,
    pub(super) offered: AtomicU64,
    /// Kept, and in holes.
    pub(super) kept: AtomicU64,
    pub(super) moved: AtomicU64,
    pub(super) stored: AtomicU64,
    /// Of those that are stored, files.
    pub(super) verified: AtomicU64,
    pub(super) failed: AtomicU64,
    pub(super) removed: AtomicU64,
    /// Bytes of all files; [`UNKNOWN`] until they are known.
    pub(super) total: AtomicU64,
}

pub(super) const UNKNOWN: u64 = u64::MAX;

#[derive(Debug)]
pub(super) struct State {
    pub(super) status: Status,
    pub(super) version: u64,
    pub(super) error: Option<ApiError>,
    pub(super) started: u64,
    pub(super) finished: u64,
    pub(super) seconds: u64,
    /// What earlier attempts moved.
    pub(super) moved_before: u64,
    pub(super) moved_at_last_second: u64,
    pub(super) rate: f64,
    pub(super) history: History,
    pub(super) current: Option<String>,
    pub(super) stored: VecDeque<Stored>,
    /// Sizes and hashes of files that are not stored yet.
    pub(super) hashed: HashMap<String, (u64, String)>,
    /// Codes and sentences.
    pub(super) failures: Vec<(&'static str, String)>,
    pub(super) warnings: Vec<String>,
    pub(super) cipher: Option<&'static str>,
    pub(super) unchanged: u64,
}

#[derive(Debug, Clone)]
pub(super) struct Stored {
    pub(super) path: String,
    pub(super) at: u64,
    pub(super) size: u64,
    pub(super) hash: String,
}

impl Transfer {
    pub(super) fn new(id: u64, job: Job, server: Arc<Server>, labels: Value) -> Self {
        let state = State {
            status: Status::Waiting,
            version: 0,
            error: None,
            started: 0,
            finished: 0,
            seconds: 0,
            moved_before: 0,
            moved_at_last_second: 0,
            rate: 0.0,
            history: History::new(),
            current: None,
            stored: VecDeque::new(),
            hashed: HashMap::new(),
            failures: Vec::new(),
            warnings: Vec::new(),
            cipher: None,
            unchanged: 0,
        };
        let counts = Counts { total: AtomicU64::new(UNKNOWN), ..Counts::default() };
        Self {
            id,
            job,
            server,
            labels,
            counts,
            state: Mutex::new(state),
            intent: watch::Sender::new(Intent::Run),
            created: now_ms(),
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Makes one that runs wait for its turn again, unless it is being paused or cancelled.
    pub(super) fn requeue(&self) {
        self.intent.send_if_modified(|intent| {
            let runs = *intent == Intent::Run;
            if runs {
                *intent = Intent::Stop(Status::Waiting);
            }
            runs
        });
    }

    /// Returns when it shall stop.
    pub(super) async fn stopped(&self) {
        let _ = self.intent.subscribe().wait_for(|intent| *intent != Intent::Run).await;
    }

    /// Counts from nothing again: everything is offered anew.
    pub(super) fn begin_anew(&self) {
        let Counts { files, offered, kept, moved, stored, verified, failed, removed, .. } =
            &self.counts;
        let mut state = self.state();
        state.moved_before += moved.swap(0, Ordering::Relaxed);
        state.failures.clear();
        state.stored.clear();
        state.hashed.clear();
        for count in [files, offered, kept, stored, verified, failed, removed] {
            count.store(0, Ordering::Relaxed);
        }
    }

    pub(super) fn json(&self) -> Value {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let counts = &self.counts;
        let state = self.state();
        let (moved, kept, offered) = (of(&counts.moved), of(&counts.kept), of(&counts.offered));
        let total = of(&counts.total);
        let all_moved = state.moved_before + moved;
        let average = all_moved.checked_div(state.seconds).unwrap_or(0);
        let mut json = json!({
            "id": self.id, "direction": if self.job.is_upload() { "up" } else { "down" },
            "kind": if self.job.is_sync() { "sync" } else { "copy" }, "server": self.server.id,
            "state": state.status.name(), "error": state.error.as_ref().map(ApiError::body),
            "created": self.created, "started": state.started, "finished": state.finished, "seconds": state.seconds,
            "files": of(&counts.files), "stored": of(&counts.stored), "verified": of(&counts.verified), "failed": of(&counts.failed), "removed": of(&counts.removed),
            "unchanged": state.unchanged, "bytes": moved + kept, "moved": all_moved,
            "total": if total == UNKNOWN { offered } else { total }, "complete": total != UNKNOWN,
            "rate": state.rate, "average": average, "current": state.current, "cipher": state.cipher,
            "history": {"points": state.history.points, "seconds": state.history.seconds},
            "warnings": state.warnings,
        });
        if let (Some(json), Some(labels)) = (json.as_object_mut(), self.labels.as_object()) {
            json.extend(labels.clone());
        }
        json
    }

    /// Returns the files that are stored, at most so many of the last, and those that failed.
    pub(crate) fn files(&self, most: usize) -> Value {
        let state = self.state();
        let stored =
            state.stored.iter().rev().take(most).map(
                |it| json!({"path": it.path, "time": it.at, "size": it.size, "hash": it.hash}),
            );
        let stored: Vec<_> = stored.collect();
        let failures: Vec<_> =
            state.failures.iter().map(|(code, it)| json!({"reason": it, "code": code})).collect();
        json!({"stored": stored, "failed": failures, "all": self.counts.stored.load(Ordering::Relaxed)})
    }
}
