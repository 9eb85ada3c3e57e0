//! The engine's transitions, whoever crashes when.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::engine::cases::{self, Bench, MTIME, copied, file, list, path, settled, share_mbit};
use crate::engine::{MAX_LOSSES, Step};
use crate::entry::Kind;

fn job(settings: &str) -> Job {
    let ground = tempfile::tempdir().expect("a folder");
    let path = ground.path().join("job.toml");
    let text = format!("name = \"job\"\nfrom = \"/source\"\nto = \"host:\"\n{settings}\n");
    std::fs::write(&path, text).expect("a file");
    Job::read(&path).expect("a job")
}

fn begin(folder: &tempfile::TempDir, job: &Job) -> Sqlite {
    Sqlite::begin(folder.path(), job, Path::new("job.toml")).expect("a state")
}

fn directory(name: &str) -> (DirectoryKey, Entry) {
    let kind = Kind::Directory { mode: 0o755, mtime: MTIME };
    (DirectoryKey::of(Some(&path(name))), Entry { number: 0, path: path(name), kind })
}

fn receipts(engine: &mut Sqlite) -> Vec<Receipt> {
    let mut receipts = Vec::new();
    let mut each = |receipt| {
        receipts.push(receipt);
        true
    };
    engine.receipts(&mut each).expect("they are read");
    receipts
}

/// An engine in a folder, whose time is made up.
struct MadeUp {
    ground: tempfile::TempDir,
    now_ms: u64,
}

impl Bench for MadeUp {
    type Engine = Sqlite;

    fn begin(&mut self, job: &Job) -> Result<Sqlite, Error> {
        Sqlite::begin(self.ground.path(), job, Path::new("job.toml"))
    }

    fn now_ms(&self) -> u64 {
        self.now_ms
    }

    fn pass(&mut self, time_ms: u64) {
        self.now_ms += time_ms;
    }
}

#[test]
fn does_what_every_engine_does() {
    cases::run(|_| {
        let ground = tempfile::tempdir().expect("a folder");
        MadeUp { ground, now_ms: 1_000_000 }
    });
}

#[test]
fn an_item_is_taken_once_and_settled_by_the_lease_that_holds() {
    let (ground, job) = (tempfile::tempdir().expect("a folder"), job("lease = \"2s\""));
    let mut engine = begin(&ground, &job);
    assert_eq!(engine.take("one", 0).expect("an answer"), None);
    list(&mut engine, 3, 3);
    let item = engine.take("one", 0).expect("an answer").expect("an item");
    assert_eq!((item.step, item.entries.len()), (Step::Copy, 3));
    assert_eq!(engine.take("two", 1999).expect("an answer"), None);
    // a lease that is extended holds
    let orders = engine.beat("one", Some(item.lease), 7, 1000).expect("orders");
    assert!(orders.holds_lease && !orders.is_done);
    assert_eq!(engine.counts(1000).expect("counts").in_flight, 7);
    assert_eq!(engine.take("two", 2999).expect("an answer"), None);
    let again = engine.take("two", 3000).expect("an answer").expect("the lease has ended");
    assert_eq!((again.lease.item, again.entries.len()), (item.lease.item, 3));
    assert!(!engine.beat("one", Some(item.lease), 7, 3001).expect("orders").holds_lease);
    let all = settled(item.entries.iter().map(copied).collect(), Vec::new(), None);
    assert!(!engine.settle(item.lease, &all, 3001).expect("an answer"));
    assert_eq!(receipts(&mut engine), []);
    assert!(engine.settle(again.lease, &all, 3001).expect("an answer"));
    // what a crash repeats
    assert!(!engine.settle(again.lease, &all, 3002).expect("an answer"));
    let receipts = receipts(&mut engine);
    let numbers: Vec<_> = receipts.iter().map(|receipt| receipt.file.number).collect();
    assert_eq!(numbers, [0, 1, 2]);
    // the first lease ended, which is no attempt
    assert!(receipts.iter().all(|receipt| receipt.worker == "two" && receipt.attempts == 1));
    assert_eq!(engine.advance().expect("a phase"), Phase::Finishing);
    assert_eq!(engine.advance().expect("a phase"), Phase::Done);
    assert!(engine.beat("two", None, 0, 3003).expect("orders").is_done);
}

