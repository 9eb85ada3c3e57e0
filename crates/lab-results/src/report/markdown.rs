//! The tables of the answer, and the whole answer as Markdown.

use std::collections::BTreeSet;

use headroom_units as units;

use super::sessions;
use super::table::Table;
use crate::analysis::measured::Estimate;
use crate::schema::{Results, Summary, WorkloadKind, WorkloadRecord};

/// Sentences and tables, for a README or an issue.
pub fn summary(results: &Results) -> String {
    let mut text = format!("## {}\n\n", results.plan.question);
    if let Some(sentence) = results.incomplete() {
        text += &format!("**{sentence}**\n\n");
    }
    for sentence in &results.answer {
        text += &format!("- {sentence}\n");
    }
    for table in tables(results).iter().chain(&further_tables(results)) {
        text += "\n";
        text += &table.markdown();
    }
    let environment = &results.environment;
    text += &format!(
        "\nMeasured {} on {} ({} cores, Linux {}), link {} ({}, {}), {} blocks planned, headroom {}. {LEGEND} {COSTS}\n",
        environment.started,
        environment.cpu,
        environment.cores,
        environment.kernel,
        results.link.name,
        results.link.backend,
        results.link.offload,
        results.plan.repetitions,
        environment.headroom,
    );
    let legends = legend_of_rate(results).into_iter().chain(sessions::legend(results));
    for sentence in legends {
        text += &format!("\n{sentence}\n");
    }
    for link in super::links::sentences(results) {
        text += &format!("\n{link}\n");
    }
    text
}

/// Explains the tables of workloads.
pub(super) const LEGEND: &str = "Times: geometric mean of n sessions, connecting included (streams and datagrams: one \
                                 unit). Overhead: time over the baseline's in the same block, with its 95 % interval; \
                                 fewer than five runs support no comparison. \u{2021}: two pairs, whose interval \
                                 says nothing. \u{25c7}: too short for the link's shaper to act on. Limited by: at \
                                 the largest size.";

/// Explains the column of the link's rate, where a table has it.
pub(super) fn legend_of_rate(results: &Results) -> Option<&'static str> {
    let shown = |row: &Summary| row.link == results.link.name && row.link_rate_pct.is_some();
    results.summary.iter().any(shown).then_some(OF_THE_RATE)
}

const OF_THE_RATE: &str = "Of the rate, at the largest size: bits of files over the time of whole sessions, in \
                           percent of the link's rate. The rate counts headers and framing; files have none, so \
                           that 100 is out of reach.";

/// Explains the tables of costs.
pub(super) const COSTS: &str = "Fixed cost and cost/GB: of the session, login included, ± half of the 95 % interval. \
                                A range (0 to 30) is the possible part of an interval that holds what cannot be: \
                                less than 0, or more than the shortest measured time. –: nothing of it is possible. \
                                Fixed, in costs of a download: without the wait for round trips.";

/// One table for each workload of the main link, in which a column has one unit.
pub(super) fn tables(results: &Results) -> Vec<Table> {
    let names: Vec<String> = results.plan.workloads.iter().map(WorkloadRecord::name).collect();
    let first_of_name = |index: usize| !names[..index].contains(&names[index]);
    (0..names.len())
        .filter(|&i| first_of_name(i))
        .map(|i| table(results, &names[i]))
        .filter(|table| !table.rows.is_empty())
        .collect()
}

/// Sessions of closed loops, costs on any link, models, bytes and predictions.
pub(super) fn further_tables(results: &Results) -> Vec<Table> {
    let sessions = sessions::table(results).into_iter();
    sessions.chain([portable(results)]).chain(super::models::tables(results)).collect()
}

fn rows_of<'a>(results: &'a Results, name: &str) -> impl Iterator<Item = &'a Summary> {
    results.summary.iter().filter(move |row| row.link == results.link.name && row.workload == name)
}

fn columns_of<'a>(results: &'a Results, name: &str) -> Vec<Column<'a>> {
    let sizes: BTreeSet<u64> = rows_of(results, name).map(|row| row.size_bytes).collect();
    let of = |size| rows_of(results, name).filter(move |row| row.size_bytes == size).collect();
    sizes.into_iter().map(|size| Column::of(of(size))).collect()
}

/// The table of the first workload that fits a terminal: the smallest and the largest size.
pub(super) struct Overview<'a> {
    name: String,
    columns: Vec<Column<'a>>,
    stacks: Vec<&'a str>,
    /// What stacks are compared with, each once.
    baselines: BTreeSet<&'a str>,
    shown: Shown,
    width: usize,
    /// The other workloads that were measured.
    others: Vec<String>,
}

/// The columns beside times and overheads that an overview has.
#[derive(Clone, Copy)]
struct Shown {
    /// What each stack is compared with, where that is not the same for all.
    baselines: bool,
    /// What limited the largest size.
    limits: bool,
}

