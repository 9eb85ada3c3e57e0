//! The same small download by several clients at once, each again and again in a session of its
//! own, for some seconds.

use std::time::Duration;

use headroom_lab_host::error::Result;

use super::definition::{Ground, Key, Transfer, Work};
use super::{Workload, WorkloadKind, parallel};

pub(super) const WORK: Work = Work {
    about: "4 clients at once for 5 s, each of which fetches a file in one session after the other (clients = N, \
        seconds = N): sessions a second, median and 99th percentile, CPU of a session",
    keys: &[Key::Sizes, Key::Clients, Key::Seconds],
    default_sizes: &[1 << 10],
    default_seconds: 5,
    ..Work::new(WorkloadKind::Sessions, prepare)
};

fn prepare(workload: &Workload, size: u64, ground: &mut Ground<'_>) -> Result<Transfer> {
    let transfer = (parallel::WORK.prepare)(workload, size, ground)?;
    let repeated_for = Some(Duration::from_secs(workload.seconds.into()));
    Ok(Transfer { repeated_for, ..transfer })
}
