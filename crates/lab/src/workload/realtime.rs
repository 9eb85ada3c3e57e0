//! A real-time stream at a steady rate, for some seconds, from client to server.

use headroom_lab_host::error::{Error, Result};

use super::definition::{Ground, Key, MarkerFile, Transfer, Work};
use super::task::{Sending, Task};
use super::{Kind, Workload};

pub(super) struct Realtime;

impl Work for Realtime {
    fn kind(&self) -> Kind {
        Kind::Realtime
    }

    fn about(&self) -> &'static str {
        "an RTP stream for 10 s (rate = \"1mbit\", cross-traffic = \"bulk\"): loss, delay, jitter over time"
    }

    fn keys(&self) -> &'static [Key] {
        &[Key::Sizes, Key::Seconds, Key::Rate, Key::CrossTraffic]
    }

    fn default_sizes(&self) -> Vec<u64> {
        vec![1000]
    }

    fn default_seconds(&self) -> u32 {
        10
    }

    fn prepare(&self, workload: &Workload, size: u64, _: &mut Ground<'_>) -> Result<Transfer> {
        let seconds = workload.seconds;
        let rate = workload.rate.or(self.kind().default_rate());
        let rate = rate.ok_or_else(|| Error::Plan("a real-time stream needs a rate".into()))?;
        let cross_traffic = workload.cross_traffic.map(|traffic| traffic.time(seconds));
        let sending = Sending::Realtime { per_second: rate.per_second(size), cross_traffic };
        Ok(Transfer::of(Task::Datagrams { sending, size, seconds, content: None }))
    }

    fn carry_marker(&self, marker: &MarkerFile<'_>) -> Option<Transfer> {
        let sending = Sending::Realtime { per_second: 50.0, cross_traffic: Some((0, 1)) };
        Some(marker.datagrams(sending))
    }
}
