//! Which process writes a journal, and whether it is still there.

use std::fs;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Names this process and one upload of it: boot, PID namespace, process, its start, and a random
/// number. What the system does not tell is empty.
pub(crate) fn name() -> String {
    let process = std::process::id();
    let start = start_of(process).unwrap_or_default();
    let random = rand::random::<u64>();
    format!("{}/{}/{process}/{start}/{random:016x}", boot(), pid_namespace())
}

/// Says whether the process behind a name has surely ended: it ran on this machine, since the
/// last boot, and its number is free or another's.
pub(crate) fn has_ended(name: &str) -> bool {
    let parts: Vec<&str> = name.split('/').collect();
    let [boot_then, namespace, process, start, _] = parts[..] else {
        return false;
    };
    let (Ok(process), false, false) =
        (process.parse::<u32>(), start.is_empty(), boot_then.is_empty())
    else {
        return false;
    };
    // 0 and below would ask for groups of processes
    let Ok(number) = i32::try_from(process) else {
        return false;
    };
    if number < 1 || boot_then != boot() || namespace.is_empty() || namespace != pid_namespace() {
        return false;
    }
    match start_of(process) {
        Some(now) => now != start,
        // it may only be hidden (proc(5), hidepid)
        None => kill(Pid::from_raw(number), None::<Signal>) == Err(Errno::ESRCH),
    }
}

fn boot() -> String {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.trim().to_owned()
}

fn pid_namespace() -> String {
    fs::read_link("/proc/self/ns/pid")
        .map(|link| link.to_string_lossy().replace('/', ""))
        .unwrap_or_default()
}

/// When a process began, in clock ticks since the boot: field 22 of proc_pid_stat(5).
fn start_of(process: u32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // the name of the program, in parentheses, may have anything in it
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(19).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_not_ended() {
        assert!(!has_ended(&name()));
    }

    #[test]
    fn a_process_with_another_start_has_ended() {
        let name = name();
        let mut parts: Vec<&str> = name.split('/').collect();
        if parts[..4].iter().any(|part| part.is_empty()) {
            return; // a system without /proc
        }
        parts[3] = "1";
        assert!(has_ended(&parts.join("/")));
        parts[0] = "another-boot";
        assert!(!has_ended(&parts.join("/")));
    }

    #[test]
    fn what_is_no_name_says_nothing() {
        for odd in ["", "a", "////", "a/b/c/d/e", "a/b/0/d/e", "a/b/4294967295/d/e"] {
            assert!(!has_ended(odd), "{odd}");
        }
    }
}
