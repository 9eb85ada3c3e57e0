//! What a stack adds to its baseline, cell by cell: the evidence for a sentence and
//! against it.

use headroom_units as units;

use crate::analysis::stats::MIN_RUNS;
use crate::schema::{LinkReport, Results, Summary, Wire, WorkloadKind};

/// What a session may differ from what a sentence says of it: a tenth, and this. A noisier
/// cell has a wider interval, which counts as well. Seconds.
pub(super) const SAME_S: f64 = 0.001;

/// A stack and what it is compared with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pair {
    /// The stack.
    pub stack: String,
    /// Its baseline, or another stack.
    pub base: String,
}

/// One cell of a pair.
#[derive(Debug, Clone, Copy)]
pub(super) struct Added<'a> {
    pub(super) link: &'a LinkReport,
    pub(super) row: &'a Summary,
    /// Session of the baseline.
    base_s: f64,
    /// Additional time of the session, percent of the baseline's, with its interval.
    pct: f64,
    ci95_pct: [f64; 2],
}

/// Additional time of a cell, in seconds, with its interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Longer {
    pub(super) value_s: f64,
    pub(super) ci95_s: [f64; 2],
}

impl<'a> Added<'a> {
    /// All cells in which one file moved and both sessions were timed.
    pub(super) fn cells(results: &'a Results, pair: &'a Pair) -> impl Iterator<Item = Self> {
        let rows = results.summary.iter().filter(|row| row.stack == pair.stack);
        rows.filter_map(|row| {
            let single = matches!(
                WorkloadKind::of(&row.workload),
                Some(WorkloadKind::Download | WorkloadKind::Upload)
            );
            (row.baseline.as_deref() == Some(&pair.base) && single).then_some(())?;
            let links = std::iter::once(&results.link).chain(&results.validation_links);
            let link = links.into_iter().find(|link| link.name == row.link)?;
            let base = results.summary.iter().find(|base| {
                base.stack == pair.base
                    && (&base.link, &base.workload, base.size_bytes)
                        == (&row.link, &row.workload, row.size_bytes)
            })?;
            let pct = row.session_overhead_pct?;
            let ci95_pct = row.session_overhead_ci95_pct.unwrap_or([-100.0, f64::INFINITY]);
            Some(Self { link, row, base_s: base.session_mean_s?, pct, ci95_pct })
        })
    }

    pub(super) fn longer(&self) -> Longer {
        let seconds = |pct: f64| self.base_s * pct / 100.0;
        Longer { value_s: seconds(self.pct), ci95_s: self.ci95_pct.map(seconds) }
    }

    /// Blocks in which both were measured.
    pub(super) fn pairs(&self) -> usize {
        self.row.overhead_n
    }

    pub(super) fn base_s(&self) -> f64 {
        self.base_s
    }

    pub(super) fn rtt_s(&self) -> f64 {
        self.link.rtt_us.unwrap_or(0.0) / 1e6
    }

    pub(super) fn rate_bps(&self) -> Option<f64> {
        self.link.rate_bps_of(&self.row.workload).map(|bps| bps as f64)
    }

    /// Whether the file is so small that its size does not matter.
    pub(super) fn is_small(&self) -> bool {
        self.row.size_bytes <= 64 << 10
    }

    /// `1 KiB download on 250mbit: +1290 % [1133, 1467]`
    pub(super) fn told(&self) -> String {
        let [lo, hi] = self.ci95_pct.map(|pct| units::rounded(pct, 0));
        format!(
            "{} {} on {}: session {} % [{lo}, {hi}]",
            units::chosen_size(self.row.size_bytes),
            self.row.workload,
            self.link.name,
            units::signed(self.pct, 0)
        )
    }
}

/// The counted packets of a stack's cell on the main link.
pub(super) fn wire(results: &Results, stack: &str, workload: &str, size: u64) -> Option<Wire> {
    let of_cell = |sample: &&crate::schema::Sample| {
        (sample.stack.as_str(), sample.workload.as_str(), sample.size_bytes)
            == (stack, workload, size)
    };
    results.samples.iter().filter(of_cell).find_map(|sample| sample.wire)
}

