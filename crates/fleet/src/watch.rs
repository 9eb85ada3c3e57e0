//! Looks at a job again and again, beside those who work on it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::now_ms;
use crate::engine::{Aside, Control, Counts, Engine, Phase, State, WorkerReport};
use crate::error::Error;
use crate::job::Job;
use crate::nats::{Nats, NatsJob};
use crate::state_folder::StateFolder;

/// What the rate is measured over, in milliseconds.
const MEASURE_MS: u64 = 60_000;
/// The least time between two samples of it, in milliseconds: so no more than 120 are kept.
const SAMPLE_MS: u64 = 500;

/// Where a job's queue and state are, for those who look at it or steer it.
#[derive(Debug, Clone)]
pub enum JobPlace {
    /// In a folder of this machine.
    Folder(StateFolder),
    /// At NATS.
    Nats(Arc<NatsJob>),
}

impl JobPlace {
    /// Connects to the NATS servers of a job, within 15 s.
    ///
    /// # Errors
    /// As those of [`NatsJob::connect_briefly`].
    pub fn nats(job: &Job) -> Result<Self, Error> {
        Ok(Self::Nats(Arc::new(NatsJob::connect_briefly(job)?)))
    }

    /// Opens a handle for a short use.
    ///
    /// # Errors
    /// There is no job, or its state cannot be read.
    pub fn open(&self) -> Result<Box<dyn Engine + Send>, Error> {
        let engine: Box<dyn Engine + Send> = match self {
            Self::Folder(folder) => Box::new(folder.open_beside()?),
            Self::Nats(nats) => Box::new(nats.open()?),
        };
        Ok(engine)
    }
}

/// A job that is looked at again and again.
#[derive(Debug)]
pub struct Watch {
    place: JobPlace,
    /// A handle that remembers how far it has read the log. A folder is opened for each look: its
    /// database may be another one by then.
    nats: Option<Nats>,
    before: Counts,
    pace: Pace,
}

/// What is seen of a job at one moment.
#[derive(Debug, Clone)]
pub struct Look {
    /// The job.
    pub job: Job,
    /// When, in milliseconds since 1970.
    pub time_ms: u64,
    /// What steers it.
    pub control: Control,
    /// Its figures.
    pub counts: Counts,
    /// Its workers, by name.
    pub workers: Vec<WorkerReport>,
    /// What was set aside, at most as much of it as was asked for.
    pub aside: Vec<Aside>,
    /// Bytes per second over the last minute, or over as much of it as was watched.
    pub bytes_per_s: f64,
    /// The time that copying will take at this rate, once everything is listed.
    pub left: Option<Duration>,
}

impl Watch {
    /// Makes one, which has not looked yet.
    #[must_use]
    pub fn new(place: JobPlace) -> Self {
        Self { place, nats: None, before: Counts::default(), pace: Pace::default() }
    }

    /// Returns where the job is.
    #[must_use]
    pub const fn place(&self) -> &JobPlace {
        &self.place
    }

    /// Looks, and returns at most so much of what was set aside. A job that was started again since
    /// the last look is seen from its new beginning.
    ///
    /// # Errors
    /// There is no job, or its state cannot be read. The next look tries again.
    pub fn look(&mut self, most_aside: usize) -> Result<Look, Error> {
        let (job, figures) = match &self.place {
            JobPlace::Folder(folder) => {
                let mut engine = folder.open_beside()?;
                let figures = Figures::read(&mut engine, most_aside)?;
                (engine.job().clone(), figures)
            }
            JobPlace::Nats(nats) => {
                let mut engine = match self.nats.take() {
                    Some(engine) => engine,
                    None => nats.open()?,
                };
                let mut figures = Figures::read(&mut engine, most_aside)?;
                if figures.begins_anew(&self.before) {
                    // what the handle remembers is of a log that was removed
                    engine = nats.open()?;
                    figures = Figures::read(&mut engine, most_aside)?;
                }
                self.nats = Some(engine);
                (nats.job().clone(), figures)
            }
        };
        if figures.begins_anew(&self.before) {
            self.pace = Pace::default();
        }
        let Figures { control, counts, workers, aside } = figures;
        self.before = counts;
        let time_ms = now_ms();
        let done = counts.copied_bytes.saturating_add(counts.in_flight);
        let bytes_per_s = self.pace.measure(time_ms, done);
        let is_copying = control.state == State::Running && control.phase == Phase::Copying;
        let left = match is_copying && counts.is_listed {
            true => time_left(counts.found_bytes.saturating_sub(done), bytes_per_s),
            false => None,
        };
        Ok(Look { job, time_ms, control, counts, workers, aside, bytes_per_s, left })
    }
}

/// What an engine says at one moment.
struct Figures {
    control: Control,
    counts: Counts,
    workers: Vec<WorkerReport>,
    aside: Vec<Aside>,
}

