//! What a transfer does.

use std::path::PathBuf;
use std::sync::Arc;

use headroom_transfer::{Client, Error, Links, Observer, Summary, SyncOptions, TreeOptions};

use crate::servers::Server;

/// Sources of one request of `get`.
const MAX_SOURCES: usize = 1024;

/// What a transfer does.
#[derive(Debug)]
pub(crate) enum Job {
    Put { sources: Vec<PathBuf>, to: Vec<u8> },
    Get { from: Vec<Vec<u8>>, to: PathBuf },
    SyncTo { from: PathBuf, to: Vec<u8>, options: SyncOptions },
    SyncFrom { from: Vec<u8>, to: PathBuf, options: SyncOptions },
}

impl Job {
    pub(super) const fn is_upload(&self) -> bool {
        matches!(self, Self::Put { .. } | Self::SyncTo { .. })
    }

    pub(super) const fn is_sync(&self) -> bool {
        matches!(self, Self::SyncTo { .. } | Self::SyncFrom { .. })
    }

    /// Does it over a connection.
    pub(super) async fn run(
        &self,
        client: &mut Client,
        observer: Arc<dyn Observer>,
    ) -> Result<Summary, Error> {
        match self {
            Self::Put { sources, to } => client.put(sources, to, false, observer).await,
            Self::Get { from, to } => {
                let mut all = Summary::default();
                for from in from.chunks(MAX_SOURCES) {
                    let part = client.get(from, to, false, Arc::clone(&observer)).await?;
                    all.failed += part.failed;
                    all.lost += part.lost;
                    all.on_lanes += part.on_lanes;
                    all.cipher = part.cipher.or(all.cipher);
                }
                Ok(all)
            }
            Self::SyncTo { from, to, options } => client.sync_to(from, to, options, observer).await,
            Self::SyncFrom { from, to, options } => {
                client.sync_from(from, to, options, observer).await
            }
        }
    }
}

/// Sets how a client sends trees and how fast, as the commands do.
pub(crate) fn prepare(
    client: &mut Client,
    server: &Server,
    is_upload: bool,
    rate_bps: Option<u64>,
) {
    let links = if server.is_ssh && is_upload { Links::Keep } else { Links::Inside };
    client.set_tree(TreeOptions { links, ..TreeOptions::default() });
    client.limit(rate_bps);
}
