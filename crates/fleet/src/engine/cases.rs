//! What every engine does: the cases that the tests of each run.

mod shares;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use headroom_transfer::Time;

use super::*;
use crate::entry::Kind;
use crate::job::Job;

pub(crate) const MTIME: Time = Time { seconds: 1_000_000_000, nanoseconds: 5 };
/// The lease of the jobs.
const LEASE_MS: u64 = 5000;
/// How long to wait for what comes soon.
const SOON: Duration = Duration::from_secs(60);

/// Where the cases run: an engine with a clock.
pub(crate) trait Bench {
    type Engine: Engine;

    /// Returns the name for the job.
    fn name(&self) -> String {
        "job".to_owned()
    }

    /// Returns more settings for the job file.
    fn settings(&self) -> String {
        String::new()
    }

    /// Makes the state of a job, or opens it, as a run does.
    fn begin(&mut self, job: &Job) -> Result<Self::Engine, Error>;

    /// Returns the time.
    fn now_ms(&self) -> u64;

    /// Lets time pass.
    fn pass(&mut self, time_ms: u64);
}

pub(crate) fn job(bench: &impl Bench, settings: &str) -> Job {
    let ground = tempfile::tempdir().expect("a folder");
    let path = ground.path().join("job.toml");
    let (name, more) = (bench.name(), bench.settings());
    let text =
        format!("name = \"{name}\"\nfrom = \"/source\"\nto = \"host:\"\n{settings}\n{more}\n");
    std::fs::write(&path, text).expect("a file");
    Job::read(&path).expect("a job")
}

pub(crate) fn path(name: &str) -> RelPath {
    RelPath::parse(name.as_bytes()).expect("a path")
}

pub(crate) fn file(number: u64) -> Entry {
    let kind = Kind::File { size: 10, mode: 0o644, mtime: MTIME, ranges: 0 };
    Entry { number, path: path(&format!("file-{number}")), kind }
}

fn directory(number: u64, name: &str) -> (DirectoryKey, Entry) {
    let kind = Kind::Directory { mode: 0o755, mtime: MTIME };
    (DirectoryKey::of(Some(&path(name))), Entry { number, path: path(name), kind })
}

pub(crate) fn copied(entry: &Entry) -> CopiedFile {
    let hash = Some([u8::try_from(entry.number).expect("a small number"); 32]);
    CopiedFile { number: entry.number, path: entry.path.clone(), size: 10, hash }
}

pub(crate) fn settled(
    copied: Vec<CopiedFile>,
    left: Vec<Entry>,
    failed: Option<&str>,
) -> Settlement {
    let outcome = failed.map_or(Outcome::Interrupted, |reason| Outcome::Failed(reason.to_owned()));
    let requests = Requests::default();
    Settlement { copied, left, vanished: 0, outcome, requests }
}

/// Returns the share of a worker, in Mbit/s.
pub(crate) fn share_mbit(orders: &Orders) -> Option<u64> {
    orders.division.map(|division| division.share_bps() / 1_000_000)
}

fn all_copied(item: &Item) -> Settlement {
    settled(item.entries.iter().map(copied).collect(), Vec::new(), None)
}

/// Lists files as one directory, in items of this many.
pub(crate) fn list(engine: &mut impl Engine, files: u64, of_item: usize) {
    let next = engine.begin_listing().expect("it begins");
    let entries: Vec<_> = (next..next + files).map(file).collect();
    for entries in entries.chunks(of_item) {
        engine.stage(entries).expect("it is staged");
    }
    let root = [DirectoryKey::of(None)];
    let checkpoint = Checkpoint {
        listed: &root,
        next_number: next + files,
        files,
        bytes: 10 * files,
        is_complete: true,
        ..Checkpoint::default()
    };
    engine.checkpoint(&checkpoint).expect("a checkpoint");
}

