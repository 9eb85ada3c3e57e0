//! A run that is cut, anywhere and by anything, keeps what it has measured and
//! says that it is not all; continued, it ends with what it would have had.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;

use crate::common::{Ended, Ground, array, processes_with, text, wait_for};
use headroom_testing::privileged;
use nix::sys::signal::{Signal, kill};
use serde_json::Value;

/// Two workloads of two stacks: eight blocks.
const PLAN: &str = "stacks = [\"http\", \"ftp\"]\nrepetitions = 4\nseed = 7\n\
                    [[workload]]\nkind = \"download\"\nsizes = [\"1KiB\"]\n\
                    [[workload]]\nkind = \"upload\"\nsizes = [\"1KiB\"]\n";
const GROUPS: usize = 2;
const BLOCKS: usize = 8;

#[test]
fn interrupted_then_resumed_it_is_the_same_run() {
    if !privileged() {
        return;
    }
    let ground = Ground::new("resume");
    ground.write("p.toml", PLAN);
    let whole = ground.measure("p.toml");
    assert_whole(&whole);
    std::fs::rename(ground.path("out"), ground.path("whole")).expect("moved");

    let mut run = ground.start(ground.headroom("lab run p.toml --out out"));
    run.until_block(3);
    run.signal(Signal::SIGINT);
    let ended = run.end();
    ended.assert_says(130, &["interrupted", "lab run --resume", "/out`"]);
    ended.assert_nothing_left();
    let cut = ground.results();
    assert_marked(&ground, &ended, &cut, "it was interrupted");
    assert!(measured(&cut) >= 3 && order(&cut).len() < BLOCKS, "{}", measured(&cut));
    let rebuilt = ground.end_of(ground.headroom("lab report out"));
    assert_eq!(rebuilt.code, Some(0), "{rebuilt}");
    assert_marked(&ground, &rebuilt, &ground.results(), "it was interrupted");

    let other = PLAN.replace("repetitions = 4", "repetitions = 5").replace("= 7", "= 8");
    ground.write("other.toml", &other);
    let refused = ground.end_of(ground.headroom("lab run other.toml --resume out"));
    refused
        .assert_says(2, &["another plan", "repetitions: 5 instead of 4", "seed: 8 instead of 7"]);
    refused.assert_nothing_started();
    let refused = ground.end_of(ground.headroom("lab run p.toml --out out"));
    refused.assert_says(2, &["is not empty", "--resume"]);
    refused.assert_nothing_started();

    let resumed = ground.end_of(ground.headroom("lab run p.toml --resume out"));
    assert_eq!(resumed.code, Some(0), "{resumed}");
    resumed.assert_nothing_left();
    let results = ground.results();
    assert_whole(&results);
    assert_kept(&cut, &results);
    assert_eq!(order(&results), order(&whole), "the order is the seed's");
    assert_eq!(results["resumed"][0]["blocks_before"].as_u64(), Some(measured(&cut) as u64));
    assert!(array(&results, "warnings").iter().any(|w| w.to_string().contains("continued 1 time")));
    assert!(!ground.path("out/journal.jsonl").exists(), "nothing is left to be continued");

    let again = ground.end_of(ground.headroom("lab run --resume out"));
    assert_eq!(again.code, Some(0), "{again}");
    assert!(again.stdout.contains("is complete: nothing to resume"), "{again}");
    again.assert_nothing_started();
}

