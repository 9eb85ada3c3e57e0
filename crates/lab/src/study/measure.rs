//! Measures of a cell that a section can show, a line each.

use crate::workload::WorkloadKind;

/// Bytes of an Ethernet header, which is no part of a packet.
const ETHERNET: f64 = 14.0;

/// A quantity that runs measure.
#[derive(Debug)]
pub struct Measure {
    /// The name in studies.
    pub name: &'static str,
    /// Its unit, as it stands in a table; empty for a number.
    pub unit: &'static str,
    source: Source,
}

#[derive(Debug)]
enum Source {
    /// The mean over the samples of a cell; of rates as well.
    Sample(fn(&Sample) -> Option<f64>),
    /// The same of a rate, in percent of the link's in the direction of the file.
    LinkShare(fn(&Sample) -> Option<f64>),
    /// The mean over a second of a stream, and over the samples of a cell.
    Second(fn(&StreamBin) -> Option<f64>),
    /// Something that the whole run says of a cell.
    Run(fn(&Results, &Cell) -> Option<Estimate>),
    /// Something that the whole run says of a stack, for all its workloads and sizes.
    Stack(fn(&Results, &str) -> Option<Estimate>),
    /// A parameter of the model of a stack and a workload, which is fitted to all sizes.
    Fitted(fn(&Model) -> Option<Estimate>),
    /// A prediction of such models for one size.
    Predicted(fn(&Results, &Cell) -> Option<Estimate>),
}

use Source::{Fitted, LinkShare, Predicted, Run, Sample as Each, Second, Stack};
use headroom_lab_results::analysis::measured::{Estimate, Measured};
use headroom_lab_results::analysis::stats::Domain;
use headroom_lab_results::schema::{
    DelayStats, LayerSetup, Model, Results, Sample, SetUp, StreamBin, StreamStats, Usage,
};

