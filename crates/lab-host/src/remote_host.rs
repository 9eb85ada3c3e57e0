//! Holds what a run needs on a real host, and removes it again: `headroom
//! lab-host`, started there over ssh, holds a scratch folder and a control
//! group, runs the agent inside, and takes everything away when the lab is gone,
//! however it went: it ended, it was killed, or nothing was heard of it.

use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use headroom_file_lock::LockedFile;
use nix::mount::{MntFlags, MsFlags};
use serde::{Deserialize, Serialize};

use crate::agent::remote::SILENCE;
use crate::clean;
use crate::error::{Doing, Error, Result};
use crate::machine;
use crate::reaper::Reaper;
use crate::resources::cgroup::{self, Cgroup};
use crate::scratch;

/// The first line that a host says: that it is ready, or why it is not.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Greeting {
    /// Ready; the agent answers from here on.
    Ready(HostSetup),
    /// This host lacks something.
    Refused(String),
}

/// A host that is ready.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct HostSetup {
    /// This program there.
    pub(crate) program: PathBuf,
    /// The folder for everything of the run.
    pub(crate) root: PathBuf,
    /// Its kind: `tmpfs` or `disk`.
    pub(crate) root_kind: String,
    pub(crate) machine: machine::Machine,
}

/// Runs the agent of a real host until the lab is gone; then removes everything,
/// the folder `headroom-ID` with this very program in it included. The run's
/// files will take `bytes`.
///
/// # Errors
/// The step that failed; standard output has the error, too.
pub fn serve(bytes: u64) -> Result<()> {
    let greet = |greeting: &Greeting| -> Result<()> {
        let line = serde_json::to_string(greeting).doing(|| "write a greeting".into())?;
        let mut stdout = std::io::stdout().lock();
        writeln!(stdout, "{line}").and_then(|()| stdout.flush()).doing(|| "greet the lab".into())
    };
    let host = match RemoteHost::new(bytes) {
        Ok(host) => host,
        Err(error) => {
            greet(&Greeting::Refused(error.to_string()))?;
            return Err(error);
        }
    };
    greet(&Greeting::Ready(host.setup()))?;
    host.pass_on()
}

/// Everything of the run on this host. Dropped in order: processes first.
struct RemoteHost {
    group: Cgroup,
    agent: Child,
    folder: Folder,
    _reaper: Reaper,
}

/// The run's folder with its lock; unmounted and removed when dropped.
struct Folder {
    path: PathBuf,
    is_tmpfs: bool,
    _lock: LockedFile,
}

impl RemoteHost {
    fn new(bytes: u64) -> Result<Self> {
        let program = std::env::current_exe().doing(|| "find this program's own file".into())?;
        let mut folder = Folder::of(&program)?;
        if !nix::unistd::geteuid().is_root() {
            return Err(Error::Missing(
                "servers are started in mount namespaces of their own, which needs root there: \
                 name it as root@HOST"
                    .into(),
            ));
        }
        clean_up_beside(&folder.path);
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNS)
            .doing(|| "leave the machine's mount namespace".into())?;
        let private = MsFlags::MS_PRIVATE | MsFlags::MS_REC;
        nix::mount::mount(None::<&str>, "/", None::<&str>, private, None::<&str>)
            .doing(|| "make mounts private".into())?;
        folder.make_root(bytes)?;