#[test]
fn a_batch_that_fails_is_split_down_to_the_file_that_fails() {
    let (ground, job) = (tempfile::tempdir().expect("a folder"), job("attempts = 2"));
    let mut engine = begin(&ground, &job);
    list(&mut engine, 8, 8);
    let mut now_ms = 0;
    while engine.advance().expect("a phase") == Phase::Copying {
        now_ms += 60_000;
        let Some(item) = engine.take("one", now_ms).expect("an answer") else { continue };
        // nobody says which one it was
        let fails = item.entries.iter().any(|entry| entry.number == 5);
        let settlement = match fails {
            true => settled(Vec::new(), item.entries, Some("file-5 cannot be sent")),
            false => settled(item.entries.iter().map(copied).collect(), Vec::new(), None),
        };
        assert!(engine.settle(item.lease, &settlement, now_ms).expect("an answer"));
    }
    assert_eq!(receipts(&mut engine).len(), 7);
    let aside = engine.aside(10).expect("an answer");
    let expected = Aside { path: Some(path("file-5")), reason: "file-5 cannot be sent".to_owned() };
    assert_eq!(aside, [expected]);
    // it does not hold the job, and is tried again by the next run
    assert_eq!(engine.advance().expect("a phase"), Phase::Done);
    engine.retry_aside().expect("an answer");
    assert_eq!(engine.control().expect("control").phase, Phase::Copying);
    let item = engine.take("one", now_ms).expect("an answer").expect("an item");
    assert_eq!(item.entries, [file(5)]);
}

#[test]
fn an_item_that_ends_its_workers_is_set_aside_and_one_that_was_interrupted_is_not() {
    let (ground, job) = (tempfile::tempdir().expect("a folder"), job("attempts = 3"));
    let mut engine = begin(&ground, &job);
    list(&mut engine, 1, 1);
    for now_ms in 0..10 {
        let item = engine.take("one", now_ms).expect("an answer").expect("an item");
        let settlement = settled(Vec::new(), item.entries, None);
        assert!(engine.settle(item.lease, &settlement, now_ms).expect("an answer"));
    }
    // more often than the job allows attempts
    let losses = u64::from(MAX_LOSSES);
    for now_ms in 10..10 + losses {
        engine.take("one", now_ms).expect("an answer").expect("an item");
        assert_eq!(engine.holders().expect("workers"), ["one"]);
        engine.leave("one", now_ms).expect("an answer");
    }
    assert_eq!(engine.take("one", 10 + losses).expect("an answer"), None);
    assert_eq!(engine.holders().expect("workers"), [""; 0]);
    let aside = engine.aside(10).expect("an answer");
    assert!(aside[0].reason.contains("its workers ended"), "{aside:?}");
}

#[test]
fn a_worker_that_is_killed_is_no_attempt_and_what_the_source_has_lost_is_done() {
    let (ground, job) = (tempfile::tempdir().expect("a folder"), job("attempts = 2"));
    let mut engine = begin(&ground, &job);
    list(&mut engine, 2, 2);
    for now_ms in 0..5 {
        engine.take("one", now_ms).expect("an answer").expect("an item");
        engine.leave("one", now_ms).expect("an answer");
    }
    let item = engine.take("two", 5).expect("an answer").expect("an item");
    let copied = vec![copied(&item.entries[0])];
    let settlement = Settlement { vanished: 1, ..settled(copied, Vec::new(), Some("it failed")) };
    assert!(engine.settle(item.lease, &settlement, 5).expect("an answer"));
    let receipts = receipts(&mut engine);
    assert_eq!((receipts.len(), receipts[0].attempts), (1, 1));
    let counts = engine.counts(5).expect("counts");
    assert_eq!((counts.copied_files, counts.vanished, counts.aside), (1, 1, 0));
    assert_eq!(engine.advance().expect("a phase"), Phase::Finishing);
}

