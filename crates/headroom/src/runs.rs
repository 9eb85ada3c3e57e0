//! `headroom lab compare`, `history` and `export`: finished runs beside each other.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use headroom_lab::Error;
use headroom_lab_results::schema::Results;
use headroom_lab_results::{analysis, report};

#[cfg(feature = "export")]
use crate::arguments::Export;
use crate::arguments::{Compare, HistoryOf};
use crate::output::width;

/// Compares runs with the first, and fails where one is slower than the limit.
pub(crate) fn compare(arguments: &Compare) -> anyhow::Result<ExitCode> {
    let first = read(&arguments.a)?;
    let others = arguments.b.iter().map(|path| read(path)).collect::<Result<Vec<_>, _>>()?;
    let comparisons = analysis::compare::compare(&first, &others);
    let named = || arguments.b.iter().map(|path| path.display().to_string()).zip(&comparisons);
    if let Some((run, _)) = named().find(|(_, comparison)| comparison.cells.is_empty()) {
        let sentence = format!(
            "{} and {run} have no cell (link, stack, workload and size) in common",
            arguments.a.display()
        );
        return Err(Error::Plan(sentence).into());
    }
    if arguments.json {
        for comparison in &comparisons {
            println!("{}", serde_json::to_string_pretty(comparison)?);
        }
    } else {
        print!("{}", report::compare::text(&comparisons, arguments.fail_above, width()));
    }
    let Some(limit) = arguments.fail_above else { return Ok(ExitCode::SUCCESS) };
    if let Some(file) = &arguments.junit {
        let named: Vec<_> = named().collect();
        let suites: Vec<_> = named.iter().map(|(run, of)| (run.as_str(), *of)).collect();
        std::fs::write(file, report::junit::text(&suites, limit))
            .with_context(|| format!("cannot write {}", file.display()))?;
    }
    let cells = || comparisons.iter().flat_map(|comparison| &comparison.cells);
    let slow = cells().filter(|cell| cell.is_slower_than(limit)).count();
    if slow > 0 {
        let all = cells().count();
        eprintln!("headroom: {slow} of {all} cells are slower by more than {limit} %");
    }
    // what was not measured is not known to be as fast
    let mut is_good = slow == 0;
    for (run, comparison) in named() {
        is_good &= comparison.broken.is_empty();
        comparison.broken.iter().for_each(|what| eprintln!("headroom: {run}: {what}"));
    }
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Reads a run; whatever is wrong with it, exit code 1 is kept for one that is too slow.
fn read(path: &Path) -> Result<Results, Error> {
    let results = if path.is_file() { report::read_file(path) } else { report::read(path) };
    results.map_err(|error| Error::Plan(error.to_string()))
}

/// Shows the runs of each plan over time.
pub(crate) fn history(arguments: &HistoryOf) -> anyhow::Result<ExitCode> {
    let runs = all_in(&arguments.folders)?;
    if let Some(moment) = &arguments.since {
        let since = analysis::since::since(&runs, moment);
        if arguments.json {
            println!("{}", serde_json::to_string_pretty(&since)?);
        } else {
            print!("{}", report::since::text(&since, width()));
        }
        return Ok(ExitCode::SUCCESS);
    }
    let histories = analysis::history::histories(runs);
    if arguments.json {
        println!("{}", serde_json::to_string_pretty(&histories)?);
        return Ok(ExitCode::SUCCESS);
    }
    let texts: Vec<String> =
        histories.iter().map(|history| report::history::text(history, width())).collect();
    print!("{}", texts.join("\n"));
    Ok(ExitCode::SUCCESS)
}

/// Writes the samples of all runs into one table.
#[cfg(feature = "export")]
pub(crate) fn export(arguments: &Export) -> anyhow::Result<ExitCode> {
    let runs = all_in(&arguments.folders)?;
    let file = &arguments.parquet;
    let doing = || format!("cannot write {}", file.display());
    let created = std::fs::File::create(file).with_context(doing)?;
    report::parquet::write(&runs, created).with_context(doing)?;
    let samples: usize = runs.iter().map(|(_, results)| results.samples.len()).sum();
    println!("{samples} samples of {} runs: {}", runs.len(), file.display());
    Ok(ExitCode::SUCCESS)
}

/// The table of all samples, in a campaign's folder.
#[cfg(feature = "export")]
const TABLE: &str = "samples.parquet";

/// Writes the samples of a campaign's runs into one table in its folder, over an earlier one; not
/// where there are none. One run after the other is read: there may be thousands.
#[cfg(feature = "export")]
pub(crate) fn write_table_of_campaign(folder: &Path) -> anyhow::Result<()> {
    let runs = found_in(folder)?;
    if runs.is_empty() {
        return Ok(());
    }
    let new = folder.join(format!(".{TABLE}.new"));
    let doing = || format!("cannot write {}", new.display());
    let created = std::fs::File::create(&new).with_context(doing)?;
    let mut table = report::parquet::SampleTable::new(created).with_context(doing)?;
    for path in &runs {
        match report::read(path) {
            Ok(results) => {
                let name = path.strip_prefix(folder).unwrap_or(path).display().to_string();
                table.add(&name, &results).with_context(doing)?;
            }
            Err(error) => eprintln!("headroom: left out: {error}"),
        }
    }
    table.finish().with_context(doing)?;
    std::fs::rename(&new, folder.join(TABLE)).with_context(doing)
}

/// Folders are searched for runs so deep: a folder of studies has their parts two below, and one of
/// a campaign its runs three below.
const DEPTH: usize = 4;

/// Reads the runs in these folders, each with its path. One of another version is left out, which
/// is said.
fn all_in(folders: &[PathBuf]) -> anyhow::Result<Vec<(String, Results)>> {
    let mut found: Vec<PathBuf> = Vec::new();
    for folder in folders {
        let runs = found_in(folder)?;
        if runs.is_empty() {
            let sentence = format!("there is no run in {}", folder.display());
            return Err(Error::Plan(sentence).into());
        }
        found.extend(runs);
    }
    let real = |path: &PathBuf| path.canonicalize().unwrap_or_else(|_| path.clone());
    found.sort_by_cached_key(real);
    found.dedup_by_key(|path| real(path));
    let read = |path: PathBuf| match report::read(&path) {
        Ok(results) => Some((path.display().to_string(), results)),
        Err(error) => {
            eprintln!("headroom: left out: {error}");
            None
        }
    };
    let all: Vec<(String, Results)> = found.into_iter().filter_map(read).collect();
    if all.is_empty() {
        return Err(Error::Plan("none of these runs can be read".to_owned()).into());
    }
    Ok(all)
}

/// Finds the runs in a folder.
fn found_in(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut level = vec![folder.to_owned()];
    for _ in 0..DEPTH {
        let mut below = Vec::new();
        for folder in &level {
            below.extend(look(folder, &mut found)?);
        }
        level = below;
    }
    found.sort_unstable();
    Ok(found)
}

/// Adds a folder that is a run, else returns the folders in it. A link could lead in a circle.
fn look(folder: &Path, runs: &mut Vec<PathBuf>) -> anyhow::Result<Vec<PathBuf>> {
    if folder.join("results.json").is_file() {
        runs.push(folder.to_owned());
        return Ok(Vec::new());
    }
    let entries = std::fs::read_dir(folder)
        .map_err(|error| Error::Plan(format!("reading {}: {error}", folder.display())))?;
    let paths = entries.flatten().map(|entry| entry.path());
    Ok(paths.filter(|path| path.is_dir() && !path.is_symlink()).collect())
}