fn receipts(engine: &mut impl Engine) -> Vec<Receipt> {
    let mut receipts = Vec::new();
    let mut each = |receipt| {
        receipts.push(receipt);
        true
    };
    engine.receipts(&mut each).expect("they are read");
    receipts.sort_by(|one: &Receipt, other| one.file.path.cmp(&other.file.path));
    receipts
}

/// Takes the next item, which comes soon.
pub(crate) fn take<B: Bench>(bench: &mut B, engine: &mut B::Engine, worker: &str) -> Item {
    let deadline = Instant::now() + SOON;
    loop {
        if let Some(item) = engine.take(worker, bench.now_ms()).expect("an answer") {
            return item;
        }
        assert!(Instant::now() < deadline, "no item comes");
        bench.pass(100);
    }
}

/// Runs all cases, each with a bench of its own.
pub(crate) fn run<B: Bench>(mut bench: impl FnMut(&str) -> B) {
    lease(bench("lease"));
    split(bench("split"));
    killed(bench("killed"));
    lost(bench("lost"));
    suspects(bench("suspects"));
    steering(bench("steering"));
    shares::run(bench("shares"));
    delete_pass(bench("delete"));
    listing(bench("listing"));
    staged_directories(bench("directories"));
    settings(bench("settings"));
    crashes(bench("crashes"));
    ranges(bench("ranges"));
    lost_ranges(bench("lost_ranges"));
    requests(bench("requests"));
}

/// An item is taken once, and settled by the lease that holds.
fn lease<B: Bench>(mut bench: B) {
    // longer than a busy machine may stop the test between two calls
    let job = job(&bench, "lease = \"5s\"");
    let mut engine = bench.begin(&job).expect("a state");
    assert_eq!(engine.take("one", bench.now_ms()).expect("an answer"), None);
    list(&mut engine, 3, 3);
    let item = take(&mut bench, &mut engine, "one");
    assert_eq!((item.step, item.was_taken, item.entries.len()), (Step::Copy, false, 3));
    assert_eq!(engine.take("two", bench.now_ms()).expect("an answer"), None);
    let orders = engine.beat("one", Some(item.lease), 7, bench.now_ms()).expect("orders");
    assert!(orders.holds_lease && !orders.is_done);
    // the worker is silent
    bench.pass(LEASE_MS + 100);
    let again = take(&mut bench, &mut engine, "two");
    assert_eq!((again.was_taken, &again.entries), (true, &item.entries));
    let orders = engine.beat("one", Some(item.lease), 7, bench.now_ms()).expect("orders");
    assert!(!orders.holds_lease);
    let all = all_copied(&item);
    assert!(!engine.settle(item.lease, &all, bench.now_ms()).expect("an answer"));
    assert_eq!(receipts(&mut engine), []);
    assert!(engine.settle(again.lease, &all, bench.now_ms()).expect("an answer"));
    // what a crash repeats
    assert!(!engine.settle(again.lease, &all, bench.now_ms()).expect("an answer"));
    let receipts = receipts(&mut engine);
    let files: Vec<_> = receipts.iter().map(|receipt| receipt.file.clone()).collect();
    assert_eq!(files, all.copied);
    assert!(receipts.iter().all(|receipt| receipt.worker == "two" && receipt.attempts == 1));
    assert_eq!(engine.advance().expect("a phase"), Phase::Finishing);
    assert_eq!(engine.advance().expect("a phase"), Phase::Done);
    assert!(engine.beat("two", None, 0, bench.now_ms()).expect("orders").is_done);
}

