//! One file from client to server.

use headroom_lab_host::error::Result;

use super::definition::{Ground, Key, MarkerFile, Transfer, Work};
use super::{Workload, WorkloadKind};

pub(super) const WORK: Work = Work {
    about: "one file from client to server",
    keys: &[Key::Sizes, Key::Content, Key::TransfersPerSample],
    default_sizes: &[1 << 10, 1 << 20, 256 << 20],
    carry_marker,
    ..Work::new(WorkloadKind::Upload, prepare)
};

fn prepare(workload: &Workload, size: u64, ground: &mut Ground<'_>) -> Result<Transfer> {
    let client = ground.client;
    let (name, content) = ground.payloads.file(client, size, workload.content)?;
    let remote = format!("incoming/u{}", ground.serial);
    let local = client.root.join("files").join(name);
    Ok(Transfer::upload(local, remote, ground.server, content))
}

fn carry_marker(marker: &MarkerFile<'_>) -> Option<Transfer> {
    let remote = format!("incoming/{}", marker.name);
    Some(Transfer::upload(marker.at_client(), remote, marker.server, marker.content))
}