/// Round trips per session that a stack adds to its baseline; those that it saves are below 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddedRoundTrips {
    /// The least and the most of what cells have.
    pub ends: [i64; 2],
    /// Whether session times show them, or are too coarse to; else they explain none of the time.
    pub significant: bool,
}

impl AddedRoundTrips {
    /// Returns those that sessions wait for, where links of several round-trip times tell, else
    /// those that were counted before the first byte of the file, if any cell was.
    pub(super) fn of(results: &Results, pair: &Pair) -> Option<Self> {
        if let Some(ends) = span(&waited_round_trips(results, pair)) {
            return Some(Self { ends, significant: true });
        }
        let ends = span(&counted_round_trips(results, pair))?;
        Some(Self { ends, significant: are_in_session_times(results, pair) })
    }

    /// Returns the least and the most that sessions wait for, as far as is known.
    pub(super) fn waited_for(self) -> [i64; 2] {
        if self.significant { self.ends } else { [0; 2] }
    }
}

/// Whether sessions of small files are longer, or shorter, as their counted round trips say: no
/// interval includes 0 or is on the other side of it. Round trips that take less than [`SAME_S`]
/// could not be seen, and on a link with loss chance can hide them: what was counted stands.
fn are_in_session_times(results: &Results, pair: &Pair) -> bool {
    let decides = |cell: &Added<'_>| cell.pairs() >= MIN_RUNS && !cell.link.is_lossy();
    smallest(results, pair).filter(decides).all(|cell| {
        let trips = counted(results, pair, cell.row).unwrap_or(0);
        let [lo, hi] = cell.longer().ci95_s;
        let too_short = trips.abs() as f64 * cell.rtt_s() < SAME_S;
        too_short || if trips > 0 { lo > 0.0 } else { hi < 0.0 }
    })
}

/// Without much delay a capture counts changes of direction that nobody waits for where there is
/// one: both sides compute and send at once.
fn counted_round_trips(results: &Results, pair: &Pair) -> Vec<i64> {
    let main = |row: &&Summary| row.link == results.link.name && row.stack == pair.stack;
    let single = |row: &&Summary| {
        matches!(
            WorkloadKind::of(&row.workload),
            Some(WorkloadKind::Download | WorkloadKind::Upload)
        )
    };
    let rows = results.summary.iter().filter(main).filter(single);
    rows.filter_map(|row| counted(results, pair, row)).collect()
}

/// Counted round trips of a row's workload and size, less the baseline's.
fn counted(results: &Results, pair: &Pair, row: &Summary) -> Option<i64> {
    let trips = |stack: &str| {
        Some(i64::from(wire(results, stack, &row.workload, row.size_bytes)?.round_trips?))
    };
    Some(trips(&pair.stack)? - trips(&pair.base)?)
}

/// The two round-trip times must be so far apart that work, which differs a little between links,
/// makes no round trip. Seconds.
const FAR_APART_S: f64 = 0.05;

/// How much the additional time of the smallest file grows from the link of the next shorter
/// round-trip time to that of the longest, over the difference of these times, in each direction;
/// none where that is not known to be one whole number.
fn waited_round_trips(results: &Results, pair: &Pair) -> Vec<i64> {
    let directions = ["download", "upload"].into_iter();
    let of_direction = |direction| {
        let mut cells: Vec<Added<'_>> = smallest(results, pair)
            .filter(|cell| cell.row.workload == direction && !cell.link.is_lossy())
            .collect();
        cells.sort_by(|a, b| b.rtt_s().total_cmp(&a.rtt_s()));
        let longest = *cells.first()?;
        let apart_s = |cell: &Added<'_>| longest.rtt_s() - cell.rtt_s();
        let second = *cells.iter().find(|cell| apart_s(cell) >= FAR_APART_S)?;
        let apart_s = apart_s(&second);
        let (far, near) = (longest.longer(), second.longer());
        let trips = ((far.value_s - near.value_s) / apart_s).round();
        let [least, most] = [
            (far.ci95_s[0] - near.ci95_s[1]) / apart_s,
            (far.ci95_s[1] - near.ci95_s[0]) / apart_s,
        ];
        (least > trips - 0.5 && most < trips + 0.5).then_some(trips as i64)
    };
    directions.filter_map(of_direction).collect()
}

