//! Programs that are none of the run's: which of them took CPU time between two looks.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use nix::unistd::Pid;

use super::processes::{Process, descendants, everybody};

/// The parent of all threads of the kernel.
const KERNEL_THREADS: Pid = Pid::from_raw(2);
/// Programs that are named.
const NAMED: usize = 3;
/// What took less of the machine is not named, per cent.
const MIN_PCT: f64 = 0.5;

/// The CPU time of all processes but those of this run, at one instant.
#[derive(Debug)]
pub struct Others {
    at: Instant,
    /// Seconds, by id and start.
    spent: BTreeMap<(i32, u64), f64>,
}

impl Others {
    /// Looks at all processes of this machine that this one may see. It and what descends from it
    /// are the run.
    pub fn look() -> Self {
        let run: BTreeSet<Pid> =
            descendants(Pid::this()).iter().map(|(_, process)| process.pid).collect();
        // the kernel's threads work for the run as well: its packets and their encryption
        let of_kernel = |process: &Process| [process.pid, process.parent].contains(&KERNEL_THREADS);
        let others =
            everybody().filter(|process| !run.contains(&process.pid) && !of_kernel(process));
        let spent = others.map(|process| (key(&process), process.own_s())).collect();
        Self { at: Instant::now(), spent }
    }

    /// Names the programs that took the most of the machine since then, each with its share of all
    /// cores in per cent. What has ended meanwhile is not among them.
    pub fn busiest_since(&self) -> BTreeMap<String, f64> {
        let now = Self::look();
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let all = now.at.duration_since(self.at).as_secs_f64().max(1e-3) * cores as f64;
        let mut shares: BTreeMap<String, f64> = BTreeMap::new();
        for (key, seconds) in &now.spent {
            let spent = seconds - self.spent.get(key).copied().unwrap_or(0.0);
            if spent > 0.0
                && let Some(name) = name(key.0)
            {
                *shares.entry(name).or_default() += 100.0 * spent / all;
            }
        }
        busiest(shares)
    }
}

fn busiest(shares: BTreeMap<String, f64>) -> BTreeMap<String, f64> {
    let mut shares: Vec<(String, f64)> =
        shares.into_iter().filter(|(_, pct)| *pct >= MIN_PCT).collect();
    shares.sort_by(|a, b| b.1.total_cmp(&a.1));
    shares.truncate(NAMED);
    shares.into_iter().collect()
}

fn key(process: &Process) -> (i32, u64) {
    (process.pid.as_raw(), process.started)
}

/// The program's name, as the kernel has it. Any user can choose one, so nothing but plain letters
/// is kept of it.
fn name(pid: i32) -> Option<String> {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    let plain = |letter: char| if letter.is_ascii_graphic() { letter } else { '?' };
    Some(name.trim_end().chars().map(plain).collect())
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn this_process_and_its_children_are_no_others() {
        let mut child =
            Command::new("cat").stdin(Stdio::piped()).spawn().expect("cat waits for its input");
        let found = Others::look();
        let is_found = |pid: u32| found.spent.keys().any(|key| key.0 == pid.cast_signed());
        assert!(!is_found(std::process::id()) && !is_found(child.id()));
        drop(child.stdin.take());
        child.wait().expect("ended");
    }

    #[test]
    fn names_the_programs_that_took_the_most() {
        let shares = [("a", 0.4), ("b", 3.0), ("c", 20.0), ("d", 1.0), ("e", 2.0)];
        let shares = shares.map(|(name, pct)| (name.to_owned(), pct)).into();
        let named: Vec<String> = busiest(shares).into_keys().collect();
        assert_eq!(named, ["b", "c", "e"]);
    }
}
