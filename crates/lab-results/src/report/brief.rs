//! The answer of a run on one screen: the question, the answer, one table, and where the
//! rest is.

use super::columns::{aligned, hint, wrapped};
use super::markdown::{Overview, overhead_of};
use crate::analysis::sentence::read;
use crate::analysis::stats::MIN_RUNS;
use crate::schema::{Results, Summary, WorkloadKind};

/// Lines of the answer. With the path of the report and a prompt it fits a terminal of 24.
const LINES: usize = 22;

/// Lines that are kept for sentences, whatever the number of stacks.
const LINES_OF_SENTENCES: usize = 6;

/// Prints the answer in at most [`LINES`] lines, `width` columns wide. `command` prints the rest.
pub(super) fn answer(results: &Results, command: &str, width: usize) -> String {
    let mut head = String::new();
    for sentence in results.incomplete().iter().chain([&results.plan.question]) {
        head += &wrapped(sentence, width);
    }
    let overview = Overview::new(results, width);
    let legend = legend(results, overview.as_ref(), width);
    let others = overview.as_ref().map(Overview::others).unwrap_or_default();
    let rest = rest(others, command, width);
    // blank lines around the sentences, header and rule of the table
    let blank = if overview.is_some() { 5 } else { 2 };
    let fixed = lines(&head) + lines(&legend) + lines(&rest) + blank;
    let mut room = LINES.saturating_sub(fixed);
    let (lead, more) = results.answer.split_at(read::lead(results));
    let wrap = |sentence: &String| wrapped(sentence, width);
    let (lead, more): (Vec<_>, Vec<_>) =
        (lead.iter().map(wrap).collect(), more.iter().map(wrap).collect());
    let notes: Vec<String> =
        notes(results).map(|note| wrapped(&format!("Note: {note}"), width)).collect();
    let table = overview.map(|overview| {
        let wanted: usize = lead.iter().map(|sentence| lines(sentence)).sum();
        overview.with_rows(room.saturating_sub(wanted.min(LINES_OF_SENTENCES)).max(1))
    });
    room = room.saturating_sub(table.as_ref().map_or(0, |table| table.rows.len()));
    // what a table cannot show comes before what it shows
    let lead = fitting(&lead, &mut room);
    let notes = fitting(&notes, &mut room);
    let more = fitting(&more, &mut room);
    let mut text = format!("{head}\n{}{}", lead.concat(), more.concat());
    if let Some(table) = &table {
        text += &format!("\n{}", aligned(table));
    }
    text + "\n" + &legend + &notes.concat() + &rest
}

/// The texts that fit into `room` lines, in their order.
fn fitting(texts: &[String], room: &mut usize) -> Vec<String> {
    let fits = |text: &&String| match room.checked_sub(lines(text)) {
        Some(left) => {
            *room = left;
            true
        }
        None => false,
    };
    texts.iter().filter(fits).cloned().collect()
}

fn notes(results: &Results) -> impl Iterator<Item = &String> {
    let interrupted = results.incomplete();
    results.warnings.iter().filter(move |note| Some(*note) != interrupted.as_ref())
}

fn lines(text: &str) -> usize {
    text.matches('\n').count()
}

/// Explains the table in a line or two.
fn legend(results: &Results, overview: Option<&Overview<'_>>, width: usize) -> String {
    let Some(overview) = overview else { return String::new() };
    let rows = || overview.rows();
    let (least, most) = (rows().map(|row| row.n).min(), rows().map(|row| row.n).max());
    let n = match (least.unwrap_or(0), most.unwrap_or(0)) {
        (least, most) if least == most => format!("n = {least}"),
        (least, most) => format!("n = {least} to {most}"),
    };
    let kind = |row: &Summary| WorkloadKind::of(&row.workload);
    let times = if rows().any(|row| kind(row).is_some_and(WorkloadKind::is_closed_loop)) {
        "median session times"
    } else if rows().any(|row| kind(row).is_some_and(WorkloadKind::is_timed)) {
        "times of one unit"
    } else {
        "session times"
    };
    let over = overview.over().map_or_else(String::new, |base| format!(" over {base}"));
    let overheads = match overview.compares() {
        true => format!(", overhead{over} with its 95 % interval"),
        false => String::new(),
    };
    let mut text = format!("Link {}, {n}; {times}{overheads}.", results.link.name);
    if overview.compares() && least.is_some_and(|least| least < MIN_RUNS) {
        text += &format!(" Fewer than {MIN_RUNS} runs support no comparison.");
    }
    if rows().filter_map(overhead_of).any(|overhead| overhead.is_of_two()) {
        text += " \u{2021}: two pairs, whose interval says nothing.";
    }
    if rows().any(|row| row.not_shaped) {
        text += " \u{25c7}: too short for the link's shaper to act on.";
    }
    wrapped(&text, width)
}

/// Workloads that are named; of more their number.
const MAX_NAMED: usize = 3;