/// A batch that fails is split down to the file that fails, which is set aside.
fn split<B: Bench>(mut bench: B) {
    let job = job(&bench, "attempts = 2");
    let mut engine = bench.begin(&job).expect("a state");
    list(&mut engine, 8, 8);
    while engine.advance().expect("a phase") == Phase::Copying {
        let item = take(&mut bench, &mut engine, "one");
        assert_eq!(item.was_taken, item.entries.len() < 8);
        // nobody says which one it was
        let settlement = match item.entries.iter().any(|entry| entry.number == 5) {
            true => settled(Vec::new(), item.entries.clone(), Some("file-5 cannot be sent")),
            false => all_copied(&item),
        };
        assert!(engine.settle(item.lease, &settlement, bench.now_ms()).expect("an answer"));
    }
    assert_eq!(receipts(&mut engine).len(), 7);
    let aside = engine.aside(10).expect("an answer");
    let expected = Aside { path: Some(path("file-5")), reason: "file-5 cannot be sent".to_owned() };
    assert_eq!(aside, [expected]);
    assert_eq!(engine.counts(bench.now_ms()).expect("counts").aside, 1);
    // it does not hold the job, and is tried again by the next run
    assert_eq!(engine.advance().expect("a phase"), Phase::Done);
    engine.retry_aside().expect("an answer");
    assert_eq!(engine.control().expect("control").phase, Phase::Copying);
    assert_eq!(engine.aside(10).expect("an answer"), []);
    let item = take(&mut bench, &mut engine, "one");
    assert_eq!(item.entries, [file(5)]);
    assert!(engine.settle(item.lease, &all_copied(&item), bench.now_ms()).expect("an answer"));
    assert_eq!(engine.advance().expect("a phase"), Phase::Finishing);
    assert_eq!(receipts(&mut engine).len(), 8);
}

/// A worker that is killed is no attempt, and its item returns at once if somebody notices.
fn killed<B: Bench>(mut bench: B) {
    let job = job(&bench, "attempts = 1\nlease = \"3600s\"");
    let mut engine = bench.begin(&job).expect("a state");
    list(&mut engine, 1, 1);
    for _ in 0..3 {
        take(&mut bench, &mut engine, "one");
        assert_eq!(engine.holders().expect("workers"), ["one"]);
        engine.leave("one", bench.now_ms()).expect("an answer");
    }
    let item = take(&mut bench, &mut engine, "two");
    engine.beat("two", Some(item.lease), 7, bench.now_ms()).expect("orders");
    let workers = engine.workers().expect("workers");
    let seen: Vec<_> = workers.iter().map(|it| (it.name.as_str(), it.has_item)).collect();
    assert_eq!(seen, [("two", true)]);
    assert!(engine.settle(item.lease, &all_copied(&item), bench.now_ms()).expect("an answer"));
    assert_eq!(receipts(&mut engine)[0].attempts, 1);
}

/// An item that loses all its workers is set aside at last; what the source has lost is done.
fn lost<B: Bench>(mut bench: B) {
    let job = job(&bench, "lease = \"3600s\"");
    let mut engine = bench.begin(&job).expect("a state");
    list(&mut engine, 2, 1);
    let item = take(&mut bench, &mut engine, "one");
    let settlement = Settlement { vanished: 1, ..settled(Vec::new(), Vec::new(), None) };
    assert!(engine.settle(item.lease, &settlement, bench.now_ms()).expect("an answer"));
    for _ in 0..MAX_LOSSES {
        take(&mut bench, &mut engine, "one");
        engine.leave("one", bench.now_ms()).expect("an answer");
    }
    let deadline = Instant::now() + SOON;
    while engine.aside(10).expect("an answer").is_empty() {
        assert_eq!(engine.take("one", bench.now_ms()).expect("an answer"), None);
        assert!(Instant::now() < deadline, "it is never set aside");
        bench.pass(100);
    }
    let counts = engine.counts(bench.now_ms()).expect("counts");
    assert_eq!((counts.vanished, counts.aside, counts.queued), (1, 1, 0));
    assert_eq!(engine.advance().expect("a phase"), Phase::Finishing);
}