/// All measures.
pub const ALL: &[Measure] = &[
    Measure { name: "session", unit: "s", source: Each(|s| s.session_seconds) },
    Measure { name: "transfer", unit: "s", source: Each(|s| s.seconds) },
    Measure { name: "mbit-per-s", unit: "Mbit/s", source: Each(|s| Some(rate_bps(s)? / 1e6)) },
    Measure { name: "kbyte-per-s", unit: "kB/s", source: Each(|s| Some(rate_bps(s)? / 8e3)) },
    Measure { name: "link-rate-pct", unit: "%", source: LinkShare(session_bps) },
    Measure { name: "packets", unit: "", source: Each(|s| Some(s.wire?.packets as f64)) },
    Measure { name: "bytes", unit: "B", source: Each(|s| Some(s.wire?.bytes as f64)) },
    Measure { name: "handshakes", unit: "", source: Each(|s| Some(s.wire?.handshakes.into())) },
    Measure { name: "handshake", unit: "s", source: Each(|s| s.first_handshake_seconds) },
    Measure {
        name: "handshake-packets",
        unit: "",
        source: Each(|s| packets(s.wire?.first_handshake)),
    },
    Measure {
        name: "handshake-bytes",
        unit: "B",
        source: Each(|s| bytes_of(s.wire?.first_handshake)),
    },
    Measure { name: "data-handshake", unit: "s", source: Each(|s| s.data_handshake_seconds) },
    Measure {
        name: "data-handshake-packets",
        unit: "",
        source: Each(|s| packets(s.wire?.data_handshake)),
    },
    Measure {
        name: "data-handshake-bytes",
        unit: "B",
        source: Each(|s| bytes_of(s.wire?.data_handshake)),
    },
    Measure { name: "round-trips", unit: "", source: Each(|s| Some(s.wire?.round_trips?.into())) },
    Measure { name: "cpu-s-per-gb", unit: "s/GB", source: Each(cpu_s_per_gb) },
    Measure {
        name: "cpu-ms",
        unit: "ms",
        source: Each(|s| Some(s.cpu_seconds?.both_sides() * 1e3)),
    },
    Measure { name: "packet-bytes", unit: "B", source: Each(largest_packet) },
    Measure { name: "link-bytes-pct", unit: "%", source: Each(link_bytes_pct) },
    Measure { name: "link-bytes-per-packet", unit: "B", source: Each(link_bytes_per_packet) },
    Measure { name: "packets-per-s", unit: "1/s", source: Each(packets_per_s) },
    Measure { name: "fairness", unit: "", source: Each(|s| s.fairness) },
    Measure { name: "client-cpu-low", unit: "%", source: Run(|r, c| low(r, c, |u| u.client_pct)) },
    Measure {
        name: "client-cpu-high",
        unit: "%",
        source: Run(|r, c| high(r, c, |u| u.client_pct)),
    },
    Measure { name: "server-cpu-low", unit: "%", source: Run(|r, c| low(r, c, |u| u.server_pct)) },
    Measure {
        name: "server-cpu-high",
        unit: "%",
        source: Run(|r, c| high(r, c, |u| u.server_pct)),
    },
    Measure { name: "client-cpu", unit: "%", source: Each(|s| cpu_pct(s, s.cpu_seconds?.client)) },
    Measure { name: "server-cpu", unit: "%", source: Each(|s| cpu_pct(s, s.cpu_seconds?.server)) },
    Measure { name: "link-low", unit: "%", source: Run(|r, c| low(r, c, |u| u.link_pct)) },
    Measure { name: "link-high", unit: "%", source: Run(|r, c| high(r, c, |u| u.link_pct)) },
    Measure { name: "marker-seen", unit: "", source: Stack(|r, s| exact(searched(r, s)?.0)) },
    Measure { name: "bytes-searched", unit: "B", source: Stack(|r, s| exact(searched(r, s)?.1)) },
    Measure { name: "kbit-per-s", unit: "kbit/s", source: Each(|s| Some(arrived_bps(s)? / 1e3)) },
    Measure {
        name: "kbit-per-s-lowest",
        unit: "kbit/s",
        source: Each(|s| kilo(stream(s)?.lowest_bps)),
    },
    Measure {
        name: "kbit-per-s-highest",
        unit: "kbit/s",
        source: Each(|s| kilo(stream(s)?.highest_bps)),
    },
    Measure { name: "link-kbit-per-s", unit: "kbit/s", source: Each(|s| Some(link_bps(s)? / 1e3)) },
    Measure { name: "loss-pct", unit: "%", source: Each(loss_pct) },
    Measure { name: "reordered", unit: "", source: Each(|s| Some(stream(s)?.reordered as f64)) },
    Measure { name: "delay-ms", unit: "ms", source: Each(|s| Some(delay(s)?.p50_s * 1e3)) },
    Measure { name: "delay-p95-ms", unit: "ms", source: Each(|s| Some(delay(s)?.p95_s * 1e3)) },
    Measure { name: "delay-p99-ms", unit: "ms", source: Each(|s| Some(delay(s)?.p99_s * 1e3)) },
    Measure { name: "delay-max-ms", unit: "ms", source: Each(|s| Some(delay(s)?.max_s * 1e3)) },
    Measure { name: "frames", unit: "", source: Each(|s| Some(stream(s)?.frames? as f64)) },
    Measure { name: "jitter-ms", unit: "ms", source: Each(|s| Some(stream(s)?.jitter_s * 1e3)) },
    Measure {
        name: "cross-traffic-kbit-per-s",
        unit: "kbit/s",
        source: Each(|s| kilo(stream(s)?.cross_traffic_bps)),
    },
    Measure { name: "kbit-per-s-at", unit: "kbit/s", source: Second(|bin| kilo(Some(bin.bps))) },
    Measure { name: "loss-pct-at", unit: "%", source: Second(lost_pct) },
    Measure { name: "delay-ms-at", unit: "ms", source: Second(|bin| Some(bin.delay_s? * 1e3)) },
    Measure { name: "jitter-ms-at", unit: "ms", source: Second(|bin| Some(bin.jitter_s? * 1e3)) },
    Measure {
        name: "cross-traffic-kbit-per-s-at",
        unit: "kbit/s",
        source: Second(|bin| kilo(bin.cross_traffic_bps)),
    },
    Measure { name: "refused", unit: "", source: Each(refused) },
    Measure { name: "stale", unit: "", source: Each(|s| dropped(s, "stale")) },
    Measure { name: "replayed", unit: "", source: Each(|s| dropped(s, "replay")) },
    Measure { name: "forged", unit: "", source: Each(|s| dropped(s, "forged")) },
    Measure { name: "key-updates", unit: "", source: Each(|s| s.key_updates) },
    Measure { name: "setup", unit: "s", source: Stack(|r, s| mean(&setup(r, s)?.seconds)) },
    Measure { name: "setup-packets", unit: "", source: Stack(|r, s| exact(setup(r, s)?.packets)) },
    Measure { name: "setup-bytes", unit: "B", source: Stack(|r, s| exact(setup(r, s)?.bytes)) },
    Measure {
        name: "setup-server-cpu",
        unit: "s",
        source: Each(|s| s.set_up_server_cpu_seconds.filter(|seconds| *seconds > 0.0)),
    },
    Measure { name: "model-fixed", unit: "s", source: Fitted(fixed) },
    Measure { name: "model-per-gb", unit: "s/GB", source: Fitted(per_gb) },
    Measure { name: "cost-model", unit: "%", source: Predicted(cost_model_pct) },
];