impl Figures {
    fn read(engine: &mut impl Engine, most_aside: usize) -> Result<Self, Error> {
        Ok(Self {
            control: engine.control()?,
            counts: engine.counts(now_ms())?,
            workers: engine.workers()?,
            aside: engine.aside(most_aside)?,
        })
    }

    /// Whether the job was started again since.
    fn begins_anew(&self, before: &Counts) -> bool {
        let Counts { is_listed, found_files, .. } = self.counts;
        found_files < before.found_files || (before.is_listed && !is_listed)
    }
}

/// Returns the time for so many bytes, if that can be told.
fn time_left(bytes: u64, bytes_per_s: f64) -> Option<Duration> {
    let rate = Some(bytes_per_s).filter(|rate| *rate >= 1.0)?;
    Duration::try_from_secs_f64(bytes as f64 / rate).ok()
}

/// How much was done by when, in the last minute.
#[derive(Debug, Default)]
struct Pace(VecDeque<(u64, u64)>);

impl Pace {
    /// Takes how much is done by now, and returns bytes per second.
    fn measure(&mut self, now_ms: u64, done: u64) -> f64 {
        if self.0.back().is_some_and(|(last_ms, _)| *last_ms > now_ms) {
            // the clock was set back
            self.0.clear();
        }
        if self.0.back().is_none_or(|(last_ms, _)| now_ms - last_ms >= SAMPLE_MS) {
            self.0.push_back((now_ms, done));
        }
        // the first is as old as the minute, or the first of all
        while self.0.get(1).is_some_and(|(second_ms, _)| now_ms - second_ms >= MEASURE_MS) {
            self.0.pop_front();
        }
        let (first_ms, before) = self.0.front().copied().unwrap_or((now_ms, done));
        match now_ms - first_ms {
            0 => 0.0,
            elapsed_ms => done.saturating_sub(before) as f64 * 1000.0 / elapsed_ms as f64,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::engine::cases::{copied, list, settled};

    #[test]
    fn the_rate_is_that_of_the_last_minute() {
        let mut pace = Pace::default();
        assert_eq!(pace.measure(1000, 500), 0.0);
        // what was done before it was watched is not fast
        assert_eq!(pace.measure(2000, 1500), 1000.0);
        for second in 3..=62 {
            pace.measure(second * 1000, 1500);
        }
        assert_eq!(pace.measure(62_000, 1500), 0.0);
        assert!(pace.0.len() <= 62, "{}", pace.0.len());
        // a clock that is set back begins again
        assert_eq!(pace.measure(10, 1500), 0.0);
        assert_eq!(pace.measure(1010, 2500), 1000.0);
    }

    #[test]
    fn the_time_left_is_told_where_something_moves() {
        assert_eq!(time_left(5000, 1000.0), Some(Duration::from_secs(5)));
        assert_eq!(time_left(5000, 0.0), None);
        assert_eq!(time_left(u64::MAX, f64::NAN), None);
    }

    #[test]
    fn a_job_is_seen_while_a_run_has_it_and_after_it_was_started_again() {
        let ground = tempfile::tempdir().expect("a folder");
        let file = ground.path().join("job.toml");
        std::fs::write(&file, "name = \"job\"\nfrom = \"/source\"\nto = \"host:\"\n")
            .expect("a file");
        let job = Job::read(&file).expect("a job");
        let folder = StateFolder::new(ground.path().join("state"));
        let mut watch = Watch::new(JobPlace::Folder(folder.clone()));
        assert!(matches!(watch.look(9), Err(Error::NoJob(_))));

        let lock = folder.lock().expect("nobody has it");
        let mut engine = folder.begin(&lock, &job, Path::new("job.toml")).expect("a state");
        list(&mut engine, 4, 2);
        engine.beat("one", None, 0, now_ms()).expect("orders");
        let item = engine.take("one", now_ms()).expect("an answer").expect("an item");
        let look = watch.look(9).expect("it is there");
        assert_eq!((look.job.name.as_str(), look.counts.found_files), ("job", 4));
        assert_eq!(look.workers.len(), 1);
        assert!(look.workers[0].name == "one" && look.workers[0].has_item);
        let all = settled(item.entries.iter().map(copied).collect(), Vec::new(), None);
        assert!(engine.settle(item.lease, &all, now_ms()).expect("an answer"));
        let look = watch.look(9).expect("it is there");
        assert_eq!((look.counts.copied_files, look.workers[0].has_item), (2, false));
        let mut steering = watch.place().open().expect("it is there");
        steering.set_state(State::Paused).expect("control");
        drop(steering);
        assert_eq!(engine.control().expect("control").state, State::Paused);

        drop(engine);
        folder.clear(&lock).expect("it is removed");
        let mut engine = folder.begin(&lock, &job, Path::new("job.toml")).expect("a state");
        let look = watch.look(9).expect("it is there");
        assert_eq!((look.counts.found_files, look.bytes_per_s), (0, 0.0));
        // the look has not taken the log away
        list(&mut engine, 1, 1);
        assert_eq!(watch.look(9).expect("it is there").counts.found_files, 1);
    }
}
