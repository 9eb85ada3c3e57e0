//! Claims of sentences: their words, and their contradictions by a run.

use headroom_units::{chosen_size, rate, rounded, seconds, three};

use super::added::{self, Added, AddedRoundTrips, Pair, SAME_S, span};
use super::main_link;
use crate::analysis::measured::{Estimate, Measured};
use crate::analysis::stats::{self, MIN_RUNS};
use crate::schema::Results;

/// One claim.
#[derive(Debug, Clone, PartialEq)]
pub enum Claim {
    /// Costs of a stack over its baseline, on any link.
    Costs(Costs),
    /// Times of secured stacks for the same work on the main link.
    Compared(Compared),
    /// A row of the main link, as a sentence.
    Row(String),
}

/// A stack adds this to its baseline, and nothing else on links up to a rate.
#[derive(Debug, Clone, PartialEq)]
pub struct Costs {
    /// The stacks.
    pub pair: Pair,
    /// Round trips per session.
    pub round_trips: AddedRoundTrips,
    /// Of these, HelloRetryRequests and commands that the server refused: habits of client
    /// and server, not of the protocol.
    pub retries: [u32; 2],
    /// Time per session beyond the round trips that it waits for.
    pub fixed: Fixed,
    /// Bytes on the wire more, as a share.
    pub bytes: [f64; 2],
    /// The fastest link that large downloads fill after slow start.
    pub fills: Option<Fills>,
    /// Runs of the cell that has the fewest; none where a sentence of an earlier version
    /// does not say.
    pub n: Option<usize>,
}

/// Additional time per session beyond round trips and bytes, in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Fixed {
    /// The least and the most of what links and directions have. Each cell's interval is
    /// on one side of 0, or all are next to it.
    Longer([f64; 2]),
    /// A cell's interval holds 0: the ends of all intervals together.
    Undecided([f64; 2]),
    /// Too few runs.
    TooFew,
}

/// The fastest link that a large download still fills once it is under way.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fills {
    /// Its rate.
    pub bps: f64,
    /// Whether a link of the run was slow enough to contradict it; else the cost model
    /// alone says so.
    pub checked: bool,
}

/// Sessions of one workload and size on the main link, the fastest first.
#[derive(Debug, Clone, PartialEq)]
pub struct Compared {
    /// Name of the workload.
    pub workload: String,
    /// Bytes of the file.
    pub size_bytes: u64,
    /// The stacks with their session times, seconds.
    pub sessions: Vec<(String, f64)>,
    /// Additional time of each but the first over the first, percent.
    pub slower_pct: Vec<Estimate>,
    /// Blocks that have both stacks, of the comparison with the fewest.
    pub n: usize,
}

impl Claim {
    /// The claim in words, without a full stop.
    pub(super) fn words(&self) -> String {
        match self {
            Self::Costs(costs) => costs.words(),
            Self::Compared(compared) => compared.words(),
            Self::Row(words) => words.trim_end_matches('.').to_owned(),
        }
    }

    /// Lists contradictions by a run, a phrase each.
    pub fn contradictions(&self, results: &Results) -> Vec<String> {
        match self {
            Self::Costs(costs) => costs.contradictions(results),
            Self::Compared(compared) => compared.contradictions(results),
            Self::Row(words) => main_link::contradictions(words, results),
        }
    }
}

/// Words that mark a printed sentence: round trips that sessions are not known to wait for,
pub(super) const NOT_IN_TIMES: &str = "counted, but not significant in session times";
/// a time whose interval includes 0,
pub(super) const UNDECIDED: &str = "time is not significant";
/// a time of too few runs,
pub(super) const NOT_TOLD: &str = "its time is unknown";
/// and a rate that no link of the run checked.
pub(super) const BY_MODEL: &str = " by the cost model (no slower link of this run checks it)";
/// Shares of bytes that are closer together than this are the same.
const SAME_BYTES: f64 = 0.0005;

