//! The queue of transfers. Each runs on a thread of its own by the code of `put`, `get` and
//! `sync`, whether a page is open or not.

mod history;
mod job;
mod observer;
mod run;
mod status;
mod transfer;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant, SystemTime};

use headroom_mutex::lock;
use serde_json::{Value, json};
use tokio::runtime::Handle;
use tokio::sync::watch;

pub(crate) use job::{Job, prepare};
use status::{Intent, Status};
use transfer::{State, Transfer};

use crate::error::ApiError;
use crate::servers::{Server, Servers};

/// Transfers that are kept; finished ones go first.
const MAX_TRANSFERS: usize = 500;
/// Seconds that the present rate is an average of.
const AVERAGE_OVER: f64 = 5.0;
/// How long a request has to end when its transfer is stopped.
const ENDING: Duration = Duration::from_secs(2);

/// All transfers.
#[derive(Debug)]
pub(crate) struct Transfers {
    servers: Arc<Servers>,
    handle: Handle,
    queue: Mutex<Queue>,
    version: AtomicU64,
    changed: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Queue {
    list: Vec<Arc<Transfer>>,
    next_id: u64,
    /// Bytes per second, of each transfer.
    rate: Option<u64>,
    is_closed: bool,
}

impl Transfers {
    pub(crate) fn new(servers: Arc<Servers>, handle: Handle) -> Arc<Self> {
        Arc::new(Self {
            servers,
            handle,
            queue: Mutex::default(),
            version: AtomicU64::new(1),
            changed: watch::Sender::new(1),
        })
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        lock(&self.queue)
    }

    /// Returns what changes when something does.
    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    fn touch(&self, state: &mut State) {
        state.version = self.version.fetch_add(1, Ordering::Relaxed) + 1;
    }

    /// Wakes those that [`Self::subscribe`].
    pub(crate) fn tell(&self) {
        self.changed.send_replace(self.version.load(Ordering::Relaxed));
    }

    fn set(&self, transfer: &Transfer, status: Status) {
        self.enter(&mut transfer.state(), status);
    }

    /// Changes the status of a locked state: what decided it still holds.
    fn enter(&self, state: &mut State, status: Status) {
        state.status = status;
        if !status.is_active() {
            state.rate = 0.0;
            state.current = None;
        }
        if !status.is_open() {
            state.finished = now_ms();
        }
        self.touch(state);
    }

    /// Adds a transfer.
    pub(crate) fn add(
        self: &Arc<Self>,
        server: Arc<Server>,
        job: Job,
        labels: Value,
    ) -> Result<u64, ApiError> {
        let id = {
            let mut queue = self.queue();
            if queue.list.len() >= MAX_TRANSFERS {
                let gone = queue.list.iter().position(|it| !it.state().status.is_open());
                let gone = gone.ok_or_else(|| {
                    ApiError::new(
                        "refused",
                        format!("no more than {MAX_TRANSFERS} transfers at once"),
                    )
                })?;
                queue.list.remove(gone);
            }
            queue.next_id += 1;
            let id = queue.next_id;
            let transfer = Transfer::new(id, job, server, labels);
            self.touch(&mut transfer.state());
            queue.list.push(Arc::new(transfer));
            id
        };
        self.next();
        Ok(id)
    }

    pub(crate) fn find(&self, id: u64) -> Result<Arc<Transfer>, ApiError> {
        let found = self.queue().list.iter().find(|transfer| transfer.id == id).cloned();
        found.ok_or_else(|| ApiError::new("not-found", "there is no such transfer"))
    }

    /// Starts what may run: of each server one transfer in each direction.
    fn next(self: &Arc<Self>) {
        let mut starting = Vec::new();
        {
            let queue = self.queue();
            let mut busy: Vec<(&str, bool)> = Vec::new();
            let lane = |transfer: &'_ Transfer| transfer.job.is_upload();
            for transfer in &queue.list {
                // one that is being stopped still counts
                if transfer.state().status.is_active() {
                    busy.push((&transfer.server.id, lane(transfer)));
                }
            }
            for transfer in queue.list.iter().filter(|_| !queue.is_closed) {
                let key = (&*transfer.server.id, lane(transfer));
                let mut state = transfer.state();
                if state.status == Status::Waiting && !busy.contains(&key) {
                    busy.push(key);
                    transfer.intent.send_replace(Intent::Run);
                    self.enter(&mut state, Status::Running);
                    starting.push((Arc::clone(transfer), queue.rate));
                }
            }
        }
        for (transfer, rate) in starting {
            let transfers = Arc::clone(self);
            // a thread: what it waits for differs from what the API waits for
            std::thread::spawn(move || {
                transfers.handle.block_on(transfers.run(&transfer, rate));
                transfers.next();
            });
        }
        self.tell();
    }