/// In which form a quantity is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Form {
    /// The value.
    Value,
    /// Excess over another stack's, block by block, in the measure's unit; of seconds in
    /// milliseconds.
    Added,
    /// Excess over another stack's, in percent of that, block by block.
    OverheadPct,
    /// Per cent of another stack's.
    PctOf,
    /// The loss of a rate against another stack's, in per cent, as papers state it.
    LossPct,
}

/// A cell of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cell {
    /// Name of the stack.
    pub stack: String,
    /// Name of the workload.
    pub workload: String,
    /// Bytes; none: whatever the workload has, which is one size.
    pub size_bytes: Option<u64>,
    /// Seconds after the first packet, of what is told over time.
    pub at_s: Option<u32>,
}

/// The measure of this name.
///
/// # Errors
/// A sentence that lists them.
pub fn find(name: &str) -> Result<&'static Measure, String> {
    ALL.iter().find(|measure| measure.name == name).ok_or_else(|| {
        let names: Vec<&str> = ALL.iter().map(|measure| measure.name).collect();
        format!("there is no measure `{name}`; there are {}", names.join(", "))
    })
}

impl Form {
    /// Whether it tells of one stack against another.
    pub(super) fn is_relative(self) -> bool {
        self != Self::Value
    }
}

impl Measure {
    /// The clock of a time or a rate: what a token bucket may have let pass undelayed.
    pub(super) fn clock_s(&self, sample: &Sample) -> Option<f64> {
        match self.source {
            Each(seconds) if self.unit == "s" => seconds(sample),
            _ => sample.seconds,
        }
    }

    /// Whether it is of a model, which is fitted to all sizes.
    pub(super) fn is_of_a_model(&self) -> bool {
        matches!(self.source, Fitted(_) | Predicted(_))
    }

    /// A stack's value over another's in the same blocks; none of what is no sample's.
    pub(super) fn ratio(
        &self,
        results: &Results,
        of: [&str; 2],
        workload: &str,
        size_bytes: Option<u64>,
    ) -> Option<Estimate> {
        let (Each(value) | LinkShare(value)) = &self.source else { return None };
        Measured { results }.ratio(of, workload, size_bytes, *value)
    }

    /// Whether each sample has it, so that stacks can be compared block by block.
    pub(super) fn is_of_samples(&self) -> bool {
        matches!(self.source, Each(_) | LinkShare(_))
    }

    /// Whether it is of one size of a workload, and not of a stack or of all sizes.
    pub(super) fn is_of_a_size(&self) -> bool {
        !matches!(self.source, Stack(_) | Fitted(_))
    }

    /// Whether it is told of a second, not of the whole.
    pub(super) fn is_over_time(&self) -> bool {
        matches!(self.source, Second(_))
    }

