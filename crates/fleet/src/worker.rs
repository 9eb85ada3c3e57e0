//! A worker: takes items, copies them by the transfer's client, and settles them.
//!
//! A second thread reports to the engine every half second that the worker lives, extends its lease,
//! and gets what the worker is to do. A request that shall stop, or go at another rate, is interrupted:
//! what it has stored is recorded, and the rest of the item returns to the queue, unless only the rate
//! has changed.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use headroom_mutex::lock;
use headroom_transfer::files::Requests;
use headroom_transfer::{Client, Error as TransferError, ErrorCode, Host};
use tokio::sync::watch;

use crate::clock::now_ms;
use crate::copy::copy;
use crate::ends::{self, Clients, Dialer, OpenTree, Route, blocking, on_server};
use crate::engine::{Engine, Item, Lease, Orders, Outcome, Settlement, State, Step};
use crate::entry::Entry;
use crate::error::Error;
use crate::job::Job;
use crate::ledger::{Ledger, Sorted};
use crate::process::name_of;
use crate::share::{Division, Sharers};
use crate::stop::Stop;

/// How often the engine hears of a worker.
const BEAT: Duration = Duration::from_millis(500);
/// How long a worker waits that found nothing to take, or has lost a connection.
const IDLE: Duration = Duration::from_millis(250);
/// The pause before connecting again: at first, and at most.
const PAUSE: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));

/// Works until the job is done or cancelled, or until it is stopped. `open` opens a handle of the
/// engine, `connect` connects to a server of the job. Must be called within a multi-threaded tokio
/// runtime.
///
/// # Errors
/// The engine or a store cannot be used, a server refuses the worker, or the destination's disk is
/// full. A server that cannot be reached is tried again.
pub async fn work<E, C>(
    open: impl Fn() -> Result<E, Error>,
    job: &Job,
    connect: C,
    stop: &Stop,
) -> Result<(), Error>
where
    E: Engine + Send + 'static,
    C: AsyncFnMut(&Host) -> Result<Client, TransferError>,
{
    let (route, mut dialer) = ends::open(&job.direction, connect).await?;
    let name = name_of(std::process::id());
    let mut engine = open()?;
    let pulse = Pulse::start(open()?, &name)?;
    let mut clients = None;
    let mut counted = Requests::default();
    let ended = loop {
        let orders = pulse.orders();
        if orders.is_done || stop.is_stopped() {
            break Ok(());
        }
        if orders.state != State::Running {
            close(&mut clients).await;
            idle(stop).await;
            continue;
        }
        let item = engine.take(&name, now_ms())?;
        pulse.hold(item.as_ref().map(|item| item.lease));
        if clients.as_ref().is_some_and(|clients| !clients.are_for(item.as_ref())) {
            close(&mut clients).await;
        }
        let Some(item) = item else {
            idle(stop).await;
            continue;
        };
        let lease = item.lease;
        let work = Work { job, route: &route, pulse: &pulse, stop };
        let (mut settlement, fatal) = work.one(&mut clients, &mut dialer, item).await;
        let requests = dialer.requests();
        settlement.requests = requests.since(&counted);
        let is_settled = engine.settle(lease, &settlement, now_ms());
        pulse.hold(None);
        if is_settled? {
            counted = requests;
        } else {
            tracing::warn!("another worker has taken an item whose lease ended");
        }
        if let Some(error) = fatal {
            break Err(error);
        }
    };
    close(&mut clients).await;
    drop(pulse);
    // figures, without which nothing is wrong
    let _ = engine.add_requests(&dialer.requests().since(&counted));
    // who cannot leave is missed after a while
    let _ = engine.leave(&name, now_ms());
    dialer.log_requests();
    ended
}

/// How items are worked on.
struct Work<'a> {
    job: &'a Job,
    route: &'a Route,
    pulse: &'a Pulse,
    stop: &'a Stop,
}

