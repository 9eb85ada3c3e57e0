//! Links in results.json.

use headroom_link_spec::{Counters, LinkDirection, LinkSpec, Queue, Trace};
use headroom_units as units;
use serde::{Deserialize, Serialize};

use super::WorkloadKind;

/// The link that was actually used.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LinkReport {
    /// The specification in the plan.
    pub name: String,
    /// Backend.
    pub backend: String,
    /// `on` or `off`.
    pub offload: String,
    /// Bits per second towards the client, framing counted; null: unshaped, or by a trace.
    pub rate_bps: Option<u64>,
    /// One way, milliseconds; the mean of both.
    pub delay_ms: f64,
    /// One way, milliseconds; the larger of both.
    pub jitter_ms: f64,
    /// Per cent of packets lost towards the client.
    pub loss_pct: f64,
    /// Packets that the bottleneck towards the client queues; null: unshaped.
    pub queue_packets: Option<u32>,
    /// Each direction.
    #[serde(default)]
    pub directions: Option<Directions>,
    /// Median of SYN to SYN-ACK at the router, microseconds; filled by the run.
    pub rtt_us: Option<f64>,
    /// Null for an unshaped link.
    #[serde(default)]
    pub self_test: Option<SelfTest>,
    /// Time of connecting over it; null: the lab made and tested it.
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
pub struct Directions {
    /// From server to client.
    pub down: DirectionReport,
    /// From client to server.
    pub up: DirectionReport,
}

/// Requested properties of one direction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the fields of `link::LinkDirection`")]
pub struct DirectionReport {
    pub rate_bps: Option<u64>,
    /// The trace that it follows in place of a rate; absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<TraceReport>,
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
    /// How the queue is managed; null: it drops what arrives when it is full.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aqm: Option<String>,
}

/// A recorded trace that a direction follows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceReport {
    /// The file, as the link names it.
    pub file: String,
    /// BLAKE3 digest of the file.
    pub blake3: String,
    /// Opportunities to deliver 1500 bytes, in one repetition.
    pub opportunities: usize,
    /// Length of a repetition, milliseconds.
    pub period_ms: u64,
    /// Longest time without an opportunity, milliseconds.
    pub longest_gap_ms: u64,
    /// Bits per second on average, of packets without their Ethernet headers.
    pub mean_bps: u64,
}

impl TraceReport {
    fn new(trace: &Trace) -> Self {
        Self {
            file: trace.name().to_owned(),
            blake3: trace.digest(),
            opportunities: trace.times_ms().len(),
            period_ms: trace.period().as_millis() as u64,
            longest_gap_ms: trace.longest_gap().as_millis() as u64,
            mean_bps: trace.mean_bps(),
        }
    }
}

/// The emulator's own report after the blocks.
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
    pub fn of(mut seconds: Vec<f64>) -> Option<Self> {
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
    /// Bits per second in the file's direction; none: unshaped, or by a trace.
    pub fn rate_bps_of(&self, workload: &str) -> Option<u64> {
        match &self.directions {
            Some(both) if WorkloadKind::of(workload).is_some_and(WorkloadKind::goes_up) => {
                both.up.rate_bps
            }
            _ => self.rate_bps,
        }
    }

    /// Whether either direction follows a trace, so that the link has no single rate.
    pub fn follows_trace(&self) -> bool {
        let both = self.directions.as_ref();
        both.is_some_and(|both| both.down.trace.is_some() || both.up.trace.is_some())
    }

    /// Whether packets are lost either way.
    pub fn is_lossy(&self) -> bool {
        self.loss_pct > 0.0 || self.directions.as_ref().is_some_and(|both| both.up.loss_pct > 0.0)
    }

    /// Whether it loses packets as the models of loss assume: the same share either way, each
    /// packet independently of others.
    pub fn loses_as_modelled(&self) -> bool {
        self.directions.as_ref().is_none_or(|both| {
            both.down.loss_pct.total_cmp(&both.up.loss_pct).is_eq()
                && !both.down.loses_in_bursts()
                && !both.up.loses_in_bursts()
        })
    }

    /// A link that was made by this backend, in words, with this offload.
    pub fn new(spec: &LinkSpec, backend: &str, offload: &str) -> Self {
        let (down, up) = (&spec.down, &spec.up);
        Self {
            name: spec.to_string(),
            backend: backend.to_owned(),
            offload: offload.to_owned(),
            rate_bps: down.rate_bps,
            delay_ms: (down.delay + up.delay).as_secs_f64() * 1e3 / 2.0,
            jitter_ms: down.jitter.max(up.jitter).as_secs_f64() * 1e3,
            loss_pct: down.loss.average_pct(),
            queue_packets: down.has_queue().then(|| queue_packets(down)),
            directions: Some(Directions {
                down: DirectionReport::new(down),
                up: DirectionReport::new(up),
            }),
            rtt_us: None,
            self_test: None,
            round_trips: None,
            commands: Vec::new(),
            emulator: None,
        }
    }

    /// A link that was not made: all that can be told of it without comparing
    /// clocks is how long there and back takes.
    pub fn real(spec: &LinkSpec, backend: &str, round_trips: RoundTrips) -> Self {
        Self {
            delay_ms: round_trips.median_us / 2e3,
            directions: None,
            round_trips: Some(round_trips),
            ..Self::new(spec, backend, "host default")
        }
    }
}