#[test]
fn workers_share_the_rate_and_follow_the_state() {
    let (ground, job) = (tempfile::tempdir().expect("a folder"), job("rate = \"90mbit\""));
    let mut engine = begin(&ground, &job);
    list(&mut engine, 1, 1);
    let shares = [("one", 1000, 90), ("two", 1000, 45), ("three", 1000, 30), ("one", 7000, 90)];
    // at last the others are silent
    for (worker, now_ms, mbit) in shares {
        let orders = engine.beat(worker, None, 0, now_ms).expect("orders");
        assert_eq!(share_mbit(&orders), Some(mbit), "{worker} at {now_ms}");
    }
    engine.set_rate(None).expect("an answer");
    assert_eq!(engine.beat("one", None, 0, 7000).expect("orders").division, None);
    assert_eq!(engine.set_state(State::Paused).expect("control").state, State::Paused);
    assert_eq!(engine.take("one", 7000).expect("an answer"), None);
    assert_eq!(engine.set_state(State::Cancelled).expect("control").state, State::Cancelled);
    assert_eq!(engine.set_state(State::Running).expect("control").state, State::Cancelled);
    assert!(engine.beat("one", None, 0, 7000).expect("orders").is_done);
}

#[test]
fn a_silent_worker_with_an_item_has_no_share() {
    let (ground, job) = (tempfile::tempdir().expect("a folder"), job("rate = \"90mbit\""));
    let mut engine = begin(&ground, &job);
    list(&mut engine, 2, 1);
    let [one, two] = ["one", "two"].map(|worker| {
        let item = engine.take(worker, 1000).expect("an answer").expect("an item");
        engine.beat(worker, Some(item.lease), 0, 1000).expect("orders");
        item.lease
    });
    for (worker, lease, now_ms, mbit) in
        [("one", one, 1000, 45), ("two", two, 1000, 45), ("two", two, 7000, 90)]
    {
        let orders = engine.beat(worker, Some(lease), 0, now_ms).expect("orders");
        assert_eq!(share_mbit(&orders), Some(mbit), "{worker} at {now_ms}");
    }
}

#[test]
fn the_delete_pass_comes_after_everything_succeeded() {
    let settings = "mode = \"sync\"\ndelete = true\nattempts = 1";
    for fails in [false, true] {
        let (ground, job) = (tempfile::tempdir().expect("a folder"), job(settings));
        let mut engine = begin(&ground, &job);
        list(&mut engine, 1, 1);
        let item = engine.take("one", 0).expect("an answer").expect("an item");
        let settlement = match fails {
            true => settled(Vec::new(), item.entries, Some("it failed")),
            false => settled(vec![copied(&item.entries[0])], Vec::new(), None),
        };
        assert!(engine.settle(item.lease, &settlement, 0).expect("an answer"));
        assert_eq!(engine.advance().expect("a phase"), Phase::Finishing);
        let next = engine.advance().expect("a phase");
        assert_eq!(next, if fails { Phase::Done } else { Phase::Deleting });
        if fails {
            continue;
        }
        // a file that changed after it was listed, and one that is new
        let changed = CopiedFile { size: 20, hash: Some([7; 32]), ..copied(&file(0)) };
        let new = CopiedFile { path: path("new"), ..changed.clone() };
        engine.record_delete_pass(&[changed], 1, false, "run", 1).expect("an answer");
        assert_eq!(engine.control().expect("control").phase, Phase::Deleting);
        engine.record_delete_pass(&[new], 2, true, "run", 1).expect("an answer");
        let receipts = receipts(&mut engine);
        let size = |receipt: &Receipt| (receipt.file.path.to_string(), receipt.file.size);
        let sizes: Vec<_> = receipts.iter().map(size).collect();
        assert_eq!(sizes, [("file-0".to_owned(), 20), ("new".to_owned(), 20)]);
        assert_eq!(engine.counts(1).expect("counts").removed, 3);
        assert_eq!(engine.control().expect("control").phase, Phase::Done);
    }
}

