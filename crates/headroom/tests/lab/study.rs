//! A study from its file to its report: parts that are run, resumed and left out, what
//! the paper printed beside what was measured, and the page over several studies.

use crate::common::{Ground, array, text};
use headroom_testing::privileged;
use serde_json::Value;

const STUDY: &str = r#"
question = "What does FTPS <cost>?"
paper = "Somebody: Something"
says = "10 % at 1 KiB"
answer = "{overheads/ftps/1 KiB} at 1 KiB, {sizes/https/16 KiB} for HTTPS."
differs = ["No <b>router</b>."]
[[part]]
name = "ftp"
stacks = ["ftp", "ftps"]
repetitions = 3
[[part.workload]]
kind = "download"
sizes = ["1KiB", "16KiB"]
[part.quick]
repetitions = 2
largest = "1KiB"
count-packets = false
[[part]]
name = "http"
stacks = ["http", "https"]
repetitions = 2
[[part.workload]]
kind = "download"
sizes = ["16KiB"]
[part.quick]
skip = true
[[section]]
id = "overheads"
title = "Table 1: overheads"
paper = "It falls."
note = "Rounded."
published = "overheads.csv"
where = { kind = "ftps" }
row = "{kib} KiB"
chart = { x = "{kib}KiB", x-title = "size", y-title = "overhead, %", log-x = true, x-is-bytes = true }
[[section.column]]
id = "ftps"
title = "FTPS"
part = "ftp"
stack = "{kind}"
workload = "download"
size = "{kib}KiB"
measure = "session"
form = "overhead-pct"
published = "pct"
[[section]]
id = "sizes"
title = "Beyond"
rows = ["16 KiB"]
[[section.column]]
id = "https"
title = "HTTPS"
part = "http"
stack = "https"
workload = "download"
size = "16KiB"
measure = "packets"
"#;

#[test]
fn a_study_is_run_resumed_and_told_beside_the_paper() {
    if !privileged() {
        return;
    }
    let ground = Ground::new("study");
    std::fs::create_dir_all(ground.path("plans/published")).expect("folders");
    ground.write("plans/s.toml", STUDY);
    ground.write("plans/published/overheads.csv", "kind,kib,pct\nftps,1,10\nftps,16,5\nsftp,1,9\n");
    let quick = ground.end_of(ground.headroom("lab run plans/s.toml --scale quick --out all/s"));
    assert_eq!(quick.code, Some(0), "{quick}");
    assert!(quick.stderr.contains("this will take about"), "{quick}");
    quick.assert_nothing_left();
    let study = read(&ground, "all/s/study.json");
    let rows = array(&study["sections"][0], "rows");
    assert_eq!(rows.len(), 2, "the row of SFTP is not asked for");
    assert_eq!(rows[0]["values"][0]["published"], 10.0);
    assert!(rows[0]["values"][0]["measured"]["value"].is_f64(), "{}", rows[0]);
    assert!(rows[1]["values"][0]["measured"].is_null(), "too large at this scale");
    assert!(!text(&study, "answer").contains("HTTPS"), "a sentence without its figure: {study}");
    assert!(text(&study, "answer").contains("was not measured"), "{study}");
    assert!(quick.stdout.contains("! This is a run at the scale quick"), "{quick}");
    assert!(text(&study["sections"][0], "compared").contains("rests on 2 runs"), "{study}");
    let page = std::fs::read_to_string(ground.path("all/s/report.html")).expect("a report");
    for shown in ["scale quick", "&lt;cost&gt;", "&lt;b&gt;router", "<svg", "parts/ftp/report.html"]
    {
        assert!(page.contains(shown), "{shown}");
    }
    assert!(!page.contains("<b>router"), "what a study says is text");
    assert!(ground.path("all/s/overheads.svg").exists(), "the picture as a file");
    assert_eq!(page.matches("Not measured at this scale").count(), 1, "the section on sizes");
    let summary = std::fs::read_to_string(ground.path("all/s/study.md")).expect("a summary");
    assert!(summary.contains("](overheads.svg)") && !summary.contains("| 16 KiB | –"), "{summary}");

    // going on where everything is there measures nothing again, and needs no plan
    let samples = || std::fs::read(ground.path("all/s/parts/ftp/results.json")).expect("results");
    let before = samples();
    std::fs::rename(ground.path("plans"), ground.path("moved")).expect("plans are moved");
    std::fs::remove_file(ground.path("all/s/parts/ftp/report.html")).expect("a report");
    let again = ground.end_of(ground.headroom("lab run --resume all/s"));
    assert_eq!(again.code, Some(0), "{again}");
    assert_eq!(samples(), before, "measured again");
    assert!(!again.stderr.contains("this will take"), "of parts that are complete: {again}");
    assert!(ground.path("all/s/parts/ftp/report.html").exists(), "made again of its samples");

    // at full size there is a part more
    ground.write("all/s/study/scale", "full");
    let partly = ground.end_of(ground.headroom("lab report all/s"));
    assert_eq!(partly.code, Some(0), "{partly}");
    assert_eq!(read(&ground, "all/s/study.json")["missing"], serde_json::json!(["http"]));
    let page = std::fs::read_to_string(ground.path("all/s/report.html")).expect("a report");
    assert!(page.contains("Not measured yet: http."), "a notice");
    ground.write("all/s/study/scale", "quick");

    // a part that is gone is measured anew; another scale is another plan
    std::fs::remove_dir_all(ground.path("all/s/parts/ftp")).expect("a part");
    let nothing = ground.end_of(ground.headroom("lab report all/s"));
    assert!(nothing.stderr.contains("has no part of the study s"), "{nothing}");
    let again = ground.end_of(ground.headroom("lab run --resume all/s"));
    assert_eq!(again.code, Some(0), "{again}");
    assert_ne!(samples(), before, "not measured");
    let other = ground.end_of(ground.headroom("lab run moved/s.toml --scale full --resume all/s"));
    assert_eq!(other.code, Some(1), "{other}");
    assert!(other.stderr.contains("was measured with another plan"), "{other}");

    let index = ground.end_of(ground.headroom("lab report all"));
    assert_eq!(index.code, Some(0), "{index}");
    let index = std::fs::read_to_string(ground.path("all/index.html")).expect("an index");
    assert!(index.contains("s/report.html#overheads") && index.contains("10 % at 1 KiB"));
    let index = std::fs::read_to_string(ground.path("all/index.md")).expect("an index");
    assert!(index.contains("](s/overheads.svg)") && index.contains("](s/study.md)"), "{index}");
}

fn read(ground: &Ground, name: &str) -> Value {
    let text = std::fs::read_to_string(ground.path(name)).expect("a file of results");
    serde_json::from_str(&text).expect("JSON")
}
