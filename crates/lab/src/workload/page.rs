//! One small page over HTTP or HTTPS.

use headroom_lab_host::error::Result;

use super::definition::{Ground, Key, Transfer, Work};
use super::{Workload, WorkloadKind, download};

pub(super) const WORK: Work = Work {
    about: "one small page over HTTP or HTTPS",
    keys: &[Key::Sizes],
    default_sizes: &[4 << 10],
    ..Work::new(WorkloadKind::Page, prepare)
};

fn prepare(workload: &Workload, size: u64, ground: &mut Ground<'_>) -> Result<Transfer> {
    (download::WORK.prepare)(workload, size, ground)
}
