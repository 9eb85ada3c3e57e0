//! Zombies: a server whose parent (an agent, another server) has ended is adopted, and who
//! adopts it must wait for it. In a container process 1 often does not, so this process
//! adopts what its runs start, and waits for it when they end.

use std::path::Path;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::prctl;
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;

/// Adopts orphaned descendants; reaps those of one run when dropped. To be dropped after
/// everything that waits for a child of its own.
#[derive(Debug)]
pub(crate) struct Reaper {
    /// The name of the run's control group.
    group: String,
}

impl Reaper {
    /// Makes this process the one that adopts orphans (`PR_SET_CHILD_SUBREAPER`, see
    /// prctl(2)). `group` is the name of the control group of a run.
    pub(crate) fn new(group: String) -> Self {
        // Every kernel since 3.4 can; without it process 1 adopts, as it always did.
        let _ = prctl::set_child_subreaper(true);
        Self { group }
    }
}

impl Drop for Reaper {
    fn drop(&mut self) {
        // They were all killed before; a busy machine takes its time to end them.
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let left = children().into_iter().filter(|&pid| is_in(pid, &self.group));
            let left = left.filter(|&pid| {
                let waited = waitpid(pid, Some(WaitPidFlag::WNOHANG));
                matches!(waited, Ok(nix::sys::wait::WaitStatus::StillAlive) | Err(Errno::EINTR))
            });
            if left.count() == 0 || Instant::now() > deadline {
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// The children of this process, zombies included.
fn children() -> Vec<Pid> {
    let parent = Pid::this();
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| {
            let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
            let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
            // "pid (name) state parent …", and a name may hold anything
            let (_, behind) = stat.rsplit_once(')')?;
            let its_parent: i32 = behind.split_whitespace().nth(1)?.parse().ok()?;
            (its_parent == parent.as_raw()).then(|| Pid::from_raw(pid))
        })
        .collect()
}

/// Whether a process is or was in the control group of this name, or below it.
fn is_in(pid: Pid, group: &str) -> bool {
    let text = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    // the kernel marks a group that was removed by a word behind the path
    text.lines()
        .filter_map(|line| line.strip_prefix("0::"))
        .flat_map(|path| Path::new(path.trim_end_matches(" (deleted)")).iter())
        .any(|name| name == group)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zombie_is_a_child_until_it_is_waited_for() {
        let mut child = std::process::Command::new("true").spawn().expect("true starts");
        let pid = Pid::from_raw(child.id().cast_signed());
        assert!(children().contains(&pid));
        assert!(!is_in(pid, "headroom-0badf00d"));
        child.wait().expect("waited for");
        assert!(!children().contains(&pid));
    }
}