    /// Stops a transfer that runs; another that is not finished just becomes this.
    fn stop(&self, transfer: &Transfer, status: Status) {
        let mut state = transfer.state();
        if state.status.is_active() {
            transfer.intent.send_replace(Intent::Stop(status));
        } else if state.status.is_open() {
            self.enter(&mut state, status);
            drop(state);
            self.tell();
        }
    }

    /// Does what the page's buttons say.
    pub(crate) fn control(self: &Arc<Self>, id: u64, action: &str) -> Result<(), ApiError> {
        let transfer = self.find(id)?;
        let status = transfer.state().status;
        match action {
            "pause" if status.is_open() && status != Status::Paused => {
                self.stop(&transfer, Status::Paused);
            }
            "resume" => {
                let mut state = transfer.state();
                if !state.status.is_active() && state.status != Status::Waiting {
                    self.enter(&mut state, Status::Waiting);
                    drop(state);
                    self.next();
                }
            }
            "cancel" if status.is_open() => self.stop(&transfer, Status::Cancelled),
            "remove" => {
                // nothing is started as long as the queue is locked
                let stays = |it: &Arc<Transfer>| it.id != id || it.state().status.is_active();
                self.queue().list.retain(stays);
                self.version.fetch_add(1, Ordering::Relaxed);
                self.tell();
            }
            "earlier" => self.shift(id, -1),
            "later" => self.shift(id, 1),
            // it is so already
            "pause" | "cancel" => {}
            _ => return Err(ApiError::usage("there is no such action")),
        }
        Ok(())
    }

    /// Moves a transfer among those that are not finished.
    fn shift(self: &Arc<Self>, id: u64, step: isize) {
        let mut stopped = None;
        {
            let mut queue = self.queue();
            let open: Vec<usize> = (0..queue.list.len())
                .filter(|at| queue.list[*at].state().status.is_open())
                .collect();
            let Some(at) = open.iter().position(|at| queue.list[*at].id == id) else { return };
            let Some(other) = at.checked_add_signed(step).and_then(|at| open.get(at)) else {
                return;
            };
            let (first, second) = (open[at].min(*other), open[at].max(*other));
            queue.list.swap(first, second);
            let (first, second) = (&queue.list[first], &queue.list[second]);
            let is_same = first.server.id == second.server.id
                && first.job.is_upload() == second.job.is_upload();
            // one that is now before the running one has precedence
            if is_same
                && first.state().status == Status::Waiting
                && second.state().status.is_active()
            {
                stopped = Some(Arc::clone(second));
            }
        }
        if let Some(transfer) = stopped {
            transfer.requeue();
        }
        self.version.fetch_add(1, Ordering::Relaxed);
        self.next();
    }

    /// Removes finished transfers.
    pub(crate) fn clear(&self) {
        self.queue().list.retain(|transfer| {
            let status = transfer.state().status;
            status.is_open() || status == Status::Failed
        });
        self.version.fetch_add(1, Ordering::Relaxed);
        self.tell();
    }

    /// Limits each transfer to so many bytes per second. Those that run repeat their request, and
    /// keep what is there.
    pub(crate) fn limit(&self, rate: Option<u64>) {
        let running: Vec<_> = {
            let mut queue = self.queue();
            if queue.rate == rate {
                return;
            }
            queue.rate = rate;
            queue.list.iter().filter(|it| it.state().status.is_active()).cloned().collect()
        };
        for transfer in running {
            transfer.requeue();
        }
        self.version.fetch_add(1, Ordering::Relaxed);
        self.tell();
    }

    /// Returns how many transfers run or wait.
    pub(crate) fn active(&self) -> usize {
        let is = |it: &&Arc<Transfer>| {
            matches!(it.state().status, Status::Running | Status::Offline | Status::Waiting)
        };
        self.queue().list.iter().filter(is).count()
    }

