//! Options of a run, and its progress.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use headroom_lab_host::error::{Error, Result};
use headroom_lab_host::testbed::Settings;

use super::blocks::scratch_bytes;
use crate::plan::Plan;

/// Options of a run.
#[derive(Debug, Clone)]
pub struct Options {
    /// Folder in which the run's scratch folder is made, if the user chose one:
    /// the test files then go there. Else they go to a tmpfs where they fit.
    pub scratch: Option<PathBuf>,
    /// This program's executable.
    pub headroom: PathBuf,
    /// Commands that it was built without.
    pub lacking_commands: &'static [&'static str],
    /// Version of the built-in client.
    pub client_version: String,
    /// Whether the packets of the accounting runs are kept, in `captures/`.
    pub keep_captures: bool,
    /// Whether a link that fails its self-test is used. The report says so.
    pub allow_failed_link_test: bool,
    /// The time that a plan was fitted to ([`super::fit()`]): what is left of it is spent on more
    /// blocks.
    pub time: Option<Duration>,
    /// Set by a signal handler to end the run early.
    pub interrupted: Arc<AtomicBool>,
}

impl Options {
    pub(super) fn settings(&self, plan: &Plan) -> Settings {
        Settings {
            scratch_parent: self.scratch.clone().unwrap_or_else(std::env::temp_dir),
            scratch_chosen: self.scratch.is_some(),
            headroom: self.headroom.clone(),
            scratch_bytes: scratch_bytes(plan),
            allow_failed_link_test: self.allow_failed_link_test,
            interrupted: Arc::clone(&self.interrupted),
        }
    }

    /// Refuses what has no meaning between two real machines.
    pub(super) fn require_real_hosts(&self) -> Result<()> {
        let refused = if self.keep_captures {
            "--keep-captures keeps the packets of accounting runs, which there are none of between two real machines: \
             leave it out"
        } else if self.scratch.is_some() {
            "--scratch names a folder of this machine, and between two real machines nothing is kept here: set TMPDIR \
             for root's logins on the hosts"
        } else {
            return Ok(());
        };
        Err(Error::Plan(refused.to_owned()))
    }
}

/// Receives the progress of a run.
pub trait Progress {
    /// A stage begins.
    fn stage(&self, text: &str);
    /// Reports the expected remaining time.
    fn left(&self, time: Duration);
    /// Something was measured.
    fn done(&self, what: &str);
}