/// Bytes in the file's direction that a pair differs by beyond set-up, as a share of the
/// baseline's, of downloads and of uploads.
pub(super) fn bytes(results: &Results, pair: &Pair) -> Vec<f64> {
    let slope = |stack: &str, workload: &str| {
        let sizes = || {
            let rows = results.summary.iter().filter(|row| {
                row.link == results.link.name && row.stack == stack && row.workload == workload
            });
            rows.filter(|row| wire(results, stack, workload, row.size_bytes).is_some())
                .map(|row| row.size_bytes)
        };
        let (small, large) = (sizes().min()?, sizes().max()?);
        let bytes = |size| Some(wire(results, stack, workload, size)?.file_direction_bytes as f64);
        // below this, how a sender segments is most of what differs
        (large >= small + (1 << 19)).then_some(())?;
        Some((bytes(large)? - bytes(small)?) / (large - small) as f64)
    };
    ["download", "upload"]
        .iter()
        .filter_map(|way| Some(slope(&pair.stack, way)? / slope(&pair.base, way)? - 1.0))
        .collect()
}

/// HelloRetryRequests and refused commands more than the baseline's, in the smallest
/// download that was counted.
pub(super) fn retries(results: &Results, pair: &Pair) -> [u32; 2] {
    let smallest = |stack: &str| {
        let of_stack = results.samples.iter().filter(|sample| {
            sample.stack == stack && sample.workload == "download" && sample.wire.is_some()
        });
        let wire = of_stack.min_by_key(|sample| sample.size_bytes).and_then(|sample| sample.wire);
        wire.map_or([0; 2], |wire| [wire.hello_retries, wire.refused_commands])
    };
    let (stack, base) = (smallest(&pair.stack), smallest(&pair.base));
    std::array::from_fn(|index| stack[index].saturating_sub(base[index]))
}

/// Runs of the pair's cell on the main link that has the fewest.
pub(super) fn runs(results: &Results, pair: &Pair) -> usize {
    let main = Added::cells(results, pair).filter(|cell| cell.link.name == results.link.name);
    main.map(|cell| cell.pairs()).min().unwrap_or(0)
}

/// What sessions of small files take longer beyond the round trips that they wait for, and from
/// how many runs: on each link and in each direction.
pub(super) fn fixed(results: &Results, pair: &Pair) -> Vec<(usize, Longer)> {
    let Some(trips) = AddedRoundTrips::of(results, pair) else { return Vec::new() };
    let [trips, _] = trips.waited_for();
    let beyond = |cell: Added<'_>| {
        let Longer { value_s, ci95_s } = cell.longer();
        let waited = trips as f64 * cell.rtt_s();
        Longer { value_s: value_s - waited, ci95_s: ci95_s.map(|end| end - waited) }
    };
    smallest(results, pair).map(|cell| (cell.pairs(), beyond(cell))).collect()
}

/// The cells of the smallest file on each link and in each direction, where it is small.
fn smallest<'a>(results: &'a Results, pair: &'a Pair) -> impl Iterator<Item = Added<'a>> {
    let cells = move || Added::cells(results, pair).filter(Added::is_small);
    cells().filter(move |cell| {
        let same = cells().filter(|other| {
            (&other.link.name, &other.row.workload) == (&cell.link.name, &cell.row.workload)
        });
        same.map(|other| other.row.size_bytes).min() == Some(cell.row.size_bytes)
    })
}

/// The least and the most of some values.
pub(super) fn span<T: PartialOrd + Copy>(values: &[T]) -> Option<[T; 2]> {
    let first = *values.first()?;
    Some(values.iter().fold([first; 2], |[lo, hi], &value| {
        [if value < lo { value } else { lo }, if value > hi { value } else { hi }]
    }))
}