impl Costs {
    fn words(&self) -> String {
        let [stack, base] = [&self.pair.stack, &self.pair.base].map(|name| name.to_uppercase());
        let (mut adds, mut saves) = (Vec::new(), Vec::new());
        match self.round_trips.ends {
            [0, 0] => {}
            [lo, hi] if hi <= 0 => saves.push(trips(-hi, -lo) + &self.remarks()),
            [lo, hi] => adds.push(trips(lo, hi) + &self.remarks()),
        }
        match self.fixed {
            Fixed::Longer(ends) if is_nothing(ends) => {}
            Fixed::Longer([lo, hi]) if hi <= 0.0 => saves.push(times(-hi, -lo)),
            Fixed::Longer([lo, hi]) => adds.push(times(lo, hi)),
            Fixed::Undecided(_) | Fixed::TooFew => {}
        }
        let mut text = match (adds.is_empty(), saves.is_empty()) {
            (true, true) => format!("{stack} adds no round trip per session over {base}"),
            (true, false) => {
                format!("{stack} saves {} per session over {base}", saves.join(" and "))
            }
            (false, true) => format!("{stack} adds {} per session over {base}", adds.join(" and ")),
            (false, false) => format!(
                "{stack} adds {} and saves {} per session over {base}",
                adds.join(" and "),
                saves.join(" and ")
            ),
        };
        let [lo, hi] = self.bytes.map(|share| 100.0 * share);
        if self.bytes.iter().any(|share| share.abs() >= SAME_BYTES) {
            let (lo, hi, word) = if hi <= 0.0 { (-hi, -lo, "fewer") } else { (lo, hi, "more") };
            let verb = if saves.is_empty() { "" } else { "transfers " };
            text += &format!(", and {verb}{} % {word} bytes", range(lo, hi, 1.1, three));
        }
        if let Some(fills) = self.fills {
            let rate = rate(fills.bps);
            text += &format!("; large downloads fill links up to {rate}");
            if !fills.checked {
                text += BY_MODEL;
            }
        }
        let n = self.n.unwrap_or(0);
        match self.fixed {
            Fixed::Longer(_) => text + &format!(" (n = {n})"),
            Fixed::Undecided([lo, hi]) => {
                let further = if self.round_trips.significant { "further " } else { "" };
                let time = apart(lo, hi);
                text + &format!("; its {further}{UNDECIDED}: {time} per session (n = {n})")
            }
            Fixed::TooFew => text + &too_few(&format!("; {NOT_TOLD}"), n),
        }
    }

    /// Names the round trips that client and server cause, not the protocol, and says where no
    /// session is known to wait for any.
    fn remarks(&self) -> String {
        let [hellos, refused] = if self.round_trips.ends[1] > 0 { self.retries } else { [0; 2] };
        let plural = |n: u32, word: &str| if n == 1 { word.to_owned() } else { format!("{word}s") };
        let mut habits = Vec::new();
        if hellos > 0 {
            habits.push(format!("{hellos} for {}", plural(hellos, "HelloRetryRequest")));
        }
        if refused > 0 {
            habits.push(format!("{refused} for {}", plural(refused, "refused command")));
        }
        let mut remarks = Vec::new();
        if !habits.is_empty() {
            remarks.push(format!("{}, which depend on client and server", habits.join(", ")));
        }
        if !self.round_trips.significant {
            remarks.push(NOT_IN_TIMES.to_owned());
        }
        if remarks.is_empty() { String::new() } else { format!(" ({})", remarks.join("; ")) }
    }

