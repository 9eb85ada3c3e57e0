//! Bulk data over one TCP connection, for some seconds, from client to server.

use headroom_lab_host::error::Result;

use super::definition::{Ground, Key, MarkerFile, Transfer, Work};
use super::task::Task;
use super::{Kind, STREAM_UNIT, Workload};

pub(super) struct Stream;

impl Work for Stream {
    fn kind(&self) -> Kind {
        Kind::Stream
    }

    fn about(&self) -> &'static str {
        "one TCP stream for 5 s (seconds = N); time per GiB"
    }

    fn keys(&self) -> &'static [Key] {
        &[Key::Seconds]
    }

    fn default_sizes(&self) -> Vec<u64> {
        vec![STREAM_UNIT]
    }

    fn default_seconds(&self) -> u32 {
        5
    }

    fn prepare(&self, workload: &Workload, _size: u64, _: &mut Ground<'_>) -> Result<Transfer> {
        Ok(Transfer::of(Task::Stream { seconds: workload.seconds, content: None }))
    }

    fn carry_marker(&self, marker: &MarkerFile<'_>) -> Option<Transfer> {
        Some(Transfer::of(Task::Stream { seconds: 1, content: Some(marker.at_client()) }))
    }
}
