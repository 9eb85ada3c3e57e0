//! A real-time stream at a steady rate, for some seconds, from client to server.

use headroom_lab_host::error::{Error, Result};

use super::definition::{Ground, Key, MarkerFile, Transfer, Work};
use super::task::{Sending, Task};
use super::{Workload, WorkloadKind};

pub(super) const WORK: Work = Work {
    about: "an RTP stream for 10 s (rate = \"1mbit\", cross-traffic = \"bulk\"): loss, delay, jitter over time",
    keys: &[Key::Sizes, Key::Seconds, Key::Rate, Key::CrossTraffic],
    default_sizes: &[1000],
    default_seconds: 10,
    carry_marker,
    ..Work::new(WorkloadKind::Realtime, prepare)
};

fn prepare(workload: &Workload, size: u64, _: &mut Ground<'_>) -> Result<Transfer> {
    let seconds = workload.seconds;
    let rate = workload.rate.or(WORK.kind.default_rate());
    let rate = rate.ok_or_else(|| Error::Plan("a real-time stream needs a rate".into()))?;
    let cross_traffic = workload.cross_traffic.map(|traffic| traffic.time(seconds));
    let sending = Sending::Realtime { per_second: rate.per_second(size), cross_traffic };
    Ok(Transfer::of(Task::Datagrams { sending, size, seconds, content: None }))
}

fn carry_marker(marker: &MarkerFile<'_>) -> Option<Transfer> {
    let sending = Sending::Realtime { per_second: 50.0, cross_traffic: Some((0, 1)) };
    Some(marker.datagrams(sending))
}
