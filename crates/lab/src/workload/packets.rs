//! As many datagrams as arrive, or so many a second, for some seconds, from client to
//! server.

use headroom_lab_host::error::Result;

use super::definition::{Ground, Key, MarkerFile, Transfer, Work};
use super::task::{Sending, Task};
use super::{Workload, WorkloadKind};

pub(super) const WORK: Work = Work {
    about: "datagrams for 3 s, as fast as they arrive or at a rate (rate = \"100pps\"); time per datagram",
    keys: &[Key::Sizes, Key::Seconds, Key::Rate],
    default_sizes: &[64, 512, 1400],
    carry_marker,
    ..Work::new(WorkloadKind::Packets, prepare)
};

fn prepare(workload: &Workload, size: u64, _: &mut Ground<'_>) -> Result<Transfer> {
    let paced = workload.rate.map(|rate| Sending::Paced(rate.per_second(size)));
    let (sending, seconds) = (paced.unwrap_or(Sending::AsArrives), workload.seconds);
    Ok(Transfer::of(Task::Datagrams { sending, size, seconds, content: None }))
}

/// Sent back, so that it passes both ways.
fn carry_marker(marker: &MarkerFile<'_>) -> Option<Transfer> {
    Some(marker.datagrams(Sending::Echo))
}