    /// Whether it is a time, or a rate made of one: what a link that does not shape falsifies.
    pub(super) fn is_of_time(&self) -> bool {
        let times = [
            "session",
            "transfer",
            "mbit-per-s",
            "kbyte-per-s",
            "link-rate-pct",
            "handshake",
            "data-handshake",
        ];
        times.contains(&self.name) || self.is_of_a_model()
    }

    /// Whether it is a number of things, which can be the same in every run.
    pub(super) fn counts(&self) -> bool {
        self.domain() == Domain::Count
    }

    /// The values that it can have.
    fn domain(&self) -> Domain {
        match self.name {
            "fairness" => Domain::Fairness,
            _ if self.unit == "B" || self.name.ends_with("packets") => Domain::Count,
            "handshakes" | "round-trips" | "marker-seen" => Domain::Count,
            "loss-pct" | "loss-pct-at" | "reordered" | "frames" | "refused" | "stale"
            | "replayed" | "forged" => Domain::Count,
            _ => Domain::Positive,
        }
    }

    /// The unit in this form.
    pub fn unit_as(&self, form: Form) -> &'static str {
        match form {
            Form::Added if self.unit == "s" => "ms",
            Form::Value | Form::Added => self.unit,
            Form::OverheadPct | Form::PctOf | Form::LossPct => "%",
        }
    }

    /// Evaluates a cell on the main link of a run; `against` is the other stack of the
    /// forms that need one, by default the baseline. None: it was not measured.
    pub fn of(
        &self,
        results: &Results,
        cell: &Cell,
        form: Form,
        against: Option<&str>,
    ) -> Option<Estimate> {
        let run = Measured { results };
        match (&self.source, form) {
            (Run(value) | Predicted(value), Form::Value) => value(results, cell),
            (Stack(value), Form::Value) => value(results, &cell.stack),
            (Fitted(value), Form::Value) => value(model(results, cell)?),
            (Second(value), Form::Value) => {
                let from_s = f64::from(cell.at_s?);
                let samples = run.cell(&cell.stack, &cell.workload, cell.size_bytes);
                let means = samples.iter().filter_map(|sample| over_second(sample, from_s, *value));
                Estimate::of(&means.collect::<Vec<_>>(), self.domain())
            }
            (LinkShare(bps), Form::Value) => {
                let rate_bps = results.link.rate_bps_of(&cell.workload)? as f64;
                let mean = run.mean(&cell.stack, &cell.workload, cell.size_bytes, *bps)?;
                Some(mean.map(|bps| 100.0 * bps / rate_bps))
            }
            (Run(_) | Stack(_) | Fitted(_) | Predicted(_) | Second(_), _) => None,
            (Each(value), Form::Value) => {
                run.mean_in(self.domain(), &cell.stack, &cell.workload, cell.size_bytes, *value)
            }
            (Each(value) | LinkShare(value), form) => {
                let other = against.or_else(|| baseline(results, &cell.stack))?;
                let stacks = [cell.stack.as_str(), other];
                let size = cell.size_bytes;
                if form == Form::Added {
                    let added = run.added(stacks, &cell.workload, size, *value)?;
                    let times = if self.unit == "s" { 1e3 } else { 1.0 };
                    return Some(added.map(|more| times * more));
                }
                let ratio = run.ratio(stacks, &cell.workload, size, *value)?;
                Some(match form {
                    Form::OverheadPct => ratio.map(|ratio| 100.0 * (ratio - 1.0)),
                    Form::LossPct => ratio.map(|ratio| 100.0 * (1.0 - ratio)).turned(),
                    Form::PctOf | Form::Added | Form::Value => ratio.map(|ratio| 100.0 * ratio),
                })
            }
        }
    }
}

/// The stack that a plan compares this one with.
pub(super) fn baseline<'a>(results: &'a Results, stack: &str) -> Option<&'a str> {
    let stack = results.plan.stacks.iter().find(|known| known.name == stack)?;
    stack.baseline.as_deref()
}

fn bytes(sample: &Sample) -> Option<f64> {
    let file = sample.size_bytes as f64 * f64::from(sample.files.max(1));
    (file > 0.0).then_some(file)
}