/// Of an item that loses all its workers, each half is tried once more.
fn suspects<B: Bench>(mut bench: B) {
    let job = job(&bench, "lease = \"3600s\"");
    let mut engine = bench.begin(&job).expect("a state");
    list(&mut engine, 2, 2);
    for _ in 0..MAX_LOSSES {
        let item = take(&mut bench, &mut engine, "one");
        assert_eq!(item.entries.len(), 2);
        engine.leave("one", bench.now_ms()).expect("an answer");
    }
    for _ in 0..2 {
        let item = take(&mut bench, &mut engine, "one");
        assert_eq!((item.was_taken, item.entries.len()), (true, 1));
        match item.entries[0].number {
            // it ends its workers still
            0 => engine.leave("one", bench.now_ms()).expect("an answer"),
            _ => {
                let settlement = all_copied(&item);
                assert!(engine.settle(item.lease, &settlement, bench.now_ms()).expect("an answer"));
            }
        }
    }
    let deadline = Instant::now() + SOON;
    while engine.aside(10).expect("an answer").is_empty() {
        assert_eq!(engine.take("one", bench.now_ms()).expect("an answer"), None);
        assert!(Instant::now() < deadline, "it is never set aside");
        bench.pass(100);
    }
    assert_eq!(engine.aside(10).expect("an answer")[0].path, Some(path("file-0")));
    assert_eq!(receipts(&mut engine).len(), 1);
    assert_eq!(engine.advance().expect("a phase"), Phase::Finishing);
}

/// Workers share the rate and follow the state.
fn steering<B: Bench>(mut bench: B) {
    let job = job(&bench, "rate = \"90mbit\"");
    let mut engine = bench.begin(&job).expect("a state");
    list(&mut engine, 1, 1);
    for (worker, mbit) in [("one", 90), ("two", 45), ("three", 30)] {
        let orders = engine.beat(worker, None, 0, bench.now_ms()).expect("orders");
        assert_eq!(share_mbit(&orders), Some(mbit), "{worker}");
    }
    engine.leave("three", bench.now_ms()).expect("an answer");
    let orders = engine.beat("one", None, 0, bench.now_ms()).expect("orders");
    assert_eq!(share_mbit(&orders), Some(45));
    engine.set_rate(None).expect("an answer");
    assert_eq!(engine.beat("one", None, 0, bench.now_ms()).expect("orders").division, None);
    assert_eq!(engine.set_state(State::Paused).expect("control").state, State::Paused);
    assert_eq!(engine.take("one", bench.now_ms()).expect("an answer"), None);
    assert_eq!(engine.set_state(State::Cancelled).expect("control").state, State::Cancelled);
    assert_eq!(engine.set_state(State::Running).expect("control").state, State::Cancelled);
    assert!(engine.beat("one", None, 0, bench.now_ms()).expect("orders").is_done);
}

/// The delete pass comes after everything has succeeded, and corrects receipts.
fn delete_pass<B: Bench>(mut bench: B) {
    let job = job(&bench, "mode = \"sync\"\ndelete = true\nattempts = 1");
    let mut engine = bench.begin(&job).expect("a state");
    list(&mut engine, 2, 1);
    let item = take(&mut bench, &mut engine, "one");
    let fails = settled(Vec::new(), item.entries.clone(), Some("it failed"));
    assert!(engine.settle(item.lease, &fails, bench.now_ms()).expect("an answer"));
    let item = take(&mut bench, &mut engine, "one");
    assert!(engine.settle(item.lease, &all_copied(&item), bench.now_ms()).expect("an answer"));
    assert_eq!(engine.advance().expect("a phase"), Phase::Finishing);
    assert_eq!(engine.advance().expect("a phase"), Phase::Done, "something was set aside");

    engine.retry_aside().expect("an answer");
    let item = take(&mut bench, &mut engine, "one");
    assert!(engine.settle(item.lease, &all_copied(&item), bench.now_ms()).expect("an answer"));
    assert_eq!(engine.advance().expect("a phase"), Phase::Finishing);
    assert_eq!(engine.advance().expect("a phase"), Phase::Deleting);
    // a file that changed after it was listed, and one that is new
    let changed = CopiedFile { size: 20, hash: Some([7; 32]), ..copied(&file(0)) };
    let new = CopiedFile { path: path("new"), ..changed.clone() };
    let now_ms = bench.now_ms();
    engine.record_delete_pass(&[changed], 1, false, "run", now_ms).expect("an answer");
    assert_eq!(engine.control().expect("control").phase, Phase::Deleting);
    engine.record_delete_pass(&[new], 2, true, "run", now_ms).expect("an answer");
    let receipts = receipts(&mut engine);
    let sizes: Vec<_> =
        receipts.iter().map(|receipt| (receipt.file.path.to_string(), receipt.file.size)).collect();
    let expected = [("file-0", 20), ("file-1", 10), ("new", 20)];
    assert_eq!(sizes, expected.map(|(name, size)| (name.to_owned(), size)));
    let counts = engine.counts(now_ms).expect("counts");
    assert_eq!((counts.removed, counts.copied_files), (3, 3));
    assert_eq!(engine.control().expect("control").phase, Phase::Done);
}

