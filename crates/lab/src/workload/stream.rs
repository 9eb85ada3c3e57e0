//! Bulk data over one TCP connection, for some seconds, from client to server.

use headroom_lab_host::error::Result;

use super::definition::{Ground, Key, MarkerFile, Transfer, Work};
use super::task::Task;
use super::{STREAM_UNIT, Workload, WorkloadKind};

pub(super) const WORK: Work = Work {
    about: "one TCP stream for 5 s (seconds = N); time per GiB",
    keys: &[Key::Seconds],
    default_sizes: &[STREAM_UNIT],
    default_seconds: 5,
    carry_marker,
    ..Work::new(WorkloadKind::Stream, prepare)
};

fn prepare(workload: &Workload, _size: u64, _: &mut Ground<'_>) -> Result<Transfer> {
    Ok(Transfer::of(Task::Stream { seconds: workload.seconds, content: None }))
}

fn carry_marker(marker: &MarkerFile<'_>) -> Option<Transfer> {
    Some(Transfer::of(Task::Stream { seconds: 1, content: Some(marker.at_client()) }))
}