impl Work<'_> {
    /// Copies an item. Also returns why the worker must end, if it must.
    async fn one<C>(
        &self,
        clients: &mut Option<Clients>,
        dialer: &mut Dialer<C>,
        item: Item,
    ) -> (Settlement, Option<Error>)
    where
        C: AsyncFnMut(&Host) -> Result<Client, TransferError>,
    {
        let is_range = matches!(item.step, Step::Range(_));
        // the ranges that come before a file have counted its bytes
        let is_counted = !is_range && item.entries.iter().any(|entry| entry.ranges() > 0);
        let in_flight = if is_counted { Arc::default() } else { Arc::clone(&self.pulse.in_flight) };
        let (mut item, mut copied) = (item, Vec::new());
        let (done, sorted) = loop {
            let ledger = Ledger::new(Arc::clone(&in_flight));
            let done = self.attempt(clients, dialer, &item, &ledger).await;
            let mut sorted = ledger.sorted(item.entries);
            copied.append(&mut sorted.copied);
            if !matches!(done, Attempt::RateChanged) || sorted.left.is_empty() {
                break (done, sorted);
            }
            // the item stays here: a worker that has waited would begin with a lower share
            in_flight.store(copied.iter().map(|file| file.size).sum(), Ordering::Relaxed);
            (item.entries, item.was_taken) = (sorted.left, true);
        };
        let Sorted { mut left, reason, disk_full, .. } = sorted;
        let before = left.len();
        // of a range, the file's own item finds that
        if matches!(done, Attempt::Done) && !is_range {
            left = without_vanished(self.route, clients, left).await;
        }
        let vanished = (before - left.len()) as u64;
        // a single file may need more than others; of several, not even the small ones fit
        let disk_full = disk_full.filter(|_| left.len() > 1);
        let (reason, fatal) = match (done, disk_full) {
            (Attempt::Done, Some(reason)) => (None, Some(Error::DestinationFull(reason))),
            (Attempt::Done, None) => {
                let nameless = || "it was neither stored nor refused".to_owned();
                (Some(reason.unwrap_or_else(nameless)), None)
            }
            (Attempt::Interrupted | Attempt::RateChanged, _) => (None, None),
            (Attempt::Fatal(error), _) => (None, Some(error.into())),
        };
        let outcome = reason.map_or(Outcome::Interrupted, Outcome::Failed);
        let requests = Requests::default();
        (Settlement { copied, left, vanished, outcome, requests }, fatal)
    }

    async fn attempt<C>(
        &self,
        kept: &mut Option<Clients>,
        dialer: &mut Dialer<C>,
        item: &Item,
        ledger: &Arc<Ledger>,
    ) -> Attempt
    where
        C: AsyncFnMut(&Host) -> Result<Client, TransferError>,
    {
        let Self { job, route, pulse, stop } = self;
        let mut clients = match kept.take().filter(|clients| !clients.is_closed()) {
            Some(clients) => clients,
            None => match self.connected(dialer).await {
                Ok(Some(clients)) => clients,
                Ok(None) => return Attempt::Interrupted,
                Err(error) => return Attempt::Fatal(error),
            },
        };
        let orders = pulse.orders();
        if !continues(&orders, orders.division, true) || stop.is_stopped() {
            *kept = Some(clients);
            return Attempt::Interrupted;
        }
        if let Err(error) = self.with_source(&mut clients, dialer, item).await {
            clients.close().await;
            return failed(error, stop).await;
        }
        // between two servers, unfinished files are received again from their beginning
        let can_resume = !matches!(route, Route::Across { .. });
        clients.limit(orders.division.map(|division| division.share_bps()));
        let done = tokio::select! {
            done = copy(job, route, &mut clients, item, ledger) => Some(done),
            () = pulse.interrupted(orders.division, can_resume, stop) => None,
        };
        match done {
            Some(Ok(())) => {
                *kept = Some(clients);
                Attempt::Done
            }
            Some(Err(error)) => {
                clients.close().await;
                failed(error, stop).await
            }
            None => {
                // its request has no end
                clients.close().await;
                let orders = pulse.orders();
                let is_same = continues(&orders, orders.division, true) && !stop.is_stopped();
                if is_same { Attempt::RateChanged } else { Attempt::Interrupted }
            }
        }
    }

    /// Connects to the source, if the item needs that and the process serves it to itself.
    async fn with_source<C>(
        &self,
        clients: &mut Clients,
        dialer: &mut Dialer<C>,
        item: &Item,
    ) -> Result<(), TransferError>
    where
        C: AsyncFnMut(&Host) -> Result<Client, TransferError>,
    {
        let is_own = matches!(self.route, Route::Up { here: Some(_), .. });
        if is_own && matches!(item.step, Step::Range(_)) && clients.source.is_none() {
            clients.source = Some(dialer.connect_to_source().await?);
        }
        Ok(())
    }

    /// Connects, again and again until that succeeds; `None` if the worker is to stop.
    async fn connected<C>(&self, dialer: &mut Dialer<C>) -> Result<Option<Clients>, TransferError>
    where
        C: AsyncFnMut(&Host) -> Result<Client, TransferError>,
    {
        let Self { pulse, stop, .. } = self;
        let mut pause = PAUSE.0;
        loop {
            match dialer.connect().await {
                Ok(clients) => return Ok(Some(clients)),
                Err(error) if error.is_temporary() => tracing::info!("{error}"),
                Err(error) => return Err(error),
            }
            let division = pulse.orders().division;
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                // a rate that changes meanwhile ends a pause, and no more
                () = pulse.interrupted(division, true, stop) => {}
            }
            let orders = pulse.orders();
            if stop.is_stopped() || !continues(&orders, orders.division, true) {
                return Ok(None);
            }
            pause = (pause * 2).min(PAUSE.1);
        }
    }
}