/// Full frames that the bottleneck queues.
pub fn queue_packets(direction: &LinkDirection) -> u32 {
    match direction.queue() {
        Queue::Packets(packets) => packets,
        Queue::Bytes(bytes) => u32::try_from(bytes / 1514).unwrap_or(u32::MAX),
    }
}

impl DirectionReport {
    fn new(direction: &LinkDirection) -> Self {
        let queue = direction.has_queue().then(|| direction.queue());
        Self {
            rate_bps: direction.rate_bps,
            trace: direction.trace.as_ref().map(TraceReport::new),
            delay_ms: direction.delay.as_secs_f64() * 1e3,
            jitter_ms: direction.jitter.as_secs_f64() * 1e3,
            loss_pct: direction.loss.average_pct(),
            loss_burst: direction.loss.mean_burst(),
            duplicate_pct: direction.duplicate_pct,
            reorder_pct: direction.reorder_pct,
            corrupt_pct: direction.corrupt_pct,
            queue_packets: match queue {
                Some(Queue::Packets(packets)) => Some(packets),
                _ => None,
            },
            queue_bytes: match queue {
                Some(Queue::Bytes(bytes)) => Some(bytes),
                _ => None,
            },
            aqm: direction.aqm.map(|aqm| aqm.name().to_owned()),
        }
    }

    /// Whether losses follow each other more often than by chance.
    fn loses_in_bursts(&self) -> bool {
        // bursts of independent losses have 1 / (1 - loss) packets on average
        let by_chance = 1.0 / (1.0 - self.loss_pct / 100.0);
        self.loss_burst.is_some_and(|burst| burst > 1.05 * by_chance)
    }
}

/// The counters that the emulator prints when asked, and at its end.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EmulatorCounters {
    /// From server to client.
    pub down: Counters,
    /// From client to server.
    pub up: Counters,
}

/// Result of a link's self-test.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SelfTest {
    /// Whether both directions are as asked.
    pub passed: bool,
    /// Tests that it took, six at most.
    pub attempts: u32,
    /// From server to client.
    pub down: DirectionTest,
    /// From client to server.
    pub up: DirectionTest,
}

/// Result of the self-test in one direction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DirectionTest {
    /// Null where no rate was asked for.
    pub rate: Option<RateTest>,
    /// One-way delay.
    pub delay: DelayTest,
    /// Probes that did not arrive.
    pub loss: LossTest,
}

/// The rate behind the bottleneck while more is sent than passes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RateTest {
    /// Requested.
    pub asked_bps: u64,
    /// Measured, framing counted.
    pub measured_bps: f64,
    /// Measured over asked, less one.
    pub error_pct: f64,
    /// The largest error that passes.
    pub allowed_pct: f64,
    /// Whether it passed.
    pub passed: bool,
}

/// Delay of probes, without their serialisation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DelayTest {
    /// Requested.
    pub asked_us: f64,
    /// Greatest deviation from it that was asked for.
    pub jitter_us: f64,
    /// Probes that were timed.
    pub probes: usize,
    /// Median of (behind − before − serialisation − asked).
    pub median_error_us: f64,
    /// 99th percentile of the same; it holds the jitter, if there is one.
    pub p99_error_us: f64,
    /// The largest median error that passes.
    pub allowed_us: f64,
    /// Whether it passed.
    pub passed: bool,
}