impl<'a> Overview<'a> {
    /// Chooses the sizes that fit into `width` columns; none: nothing was measured.
    pub(super) fn new(results: &'a Results, width: usize) -> Option<Self> {
        let mut names: Vec<String> = Vec::new();
        for name in results.plan.workloads.iter().map(WorkloadRecord::name) {
            if !names.contains(&name) && rows_of(results, &name).next().is_some() {
                names.push(name);
            }
        }
        let others = names.split_off(names.len().min(1));
        let name = names.pop()?;
        let stacks = results.plan.stacks.iter().map(|stack| stack.name.as_str());
        let stacks: Vec<&str> =
            stacks.filter(|stack| rows_of(results, &name).any(|row| row.stack == *stack)).collect();
        let compared = rows_of(results, &name).filter(|row| overhead_of(row).is_some());
        let baselines: BTreeSet<&str> =
            compared.filter_map(|row| row.baseline.as_deref()).collect();
        let count = columns_of(results, &name).len();
        let several = baselines.len() > 1;
        let [all, limits, named, neither] =
            [(several, true), (false, true), (several, false), (false, false)]
                .map(|(baselines, limits)| Shown { baselines, limits });
        // the last choice is taken even where it does not fit
        let choices =
            [(count, all), (2, all), (2, named), (1, all), (1, named), (1, limits), (1, neither)];
        let choices = choices.into_iter().filter(|(sizes, _)| *sizes <= count);
        let choices = choices.map(|(sizes, shown)| {
            let mut columns = columns_of(results, &name);
            columns.drain(sizes - 1..count - 1);
            let (name, stacks) = (name.clone(), stacks.clone());
            let (baselines, others) = (baselines.clone(), others.clone());
            Self { name, columns, stacks, baselines, shown, width, others }
        });
        let mut last = None;
        for choice in choices {
            if choice.table().columns_wide() <= width {
                return Some(choice);
            }
            last = Some(choice);
        }
        last
    }

    /// Whether a row has an overhead.
    pub(super) fn compares(&self) -> bool {
        self.rows().any(|row| overhead_of(row).is_some())
    }

    /// Names what the overheads are over, in words for a sentence; none: a column does.
    pub(super) fn over(&self) -> Option<&'a str> {
        match self.baselines.first() {
            Some(&only) if self.baselines.len() == 1 => Some(only),
            _ if self.shown.baselines => None,
            _ => Some("each stack's baseline (named with --full)"),
        }
    }

    /// The other workloads that were measured: each has a table of its own.
    pub(super) fn others(&self) -> &[String] {
        &self.others
    }

    /// The rows of the results that the table shows.
    pub(super) fn rows(&self) -> impl Iterator<Item = &'a Summary> {
        self.columns.iter().flat_map(|column| column.rows.iter().copied())
    }

    /// The table with at most so many rows; the last says how many stacks are left out.
    pub(super) fn with_rows(self, most: usize) -> Table {
        let mut table = self.table();
        let wide = table.columns_wide();
        if wide > self.width {
            table.shorten_names(wide - self.width);
        }
        if table.rows.len() > most {
            let left_out = table.rows.len() - (most - 1);
            table.rows.truncate(most - 1);
            let mut last = vec![String::new(); table.header.len()];
            last[0] = format!("… {left_out} more");
            table.rows.push(last);
        }
        table
    }

    fn table(&self) -> Table {
        let mut header = vec![self.name.clone()];
        let compares = self.compares();
        let Shown { baselines, limits } = self.shown;
        header.extend(baselines.then(|| BASELINE.to_owned()));
        for column in &self.columns {
            header.push(column.title());
            header.extend(compares.then(|| "overhead, %".to_owned()));
        }
        header.extend(limits.then(|| "limited by".to_owned()));
        let rows = self.stacks.iter().map(|&stack| {
            let baseline = baselines.then(|| {
                let mut rows = self.columns.iter().filter_map(|column| column.row(stack));
                rows.find_map(|row| row.baseline.clone()).unwrap_or_else(dash)
            });
            let shown = if compares { 2 } else { 1 };
            let cells =
                self.columns.iter().flat_map(|column| column.cells(stack).into_iter().take(shown));
            let limit = limits.then(|| {
                let last = self.columns.last().and_then(|column| column.row(stack));
                last.and_then(|row| row.limited_by.clone()).unwrap_or_else(dash)
            });
            let name = std::iter::once(stack.to_owned());
            name.chain(baseline).chain(cells).chain(limit).collect()
        });
        Table { rows: rows.collect(), header }
    }
}

/// The title of the column that says what a stack is compared with.
const BASELINE: &str = "baseline";

