//! One run of a campaign as a process: `headroom lab run`.

use std::ffi::{OsStr, OsString};
use std::fs::OpenOptions;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use headroom_lab_host::error::{Doing, Result};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::{Campaign, CampaignPlan, FOLDER_OF_PAIRS, Pair};
use crate::run::JOURNAL as RUN_JOURNAL;

/// A run; it is stopped when dropped.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts this program with these arguments; what it prints is added to a log. It has a group
    /// of its own, as Ctrl-C is for the campaign, which stops it.
    pub(super) fn start(headroom: &Path, arguments: &[OsString], log: PathBuf) -> Result<Self> {
        let doing = || format!("write {}", log.display());
        let file = OpenOptions::new().append(true).create(true).open(&log).doing(doing)?;
        let errors = file.try_clone().doing(doing)?;
        let mut command = Command::new(headroom);
        command.args(arguments).process_group(0);
        command.stdin(Stdio::null()).stdout(file).stderr(errors);
        let child = command.spawn().doing(|| format!("start {}", headroom.display()))?;
        Ok(Self { child, log })
    }

    /// Returns how it ended; none: it has not.
    pub(super) fn ended(&mut self) -> Result<Option<ExitStatus>> {
        self.child.try_wait().doing(|| "wait for a run".to_owned())
    }

    /// Waits for its end.
    pub(super) fn wait(&mut self) -> Result<ExitStatus> {
        self.child.wait().doing(|| "wait for a run".to_owned())
    }

    /// Asks it to stop; it leaves what can be continued.
    pub(super) fn interrupt(&self) {
        // its number is its own until it has been waited for
        let _ = kill(Pid::from_raw(self.child.id().cast_signed()), Signal::SIGINT);
    }

    pub(super) fn log(&self) -> &Path {
        &self.log
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            self.interrupt();
            let _ = self.child.wait();
        }
    }
}

/// Returns the arguments of a run with its results in `home`, which it continues if it has begun.
pub(super) fn arguments(
    campaign: &Campaign,
    plan: &CampaignPlan,
    pair: Option<&Pair>,
    folder: &Path,
    home: &Path,
) -> Vec<OsString> {
    let mut words: Vec<OsString> = vec!["lab".into(), "run".into()];
    let mut add = |word: &OsStr| words.push(word.to_owned());
    if home.join(RUN_JOURNAL).exists() {
        add("--resume".as_ref());
        add(home.as_os_str());
        return words;
    }
    add(plan.path.as_os_str());
    add("--out".as_ref());
    add(home.as_os_str());
    if let Some(pair) = pair {
        add("--testbed".as_ref());
        add(testbed_file(folder, pair).as_os_str());
    }
    if let Some(scale) = campaign.scale {
        add("--scale".as_ref());
        add(scale.name().as_ref());
    }
    if campaign.host_programs {
        add("--host-programs".as_ref());
    }
    words
}

/// The file that says where the plans of a pair are run.
pub(super) fn testbed_file(folder: &Path, pair: &Pair) -> PathBuf {
    folder.join(FOLDER_OF_PAIRS).join(format!("{}.toml", pair.name))
}
