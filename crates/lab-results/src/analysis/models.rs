//! From samples to models: time against size of each stack, direction and clock,
//! with residuals, and beside the studies' line over log(size).

use std::collections::BTreeMap;

use super::cost::{self, CostModel};
use super::fit;
use super::slow_start::{Path, Segment};
use super::summary::{Clock, counted};
use crate::schema::{LinkReport, LogLine, Model, ModelPoint, Residual, Sample, StackRecord};

/// The clocks that are modelled, by name.
pub const CLOCKS: [(&str, Clock); 2] =
    [("transfer", |s| s.seconds), ("session", |s| s.session_seconds)];

/// The workloads in which one file of some size moves.
pub const DIRECTIONS: [&str; 2] = ["download", "upload"];

/// A model that was fitted, and what it was fitted to.
#[derive(Debug)]
pub struct Fitted {
    /// The link.
    pub link: String,
    /// The stack.
    pub stack: String,
    /// `download` or `upload`.
    pub workload: &'static str,
    /// `transfer` or `session`.
    pub clock: &'static str,
    /// The data that it was fitted to.
    pub cells: Vec<cost::Cell>,
    /// The model.
    pub cost: CostModel,
}

/// Fits whatever was measured at two sizes or more, but on links that follow a trace: what a
/// byte takes there depends on when it is sent.
pub fn fit(
    samples: &[Sample],
    stacks: &[StackRecord],
    links: &[LinkReport],
    segment: Segment,
) -> Vec<Fitted> {
    let mut all = Vec::new();
    for link in links.iter().filter(|link| !link.follows_trace()) {
        for workload in DIRECTIONS {
            let path = path(link, workload, segment);
            for stack in stacks {
                let of_stack = |s: &&Sample| {
                    s.link == link.name && s.workload == workload && s.stack == stack.name
                };
                let samples: Vec<&Sample> = samples.iter().filter(of_stack).collect();
                for (clock, value) in CLOCKS {
                    let cells = cells(&samples, value, path.as_ref());
                    let Some(cost) = CostModel::fit(&cells) else { continue };
                    let (link, stack) = (link.name.clone(), stack.name.clone());
                    all.push(Fitted { link, stack, workload, clock, cells, cost });
                }
            }
        }
    }
    all
}

/// The path of a link on which slow start counts: one with a delay of its own and
/// no loss, which ends slow start at random.
pub(super) fn path(link: &LinkReport, workload: &str, segment: Segment) -> Option<Path> {
    (link.delay_ms > 0.0 && !link.is_lossy()).then(|| Path {
        bytes_per_s: link.rate_bps_of(workload).map(|bps| segment.payload_bytes_per_s(bps as f64)),
        rtt_s: link.rtt_us.map_or(2.0 * link.delay_ms / 1e3, |us| us / 1e6),
        segment_bytes: segment.payload_bytes,
    })
}

/// Times by size and block, of the samples that count.
pub fn cells(samples: &[&Sample], value: Clock, path: Option<&Path>) -> Vec<cost::Cell> {
    let mut sizes: BTreeMap<u64, Vec<&Sample>> = BTreeMap::new();
    for sample in samples {
        sizes.entry(sample.size_bytes).or_default().push(sample);
    }
    let cell = |(size, samples): (u64, Vec<&Sample>)| {
        let timed = |s: &&Sample| Some((s.block, value(s).filter(|seconds| *seconds > 0.0)?));
        let bytes = size as f64;
        let known_s = path.map_or(0.0, |path| path.waits_s(bytes));
        cost::Cell { bytes, blocks: counted(&samples).iter().filter_map(timed).collect(), known_s }
    };
    sizes.into_iter().map(cell).filter(|cell| !cell.blocks.is_empty()).collect()
}

/// The models as results hold them.
pub fn rows(fitted: &[Fitted], stacks: &[StackRecord]) -> Vec<Model> {
    fitted.iter().map(|model| row(model, fitted, stacks)).collect()
}

fn row(model: &Fitted, all: &[Fitted], stacks: &[StackRecord]) -> Model {
    let cost = &model.cost;
    let per_gb = |per_byte: f64| per_byte * 1e9;
    let modelled = |cell: &cost::Cell| cost.seconds(cell.bytes) + cell.known_s;
    let baseline = stacks.iter().find(|s| s.name == model.stack).and_then(|s| s.baseline.as_ref());
    let base = baseline.and_then(|base| {
        all.iter().find(|other| {
            (&other.stack, &other.link) == (base, &model.link)
                && (other.workload, other.clock) == (model.workload, model.clock)
        })
    });
    let rivals = base.and_then(|base| rivals(model, base));
    let (aic_cost, aic_log_line) = rivals.as_ref().map_or((None, None), |r| (r.cost, r.log_line));
    Model {
        link: model.link.clone(),
        stack: model.stack.clone(),
        workload: model.workload.to_owned(),
        clock: model.clock.to_owned(),
        n: model.cells.iter().map(|cell| cell.blocks.len()).min().unwrap_or(0),
        fixed_s: cost.fixed_s,
        fixed_ci95_s: cost.fixed_ci95_s(),
        seconds_per_gb: per_gb(cost.seconds_per_byte),
        seconds_per_gb_ci95: cost.seconds_per_byte_ci95().map(|ci| ci.map(per_gb)),
        points: model.cells.iter().map(|cell| point(cell, modelled(cell))).collect(),
        residuals: model.cells.iter().flat_map(|cell| residuals(cell, modelled(cell))).collect(),
        preferred: aic_cost.zip(aic_log_line).map(|(cost, line)| {
            if cost <= line { "cost".to_owned() } else { "log-line".to_owned() }
        }),
        aic_cost,
        aic_log_line,
        log_line: rivals.map(|r| r.line),
    }
}

