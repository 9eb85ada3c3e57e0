//! What differs from a run as root of the machine.

use crate::privileges::Privileges;
use crate::resources::cgroup;

/// Says how the CPU time of a side is measured, for the record.
pub fn cpu_time() -> &'static str {
    if has_groups() { "by control group" } else { "by descent from each side's agent" }
}

/// Whether a run gets control groups.
fn has_groups() -> bool {
    let may_mount = !matches!(Privileges::of_this_process(), Privileges::UserNamespace { .. });
    cgroup::parent().is_some() || (may_mount && cgroup::mounted().is_none())
}

/// Lists what a run on this machine does otherwise than as root of the machine, and how that
/// limits it; nothing as root.
pub fn limits() -> Vec<String> {
    let mut limits = Vec::new();
    if let Privileges::UserNamespace { user, one_id } = Privileges::of_this_process() {
        limits.push(format!(
            "The lab ran without root, in a user namespace of user {user}. The link's emulator, where a link \
             needs it, has no real-time priority; each link is tested all the same."
        ));
        if one_id {
            limits.push(
                "The user namespace has one user id, so all servers keep it: OpenSSH and Pure-FTPd start the \
                 same processes as under root, but do not give up privileges in them."
                    .to_owned(),
            );
        }
    }
    if !has_groups() {
        limits.push(
            "No control group is delegated to the lab, so CPU times are those of the processes that descend \
             from each side's agent. Sessions of servers that start a process for each count in ticks of 10 ms \
             (their mean over many samples is exact), and processes that nobody waits for do not count."
                .to_owned(),
        );
    }
    limits
}
