//! One datagram at a time, there and back, for some seconds.

use headroom_lab_host::error::Result;

use super::definition::{Ground, Key, Transfer, Work};
use super::task::{Sending, Task};
use super::{Kind, Workload};

pub(super) struct Echo;

impl Work for Echo {
    fn kind(&self) -> Kind {
        Kind::Echo
    }

    fn about(&self) -> &'static str {
        "one datagram at a time, there and back, for 3 s; median round trip"
    }

    fn keys(&self) -> &'static [Key] {
        &[Key::Sizes, Key::Seconds]
    }

    fn default_sizes(&self) -> Vec<u64> {
        vec![64]
    }

    fn prepare(&self, workload: &Workload, size: u64, _: &mut Ground<'_>) -> Result<Transfer> {
        let (sending, seconds) = (Sending::Echo, workload.seconds);
        Ok(Transfer::of(Task::Datagrams { sending, size, seconds, content: None }))
    }
}