        let name = folder.path.file_name().unwrap_or_default();
        let reaper = Reaper::new(name.to_string_lossy().into_owned());
        let groups = cgroup::mounted_or_at(&folder.groups())?;
        let group = Cgroup::create(groups.join(name))?;
        let procs = group.path().join("cgroup.procs");
        let agent = Command::new("sh")
            .args(["-c", cgroup::JOIN])
            .args([procs.as_path(), &program, Path::new("lab-agent")])
            .stdin(Stdio::piped())
            .spawn()
            .doing(|| "start the agent".into())?;
        Ok(Self { group, agent, folder, _reaper: reaper })
    }

    fn setup(&self) -> HostSetup {
        HostSetup {
            program: self.folder.path.join("headroom"),
            root: self.folder.root(),
            root_kind: if self.folder.is_tmpfs { "tmpfs" } else { "disk" }.to_owned(),
            machine: machine::Machine::this(),
        }
    }

    /// Passes the lab's words on to the agent while there are any.
    fn pass_on(mut self) -> Result<()> {
        let stdin = self.agent.stdin.take();
        let mut agent = stdin.ok_or_else(|| Error::Failed("the agent has no input".into()))?;
        // few: the lab waits for an answer to each
        let (sender, lines) = mpsc::sync_channel(4);
        std::thread::spawn(move || {
            for line in std::io::stdin().lock().lines().map_while(std::result::Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        const LOOK: Duration = Duration::from_millis(200);
        let mut heard = Instant::now();
        let died = loop {
            match lines.recv_timeout(LOOK) {
                Ok(beat) if beat.is_empty() => heard = Instant::now(),
                Ok(line) if writeln!(agent, "{line}").is_err() => break self.agent.wait().ok(),
                Ok(_) => heard = Instant::now(),
                Err(RecvTimeoutError::Timeout) if heard.elapsed() > SILENCE => break None,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break None,
            }
            if let Ok(Some(status)) = self.agent.try_wait() {
                break Some(status);
            }
        };
        drop(agent);
        self.group.end();
        let _ = self.agent.wait();
        match died {
            None => Ok(()),
            Some(status) => Err(Error::Failed(format!("the agent ended unexpectedly ({status})"))),
        }
    }
}

/// Removes what earlier runs left where this one is, as after a power failure of this host:
/// the lock of a run that lives cannot be taken. What cannot be removed harms nobody.
fn clean_up_beside(folder: &Path) {
    if let Some(Err(error)) = folder.parent().map(clean::clean) {
        let _ = writeln!(std::io::stderr(), "an earlier run's rest stays: {error}");
    }
}

impl Folder {
    /// The folder that this program was copied to.
    fn of(program: &Path) -> Result<Self> {
        let path = program.parent().unwrap_or(Path::new("/")).to_owned();
        let named = path.file_name().and_then(|name| scratch::id_of(name.to_str()?));
        if named.is_none() {
            return Err(Error::Plan(format!(
                "{} is not a folder of a run; the lab starts this command by itself",
                path.display()
            )));
        }
        let lock = scratch::lock(&path)?;
        let folder = Self { path, is_tmpfs: false, _lock: lock };
        scratch::require_plain(&folder.path)?;
        Ok(folder)
    }

    fn root(&self) -> PathBuf {
        self.path.join("root")
    }

    /// Returns the folder on which control groups are mounted if the system mounts them nowhere.
    fn groups(&self) -> PathBuf {
        self.path.join("cgroup")
    }

    /// A tmpfs where the files fit into half of the free memory, else the disk.
    fn make_root(&mut self, bytes: u64) -> Result<()> {
        let root = self.root();
        std::fs::create_dir_all(&root).doing(|| format!("create {}", root.display()))?;
        if let Some(options) = scratch::tmpfs_options(bytes) {
            let none = MsFlags::empty();
            nix::mount::mount(Some("none"), &root, Some("tmpfs"), none, Some(options.as_str()))
                .doing(|| format!("mount a tmpfs on {}", root.display()))?;
            self.is_tmpfs = true;
            return Ok(());
        }
        let advice = "set TMPDIR there to a folder with more";
        scratch::require_space(&root, &root.display().to_string(), bytes, advice)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        for mount in [self.root(), self.groups()] {
            // Fails where nothing is mounted.
            let _ = nix::mount::umount2(&mount, MntFlags::MNT_DETACH);
        }
        if let Err(error) = scratch::remove(&self.path) {
            // the lab may be gone, and nobody listen
            let _ = writeln!(std::io::stderr(), "cannot remove {}: {error}", self.path.display());
        }
    }
}
