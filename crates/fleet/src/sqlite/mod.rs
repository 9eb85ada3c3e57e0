//! The embedded engine: one SQLite database on one machine, which every process opens.
//!
//! Each transition is one transaction that takes the write lock first, so that what it reads is
//! what it changes. The write-ahead log lets others read meanwhile. Commits survive a killed
//! process, and a power cut loses at most the last of them: what they recorded is done again.

mod control;
mod items;
mod listing;
mod receipts;
mod schema;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::time::Duration;

use headroom_transfer::files::Requests;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, Row, Transaction, TransactionBehavior};

use crate::engine::{
    Aside, Checkpoint, Control, CopiedFile, Counts, Engine, Item, Lease, Orders, Phase, Receipt,
    Settlement, State, WorkerReport,
};
use crate::entry::{Entry, decode};
use crate::error::Error;
use crate::job::{Batch, Job};
use crate::key::DirectoryKey;

/// The database in the state folder.
const FILE: &str = "fleet.sqlite";
/// How long to wait for another process to end its transaction. All of them are short.
const PATIENCE: Duration = Duration::from_secs(30);

/// A handle of the embedded engine.
#[derive(Debug)]
pub struct Sqlite {
    connection: Connection,
    path: PathBuf,
    job: Job,
    rules: Rules,
}

/// What transitions depend on.
#[derive(Debug, Clone, Copy)]
struct Rules {
    attempts: u32,
    lease_ms: u64,
    batch: Batch,
    delete: bool,
}

impl Rules {
    fn of(job: &Job) -> Self {
        let lease_ms = u64::try_from(job.lease.as_millis()).unwrap_or(u64::MAX);
        Self { attempts: job.attempts, lease_ms, batch: job.batch, delete: job.delete }
    }
}

impl Sqlite {
    /// Opens the state in a folder.
    pub(crate) fn open(folder: &Path) -> Result<Self, Error> {
        Self::opened(folder, false)
    }

    /// Opens the state in a folder beside a run that may remove it and make it anew meanwhile. The
    /// last handle of a database removes its log, by name: this one would remove the next one's.
    pub(crate) fn open_beside(folder: &Path) -> Result<Self, Error> {
        Self::opened(folder, true)
    }

    fn opened(folder: &Path, is_beside: bool) -> Result<Self, Error> {
        let path = folder.join(FILE);
        if !path.exists() {
            return Err(Error::NoJob(folder.to_owned()));
        }
        let wrong = |cause| Error::database(&path, cause);
        let connection = connect(&path, OpenFlags::empty()).map_err(wrong)?;
        if is_beside {
            let config = DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE;
            connection.set_db_config(config, true).map_err(wrong)?;
        }
        // a run that was killed before it had made the tables left an empty database
        if schema::is_empty(&connection).map_err(wrong)? {
            return Err(Error::NoJob(folder.to_owned()));
        }
        let found = schema::check(&connection).map_err(wrong)?;
        if let Some(found) = found {
            return Err(Error::State { path: path.clone(), found });
        }
        let json = control::job(&connection).map_err(wrong)?;
        let job = Job::from_json(&json);
        let job = job.map_err(|found| Error::State { path: path.clone(), found })?;
        let rules = Rules::of(&job);
        Ok(Self { connection, path, job, rules })
    }

    /// Opens the state of a job in a folder, or makes it. `file` is the job file, for errors.
    pub(crate) fn begin(folder: &Path, job: &Job, file: &Path) -> Result<Self, Error> {
        let path = folder.join(FILE);
        let wrong = |cause| Error::database(&path, cause);
        let mut connection = connect(&path, OpenFlags::SQLITE_OPEN_CREATE).map_err(wrong)?;
        if schema::is_empty(&connection).map_err(wrong)? {
            let made = transact(&mut connection, |tx| schema::create(tx, &job.to_json(), job));
            made.map_err(wrong)?;
        }
        drop(connection);
        let mut engine = Self::open(folder)?;
        if let Some((setting, there, here)) = job.difference(&engine.job) {
            let (folder, job) = (folder.to_owned(), file.to_owned());
            return Err(Error::OtherJob { folder, job, setting, there, here });
        }
        if engine.job != *job {
            let before = std::mem::replace(&mut engine.job, job.clone());
            engine.rules = Rules::of(job);
            engine.within(|tx| control::change_job(tx, &before, job))?;
        }
        Ok(engine)
    }

