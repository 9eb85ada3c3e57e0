//! The outermost layer that negotiates, from nothing to where data can pass. No client
//! does anything: the layer is set up anew, and what passes the link is measured.

use headroom_lab_host::error::Result;

use super::definition::{Ground, Transfer, Work};
use super::{Workload, WorkloadKind};

pub(super) const WORK: Work = Work {
    about: "set-up of a stack's outermost layer, without a transfer",
    keys: &[],
    default_sizes: &[0],
    ..Work::new(WorkloadKind::Setup, prepare)
};

fn prepare(_: &Workload, _size: u64, _: &mut Ground<'_>) -> Result<Transfer> {
    Ok(Transfer::default())
}
