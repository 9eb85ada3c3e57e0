//! The published studies, cut as small as they say themselves: that each of them runs
//! from end to end and fills its report. Their figures say nothing at that size.

mod common;

use std::path::Path;

use common::{Ground, array, text};
use headroom_testing::privileged;

#[test]
fn every_study_runs_from_end_to_end() {
    if !privileged() {
        return;
    }
    let plans = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plans/studies");
    let entries = std::fs::read_dir(&plans).expect("the studies");
    let mut studies: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    studies.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
    studies.sort();
    assert_eq!(studies.len(), 5, "{studies:?}");
    let ground = Ground::new("studies");
    for study in studies {
        let name = study.file_stem().expect("a name").to_string_lossy().into_owned();
        let mut command = ground.headroom("lab run --scale cut --json");
        command.arg(&study).arg("--out").arg(ground.path(&format!("all/{name}")));
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
    }
}