/// A listing resumes from its last checkpoint, and what was staged since is seen by nobody.
fn listing<B: Bench>(mut bench: B) {
    let job = job(&bench, "");
    let mut engine = bench.begin(&job).expect("a state");
    assert_eq!(engine.begin_listing().expect("it begins"), 0);
    let root = engine.next_directory(None).expect("an answer").expect("the source");
    assert_eq!(root.path(), None);
    let found = [directory(2, "b"), directory(1, "a")];
    let listed = [root.clone()];
    let checkpoint =
        Checkpoint { listed: &listed, found: &found, next_number: 4, ..Checkpoint::default() };
    engine.stage(&[file(0)]).expect("it is staged");
    assert_eq!(engine.take("one", bench.now_ms()).expect("an answer"), None, "too early");
    engine.checkpoint(&checkpoint).expect("a checkpoint");
    let item = take(&mut bench, &mut engine, "one");
    assert!(engine.settle(item.lease, &all_copied(&item), bench.now_ms()).expect("an answer"));
    engine.stage(&[file(4)]).expect("it is staged");
    drop(engine);

    // killed: what was staged since is found again
    let mut engine = bench.begin(&job).expect("a state");
    assert_eq!(engine.begin_listing().expect("it begins"), 4);
    let next = engine.next_directory(None).expect("an answer").expect("a directory");
    assert_eq!(next.path(), Some(path("a")));
    let after = engine.next_directory(Some(&next)).expect("an answer").expect("a directory");
    assert_eq!(after.path(), Some(path("b")));
    assert_eq!(engine.next_directory(Some(&after)).expect("an answer"), None);
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
    assert!(engine.counts(bench.now_ms()).expect("counts").is_listed);
    engine.retry_aside().expect("an answer");
    assert!(!engine.counts(bench.now_ms()).expect("counts").is_listed);
    assert_eq!(engine.aside(10).expect("an answer"), []);
    assert_eq!(engine.next_directory(None).expect("an answer"), Some(next.clone()));
    // what was staged and never seen is no item
    engine.begin_listing().expect("it begins");
    let complete = Checkpoint { listed: &[next], is_complete: true, ..Checkpoint::default() };
    engine.checkpoint(&complete).expect("a checkpoint");
    assert_eq!(engine.advance().expect("a phase"), Phase::Finishing);
    let mut finished = BTreeSet::new();
    while engine.advance().expect("a phase") == Phase::Finishing {
        let item = take(&mut bench, &mut engine, "one");
        assert_eq!(item.step, Step::Finish);
        finished.extend(item.entries.iter().map(|entry| entry.path.clone()));
        let settlement = settled(Vec::new(), Vec::new(), None);
        assert!(engine.settle(item.lease, &settlement, bench.now_ms()).expect("an answer"));
    }
    assert_eq!(finished, [path("a"), path("b")].into());
}

