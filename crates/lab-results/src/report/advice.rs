//! Advice for a link on the terminal, and the back-test behind it.

use headroom_units as units;

use super::columns::{aligned, wrapped};
use super::table::Table;
use crate::analysis::advise::advice::{Advice, Question, Ranked};
use crate::analysis::advise::back_test::{self, Row, Score};

/// The most stacks that are listed.
const MAX_SHOWN: usize = 12;

/// Says which stacks are the fastest, and what that rests on; `settle` is the command that
/// measures it, `arithmetic` asks for the sums.
pub fn text(advice: &Advice, settle: &str, arithmetic: bool, width: usize) -> String {
    let mut text = wrapped(&format!("{}: {}", task(&advice.question), verdict(advice)), width);
    text.push('\n');
    let header = ["rank", "stack", "time", "95 % of sessions take"];
    let shown = || advice.stacks.iter().take(MAX_SHOWN);
    let rows = shown().map(row).collect();
    text += &aligned(&Table { header: header.map(str::to_owned).to_vec(), rows });
    if advice.stacks.len() > MAX_SHOWN {
        text += &format!("{} more: --json\n", advice.stacks.len() - MAX_SHOWN);
    }
    if arithmetic {
        text.push('\n');
        shown().for_each(|stack| text += &wrapped(&sum(stack, &advice.question), width));
    }
    text.push('\n');
    if shown().any(|stack| stack.tied) {
        text += &wrapped(
            "= is a tie: the 95 % interval of the ratio of the stack's time to that of the first of its rank includes \
             1, and their own intervals overlap.",
            width,
        );
    }
    let each: Vec<&str> =
        shown().filter(|one| one.session_for_each_file).map(|one| one.stack.as_str()).collect();
    if !each.is_empty() {
        let sentence =
            format!("Folders were not measured with {}: a session for each file.", each.join(", "));
        text += &wrapped(&sentence, width);
    }
    if let Some(largest) = advice.largest_measured {
        let sentence = format!(
            "The largest measured file had {}: what is longer is taken to pass at the same rate.",
            units::chosen_size(largest)
        );
        text += &wrapped(&sentence, width);
    }
    if let Some(largest) = advice.largest_folder {
        let sentence = format!(
            "The largest measured folder had {largest} files: a stack that waits for each is taken to go on so, one \
             that does not to send the others at the rate."
        );
        text += &wrapped(&sentence, width);
    }
    if !advice.left_out.is_empty() {
        let all = advice.left_out.iter().map(|left| format!("{} ({})", left.stack, left.why));
        let all = all.collect::<Vec<_>>().join(", ");
        text += &shortened(&format!("Left out: {all}."), width, 4);
    }
    text += &shortened(&basis(advice), width, 4);
    text + &wrapped(&format!("Measure it: {settle}"), width)
}

/// `2000 files of 1 MiB over 200 Mbit/s, 30 ms round-trip time, 0.1 % loss`.
fn task(question: &Question) -> String {
    let files = match question.files {
        1 => units::chosen_size(question.bytes),
        count => format!("{count} files of {}", units::chosen_size(question.bytes)),
    };
    let loss = match question.loss {
        loss if loss > 0.0 => format!("{} % loss", units::three(100.0 * loss)),
        _ => "no loss".to_owned(),
    };
    format!(
        "{files} over {}, {} round-trip time, {loss}",
        units::rate(question.rate_bps),
        units::seconds(question.rtt_s)
    )
}

fn verdict(advice: &Advice) -> String {
    let first: Vec<&Ranked> = advice.stacks.iter().filter(|stack| stack.rank == 1).collect();
    let names: Vec<&str> = first.iter().map(|stack| stack.stack.as_str()).collect();
    let next = advice.stacks.iter().find(|stack| stack.rank > 1);
    let more = next.map_or_else(String::new, |next| {
        let pct = 100.0 * (next.predicted_s / first[0].predicted_s - 1.0);
        format!("; next is {}, which takes {} % longer", next.stack, units::three(pct.round()))
    });
    match &names[..] {
        [one] => format!("use {one}{more}."),
        all => format!("{} tie{more}.", all.join(", ")),
    }
}

