//! Errors of a fleet.

use std::io;
use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;

/// Each is a sentence: what was being done, what was found, what to do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A job file says something that cannot be done.
    #[error("{}:{line}: {reason}", path.display())]
    Job {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong, and the remedy.
        reason: String,
    },
    /// The system refused something.
    #[error("cannot {doing} {}: {cause}", path.display())]
    System {
        /// What was being done.
        doing: &'static str,
        /// With what.
        path: PathBuf,
        /// What the system said.
        cause: io::Error,
    },
    /// The disk with the state is full.
    #[error(
        "the disk with {} is full: make room and repeat the command, which continues the job",
        .0.display()
    )]
    Full(PathBuf),
    /// The disk of the destination is full: a sentence that names a file.
    #[error("{0}")]
    DestinationFull(String),
    /// The state folder has no job.
    #[error("{} has no job: `headroom fleet run JOB.toml` begins one", .0.display())]
    NoJob(PathBuf),
    /// The state is of another program or version, or damaged.
    #[error(
        "{} cannot be used: {found}. Name another folder with --state, or start again with `headroom fleet run --restart`",
        path.display()
    )]
    State {
        /// The file.
        path: PathBuf,
        /// What was found.
        found: String,
    },
    /// The state folder has another job.
    #[error(
        "{} has another job: its `{setting}` is {there}, and that of {} is {here}. Give the job another name or folder, or start again with --restart",
        folder.display(), job.display()
    )]
    OtherJob {
        /// The state folder.
        folder: PathBuf,
        /// The job file.
        job: PathBuf,
        /// The setting that differs.
        setting: &'static str,
        /// Its value in the folder.
        there: String,
        /// Its value in the file.
        here: String,
    },
    /// Another run has the state folder.
    #[error("another `headroom fleet run` uses {}: wait until it ends, or stop it", .0.display())]
    Busy(PathBuf),
    /// The job was cancelled.
    #[error("this job was cancelled: `headroom fleet run --restart` starts it again")]
    Cancelled,
    /// NATS did not do something.
    #[error("cannot {doing} NATS: {cause}")]
    Nats {
        /// What was being done.
        doing: &'static str,
        /// What it said.
        cause: String,
    },
    /// The database refused something.
    #[error("cannot use the database {}: {cause}", path.display())]
    Database {
        /// The file.
        path: PathBuf,
        /// What it said.
        cause: rusqlite::Error,
    },
    /// A transfer failed as a whole.
    #[error(transparent)]
    Transfer(#[from] headroom_transfer::Error),
}

impl Error {
    /// Makes the error of a database: those with a remedy of their own are told apart.
    pub(crate) fn database(path: &Path, cause: rusqlite::Error) -> Self {
        let path = path.to_owned();
        match cause.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => Self::Full(path),
            Some(ErrorCode::NotADatabase) => {
                Self::State { path, found: "it is not a database".to_owned() }
            }
            Some(ErrorCode::DatabaseCorrupt) => {
                Self::State { path, found: format!("it is damaged ({cause})") }
            }
            _ => Self::Database { path, cause },
        }
    }

    /// Makes the error for a file or folder that the system refuses.
    pub(crate) fn system(doing: &'static str, path: &Path) -> impl Fn(io::Error) -> Self {
        move |cause| match cause.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                Self::Full(path.to_owned())
            }
            _ => Self::System { doing, path: path.to_owned(), cause },
        }
    }
}
