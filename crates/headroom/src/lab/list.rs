//! `headroom lab list`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use headroom_lab::application::Application;
use headroom_lab::catalogue::Entry;
use headroom_lab::custom::Custom;
use headroom_lab::plan::Plan;
use headroom_lab::study::Study;
use headroom_lab::{Error, application, layer, workload};
use headroom_lab_results::report;

use crate::output::width;

pub(super) fn list(file: Option<&Path>) -> anyhow::Result<ExitCode> {
    if let Some(file) = file {
        return list_file(file);
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
        println!("  none in ./plans; headroom lab run STACK... needs none");
    }
    Ok(ExitCode::SUCCESS)
}

/// Lists what a plan, a study or a file of definitions defines.
fn list_file(file: &Path) -> anyhow::Result<ExitCode> {
    let is_plan = std::fs::read_to_string(file)
        .ok()
        .and_then(|text| text.parse::<toml::Table>().ok())
        .is_some_and(|table| table.contains_key("stacks"));
    let is_study = Study::is_one(file);
    let customs: Vec<Custom> = if is_study {
        let study = Study::read(file)?;
        for (heading, lines) in study.outline() {
            list_under(heading, &lines);
        }
        study.parts.into_iter().map(|part| part.custom).collect()
    } else if is_plan {
        let plan = Plan::read(file)?;
        list_under("Plan", &[format!("{}: {}", plan.name, plan.outline())]);
        vec![plan.custom]
    } else {
        vec![Custom::read(file).map_err(Error::Plan)?]
    };
    let applications = each_once(customs.iter().flat_map(Custom::applications));
    let layers = each_once(customs.iter().flat_map(Custom::layers));
    if applications.is_empty() && layers.is_empty() && !is_study && !is_plan {
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

/// Prints lines under a heading, wrapped; nothing without lines.
fn list_under(heading: &str, lines: &[String]) {
    if !lines.is_empty() {
        println!("{heading}");
    }
    for line in lines {
        for row in report::columns::wrapped(line, width() - 2).lines() {
            println!("  {row}");
        }
    }
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
