//! `headroom lab`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use headroom_lab::application::Application;
use headroom_lab::catalogue::Entry;
use headroom_lab::custom::{Custom, reference};
use headroom_lab::plan::{CommandLine, Family, LinkBackend, NamedTestbed, Offload, Plan, Scale};
use headroom_lab::run::{self, Options, Outcome, Resumption};
use headroom_lab::study::{self, Study, StudyResults};
use headroom_lab::workload::WorkloadKind;
use headroom_lab::{Error, application, doctor, layer, workload};
use headroom_lab_host::clean;
use headroom_lab_host::privileges::Privileges;
use headroom_lab_host::programs::Program;
use headroom_lab_results::analysis::disturbance::Disturbance;
use headroom_lab_results::report;
use headroom_lab_results::report::terminal::Detail;
use headroom_lab_results::schema::Results;

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
    let expected = run::sentence_on_time(run::expected_time(&plan), &plan);
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
    let expected = run::sentence_on_time(run::expected_time(plan), plan);
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
    run::require(plan)?;
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
/// reads its plan and the `traces` of its links again, by the same paths.
fn choose_programs(
    arguments: &Run,
    needed: &[Program],
    traces: &[PathBuf],
    before: Option<bool>,
) -> anyhow::Result<()> {
    if arguments.dry_run || arguments.host_programs {
        return Ok(());
    }
    let Run { what, include, out, resume, scratch, testbed, skip_missing, .. } = arguments;
    let named = what.iter().chain(include).map(Path::new).filter(|path| path.exists());
    let others = [out, resume, scratch, testbed].into_iter().flatten().map(PathBuf::as_path);
    let traces = traces.iter().map(PathBuf::as_path);
    let paths: Vec<&Path> = named.chain(others).chain(traces).collect();
    let choice = pinned::Choice { needed, skip_missing: *skip_missing, paths: &paths, before };
    pinned::enter_if_possible(choice)
}

/// The requested study, by its file or by the folder to resume; none: a plan.
fn study_of(arguments: &Run) -> anyhow::Result<Option<(Study, Scale)>> {
    let asked = arguments.scale.as_deref();
    let asked = Scale::ALL.into_iter().find(|scale| Some(scale.name()) == asked);
    let kept = arguments.resume.as_deref().map(study::kept).transpose()?.flatten();
    match &arguments.what[..] {
        [path] if Study::is_one(Path::new(path)) => {
            let begun = kept.map(|(_, scale)| scale);
            let scale = asked.or(begun).unwrap_or(Scale::Full);
            Ok(Some((Study::read(Path::new(path))?, scale)))
        }
        [] => Ok(kept),
        _ => Ok(None),
    }
}

