//! One datagram at a time, there and back, for some seconds.

use headroom_lab_host::error::Result;

use super::definition::{Ground, Key, Transfer, Work};
use super::task::{Sending, Task};
use super::{Workload, WorkloadKind};

pub(super) const WORK: Work = Work {
    about: "one datagram at a time, there and back, for 3 s; median round trip",
    keys: &[Key::Sizes, Key::Seconds],
    default_sizes: &[64],
    ..Work::new(WorkloadKind::Echo, prepare)
};

fn prepare(workload: &Workload, size: u64, _: &mut Ground<'_>) -> Result<Transfer> {
    let (sending, seconds) = (Sending::Echo, workload.seconds);
    Ok(Transfer::of(Task::Datagrams { sending, size, seconds, content: None }))
}
