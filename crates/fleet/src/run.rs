//! A run of a job: lists the source, starts workers and replaces those that die, and does what
//! comes last.

use std::io;
use std::path::Path;
use std::pin::pin;
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use headroom_transfer::{Client, Error as TransferError, Host, SyncOptions};

use crate::clock::now_ms;
use crate::copy::Relay;
use crate::ends::{self, Clients, Dialer, Route, blocking, listed_on_server};
use crate::engine::{Control, Counts, Engine, Phase, State};
use crate::error::Error;
use crate::job::{Batch, Job, Tree};
use crate::ledger::{Ledger, Noting};
use crate::listing::{Advice, Switch, list_folder, list_server};
use crate::mirror::{Mirrored, mirror};
use crate::process::{is_gone, name_of};
use crate::stop::Stop;

/// How often a run looks at workers and figures.
const TICK: Duration = Duration::from_millis(200);
/// The pause before a worker that has ended is replaced.
const RESTART: Duration = Duration::from_secs(1);
/// How long workers have to return their items.
const ENDING: Duration = Duration::from_secs(10);
/// Why a delete pass does not begin.
const EMPTY_SOURCE: &str = "the source is empty, so that everything at the destination would be removed. Check that its disk is mounted, or set `allow_empty_source = true` in the job file";
/// The exit code of a program that has panicked.
const PANICKED: i32 = 101;

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// Nothing is left to do, or only what was set aside.
    Done,
    /// It was stopped; the next run resumes it.
    Paused,
    /// The job was cancelled.
    Cancelled,
    /// A worker cannot work, and has said why. This is its exit code.
    WorkerFailed(i32),
    /// The delete pass did not succeed, for this reason: a sentence.
    NotDeleted(String),
}

/// Runs a job until it is done, cancelled or stopped. `open` opens a handle of the engine,
/// `connect` connects to a server of the job, `spawn` starts a worker as a process that ends with
/// its standard input, and `show` is told the figures several times a second. Must be called within
/// a multi-threaded tokio runtime.
///
/// # Errors
/// The engine or a store cannot be used, a server cannot be reached or refuses, or the source
/// cannot be listed at all.
pub async fn run<E, C>(
    open: impl Fn() -> Result<E, Error>,
    job: &Job,
    connect: C,
    spawn: &mut dyn FnMut() -> io::Result<Child>,
    show: &mut dyn FnMut(&Control, &Counts),
    stop: &Stop,
) -> Result<Ended, Error>
where
    E: Engine + Send + 'static,
    C: AsyncFnMut(&Host) -> Result<Client, TransferError>,
{
    let mut engine = open()?;
    if engine.control()?.state == State::Cancelled {
        return Err(Error::Cancelled);
    }
    prepare_folders(job)?;
    let (route, mut dialer) = ends::open(&job.direction, connect).await?;
    // while somebody is here who can be asked whether to trust a server
    dialer.connect().await?.close().await;
    engine.retry_aside()?;
    // after a crash nobody waits for the ends of their leases
    for holder in engine.holders()? {
        if is_gone(&holder) {
            engine.leave(&holder, now_ms())?;
        }
    }
    engine.set_state(State::Running)?;
    let mut children = Children { spawn, wanted: job.workers, running: Vec::new(), next: None };
    let ends = (&route, &mut dialer);
    let copied = copy(&open, &mut engine, job, ends, &mut children, show, stop).await;
    if matches!(copied, Ok(Some(Ended::Paused))) {
        // workers that others started wait as well
        engine.set_state(State::Paused)?;
    }
    children.end(&mut engine).await?;
    let ended = match copied? {
        Some(ended) => ended,
        None => delete(&mut engine, job, (&route, &mut dialer), show, stop).await?,
    };
    engine.add_requests(&dialer.requests())?;
    dialer.log_requests();
    Ok(ended)
}

