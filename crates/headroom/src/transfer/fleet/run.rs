//! `headroom fleet run` and `worker`.

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;
use headroom_fleet::run::Ended;
use headroom_fleet::{Engine, Job, Stop, now_ms};
use headroom_transfer::{Client, Error as TransferError, Host, block_on};

use super::arguments::{Run, Worker};
use super::hosts::{Elsewhere, Hosts};
use super::place::{Place, of_worker};
use super::progress::Progress;
use crate::transfer::arguments::Connect;
use crate::transfer::connect::TrustedConnector;
use crate::transfer::exit::INTERRUPTED;

/// What was set aside is named up to so many times.
const MAX_NAMED: usize = 20;

pub(super) fn run(arguments: &Run) -> anyhow::Result<ExitCode> {
    let mut job = Job::read(&arguments.job)?;
    let stop = Stop::new();
    let stopping = stop.clone();
    let handler = move || {
        // a second one does not wait: the state is as after a crash
        if stopping.is_stopped() {
            std::process::exit(INTERRUPTED);
        }
        stopping.stop();
    };
    ctrlc::set_handler(handler).context("cannot wait for Ctrl-C")?;
    let hosts = arguments.hosts.as_deref().map(|file| Hosts::read(file, &job)).transpose()?;
    let place = Place::of(&job, arguments.state.as_deref(), &stop)?;
    let _held = place.begin(&job, &arguments.job, arguments.restart)?;
    let mut connectors = Connectors::new(&job)?;
    let program = std::env::current_exe().context("cannot tell where this program is")?;
    let words = place.words(&arguments.job)?;
    let mut elsewhere = match &hosts {
        Some(hosts) => {
            job.workers = 0;
            hosts.start(arguments.ssh_command.as_deref(), &words)?
        }
        None => Elsewhere::default(),
    };
    let mut progress = Progress::new(arguments.json);
    let ended = block_on(headroom_fleet::run::run(
        || place.open(),
        &job,
        async |host: &Host| connectors.connect(host).await,
        &mut || spawn(&program, &words),
        &mut |control, counts| {
            if !elsewhere.look() {
                // nobody is left who could do anything
                stop.stop();
            }
            progress.show(control, counts);
        },
        &stop,
    ))?;
    progress.clear();
    elsewhere.end();
    let (ended, mut engine) = (ended?, place.open()?);
    let (counts, aside) = (engine.counts(now_ms())?, engine.aside(MAX_NAMED)?);
    progress.end(&ended, &counts, &aside);
    elsewhere.check(&ended)?;
    Ok(match ended {
        Ended::Paused | Ended::Cancelled => interrupted(),
        Ended::WorkerFailed(code) => ExitCode::from(u8::try_from(code).unwrap_or(1)),
        Ended::NotDeleted(_) => ExitCode::FAILURE,
        Ended::Done if counts.aside > 0 => ExitCode::FAILURE,
        Ended::Done => ExitCode::SUCCESS,
    })
}

pub(super) fn worker(arguments: &Worker) -> anyhow::Result<ExitCode> {
    let stop = Stop::new();
    let is_interrupted = Arc::new(AtomicBool::new(false));
    let (stopping, noting) = (stop.clone(), Arc::clone(&is_interrupted));
    let handler = move || {
        noting.store(true, Ordering::Relaxed);
        stopping.stop();
    };
    ctrlc::set_handler(handler).context("cannot wait for Ctrl-C")?;
    if arguments.until_eof {
        let stopping = stop.clone();
        std::thread::spawn(move || {
            // whatever ends it, the run is gone
            let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
            stopping.stop();
        });
    }
    let (job, place) = of_worker(&arguments.which, &stop)?;
    let mut connectors = Connectors::new(&job)?.quiet();
    block_on(headroom_fleet::worker::work(
        || place.open(),
        &job,
        async |host: &Host| connectors.connect(host).await,
        &stop,
    ))??;
    let is_interrupted = is_interrupted.load(Ordering::Relaxed);
    Ok(if is_interrupted { interrupted() } else { ExitCode::SUCCESS })
}

/// The exit code of what Ctrl-C has ended.
pub(super) fn interrupted() -> ExitCode {
    ExitCode::from(u8::try_from(INTERRUPTED).unwrap_or(1))
}

/// Connects to the servers of a job, to each as its own host wants it.
struct Connectors(Vec<(Host, TrustedConnector)>);

impl Connectors {
    fn new(job: &Job) -> anyhow::Result<Self> {
        let headroom_fleet::Connect { identity, fingerprint, ca, timeout } = job.connect.clone();
        let connect = Connect { identity, fingerprint, ca, timeout };
        let servers = job.direction.servers().into_iter();
        let connectors =
            servers.map(|server| Ok((server.host.clone(), TrustedConnector::new(&connect)?)));
        Ok(Self(connectors.collect::<anyhow::Result<_>>()?))
    }

    /// Suppresses notes about added hosts.
    fn quiet(self) -> Self {
        Self(self.0.into_iter().map(|(host, connector)| (host, connector.quiet())).collect())
    }

    async fn connect(&mut self, host: &Host) -> Result<Client, TransferError> {
        match self.0.iter_mut().find(|(of, _)| of == host) {
            Some((_, connector)) => connector.connect(host).await,
            None => Err(TransferError::Usage(format!("{host} is not a server of the job"))),
        }
    }
}

/// Starts a worker that ends with its standard input, and so with this process.
fn spawn(program: &Path, words: &[OsString]) -> io::Result<Child> {
    let mut worker = Command::new(program);
    worker.args(["fleet", "worker", "--until-eof"]).args(words);
    worker.stdin(Stdio::piped()).stdout(Stdio::null()).spawn()
}