#[test]
fn killed_then_reported_then_resumed() {
    if !privileged() {
        return;
    }
    let ground = Ground::new("sigkill");
    ground.write("p.toml", PLAN);
    let mut run = ground.start(ground.headroom("lab run p.toml --out out"));
    run.until_block(2);
    let second = ground.end_of(ground.headroom("lab run --resume out"));
    second.assert_says(2, &["still going on"]);
    let looked = ground.end_of(ground.headroom("lab report out"));
    assert_eq!(looked.code, Some(0), "{looked}");
    assert_marked(&ground, &looked, &ground.results(), "it is still going on");
    let id = run.id().expect("a run");
    run.signal(Signal::SIGKILL);
    assert_eq!(run.end().code, None);
    let name = [format!("headroom-{id}")];
    wait_for("the end of servers and agents", || processes_with(&name).is_empty());

    let reported = ground.end_of(ground.headroom("lab report out"));
    assert_eq!(reported.code, Some(0), "{reported}");
    let cut = ground.results();
    assert_marked(&ground, &reported, &cut, "its process was killed");

    // as if the machine had gone down in the middle of a line
    let journal = std::fs::read_to_string(ground.path("out/journal.jsonl")).expect("a journal");
    let whole_lines = &journal[..=journal.rfind('\n').expect("lines")];
    let copied = |name: &str, text: &str| {
        std::fs::create_dir(ground.path(name)).expect("a folder");
        ground.write(&format!("{name}/journal.jsonl"), text);
    };
    let lines: Vec<&str> = whole_lines.lines().collect();
    let damaged = whole_lines.replacen(lines[2], &lines[2][..lines[2].len() / 2], 1);
    copied("damaged", &damaged);
    for command in ["lab report damaged", "lab run --resume damaged"] {
        let ended = ground.end_of(ground.headroom(command));
        ended.assert_says(2, &["damaged/journal.jsonl, line 3:", "was damaged"]);
        ended.assert_nothing_started();
    }
    assert!(!ground.path("damaged/results.json").exists());
    let kernel = text(&cut["environment"], "kernel");
    copied("moved", &whole_lines.replacen(kernel, "2.4.0", 1));
    let refused = ground.end_of(ground.headroom("lab run --resume moved"));
    refused
        .assert_says(2, &["another machine", "kernel", "`2.4.0`", "--allow-changed-environment"]);
    refused.assert_nothing_left();

    let file = OpenOptions::new().append(true).open(ground.path("out/journal.jsonl"));
    file.and_then(|mut file| file.write_all(b"{\"block\":{\"link\":0,\"rou")).expect("torn");
    let resumed = ground.end_of(ground.headroom("lab run --resume out"));
    assert_eq!(resumed.code, Some(0), "{resumed}");
    assert_whole(&ground.results());
    assert_kept(&cut, &ground.results());

    let mixed =
        ground.end_of(ground.headroom("lab run --resume moved --allow-changed-environment"));
    assert_eq!(mixed.code, Some(0), "{mixed}");
    assert!(mixed.stdout.contains("2.4.0"), "the reader is told: {mixed}");
}

#[test]
fn a_dead_server_cuts_a_run_and_the_rest_is_done_later() {
    if !privileged() {
        return;
    }
    let ground = Ground::new("server");
    let plan = PLAN.replace("\"http\", ", "");
    ground.write("p.toml", &plan);
    let mut run = ground.start(ground.headroom("lab run p.toml --out out"));
    run.until_block(1);
    for pid in run.processes("server", "pure-ftpd") {
        let _ = kill(pid, Signal::SIGKILL); // a session's process may have ended by itself
    }
    let ended = run.end();
    ended.assert_says(1, &["the ftp server ended", "signal: 9", "--resume"]);
    ended.assert_nothing_left();
    let cut = ground.results();
    assert_marked(&ground, &ended, &cut, "the ftp server ended");
    let resumed = ground.end_of(ground.headroom("lab run --resume out"));
    assert_eq!(resumed.code, Some(0), "{resumed}");
    resumed.assert_nothing_left();
    assert_whole(&ground.results());
    assert_kept(&cut, &ground.results());
}

#[test]
fn cut_while_packets_are_counted_no_time_is_measured_again() {
    if !privileged() {
        return;
    }
    let ground = Ground::new("counted");
    ground.write("p.toml", &PLAN.replace("= 4", "= 2"));
    let mut run = ground.start(ground.headroom("--verbose lab run p.toml --out out"));
    // offloads are off for the clear-text check, on for the transfers, off for the counting
    run.until("the counting", |run| {
        let said = run.said();
        said.find("tso on").filter(|&on| said[on..].contains("tso off"))
    });
    run.signal(Signal::SIGINT);
    let ended = run.end();
    ended.assert_says(130, &["interrupted"]);
    let cut = ground.results();
    assert_eq!(cut["complete"], false);
    assert!(array(&cut, "samples").iter().any(|sample| sample["wire"].is_null()));

    let resumed = ground.end_of(ground.headroom("lab run --resume out"));
    assert_eq!(resumed.code, Some(0), "{resumed}");
    let results = ground.results();
    assert_eq!(array(&results, "samples").len(), array(&cut, "samples").len());
    assert_kept(&cut, &results);
    assert!(array(&results, "samples").iter().all(|sample| sample["wire"].is_object()));
}

