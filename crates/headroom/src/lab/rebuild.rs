//! `headroom lab report`: makes the reports of a run, of a study or of a folder of studies again.

use std::path::Path;
use std::process::ExitCode;

use headroom_lab::{run, study};
use headroom_lab_results::report;
use headroom_lab_results::report::terminal::Detail;

use super::full_command;
use super::studies::tell_study;
use crate::output::width;

pub(super) fn rebuild(dir: &Path, detail: Detail) -> anyhow::Result<ExitCode> {
    if let Some((study, scale)) = study::kept(dir)? {
        let results = study::rebuild(&study, scale, dir)?;
        tell_study(&results, &std::path::absolute(dir)?, false, detail)?;
        return Ok(ExitCode::SUCCESS);
    }
    let is_run = dir.join(run::JOURNAL).exists() || dir.join("results.json").exists();
    if !is_run {
        let all = rebuild_studies(dir);
        if study::report::has_studies(dir) {
            let count = study::report::write_index(dir)?;
            let index = std::path::absolute(dir.join("index.html"))?;
            println!("{count} studies: {}", index.display());
            return Ok(if all { ExitCode::SUCCESS } else { ExitCode::FAILURE });
        }
    }
    let results = match run::unfinished(dir)? {
        Some(results) => results,
        None => {
            let mut results = report::read(dir)?;
            run::reanalyse(&mut results);
            results
        }
    };
    report::write(dir, &results)?;
    let folder = std::path::absolute(dir)?;
    print!("{}", report::terminal::answer(&results, &full_command(&folder), width(), detail));
    println!("Report: {}", folder.join("report.html").display());
    Ok(ExitCode::SUCCESS)
}

/// Makes the reports of all studies in the folders of `dir` again, and returns whether it
/// could; one that cannot be is told of, and no reason to miss the others.
fn rebuild_studies(dir: &Path) -> bool {
    let mut all = true;
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let home = entry.path();
        let kept = study::kept(&home);
        let rebuilt = kept.and_then(|kept| {
            kept.map(|(study, scale)| study::rebuild(&study, scale, &home)).transpose()
        });
        if let Err(error) = rebuilt {
            eprintln!("headroom: {}: {error}", home.display());
            all = false;
        }
    }
    all
}