/// Names the command that prints the rest, and the other workloads, as the table would look like all
/// that was measured.
fn rest(others: &[String], command: &str, width: usize) -> String {
    let what = match tables_of(others) {
        Some(tables) => format!("More, with {tables}:"),
        None => "More:".to_owned(),
    };
    hint(&what, command, width)
}

/// `the tables of upload and page`.
fn tables_of(others: &[String]) -> Option<String> {
    let named = &others[..others.len().min(MAX_NAMED)];
    let (last, first) = named.split_last()?;
    let (first, more) = (first.join(", "), others.len() - named.len());
    Some(match more {
        0 if first.is_empty() => format!("the table of {last}"),
        0 => format!("the tables of {first} and {last}"),
        more => format!("the tables of {first}, {last} and {more} more workloads"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::{StackRecord, WorkloadRecord};

    const COMMAND: &str = "headroom lab report --full results/demo";

    /// The kept results with a row for each workload, stack and baseline.
    fn results(stacks: &[(&str, Option<&str>)], workloads: &[&str]) -> Results {
        let kept = concat!(env!("CARGO_MANIFEST_DIR"), "/../lab/tests/data/round-trips.json");
        let mut results = super::super::read_file(kept.as_ref()).expect("the kept results");
        let workload = results.plan.workloads[0].clone();
        let of_kind = |kind: &&str| WorkloadRecord { kind: (*kind).to_owned(), ..workload.clone() };
        results.plan.workloads = workloads.iter().map(of_kind).collect();
        let record = |(name, baseline): &(&str, Option<&str>)| StackRecord {
            name: (*name).to_owned(),
            baseline: baseline.map(str::to_owned),
        };
        results.plan.stacks = stacks.iter().map(record).collect();
        results.summary.clear();
        for workload in workloads {
            for (stack, baseline) in stacks {
                let pct = baseline.map(|_| -0.03);
                let row = serde_json::json!({
                    "link": results.link.name, "stack": stack, "workload": workload,
                    "size_bytes": 1024, "n": 5, "failed": 0, "mean_s": 0.1, "stddev_s": 0.001,
                    "ci95_s": null, "baseline": baseline, "overhead_n": 5, "overhead_pct": pct,
                    "overhead_ci95_pct": pct.map(|pct| [pct - 1.0, pct + 2.0]),
                    "session_mean_s": 0.2, "session_overhead_pct": pct,
                    "session_overhead_ci95_pct": pct.map(|pct| [pct - 1.0, pct + 2.0]),
                    "goodput_bps": null, "cpu_seconds": null, "limited_by": "waiting",
                    "not_shaped": false
                });
                results.summary.push(serde_json::from_value(row).expect("a row"));
            }
        }
        results
    }

    /// A text without its ends of lines.
    fn words(text: &str) -> String {
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn says_what_an_overhead_is_over() {
        let one = [("http", None), ("https", Some("http"))];
        let text = answer(&results(&one, &["download"]), COMMAND, 80);
        assert!(words(&text).contains("overhead over http with its 95 %"), "{text}");
        assert!(text.contains("\nhttps") && text.contains("+0.0 [-1.0, 2.0]"), "{text}");
        assert!(!text.contains("baseline"), "{text}");

        let two = [("http", None), ("https", Some("http")), ("ftp", None), ("ftps", Some("ftp"))];
        let text = answer(&results(&two, &["download"]), COMMAND, 80);
        assert!(text.contains("download  baseline  1 KiB, ms"), "{text}");
        assert!(text.contains("\nftps      ftp       "), "{text}");
        assert!(words(&text).contains("session times, overhead with its 95 %"), "{text}");

        let long = "headroom(cipher=none,chunk=1000,lane-ports=256)";
        let two = [(long, None), ("https", Some(long)), ("ftp", None), ("ftps", Some("ftp"))];
        let text = answer(&results(&two, &["download"]), COMMAND, 80);
        assert!(words(&text).contains("baseline (named with --full)"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");

        let text = answer(&results(&[("http", None)], &["download"]), COMMAND, 80);
        assert!(!text.contains("overhead"), "nothing is compared: {text}");
    }

    #[test]
    fn says_which_workloads_its_table_is_not_about() {
        let stacks = [("http", None), ("https", Some("http"))];
        let ends = |workloads: &[&str], end: &str| {
            let text = answer(&results(&stacks, workloads), COMMAND, 80);
            assert!(text.lines().count() <= LINES, "{text}");
            assert!(text.ends_with(&format!("\n{end}{COMMAND}\n")), "{text}");
        };
        ends(&["download"], "More: ");
        ends(&["download", "upload"], "More, with the table of upload: ");
        // one column too wide for one line
        ends(&["download", "upload", "page"], "More, with the tables of upload and page:\n  ");
        ends(
            &["download", "upload", "many", "parallel", "page", "commands"],
            "More, with the tables of upload, many, parallel and 2 more workloads:\n  ",
        );
    }
}