/// Checks that a local source is there, makes a local destination, and checks that neither is in
/// the other.
fn prepare_folders(job: &Job) -> Result<(), Error> {
    let (from, to) = job.direction.trees();
    if let Some(Tree::Folder(from)) = from
        && !from.is_dir()
    {
        let reason = format!("{} is not a directory: `from` of a job is one", from.display());
        return Err(TransferError::Usage(reason).into());
    }
    if let Some(Tree::Folder(to)) = to {
        std::fs::create_dir_all(to).map_err(Error::system("make the directory", to))?;
    }
    if let (Some(Tree::Folder(from)), Some(Tree::Folder(to))) = (from, to) {
        // links and `..` may lead from one into the other
        let [real_from, real_to] = [from, to].map(|path| path.canonicalize());
        let real_from = real_from.map_err(Error::system("find", from))?;
        let real_to = real_to.map_err(Error::system("find", to))?;
        if real_from.starts_with(&real_to) || real_to.starts_with(&real_from) {
            let (from, to) = (from.display(), to.display());
            let reason = format!("{from} and {to} are the same directory, or one is in the other");
            return Err(TransferError::Usage(reason).into());
        }
    }
    Ok(())
}

/// Lists and copies; returns how the run ended, or nothing if the delete pass is next.
async fn copy<E, C>(
    open: &impl Fn() -> Result<E, Error>,
    engine: &mut E,
    job: &Job,
    (route, dialer): (&Route, &mut Dialer<C>),
    children: &mut Children<'_>,
    show: &mut dyn FnMut(&Control, &Counts),
    stop: &Stop,
) -> Result<Option<Ended>, Error>
where
    E: Engine + Send + 'static,
    C: AsyncFnMut(&Host) -> Result<Client, TransferError>,
{
    let switch = Arc::new(Switch::default());
    let mut is_listing = !engine.counts(now_ms())?.is_listed;
    let mut listing = pin!(list(open, job, (route, dialer), &switch));
    let ended = loop {
        let control = engine.control()?;
        show(&control, &engine.counts(now_ms())?);
        match control {
            _ if stop.is_stopped() => break Ok(Some(Ended::Paused)),
            Control { state: State::Cancelled, .. } => break Ok(Some(Ended::Cancelled)),
            Control { state: State::Paused, .. } => switch.set(Advice::Wait),
            Control { state: State::Running, .. } => switch.set(Advice::Continue),
        }
        let is_running = control.state == State::Running;
        if is_running {
            match engine.advance()? {
                Phase::Copying | Phase::Finishing => {}
                Phase::Deleting => break Ok(None),
                Phase::Done => break Ok(Some(Ended::Done)),
            }
        }
        if let Some(code) = children.look(engine, is_running)? {
            break Ok(Some(Ended::WorkerFailed(code)));
        }
        tokio::select! {
            listed = &mut listing, if is_listing => match listed {
                Ok(()) => is_listing = false,
                Err(error) => break Err(error),
            },
            () = tokio::time::sleep(TICK) => {}
            () = stop.stopped() => {}
        }
    };
    switch.set(Advice::Stop);
    ended
}

/// Lists the source.
async fn list<E, C>(
    open: &impl Fn() -> Result<E, Error>,
    job: &Job,
    (route, dialer): (&Route, &mut Dialer<C>),
    switch: &Arc<Switch>,
) -> Result<(), Error>
where
    E: Engine + Send + 'static,
    C: AsyncFnMut(&Host) -> Result<Client, TransferError>,
{
    let mut engine = open()?;
    let range = if job.direction.shares_files() { job.batch.range } else { u64::MAX };
    let batch = Batch { range, ..job.batch };
    match route {
        Route::Up { from, .. } => {
            let (root, switch) = (from.root().await?, Arc::clone(switch));
            blocking(move || list_folder(&mut engine, &root, batch, &switch)).await?
        }
        Route::Down { from, .. } | Route::Across { from, .. } => {
            let mut connect = async || dialer.connect_to_source().await;
            list_server(&mut engine, from, batch, switch, &mut connect).await
        }
    }
}