/// Returns what the source has of these entries: that others were lost since they were listed is
/// no failure. On a server only a single file is looked for: of several that failed, nobody knows
/// which are lost.
async fn without_vanished(
    route: &Route,
    clients: &mut Option<Clients>,
    left: Vec<Entry>,
) -> Vec<Entry> {
    match (route, clients) {
        (Route::Up { from, .. }, _) => without_vanished_here(from, left).await,
        (Route::Down { from, .. } | Route::Across { from, .. }, Some(clients)) => {
            let [entry] = left.as_slice() else { return left };
            if !entry.is_file() {
                return left;
            }
            let path = on_server(from, &entry.path);
            let listed = clients.reading().list(&path, |_| {}).await;
            let is_lost = |error: &TransferError| error.code() == Some(ErrorCode::NOT_FOUND);
            if listed.is_err_and(|error| is_lost(&error)) { Vec::new() } else { left }
        }
        (Route::Down { .. } | Route::Across { .. }, None) => left,
    }
}

/// Does what [`without_vanished`] does for a source that this process reads by itself.
async fn without_vanished_here(from: &OpenTree, left: Vec<Entry>) -> Vec<Entry> {
    // a source without any name has not lost single files: its disk may not be mounted
    if left.is_empty() || !from.is_empty().await.is_ok_and(|is_empty| !is_empty) {
        return left;
    }
    let Ok(root) = from.root().await else { return left };
    let mut present = left.clone();
    let look = move || {
        present.retain(|entry| match root.look(&entry.path) {
            Ok(found) => found.is_some(),
            // its directory may be lost, too
            Err(error) => TransferError::from(error).code() != Some(ErrorCode::NOT_FOUND),
        });
        present
    };
    blocking(look).await.unwrap_or(left)
}

/// Tells how an attempt ended that failed as a whole.
async fn failed(error: TransferError, stop: &Stop) -> Attempt {
    match error {
        // another worker stores the same file: the lease has ended
        TransferError::Superseded => Attempt::Interrupted,
        error if error.is_temporary() => {
            tracing::info!("{error}");
            // a server that closes every connection is not asked without end
            idle(stop).await;
            Attempt::Interrupted
        }
        error => Attempt::Fatal(error),
    }
}

/// How an attempt at an item ended.
enum Attempt {
    /// All requests were answered; single entries may have failed.
    Done,
    /// It was stopped, or the connection was lost.
    Interrupted,
    /// It shall go at another rate, and nothing else.
    RateChanged,
    /// The worker must end.
    Fatal(TransferError),
}

/// Waits a little, or for the end.
async fn idle(stop: &Stop) {
    tokio::select! {
        () = tokio::time::sleep(IDLE) => {}
        () = stop.stopped() => {}
    }
}

async fn close(clients: &mut Option<Clients>) {
    if let Some(clients) = clients.take() {
        clients.close().await;
    }
}

/// Whether a request that was limited by this division continues under these orders.
fn continues(orders: &Orders, division: Option<Division>, can_resume: bool) -> bool {
    let is_near = match (orders.division, division) {
        (Some(now), Some(before)) => now.is_near(&before, can_resume),
        (now, before) => now == before,
    };
    is_near && orders.holds_lease && orders.state == State::Running && !orders.is_done
}

/// The thread that tells the engine of the worker.
struct Pulse {
    orders: Arc<watch::Sender<Orders>>,
    lease: Arc<Mutex<Option<Lease>>>,
    in_flight: Arc<AtomicU64>,
    /// The thread, and what ends it when it is dropped.
    thread: Option<(mpsc::Sender<()>, JoinHandle<()>)>,
}

