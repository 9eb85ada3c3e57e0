//! Control groups (cgroup v2): one for each side, to read its CPU time and to
//! end all of its processes at once.
//! Where this user may make none, `Processes` does without.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::unistd::{AccessFlags, access};

use crate::error::{Doing, Error, Result};
use crate::privileges::Privileges;
use crate::scratch;

/// A shell's script: joins the group of that `cgroup.procs` and becomes the command behind
/// it, so that nothing the command ever does is charged to another group.
pub(crate) const JOIN: &str = r#"echo $$ > "$0" && exec "$@""#;

/// A control group with its processes; killed and removed when dropped.
#[derive(Debug)]
pub(crate) struct Cgroup {
    path: PathBuf,
}

impl Cgroup {
    pub(crate) fn create(path: PathBuf) -> Result<Self> {
        std::fs::create_dir(&path)
            .doing(|| format!("create the control group {}", path.display()))?;
        Ok(Self { path })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Ends all its processes.
    pub(crate) fn end(&self) {
        // Removing the group reports processes that are left.
        let _ = kill(&self.path);
    }
}

/// CPU time of all processes of a group, dead ones included, in seconds.
pub(crate) fn cpu_seconds(group: &Path) -> Result<f64> {
    let file = group.join("cpu.stat");
    let text = std::fs::read_to_string(&file).doing(|| format!("read {}", file.display()))?;
    text.lines()
        .find_map(|line| line.strip_prefix("usage_usec ")?.trim().parse::<f64>().ok())
        .map(|microseconds| microseconds / 1e6)
        .ok_or_else(|| Error::Failed(format!("{} has no usage_usec", file.display())))
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        if let Err(error) = kill_and_remove(&self.path) {
            eprintln!(
                "headroom: cannot remove {}: {error}; end its processes (cgroup.procs) and remove it by rmdir",
                self.path.display()
            );
        }
    }
}

/// Ends every process of a group and of those below it, and removes them all.
pub(crate) fn kill_and_remove(path: &Path) -> std::io::Result<()> {
    for entry in std::fs::read_dir(path)?.flatten() {
        if entry.file_type()?.is_dir() {
            kill_and_remove(&entry.path())?;
        }
    }
    kill(path)?;
    // a killed process goes when the kernel has unmade its interface, which took a busy
    // machine more than five seconds
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        match std::fs::remove_dir(path) {
            // EBUSY until the last killed process has been reaped
            Err(error)
                if error.kind() == std::io::ErrorKind::ResourceBusy
                    && Instant::now() < deadline =>
            {
                std::thread::sleep(Duration::from_millis(2));
            }
            result => return result,
        }
    }
}

/// Ends every process of a group: at once by `cgroup.kill` (Linux 5.14), else
/// one by one.
pub(crate) fn kill(path: &Path) -> std::io::Result<()> {
    if std::fs::write(path.join("cgroup.kill"), "1").is_ok() {
        return Ok(());
    }
    let pids = std::fs::read_to_string(path.join("cgroup.procs"))?;
    for pid in pids.lines().filter_map(|line| line.parse().ok()) {
        let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::SIGKILL);
    }
    Ok(())
}

/// Groups of runs, as `(id, path)`, at the root of the hierarchy `root`.
pub(crate) fn of_runs(root: &Path) -> Vec<(String, PathBuf)> {
    let Ok(entries) = std::fs::read_dir(root) else { return Vec::new() };
    entries
        .flatten()
        .filter_map(|entry| {
            let id = scratch::id_of(&entry.file_name().to_string_lossy())?.to_owned();
            Some((id, entry.path()))
        })
        .collect()
}

/// Finds the group in which this process may make those of a run: the root of the hierarchy
/// for root of the machine, else its own group where that was delegated to it, as systemd does
/// for `systemd-run --user --scope -p Delegate=yes`.
pub fn parent() -> Option<PathBuf> {
    let root = mounted()?;
    let parent = match Privileges::of_this_process() {
        Privileges::Root => root,
        _ => {
            let text = std::fs::read_to_string("/proc/self/cgroup").ok()?;
            let own = text.lines().find_map(|line| line.strip_prefix("0::/"))?;
            root.join(own)
        }
    };
    // whoever moves a process must be allowed to write to the group that has both
    let may = |path: &Path| access(path, AccessFlags::W_OK).is_ok();
    (may(&parent) && may(&parent.join("cgroup.procs"))).then_some(parent)
}

/// Whether processes of another run live on this machine: one whose group is not `own`.
pub fn another_run_is_alive(own: &str) -> bool {
    let parents = mounted().into_iter().chain(parent());
    let mut groups = parents.flat_map(|parent| of_runs(&parent));
    groups.any(|(id, path)| id != own && is_populated(&path))
}

/// Whether a process lives in a group or below it.
fn is_populated(group: &Path) -> bool {
    let events = std::fs::read_to_string(group.join("cgroup.events")).unwrap_or_default();
    events.lines().any(|line| line == "populated 1")
}

/// Returns the mount point of cgroup v2. If there is none, mounts it on `folder`, which is
/// made, in this process's own mount namespace.
pub(crate) fn mounted_or_at(folder: &Path) -> Result<PathBuf> {
    if let Some(path) = mounted() {
        return Ok(path);
    }
    std::fs::create_dir_all(folder).doing(|| format!("create {}", folder.display()))?;
    let none = nix::mount::MsFlags::empty();
    nix::mount::mount(Some("none"), folder, Some("cgroup2"), none, None::<&str>)
        .doing(|| "mount the control groups".into())?;
    Ok(folder.to_owned())
}

/// Returns the mount point of cgroup v2 on this system, if it has one.
pub fn mounted() -> Option<PathBuf> {
    let mounts = std::fs::read_to_string("/proc/self/mounts").ok()?;
    mounts.lines().find_map(|line| {
        let mut words = line.split(' ');
        let (_source, target, kind) = (words.next()?, words.next()?, words.next()?);
        (kind == "cgroup2").then(|| PathBuf::from(target))
    })
}
