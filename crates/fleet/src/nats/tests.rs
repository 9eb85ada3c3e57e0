//! The engine with a server of its own.
//!
//! `scripts/fetch-parts nats-server` fetches it. Where it is missing the tests are skipped, unless
//! `HEADROOM_TESTS=required`.

use headroom_testing::{NatsServers as Servers, nats_server};

use super::*;
use crate::clock::now_ms;
use crate::engine::cases::{self, Bench};

/// An engine at a server, in real time.
struct AtServer<'a> {
    servers: &'a Servers,
    name: String,
    lock: Option<NatsLock>,
}

impl AtServer<'_> {
    fn connect(&self, job: &Job) -> Result<NatsJob, Error> {
        NatsJob::connect(job, &Stop::new())
    }
}

impl Bench for AtServer<'_> {
    type Engine = Nats;

    fn name(&self) -> String {
        self.name.clone()
    }

    fn settings(&self) -> String {
        format!("[nats]\nservers = {}\nreplicas = 1", self.servers.list())
    }

    fn begin(&mut self, job: &Job) -> Result<Nats, Error> {
        let nats = self.connect(job)?;
        let lock = match self.lock.take() {
            Some(lock) => lock,
            None => nats.lock()?,
        };
        let begun = nats.begin(&lock, Path::new("job.toml"));
        self.lock = Some(lock);
        begun
    }

    fn now_ms(&self) -> u64 {
        now_ms()
    }

    fn pass(&mut self, time_ms: u64) {
        std::thread::sleep(Duration::from_millis(time_ms));
    }
}

/// Starts a server with a folder of its own.
fn server() -> Option<(tempfile::TempDir, Servers)> {
    let program = nats_server()?;
    let ground = tempfile::tempdir().expect("a folder");
    let servers = Servers::start(&program, ground.path(), 1);
    Some((ground, servers))
}

#[test]
fn does_what_every_engine_does() {
    let Some((_ground, servers)) = server() else { return };
    let servers = &servers;
    cases::run(|name| AtServer { servers, name: format!("case_{name}.1"), lock: None });
}

#[test]
fn a_second_run_is_kept_out_and_a_job_that_was_not_begun_is_none() {
    let Some((_ground, servers)) = server() else { return };
    let bench = AtServer { servers: &servers, name: "locked".to_owned(), lock: None };
    let job = cases::job(&bench, "");
    let one = bench.connect(&job).expect("a connection");
    let other = bench.connect(&job).expect("a connection");
    assert!(matches!(one.open().err(), Some(Error::NoJob(_))));
    let lock = one.lock().expect("nobody has it");
    assert!(matches!(other.lock().err(), Some(Error::Busy(_))));
    drop(one.begin(&lock, Path::new("job.toml")).expect("a state"));
    assert!(other.open().is_ok());
    one.clear(&lock).expect("it is removed");
    assert!(matches!(other.open().err(), Some(Error::NoJob(_))));
    drop(lock);
    other.lock().expect("nobody has it");
}

#[test]
fn waits_for_a_server_that_is_lost_and_comes_back() {
    let Some((_ground, mut servers)) = server() else { return };
    let mut bench = AtServer { servers: &servers, name: "waits".to_owned(), lock: None };
    let job = cases::job(&bench, "");
    let mut engine = bench.begin(&job).expect("a state");
    let lock = bench.lock.take();
    engine.set_rate(Some(7)).expect("an answer");
    servers.kill(0);
    let waiting = std::thread::spawn(move || engine.control());
    std::thread::sleep(Duration::from_millis(300));
    assert!(!waiting.is_finished(), "it has nobody to ask");
    servers.restart(0);
    let control = waiting.join().expect("no panic").expect("control");
    assert_eq!(control.rate_bps, Some(7));
    drop(lock);
}

#[test]
fn an_item_that_comes_too_late_is_put_back() {
    let Some((_ground, mut servers)) = server() else { return };
    let mut bench = AtServer { servers: &servers, name: "late".to_owned(), lock: None };
    let job = cases::job(&bench, "lease = \"3600s\"");
    let mut engine = bench.begin(&job).expect("a state");
    cases::list(&mut engine, 1, 1);
    let lock = bench.lock.take();
    servers.kill(0);
    let lease = job.lease;
    // it asks as soon as it is connected again, when nobody waits for the answer
    let next = engine.wait(|inner| async move { Ok(inner.link.next_item(lease).await.is_some()) });
    assert!(!next.expect("an answer"), "nobody answers");
    servers.restart(0);
    let mut bench = AtServer { servers: &servers, name: "late".to_owned(), lock };
    assert_eq!(cases::take(&mut bench, &mut engine, "one").entries.len(), 1);
}

#[test]
fn asks_no_longer_than_until_the_end_is_requested() {
    let Some((_ground, mut servers)) = server() else { return };
    let bench = AtServer { servers: &servers, name: "stops".to_owned(), lock: None };
    let job = cases::job(&bench, "");
    let stop = Stop::new();
    let nats = NatsJob::connect(&job, &stop).expect("a connection");
    let lock = nats.lock().expect("nobody has it");
    let mut engine = nats.begin(&lock, Path::new("job.toml")).expect("a state");
    servers.kill(0);
    stop.stop();
    let error = engine.control().expect_err("nobody answers").to_string();
    assert!(error.contains("cannot read from NATS"), "{error}");
}