    fn contradictions(&self, results: &Results) -> Vec<String> {
        let mut found = Vec::new();
        // a range is what cells span, not more: a wide one would never be contradicted
        if let Some(round_trips) = AddedRoundTrips::of(results, &self.pair) {
            let AddedRoundTrips { ends: [lo, hi], significant } = round_trips;
            if [lo, hi] != self.round_trips.ends {
                found.push(format!("{lo} to {hi} round trips more were counted or waited for"));
            }
            if significant != self.round_trips.significant {
                let say = if significant { "do not contradict" } else { "do not show" };
                found.push(format!("session times {say} its round trips"));
            }
        }
        let retries = added::retries(results, &self.pair);
        if self.round_trips.ends[1] > 0 && retries != self.retries {
            let [hellos, refused] = retries;
            found.push(format!("{hellos} HelloRetryRequests and {refused} refused commands"));
        }
        let runs = added::runs(results, &self.pair);
        if self.n.is_some_and(|n| n != runs) {
            found.push(format!("its cell of the fewest runs has {runs}"));
        }
        let apart = |a: f64, b: f64, slack: f64| (a - b).abs() > slack;
        if let Some([lo, hi]) = span(&added::bytes(results, &self.pair))
            && (apart(lo, self.bytes[0], SAME_BYTES) || apart(hi, self.bytes[1], SAME_BYTES))
        {
            let [lo, hi] = [lo, hi].map(|share| three(100.0 * share));
            found.push(format!("{lo} to {hi} % more bytes were counted"));
        }
        let (Fixed::Longer([least_s, most_s]) | Fixed::Undecided([least_s, most_s])) = self.fixed
        else {
            return found;
        };
        if runs < MIN_RUNS {
            found.push(format!("{runs} runs support no comparison"));
        }
        let slack = |seconds: f64| SAME_S + 0.1 * seconds.abs();
        match (self.fixed, Fixed::of(results, &self.pair)) {
            (Fixed::Longer(_), Fixed::Longer([lo, hi]))
            | (Fixed::Undecided(_), Fixed::Undecided([lo, hi])) => {
                if apart(lo, least_s, slack(lo)) || apart(hi, most_s, slack(hi)) {
                    found.push(format!("small files take {} more", self::apart(lo, hi)));
                }
            }
            (_, Fixed::Longer([lo, hi])) => {
                found.push(format!("small files do take {} more", self::apart(lo, hi)));
            }
            (_, Fixed::Undecided([lo, hi])) => {
                let time = self::apart(lo, hi);
                found.push(format!("small files take {time} more, an interval that includes 0"));
            }
            (_, Fixed::TooFew) => {}
        }
        if let Some(fills) = self.fills
            && fills.checked != Fills::is_checked(results, &self.pair, fills.bps)
        {
            let checked = if fills.checked { "no link" } else { "a link" };
            found.push(format!("{checked} of this run checked {}", rate(fills.bps)));
        }
        let [least_trips, most_trips] = self.round_trips.waited_for();
        for cell in Added::cells(results, &self.pair).filter(|cell| self.speaks_of(cell)) {
            let longer = |trips: i64, fixed: f64, bytes: f64| {
                trips as f64 * cell.rtt_s() + fixed + bytes * cell.base_s()
            };
            let least = longer(least_trips, least_s, self.bytes[0]);
            let most = longer(most_trips, most_s, self.bytes[1]);
            let slack = slack(cell.base_s() + most.max(0.0));
            let [lo, hi] = cell.longer().ci95_s;
            if lo > most + slack || hi < least - slack {
                found.push(cell.told());
            }
        }
        found
    }

    /// Whether a cell is one of which the costs are all that there is: a small file, or a
    /// download over a link that the stack is said to fill.
    fn speaks_of(&self, cell: &Added<'_>) -> bool {
        cell.is_small() || self.fills.is_some_and(|fills| fills.speaks_of(cell))
    }
}

impl Fixed {
    /// Asks the run's small files.
    pub(super) fn of(results: &Results, pair: &Pair) -> Self {
        let cells = added::fixed(results, pair);
        // links that were only checked have fewer runs: their values belong to the range,
        // but their intervals decide nothing
        let values: Vec<f64> = cells.iter().map(|(_, cell)| cell.value_s).collect();
        let enough = || cells.iter().filter(|(n, _)| *n >= MIN_RUNS).map(|(_, cell)| cell.ci95_s);
        let ends: Vec<f64> = enough().flatten().chain(values.iter().copied()).collect();
        let holds_zero = |[lo, hi]: [f64; 2]| lo <= 0.0 && hi >= 0.0;
        match (span(&values), span(&ends)) {
            _ if enough().next().is_none() => Self::TooFew,
            (Some(values), Some(ends)) if is_nothing(ends) || !enough().any(holds_zero) => {
                Self::Longer(values)
            }
            (_, Some(ends)) => Self::Undecided(ends),
            (_, None) => Self::TooFew,
        }
    }
}

impl Fills {
    /// Whether a cell of the run could contradict it.
    pub(super) fn is_checked(results: &Results, pair: &Pair, bps: f64) -> bool {
        let fills = Self { bps, checked: true };
        Added::cells(results, pair).any(|cell| !cell.is_small() && fills.speaks_of(&cell))
    }

    fn speaks_of(&self, cell: &Added<'_>) -> bool {
        let slower = cell.rate_bps().is_some_and(|rate| rate <= self.bps);
        slower && cell.row.workload == "download" && !cell.link.is_lossy()
    }
}

/// Whether a time is too short for a word.
fn is_nothing([lo, hi]: [f64; 2]) -> bool {
    lo.abs().max(hi.abs()) < SAME_S / 2.0
}

/// Names the smallest additional time that would have been significant.
fn visible(slower: &Estimate) -> String {
    let pct = slower.ci95.and_then(stats::visible_pct);
    pct.map_or_else(String::new, |pct| format!("; {} % would show", three(pct)))
}

