//! CPU time of the whole machine, and how much of it was somebody else's.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use nix::sys::resource::{UsageWho, getrusage};
use serde::{Deserialize, Serialize};

use crate::error::{Doing, Error, Result};
use crate::resources::cgroup;

/// Above this share of a machine, what others took of it disturbed a measurement.
pub const MAX_BACKGROUND_PCT: f64 = 5.0;

/// Readings of all counters at one instant, in seconds.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Reading {
    client: f64,
    server: f64,
    /// The link's emulator.
    router: f64,
    /// This process: it drains the capture and waits.
    ours: f64,
    /// Kernel threads that finish the transfers' network work.
    softirq_threads: f64,
    /// Kernel threads that encrypt for a layer, whichever side it was for.
    workers: f64,
    /// Whether a task's time excludes the interrupts that ran on top of it.
    irq_time_is_separate: bool,
    /// Seconds by which the times of tasks may fall short.
    #[serde(default)]
    unseen: f64,
    machine: Machine,
}

/// The CPU time of the parts of a run on one machine, in seconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Parts {
    pub(crate) client: f64,
    pub(crate) server: f64,
    /// The link's emulator.
    pub(crate) router: f64,
    /// By how much they may fall short: where no control group counts, ended processes of
    /// servers are counted in ticks.
    pub(crate) unseen: f64,
}

/// `/proc/stat`, all CPUs together, in seconds.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Machine {
    process: f64,
    interrupt: f64,
    idle: f64,
    steal: f64,
}

/// The CPU time between two readings.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spent {
    /// CPU seconds of the client's processes.
    pub client: f64,
    /// Of the server's.
    pub server: f64,
    /// Of what makes the link.
    pub router: f64,
    /// Of the kernel's workers, where they do a layer's work.
    pub kernel: f64,
    /// Busy time of all CPUs, whoever it was.
    pub machine: f64,
    /// Busy time of processes that are none of ours.
    pub background: f64,
    /// Share of all CPUs' time that was idle,
    pub idle_pct: f64,
    /// taken by the hypervisor,
    pub steal_pct: f64,
    /// and taken by processes that are none of ours.
    pub background_pct: f64,
}

/// Reads the counters of a run.
#[derive(Debug)]
pub(crate) struct Meter {
    softirq_threads: Vec<PathBuf>,
    ticks_per_second: f64,
    irq_time_is_separate: bool,
    /// Whether a layer's work is done by the kernel's workers.
    by_workers: bool,
}

impl Meter {
    pub(crate) fn new(by_workers: bool) -> Self {
        let ticks = nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK).ok().flatten();
        Self {
            softirq_threads: kernel_threads("ksoftirqd/"),
            by_workers,
            ticks_per_second: ticks.unwrap_or(100) as f64,
            irq_time_is_separate: irq_time_is_separate(),
        }
    }

    pub(crate) fn read(&self, parts: Parts) -> Result<Reading> {
        Ok(Reading {
            client: parts.client,
            server: parts.server,
            router: parts.router,
            unseen: parts.unseen,
            ours: own_seconds()?,
            softirq_threads: self.sum(&self.softirq_threads),
            workers: self.workers(),
            irq_time_is_separate: self.irq_time_is_separate,
            machine: self.machine()?,
        })
    }

    /// The same on a machine that has one side only, as if it were the client:
    /// its control group, less this process, which is in it and captures.
    pub(crate) fn read_one(&self, group: &Path) -> Result<Reading> {
        let ours = own_seconds()?;
        Ok(Reading {
            client: cgroup::cpu_seconds(group)? - ours,
            server: 0.0,
            router: 0.0,
            unseen: 0.0,
            ours,
            softirq_threads: self.sum(&self.softirq_threads),
            workers: self.workers(),
            irq_time_is_separate: self.irq_time_is_separate,
            machine: self.machine()?,
        })
    }

    fn machine(&self) -> Result<Machine> {
        let text = std::fs::read_to_string("/proc/stat").doing(|| "read /proc/stat".into())?;
        parse_machine(&text, self.ticks_per_second)
            .ok_or_else(|| Error::Failed("/proc/stat does not begin with the line `cpu`".into()))
    }

    /// Workers come and go, so they are looked for each time.
    fn workers(&self) -> f64 {
        if self.by_workers { self.sum(&kernel_threads("kworker/")) } else { 0.0 }
    }

    fn sum(&self, threads: &[PathBuf]) -> f64 {
        threads.iter().filter_map(|stat| self.thread(stat)).sum()
    }

    /// utime + stime of `/proc/PID/stat`.
    fn thread(&self, stat: &PathBuf) -> Option<f64> {
        let text = std::fs::read_to_string(stat).ok()?;
        let fields: Vec<&str> = text.rsplit(')').next()?.split_whitespace().collect();
        let ticks = fields.get(11)?.parse::<f64>().ok()? + fields.get(12)?.parse::<f64>().ok()?;
        Some(ticks / self.ticks_per_second)
    }
}