fn rate_bps(sample: &Sample) -> Option<f64> {
    let seconds = sample.seconds.filter(|seconds| *seconds > 0.0)?;
    Some(bytes(sample)? * 8.0 / seconds)
}

/// Bits of file over the time of the session.
fn session_bps(sample: &Sample) -> Option<f64> {
    let seconds = sample.session_seconds.filter(|seconds| *seconds > 0.0)?;
    Some(bytes(sample)? * 8.0 / seconds)
}

fn packets(handshake: Option<SetUp>) -> Option<f64> {
    Some(handshake?.packets as f64)
}

fn bytes_of(handshake: Option<SetUp>) -> Option<f64> {
    Some(handshake?.bytes as f64)
}

fn cpu_s_per_gb(sample: &Sample) -> Option<f64> {
    Some(sample.cpu_seconds?.both_sides() / bytes(sample)? * 1e9)
}

/// A side's mean CPU while its client's process ran, per cent of one core.
fn cpu_pct(sample: &Sample, cpu_s: f64) -> Option<f64> {
    Some(100.0 * cpu_s / sample.process_seconds.filter(|seconds| *seconds > 0.0)?)
}

/// The longest IP packet.
fn largest_packet(sample: &Sample) -> Option<f64> {
    Some(f64::from(sample.wire?.largest_frame_bytes) - ETHERNET)
}

/// Bytes that left the link in the file's direction, Ethernet headers included, in percent of
/// the file.
fn link_bytes_pct(sample: &Sample) -> Option<f64> {
    let usage = sample.usage?;
    let up = WorkloadKind::of(&sample.workload).is_some_and(WorkloadKind::goes_up);
    let passed = if up { usage.to_server_bytes } else { usage.to_client_bytes };
    Some(100.0 * passed / bytes(sample)?)
}

/// Of all bins of a cell's samples the lowest, and the highest.
fn low(results: &Results, cell: &Cell, of: fn(Usage) -> Option<[f64; 2]>) -> Option<Estimate> {
    let lows = ranges(results, cell, of).map(|[low, _]| low);
    extreme(&lows.collect::<Vec<_>>(), f64::min)
}

fn high(results: &Results, cell: &Cell, of: fn(Usage) -> Option<[f64; 2]>) -> Option<Estimate> {
    let highs = ranges(results, cell, of).map(|[_, high]| high);
    extreme(&highs.collect::<Vec<_>>(), f64::max)
}

fn extreme(values: &[f64], which: fn(f64, f64) -> f64) -> Option<Estimate> {
    let value = values.iter().copied().reduce(which)?;
    Some(Estimate { value, ci95: None, n: Some(values.len()) })
}

fn ranges<'a>(
    results: &'a Results,
    cell: &Cell,
    of: fn(Usage) -> Option<[f64; 2]>,
) -> impl Iterator<Item = [f64; 2]> + 'a {
    let samples = Measured { results }.cell(&cell.stack, &cell.workload, cell.size_bytes);
    samples.into_iter().filter_map(move |sample| of(sample.usage?))
}

fn stream(sample: &Sample) -> Option<&StreamStats> {
    sample.realtime.as_ref()
}

fn delay(sample: &Sample) -> Option<DelayStats> {
    stream(sample)?.delay
}

fn kilo(value: Option<f64>) -> Option<f64> {
    Some(value? / 1e3)
}

/// Bytes of datagrams that arrived.
fn arrived_bps(sample: &Sample) -> Option<f64> {
    if let Some(stream) = stream(sample) {
        return Some(stream.mean_bps);
    }
    let load = sample.load?;
    let bytes = load.packets? as f64 * sample.size_bytes as f64;
    Some(bytes * 8.0 / load.measured_s.filter(|seconds| *seconds > 0.0)?)
}

/// Rate behind the link in a stream's direction, Ethernet headers included.
fn link_bps(sample: &Sample) -> Option<f64> {
    let seconds = stream(sample)?.measured_s;
    (seconds > 0.0).then_some(sample.usage?.to_server_bytes * 8.0 / seconds)
}