#[test]
fn a_listing_resumes_from_its_last_checkpoint() {
    let (ground, job) = (tempfile::tempdir().expect("a folder"), job(""));
    let mut engine = begin(&ground, &job);
    assert_eq!(engine.begin_listing().expect("it begins"), 0);
    let root = engine.next_directory(None).expect("an answer").expect("the source");
    assert_eq!(root.path(), None);
    let found = [directory("b"), directory("a")];
    let listed = [root.clone()];
    let checkpoint =
        Checkpoint { listed: &listed, found: &found, next_number: 4, ..Checkpoint::default() };
    engine.stage(&[file(0)]).expect("it is staged");
    assert_eq!(engine.take("one", 0).expect("an answer"), None, "it is not seen yet");
    engine.checkpoint(&checkpoint).expect("a checkpoint");
    assert!(engine.take("one", 0).expect("an answer").is_some());
    engine.stage(&[file(4)]).expect("it is staged");
    drop(engine);

    // killed: what was staged since is found again
    let mut engine = begin(&ground, &job);
    assert_eq!(engine.begin_listing().expect("it begins"), 4);
    assert_eq!(items::left(&engine.connection).expect("entries"), [file(0)]);
    let next = engine.next_directory(None).expect("an answer").expect("a directory");
    assert_eq!(next.path(), Some(path("a")));
    let after = engine.next_directory(Some(&next)).expect("an answer").expect("a directory");
    assert_eq!(after.path(), Some(path("b")));
    let failed = Checkpoint {
        listed: std::slice::from_ref(&after),
        failed: Some((&next, "a cannot be listed")),
        next_number: 4,
        is_complete: true,
        ..Checkpoint::default()
    };
    engine.checkpoint(&failed).expect("a checkpoint");
    assert_eq!(engine.next_directory(None).expect("an answer"), None);
    let aside = engine.aside(10).expect("an answer");
    assert_eq!((aside.len(), aside[0].path.clone()), (1, Some(path("a"))));
    assert!(engine.counts(0).expect("counts").is_listed);
    engine.retry_aside().expect("an answer");
    assert!(!engine.counts(0).expect("counts").is_listed);
    assert_eq!(engine.next_directory(None).expect("an answer"), Some(next));
}

#[test]
fn staged_directories_are_seen_after_the_checkpoint_alone() {
    let (ground, job) = (tempfile::tempdir().expect("a folder"), job(""));
    let mut engine = begin(&ground, &job);
    engine.begin_listing().expect("it begins");
    let root = engine.next_directory(None).expect("an answer").expect("the source");
    engine.stage_directories(&[directory("a")]).expect("it is staged");
    assert_eq!(engine.next_directory(Some(&root)).expect("an answer"), None);
    drop(engine);

    // killed: it is not there any longer
    let mut engine = begin(&ground, &job);
    engine.begin_listing().expect("it begins");
    engine.stage_directories(&[directory("b")]).expect("it is staged");
    let (listed, found) = ([root], [directory("c")]);
    let checkpoint = Checkpoint { listed: &listed, found: &found, ..Checkpoint::default() };
    engine.checkpoint(&checkpoint).expect("a checkpoint");
    let [b, c] = ["b", "c"].map(|name| DirectoryKey::of(Some(&path(name))));
    assert_eq!(engine.next_directory(None).expect("an answer").as_ref(), Some(&b));
    assert_eq!(engine.next_directory(Some(&b)).expect("an answer"), Some(c));
}

#[test]
fn a_delete_pass_follows_what_the_job_file_says_now() {
    let ground = tempfile::tempdir().expect("a folder");
    let with = |delete: bool| job(&format!("mode = \"sync\"\ndelete = {delete}"));
    let mut engine = begin(&ground, &with(true));
    list(&mut engine, 0, 1);
    assert_eq!(engine.advance().expect("a phase"), Phase::Finishing);
    assert_eq!(engine.advance().expect("a phase"), Phase::Deleting);
    // the user has thought better of it
    let mut engine = begin(&ground, &with(false));
    assert_eq!(engine.advance().expect("a phase"), Phase::Done);
    // and again
    let mut engine = begin(&ground, &with(true));
    assert_eq!(engine.advance().expect("a phase"), Phase::Deleting);
}

