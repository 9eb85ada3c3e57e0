//! Values derived from the samples; `lab report` derives them again.

use serde::{Deserialize, Serialize};

/// Checks of the accounting runs; one that fails ends the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accounting {
    /// Transfers of which every frame was captured, over all cells.
    pub captures: u32,
    /// Frames that a capture lost.
    pub capture_drops: u64,
    /// Whether frames and bytes were those that the interface counted.
    pub counters_agree: bool,
    /// Transfers more, left out because they were not.
    #[serde(default)]
    pub recounted: u32,
}

/// One cell.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[allow(missing_docs, reason = "documented in docs/results.md")]
pub struct Summary {
    pub link: String,
    pub stack: String,
    pub workload: String,
    pub size_bytes: u64,
    pub n: usize,
    pub failed: usize,
    pub mean_s: Option<f64>,
    pub stddev_s: Option<f64>,
    pub ci95_s: Option<[f64; 2]>,
    pub baseline: Option<String>,
    /// Blocks in which stack and baseline were both measured.
    #[serde(default)]
    pub overhead_n: usize,
    pub overhead_pct: Option<f64>,
    pub overhead_ci95_pct: Option<[f64; 2]>,
    pub session_mean_s: Option<f64>,
    #[serde(default)]
    pub session_ci95_s: Option<[f64; 2]>,
    pub session_overhead_pct: Option<f64>,
    pub session_overhead_ci95_pct: Option<[f64; 2]>,
    pub goodput_bps: Option<f64>,
    /// Bits of file over the time of the session, per cent of the link's rate in their direction.
    #[serde(default)]
    pub link_rate_pct: Option<f64>,
    pub cpu_seconds: Option<f64>,
    pub limited_by: Option<String>,
    pub not_shaped: bool,
    /// Of the `n`, samples flagged as outliers; they count.
    #[serde(default)]
    pub outliers: usize,
    /// RFC 6349's three measures beside our own; null for what is no file
    /// transfer.
    #[serde(default)]
    pub rfc6349: Option<Rfc6349>,
    /// Rate, percentiles and CPU time of the sessions of a closed loop.
    #[serde(default)]
    pub sessions: Option<SessionSummary>,
}

/// The sessions of a cell with a closed loop. Means are geometric, over the samples.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "documented in docs/results.md")]
pub struct SessionSummary {
    pub clients: u32,
    pub count: u64,
    pub failed: u64,
    pub per_s_mean: f64,
    pub per_s_ci95: Option<[f64; 2]>,
    pub p99_mean_s: Option<f64>,
    pub p99_ci95_s: Option<[f64; 2]>,
    pub max_s: f64,
    pub client_cpu_mean_s: Option<f64>,
    pub client_cpu_ci95_s: Option<[f64; 2]>,
    pub server_cpu_mean_s: Option<f64>,
    pub server_cpu_ci95_s: Option<[f64; 2]>,
}

/// The measures of RFC 6349, section 4.1.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "documented in docs/results.md")]
pub struct Rfc6349 {
    pub ideal_s: Option<f64>,
    pub transfer_time_ratio: Option<f64>,
    pub tcp_efficiency_pct: Option<f64>,
    pub buffer_delay_pct: Option<f64>,
}

/// Costs of a stack that hold on any link.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "documented in docs/results.md")]
pub struct Portable {
    pub stack: String,
    pub baseline: Option<String>,
    pub round_trips: Option<u32>,
    /// After the file's last byte.
    #[serde(default)]
    pub round_trips_after: Option<u32>,
    pub extra_bytes_per_mb: Option<f64>,
    /// Bytes that a link carries for each byte of file, framing counted.
    #[serde(default)]
    pub line_bytes_per_byte: Option<f64>,
    pub cpu_seconds_per_gb: Option<f64>,
    pub fixed_s: Option<f64>,
    pub seconds_per_gb: Option<f64>,
    pub fill_bps: Option<f64>,
    /// Of `fixed_s`, what is not spent waiting for round trips.
    #[serde(default)]
    pub work_s: Option<f64>,
    /// The application's limit of data in flight.
    #[serde(default)]
    pub window_bytes: Option<u64>,
}

/// Time against size of one stack doing one workload on one link: what a
/// transfer costs however small, and what a gigabyte costs beyond that.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "documented in docs/results.md")]
pub struct Model {
    pub link: String,
    pub stack: String,
    pub workload: String,
    /// `transfer` or `session`.
    pub clock: String,
    /// Blocks of the size that has the fewest.
    #[serde(default)]
    pub n: usize,
    pub fixed_s: f64,
    pub fixed_ci95_s: Option<[f64; 2]>,
    pub seconds_per_gb: f64,
    pub seconds_per_gb_ci95: Option<[f64; 2]>,
    /// One row a size.
    pub points: Vec<ModelPoint>,
    /// One row a sample.
    pub residuals: Vec<Residual>,
    /// Null for a baseline: the studies' line is one of overheads.
    pub aic_cost: Option<f64>,
    pub aic_log_line: Option<f64>,
    /// Overhead in per cent = intercept + slope · ln(size in bytes).
    pub log_line: Option<LogLine>,
    /// `cost` or `log-line`, whichever has the smaller AICc.
    pub preferred: Option<String>,
}

/// A model beside what was measured at one size.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ModelPoint {
    /// Bytes of the file.
    pub size_bytes: u64,
    /// Geometric mean.
    pub measured_s: f64,
    /// By the model.
    pub modelled_s: f64,
    /// Of that, the known time in which slow start waited (0 without delay).
    pub slow_start_s: f64,
}

/// Distance of a sample from its model.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Residual {
    /// Bytes of the file.
    pub size_bytes: u64,
    /// The paired block.
    pub block: u32,
    /// ln(measured / modelled).
    pub log_ratio: f64,
}

/// A line over the natural logarithm of the size: the studies' form.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LogLine {
    /// Overhead in per cent at one byte.
    pub intercept_pct: f64,
    /// Points for each factor e of size.
    pub slope_pct: f64,
}

/// The size at which two stacks' models cross.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Crossover {
    /// Name of the link.
    pub link: String,
    /// The kind of the workload.
    pub workload: String,
    /// `transfer` or `session`.
    pub clock: String,
    /// The faster stack below the size.
    pub below: String,
    /// The faster stack above it.
    pub above: String,
    /// Blocks of the size that has the fewest.
    #[serde(default)]
    pub n: usize,
    /// Bytes.
    pub size_bytes: f64,
    /// 95 % interval; an end that lies beyond what was measured is null.
    pub ci95_bytes: [Option<f64>; 2],
    /// Whether each stack is the faster one on its side beyond doubt.
    pub significant: bool,
}

/// A session time predicted from the main link, and what came of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "documented in docs/results.md")]
pub struct Prediction {
    pub link: String,
    pub stack: String,
    pub workload: String,
    pub size_bytes: u64,
    pub predicted_s: f64,
    pub measured_s: f64,
    /// (predicted − measured) / measured, × 100.
    pub error_pct: f64,
}
