//! `headroom lab`.

mod list;
mod plan;
mod rebuild;
mod studies;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use headroom_lab::custom::reference;
use headroom_lab::plan::Plan;
use headroom_lab::run::{self, Options, Outcome, Resumption};
use headroom_lab::study::Study;
use headroom_lab::{Error, doctor};
use headroom_lab_host::clean;
use headroom_lab_host::command::quote;
use headroom_lab_host::privileges::Privileges;
use headroom_lab_host::programs::Program;
use headroom_lab_results::analysis::disturbance::Disturbance;
use headroom_lab_results::report;
use headroom_lab_results::report::terminal::Detail;
use headroom_lab_results::schema::Results;

use self::list::list;
use self::plan::plan;
use self::rebuild::rebuild;
use self::studies::{measure_study, study_of};
use crate::advise;
use crate::arguments::{Lab, Run};
use crate::campaign;
use crate::folder::{Folder, outside_run};
use crate::interruption::interruption;
use crate::output::width;
use crate::pinned;
use crate::progress::Bar;
use crate::runs;
use crate::user_namespace;

pub(crate) fn run(command: Lab) -> anyhow::Result<ExitCode> {
    match command {
        Lab::Doctor { plan, json, scratch } => examine(plan.as_deref(), json, scratch),
        Lab::List { own_stacks: true, .. } => {
            print!("{}", reference::text(width()));
            Ok(ExitCode::SUCCESS)
        }
        Lab::List { file, .. } => list(file.as_deref()),
        Lab::Run(arguments) => measure(&arguments),
        Lab::Campaign(arguments) => campaign::run(&arguments),
        Lab::Report { dir, full } => rebuild(&dir, Detail::of(full)),
        Lab::Compare(arguments) => runs::compare(&arguments),
        Lab::History(arguments) => runs::history(&arguments),
        #[cfg(feature = "export")]
        Lab::Export(arguments) => runs::export(&arguments),
        Lab::Advise(arguments) => advise::run(&arguments, width(), |plan| {
            measure_plan(plan, arguments.json, arguments.host_programs)
        }),
        Lab::Parts { archive } => pinned::fetch(archive),
        Lab::Clean { scratch } => remove(scratch),
    }
}

fn measure(arguments: &Run) -> anyhow::Result<ExitCode> {
    if let Some((study, scale)) = study_of(arguments)? {
        return measure_study(arguments, study, scale);
    }
    if let Some(folder) = &arguments.resume {
        return resume(arguments, folder);
    }
    let options = run_options(arguments)?;
    let plan = plan(arguments, &options)?;
    let expected = run::sentence_on_time(run::expected_time(&plan), options.time, &plan);
    if arguments.dry_run {
        warn_of_kernel(std::slice::from_ref(&plan));
        println!("# {expected}");
        for line in run::dry_run(&plan, &options)? {
            println!("{line}");
        }
        return Ok(ExitCode::SUCCESS);
    }
    let print = Print::of(arguments);
    run_plan(&plan, &options, arguments.out.as_deref(), print, &expected)
}

/// Measures a plan that was made here, with the options of a run by default.
fn measure_plan(plan: &Plan, json: bool, host_programs: bool) -> anyhow::Result<ExitCode> {
    without_root(false)?;
    let needed = plan.programs();
    let choice = pinned::Choice { needed: &needed, skip_missing: false, paths: &[], before: None };
    if !host_programs {
        pinned::enter_if_possible(choice)?;
    }
    let expected = run::sentence_on_time(run::expected_time(plan), None, plan);
    let print = Print { json, detail: Detail::of(false), strict: false };
    run_plan(plan, &options(None)?, None, print, &expected)
}

/// What a run prints at its end, and whether disturbance is an error.
#[derive(Debug, Clone, Copy)]
struct Print {
    json: bool,
    detail: Detail,
    strict: bool,
}

impl Print {
    fn of(arguments: &Run) -> Self {
        let Run { json, full, strict, .. } = *arguments;
        Self { json, detail: Detail::of(full), strict }
    }
}

fn run_plan(
    plan: &Plan,
    options: &Options,
    out: Option<&Path>,
    print: Print,
    expected: &str,
) -> anyhow::Result<ExitCode> {
    run::require(plan, options)?;
    // An hour's results must not be lost to a folder that cannot be made.
    let out = Folder::new(out, &plan.name)?;
    eprintln!("headroom: {expected}");
    let outcome = {
        let bar = Bar::new();
        run::run(plan, options, &out.path, &bar)
    };
    match outcome {
        Ok(outcome) => tell(outcome, &out.path, print),
        Err(error) => {
            out.remove();
            Err(anyhow::Error::new(error))
        }
    }
}

