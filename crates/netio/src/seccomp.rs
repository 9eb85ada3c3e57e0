//! A filter of system calls (seccomp(2)) for servers that run with one user id.

use std::io;

use nix::sys::prctl::set_no_new_privs;

/// The value of `seccomp_data.arch` for this program's own system calls (linux/audit.h).
#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: Option<u32> = Some(0xc000_003e);
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: Option<u32> = Some(0xc000_00b7);
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const ARCHITECTURE: Option<u32> = None;

/// Offsets in `struct seccomp_data` (linux/seccomp.h).
const NUMBER: u32 = 0;
const ARCH: u32 = 4;

/// Makes setgroups(2) succeed without effect, for this thread and all programs that it starts
/// from now on. The kernel refuses that call in a user namespace with a single user id, where
/// servers that are started as root call it before they serve anybody. No program that is
/// started from here on gains privileges by its file (`no_new_privs`).
///
/// # Errors
/// The kernel has no seccomp, or the number of the call is not known for this processor.
pub fn ignore_setgroups() -> io::Result<()> {
    let architecture = ARCHITECTURE.ok_or(io::ErrorKind::Unsupported)?;
    let statement = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let unless_equal = |k: u32, jf: u8| libc::sock_filter {
        code: (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16,
        jt: 0,
        jf,
        k,
    };
    let load = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    let answer = libc::BPF_RET | libc::BPF_K;
    let mut filter = [
        statement(load, ARCH),
        unless_equal(architecture, 3),
        statement(load, NUMBER),
        unless_equal(libc::SYS_setgroups as u32, 1),
        statement(answer, libc::SECCOMP_RET_ERRNO), // error 0: success
        statement(answer, libc::SECCOMP_RET_ALLOW),
    ];
    set_no_new_privs()?;
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the kernel copies the filter that `program` points to, which lives until the call
    // returns, and checks it.
    let set = unsafe {
        libc::prctl(
            libc::PR_SET_SECCOMP,
            libc::c_ulong::from(libc::SECCOMP_MODE_FILTER),
            &raw const program,
        )
    };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use nix::unistd::{Gid, getgroups, setgroups};

    use super::*;

    #[test]
    fn setgroups_succeeds_and_changes_nothing() {
        let groups = getgroups().expect("groups");
        // in a thread of its own, with which the filter ends
        std::thread::spawn(move || {
            ignore_setgroups().expect("a filter");
            setgroups(&[Gid::from_raw(4711)]).expect("success");
            assert_eq!(getgroups().expect("groups"), groups);
        })
        .join()
        .expect("a filtered thread");
    }
}