fn row(stack: &Ranked) -> Vec<String> {
    let [lo, hi] = stack.interval_s;
    let in_clear = if stack.in_clear == Some(true) { " (in clear)" } else { "" };
    vec![
        format!("{}{}", stack.rank, if stack.tied { "=" } else { "" }),
        format!("{}{in_clear}", stack.stack),
        units::seconds(stack.predicted_s),
        format!("{} to {}", units::seconds(lo), units::seconds(hi)),
    ]
}

/// `http: 2 round trips × 30 ms = 60 ms, work 1 ms, 1.06 MB at …`.
fn sum(stack: &Ranked, question: &Question) -> String {
    let of = &stack.arithmetic;
    let mut parts = vec![
        format!(
            "{} round trips × {} = {}",
            units::three(of.round_trips),
            units::seconds(question.rtt_s),
            units::seconds(of.round_trips_s)
        ),
        format!("work {}", units::seconds(of.work_s)),
        format!(
            "{} MB on the link {}",
            units::three(of.line_bytes / 1e6),
            units::seconds(of.sending_s)
        ),
    ];
    if of.slow_start_s > 0.0 {
        parts.push(format!("slow start {}", units::seconds(of.slow_start_s)));
    }
    if question.loss > 0.0 {
        parts.push(format!("losses {} (median)", units::seconds(of.losses_s)));
    }
    format!("{}: {} = {}", stack.stack, parts.join(" + "), units::seconds(of.total_s))
}

fn basis(advice: &Advice) -> String {
    let date = advice.started.split('T').next().unwrap_or_default();
    let intervals = if advice.foreign_intervals {
        " The run has too few links for intervals: they are those of the shipped back-test."
    } else {
        ""
    };
    format!(
        "Rests on the run of plan {} of {date} ({}); headroom {}, {}.{intervals}",
        advice.plan,
        advice.machine,
        advice.headroom,
        advice.programs.join(", ")
    )
}

/// A sentence in so many lines at most.
fn shortened(sentence: &str, width: usize, lines: usize) -> String {
    let text = wrapped(sentence, width);
    if text.lines().count() <= lines {
        return text;
    }
    let kept: Vec<&str> = text.lines().take(lines).collect();
    let kept = kept.join("\n");
    let kept = kept.rsplit_once(' ').map_or(kept.as_str(), |(kept, _)| kept);
    format!("{kept} … (all of it: --json)\n")
}

/// The back-test of a run: errors and coverage link by link, and of both kinds of links.
pub fn back_test(rows: &[Row], width: usize) -> String {
    let header = ["link", "cells", "median error", "largest error", "in 95 % intervals"];
    let mut links: Vec<&str> = rows.iter().map(|row| row.link.as_str()).collect();
    links.dedup();
    let mut table: Vec<Vec<String>> = Vec::new();
    let mut add = |name: &str, score: Option<Score>| {
        let Some(score) = score else { return };
        let coverage = score.coverage_pct.map_or_else(
            || "–".to_owned(),
            |pct| format!("{} % of {}", units::three(pct), score.samples),
        );
        table.push(vec![
            name.to_owned(),
            score.cells.to_string(),
            format!("{} %", units::three(score.median_pct)),
            format!("{} %", units::three(score.largest_pct)),
            coverage,
        ]);
    };
    for link in links {
        add(link, back_test::score(rows.iter().filter(|row| row.link == link)));
    }
    add("all without loss", back_test::score(rows.iter().filter(|row| !row.lossy)));
    add("all with loss", back_test::score(rows.iter().filter(|row| row.lossy)));
    let mut text = aligned(&Table { header: header.map(str::to_owned).to_vec(), rows: table });
    text.push('\n');
    text + &wrapped(
        "Each link is predicted from all others. Error: of the median session of a stack, number of files and size. In \
         intervals: measured samples inside their 95 % prediction interval.",
        width,
    )
}
