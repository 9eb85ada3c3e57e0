//! The queue of a fleet without any copying, for measuring what it costs:
//! `queue-load JOB.toml FOLDER FILES ENTRIES WORKERS SECONDS`. Makes the same calls as a run of the
//! job whose source has FILES files of 4 KiB, ENTRIES in each directory and item: they are listed,
//! taken and settled by WORKERS threads, each with its own handle. Reports of living workers and
//! looks at the figures are as many as in a run of SECONDS, all of them made while the queue is
//! fullest. The state is in FOLDER, or at the NATS servers of the job file; what was there of this
//! job is removed. Prints the seconds of each part as JSON; who starts it measures its CPU time.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use headroom_fleet::{
    Checkpoint, CopiedFile, DirectoryKey, Engine, Entry, Job, Kind, Lock, NatsJob, NatsLock,
    Outcome, Phase, Settlement, StateFolder, Stop, now_ms,
};
use headroom_transfer::Time;
use headroom_transfer::files::Requests;
use headroom_transfer::path::RelPath;

/// Bytes of each file.
const SIZE: u64 = 4096;
/// How long a thread waits that found nothing to take.
const IDLE: Duration = Duration::from_millis(10);
/// How often to look whether a phase is complete.
const POLL: Duration = Duration::from_millis(50);
/// How often a second a worker reports that it lives, and a run looks at the figures.
const REPORTS: u64 = 2;
const LOOKS: u64 = 5;

type AnyEngine = Box<dyn Engine + Send>;

/// Where the queue is.
struct Queue {
    job: Job,
    folder: StateFolder,
    _locks: (Option<Lock>, Option<NatsLock>),
}

impl Queue {
    /// Makes the queue afresh.
    fn begin(file: &Path, folder: &str) -> Result<Self, headroom_fleet::Error> {
        let job = Job::read(file)?;
        let folder = StateFolder::new(PathBuf::from(folder));
        if job.nats.is_some() {
            let nats = NatsJob::connect(&job, &Stop::new())?;
            let lock = nats.lock()?;
            nats.clear(&lock)?;
            drop(nats.begin(&lock, file)?);
            return Ok(Self { job, folder, _locks: (None, Some(lock)) });
        }
        let lock = folder.lock()?;
        folder.clear(&lock)?;
        drop(folder.begin(&lock, &job, file)?);
        Ok(Self { job, folder, _locks: (Some(lock), None) })
    }

