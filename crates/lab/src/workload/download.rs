//! One file from server to client.

use headroom_lab_host::error::Result;

use super::definition::{Ground, Key, MarkerFile, Transfer, Work};
use super::{Workload, WorkloadKind};

pub(super) const WORK: Work = Work {
    about: "one file from server to client (content = text or binary, transfers-per-sample = N)",
    keys: &[Key::Sizes, Key::Content, Key::TransfersPerSample],
    default_sizes: &[1 << 10, 1 << 20, 256 << 20],
    carry_marker,
    ..Work::new(WorkloadKind::Download, prepare)
};

fn prepare(workload: &Workload, size: u64, ground: &mut Ground<'_>) -> Result<Transfer> {
    let (remote, content) = ground.payloads.file(ground.server, size, workload.content)?;
    let local = ground.downloads().join(format!("d{}", ground.serial));
    Ok(Transfer::download(remote, local, content))
}

fn carry_marker(marker: &MarkerFile<'_>) -> Option<Transfer> {
    let local = marker.client.root.join("downloads").join(marker.name);
    Some(Transfer::download(marker.name.to_owned(), local, marker.content))
}
