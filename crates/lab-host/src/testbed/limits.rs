//! What differs from a run as root of the machine.

use crate::privileges::Privileges;
use crate::resources::cgroup;

/// Says how the CPU time of a side is measured, for the record.
pub fn cpu_time() -> &'static str {
    if cgroup::mounted().is_none() || cgroup::parent().is_some() {
        "by control group"
    } else {
        "by descent from each side's agent (no control group is delegated to this user)"
    }
}

/// Lists what a run on this machine does otherwise than as root of the machine, and how that
/// limits it; nothing as root.
pub fn limits() -> Vec<String> {
    let privileges = Privileges::of_this_process();
    let Privileges::UserNamespace { user, one_id } = privileges else { return Vec::new() };
    let mut limits = vec![format!(
        "The lab ran without root, in a user namespace of user {user}. The link's emulator, where a link \
         needs it, has no real-time priority; each link is tested all the same."
    )];
    if one_id {
        limits.push(
            "The user namespace has one user id, so all servers keep it: OpenSSH and Pure-FTPd start the same \
             processes as under root, but do not give up privileges in them."
                .to_owned(),
        );
    }
    if cgroup::parent().is_none() {
        limits.push(
            "No control group is delegated to this user, so CPU times are those of the processes that descend \
             from each side's agent. Sessions of servers that start a process for each count in ticks of 10 ms \
             (their mean over many samples is exact), and processes that nobody waits for do not count."
                .to_owned(),
        );
    }
    limits
}