#[test]
fn a_state_without_tables_is_none_yet() {
    let ground = tempfile::tempdir().expect("a folder");
    std::fs::write(ground.path().join(FILE), "").expect("a file");
    assert!(matches!(Sqlite::open(ground.path()), Err(Error::NoJob(_))));
    let engine = begin(&ground, &job(""));
    assert!(Sqlite::open(ground.path()).is_ok());
    drop(engine);
}

#[test]
fn states_of_others_are_refused_and_settings_may_change() {
    let (ground, first) = (tempfile::tempdir().expect("a folder"), job("workers = 2"));
    drop(begin(&ground, &first));
    let changed = job("workers = 3\nrate = \"1mbit\"");
    let mut engine = begin(&ground, &changed);
    assert_eq!(engine.job().workers, 3);
    assert_eq!(engine.control().expect("control").rate_bps, Some(1_000_000));
    // a rate that the user has set since stays while the file says the same
    engine.set_rate(Some(5)).expect("an answer");
    let mut engine = begin(&ground, &changed);
    assert_eq!(engine.control().expect("control").rate_bps, Some(5));
    let refused = |job: &Job| {
        let refused = Sqlite::begin(ground.path(), job, Path::new("job.toml"));
        refused.expect_err("it is another's").to_string()
    };
    let error = refused(&job("mode = \"sync\""));
    assert!(error.contains("its `mode` is copy") && error.contains("is sync"), "{error}");

    engine.connection.execute_batch("PRAGMA user_version = 1").expect("it is set");
    assert!(refused(&first).contains("version 1"));
    engine.connection.execute_batch("PRAGMA application_id = 7").expect("it is set");
    assert!(refused(&first).contains("another program"));
    drop(engine);
    Sqlite::remove(ground.path()).expect("it is removed");
    std::fs::write(ground.path().join(FILE), vec![b'x'; 5000]).expect("a file");
    assert!(refused(&first).contains("not a database"));
    assert!(Sqlite::open(&ground.path().join("missing")).is_err());
}

/// What happens to a queue.
#[derive(Debug, Clone)]
enum Event {
    /// A worker takes an item.
    Take(usize),
    /// A worker settles its item: it copied the entries at these places, and the rest failed or was
    /// interrupted.
    Settle { worker: usize, copied: Vec<bool>, failed: bool },
    /// A worker settles its item a second time, after a crash.
    Again(usize),
    /// A worker extends its lease.
    Beat(usize),
    /// A worker is killed, and its lease ends, at once or with time.
    Kill { worker: usize, is_noticed: bool },
    /// Time passes.
    Wait(u64),
    /// All processes are killed, and open the database again.
    Reopen,
    /// A run begins, and tries again what was set aside.
    Retry,
}

const WORKERS: usize = 3;
const NAMES: [&str; WORKERS] = ["one", "two", "three"];

fn event() -> impl Strategy<Value = Event> {
    let worker = || 0..WORKERS;
    prop_oneof![
        4 => worker().prop_map(Event::Take),
        4 => (worker(), prop::collection::vec(any::<bool>(), 8), any::<bool>())
            .prop_map(|(worker, copied, failed)| Event::Settle { worker, copied, failed }),
        1 => worker().prop_map(Event::Again),
        1 => worker().prop_map(Event::Beat),
        1 => (worker(), any::<bool>())
            .prop_map(|(worker, is_noticed)| Event::Kill { worker, is_noticed }),
        2 => (0..5000_u64).prop_map(Event::Wait),
        1 => Just(Event::Reopen),
        1 => Just(Event::Retry),
    ]
}