/// Removes at the destination what the source does not have: an ordinary sync of the whole tree,
/// or [`mirror`] between two servers, which also copies what has changed since it was listed. It
/// removes nothing unless everything could be read and stored.
async fn delete<E, C>(
    engine: &mut E,
    job: &Job,
    (route, dialer): (&Route, &mut Dialer<C>),
    show: &mut dyn FnMut(&Control, &Counts),
    stop: &Stop,
) -> Result<Ended, Error>
where
    E: Engine,
    C: AsyncFnMut(&Host) -> Result<Client, TransferError>,
{
    let options = SyncOptions { delete: true, fsync: job.fsync, ..SyncOptions::default() };
    let worker = name_of(std::process::id());
    loop {
        let control = engine.control()?;
        show(&control, &engine.counts(now_ms())?);
        match control.state {
            _ if stop.is_stopped() => {
                engine.set_state(State::Paused)?;
                return Ok(Ended::Paused);
            }
            State::Cancelled => return Ok(Ended::Cancelled),
            State::Paused => {
                wait(stop).await;
                continue;
            }
            State::Running => {}
        }
        let mut clients = dialer.connect().await?;
        clients.limit(control.rate_bps);
        if !job.allow_empty_source {
            match is_source_empty(route, &mut clients).await {
                Ok(false) => {}
                Ok(true) => {
                    clients.close().await;
                    return Ok(Ended::NotDeleted(EMPTY_SOURCE.to_owned()));
                }
                Err(error) if error.is_temporary() => {
                    clients.close().await;
                    tracing::info!("{error}");
                    wait(stop).await;
                    continue;
                }
                Err(error) => return Err(error.into()),
            }
        }
        let in_flight = Arc::new(AtomicU64::new(0));
        let ledger = Ledger::new(in_flight);
        let observer = Arc::new(Noting { ledger: Arc::clone(&ledger), directory: None });
        let mut mirrored = Mirrored::default();
        let sync = async {
            let client = &mut clients.client;
            let summary = match route {
                Route::Up { from, to, .. } => {
                    client.sync_root_to(&from.root().await?, to, &options, observer).await?
                }
                Route::Down { from, to } => {
                    client.sync_root_from(from, &to.root().await?, &options, observer).await?
                }
                Route::Across { from, to, spool } => {
                    let relay = Relay { job, from, to, spool };
                    return mirror(relay, &mut clients, &mut mirrored).await.map(|()| None);
                }
            };
            Ok::<_, TransferError>(Some(summary))
        };
        let done = tokio::select! {
            done = sync => Some(done),
            changed = steered(engine, &control, show, stop) => {
                changed?;
                None
            }
        };
        clients.close().await;
        let (mut copied, reason) = ledger.verified();
        let Mirrored { copied: relayed, reason: reason_between, .. } = &mut mirrored;
        copied.append(relayed);
        let reason = reason.or(reason_between.take());
        let (removed, failed) = match &done {
            Some(Ok(Some(summary))) => (summary.removed, summary.failed),
            // of a sync that is interrupted nobody says what it has removed
            _ => (mirrored.removed, mirrored.failed),
        };
        let is_complete = failed == 0 && matches!(done, Some(Ok(_)));
        engine.record_delete_pass(&copied, removed, is_complete, &worker, now_ms())?;
        match done {
            Some(Ok(_)) if is_complete => {
                show(&engine.control()?, &engine.counts(now_ms())?);
                return Ok(Ended::Done);
            }
            Some(Ok(_)) => {
                let nameless = || format!("{failed} names could not be read or stored");
                return Ok(Ended::NotDeleted(reason.unwrap_or_else(nameless)));
            }
            Some(Err(error)) if error.is_temporary() => {
                tracing::info!("{error}");
                wait(stop).await;
            }
            Some(Err(error)) => return Err(error.into()),
            // it shall wait, end, or go at another rate
            None => {}
        }
    }
}

