//! One small page over HTTP or HTTPS.

use headroom_lab_host::error::Result;

use super::definition::{Ground, Key, Transfer, Work};
use super::download::Download;
use super::{Kind, Workload};

pub(super) struct Page;

impl Work for Page {
    fn kind(&self) -> Kind {
        Kind::Page
    }

    fn about(&self) -> &'static str {
        "one small page over HTTP or HTTPS"
    }

    fn keys(&self) -> &'static [Key] {
        &[Key::Sizes]
    }

    fn default_sizes(&self) -> Vec<u64> {
        vec![4 << 10]
    }

    fn prepare(&self, workload: &Workload, size: u64, ground: &mut Ground<'_>) -> Result<Transfer> {
        Download.prepare(workload, size, ground)
    }
}
