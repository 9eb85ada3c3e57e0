//! The processes that work, by name.

use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::unistd::Pid;

/// Returns the name of the worker that is the process of this ID on this machine.
#[must_use]
pub(crate) fn name_of(process: u32) -> String {
    let host = nix::unistd::gethostname().ok().and_then(|host| host.into_string().ok());
    format!("{}.{process}", host.as_deref().unwrap_or("localhost"))
}

/// Returns what tells apart machines with the same name, and containers of one: the ID that Linux
/// gives to each boot, and the namespace of process IDs. Empty parts if the system has neither.
pub(crate) fn machine() -> String {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let processes = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    format!("{} {}", boot.trim(), processes.display())
}

/// Whether a worker was a process of this machine and is no more. Of other machines nobody knows.
/// A process ID that another process has by now counts as the worker, which then is missed when its
/// lease ends. Other machines may have the same name: where several share an engine, compare
/// [`machine`] first.
pub(crate) fn is_gone(worker: &str) -> bool {
    let process = worker.rsplit_once('.').and_then(|(_, process)| process.parse::<u32>().ok());
    let Some(process) = process.filter(|process| name_of(*process) == worker) else {
        return false;
    };
    let Ok(pid) = i32::try_from(process) else { return true };
    if kill(Pid::from_raw(pid), None) == Err(Errno::ESRCH) {
        return true;
    }
    // one that nobody has waited for: behind the name, in parentheses, is its state
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(['Z', 'X']))
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_worker_is_named_by_its_machine_and_process() {
        let name = name_of(77);
        assert!(name.ends_with(".77") && name.len() > 3, "{name}");
        assert!(machine() == machine() && machine().contains("pid:"), "{}", machine());
    }

    #[test]
    fn a_worker_that_was_killed_here_is_gone_and_others_are_not() {
        assert!(!is_gone(&name_of(std::process::id())));
        let program = std::env::current_exe().expect("this program");
        let mut command = Command::new(program);
        let mut child = command.arg("--list").stdout(Stdio::null()).spawn().expect("it starts");
        let name = name_of(child.id());
        child.wait().expect("it ends");
        assert!(is_gone(&name));
        for other in ["elsewhere.1", "no process", ""] {
            assert!(!is_gone(other), "{other}");
        }
    }
}