impl Reading {
    /// Returns the CPU time spent since `earlier`.
    pub(crate) fn since(&self, earlier: &Self) -> Spent {
        let (now, then) = (&self.machine, &earlier.machine);
        let process = now.process - then.process;
        let machine = process + (now.interrupt - then.interrupt);
        let idle = now.idle - then.idle;
        let steal = now.steal - then.steal;
        let all = (machine + idle + steal).max(1e-9);
        let client = self.client - earlier.client;
        let server = self.server - earlier.server;
        let router = self.router - earlier.router;
        // less where a worker with a past has ended
        let kernel = (self.workers - earlier.workers).max(0.0);
        let tasks = client + server + router + kernel + (self.ours - earlier.ours);
        // Interrupts are on this testbed the transfers' own work. Where the kernel
        // times them apart, neither side of the difference has them; where it does
        // not, the tasks they ran on were charged, or the kernel's own threads.
        let background = if self.irq_time_is_separate {
            process - tasks
        } else {
            machine - tasks - (self.softirq_threads - earlier.softirq_threads)
        };
        let background = (background - self.unseen).max(0.0);
        Spent {
            client,
            server,
            router,
            kernel,
            machine,
            background,
            idle_pct: 100.0 * idle / all,
            steal_pct: 100.0 * steal / all,
            background_pct: 100.0 * background / all,
        }
    }
}

impl Spent {
    /// Of two machines, each with one side. Times are added up. The shares are those of
    /// one machine, so that they belong together: of the one that others disturbed most, or
    /// where none was, of the one that was less idle.
    pub(crate) fn of_both(client: &Self, server: &Self) -> Self {
        let disturbed = client.background_pct.max(server.background_pct) > MAX_BACKGROUND_PCT;
        let worse_is_client = match disturbed {
            true => client.background_pct >= server.background_pct,
            false => client.idle_pct <= server.idle_pct,
        };
        let worse = if worse_is_client { client } else { server };
        Self {
            client: client.client,
            server: server.client,
            router: 0.0,
            kernel: client.kernel + server.kernel,
            machine: client.machine + server.machine,
            background: client.background + server.background,
            idle_pct: worse.idle_pct,
            steal_pct: worse.steal_pct,
            background_pct: worse.background_pct,
        }
    }
}

fn own_seconds() -> Result<f64> {
    seconds_of(UsageWho::RUSAGE_SELF)
}

/// Returns the CPU seconds of the children that this process waited for, and of theirs.
pub(crate) fn cpu_of_children() -> Result<f64> {
    seconds_of(UsageWho::RUSAGE_CHILDREN)
}

fn seconds_of(who: UsageWho) -> Result<f64> {
    let usage = getrusage(who).doing(|| "read this process's CPU time".into())?;
    let seconds =
        |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    Ok(seconds(usage.user_time()) + seconds(usage.system_time()))
}

fn parse_machine(text: &str, ticks_per_second: f64) -> Option<Machine> {
    let fields: Vec<f64> = text
        .lines()
        .next()?
        .strip_prefix("cpu ")?
        .split_whitespace()
        .map(|field| field.parse::<f64>().map(|ticks| ticks / ticks_per_second))
        .collect::<std::result::Result<_, _>>()
        .ok()?;
    // user nice system idle iowait irq softirq steal (proc(5))
    let [user, nice, system, idle, iowait, irq, softirq, steal, ..] = fields[..] else {
        return None;
    };
    Some(Machine {
        process: user + nice + system,
        interrupt: irq + softirq,
        idle: idle + iowait,
        steal,
    })
}

/// `CONFIG_IRQ_TIME_ACCOUNTING`, from the kernel's own configuration or the one
/// that distributions keep beside it; distributions have it on.
fn irq_time_is_separate() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let beside = || std::fs::read_to_string(format!("/boot/config-{}", release.trim())).ok();
    let own =
        std::process::Command::new("zcat").arg("/proc/config.gz").stderr(Stdio::null()).output();
    let own = own.ok().filter(|output| output.status.success());
    own.map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
        .or_else(beside)
        .is_none_or(|configuration| configuration.contains("CONFIG_IRQ_TIME_ACCOUNTING=y"))
}

