//! Pins threads to CPUs.

use std::io;

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

/// Returns the CPUs that the calling thread may use, in ascending order.
///
/// # Errors
/// The error of the kernel.
pub fn allowed() -> io::Result<Vec<usize>> {
    let set = sched_getaffinity(Pid::from_raw(0))?;
    Ok((0..CpuSet::count()).filter(|cpu| set.is_set(*cpu).unwrap_or(false)).collect())
}

/// Pins the calling thread to one CPU.
///
/// # Errors
/// `EINVAL` if the CPU does not exist or this process may not use it.
pub fn pin_to(cpu: usize) -> io::Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu)?;
    Ok(sched_setaffinity(Pid::from_raw(0), &set)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pinned_thread_stays_on_its_cpu() {
        std::thread::spawn(|| {
            let cpus = allowed().expect("the CPUs of this thread");
            let last = *cpus.last().expect("a CPU to run on");
            pin_to(last).expect("a pinned thread");
            assert_eq!(allowed().expect("the CPUs of this thread"), [last]);
            assert!(pin_to(100_000).is_err());
        })
        .join()
        .expect("a pinned thread");
    }
}
