//! A closed loop: clients at once, each of which starts its next session when the one before has
//! ended. The agent starts them itself, so that no message to the lab is between two sessions.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::job::{self, Job, Outcome};
use crate::content::{Content, verify};
use crate::error::{Error, Result};

/// A client of a closed loop.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LoopClient {
    /// The client process of a session.
    pub job: Job,
    /// The file that a session leaves; it is verified and removed before the next one.
    pub file: PathBuf,
    /// What the file must hold.
    pub content: Content,
}

/// The sessions of one client.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LoopOutcome {
    /// Seconds from start to end of the process, of each session that succeeded.
    pub session_s: Vec<f64>,
    /// Seconds from the start of the loop to the end of the last session.
    pub elapsed_s: f64,
    /// Sessions that failed.
    pub failed: u32,
    /// The first of them, and what was wrong with its file if the process ended well.
    pub first_failure: Option<(Outcome, Option<String>)>,
    /// The last session.
    pub last: Outcome,
}

/// The duration and the bounds of a loop.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// No session starts after this.
    pub(super) time: Duration,
    /// A session that takes longer is killed.
    pub(super) timeout: Duration,
    /// Sessions of one client whose durations are kept.
    pub(super) most: usize,
}

/// Sessions of all clients together whose durations are kept: 8 MB.
pub(super) const MAX_SESSIONS: usize = 1_000_000;

/// Runs the sessions of one client, at least one.
///
/// # Errors
/// The process cannot be started, or there were more sessions than are kept.
pub(super) fn run(client: &LoopClient, started: Instant, limits: Limits) -> Result<LoopOutcome> {
    let (mut session_s, mut failed, mut first_failure) = (Vec::new(), 0, None);
    loop {
        let outcome = job::run(&client.job, limits.timeout)?;
        let wrong = match outcome.code {
            Some(0) => verify(&client.file, client.content).err().map(|error| error.to_string()),
            _ => None,
        };
        // the next session finds no file, as the first one did
        let _ = std::fs::remove_file(&client.file);
        if outcome.code != Some(0) || wrong.is_some() {
            failed += 1;
            first_failure.get_or_insert_with(|| (outcome.clone(), wrong));
        } else if session_s.len() < limits.most {
            session_s.push(outcome.process_s);
        } else {
            return Err(Error::Failed(format!(
                "a client had more than {} sessions, the most that are kept: give the workload fewer `seconds`",
                limits.most
            )));
        }
        let elapsed = started.elapsed();
        if elapsed >= limits.time {
            let elapsed_s = elapsed.as_secs_f64();
            return Ok(LoopOutcome { session_s, elapsed_s, failed, first_failure, last: outcome });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;

    use super::*;
    use crate::command::Resolved;

    const ONCE: Limits =
        Limits { time: Duration::ZERO, timeout: Duration::from_secs(60), most: 1000 };

    /// A client that runs a script, whose first argument is the file; `abc` must be in it.
    fn client(folder: &Path, script: &str) -> LoopClient {
        let file = folder.join("received");
        let mut argv = ["/bin/sh", "-c", script, "sh"].map(str::to_owned).to_vec();
        argv.push(file.display().to_string());
        let command = Resolved { argv, environment: BTreeMap::new() };
        let content = Content { size: 3, hash: blake3::hash(b"abc") };
        let job = Job { command, dialogue: None, has_prelude: false };
        LoopClient { job, file, content }
    }

    const RECEIVE: &str = "printf abc > \"$1\"";

    #[test]
    fn each_session_finds_no_file_and_leaves_the_right_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let client = client(folder.path(), &format!("[ ! -e \"$1\" ] && {RECEIVE}"));
        let limits = Limits { time: Duration::from_millis(200), ..ONCE };
        let seen = run(&client, Instant::now(), limits).expect("a shell");
        assert_eq!((seen.failed, seen.last.code), (0, Some(0)), "{seen:?}");
        assert!(!seen.session_s.is_empty() && seen.elapsed_s >= 0.2, "{seen:?}");
        assert!(seen.session_s.iter().sum::<f64>() <= seen.elapsed_s, "{seen:?}");
        assert!(!client.file.exists());
    }

    #[test]
    fn a_session_fails_by_its_exit_code_or_its_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let seen =
            |script| run(&client(folder.path(), script), Instant::now(), ONCE).expect("a shell");
        let refused = seen("echo refused >&2; exit 3");
        assert_eq!((refused.failed, refused.session_s.len()), (1, 0));
        let (outcome, wrong) = refused.first_failure.expect("a failure");
        assert_eq!((outcome.code, outcome.stderr.trim(), wrong), (Some(3), "refused", None));
        for (script, why) in [
            (":", "is not there"),
            ("printf more > \"$1\"", "4 bytes instead of 3"),
            ("printf abd > \"$1\"", "wrong content"),
        ] {
            let seen = seen(script);
            let (outcome, wrong) = seen.first_failure.expect("a failure");
            assert_eq!((seen.failed, outcome.code), (1, Some(0)));
            assert!(wrong.is_some_and(|wrong| wrong.contains(why)), "{why}");
        }
    }

    #[test]
    fn more_sessions_than_are_kept_are_an_error() {
        let folder = tempfile::tempdir().expect("a folder");
        let limits = Limits { time: Duration::from_secs(60), most: 2, ..ONCE };
        let error =
            run(&client(folder.path(), RECEIVE), Instant::now(), limits).expect_err("too many");
        assert!(error.to_string().contains("more than 2 sessions"), "{error}");
    }
}
