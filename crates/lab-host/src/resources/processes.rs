//! The processes of one part of a run (client, server or link): their CPU time and their end.
//! In a control group, or, where this user may make none, those that descend from one process.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use headroom_mutex::lock;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::time::clock_getcpuclockid;
use nix::unistd::{Pid, SysconfVar, sysconf};

use super::cgroup::{self, Cgroup};
use crate::error::Result;

/// The processes of one part of a run. Those of a group, and those of an agent, end when it is
/// dropped.
#[derive(Debug)]
pub(crate) enum Processes {
    /// All in a control group.
    Group(Cgroup),
    /// An agent in a process id namespace of its own, which ends with it, and all below.
    Agent(Mutex<Option<Pid>>),
    /// One process and those below, which somebody else ends.
    Child(Mutex<Option<Pid>>),
}

impl Processes {
    /// Those that will descend from an agent.
    pub(crate) fn of_agent() -> Self {
        Self::Agent(Mutex::default())
    }

    /// Those that will descend from a process.
    pub(crate) fn of_child() -> Self {
        Self::Child(Mutex::default())
    }

    /// Names the process from which they descend; a control group needs no name.
    pub(crate) fn descend_from(&self, root: Pid) {
        match self {
            Self::Group(_) => {}
            Self::Agent(of) | Self::Child(of) => *lock(of) = Some(root),
        }
    }

    /// Whether they are known by descent, so that the CPU time of some is not.
    pub(crate) fn by_descent(&self) -> bool {
        !matches!(self, Self::Group(_))
    }

    /// Returns what reads their CPU time.
    pub(crate) fn counter(&self) -> Counter {
        match self {
            Self::Group(group) => Counter::Group(group.path().to_owned()),
            Self::Agent(root) | Self::Child(root) => Counter::Descendants(*lock(root)),
        }
    }

