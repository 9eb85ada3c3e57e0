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
    // SAFETY: 0 is the calling thread; `parameters` lives until the call returns.
    let set = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameters) };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