/// Directories that were staged are seen after the checkpoint alone, in the order of a walk.
fn staged_directories<B: Bench>(mut bench: B) {
    let job = job(&bench, "");
    let mut engine = bench.begin(&job).expect("a state");
    engine.begin_listing().expect("it begins");
    let root = engine.next_directory(None).expect("an answer").expect("the source");
    engine.stage_directories(&[directory(0, "a")]).expect("it is staged");
    assert_eq!(engine.next_directory(Some(&root)).expect("an answer"), None);
    drop(engine);

    // killed: it is not there any longer
    let mut engine = bench.begin(&job).expect("a state");
    engine.begin_listing().expect("it begins");
    engine.stage_directories(&[directory(0, "b"), directory(1, "d")]).expect("it is staged");
    let (listed, found) = ([root], [directory(2, "c")]);
    let checkpoint = Checkpoint { listed: &listed, found: &found, ..Checkpoint::default() };
    engine.checkpoint(&checkpoint).expect("a checkpoint");
    let mut walked = Vec::new();
    let mut last = None;
    while let Some(next) = engine.next_directory(last.as_ref()).expect("an answer") {
        walked.extend(next.path());
        // what is in a directory comes before its neighbours
        if walked.len() == 1 {
            let found = [directory(3, "b/x"), directory(4, "b/y")];
            let listed = [next.clone()];
            let checkpoint = Checkpoint { listed: &listed, found: &found, ..Checkpoint::default() };
            engine.checkpoint(&checkpoint).expect("a checkpoint");
        }
        last = Some(next);
    }
    assert_eq!(walked, ["b", "b/x", "b/y", "c", "d"].map(path));
}

/// The state of another job is refused, and settings may change.
fn settings<B: Bench>(mut bench: B) {
    let first = job(&bench, "workers = 2");
    drop(bench.begin(&first).expect("a state"));
    let changed = job(&bench, "workers = 3\nrate = \"1mbit\"");
    let mut engine = bench.begin(&changed).expect("a state");
    assert_eq!(engine.control().expect("control").rate_bps, Some(1_000_000));
    // a rate that the user has set since stays while the file says the same
    engine.set_rate(Some(5)).expect("an answer");
    drop(engine);
    let mut engine = bench.begin(&changed).expect("a state");
    assert_eq!(engine.control().expect("control").rate_bps, Some(5));
    drop(engine);
    let other = job(&bench, "mode = \"sync\"");
    let error = bench.begin(&other).err().expect("it is another's").to_string();
    assert!(error.contains("its `mode` is copy") && error.contains("is sync"), "{error}");
    let elsewhere = Job { from: "/other".to_owned(), ..first };
    assert!(matches!(bench.begin(&elsewhere).err(), Some(Error::OtherJob { .. })));
}

/// A file of 5 MiB that has ranges.
fn large(number: u64, ranges: u32) -> Entry {
    let kind = Kind::File { size: 5 << 20, mode: 0o644, mtime: MTIME, ranges };
    Entry { kind, ..file(number) }
}

/// Lists a file that has ranges, as one directory.
fn list_large(engine: &mut impl Engine, large: &Entry) {
    engine.begin_listing().expect("it begins");
    engine.stage(std::slice::from_ref(large)).expect("it is staged");
    let root = [DirectoryKey::of(None)];
    let checkpoint = Checkpoint {
        listed: &root,
        next_number: large.number + 1,
        files: 1,
        bytes: large.size(),
        is_complete: true,
        ..Checkpoint::default()
    };
    engine.checkpoint(&checkpoint).expect("a checkpoint");
}