    /// Returns the CPU time of all, dead ones included, in seconds. `children` is that of the
    /// dead ones that their agent waited for, where it said so: to the microsecond, not in ticks.
    pub(crate) fn cpu_seconds(&self, children: Option<f64>) -> Result<f64> {
        self.counter().read(children)
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        let Self::Agent(root) = self else { return };
        let Some(root) = lock(root).take() else { return };
        let below = descendants(root);
        // Its handle waits for it; the namespace ends with its child.
        let _ = kill(root, Signal::SIGKILL);
        let deadline = Instant::now() + Duration::from_secs(30);
        let is_left = |process: &Process| {
            let _ = waitpid(process.pid, Some(WaitPidFlag::WNOHANG)); // adopted by this process
            Process::read(process.pid).is_some_and(|now| now.started == process.started)
        };
        while below.iter().any(|(depth, process)| *depth > 0 && is_left(process)) {
            if Instant::now() > deadline {
                eprintln!("headroom: processes of the run do not end: see those below {root}");
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// Reads the CPU time of processes.
#[derive(Debug, Clone)]
pub(crate) enum Counter {
    /// Those of a control group.
    Group(PathBuf),
    /// Those that descend from this one, which counts too.
    Descendants(Option<Pid>),
}

impl Counter {
    /// Returns the CPU time of all, in seconds; see [`Processes::cpu_seconds`].
    pub(crate) fn read(&self, children: Option<f64>) -> Result<f64> {
        match self {
            Self::Group(path) => cgroup::cpu_seconds(path),
            Self::Descendants(None) => Ok(0.0),
            Self::Descendants(Some(root)) => {
                let own = descendants(*root).into_iter().map(|(depth, process)| {
                    // the agent, or what has become it
                    let is_told = depth <= 1 && children.is_some();
                    process.own_s() + if is_told { 0.0 } else { process.children_s }
                });
                Ok(own.sum::<f64>() + children.unwrap_or_default())
            }
        }
    }
}

/// A process, as `/proc/PID/stat` has it (proc_pid_stat(5)).
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Process {
    pub(super) pid: Pid,
    pub(super) parent: Pid,
    /// Ticks since the machine's start.
    pub(super) started: u64,
    /// CPU seconds, in ticks: its own, and those of children that it waited for.
    ticks_s: f64,
    children_s: f64,
}

impl Process {
    fn read(pid: Pid) -> Option<Self> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let ticks = sysconf(SysconfVar::CLK_TCK).ok().flatten().unwrap_or(100) as f64;
        Self::parse(pid, &stat, ticks)
    }

    fn parse(pid: Pid, stat: &str, ticks_per_second: f64) -> Option<Self> {
        // behind the name, which may have anything in it; the state is the third of all fields
        let fields: Vec<&str> = stat.rsplit(')').next()?.split_whitespace().collect();
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        let seconds = |a, b| Some((field(a)? + field(b)?) as f64 / ticks_per_second);
        Some(Self {
            pid,
            parent: Pid::from_raw(i32::try_from(field(4)?).ok()?),
            started: field(22)?,
            ticks_s: seconds(14, 15)?,
            children_s: seconds(16, 17)?,
        })
    }

    /// Returns its own CPU time in seconds, finer than in ticks where the kernel says it.
    pub(super) fn own_s(&self) -> f64 {
        let clock = clock_getcpuclockid(self.pid).and_then(nix::time::ClockId::now);
        clock.map_or(self.ticks_s, |time| time.tv_sec() as f64 + time.tv_nsec() as f64 / 1e9)
    }
}

/// Finds a process and all that descend from it, each with its distance.
pub(super) fn descendants(root: Pid) -> Vec<(u32, Process)> {
    // without this file (CONFIG_PROC_CHILDREN) all processes are looked at
    let everybody = (!Path::new("/proc/thread-self/children").exists()).then(by_parent);
    let mut found: Vec<(u32, Process)> =
        Process::read(root).map(|process| (0, process)).into_iter().collect();
    let mut next = 0;
    while let Some(&(depth, parent)) = found.get(next) {
        let children = match &everybody {
            Some(all) => all.get(&parent.pid).cloned().unwrap_or_default(),
            None => children_of(parent.pid).into_iter().filter_map(Process::read).collect(),
        };
        found.extend(children.into_iter().map(|child| (depth + 1, child)));
        next += 1;
    }
    found
}

/// All processes, by their parents.
fn by_parent() -> BTreeMap<Pid, Vec<Process>> {
    let mut all: BTreeMap<Pid, Vec<Process>> = BTreeMap::new();
    everybody().for_each(|process| all.entry(process.parent).or_default().push(process));
    all
}

/// All processes of this machine that this one may see.
pub(super) fn everybody() -> impl Iterator<Item = Process> {
    std::fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        Process::read(Pid::from_raw(pid))
    })
}

/// The children of a process, as its threads know them.
fn children_of(pid: Pid) -> Vec<Pid> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists =
        threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
    let pids: Vec<Pid> = lists
        .flat_map(|list| {
            list.split_whitespace().filter_map(|word| word.parse().ok()).collect::<Vec<i32>>()
        })
        .map(Pid::from_raw)
        .collect();
    pids
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn reads_a_process_whose_name_has_spaces_and_brackets() {
        let stat = "7 (a ) b) S 5 7 7 0 -1 4194560 1 2 3 4 150 50 20 30 20 0 1 0 4711 1 1";
        let process = Process::parse(Pid::from_raw(7), stat, 100.0).expect("a process");
        assert_eq!((process.parent, process.started), (Pid::from_raw(5), 4711));
        assert_eq!((process.ticks_s, process.children_s), (2.0, 0.5));
        assert_eq!(Process::parse(Pid::from_raw(7), "7 (a) S 5", 100.0), None);
    }

    #[test]
    fn counts_the_work_of_descendants_that_live_and_of_those_that_were_waited_for() {
        // each of the two loops takes longer than a tick
        let work = "i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done";
        let script = format!("sh -c '{work}'; sh -c '{work}; echo done; read line'; true");
        let mut child = Command::new("sh")
            .args(["-c", &script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("sh starts");
        let root = Pid::from_raw(child.id().cast_signed());
        let mut line = String::new();
        let stdout = child.stdout.take().expect("its output");
        std::io::BufRead::read_line(&mut std::io::BufReader::new(stdout), &mut line)
            .expect("a line");
        let processes = Processes::of_child();
        assert_eq!(processes.cpu_seconds(None).expect("none yet"), 0.0);
        processes.descend_from(root);
        let all = processes.cpu_seconds(None).expect("counted");
        let tree = descendants(root);
        assert_eq!(tree.iter().map(|(depth, _)| *depth).collect::<Vec<_>>(), [0, 1]);
        let alive: f64 = tree.iter().map(|(_, process)| process.own_s()).sum();
        assert!(alive > 0.0 && all > alive, "{all} {alive}");
        // what the parent said about its dead children replaces what it has in ticks
        let told = processes.cpu_seconds(Some(7.0)).expect("counted");
        assert!((alive + 7.0..all + 7.0).contains(&told), "{told} {alive} {all}");
        drop(child.stdin.take());
        child.wait().expect("ended");
    }
}