impl Compared {
    fn words(&self) -> String {
        let mut sessions = self.sessions.iter();
        let stack =
            |(name, s): &(String, f64)| format!("{} by {}", seconds(*s), name.to_uppercase());
        let first = sessions.next().map(stack).unwrap_or_default();
        let others: Vec<String> = sessions
            .zip(&self.slower_pct)
            .map(|(session, slower)| match slower.ci95 {
                Some([lo, _]) if lo > 0.0 => {
                    format!("{} (+{} %)", stack(session), slower.rounded())
                }
                _ => {
                    format!("{} (no significant difference{})", stack(session), visible(slower))
                }
            })
            .collect();
        let (last, before) = match others.split_last() {
            Some((last, before)) => (format!(" and {last}"), before.join(", ")),
            None => (String::new(), String::new()),
        };
        let comma = if before.is_empty() { "" } else { ", " };
        format!(
            "A session with a {} {} takes {first}{comma}{before}{last} (n = {})",
            chosen_size(self.size_bytes),
            self.workload,
            self.n
        )
    }

    fn contradictions(&self, results: &Results) -> Vec<String> {
        let mut found = Vec::new();
        if self.n < MIN_RUNS {
            found.push(format!("{} runs support no comparison", self.n));
        }
        let run = Measured { results };
        let clock = |sample: &crate::schema::Sample| sample.session_seconds;
        let Some(((fastest, _), others)) = self.sessions.split_first() else { return found };
        for (name, told) in &self.sessions {
            let mean = run.mean(name, &self.workload, self.size_bytes, clock);
            if mean.is_none_or(|mean| (mean.value / told).ln().abs() > 0.02) {
                found.push(format!("sessions of {name} do not take {}", seconds(*told)));
            }
        }
        let ratio_of = |(name, _): &(String, f64)| {
            run.ratio([name, fastest], &self.workload, self.size_bytes, clock)
        };
        let ratios: Vec<Option<Estimate>> = others.iter().map(ratio_of).collect();
        if let Some(fewest) = ratios.iter().flatten().filter_map(|ratio| ratio.n).min()
            && fewest != self.n
        {
            found.push(format!("its comparison of the fewest blocks has {fewest}"));
        }
        for (((name, _), told), ratio) in others.iter().zip(&self.slower_pct).zip(ratios) {
            let is_slower = |of: &Estimate, least: f64| of.ci95.is_some_and(|[lo, _]| lo > least);
            // a stack that is said to be slower is, and one that is not said to be is not
            if ratio.is_none_or(|ratio| is_slower(&ratio, 1.0) != is_slower(told, 0.0)) {
                found.push(format!("{name} against {fastest} is another comparison"));
            }
        }
        found
    }
}

/// Says that `n` runs are too few for `what`.
pub(super) fn too_few(what: &str, n: usize) -> String {
    let runs = if n == 1 { "run supports" } else { "runs support" };
    format!("{what}: {n} {runs} no comparison, {MIN_RUNS} are needed")
}

fn trips(lo: i64, hi: i64) -> String {
    match (lo, hi) {
        (1, 1) => "1 round trip".to_owned(),
        _ if lo == hi => format!("{lo} round trips"),
        _ => format!("{lo} to {hi} round trips"),
    }
}

fn times(lo: f64, hi: f64) -> String {
    let (scale, unit) = match hi.abs().max(lo.abs()) {
        most if most >= 1.0 => (1.0, "s"),
        _ => (1e3, "ms"),
    };
    format!("{} {unit}", range(lo * scale, hi * scale, 1.1, two))
}

/// `-1.5 to 12 ms`: the ends of an interval.
fn apart(lo: f64, hi: f64) -> String {
    let (scale, unit) = if lo.abs().max(hi.abs()) >= 1.0 { (1.0, "s") } else { (1e3, "ms") };
    format!("{} to {} {unit}", two(lo * scale), two(hi * scale))
}

/// Two significant digits, or all before the point.
fn two(value: f64) -> String {
    rounded(value, if value.abs() >= 10.0 { 0 } else { 1 })
}

/// `3`, or `3 to 5` where the ends differ by more than a factor.
fn range(lo: f64, hi: f64, factor: f64, format: impl Fn(f64) -> String) -> String {
    let same = lo > 0.0 && hi / lo <= factor;
    let (from, to) = (format(lo), format(hi));
    if same {
        format((lo * hi).sqrt())
    } else if from == to {
        to
    } else {
        format!("{from} to {to}")
    }
}