impl Pulse {
    fn start(mut engine: impl Engine + Send + 'static, name: &str) -> Result<Self, Error> {
        let lease: Arc<Mutex<Option<Lease>>> = Arc::default();
        let in_flight: Arc<AtomicU64> = Arc::default();
        let mut sharers = Sharers::default();
        let mut steady = move |orders: Orders, has_item: bool| {
            let division = sharers.steady(orders.division, has_item);
            Orders { division, ..orders }
        };
        let first = steady(engine.beat(name, None, 0, now_ms())?, false);
        let orders = Arc::new(watch::Sender::new(first));
        let (end, ended) = mpsc::channel();
        let (held, moved, name) = (Arc::clone(&lease), Arc::clone(&in_flight), name.to_owned());
        let heard = Arc::clone(&orders);
        let beating = move || {
            while ended.recv_timeout(BEAT) == Err(RecvTimeoutError::Timeout) {
                let held = *lock(&held);
                match engine.beat(&name, held, moved.load(Ordering::Relaxed), now_ms()) {
                    Ok(orders) => {
                        heard.send_replace(steady(orders, held.is_some()));
                    }
                    // without it the lease ends, and what the worker does then is refused
                    Err(error) => tracing::warn!("{error}"),
                }
            }
        };
        let thread = std::thread::Builder::new().name("pulse".to_owned()).spawn(beating);
        let thread = thread.map_err(Error::system("start a thread for", Path::new("a worker")))?;
        Ok(Self { orders, lease, in_flight, thread: Some((end, thread)) })
    }

    /// Returns what the worker is to do.
    fn orders(&self) -> Orders {
        *self.orders.borrow()
    }

    /// From now on this lease is extended.
    fn hold(&self, lease: Option<Lease>) {
        *lock(&self.lease) = lease;
        self.in_flight.store(0, Ordering::Relaxed);
        // a former one may have been lost
        self.orders.send_modify(|orders| orders.holds_lease = true);
    }

    /// Waits until a request that was limited by this division has to end.
    async fn interrupted(&self, division: Option<Division>, can_resume: bool, stop: &Stop) {
        let mut orders = self.orders.subscribe();
        tokio::select! {
            // the sender is here, and so is not dropped
            _ = orders.wait_for(|orders| !continues(orders, division, can_resume)) => {}
            () = stop.stopped() => {}
        }
    }
}

impl Drop for Pulse {
    fn drop(&mut self) {
        if let Some((end, thread)) = self.thread.take() {
            drop(end);
            // it calls the engine alone, and does not panic
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use headroom_transfer::Time;
    use headroom_transfer::path::RelPath;

    use super::*;
    use crate::entry::Kind;

    const DIVISION: Option<Division> = Some(Division { rate_bps: 2000, workers: 2 });
    const ORDERS: Orders =
        Orders { state: State::Running, is_done: false, division: DIVISION, holds_lease: true };

    #[test]
    fn a_request_ends_when_it_has_to() {
        let continues = |orders: &Orders, division| super::continues(orders, division, true);
        assert!(continues(&ORDERS, DIVISION));
        let among = |rate_bps: u64, workers: u64| Some(Division { rate_bps, workers });
        assert!(continues(&ORDERS, among(2020, 2)), "hardly another rate");
        assert!(!continues(&ORDERS, among(2000, 1)) && !continues(&ORDERS, None));
        let unlimited = Orders { division: None, ..ORDERS };
        assert!(continues(&unlimited, None) && !continues(&unlimited, DIVISION));
        for orders in [
            Orders { state: State::Paused, ..ORDERS },
            Orders { state: State::Cancelled, ..ORDERS },
            Orders { is_done: true, ..ORDERS },
            Orders { holds_lease: false, ..ORDERS },
        ] {
            assert!(!continues(&orders, DIVISION), "{orders:?}");
        }
    }

    #[tokio::test]
    async fn entries_that_the_source_has_lost_are_dropped_and_others_stay() {
        let ground = tempfile::tempdir().expect("a folder");
        std::fs::write(ground.path().join("there"), "there").expect("a file");
        let entry = |name: &str| {
            let mtime = Time { seconds: 0, nanoseconds: 0 };
            let kind = Kind::File { size: 5, mode: 0o644, mtime, ranges: 0 };
            Entry { number: 0, path: RelPath::parse(name.as_bytes()).expect("a path"), kind }
        };
        let up = |from: &Path| {
            let from = OpenTree::Folder(from.to_owned());
            Route::Up { from, to: Vec::new(), here: None }
        };
        let left = vec![entry("lost"), entry("there"), entry("lost/too")];
        let left = without_vanished(&up(ground.path()), &mut None, left).await;
        assert_eq!(left, [entry("there")]);
        // the disk with the source is not there
        let empty = tempfile::tempdir().expect("a folder");
        for from in [empty.path(), &empty.path().join("missing")] {
            let left = without_vanished(&up(from), &mut None, left.clone()).await;
            assert_eq!(left, [entry("there")]);
        }
    }
}