    /// Removes the state in a folder.
    pub(crate) fn remove(folder: &Path) -> Result<(), Error> {
        // the database last: a log that is left would be taken for that of the next one
        for suffix in ["-wal", "-shm", ""] {
            let path = folder.join(format!("{FILE}{suffix}"));
            match std::fs::remove_file(&path) {
                Err(cause) if cause.kind() != std::io::ErrorKind::NotFound => {
                    return Err(Error::system("remove", &path)(cause));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Returns the job.
    #[must_use]
    pub const fn job(&self) -> &Job {
        &self.job
    }

    /// Runs a transition.
    fn within<T>(
        &mut self,
        act: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>,
    ) -> Result<T, Error> {
        let done = transact(&mut self.connection, act);
        done.map_err(|cause| Error::database(&self.path, cause))
    }

    /// Reads without the write lock.
    fn look<T>(&self, read: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T, Error> {
        read(&self.connection).map_err(|cause| Error::database(&self.path, cause))
    }
}

impl Engine for Sqlite {
    fn control(&mut self) -> Result<Control, Error> {
        self.look(control::read)
    }

    fn set_state(&mut self, state: State) -> Result<Control, Error> {
        self.within(|tx| control::set_state(tx, state))
    }

    fn set_rate(&mut self, rate_bps: Option<u64>) -> Result<(), Error> {
        self.within(|tx| control::set_rate(tx, rate_bps))
    }

    fn beat(
        &mut self,
        worker: &str,
        lease: Option<Lease>,
        in_flight: u64,
        now_ms: u64,
    ) -> Result<Orders, Error> {
        let rules = self.rules;
        self.within(|tx| control::beat(tx, &rules, worker, lease, in_flight, now_ms))
    }

    fn leave(&mut self, worker: &str, now_ms: u64) -> Result<(), Error> {
        self.within(|tx| control::leave(tx, worker, now_ms))
    }

    fn holders(&mut self) -> Result<Vec<String>, Error> {
        self.look(control::holders)
    }

    fn take(&mut self, worker: &str, now_ms: u64) -> Result<Option<Item>, Error> {
        // workers that wait need no write lock
        if !self.look(|connection| items::may_take(connection, now_ms))? {
            return Ok(None);
        }
        let rules = self.rules;
        self.within(|tx| items::take(tx, &rules, worker, now_ms))
    }

    fn settle(
        &mut self,
        lease: Lease,
        settlement: &Settlement,
        now_ms: u64,
    ) -> Result<bool, Error> {
        let rules = self.rules;
        self.within(|tx| items::settle(tx, &rules, lease, settlement, now_ms))
    }

    fn add_requests(&mut self, requests: &Requests) -> Result<(), Error> {
        self.within(|tx| control::count_requests(tx, requests))
    }

    fn advance(&mut self) -> Result<Phase, Error> {
        let rules = self.rules;
        match self.look(items::is_phase_complete)? {
            true => self.within(|tx| items::advance(tx, &rules)),
            false => Ok(self.control()?.phase),
        }
    }

    fn record_delete_pass(
        &mut self,
        copied: &[CopiedFile],
        removed: u64,
        is_complete: bool,
        worker: &str,
        now_ms: u64,
    ) -> Result<(), Error> {
        self.within(|tx| {
            receipts::correct(tx, copied, worker, now_ms)?;
            control::count_removed(tx, removed)?;
            if is_complete { control::set_phase(tx, Phase::Done) } else { Ok(()) }
        })
    }

    fn retry_aside(&mut self) -> Result<(), Error> {
        self.within(items::retry_aside)
    }

    fn begin_listing(&mut self) -> Result<u64, Error> {
        self.within(listing::begin)
    }

    fn next_directory(
        &mut self,
        after: Option<&DirectoryKey>,
    ) -> Result<Option<DirectoryKey>, Error> {
        self.look(|connection| listing::next_directory(connection, after))
    }

    fn stage(&mut self, entries: &[Entry]) -> Result<(), Error> {
        self.within(|tx| listing::stage(tx, entries))
    }

    fn stage_directories(&mut self, found: &[(DirectoryKey, Entry)]) -> Result<(), Error> {
        self.within(|tx| listing::stage_directories(tx, found))
    }

    fn checkpoint(&mut self, checkpoint: &Checkpoint<'_>) -> Result<(), Error> {
        self.within(|tx| listing::checkpoint(tx, checkpoint))
    }

    fn counts(&mut self, now_ms: u64) -> Result<Counts, Error> {
        self.look(|connection| control::counts(connection, now_ms))
    }

    fn workers(&mut self) -> Result<Vec<WorkerReport>, Error> {
        self.look(control::reports)
    }

    fn aside(&mut self, most: usize) -> Result<Vec<Aside>, Error> {
        self.look(|connection| items::aside(connection, most))
    }

    fn receipts(&mut self, each: &mut dyn FnMut(Receipt) -> bool) -> Result<(), Error> {
        self.look(|connection| receipts::each(connection, each))
    }
}

/// Opens a database for reading and writing.
fn connect(path: &Path, flags: OpenFlags) -> rusqlite::Result<Connection> {
    let flags = flags | OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(PATIENCE)?;
    // a power cut may lose the last commits, and never damages the database
    connection.execute_batch("PRAGMA journal_mode = wal; PRAGMA synchronous = normal;")?;
    Ok(connection)
}

/// Runs a transaction that has the write lock from its beginning.
fn transact<T>(
    connection: &mut Connection,
    act: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<T> {
    let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let done = act(&tx)?;
    tx.commit()?;
    Ok(done)
}

/// Converts a number for the database, whose integers have a sign. What does not fit is as large
/// as can be.
fn int(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Reads a number of a column.
fn nat(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    Ok(u64::try_from(row.get::<_, i64>(column)?).unwrap_or(0))
}

/// Reads a small number of a column.
fn small(row: &Row<'_>, column: usize) -> rusqlite::Result<u32> {
    Ok(u32::try_from(row.get::<_, i64>(column)?).unwrap_or(0))
}

/// Makes the error for a value that no version of this program writes.
fn damaged(what: &str) -> rusqlite::Error {
    let cause = format!("{what} is damaged");
    rusqlite::Error::FromSqlConversionFailure(0, rusqlite::types::Type::Blob, cause.into())
}

/// Reads the entries of an item.
fn entries(bytes: &[u8]) -> rusqlite::Result<Vec<Entry>> {
    decode(bytes).map_err(|_| damaged("an item"))
}
