//! Keeps client, server and link apart: each has processors of its own where this machine has
//! enough of them. A process inherits what the thread that started it may use, so nothing else
//! needs to know.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};
use std::sync::OnceLock;

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

use crate::error::{Doing, Result};
use crate::role::Role;

/// The processors of each part of a run, by number. All that share a core are in one part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Processors {
    client: Vec<usize>,
    server: Vec<usize>,
    /// Of the emulator, the captures and the lab itself.
    link: Vec<usize>,
}

/// With fewer a host could not do two things at once, which most programs count on.
const CORES_OF_A_HOST: usize = 2;

impl Processors {
    /// Shares out the processors that this process may use; none: they are too few, and all
    /// parts use all of them.
    pub fn of_this_machine() -> Option<Self> {
        // before the first run restricts this thread: a study has several runs in one process
        static USABLE: OnceLock<Option<Vec<usize>>> = OnceLock::new();
        Self::of_cores(&cores(USABLE.get_or_init(usable).as_deref()?))
    }

    /// Gives client and server as many cores each, and the link those that are left.
    fn of_cores(cores: &[Vec<usize>]) -> Option<Self> {
        let of_a_host = cores.len().saturating_sub(1) / 2;
        if of_a_host < CORES_OF_A_HOST {
            return None;
        }
        let all = |cores: &[Vec<usize>]| {
            let mut all = cores.concat();
            all.sort_unstable();
            all
        };
        let (client, others) = cores.split_at(of_a_host);
        let (server, link) = others.split_at(of_a_host);
        Some(Self { client: all(client), server: all(server), link: all(link) })
    }

    /// Returns how many there are.
    pub fn count(&self) -> usize {
        self.client.len() + self.server.len() + self.link.len()
    }

    /// Restricts this thread, and all that it starts from now on, to the link's.
    ///
    /// # Errors
    /// The kernel's error.
    pub(super) fn enter_link(&self) -> Result<()> {
        restrict(&self.link)
    }

    /// Starts something with the processors of a host.
    ///
    /// # Errors
    /// The kernel's error, or that of `start`.
    pub(super) fn start_on<T>(&self, role: Role, start: impl FnOnce() -> Result<T>) -> Result<T> {
        restrict(if role == Role::Client { &self.client } else { &self.server })?;
        let started = start();
        self.enter_link()?;
        started
    }
}

impl Display for Processors {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let [client, server, link] =
            [&self.client, &self.server, &self.link].map(|part| list(part));
        write!(out, "client {client}, server {server}, link and lab {link}")
    }
}

/// The processors that this process may use; none where the kernel does not say.
fn usable() -> Option<Vec<usize>> {
    let set = sched_getaffinity(Pid::from_raw(0)).ok()?;
    Some((0..CpuSet::count()).filter(|&number| set.is_set(number).unwrap_or(false)).collect())
}

/// Groups processors by the core that they are threads of, in the order of their numbers.
fn cores(processors: &[usize]) -> Vec<Vec<usize>> {
    let of_core = |number: &usize| {
        let path = format!("/sys/devices/system/cpu/cpu{number}/topology/thread_siblings_list");
        let siblings = std::fs::read_to_string(path).ok();
        siblings.map_or_else(|| number.to_string(), |text| text.trim().to_owned())
    };
    let mut cores: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for number in processors {
        cores.entry(of_core(number)).or_default().push(*number);
    }
    let mut cores: Vec<Vec<usize>> = cores.into_values().collect();
    cores.sort_unstable();
    cores
}

/// Restricts this thread to these processors.
fn restrict(processors: &[usize]) -> Result<()> {
    let doing = || format!("restrict a process to the processors {}", list(processors));
    let mut set = CpuSet::new();
    for &number in processors {
        set.set(number).map_err(std::io::Error::from).doing(doing)?;
    }
    sched_setaffinity(Pid::from_raw(0), &set).map_err(std::io::Error::from).doing(doing)
}

/// Writes ascending numbers as the kernel does: `0-3,8`.
fn list(numbers: &[usize]) -> String {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for &number in numbers {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => ranges.push((number, number)),
        }
    }
    let range = |(first, last): &(usize, usize)| {
        if first == last { first.to_string() } else { format!("{first}-{last}") }
    };
    ranges.iter().map(range).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_share_no_core_and_the_hosts_have_as_many() {
        let single = |count: usize| (0..count).map(|number| vec![number]).collect::<Vec<_>>();
        for (count, words) in [
            (5, "client 0-1, server 2-3, link and lab 4"),
            (8, "client 0-2, server 3-5, link and lab 6-7"),
        ] {
            let parts = Processors::of_cores(&single(count)).expect("enough");
            assert_eq!(parts.to_string(), words);
        }
        assert_eq!(Processors::of_cores(&single(4)), None, "too few");
        let threads: Vec<Vec<usize>> = (0..5).map(|number| vec![number, number + 5]).collect();
        let parts = Processors::of_cores(&threads).expect("enough");
        assert_eq!(parts.to_string(), "client 0-1,5-6, server 2-3,7-8, link and lab 4,9");
    }

    #[test]
    fn what_is_started_inherits_the_processors_of_its_host() {
        let Some(&first) = usable().as_deref().and_then(<[usize]>::first) else {
            panic!("the kernel does not say which processors this process may use");
        };
        let parts =
            Processors { client: vec![first], server: vec![first], link: usable().expect("said") };
        let allowed = || {
            let output = std::process::Command::new("cat").arg("/proc/self/status").output();
            let status = String::from_utf8(output.expect("cat starts").stdout).expect("text");
            let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
            Ok(line.expect("the kernel says it").trim().to_owned())
        };
        // in a thread of its own, as the others of this program keep theirs
        std::thread::spawn(move || {
            let of_first_run = Processors::of_this_machine();
            let inside = parts.start_on(Role::Client, allowed).expect("restricted");
            assert_eq!(inside, first.to_string());
            assert_eq!(allowed().expect("read"), list(&usable().expect("said")), "as before");
            restrict(&[first]).expect("restricted");
            assert_eq!(Processors::of_this_machine(), of_first_run, "a later run has the same");
        })
        .join()
        .expect("as expected");
    }
}