fn point(cell: &cost::Cell, modelled_s: f64) -> ModelPoint {
    let logs: f64 = cell.blocks.iter().map(|(_, seconds)| seconds.ln()).sum();
    ModelPoint {
        size_bytes: cell.bytes as u64,
        measured_s: (logs / cell.blocks.len() as f64).exp(),
        modelled_s,
        slow_start_s: cell.known_s,
    }
}

fn residuals(cell: &cost::Cell, modelled_s: f64) -> impl Iterator<Item = Residual> {
    let size_bytes = cell.bytes as u64;
    cell.blocks
        .iter()
        .map(move |&(block, seconds)| (block, (seconds / modelled_s).ln()))
        // a model that is below 0 somewhere has no ratio there
        .filter(|(_, log_ratio)| log_ratio.is_finite())
        .map(move |(block, log_ratio)| Residual { size_bytes, block, log_ratio })
}

/// Two ways to say how an overhead depends on the size.
struct Rivals {
    line: LogLine,
    cost: Option<f64>,
    log_line: Option<f64>,
}

/// The overhead's log-ratios, block by block, explained by the two cost models
/// (four coefficients) and by a line over ln(size) (two), each with weights that
/// make its errors proportional; compared by AICc (Burnham and Anderson 2002).
fn rivals(model: &Fitted, base: &Fitted) -> Option<Rivals> {
    let ratios: Vec<(&cost::Cell, &cost::Cell, f64)> = model
        .cells
        .iter()
        .filter_map(|cell| Some((cell, base.cells.iter().find(|b| b.bytes == cell.bytes)?)))
        .flat_map(|(cell, other)| {
            cell.blocks.iter().filter_map(move |&(block, seconds)| {
                let (_, base_s) = other.blocks.iter().find(|(b, _)| *b == block)?;
                Some((cell, other, (seconds / base_s).ln()))
            })
        })
        .collect();
    let line = fit::proportional_log_line(
        &ratios.iter().map(|(cell, _, log)| (cell.bytes, log.exp())).collect::<Vec<_>>(),
    )?;
    let modelled =
        |fitted: &Fitted, cell: &cost::Cell| fitted.cost.seconds(cell.bytes) + cell.known_s;
    let by_cost: Vec<f64> = ratios
        .iter()
        .map(|&(cell, other, log)| log - (modelled(model, cell) / modelled(base, other)).ln())
        .collect();
    let by_line: Vec<f64> = ratios
        .iter()
        .map(|(cell, _, log)| {
            log - (1.0 + (line.intercept + line.slope * cell.bytes.ln()) / 100.0).ln()
        })
        .collect();
    Some(Rivals {
        line: LogLine { intercept_pct: line.intercept, slope_pct: line.slope },
        cost: aicc(&by_cost, 5),
        log_line: aicc(&by_line, 3),
    })
}