fn measure_study(arguments: &Run, mut study: Study, scale: Scale) -> anyhow::Result<ExitCode> {
    let plans_alone = [
        ("--repetitions", arguments.repetitions.is_some()),
        ("--minutes", arguments.minutes.is_some()),
        ("--testbed", arguments.testbed.is_some()),
        ("--only", arguments.only.is_some()),
        ("--link-backend", arguments.link_backend.is_some()),
        ("--strict", arguments.strict),
    ];
    let given = plans_alone.into_iter().find(|(_, given)| *given).map(|(name, _)| name);
    if let Some(name) = given.or(of_command_line(arguments)) {
        let sentence =
            format!("{name} applies to plans; the parts of a study define it (see --scale)");
        return Err(Error::Plan(sentence).into());
    }
    if study.parts.iter().any(|part| part.hosts.is_none()) {
        without_root(arguments.dry_run)?;
        let before = arguments.resume.as_deref().map(study::had_pinned_programs).transpose()?;
        choose_programs(arguments, &study.programs(), &study.traces(), before.flatten())?;
    }
    let options = run_options(arguments)?;
    if arguments.skip_missing {
        for sentence in study.leave_out_missing(&options) {
            eprintln!("headroom: {sentence}");
        }
    }
    let scale = if study.is_smaller_at(scale) || scale == Scale::Full {
        scale
    } else {
        let name = scale.name();
        eprintln!("headroom: no part has [part.{name}], so --scale {name} is the whole study");
        Scale::Full
    };
    if arguments.dry_run {
        return rehearse_study(&study.at_scale(scale)?, &options);
    }
    let folder = match &arguments.resume {
        Some(folder) => outside_run(std::path::absolute(folder)?)?,
        None => Folder::new(arguments.out.as_deref(), &study.name)?.path,
    };
    study::keep(&study, scale, &folder)?;
    let (parts, time) = study::remaining(&study, scale, &folder)?;
    if parts > 0 {
        eprintln!(
            "headroom: this will take about {} ({parts} of {} parts of the study remain)",
            run::rounded(time),
            study.parts.len()
        );
    }
    let outcome = {
        let bar = Bar::new();
        study::run(&study, scale, &options, &folder, arguments.allow_changed_environment, &bar)
    };
    let results = outcome.map_err(|error| {
        anyhow::Error::new(error).context(format!(
            "what was measured is kept; continue with `headroom lab run --resume {}`",
            folder.display()
        ))
    })?;
    tell_study(&results, &folder, arguments.json, Detail::of(arguments.full))?;
    let failed: usize = results.parts.iter().map(|part| part.failed).sum();
    if failed > 0 {
        let all: usize = results.parts.iter().map(|part| part.samples).sum();
        let sentence =
            format!("{failed} of {all} samples failed; the reports of the parts say why");
        return Err(Error::Failed(sentence).into());
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints how long a study and each part of it will take, then the commands of each.
fn rehearse_study(study: &Study, options: &Options) -> anyhow::Result<ExitCode> {
    let parts = &study.parts;
    warn_of_kernel(parts);
    let times: Vec<Duration> = parts.iter().map(run::expected_time).collect();
    let all = run::rounded(times.iter().sum());
    println!("# this will take about {all} in all, for {} parts:", parts.len());
    for (part, time) in parts.iter().zip(times) {
        println!("# {}: {}", part.name, run::sentence_on_time(time, part));
    }
    for part in parts {
        println!("# part {}", part.name);
        run::dry_run(part, options)?.iter().for_each(|line| println!("{line}"));
    }
    Ok(ExitCode::SUCCESS)
}

/// Says before a dry run what this machine's kernel has not loaded.
fn warn_of_kernel(plans: &[Plan]) {
    for sentence in run::not_loaded(plans) {
        eprintln!("headroom: {sentence}");
    }
}

fn tell_study(
    results: &StudyResults,
    folder: &Path,
    json: bool,
    detail: Detail,
) -> anyhow::Result<()> {
    if json {
        println!("{}", serde_json::to_string_pretty(results)?);
    } else {
        print!("{}", study::report::terminal(results, width(), detail));
        println!("Report: {}", folder.join("report.html").display());
    }
    Ok(())
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
        print!("{}", report::terminal::answer(&results, width(), print.detail));
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

fn plan(arguments: &Run, options: &Options) -> anyhow::Result<Plan> {
    let is_plan = |what: &str| what.ends_with(".toml") || Path::new(what).is_file();
    let mut plan = match &arguments.what[..] {
        [path] if path.is_empty() => {
            let sentence = "an empty argument names no plan and no stack; `headroom lab list` lists what there is";
            return Err(Error::Plan(sentence.to_owned()).into());
        }
        [path] if Path::new(path).is_dir() => {
            let sentence = format!(
                "{path} is a folder: name a plan in it, such as {}",
                Path::new(path).join("demo.toml").display()
            );
            return Err(Error::Plan(sentence).into());
        }
        [path] if is_plan(path) => {
            if let Some(name) = of_command_line(arguments) {
                return Err(Error::Plan(format!(
                    "{name} applies to names of stacks; the plan {path} defines it"
                ))
                .into());
            }
            match &arguments.testbed {
                Some(testbed) => Plan::read_on(Path::new(path), &NamedTestbed::read(testbed)?)?,
                None => Plan::read(Path::new(path))?,
            }
        }
        _ if arguments.testbed.is_some() => {
            let sentence = "--testbed applies to a plan's file: name one, such as plans/demo.toml";
            return Err(Error::Plan(sentence.to_owned()).into());
        }
        names => {
            let family = [Family::Ipv4, Family::Ipv6];
            let kinds =
                arguments.workload.iter().filter_map(|name| WorkloadKind::of(name)).collect();
            CommandLine {
                stacks: names.to_vec(),
                include: arguments.include.clone(),
                workloads: kinds,
                sizes: arguments.sizes.clone(),
                link: arguments.link.clone(),
                family: family.into_iter().find(|f| arguments.family.as_deref() == Some(f.name())),
                offload: arguments.offload.as_deref().map(|word| match word {
                    "off" => Offload::Off,
                    _ => Offload::On,
                }),
            }
            .plan()?
        }
    };
    let scale = Scale::ALL.into_iter().find(|s| arguments.scale.as_deref() == Some(s.name()));
    let is_whole = scale.filter(|&scale| scale != Scale::Full && !plan.is_smaller_at(scale));
    if let Some(scale) = scale {
        let name = plan.name.clone();
        plan = plan.at_scale(scale)?.ok_or_else(|| {
            Error::Plan(format!("the plan {name} has no version at scale {}", scale.name()))
        })?;
    }
    if let Some(repetitions) = arguments.repetitions {
        plan.set_repetitions(repetitions)?;
    }
    if let Some(name) = &arguments.link_backend {
        plan.link_backend = LinkBackend::ALL.into_iter().find(|backend| backend.name() == name);
    }
    if let Some(pattern) = &arguments.only {
        plan.keep_only(pattern)?;
    }
    if plan.hosts.is_none() {
        without_root(arguments.dry_run)?;
        let before = arguments.resume.as_deref().map(run::had_pinned_programs).transpose()?;
        choose_programs(arguments, &plan.programs(), &plan.traces(), before.flatten())?;
    }
    if let Some(name) = is_whole.map(Scale::name) {
        eprintln!("headroom: the plan has no [{name}], so --scale {name} is the whole plan");
    }
    if let Some(time) = arguments.minutes.map(minutes) {
        eprintln!("headroom: {}", run::fit(&mut plan, time)?);
    }
    if arguments.skip_missing {
        for sentence in plan.leave_out_missing(&run::machines(&plan, options)?)? {
            eprintln!("headroom: {sentence}");
        }
    }
    Ok(plan)
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

fn options(scratch: Option<PathBuf>) -> anyhow::Result<Options> {
    let interrupted = interruption()?;
    Ok(Options {
        scratch: scratch.map(std::path::absolute).transpose()?.map(outside_run).transpose()?,
        headroom: std::env::current_exe().context("cannot find this program's own file")?,
        client_version: headroom_fetch::version(),
        keep_captures: false,
        allow_failed_link_test: false,
        time: None,
        interrupted,
    })
}

fn rebuild(dir: &Path, detail: Detail) -> anyhow::Result<ExitCode> {
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
    print!("{}", report::terminal::answer(&results, width(), detail));
    println!("Report: {}", std::path::absolute(dir.join("report.html"))?.display());
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

fn list(file: Option<&Path>) -> anyhow::Result<ExitCode> {
    if let Some(file) = file {
        return list_custom(file);
    }
    println!("Applications");
    for entry in application::ALL.entries {
        list_application(entry)?;
    }
    println!(
        "\nLayers, around an application: sftp/tls, https/wireguard/openvpn, ftp/esp(transport,udp)"
    );
    for entry in layer::ALL.entries {
        list_entry(entry, "");
    }
    println!("\nYour own applications and layers: headroom lab list --own-stacks");
    println!("\nWorkloads");
    for work in &workload::ALL {
        list_line(work.kind.name(), work.about);
    }
    println!("\nPlans");
    let mut plans: Vec<PathBuf> = ["plans", "plans/studies"]
        .into_iter()
        .filter_map(|folder| std::fs::read_dir(folder).ok())
        .flat_map(|entries| entries.flatten().map(|entry| entry.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
        .collect();
    plans.sort();
    let width = plans.iter().map(|path| path.as_os_str().len()).max().unwrap_or(0) + 1;
    for path in &plans {
        let question = if Study::is_one(path) {
            Study::read(path).map(|study| study.question)
        } else {
            Plan::read(path).map(|plan| plan.question)
        };
        match question {
            Ok(question) => println!("  {:width$}{question}", path.display().to_string()),
            Err(error) => println!("  {error}"),
        }
    }
    if plans.is_empty() {
        println!("  none in ./plans");
    }
    Ok(ExitCode::SUCCESS)
}

/// Lists what a plan, a study or a file of definitions defines.
fn list_custom(file: &Path) -> anyhow::Result<ExitCode> {
    let is_plan = std::fs::read_to_string(file)
        .ok()
        .and_then(|text| text.parse::<toml::Table>().ok())
        .is_some_and(|table| table.contains_key("stacks") || table.contains_key("part"));
    let customs: Vec<Custom> = if is_plan {
        plans_of(file)?.into_iter().map(|plan| plan.custom).collect()
    } else {
        vec![Custom::read(file).map_err(Error::Plan)?]
    };
    let applications = each_once(customs.iter().flat_map(Custom::applications));
    let layers = each_once(customs.iter().flat_map(Custom::layers));
    if applications.is_empty() && layers.is_empty() {
        println!("{} defines no application and no layer", file.display());
    }
    if !applications.is_empty() {
        println!("Applications");
    }
    for entry in applications {
        list_application(entry)?;
    }
    if !layers.is_empty() {
        println!("Layers");
    }
    layers.into_iter().for_each(|entry| list_entry(entry, ""));
    Ok(ExitCode::SUCCESS)
}

/// Leaves out what looks like one before it, as parts of a study may define the same.
fn each_once<'a, T: ?Sized + 'static>(
    entries: impl Iterator<Item = &'a &'static Entry<T>>,
) -> Vec<&'static Entry<T>> {
    let mut once: Vec<&'static Entry<T>> = Vec::new();
    for entry in entries {
        if !once.iter().any(|known| (known.name, known.about) == (entry.name, entry.about)) {
            once.push(entry);
        }
    }
    once
}

fn list_application(entry: &'static Entry<dyn Application>) -> anyhow::Result<()> {
    let baseline = entry.by_default().map_err(Error::Plan)?.baselines().pop();
    let baseline = baseline.map_or(String::new(), |base| format!(" (against {base})"));
    list_entry(entry, &baseline);
    Ok(())
}

fn list_entry<T: ?Sized>(entry: &Entry<T>, more: &str) {
    list_line(entry.name, &format!("{}{more}", entry.about));
    if let Some(options) = entry.options() {
        list_line("", &format!("options: {options}"));
    }
}

/// Prints a name and its text, which is wrapped beside it.
fn list_line(name: &str, text: &str) {
    const NAMES: usize = 13;
    let wrapped = report::columns::wrapped(text, width() - NAMES);
    for (index, line) in wrapped.lines().enumerate() {
        println!("  {:11}{line}", if index == 0 { name } else { "" });
    }
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
