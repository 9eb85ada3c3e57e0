//! What results.json says of a link.

use serde::{Deserialize, Serialize};

use super::emulator::EmulatorCounters;
use super::link::{self, Backend};
use super::verdict::SelfTest;
use crate::link::{LinkDirection, LinkSpec, Queue};
use crate::plan::Offload;
use crate::workload::Kind;

/// The link that was actually used.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LinkReport {
    /// As in the plan.
    pub name: String,
    /// What made it.
    pub backend: String,
    /// `offload` or `per-packet`.
    pub offload: String,
    /// Bits per second towards the client, framing counted; null: unshaped.
    pub rate_bps: Option<u64>,
    /// One way, milliseconds; the mean of both.
    pub delay_ms: f64,
    /// One way, milliseconds; the larger of both.
    pub jitter_ms: f64,
    /// Per cent of packets lost towards the client.
    pub loss_pct: f64,
    /// Packets that the bottleneck towards the client queues; null: unshaped.
    pub queue_packets: Option<u32>,
    /// Each way by itself.
    #[serde(default)]
    pub ways: Option<Ways>,
    /// Median of SYN to SYN-ACK at the router, microseconds; filled by the run.
    pub rtt_us: Option<f64>,
    /// Null for an unshaped link.
    #[serde(default)]
    pub self_test: Option<SelfTest>,
    /// What connecting over it takes; null where it was made and tested.
    #[serde(default)]
    pub round_trips: Option<RoundTrips>,
    /// The commands that made it, for a shell.
    #[serde(default)]
    pub commands: Vec<String>,
    /// Null where another backend made the link.
    #[serde(default)]
    pub emulator: Option<EmulatorReport>,
}

/// Both directions of a link.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ways {
    /// From server to client.
    pub down: WayReport,
    /// From client to server.
    pub up: WayReport,
}

/// What was asked of one direction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the fields of `link::LinkDirection`")]
pub struct WayReport {
    pub rate_bps: Option<u64>,
    pub delay_ms: f64,
    pub jitter_ms: f64,
    /// In the long run.
    pub loss_pct: f64,
    /// Packets lost in a row on average; null where none are lost.
    pub loss_burst: Option<f64>,
    pub duplicate_pct: f64,
    pub reorder_pct: f64,
    pub corrupt_pct: f64,
    pub queue_packets: Option<u32>,
    pub queue_bytes: Option<u64>,
}

/// What the emulator says of itself after the blocks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EmulatorReport {
    /// Since the self-test.
    pub counters: EmulatorCounters,
    /// CPU time since then, seconds; null where it cannot be told.
    pub cpu_seconds: Option<f64>,
    /// Time since then.
    pub seconds: f64,
    /// Seed of its chance.
    pub seed: u64,
}

/// SYN to SYN-ACK, by the client's clock.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RoundTrips {
    /// Connections.
    pub probes: usize,
    /// The shortest, microseconds.
    pub least_us: f64,
    /// Microseconds.
    pub median_us: f64,
    /// 99 of 100 take no longer, microseconds.
    pub p99_us: f64,
}

impl RoundTrips {
    /// Of what connections took, in seconds; none of none.
    pub(super) fn of(mut seconds: Vec<f64>) -> Option<Self> {
        seconds.sort_by(f64::total_cmp);
        let at = |share: f64| {
            let index = (seconds.len() as f64 * share).ceil() as usize;
            seconds.get(index.saturating_sub(1)).map(|s| s * 1e6)
        };
        Some(Self {
            probes: seconds.len(),
            least_us: at(0.0)?,
            median_us: at(0.5)?,
            p99_us: at(0.99)?,
        })
    }
}

impl LinkReport {
    /// Bits per second in the file's direction; none: unshaped.
    pub(crate) fn rate_bps_of(&self, workload: &str) -> Option<u64> {
        match &self.ways {
            Some(ways) if Kind::of(workload).is_some_and(Kind::goes_up) => ways.up.rate_bps,
            _ => self.rate_bps,
        }
    }

    /// Whether packets are lost either way.
    pub(crate) fn is_lossy(&self) -> bool {
        self.loss_pct > 0.0 || self.ways.as_ref().is_some_and(|ways| ways.up.loss_pct > 0.0)
    }

    pub(super) fn new(spec: &LinkSpec, backend: Backend, offload: Offload) -> Self {
        let (down, up) = (&spec.down, &spec.up);
        Self {
            name: spec.to_string(),
            backend: backend.words(spec).to_owned(),
            offload: offload.name().to_owned(),
            rate_bps: down.rate_bps,
            delay_ms: (down.delay + up.delay).as_secs_f64() * 1e3 / 2.0,
            jitter_ms: down.jitter.max(up.jitter).as_secs_f64() * 1e3,
            loss_pct: down.loss.average_pct(),
            queue_packets: down.rate_bps.map(|_| link::queue_packets(down)),
            ways: Some(Ways { down: WayReport::new(down), up: WayReport::new(up) }),
            rtt_us: None,
            self_test: None,
            round_trips: None,
            commands: Vec::new(),
            emulator: None,
        }
    }

    /// A real link in a rehearsal.
    pub(super) fn unmade(spec: &LinkSpec) -> Self {
        Self::new(spec, Backend::Veth, Offload::Offload)
    }

    /// A link that was not made: all that can be told of it without comparing
    /// clocks is how long there and back takes.
    pub(super) fn real(spec: &LinkSpec, backend: String, round_trips: RoundTrips) -> Self {
        let report = Self::new(spec, Backend::Veth, Offload::Offload);
        Self {
            backend,
            offload: "as the hosts have it".to_owned(),
            delay_ms: round_trips.median_us / 2e3,
            ways: None,
            round_trips: Some(round_trips),
            ..report
        }
    }
}

impl WayReport {
    fn new(way: &LinkDirection) -> Self {
        let queue = way.rate_bps.map(|_| way.queue());
        Self {
            rate_bps: way.rate_bps,
            delay_ms: way.delay.as_secs_f64() * 1e3,
            jitter_ms: way.jitter.as_secs_f64() * 1e3,
            loss_pct: way.loss.average_pct(),
            loss_burst: way.loss.mean_burst(),
            duplicate_pct: way.duplicate_pct,
            reorder_pct: way.reorder_pct,
            corrupt_pct: way.corrupt_pct,
            queue_packets: match queue {
                Some(Queue::Packets(packets)) => Some(packets),
                _ => None,
            },
            queue_bytes: match queue {
                Some(Queue::Bytes(bytes)) => Some(bytes),
                _ => None,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips_are_told_by_rank() {
        let times = (1..=100).rev().map(|ms| f64::from(ms) / 1e3).collect();
        let of = RoundTrips::of(times).expect("a hundred");
        assert_eq!((of.probes, of.least_us), (100, 1000.0));
        assert!((of.median_us - 50_000.0).abs() < 1e-6 && (of.p99_us - 99_000.0).abs() < 1e-6);
        assert_eq!(RoundTrips::of(Vec::new()), None);
    }
}