/// Lets an ordinary user measure on this machine: this program begins again as root of a user
/// namespace, and says so.
fn without_root(dry_run: bool) -> anyhow::Result<()> {
    user_namespace::enter_if_needed(dry_run)?;
    let is_told = dry_run || headroom_lab_parts::entered().is_some();
    if !is_told && matches!(Privileges::of_this_process(), Privileges::UserNamespace { .. }) {
        eprintln!(
            "headroom: without root, in a user namespace; the notes of the report say what differs, \
             `headroom lab doctor` what would improve it"
        );
    }
    Ok(())
}

/// Begins this program again among the pinned programs, where a run is to measure those. It then
/// reads its plan and the `traces` of its links again, by the same paths. A dry run only says which
/// programs are missing.
fn choose_programs(
    arguments: &Run,
    needed: &[Program],
    traces: &[PathBuf],
    before: Option<bool>,
) -> anyhow::Result<()> {
    if arguments.host_programs && !arguments.dry_run {
        return Ok(());
    }
    let Run { what, include, out, resume, scratch, testbed, skip_missing, .. } = arguments;
    let named = what.iter().chain(include).map(Path::new).filter(|path| path.exists());
    let others = [out, resume, scratch, testbed].into_iter().flatten().map(PathBuf::as_path);
    let traces = traces.iter().map(PathBuf::as_path);
    let paths: Vec<&Path> = named.chain(others).chain(traces).collect();
    let choice = pinned::Choice { needed, skip_missing: *skip_missing, paths: &paths, before };
    if arguments.dry_run {
        pinned::warn_of_missing(choice, arguments.host_programs);
        return Ok(());
    }
    pinned::enter_if_possible(choice)
}

/// Says before a dry run what this machine's kernel has not loaded.
fn warn_of_kernel(plans: &[Plan]) {
    for sentence in run::not_loaded(plans) {
        eprintln!("headroom: {sentence}");
    }
}