fn table(results: &Results, name: &str) -> Table {
    let rows = || rows_of(results, name);
    let columns = columns_of(results, name);
    let compares = rows().any(|row| row.baseline.is_some());
    let mut header = vec![name.to_owned(), "n".to_owned()];
    header.extend(compares.then(|| BASELINE.to_owned()));
    for column in &columns {
        header.push(column.title());
        header.push("overhead, %".to_owned());
    }
    header.push("limited by".to_owned());
    let has_rate = rows().any(|row| row.link_rate_pct.is_some());
    header.extend(has_rate.then(|| "of the rate, %".to_owned()));
    let stacks = results.plan.stacks.iter().map(|stack| stack.name.as_str());
    let rows = stacks.filter(|stack| rows().any(|row| row.stack == *stack)).map(|stack| {
        let of_stack = || rows().filter(|row| row.stack == stack);
        let counts = || of_stack().map(|row| row.n);
        let n = match (counts().min().unwrap_or(0), counts().max().unwrap_or(0)) {
            (least, most) if least == most => least.to_string(),
            (least, most) => format!("{least} to {most}"),
        };
        let mut cells = vec![stack.to_owned(), n];
        let baseline = || of_stack().find_map(|row| row.baseline.clone()).unwrap_or_else(dash);
        cells.extend(compares.then(baseline));
        cells.extend(columns.iter().flat_map(|column| column.cells(stack)));
        let largest = of_stack().max_by_key(|row| row.size_bytes);
        cells.push(largest.and_then(|row| row.limited_by.clone()).unwrap_or_else(dash));
        let share = || largest.and_then(|row| row.link_rate_pct).map_or_else(dash, units::three);
        cells.extend(has_rate.then(share));
        cells
    });
    let rows = rows.collect();
    Table { header, rows }
}

/// The cells of one workload and size: a time and an overhead for each stack.
struct Column<'a> {
    rows: Vec<&'a Summary>,
    /// Seconds of the unit that all times are in, and its name.
    unit: (f64, &'static str),
}

impl<'a> Column<'a> {
    fn of(rows: Vec<&'a Summary>) -> Self {
        let longest = rows.iter().filter_map(|row| time(row)).fold(0.0, f64::max);
        let unit = match longest {
            s if s >= 10.0 => (1.0, "s"),
            s if s >= 1e-3 => (1e-3, "ms"),
            _ => (1e-6, "µs"),
        };
        Self { rows, unit }
    }

    fn title(&self) -> String {
        let size = self.rows.first().map_or(0, |row| row.size_bytes);
        let unit = self.unit.1;
        if size == 0 { unit.to_owned() } else { format!("{}, {unit}", units::chosen_size(size)) }
    }

    fn row(&self, stack: &str) -> Option<&'a Summary> {
        self.rows.iter().copied().find(|row| row.stack == stack)
    }

    fn cells(&self, stack: &str) -> [String; 2] {
        let Some(row) = self.row(stack) else { return [dash(), dash()] };
        let mut text = match time(row) {
            Some(seconds) => units::three(seconds / self.unit.0),
            None => "failed".to_owned(),
        };
        if row.not_shaped {
            text += " \u{25c7}";
        }
        if row.failed > 0 {
            text += &format!(" ({} failed)", row.failed);
        }
        [text, overhead(row)]
    }
}

/// Of a file the session, of what goes on for a time the time of a unit.
fn time(row: &Summary) -> Option<f64> {
    if is_timed(row) { row.mean_s } else { row.session_mean_s.or(row.mean_s) }
}

fn overhead(row: &Summary) -> String {
    let Some(overhead) = overhead_of(row) else { return dash() };
    let mark = if overhead.is_of_two() { " \u{2021}" } else { "" };
    units::with_sign(overhead.rounded()) + mark
}

/// The overhead that the tables of workloads show of a row.
pub(super) fn overhead_of(row: &Summary) -> Option<Estimate> {
    let (pct, ci95) = if is_timed(row) || row.session_overhead_pct.is_none() {
        (row.overhead_pct, row.overhead_ci95_pct)
    } else {
        (row.session_overhead_pct, row.session_overhead_ci95_pct)
    };
    Some(Estimate { value: pct?, ci95, n: Some(row.overhead_n) })
}

fn is_timed(row: &Summary) -> bool {
    WorkloadKind::of(&row.workload).is_some_and(WorkloadKind::is_timed)
}

fn portable(results: &Results) -> Table {
    let rows = results.portable.iter().map(|stack| {
        let figures = [
            stack.round_trips.map(|trips| trips.to_string()),
            stack.extra_bytes_per_mb.map(|bytes| units::rounded(bytes, 0)),
            stack.cpu_seconds_per_gb.map(units::three),
            super::models::work_ms(results, stack),
            stack.fill_bps.map(|bps| units::three(bps / 1e6)),
        ];
        let figures = figures.map(|figure| figure.unwrap_or_else(dash));
        std::iter::once(stack.stack.clone()).chain(figures).collect()
    });
    let header = [
        "costs of a download",
        "round trips",
        "+bytes/MB",
        "CPU-s/GB",
        "fixed, ms",
        "fills links up to, Mbit/s",
    ];
    Table { header: header.map(str::to_owned).to_vec(), rows: rows.collect() }
}

fn dash() -> String {
    "–".to_owned()
}