    /// Stops all transfers, and waits a moment until they have.
    pub(crate) async fn close(&self) {
        let running: Vec<_> = {
            let mut queue = self.queue();
            queue.is_closed = true;
            queue.list.clone()
        };
        for transfer in &running {
            if transfer.state().status.is_open() {
                self.stop(transfer, Status::Paused);
            }
        }
        let until = Instant::now() + ENDING;
        while Instant::now() < until && running.iter().any(|it| it.state().status.is_active()) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Measures rates, once a second.
    pub(crate) fn second(&self) {
        let list = self.queue().list.clone();
        for transfer in list {
            let moved = transfer.counts.moved.load(Ordering::Relaxed);
            let mut state = transfer.state();
            if state.status != Status::Running {
                continue;
            }
            let all = state.moved_before + moved;
            let rate = all.saturating_sub(state.moved_at_last_second) as f64;
            state.moved_at_last_second = all;
            state.seconds += 1;
            let seconds = state.seconds as f64;
            let weight =
                if seconds < AVERAGE_OVER { 1.0 / seconds } else { 2.0 / (AVERAGE_OVER + 1.0) };
            state.rate += (rate - state.rate) * weight;
            state.history.add(rate);
        }
    }

    /// Returns the order of all, the limit, and those that changed since a version or run; and the
    /// version of this.
    pub(crate) fn changes(&self, since: u64) -> (Value, u64) {
        let version = self.version.load(Ordering::Relaxed);
        let queue = self.queue();
        let order: Vec<_> = queue.list.iter().map(|transfer| transfer.id).collect();
        let changed = queue.list.iter().filter(|transfer| {
            let state = transfer.state();
            state.version > since || state.status.is_active()
        });
        let changed: Vec<_> = changed.map(|transfer| transfer.json()).collect();
        (json!({"order": order, "limit": queue.rate, "changed": changed}), version)
    }
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use headroom_transfer::client::TIMEOUT;
    use headroom_transfer::ssh::Ssh;

    use super::*;
    use crate::servers::ConnectOptions;

    /// A queue that starts nothing, and two uploads to one server in it.
    fn queue() -> (Arc<Transfers>, [Arc<Transfer>; 2]) {
        let servers = Arc::new(Servers::new(ConnectOptions {
            identity: PathBuf::new(),
            known_hosts: PathBuf::new(),
            resolve: |host| Ok((host.clone(), None)),
            suggest: Vec::new,
            ssh: Ssh::default(),
            timeout: TIMEOUT,
        }));
        let (server, _) = servers.add("nas", false).expect("an address");
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let transfers = Transfers::new(servers, runtime.handle().clone());
        transfers.queue().is_closed = true;
        let uploads = [(), ()].map(|()| {
            let job = Job::Put { sources: Vec::new(), to: Vec::new() };
            let id = transfers.add(Arc::clone(&server), job, Value::Null).expect("a place");
            transfers.find(id).expect("it is there")
        });
        (transfers, uploads)
    }

    #[test]
    fn one_that_has_ended_before_it_is_paused_stays_so() {
        let (transfers, [done, _]) = queue();
        transfers.set(&done, Status::Done);
        transfers.stop(&done, Status::Paused);
        assert_eq!(done.state().status, Status::Done);
    }

    #[test]
    fn precedence_of_another_does_not_undo_a_pause() {
        let (transfers, [first, second]) = queue();
        transfers.set(&first, Status::Running);
        transfers.control(first.id, "pause").expect("it runs");
        transfers.control(second.id, "earlier").expect("it waits");
        assert_eq!(*first.intent.borrow(), Intent::Stop(Status::Paused));
    }

    #[test]
    fn one_that_runs_is_neither_removed_nor_started_again() {
        let (transfers, [running, waiting]) = queue();
        transfers.set(&running, Status::Running);
        for action in ["remove", "resume"] {
            transfers.control(running.id, action).expect("an action");
        }
        transfers.control(waiting.id, "remove").expect("an action");
        assert_eq!(running.state().status, Status::Running);
        assert!(transfers.find(running.id).is_ok() && transfers.find(waiting.id).is_err());
    }
}
