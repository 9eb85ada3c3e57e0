//! `headroom lab campaign`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use headroom_lab::Error;
use headroom_lab::campaign::{self, Campaign, JobStatus, Observer, Options, Status};
use headroom_lab::run::rounded;
use headroom_lab_results::report::columns::{aligned, wrapped};
use headroom_lab_results::report::table::Table;

use crate::arguments;
use crate::folder::outside_run;
use crate::interruption::interruption;
use crate::log::utc;
use crate::output::width;
#[cfg(feature = "export")]
use crate::runs;

/// Rounds that a dry run lists.
const LISTED: u32 = 10;

/// Runs, continues or describes a campaign.
pub(crate) fn run(arguments: &arguments::Campaign) -> anyhow::Result<ExitCode> {
    let arguments::Campaign { file, out, status, json, dry_run } = arguments;
    if *status && file.is_dir() {
        return tell(&campaign::status(file)?, *json);
    }
    let campaign = Campaign::read(file)?;
    let folder = match out {
        Some(out) => out.clone(),
        None => PathBuf::from("results").join(&campaign.name),
    };
    let folder = outside_run(std::path::absolute(folder)?)?;
    if *status {
        return tell(&campaign::status(&folder)?, *json);
    }
    let expected = expected(&campaign);
    if *dry_run {
        println!("# {expected}");
        for line in campaign.dry_run(&folder, Path::new("headroom"), LISTED) {
            println!("{line}");
        }
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!("headroom: {expected}");
    let headroom = std::env::current_exe().context("cannot find this program's own file")?;
    let options = Options { headroom, interrupted: interruption()? };
    let status = campaign::run(&campaign, &folder, &options, &Teller).map_err(|error| {
        let is_interrupted = matches!(error, Error::Interrupted);
        let error = anyhow::Error::new(error);
        if is_interrupted {
            error.context("what was measured is kept; the same command continues the campaign")
        } else {
            error
        }
    })?;
    tell(&status, false)?;
    Ok(if status.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Says how long a round takes, and whether that is too long.
fn expected(campaign: &Campaign) -> String {
    let time = campaign.expected_time_of_a_round();
    let sentence = format!("a round will take about {}, one run after the other", rounded(time));
    match campaign.time_between_rounds().filter(|between| *between < time) {
        Some(between) => format!(
            "{sentence}; the next one is due after {}, and what has not begun by then is missed",
            rounded(between)
        ),
        None => sentence,
    }
}

/// Says what happens, with the time: a campaign goes on for days.
struct Teller;

impl Observer for Teller {
    fn happened(&self, sentence: &str) {
        eprintln!("{} {sentence}", utc(jiff::Timestamp::now()));
    }

    #[cfg(feature = "export")]
    fn results_changed(&self, folder: &Path) {
        if let Err(error) = runs::write_table_of_campaign(folder) {
            eprintln!("headroom: {error:#}");
        }
    }

    #[cfg(not(feature = "export"))]
    fn results_changed(&self, _: &Path) {}
}

fn tell(status: &Status, json: bool) -> anyhow::Result<ExitCode> {
    if json {
        println!("{}", serde_json::to_string_pretty(status)?);
    } else {
        print!("{}", text(status, width()));
    }
    Ok(ExitCode::SUCCESS)
}

/// Describes a campaign for people.
fn text(status: &Status, width: usize) -> String {
    let Status { name, runs, measured, partial, missed, .. } = status;
    let state = match (status.is_going_on, status.left()) {
        (true, _) => "it is going on".to_owned(),
        (false, 0) => "it is complete".to_owned(),
        (false, _) => "it was interrupted; the command that began it continues it".to_owned(),
    };
    let mut text = wrapped(
        &format!(
            "{name}: of {runs} runs in {} rounds {measured} were measured, {partial} in part, {missed} missed, {} are \
             left; {state}.",
            status.rounds,
            status.left()
        ),
        width,
    );
    if let Some(due) = &status.next_due {
        text += &format!("Next round: {due}\n");
    }
    text += &format!("Results: {}\n\n{}", status.folder.display(), aligned(&table(&status.jobs)));
    for job in &status.jobs {
        if let Some(last) = &job.last
            && let Some(why) = &last.why
        {
            let sentence =
                format!("{}, round {}: {}: {why}", job.name(), last.round, in_words(last.outcome));
            text += &wrapped(&sentence, width);
        }
    }
    text
}

fn table(jobs: &[JobStatus]) -> Table {
    let header = ["plan", "pair", "measured", "in part", "missed", "last"];
    let rows = jobs.iter().map(|job| {
        let last = match (&job.running_since, &job.last) {
            (Some(since), _) => format!("runs since {since}"),
            (None, Some(last)) => format!("{} at {}", in_words(last.outcome), last.at),
            (None, None) => "–".to_owned(),
        };
        vec![
            job.plan.clone(),
            job.pair.clone().unwrap_or_else(|| "–".to_owned()),
            job.measured.to_string(),
            job.partial.to_string(),
            job.missed.to_string(),
            last,
        ]
    });
    Table { header: header.map(str::to_owned).to_vec(), rows: rows.collect() }
}

fn in_words(outcome: &str) -> &str {
    match outcome {
        "partial" => "measured in part",
        same => same,
    }
}

#[cfg(test)]
mod tests {
    use headroom_lab::campaign::LastRun;

    use super::*;

    #[test]
    fn a_status_for_people() {
        let job = |pair: &str, measured, missed, why: Option<&str>| JobStatus {
            plan: "demo".to_owned(),
            pair: Some(pair.to_owned()),
            measured,
            with_failures: 0,
            partial: 0,
            missed,
            last: Some(LastRun {
                round: 2,
                at: "2026-11-26T10:00:00Z".to_owned(),
                outcome: if why.is_some() { "missed" } else { "measured" },
                why: why.map(str::to_owned),
                folder: None,
            }),
            running_since: None,
        };
        let status = Status {
            name: "net".to_owned(),
            folder: "/results/net".into(),
            is_going_on: false,
            began: "2026-11-26T09:00:00Z".to_owned(),
            rounds: 28,
            runs: 56,
            measured: 3,
            partial: 0,
            missed: 1,
            next_due: Some("2026-11-26T11:00:00Z".to_owned()),
            jobs: vec![
                job("near", 2, 0, None),
                job("far", 1, 1, Some("cannot reach the server far by ssh: no\u{1b}[2J route")),
            ],
        };
        assert_eq!(
            text(&status, 100),
            "net: of 56 runs in 28 rounds 3 were measured, 0 in part, 1 missed, 52 are left; it was interrupted;\n  \
             the command that began it continues it.\n\
             Next round: 2026-11-26T11:00:00Z\n\
             Results: /results/net\n\n\
             plan  pair  measured  in part  missed  last\n\
             ───────────────────────────────────────────────────────────────────────\n\
             demo  near         2        0       0  measured at 2026-11-26T10:00:00Z\n\
             demo  far          1        0       1  missed at 2026-11-26T10:00:00Z\n\
             demo on far, round 2: missed: cannot reach the server far by ssh: no\u{fffd}[2J route\n"
        );
    }
}