/// The numbers of entries that are left.
fn left(engine: &Sqlite) -> Vec<u64> {
    let left = items::left(&engine.connection).expect("entries");
    let mut left: Vec<_> = left.into_iter().map(|entry| entry.number).collect();
    left.sort_unstable();
    left
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// At every moment each file is in one item or has one receipt, whatever happens; a receipt is
    /// that of a worker that copied the file while it had the item; and in the end all are copied.
    #[test]
    fn no_file_is_lost_or_copied_twice_in_the_receipts(
        events in prop::collection::vec(event(), 0..60),
    ) {
        const FILES: u64 = 8;
        let ground = tempfile::tempdir().expect("a folder");
        let job = job("lease = \"2s\"\nattempts = 2");
        let mut engine = begin(&ground, &job);
        list(&mut engine, FILES, 4);
        let mut now_ms = 0;
        let mut held: [Option<Item>; WORKERS] = [None, None, None];
        let mut last: [Option<(Lease, Settlement)>; WORKERS] = [None, None, None];
        // who copied what, as far as the engine accepted it
        let mut accepted: BTreeMap<u64, &str> = BTreeMap::new();
        for event in events {
            match event {
                Event::Take(worker) if held[worker].is_none() => {
                    held[worker] = engine.take(NAMES[worker], now_ms).expect("an answer");
                }
                Event::Settle { worker, copied: which, failed } => {
                    let Some(item) = held[worker].take() else { continue };
                    let (done, left): (Vec<_>, Vec<_>) =
                        item.entries.into_iter().zip(which).partition(|(_, done)| *done);
                    let done: Vec<_> = done.iter().map(|(entry, _)| copied(entry)).collect();
                    let left = left.into_iter().map(|(entry, _)| entry).collect();
                    let settlement = settled(done, left, failed.then_some("it failed"));
                    if engine.settle(item.lease, &settlement, now_ms).expect("an answer") {
                        for file in &settlement.copied {
                            prop_assert!(accepted.insert(file.number, NAMES[worker]).is_none());
                        }
                    }
                    last[worker] = Some((item.lease, settlement));
                }
                Event::Again(worker) => {
                    let Some((lease, settlement)) = &last[worker] else { continue };
                    prop_assert!(!engine.settle(*lease, settlement, now_ms).expect("an answer"));
                }
                Event::Beat(worker) => {
                    let lease = held[worker].as_ref().map(|item| item.lease);
                    engine.beat(NAMES[worker], lease, 0, now_ms).expect("orders");
                }
                Event::Kill { worker, is_noticed } => {
                    held[worker] = None;
                    if is_noticed {
                        engine.leave(NAMES[worker], now_ms).expect("an answer");
                    }
                }
                Event::Wait(time_ms) => now_ms += time_ms,
                Event::Reopen => {
                    held = [None, None, None];
                    drop(engine);
                    engine = begin(&ground, &job);
                }
                Event::Retry => engine.retry_aside().expect("an answer"),
                Event::Take(_) => {}
            }
            let receipts = receipts(&mut engine);
            for Receipt { file, worker, .. } in &receipts {
                prop_assert_eq!(accepted.get(&file.number).copied(), Some(worker.as_str()));
            }
            let mut all: Vec<_> = receipts.iter().map(|receipt| receipt.file.number).collect();
            all.extend(left(&engine));
            all.sort_unstable();
            prop_assert_eq!(all, (0..FILES).collect::<Vec<_>>());
        }
        // everybody lives from now on
        engine.retry_aside().expect("an answer");
        while !left(&engine).is_empty() {
            now_ms += 60_000;
            let Some(item) = engine.take("last", now_ms).expect("an answer") else {
                engine.retry_aside().expect("an answer");
                continue;
            };
            let settlement = settled(item.entries.iter().map(copied).collect(), Vec::new(), None);
            prop_assert!(engine.settle(item.lease, &settlement, now_ms).expect("an answer"));
        }
        let receipts = receipts(&mut engine);
        let paths: BTreeSet<_> = receipts.iter().map(|receipt| receipt.file.path.clone()).collect();
        prop_assert_eq!((receipts.len() as u64, paths.len() as u64), (FILES, FILES));
        prop_assert_eq!(engine.counts(now_ms).expect("counts").copied_files, FILES);
    }
}
