//! Studies of `headroom lab run`: measures their parts, and prints what they answer.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use headroom_lab::Error;
use headroom_lab::plan::Scale;
use headroom_lab::run::{self, Options};
use headroom_lab::study::{self, Study, StudyResults};
use headroom_lab_results::report::terminal::Detail;

use super::{
    choose_programs, full_command, of_command_line, run_options, warn_of_kernel, without_root,
};
use crate::arguments::Run;
use crate::folder::{Folder, outside_run};
use crate::output::width;
use crate::progress::Bar;

/// The requested study, by its file or by the folder to resume; none: a plan.
pub(super) fn study_of(arguments: &Run) -> anyhow::Result<Option<(Study, Scale)>> {
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

pub(super) fn measure_study(
    arguments: &Run,
    mut study: Study,
    scale: Scale,
) -> anyhow::Result<ExitCode> {
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
        println!("# {}: {}", part.name, run::sentence_on_time(time, None, part));
    }
    for part in parts {
        println!("# part {}", part.name);
        run::dry_run(part, options)?.iter().for_each(|line| println!("{line}"));
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) fn tell_study(
    results: &StudyResults,
    folder: &Path,
    json: bool,
    detail: Detail,
) -> anyhow::Result<()> {
    if json {
        println!("{}", serde_json::to_string_pretty(results)?);
    } else {
        print!("{}", study::report::terminal(results, &full_command(folder), width(), detail));
        println!("Report: {}", folder.join("report.html").display());
    }
    Ok(())
}
