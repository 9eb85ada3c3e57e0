//! Drops privileges (capabilities(7)) except those that a gateway needs, for this thread, its later
//! threads and the programs they run.

use std::io;

/// The kept capabilities: interfaces, routes, marks; raw and packet sockets; ports below 1024, for
/// IKE (linux/capability.h).
const KEPT: [u32; 3] =
    [12 /* CAP_NET_ADMIN */, 13 /* CAP_NET_RAW */, 10 /* CAP_NET_BIND_SERVICE */];
const VERSION_3: u32 = 0x2008_0522;

#[repr(C)]
struct Header {
    version: u32,
    pid: libc::c_int,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Sets {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// Drops every capability but `CAP_NET_ADMIN`, `CAP_NET_RAW` and `CAP_NET_BIND_SERVICE` from all sets of the calling
/// thread, including the bounding set; no later program gets one back. Capabilities belong to
/// threads: call this before the first thread starts.
///
/// # Errors
/// `EPERM` if this thread lacks one of the first two; or another error of the kernel.
pub fn keep_network_only() -> io::Result<()> {
    for capability in (0..64).filter(|capability| !KEPT.contains(capability)) {
        // SAFETY: numbers only.
        let dropped = unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) };
        if dropped != 0 {
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                Some(libc::EINVAL) => break, // after the last capability of this kernel
                _ => return Err(error),
            }
        }
    }
    // ports below 1024 are for IKE alone: a service manager may have withheld them
    let kept = if set_all(&KEPT).is_ok() { &KEPT[..] } else { &KEPT[..2] };
    set_all(kept)?;
    // The ambient set keeps them for programs run by a user other than root.
    for capability in kept {
        let raise = libc::PR_CAP_AMBIENT_RAISE;
        // SAFETY: numbers only.
        let raised = unsafe {
            libc::prctl(libc::PR_CAP_AMBIENT, raise, libc::c_ulong::from(*capability), 0, 0)
        };
        if raised != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    // SAFETY: numbers only.
    let set = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Sets the effective, permitted and inheritable sets of the calling thread.
fn set_all(capabilities: &[u32]) -> io::Result<()> {
    let kept = capabilities.iter().fold(0, |set, capability| set | 1 << capability);
    let low = Sets { effective: kept, permitted: kept, inheritable: kept };
    let high = Sets { effective: 0, permitted: 0, inheritable: 0 };
    let (header, sets) = (Header { version: VERSION_3, pid: 0 }, [low, high]);
    // SAFETY: version 3 reads one header and two sets, which live over the call.
    let set = unsafe {
        libc::syscall(libc::SYS_capset, &raw const header, (&raw const sets).cast::<Sets>())
    };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    const KEPT_MASK: u64 = 1 << 10 | 1 << 12 | 1 << 13;

    fn set(status: &str, name: &str) -> u64 {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).expect(name);
        u64::from_str_radix(line.trim_start_matches(':').trim(), 16).expect("a set in hex")
    }

    #[test]
    fn keeps_three_capabilities_for_the_thread_and_its_programs() {
        if !nix::unistd::geteuid().is_root() {
            eprintln!("skipped: this test gives up capabilities, which needs root");
            return;
        }
        // A separate thread: the other threads of this process keep theirs.
        let thread = std::thread::spawn(|| {
            keep_network_only().expect("capabilities given up");
            let own = std::fs::read_to_string("/proc/thread-self/status").expect("a status");
            let child = Command::new("cat").arg("/proc/self/status").output().expect("cat runs");
            let listed = Command::new("ip").args(["link", "show", "lo"]).output();
            assert!(listed.expect("ip runs").status.success());
            [own, String::from_utf8_lossy(&child.stdout).into_owned()]
        });
        for status in thread.join().expect("a thread without capabilities") {
            for name in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
                assert_eq!(set(&status, name), KEPT_MASK, "{name}: {status}");
            }
            assert!(status.contains("NoNewPrivs:\t1"), "{status}");
        }
    }
}