/// Probes that did not arrive.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LossTest {
    /// Requested, on average.
    pub asked_pct: f64,
    /// Probes seen before the bottleneck.
    pub sent: u64,
    /// Of these, not seen behind it.
    pub lost: u64,
    /// Losses that pass: the central 99 % of what chance makes of `asked_pct`.
    pub interval: [u64; 2],
    /// Whether it passed.
    pub passed: bool,
}

impl SelfTest {
    /// Joins the results of both directions, after `attempts` tests.
    pub fn new(down: DirectionTest, up: DirectionTest, attempts: u32) -> Self {
        Self { passed: down.passed() && up.passed(), attempts, down, up }
    }

    /// Lists deviations in words; empty: it passed.
    pub fn complaints(&self) -> Vec<String> {
        let directions =
            [("from server to client", &self.down), ("from client to server", &self.up)];
        directions.into_iter().flat_map(|(name, test)| test.complaints(name)).collect()
    }
}

impl DirectionTest {
    fn passed(&self) -> bool {
        self.rate.as_ref().is_none_or(|rate| rate.passed) && self.delay.passed && self.loss.passed
    }

    fn complaints(&self, direction: &str) -> Vec<String> {
        let mut all = Vec::new();
        if let Some(rate) = self.rate.as_ref().filter(|rate| !rate.passed) {
            all.push(format!(
                "{direction} {} passed instead of {} ({} %, allowed ±{} %)",
                units::rate(rate.measured_bps),
                units::rate(rate.asked_bps as f64),
                units::signed(rate.error_pct, 1),
                units::three(rate.allowed_pct)
            ));
        }
        let delay = &self.delay;
        if !delay.passed {
            all.push(format!(
                "{direction} the median delay is {} µs off {} (allowed ±{:.0} µs; 99th percentile {} µs, {} probes)",
                units::signed(delay.median_error_us, 0),
                units::seconds(delay.asked_us / 1e6),
                delay.allowed_us,
                units::signed(delay.p99_error_us, 0),
                delay.probes
            ));
        }
        let loss = &self.loss;
        if !loss.passed {
            all.push(format!(
                "{direction} {} of {} probes were lost, and {} % asks for {} to {}",
                loss.lost,
                loss.sent,
                units::three(loss.asked_pct),
                loss.interval[0],
                loss.interval[1]
            ));
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_link_by_a_trace_says_which_one_and_has_a_queue_and_no_rate() {
        let trace = Trace::parse(Path::new("/plans"), "a.trace", b"5\n20\n").expect("a trace");
        let down = LinkDirection { trace: Some(trace.clone()), ..LinkDirection::default() };
        let link = LinkSpec { down, up: LinkDirection::default() };
        let report = LinkReport::new(&link, "veth, emulator", "off");
        assert!(report.follows_trace() && report.name == format!("trace={trace},up-rate=unshaped"));
        assert_eq!((report.rate_bps, report.queue_packets), (None, Some(100)));
        let json = serde_json::to_value(&report).expect("JSON");
        assert_eq!(
            json["directions"]["down"]["trace"],
            serde_json::json!({
                "file": "a.trace", "blake3": trace.digest(), "opportunities": 2, "period_ms": 20,
                "longest_gap_ms": 15, "mean_bps": 1_200_000
            })
        );
        assert_eq!(json["directions"]["up"].get("trace"), None);
        let again: LinkReport = serde_json::from_value(json).expect("a report");
        assert_eq!(again.directions, report.directions);
        assert!(!LinkReport::new(&LinkSpec::default(), "veth", "on").follows_trace());
    }

    #[test]
    fn round_trips_are_told_by_rank() {
        let times = (1..=100).rev().map(|ms| f64::from(ms) / 1e3).collect();
        let of = RoundTrips::of(times).expect("a hundred");
        assert_eq!((of.probes, of.least_us), (100, 1000.0));
        assert!((of.median_us - 50_000.0).abs() < 1e-6 && (of.p99_us - 99_000.0).abs() < 1e-6);
        assert_eq!(RoundTrips::of(Vec::new()), None);
    }
}