/// Datagrams that were sent and did not arrive.
fn loss_pct(sample: &Sample) -> Option<f64> {
    if let Some(stream) = stream(sample) {
        return Some(stream.loss_pct());
    }
    let (arrived, lost) = (sample.load?.packets? as f64, sample.load?.lost? as f64);
    (arrived + lost > 0.0).then(|| 100.0 * lost / (arrived + lost))
}

/// Bytes that left the link towards the server, Ethernet headers and control traffic included,
/// for each datagram that arrived.
fn link_bytes_per_packet(sample: &Sample) -> Option<f64> {
    let packets = sample.load?.packets.filter(|packets| *packets > 0)?;
    Some(sample.usage?.to_server_bytes / packets as f64)
}

/// Datagrams that arrived.
fn packets_per_s(sample: &Sample) -> Option<f64> {
    let load = sample.load?;
    Some(load.packets? as f64 / load.measured_s.filter(|seconds| *seconds > 0.0)?)
}

fn lost_pct(bin: &StreamBin) -> Option<f64> {
    (bin.sent > 0).then(|| 100.0 * bin.lost as f64 / bin.sent as f64)
}

/// The mean of a second's pieces.
fn over_second(sample: &Sample, from_s: f64, value: fn(&StreamBin) -> Option<f64>) -> Option<f64> {
    let second = from_s - 1e-6..from_s + 1.0 - 1e-6;
    let bins = stream(sample)?.bins.iter().filter(|bin| second.contains(&bin.at_s));
    let values: Vec<f64> = bins.filter_map(value).collect();
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// Packets that gateways took for old ones or for forgeries. With numbers of 64 bits what
/// lies left of the window is taken for a number of the next 2^32 (RFC 4303, appendix
/// A2.2), so that its check value is wrong.
fn refused(sample: &Sample) -> Option<f64> {
    ["stale", "replay", "forged"].iter().map(|reason| dropped(sample, reason)).sum()
}

/// Packets that gateways dropped for this reason.
fn dropped(sample: &Sample, reason: &str) -> Option<f64> {
    Some(sample.drops.as_ref()?.get(reason).copied().unwrap_or(0) as f64)
}

fn mean(values: &[f64]) -> Option<Estimate> {
    Estimate::of_positive(values.iter().copied())
}

fn exact(count: u64) -> Option<Estimate> {
    Some(Estimate::exact(count as f64))
}

/// Whether the marker of a stack's files was seen on the wire, 1 or 0, and in how many
/// bytes it was looked for.
fn searched(results: &Results, stack: &str) -> Option<(u64, u64)> {
    let row = results.clear_text.iter().find(|row| row.stack == stack)?;
    Some((row.marker_seen.into(), row.bytes_searched))
}

fn setup<'a>(results: &'a Results, stack: &str) -> Option<&'a LayerSetup> {
    results.layer_setups.iter().find(|setup| setup.stack == stack)
}

/// The model of transfer times.
fn model<'a>(results: &'a Results, cell: &Cell) -> Option<&'a Model> {
    results.models.iter().find(|model| {
        model.link == results.link.name
            && (&model.stack, &model.workload) == (&cell.stack, &cell.workload)
            && model.clock == "transfer"
    })
}

fn fixed(model: &Model) -> Option<Estimate> {
    Some(Estimate { value: model.fixed_s, ci95: model.fixed_ci95_s, n: Some(model.n) })
}

fn per_gb(model: &Model) -> Option<Estimate> {
    Some(Estimate {
        value: model.seconds_per_gb,
        ci95: model.seconds_per_gb_ci95,
        n: Some(model.n),
    })
}

