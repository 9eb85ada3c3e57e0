//! One file from server to client.

use headroom_lab_host::error::Result;

use super::definition::{Ground, Key, MarkerFile, Transfer, Work};
use super::{Kind, Workload};

pub(super) struct Download;

impl Work for Download {
    fn kind(&self) -> Kind {
        Kind::Download
    }

    fn about(&self) -> &'static str {
        "one file from server to client (content = text or binary, transfers-per-sample = N)"
    }

    fn keys(&self) -> &'static [Key] {
        &[Key::Sizes, Key::Content, Key::TransfersPerSample]
    }

    fn default_sizes(&self) -> Vec<u64> {
        vec![1 << 10, 1 << 20, 256 << 20]
    }

    fn prepare(&self, workload: &Workload, size: u64, ground: &mut Ground<'_>) -> Result<Transfer> {
        let (remote, content) = ground.payloads.file(ground.server, size, workload.content)?;
        let local = ground.downloads().join(format!("d{}", ground.serial));
        Ok(Transfer::download(remote, local, content))
    }

    fn carry_marker(&self, marker: &MarkerFile<'_>) -> Option<Transfer> {
        let local = marker.client.root.join("downloads").join(marker.name);
        Some(Transfer::download(marker.name.to_owned(), local, marker.content))
    }
}