    /// Opens a handle; at NATS with a connection of its own, as a worker has.
    fn open(&self) -> Result<AnyEngine, headroom_fleet::Error> {
        let engine: AnyEngine = match self.job.nats {
            Some(_) => Box::new(NatsJob::connect(&self.job, &Stop::new())?.open()?),
            None => Box::new(self.folder.open()?),
        };
        Ok(engine)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [file, folder, files, entries, workers, seconds] = arguments.as_slice() else {
        return Err("queue-load JOB.toml FOLDER FILES ENTRIES WORKERS SECONDS".into());
    };
    let (files, entries, workers): (u64, u64, u64) =
        (files.parse()?, entries.parse()?, workers.parse()?);
    let seconds: u64 = seconds.parse()?;
    let queue = Queue::begin(Path::new(file), folder)?;
    let mut engine = queue.open()?;

    let began = Instant::now();
    list(&mut engine, files, entries.max(1))?;
    let listed = began.elapsed();

    let began = Instant::now();
    for _ in 0..seconds * LOOKS {
        engine.control()?;
        engine.counts(now_ms())?;
        engine.advance()?;
    }
    for _ in 0..seconds * REPORTS {
        for worker in 0..workers {
            engine.beat(&format!("worker.{worker}"), None, 0, now_ms())?;
        }
    }
    let reported = began.elapsed();

    let began = Instant::now();
    let handles: Result<Vec<_>, _> = (0..workers).map(|_| queue.open()).collect();
    let (handles, is_done) = (handles?, AtomicBool::new(false));
    let items = thread::scope(|scope| {
        let is_done = &is_done;
        let mut threads = Vec::new();
        for (worker, handle) in handles.into_iter().enumerate() {
            threads.push(scope.spawn(move || work(handle, &format!("worker.{worker}"), is_done)));
        }
        let ended = loop {
            match engine.advance() {
                Ok(Phase::Done | Phase::Deleting) => break Ok(()),
                // one of them has failed
                Ok(_) if threads.iter().any(thread::ScopedJoinHandle::is_finished) => break Ok(()),
                Ok(_) => thread::sleep(POLL),
                Err(error) => break Err(error),
            }
        };
        is_done.store(true, Ordering::Relaxed);
        let mut items = 0;
        for thread in threads {
            items += thread.join().expect("it does not panic")?;
        }
        ended.map(|()| items)
    })?;
    let worked = began.elapsed();

    let counts = engine.counts(now_ms())?;
    if counts.copied_files != files {
        return Err(format!("{} of {files} files have receipts", counts.copied_files).into());
    }
    let report = serde_json::json!({
        "items": items,
        "listing_s": listed.as_secs_f64(),
        "reports_s": reported.as_secs_f64(),
        "work_s": worked.as_secs_f64(),
    });
    println!("{report}");
    Ok(())
}

/// Does what the listing of a source with one level of directories does.
fn list(engine: &mut AnyEngine, files: u64, entries: u64) -> Result<(), Box<dyn Error>> {
    let mtime = Time { seconds: 1_000_000_000, nanoseconds: 0 };
    let parse = |path: String| RelPath::parse(path.as_bytes()).map_err(|error| error.to_string());
    let mut number = engine.begin_listing()?;
    let mut directories = Vec::new();
    for n in 0..files.div_ceil(entries) {
        let path = parse(format!("{n:08}"))?;
        let key = DirectoryKey::of(Some(&path));
        let kind = Kind::Directory { mode: 0o755, mtime };
        directories.push((key, Entry { number, path, kind }));
        number += 1;
    }
    for part in directories.chunks(usize::try_from(entries)?) {
        let part: Vec<_> = part.iter().map(|(_, entry)| entry.clone()).collect();
        engine.stage(&part)?;
    }
    let root = [DirectoryKey::of(None)];
    let found = Checkpoint { listed: &root, found: &directories, ..Checkpoint::default() };
    engine.checkpoint(&Checkpoint { next_number: number, is_complete: files == 0, ..found })?;
    let mut left = files;
    for (n, (key, _)) in directories.iter().enumerate() {
        engine.next_directory(Some(key))?;
        let of_this = left.min(entries);
        left -= of_this;
        let mut item = Vec::new();
        for file in 0..of_this {
            let path = parse(format!("{n:08}/{file:06}"))?;
            let kind = Kind::File { size: SIZE, mode: 0o644, mtime, ranges: 0 };
            item.push(Entry { number, path, kind });
            number += 1;
        }
        engine.stage(&item)?;
        engine.checkpoint(&Checkpoint {
            listed: std::slice::from_ref(key),
            next_number: number,
            files: of_this,
            bytes: of_this * SIZE,
            is_complete: left == 0,
            ..Checkpoint::default()
        })?;
    }
    Ok(())
}

/// Takes and settles items until the job is done; returns how many.
fn work(
    mut engine: AnyEngine,
    name: &str,
    is_done: &AtomicBool,
) -> Result<u64, headroom_fleet::Error> {
    let mut items = 0;
    while !is_done.load(Ordering::Relaxed) {
        let Some(item) = engine.take(name, now_ms())? else {
            thread::sleep(IDLE);
            continue;
        };
        let copied = item.entries.into_iter().filter(Entry::is_file).map(|entry| CopiedFile {
            number: entry.number,
            size: entry.size(),
            hash: Some([7; 32]),
            path: entry.path,
        });
        let copied = copied.collect();
        let outcome = Outcome::Interrupted;
        let requests = Requests::default();
        let settlement = Settlement { copied, left: Vec::new(), vanished: 0, outcome, requests };
        engine.settle(item.lease, &settlement, now_ms())?;
        items += 1;
    }
    Ok(items)
}
