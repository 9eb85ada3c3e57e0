//! The outermost layer that negotiates, from nothing to where data can pass. No client
//! does anything: the layer is set up anew, and what passes the link is measured.

use headroom_lab_host::error::Result;

use super::definition::{Ground, Key, Transfer, Work};
use super::{Kind, Workload};

pub(super) struct Setup;

impl Work for Setup {
    fn kind(&self) -> Kind {
        Kind::Setup
    }

    fn about(&self) -> &'static str {
        "set-up of a stack's outermost layer, without a transfer"
    }

    fn keys(&self) -> &'static [Key] {
        &[]
    }

    fn default_sizes(&self) -> Vec<u64> {
        vec![0]
    }

    fn prepare(&self, _: &Workload, _size: u64, _: &mut Ground<'_>) -> Result<Transfer> {
        Ok(Transfer::default())
    }
}