/// The results say that they are not all, and why, wherever they are read.
fn assert_marked(ground: &Ground, ended: &Ended, results: &Value, why: &str) {
    assert_eq!(results["complete"], false);
    assert!(text(results, "ended").contains(why), "{}", results["ended"]);
    let first = array(results, "warnings")[0].as_str().expect("a sentence");
    assert!(first.starts_with("This run is not complete: ") && first.contains(why), "{first}");
    assert!(ended.stdout.starts_with("This run is not complete"), "{ended}");
    for file in ["summary.md", "report.html"] {
        let content = std::fs::read_to_string(ground.path("out").join(file)).expect("a report");
        assert!(content.contains("This run is not complete"), "{file}");
    }
}

/// Every block of the plan is there once, and what was spoilt by background load
/// once more where that is allowed.
fn assert_whole(results: &Value) {
    assert_eq!((&results["complete"], &results["ended"]), (&Value::Bool(true), &Value::Null));
    assert_eq!(order(results).len(), BLOCKS);
    for workload in ["download", "upload"] {
        let of_workload = order(results).into_iter().filter(|block| block[0].0 == workload);
        assert_eq!(of_workload.count(), BLOCKS / GROUPS, "{workload}");
    }
    for sample in array(results, "samples") {
        assert!(sample["ok"] == true && sample["wire"].is_object(), "{sample}");
    }
}

/// What was measured before is there as it was; packets may be counted since, and
/// what is an outlier is judged by all samples.
fn assert_kept(before: &Value, after: &Value) {
    let times = |results: &Value| -> Vec<Value> {
        let samples = array(results, "samples").iter().cloned();
        let strip = |mut sample: Value| {
            for later in ["wire", "outlier"] {
                sample[later] = Value::Null;
            }
            sample
        };
        samples.map(strip).collect()
    };
    let (before, after) = (times(before), times(after));
    assert_eq!(before, after[..before.len()]);
}

/// How many blocks there are, repeated ones among them.
fn measured(results: &Value) -> usize {
    let numbers = array(results, "samples").iter().map(|sample| sample["block"].as_u64());
    numbers.collect::<std::collections::BTreeSet<_>>().len()
}

/// The blocks in their order, each a list of workload and stack. One block may be
/// repeated for background load (a fifth of eight): the first that was spoilt.
fn order(results: &Value) -> Vec<Vec<(String, String)>> {
    let mut blocks: Vec<Vec<(String, String)>> = vec![Vec::new(); measured(results)];
    let mut spoilt: Option<usize> = None;
    for sample in array(results, "samples") {
        let number = sample["block"].as_u64().expect("a number") as usize;
        let name = |key: &str| text(sample, key).to_owned();
        blocks[number].push((name("workload"), name("stack")));
        if sample["disturbed"].is_string() {
            spoilt = Some(spoilt.map_or(number, |first| first.min(number)));
        }
    }
    if let Some(repeated) = spoilt.map(|first| first + 1).filter(|&number| number < blocks.len()) {
        let before: std::collections::BTreeSet<_> = blocks[repeated - 1].iter().collect();
        assert_eq!(before, blocks[repeated].iter().collect(), "a spoilt block is repeated");
        blocks.remove(repeated);
    }
    blocks
}

#[test]
fn a_folder_that_holds_no_run_cannot_be_continued() {
    let ground = Ground::new("stranger");
    std::fs::create_dir(ground.path("out")).expect("a folder");
    ground.write("out/journal.jsonl", "");
    let ended = ground.end_of(ground.headroom("lab run --resume out"));
    ended.assert_says(2, &["journal.jsonl is empty"]);
    assert!(Path::new(&ground.path("out/journal.jsonl")).exists());
}
