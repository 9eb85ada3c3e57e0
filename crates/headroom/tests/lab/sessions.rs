//! Closed loops: sessions of several clients at once, over real servers. Nothing here depends on
//! how fast the machine is.

use crate::common::browser::{browser, count, rendered, section};
use crate::common::{Ground, array, number, text};
use headroom_testing::privileged;
use serde_json::{Value, json};

const STACKS: [&str; 4] = ["http", "https/tls", "sftp", "headroom"];
const CLIENTS: [u32; 2] = [1, 3];

#[test]
fn each_client_has_one_session_after_the_other() {
    if !privileged() {
        return;
    }
    let ground = Ground::new("sessions");
    let loops = CLIENTS.map(|clients| {
        format!(
            "[[workload]]\nkind = \"sessions\"\nclients = {clients}\nseconds = 1\nsizes = [\"1KiB\"]\n"
        )
    });
    ground.write("p.toml", &format!("stacks = {STACKS:?}\nrepetitions = 2\n{}", loops.concat()));
    let results = ground.measure("p.toml");
    array(&results, "samples").iter().for_each(assert_sample);
    let cells = array(&results, "summary");
    assert_eq!(cells.len(), STACKS.len() * CLIENTS.len());
    cells.iter().for_each(|cell| assert_cell(cell, &results));
    // none of it has packets that were counted in a run of their own
    assert!(results["accounting"].is_null() && array(&results, "models").is_empty());
    for row in array(&results, "clear_text") {
        assert_eq!(row["marker_seen"], text(row, "stack") == "http", "{row}");
    }
    assert_eq!(array(&results, "clear_text").len(), STACKS.len());
    assert_reports(&ground, cells.len());
}

fn assert_sample(sample: &Value) {
    assert_eq!((&sample["ok"], &sample["error"]), (&json!(true), &Value::Null), "{sample}");
    let sessions = &sample["sessions"];
    let clients = clients_of(sample);
    assert_eq!(sessions["clients"], clients, "{sample}");
    assert_eq!((&sessions["failed"], &sessions["first_failure"]), (&json!(0), &Value::Null));
    // each client has one at least, and none ends before the time is over
    let (made, rate) = (number(sessions, "count"), number(sessions, "per_s"));
    assert!(made >= f64::from(clients) && 0.0 < rate && rate <= made, "{sample}");
    assert_eq!((number(sample, "transfers"), number(sample, "files")), (made, 1.0), "{sample}");
    let [p50, mean, max] = ["p50_s", "mean_s", "max_s"].map(|key| number(sessions, key));
    assert!(0.0 < p50 && p50 <= max && 0.0 < mean && mean <= max, "{sample}");
    assert_eq!((number(sample, "seconds"), number(sample, "process_seconds")), (p50, mean));
    if made < 100.0 {
        assert!(sessions["p99_s"].is_null(), "{sample}");
    } else {
        let p99 = number(sessions, "p99_s");
        assert!(p50 <= p99 && p99 <= max, "{sample}");
    }
    for key in ["session_seconds", "client_seconds", "phases", "wire", "tcp", "load", "fairness"] {
        assert!(sample[key].is_null(), "{key}: {sample}");
    }
    let cpu = &sample["cpu_seconds"];
    assert!(number(cpu, "client") > 0.0 && number(cpu, "server") >= 0.0, "{sample}");
    assert!(number(sample, "peak_memory_bytes") > 0.0, "{sample}");
}

fn assert_cell(cell: &Value, results: &Value) {
    let (sessions, n) = (&cell["sessions"], number(cell, "n"));
    assert_eq!(sessions["clients"], clients_of(cell), "{cell}");
    assert_eq!(number(cell, "failed"), 0.0, "{cell}");
    assert!(number(cell, "mean_s") > 0.0 && number(sessions, "per_s_mean") > 0.0, "{cell}");
    assert!(number(sessions, "count") >= n && number(sessions, "max_s") > 0.0, "{cell}");
    assert!(number(sessions, "client_cpu_mean_s") > 0.0, "{cell}");
    let of_cell = array(results, "samples").iter().filter(|sample| {
        ["stack", "workload", "size_bytes"].iter().all(|key| sample[*key] == cell[*key])
    });
    // a mean of some samples alone would be one of the faster ones
    if of_cell.clone().all(|sample| sample["sessions"]["p99_s"].is_null()) {
        assert!(sessions["p99_mean_s"].is_null(), "{cell}");
    } else if of_cell.clone().all(|sample| sample["sessions"]["p99_s"].is_number()) {
        assert!(number(sessions, "p99_mean_s") <= number(sessions, "max_s"), "{cell}");
    }
    assert!(cell["session_mean_s"].is_null() && cell["rfc6349"].is_null(), "{cell}");
}

fn clients_of(of: &Value) -> u32 {
    let named = |clients: &u32| text(of, "workload") == format!("sessions(clients={clients})");
    CLIENTS.into_iter().find(named).unwrap_or_else(|| panic!("another workload: {of}"))
}

/// All reports have the table.
fn assert_reports(ground: &Ground, cells: usize) {
    let read = |name: &str| {
        std::fs::read_to_string(ground.path("out").join(name)).expect("a file of the report")
    };
    assert!(read("summary.md").contains("| sessions | clients | size | n | sessions/s |"));
    assert!(read("results.csv").contains(",sessions,sessions_failed,sessions_per_s,"));
    let printed = ground.end_of(ground.headroom("lab report out --full"));
    assert_eq!(printed.code, Some(0), "{printed}");
    let head = printed.stdout.lines().find(|line| line.starts_with("sessions "));
    assert!(head.is_some_and(|head| head.contains("server CPU, ms")), "{printed}");
    let Some(browser) = browser() else { return };
    let page = rendered(ground, &browser, "out");
    assert_eq!((count(&page, "data-errors"), count(&page, "data-sessions")), (0, cells));
    let shown = section(&page, "sessions");
    assert!(shown.contains("99th percentile") && shown.contains("sftp"), "{shown}");
    let tag = &shown[..shown.find('>').expect("its end")];
    assert!(!tag.contains("hidden"), "{tag}");
}