/// The `stat` of all threads whose name begins so.
fn kernel_threads(name: &str) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| {
            std::fs::read_to_string(path.join("comm")).is_ok_and(|comm| comm.starts_with(name))
        })
        .map(|path| path.join("stat"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(client: f64, machine: &str) -> Reading {
        let machine = parse_machine(machine, 100.0).expect("a good line");
        let irq_time_is_separate = true;
        Reading {
            client,
            server: 0.0,
            router: 0.0,
            ours: 0.0,
            softirq_threads: 0.0,
            workers: 0.0,
            irq_time_is_separate,
            unseen: 0.0,
            machine,
        }
    }

    #[test]
    fn what_tasks_may_have_taken_unseen_is_not_background_load() {
        let before = reading(0.0, "cpu  0 0 0 0 0 0 0 0 0 0");
        let mut after = reading(0.5, "cpu  60 0 20 100 0 5 10 5 0 0");
        after.unseen = 0.02;
        assert!((after.since(&before).background - 0.28).abs() < 1e-9);
        after.unseen = 1.0;
        assert!(after.since(&before).background.abs() < 1e-9);
    }

    #[test]
    fn what_is_not_ours_and_not_idle_is_foreign() {
        let before = reading(0.0, "cpu  0 0 0 0 0 0 0 0 0 0");
        let after = reading(0.5, "cpu  60 0 20 100 0 5 10 5 0 0");
        let spent = after.since(&before);
        assert!((spent.machine - 0.95).abs() < 1e-9);
        assert!((spent.background - 0.30).abs() < 1e-9);
        assert!((spent.idle_pct - 50.0).abs() < 1e-9);
        assert!((spent.steal_pct - 2.5).abs() < 1e-9);
    }

    #[test]
    fn the_emulator_is_neither_side_nor_foreign() {
        let before = reading(0.0, "cpu  0 0 0 0 0 0 0 0 0 0");
        let mut after = reading(0.2, "cpu  60 0 20 100 0 0 0 0 0 0");
        after.router = 0.6;
        let spent = after.since(&before);
        assert!(spent.background.abs() < 1e-9 && (spent.router - 0.6).abs() < 1e-9, "{spent:?}");
        assert!((spent.client - 0.2).abs() < 1e-9 && spent.server == 0.0, "{spent:?}");
    }

    #[test]
    fn of_two_machines_the_busier_one_counts() {
        let before = reading(0.0, "cpu  0 0 0 0 0 0 0 0 0 0");
        let near = reading(0.5, "cpu  60 0 20 100 0 5 10 5 0 0").since(&before);
        let far = reading(0.1, "cpu  10 0 0 190 0 0 0 0 0 0").since(&before);
        let both = Spent::of_both(&near, &far);
        assert!((both.client - 0.5).abs() < 1e-9 && (both.server - 0.1).abs() < 1e-9);
        assert!((both.machine - 1.05).abs() < 1e-9 && (both.background - 0.3).abs() < 1e-9);
        assert!((both.idle_pct - 50.0).abs() < 1e-9 && both.background_pct == near.background_pct);
    }

    #[test]
    fn of_two_machines_the_shares_are_of_one() {
        let before = reading(0.0, "cpu  0 0 0 0 0 0 0 0 0 0");
        // our own client computes; beside the idle server another program does a little
        let near = reading(1.9, "cpu  190 0 0 10 0 0 0 0 0 0").since(&before);
        let far = |background: u32| {
            let stat = format!("cpu  {background} 0 0 {} 0 0 0 0 0 0", 200 - background);
            reading(0.0, &stat).since(&before)
        };
        let both = Spent::of_both(&near, &far(8));
        assert_eq!((both.idle_pct, both.background_pct), (near.idle_pct, near.background_pct));
        // where that disturbs, it is what the sample is marked with
        let disturbed = far(80);
        for both in [Spent::of_both(&near, &disturbed), Spent::of_both(&disturbed, &near)] {
            let shares = (both.idle_pct, both.background_pct);
            assert_eq!(shares, (disturbed.idle_pct, disturbed.background_pct));
        }
    }

    #[test]
    fn this_machine_can_be_read() {
        let meter = Meter::new(false);
        assert!(meter.machine().expect("Linux").process > 0.0);
        assert!(own_seconds().expect("Linux") >= 0.0);
    }
}
