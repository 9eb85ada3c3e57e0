//! Real-time priority, so that a thread wakes on time.

use std::io;
use std::mem::zeroed;

/// Gives the calling thread the lowest real-time priority (`SCHED_FIFO`, sched(7)): it runs before
/// any ordinary thread. Needs `CAP_SYS_NICE`.
///
/// # Errors
/// The error of the kernel.
pub fn use_realtime_priority() -> io::Result<()> {
    // SAFETY: all-zero bytes are a valid `sched_param`.
    let mut parameters: libc::sched_param = unsafe { zeroed() };
    parameters.sched_priority = 1;
    // musl's sched_setscheduler always fails, as POSIX means a process by it and Linux a thread.
    let call = libc::SYS_sched_setscheduler;
    // SAFETY: 0 is the calling thread; `parameters`, which begins with what the kernel reads, lives
    // until the call returns.
    let set = unsafe { libc::syscall(call, 0, libc::SCHED_FIFO, &raw const parameters) };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