/// AIC of normal errors with the correction for small samples; `parameters`
/// counts the errors' variance. None where a residual is no number (a model that
/// predicts a negative time) or the samples are too few.
fn aicc(residuals: &[f64], parameters: usize) -> Option<f64> {
    let (n, k) = (residuals.len() as f64, parameters as f64);
    let squares: f64 = residuals.iter().map(|r| r * r).sum();
    (squares.is_finite() && squares > 0.0 && n > k + 1.0)
        .then(|| n * (squares / n).ln() + 2.0 * k + 2.0 * k * (k + 1.0) / (n - k - 1.0))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::analysis::summary::tests::sample;

    pub(crate) const SEGMENT: Segment = Segment { payload_bytes: 1428.0, line_bytes: 1538.0 };

    pub(crate) fn stacks() -> [StackRecord; 2] {
        let record = |name: &str, baseline: Option<&str>| StackRecord {
            name: name.into(),
            baseline: baseline.map(str::to_owned),
        };
        [record("ftp", None), record("ftps", Some("ftp"))]
    }

    pub(crate) fn unshaped() -> LinkReport {
        serde_json::from_value(serde_json::json!({
            "name": "unshaped", "backend": "veth", "offload": "on", "rate_bps": null,
            "delay_ms": 0.0, "jitter_ms": 0.0, "loss_pct": 0.0, "queue_packets": null,
            "rtt_us": 50.0, "self_test": null
        }))
        .expect("a link")
    }

    /// Downloads of `stack` whose time follows `time`, with a little of noise
    /// that differs from block to block.
    pub(crate) fn downloads(stack: &str, time: impl Fn(f64) -> f64) -> Vec<Sample> {
        let mut samples = Vec::new();
        for (i, size) in [1u64 << 10, 1 << 15, 1 << 20, 1 << 25].into_iter().enumerate() {
            for block in 0..6u32 {
                let wobble = 1.0 + 0.01 * f64::from((block * 7 + i as u32 * 3) % 5);
                let number = block + 10 * i as u32;
                let mut one = sample(stack, number, time(size as f64) * wobble);
                one.size_bytes = size;
                samples.push(one);
            }
        }
        samples
    }

    /// The same link by a trace.
    pub(crate) fn traced() -> LinkReport {
        let way = serde_json::json!({
            "rate_bps": null, "delay_ms": 0.0, "jitter_ms": 0.0, "loss_pct": 0.0,
            "loss_burst": null, "duplicate_pct": 0.0, "reorder_pct": 0.0, "corrupt_pct": 0.0,
            "queue_packets": 100, "queue_bytes": null,
            "trace": {
                "file": "a.trace", "blake3": "00", "opportunities": 1, "period_ms": 10,
                "longest_gap_ms": 10, "mean_bps": 1_200_000
            }
        });
        let both = serde_json::json!({ "down": way, "up": way });
        LinkReport { directions: serde_json::from_value(both).expect("directions"), ..unshaped() }
    }

    #[test]
    fn a_link_that_follows_a_trace_has_no_model() {
        let samples = downloads("ftp", |size| 0.001 + 1e-9 * size);
        assert!(!fit(&samples, &stacks(), &[unshaped()], SEGMENT).is_empty());
        assert!(fit(&samples, &stacks(), &[traced()], SEGMENT).is_empty());
    }

    fn modelled(samples: &[Sample]) -> Vec<Model> {
        let fitted = fit(samples, &stacks(), &[unshaped()], SEGMENT);
        rows(&fitted, &stacks())
    }

    #[test]
    fn costs_are_told_from_lines_over_the_logarithm() {
        let mut samples = downloads("ftp", |size| 0.001 + 1e-9 * size);
        samples.extend(downloads("ftps", |size| 0.010 + 3e-9 * size));
        let models = modelled(&samples);
        assert_eq!(models.len(), 4, "two stacks on two clocks");
        let ftps = models.iter().find(|m| m.stack == "ftps" && m.clock == "transfer");
        let ftps = ftps.expect("a model");
        let [lo, hi] = ftps.fixed_ci95_s.expect("six blocks");
        assert!(lo < 0.0102 && hi > 0.0102 && hi - lo < 0.001, "{lo} {hi}");
        assert!((ftps.seconds_per_gb - 3.06).abs() < 0.1, "{}", ftps.seconds_per_gb);
        assert_eq!((ftps.residuals.len(), ftps.points.len()), (24, 4));
        assert!(ftps.residuals.iter().all(|r| r.log_ratio.abs() < 0.05));
        assert_eq!(ftps.preferred.as_deref(), Some("cost"));
        assert!(models.iter().all(|m| (m.stack == "ftp") == m.preferred.is_none()));
    }

    #[test]
    fn a_line_over_the_logarithm_is_found_where_there_is_one() {
        let mut samples = downloads("ftp", |size| 0.001 + 1e-9 * size);
        samples.extend(downloads("ftps", |size| (0.001 + 1e-9 * size) * (1.1 + 0.02 * size.ln())));
        let models = modelled(&samples);
        let ftps = models.iter().find(|m| m.stack == "ftps").expect("a model");
        assert_eq!(ftps.preferred.as_deref(), Some("log-line"));
        let line = ftps.log_line.expect("a line");
        assert!((line.slope_pct - 2.0).abs() < 0.1, "{line:?}");
    }

    #[test]
    fn what_slow_start_takes_is_known_beforehand() {
        let mut link = unshaped();
        (link.delay_ms, link.rtt_us) = (10.0, Some(20_000.0));
        let path = path(&link, "download", SEGMENT).expect("a delay");
        let samples = downloads("ftp", |size| 0.040 + 8e-9 * size + path.waits_s(size));
        let rows = |link: LinkReport| rows(&fit(&samples, &stacks(), &[link], SEGMENT), &stacks());
        let with = &rows(link.clone())[0];
        assert!((with.fixed_s - 0.0408).abs() < 0.001, "{}", with.fixed_s);
        assert!(with.residuals.iter().all(|r| r.log_ratio.abs() < 0.05));
        link.delay_ms = 0.0; // as if nothing were known of it
        let without = &rows(link)[0];
        assert!(without.residuals.iter().any(|r| r.log_ratio.abs() > 0.2));
    }
}