/// A file's ranges are taken by several workers, and then the file, which alone has a receipt.
fn ranges<B: Bench>(mut bench: B) {
    let job = job(&bench, "attempts = 2\nlease = \"3600s\"");
    let mut engine = bench.begin(&job).expect("a state");
    let large = large(0, 3);
    list_large(&mut engine, &large);
    let done = settled(Vec::new(), Vec::new(), None);
    let fails = settled(Vec::new(), vec![large.clone()], Some("it failed"));
    let interrupted = settled(Vec::new(), vec![large.clone()], None);
    let [one, two] = ["one", "two"].map(|worker| take(&mut bench, &mut engine, worker));
    assert_eq!((one.step, two.step), (Step::Range(0), Step::Range(1)));
    assert_eq!((&one.entries, &two.entries), (&vec![large.clone()], &vec![large.clone()]));
    assert!(engine.settle(two.lease, &done, bench.now_ms()).expect("an answer"));
    let counts = engine.counts(bench.now_ms()).expect("counts");
    assert_eq!((counts.found_files, counts.copied_files), (1, 0));
    assert_eq!((counts.in_flight, counts.copied_bytes), (2 << 20, 0));
    // one is killed, interrupted, and fails for good: that range has ended as well
    engine.leave("one", bench.now_ms()).expect("an answer");
    for settlement in [&interrupted, &fails, &fails] {
        let mut again = take(&mut bench, &mut engine, "three");
        if again.step == Step::Range(2) {
            assert!(engine.settle(again.lease, &done, bench.now_ms()).expect("an answer"));
            again = take(&mut bench, &mut engine, "three");
        }
        assert_eq!(again.step, Step::Range(0));
        assert_eq!(engine.advance().expect("a phase"), Phase::Copying);
        assert!(engine.settle(again.lease, settlement, bench.now_ms()).expect("an answer"));
        // what a crash repeats
        assert!(!engine.settle(again.lease, settlement, bench.now_ms()).expect("an answer"));
    }
    // nothing was set aside for a range, and the job has not ended by the last one
    assert_eq!(engine.aside(10).expect("an answer"), []);
    assert_eq!(engine.advance().expect("a phase"), Phase::Copying);
    drop(engine);
    let mut engine = bench.begin(&job).expect("a state");
    let file = take(&mut bench, &mut engine, "two");
    assert_eq!((file.step, file.entries.as_slice()), (Step::Copy, &[large.clone()][..]));
    assert_eq!(engine.take("three", bench.now_ms()).expect("an answer"), None, "it is one item");
    // the file fails as any other, and is set aside once
    assert!(engine.settle(file.lease, &fails, bench.now_ms()).expect("an answer"));
    let file = take(&mut bench, &mut engine, "two");
    assert!(engine.settle(file.lease, &fails, bench.now_ms()).expect("an answer"));
    let aside = engine.aside(10).expect("an answer");
    let expected = Aside { path: Some(path("file-0")), reason: "it failed".to_owned() };
    assert_eq!(aside, [expected]);
    assert_eq!(engine.advance().expect("a phase"), Phase::Finishing);
    engine.retry_aside().expect("an answer");
    let file = take(&mut bench, &mut engine, "two");
    assert_eq!(file.step, Step::Copy);
    let whole = CopiedFile { size: large.size(), ..copied(&large) };
    let all = settled(vec![whole.clone()], Vec::new(), None);
    assert!(engine.settle(file.lease, &all, bench.now_ms()).expect("an answer"));
    assert_eq!(engine.advance().expect("a phase"), Phase::Finishing);
    let receipts = receipts(&mut engine);
    let found: Vec<_> = receipts.iter().map(|it| (&it.file, &*it.worker, it.ranges)).collect();
    assert_eq!(found, [(&whole, "two", 3)]);
    let counts = engine.counts(bench.now_ms()).expect("counts");
    assert_eq!((counts.copied_files, counts.copied_bytes), (1, 5 << 20));
    assert_eq!((counts.in_flight, counts.queued, counts.aside), (0, 0, 0));
}