/// Whether the source has no names at all.
async fn is_source_empty(route: &Route, clients: &mut Clients) -> Result<bool, TransferError> {
    match route {
        Route::Up { from, .. } => from.is_empty().await,
        Route::Down { from, .. } | Route::Across { from, .. } => {
            let (path, mut is_empty) = (listed_on_server(from, None), true);
            clients.reading().list(&path, |_| is_empty = false).await?;
            Ok(is_empty)
        }
    }
}

/// Shows the figures until the job shall do something else than under this control.
async fn steered<E: Engine>(
    engine: &mut E,
    control: &Control,
    show: &mut dyn FnMut(&Control, &Counts),
    stop: &Stop,
) -> Result<(), Error> {
    loop {
        wait(stop).await;
        let now = engine.control()?;
        show(&now, &engine.counts(now_ms())?);
        if stop.is_stopped() || now != *control {
            return Ok(());
        }
    }
}

/// Waits a little, or for the end.
async fn wait(stop: &Stop) {
    tokio::select! {
        () = tokio::time::sleep(TICK) => {}
        () = stop.stopped() => {}
    }
}

/// The workers of a run.
struct Children<'a> {
    spawn: &'a mut dyn FnMut() -> io::Result<Child>,
    wanted: u32,
    running: Vec<Child>,
    /// When the next may be started, if not now.
    next: Option<Instant>,
}

impl Children<'_> {
    /// Notes which workers have ended, and replaces them while the job runs. Returns the exit code
    /// of one that cannot work.
    fn look<E: Engine>(&mut self, engine: &mut E, is_running: bool) -> Result<Option<i32>, Error> {
        let mut n = 0;
        while let Some(child) = self.running.get_mut(n) {
            let unseen = || Error::system("wait for", Path::new("a worker"));
            if child.try_wait().map_err(unseen())?.is_none() {
                n += 1;
                continue;
            }
            let mut child = self.running.swap_remove(n);
            let status = child.wait().map_err(unseen())?;
            // whatever it had is taken by others at once
            engine.leave(&name_of(child.id()), now_ms())?;
            self.next = Some(Instant::now() + RESTART);
            match status.code() {
                // killed
                None => tracing::warn!("a worker was ended by a signal: another one replaces it"),
                Some(PANICKED) => tracing::warn!("a worker has failed: another one replaces it"),
                // it was told to end
                Some(0 | 130) => {}
                Some(code) => return Ok(Some(code)),
            }
        }
        let may_start = self.next.is_none_or(|next| next <= Instant::now());
        while is_running && may_start && self.running.len() < self.wanted as usize {
            let child = (self.spawn)();
            self.running.push(child.map_err(Error::system("start", Path::new("a worker")))?);
        }
        Ok(None)
    }

    /// Tells the workers to end, and waits until they have returned their items.
    async fn end<E: Engine>(&mut self, engine: &mut E) -> Result<(), Error> {
        // each ends with its standard input
        self.running.iter_mut().for_each(|child| drop(child.stdin.take()));
        let deadline = Instant::now() + ENDING;
        while !self.running.is_empty() && Instant::now() < deadline {
            self.look(engine, false)?;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        for child in &mut self.running {
            let _ = child.kill();
            let _ = child.wait();
            engine.leave(&name_of(child.id()), now_ms())?;
        }
        self.running.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_by_which_one_folder_is_in_the_other_is_found() {
        let ground = tempfile::tempdir().expect("a folder");
        std::fs::create_dir_all(ground.path().join("from/inner")).expect("a folder");
        std::os::unix::fs::symlink("from/inner", ground.path().join("link")).expect("a link");
        let prepare = |to: &str| {
            let file = ground.path().join("job.toml");
            let text = format!("name = \"job\"\nfrom = \"from\"\nto = \"{to}\"\n");
            std::fs::write(&file, text).expect("a file");
            prepare_folders(&Job::read(&file).expect("a job"))
        };
        let error = prepare("link/to").expect_err("it is in the other").to_string();
        assert!(error.contains("one is in the other"), "{error}");
        prepare("other").expect("it is beside the other");
        assert!(ground.path().join("other").is_dir());
    }
}