/// The overhead at a size by the two cost models: of the stack and of its baseline.
fn cost_model_pct(results: &Results, cell: &Cell) -> Option<Estimate> {
    let baseline = Cell { stack: baseline(results, &cell.stack)?.to_owned(), ..cell.clone() };
    let seconds = |cell: &Cell| {
        let model = model(results, cell)?;
        Some(model.fixed_s + model.seconds_per_gb * cell.size_bytes? as f64 / 1e9)
    };
    let value = 100.0 * (seconds(cell)? / seconds(&baseline)? - 1.0);
    let n = model(results, cell)?.n.min(model(results, &baseline)?.n);
    value.is_finite().then_some(Estimate { value, ci95: None, n: Some(n) })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Five blocks of 10 MB over a link with this rate, in which `https` takes twice as long as
    /// `http`.
    fn results(rate_bps: Option<u64>) -> Results {
        let mut results: Results = serde_json::from_value(json!({
            "schema": 3, "answer": [],
            "plan": {
                "name": "p", "question": "?", "workloads": [], "repetitions": 5, "warmup": 1,
                "stacks": [{"name": "http", "baseline": null}, {"name": "https", "baseline": "http"}],
                "family": "ipv6", "mtu": 1500, "offload": "on", "congestion_control": "cubic",
                "link": "link", "validation_links": [], "validation_size_bytes": 1, "seed": 1
            },
            "environment": {
                "started": "", "finished": "", "headroom": "", "kernel": "", "distribution": "",
                "cpu": "", "cores": 2, "memory_bytes": 1, "programs": [], "stacks": {}, "settings": {}
            },
            "link": {
                "name": "link", "backend": "", "offload": "off", "rate_bps": rate_bps,
                "delay_ms": 0.0, "jitter_ms": 0.0, "loss_pct": 0.0, "queue_packets": null,
                "rtt_us": null, "self_test": null
            },
            "validation_links": [], "samples": [], "summary": [], "portable": [], "timelines": [],
            "warnings": []
        }))
        .expect("results");
        for block in 0..5_u32 {
            let http_s = 1.0 + 0.1 * f64::from(block);
            for (stack, session_s) in [("http", http_s), ("https", 2.0 * http_s)] {
                results.samples.push(Sample {
                    link: "link".to_owned(),
                    stack: stack.to_owned(),
                    workload: "download".to_owned(),
                    size_bytes: 10_000_000,
                    files: 1,
                    block,
                    ok: true,
                    seconds: Some(session_s),
                    session_seconds: Some(session_s),
                    ..Sample::default()
                });
            }
        }
        results
    }

    #[test]
    fn measures_of_a_stack_or_of_all_sizes_are_not_of_one_size() {
        let names = |which: fn(&Measure) -> bool| -> Vec<&str> {
            ALL.iter().filter(|measure| which(measure)).map(|measure| measure.name).collect()
        };
        let of_stacks = ["marker-seen", "bytes-searched", "setup", "setup-packets", "setup-bytes"];
        let of_all_sizes = ["model-fixed", "model-per-gb"];
        assert_eq!(names(|it| !it.is_of_a_size()), [&of_stacks[..], &of_all_sizes].concat());
        let of_models = [&of_all_sizes[..], &["cost-model"]].concat();
        assert_eq!(names(Measure::is_of_a_model), of_models);
    }

    #[test]
    fn shares_of_a_link_have_intervals_and_are_compared_block_by_block() {
        let measure = find("link-rate-pct").expect("a measure");
        let cell = Cell {
            stack: "https".to_owned(),
            workload: "download".to_owned(),
            size_bytes: None,
            at_s: None,
        };
        let of = |rate_bps, form| measure.of(&results(rate_bps), &cell, form, None);
        // 80 Mbit in 2.0 to 2.8 s
        let share = of(Some(100_000_000), Form::Value).expect("a share");
        let [low, high] = share.ci95.expect("an interval");
        assert!(28.0 < low && low < share.value && share.value < high && high < 41.0, "{share:?}");
        assert_eq!((share.n, of(None, Form::Value)), (Some(5), None));
        let half = of(Some(100_000_000), Form::PctOf).expect("percent of the baseline's");
        assert!((half.value - 50.0).abs() < 1e-6 && half.n == Some(5), "{half:?}");
        let of_both = ["https", "http"];
        let ratio = measure.ratio(&results(Some(100_000_000)), of_both, "download", None);
        assert!(ratio.is_some_and(|ratio| (ratio.value - 0.5).abs() < 1e-8), "{ratio:?}");
    }
}
