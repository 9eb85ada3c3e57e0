//! One file from client to server.

use headroom_lab_host::error::Result;

use super::definition::{Ground, Key, MarkerFile, Transfer, Work};
use super::{Kind, Workload};

pub(super) struct Upload;

impl Work for Upload {
    fn kind(&self) -> Kind {
        Kind::Upload
    }

    fn about(&self) -> &'static str {
        "one file from client to server"
    }

    fn keys(&self) -> &'static [Key] {
        &[Key::Sizes, Key::Content, Key::TransfersPerSample]
    }

    fn default_sizes(&self) -> Vec<u64> {
        vec![1 << 10, 1 << 20, 256 << 20]
    }

    fn prepare(&self, workload: &Workload, size: u64, ground: &mut Ground<'_>) -> Result<Transfer> {
        let client = ground.client;
        let (name, content) = ground.payloads.file(client, size, workload.content)?;
        let remote = format!("incoming/u{}", ground.serial);
        let local = client.root.join("files").join(name);
        Ok(Transfer::upload(local, remote, ground.server, content))
    }

    fn carry_marker(&self, marker: &MarkerFile<'_>) -> Option<Transfer> {
        let remote = format!("incoming/{}", marker.name);
        Some(Transfer::upload(marker.at_client(), remote, marker.server, marker.content))
    }
}
