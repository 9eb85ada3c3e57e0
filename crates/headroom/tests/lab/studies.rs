//! The published studies, cut as small as they say themselves: that each of them runs
//! from end to end and fills its report. Their figures say nothing at that size.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{Ground, array, text};
use headroom_testing::privileged;

#[test]
fn every_study_runs_from_end_to_end() {
    if !privileged() {
        return;
    }
    let studies = studies();
    assert_eq!(studies.len(), 5, "{studies:?}");
    let ground = Ground::new("studies");
    // Each waits for links most of its time.
    std::thread::scope(|scope| {
        for study in &studies {
            scope.spawn(|| runs_from_end_to_end(study, &ground));
        }
    });
    what_is_published_has_all_figures(&ground);
}

/// Runs one study, beside others, into the folder that they share.
fn runs_from_end_to_end(study: &Path, all: &Ground) {
    let name = name(study);
    let ground = Ground::new("study");
    // figures do not matter here, and a busy machine spoils the test of a fast link
    let mut command = ground.headroom("lab run --scale smoke --json --allow-failed-link-test");
    command.arg(study).arg("--out").arg(all.path(&format!("all/{name}")));
    let ended = ground.end_of(command);
    assert_eq!(ended.code, Some(0), "{name}: {ended}");
    ended.assert_nothing_left();
    let found: serde_json::Value = serde_json::from_str(&ended.stdout).expect("JSON");
    let has_figures = |section: &&serde_json::Value| {
        let mut values = array(section, "rows").iter().flat_map(|row| array(row, "values"));
        values.any(|value| value["measured"]["value"].is_f64())
    };
    let filled: Vec<&str> = array(&found, "sections")
        .iter()
        .filter(has_figures)
        .map(|section| text(section, "id"))
        .collect();
    assert!(!filled.is_empty(), "{name}: no section has a figure of ours");
    let reasons = array(&found, "sections").iter().filter_map(|s| s["because"].as_str());
    for because in reasons {
        assert!(!because.contains("(not measured)"), "{name}: {because}");
    }
}

/// From the archive of samples that is published the same figures come again.
fn what_is_published_has_all_figures(ground: &Ground) {
    report(ground, "all");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/publish-studies");
    run(Command::new(script).arg(ground.path("all")).arg(ground.path("published")));
    std::fs::create_dir(ground.path("again")).expect("a folder");
    let archive = ground.path("published/samples.tar.xz");
    run(Command::new("tar").arg("-xJf").arg(archive).arg("-C").arg(ground.path("again")));
    report(ground, "again");
    for name in studies().iter().map(|study| name(study)) {
        for file in ["study.csv", "study.md"] {
            let text = |folder: &str| {
                let file = ground.path(&format!("{folder}/{name}/{file}"));
                std::fs::read_to_string(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()))
            };
            assert_eq!(text("again"), text("all"), "{name}");
        }
    }
}

fn report(ground: &Ground, folder: &str) {
    let mut command = ground.headroom("lab report");
    command.arg(ground.path(folder));
    let ended = ground.end_of(command);
    assert_eq!(ended.code, Some(0), "{ended}");
}

fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}: {said}", output.status);
}

fn studies() -> Vec<PathBuf> {
    let plans = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plans/studies");
    let entries = std::fs::read_dir(&plans).expect("the studies");
    let mut studies: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    studies.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
    studies.sort();
    studies
}

fn name(study: &Path) -> String {
    study.file_stem().expect("a name").to_string_lossy().into_owned()
}