/// A range that loses all its workers has ended, and the file is an item.
fn lost_ranges<B: Bench>(mut bench: B) {
    let job = job(&bench, "lease = \"3600s\"");
    let mut engine = bench.begin(&job).expect("a state");
    list_large(&mut engine, &large(0, 2));
    let first = take(&mut bench, &mut engine, "two");
    assert_eq!(first.step, Step::Range(0));
    let done = settled(Vec::new(), Vec::new(), None);
    assert!(engine.settle(first.lease, &done, bench.now_ms()).expect("an answer"));
    for _ in 0..MAX_LOSSES {
        assert_eq!(take(&mut bench, &mut engine, "one").step, Step::Range(1));
        engine.leave("one", bench.now_ms()).expect("an answer");
    }
    let file = take(&mut bench, &mut engine, "one");
    assert_eq!(file.step, Step::Copy);
    assert_eq!(engine.aside(10).expect("an answer"), []);
    let vanished = Settlement { vanished: 1, ..settled(Vec::new(), Vec::new(), None) };
    assert!(engine.settle(file.lease, &vanished, bench.now_ms()).expect("an answer"));
    let counts = engine.counts(bench.now_ms()).expect("counts");
    assert_eq!((counts.vanished, counts.in_flight, counts.queued), (1, 0, 0));
    assert_eq!(engine.advance().expect("a phase"), Phase::Finishing);
    assert_eq!(receipts(&mut engine), []);
}

/// Requests to stores are summed over settlements that counted, and runs.
fn requests<B: Bench>(mut bench: B) {
    let job = job(&bench, "");
    let mut engine = bench.begin(&job).expect("a state");
    list(&mut engine, 2, 1);
    let of = |put: u64| Requests { put, retried: 1, ..Requests::default() };
    for put in [3, 4] {
        let item = take(&mut bench, &mut engine, "one");
        let settlement = Settlement { requests: of(put), ..all_copied(&item) };
        assert!(engine.settle(item.lease, &settlement, bench.now_ms()).expect("an answer"));
        assert!(!engine.settle(item.lease, &settlement, bench.now_ms()).expect("an answer"));
    }
    engine.add_requests(&Requests { list: 2, ..Requests::default() }).expect("an answer");
    engine.add_requests(&Requests::default()).expect("an answer");
    drop(engine);
    let mut engine = bench.begin(&job).expect("a state");
    let counts = engine.counts(bench.now_ms()).expect("counts");
    let expected = Requests { list: 2, put: 7, retried: 2, ..Requests::default() };
    assert_eq!(counts.requests, expected);
}

/// Whatever fails and whoever dies, each file has one receipt in the end.
fn crashes<B: Bench>(mut bench: B) {
    const FILES: u64 = 24;
    let job = job(&bench, "attempts = 5\nlease = \"3600s\"");
    let mut engine = bench.begin(&job).expect("a state");
    list(&mut engine, FILES, 8);
    let mut turn = 0_u64;
    while engine.advance().expect("a phase") == Phase::Copying {
        turn += 1;
        let now_ms = bench.now_ms();
        let item = take(&mut bench, &mut engine, "one");
        // a rule without chance: each item is lost, interrupted, failed and copied in turn
        let half = item.entries.len().div_ceil(2);
        let done: Vec<_> = item.entries[..half].iter().map(copied).collect();
        let left = item.entries[half..].to_vec();
        match turn % 5 {
            0 => engine.leave("one", now_ms).expect("an answer"),
            1 => {
                drop(engine);
                engine = bench.begin(&job).expect("a state");
                engine.leave("one", now_ms).expect("an answer");
            }
            2 => {
                let settlement = settled(done, left, None);
                assert!(engine.settle(item.lease, &settlement, now_ms).expect("an answer"));
            }
            3 => {
                let settlement = settled(done, left, Some("it failed"));
                assert!(engine.settle(item.lease, &settlement, now_ms).expect("an answer"));
            }
            _ => {
                let settlement = all_copied(&item);
                assert!(engine.settle(item.lease, &settlement, now_ms).expect("an answer"));
                assert!(!engine.settle(item.lease, &settlement, now_ms).expect("an answer"));
            }
        }
        assert!(turn < 500, "it never ends");
    }
    let receipts = receipts(&mut engine);
    let paths: BTreeSet<_> = receipts.iter().map(|receipt| receipt.file.path.clone()).collect();
    assert_eq!((receipts.len() as u64, paths.len() as u64), (FILES, FILES));
    assert_eq!(engine.counts(bench.now_ms()).expect("counts").copied_files, FILES);
}