/// Resumes an interrupted run.
fn resume(arguments: &Run, folder: &Path) -> anyhow::Result<ExitCode> {
    let named = !arguments.what.is_empty();
    let changing = arguments.repetitions.is_some()
        || arguments.minutes.is_some()
        || arguments.only.is_some()
        || arguments.skip_missing
        || of_command_line(arguments).is_some();
    if changing && !named {
        let sentence = "--resume continues the plan that was started: leave out --repetitions, --minutes, --only, \
                        --skip-missing, --include, --link, --sizes, --workload, --family and --offload, or name that \
                        plan as well";
        return Err(Error::Plan(sentence.to_owned()).into());
    }
    let options = run_options(arguments)?;
    let plan = if named { Some(plan(arguments, &options)?) } else { None };
    let folder = outside_run(std::path::absolute(folder)?)?;
    if !named && run::is_on_this_machine(&folder)? {
        without_root(false)?;
        choose_programs(arguments, &[], &[], run::had_pinned_programs(&folder)?)?;
    }
    let how = Resumption {
        plan: plan.as_ref(),
        allow_changed_environment: arguments.allow_changed_environment,
    };
    let outcome = {
        let bar = Bar::new();
        run::resume(&folder, how, &options, &bar)?
    };
    match outcome {
        Some(outcome) => tell(outcome, &folder, Print::of(arguments)),
        None => {
            println!("The run in {} is complete: nothing to resume.", folder.display());
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Prints what a run found, and returns the error that ended it early.
fn tell(outcome: Outcome, folder: &Path, print: Print) -> anyhow::Result<ExitCode> {
    let Outcome { results, interrupted_by } = outcome;
    if print.json {
        println!("{}", serde_json::to_string_pretty(&results)?);
    } else {
        let command = full_command(folder);
        print!("{}", report::terminal::answer(&results, &command, width(), print.detail));
        println!("Report: {}", folder.join("report.html").display());
    }
    match interrupted_by {
        None => {
            fail_if_any_failed(&results)?;
            Ok(ExitCode::from(exit_code(print.strict, &Disturbance::of(&results.samples))))
        }
        Some(error) => Err(anyhow::Error::new(error).context(format!(
            "what was measured is kept; continue with `headroom lab run --resume {}`",
            folder.display()
        ))),
    }
}

/// The command that prints the answer of the run or study in `folder` in full, as a shell reads it.
fn full_command(folder: &Path) -> String {
    format!("headroom lab report --full {}", quote(&folder.display().to_string()))
}

/// Exit code of a run whose blocks were mostly disturbed, where `--strict` asks for it.
const DISTURBED: u8 = 4;

/// Returns the exit code of a complete run without failed samples.
fn exit_code(strict: bool, disturbance: &Disturbance) -> u8 {
    if strict && disturbance.is_severe() { DISTURBED } else { 0 }
}

/// A run with failed samples has results worth reading, and an exit code that
/// says so.
fn fail_if_any_failed(results: &Results) -> anyhow::Result<()> {
    let failed: Vec<_> = results.samples.iter().filter(|sample| !sample.ok).collect();
    let Some(first) = failed.first() else { return Ok(()) };
    let why = first.error.as_deref().unwrap_or("no reason given");
    let all = results.samples.len();
    Err(Error::Failed(format!("{} of {all} samples failed; the first: {why}", failed.len())).into())
}

/// The first option that only a run without a plan's file has.
fn of_command_line(arguments: &Run) -> Option<&'static str> {
    let options = [
        ("--include", !arguments.include.is_empty()),
        ("--link", arguments.link.is_some()),
        ("--sizes", !arguments.sizes.is_empty()),
        ("--workload", !arguments.workload.is_empty()),
        ("--family", arguments.family.is_some()),
        ("--offload", arguments.offload.is_some()),
    ];
    options.into_iter().find(|(_, given)| *given).map(|(name, _)| name)
}

fn minutes(count: u32) -> Duration {
    Duration::from_secs(60 * u64::from(count))
}

fn run_options(arguments: &Run) -> anyhow::Result<Options> {
    Ok(Options {
        keep_captures: arguments.keep_captures,
        allow_failed_link_test: arguments.allow_failed_link_test,
        // a run that is resumed does what its plan says
        time: arguments.minutes.filter(|_| arguments.resume.is_none()).map(minutes),
        ..options(arguments.scratch.clone())?
    })
}

/// Commands that stacks run, and that this build lacks.
const LACKING_COMMANDS: &[&str] = &[
    #[cfg(not(feature = "transfer"))]
    "serve",
    #[cfg(not(feature = "tunnel"))]
    "tunnel",
];

fn options(scratch: Option<PathBuf>) -> anyhow::Result<Options> {
    let interrupted = interruption()?;
    Ok(Options {
        scratch: scratch.map(std::path::absolute).transpose()?.map(outside_run).transpose()?,
        headroom: std::env::current_exe().context("cannot find this program's own file")?,
        lacking_commands: LACKING_COMMANDS,
        client_version: headroom_fetch::version(),
        keep_captures: false,
        allow_failed_link_test: false,
        time: None,
        interrupted,
    })
}

fn remove(scratch: Option<PathBuf>) -> anyhow::Result<ExitCode> {
    let parent = scratch.unwrap_or_else(std::env::temp_dir);
    let removed = clean::clean(&parent)?;
    for what in &removed {
        println!("removed {what}");
    }
    if removed.is_empty() {
        println!("nothing to remove");
    }
    Ok(ExitCode::SUCCESS)
}

fn examine(plan: Option<&Path>, json: bool, scratch: Option<PathBuf>) -> anyhow::Result<ExitCode> {
    let plans = plan.map(plans_of).transpose()?;
    if plans.as_ref().is_none_or(|plans| plans.iter().any(|plan| plan.hosts.is_none())) {
        // what it cannot do is one of the findings
        user_namespace::enter_if_needed(true)?;
    }
    let options = options(scratch)?;
    let findings = {
        let bar = Bar::new();
        match &plans {
            Some(plans) => doctor::examine_for(plans, &options, &bar),
            None => doctor::examine(&options, &bar),
        }
    };
    if json {
        println!("{}", serde_json::to_string_pretty(&findings)?);
    } else {
        for finding in &findings {
            let mark = if finding.good { "ok     " } else { "MISSING" };
            println!("{mark}  {:32}  {}", finding.what, finding.says);
        }
    }
    let vital = findings.iter().any(|finding| finding.vital && !finding.good);
    Ok(if vital { ExitCode::from(3) } else { ExitCode::SUCCESS })
}

/// The plan in a file, or the parts of the study in it.
fn plans_of(file: &Path) -> headroom_lab::Result<Vec<Plan>> {
    if Study::is_one(file) { Ok(Study::read(file)?.parts) } else { Ok(vec![Plan::read(file)?]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strict_fails_a_run_whose_blocks_were_mostly_disturbed() {
        let of = |disturbed| Disturbance {
            blocks: 4,
            disturbed,
            median_pct: Some(60.0),
            by: Vec::new(),
        };
        assert_eq!(exit_code(true, &of(3)), 4);
        assert_eq!(exit_code(true, &of(2)), 0);
        assert_eq!(exit_code(false, &of(4)), 0);
    }
}
