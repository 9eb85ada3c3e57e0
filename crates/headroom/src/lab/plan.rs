//! The plan that the arguments of `headroom lab run` name, changed as they say.

use std::path::Path;

use headroom_lab::Error;
use headroom_lab::plan::{CommandLine, Family, LinkBackend, NamedTestbed, Offload, Plan, Scale};
use headroom_lab::run::{self, Options};
use headroom_lab::workload::WorkloadKind;

use super::{choose_programs, minutes, of_command_line, without_root};
use crate::arguments::Run;

pub(super) fn plan(arguments: &Run, options: &Options) -> anyhow::Result<Plan> {
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
        let machines = run::machines(&plan, options)?;
        for sentence in plan.leave_out_missing(&machines, options.lacking_commands)? {
            eprintln!("headroom: {sentence}");
        }
    }
    Ok(plan)
}
