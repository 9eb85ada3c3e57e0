//! `headroom lab compare`, `history` and `export`: finished runs beside each other. Needs no privilege.

use crate::common::Ground;
use crate::common::made_up::results;
use serde_json::{Value, json};

#[test]
fn a_run_that_is_slower_beyond_doubt_fails_and_no_other() {
    let ground = Ground::new("compare");
    let write = |name: &str, results: &Value| {
        std::fs::create_dir(ground.path(name)).expect("a folder");
        ground.write(&format!("{name}/results.json"), &results.to_string());
    };
    let run = |arguments: &str| ground.end_of(ground.headroom(arguments));
    write("a", &results([1.0, 1.01, 0.99, 1.02, 0.98], "6.1"));
    write("same", &results([0.98, 1.02, 0.99, 1.01, 1.0], "6.1"));
    write("slow", &results([1.2, 1.21, 1.19, 1.22, 1.18], "6.2"));
    write("wild", &results([0.6, 2.6, 0.7, 2.5, 1.2], "6.1"));

    let same = run("lab compare a same --fail-above 5%");
    assert_eq!(same.code, Some(0), "{same}");
    // a path to the file is as good as its folder
    let slow = run("lab compare a slow/results.json --fail-above 5%");
    assert_eq!(slow.code, Some(1), "{slow}");
    for fragment in [
        "kernel differs: 6.1 in A, 6.2 in B",
        "http download 1 KiB on unshaped",
        "TOO SLOW",
        "+20 %",
    ] {
        assert!(slow.stdout.contains(fragment), "`{fragment}` is not in {slow}");
    }
    assert!(slow.stderr.contains("1 of 1 cells"), "{slow}");
    assert_eq!(run("lab compare a slow").code, Some(0), "no limit, no failure");
    assert_eq!(run("lab compare a slow --fail-above 25%").code, Some(0));
    assert_eq!(run("lab compare slow a --fail-above 5%").code, Some(0), "faster is not slower");
    // slower on average, but it may be chance
    let wild = run("lab compare a wild --fail-above 5%");
    assert_eq!(wild.code, Some(0), "{wild}");

    // what failed, or was never measured, is not as fast
    let mut failing = results([1.0, 1.01, 0.99, 1.02, 0.98], "6.1");
    failing["samples"][2]["ok"] = json!(false);
    failing["samples"][2]["error"] = json!("connection reset");
    write("failing", &failing);
    let mut cut = results([1.0, 1.01, 0.99, 1.02, 0.98], "6.1");
    (cut["complete"], cut["ended"]) = (json!(false), json!("it was interrupted"));
    write("cut", &cut);
    for (b, words) in [("failing", "1 of 5 failed in the second run"), ("cut", "not complete")] {
        let broken = run(&format!("lab compare a {b} --fail-above 5%"));
        assert_eq!(broken.code, Some(1), "{broken}");
        assert!(broken.stderr.contains(words), "{broken}");
    }
    assert_eq!(run("lab compare failing a --fail-above 5%").code, Some(0));

    let printed = run("lab compare a slow --fail-above 5% --json");
    assert_eq!(printed.code, Some(1), "{printed}");
    let printed: Value = serde_json::from_str(&printed.stdout).expect("JSON");
    let pct = printed["cells"][0]["change"]["pct"].as_f64().expect("a change");
    assert!((pct - 20.0).abs() < 0.5, "{pct}");
}

#[test]
fn what_cannot_be_compared() {
    let ground = Ground::new("incomparable");
    let good = results([1.0, 1.0, 1.0, 1.0, 1.0], "6.1");
    ground.write("good.json", &good.to_string());
    let mut other = good.clone();
    other["samples"][0]["stack"] = json!("ftp");
    other["samples"].as_array_mut().expect("samples").truncate(1);
    ground.write("other.json", &other.to_string());
    ground.write("old.json", "{\"schema\": 1}");
    ground.write("torn.json", "{\"schema\": 2, ");
    for (arguments, fragment) in [
        ("lab compare good.json", "<B>"),
        ("lab compare good.json absent", "absent"),
        ("lab compare good.json old.json", "schema 1"),
        ("lab compare good.json torn.json", "torn.json"),
        ("lab compare good.json other.json", "in common"),
        ("lab compare good.json good.json --fail-above 5", "not a percentage"),
    ] {
        let ended = ground.end_of(ground.headroom(arguments));
        ended.assert_says(2, &[fragment]);
    }
}

#[test]
fn several_runs_are_compared_with_the_first_and_a_ci_reads_the_outcome() {
    let ground = Ground::new("compare-many");
    for (name, seconds) in [
        ("a", [1.0, 1.01, 0.99, 1.02, 0.98]),
        ("same", [0.98, 1.02, 0.99, 1.01, 1.0]),
        ("slow", [1.2, 1.21, 1.19, 1.22, 1.18]),
    ] {
        ground.write(&format!("{name}.json"), &results(seconds, "6.1").to_string());
    }
    let run = |arguments: &str| ground.end_of(ground.headroom(arguments));
    let many = run("lab compare a.json same.json slow.json --fail-above 5% --junit ci.xml");
    assert_eq!(many.code, Some(1), "{many}");
    for fragment in ["B against A", "C against A", "TOO SLOW", "http download 1 KiB on unshaped"] {
        assert!(many.stdout.contains(fragment), "`{fragment}` is not in {many}");
    }
    assert!(many.stderr.contains("1 of 2 cells"), "{many}");
    let written = std::fs::read_to_string(ground.path("ci.xml")).expect("a file");
    for fragment in [
        "<testsuite name=\"same.json\" tests=\"1\" failures=\"0\" errors=\"0\" skipped=\"0\">",
        "<testsuite name=\"slow.json\" tests=\"1\" failures=\"1\" errors=\"0\" skipped=\"0\">",
        "<failure message=\"slower by more than 5 %: +20.0 %",
    ] {
        assert!(written.contains(fragment), "`{fragment}` is not in {written}");
    }
    run("lab compare a.json same.json --junit ci.xml").assert_says(2, &["--fail-above"]);
}

#[test]
fn connecting_and_logging_in_is_part_of_what_is_compared() {
    let ground = Ground::new("compare-sessions");
    let mut run = results([1.0, 1.01, 0.99, 1.02, 0.98], "6.1");
    ground.write("a.json", &run.to_string());
    for sample in run["samples"].as_array_mut().expect("samples") {
        let session = sample["session_seconds"].as_f64().expect("a time");
        sample["session_seconds"] = json!(3.0 * session);
    }
    ground.write("slow.json", &run.to_string());
    let ended = ground.end_of(ground.headroom("lab compare a.json slow.json --fail-above 5%"));
    assert_eq!(ended.code, Some(1), "transfers are the same, sessions are not: {ended}");
    assert!(ended.stdout.contains("+200 %"), "{ended}");
    // and a run that others disturbed says so
    for sample in run["samples"].as_array_mut().expect("samples") {
        sample["disturbed"] = json!("background load 50 %");
    }
    ground.write("busy.json", &run.to_string());
    let ended = ground.end_of(ground.headroom("lab compare a.json busy.json"));
    assert!(ended.stdout.contains("B: 5 of 5 blocks were disturbed"), "{ended}");
}

/// Runs of a plan on days after each other, in a folder each.
fn write_history(ground: &Ground, seconds: &[f64]) {
    for (day, seconds) in (1..).zip(seconds) {
        let kernel = if day < 7 { "6.1" } else { "6.2" };
        let mut run = results([0.99, 1.0, 1.01, 1.02, 0.98].map(|of| of * seconds), kernel);
        run["environment"]["started"] = json!(format!("2026-11-{day:02}T10:00:00Z"));
        std::fs::create_dir_all(ground.path(&format!("results/{day:02}"))).expect("a folder");
        ground.write(&format!("results/{day:02}/results.json"), &run.to_string());
    }
}

#[test]
fn a_history_says_what_changed_since_which_run_and_what_else_changed() {
    let ground = Ground::new("history");
    write_history(&ground, &[1.0, 1.01, 0.99, 1.0, 1.02, 0.98, 1.2, 1.21, 1.19, 1.2]);
    let run = |arguments: &str| ground.end_of(ground.headroom(arguments));
    let shown = run("lab history results");
    assert_eq!(shown.code, Some(0), "{shown}");
    for fragment in [
        "p: 10 runs, 2026-11-01 to 2026-11-10. The time of 1 of 1 cells changed.",
        "Since 2026-11-07T10:00:00Z (results/07):",
        "http download 1 KiB on unshaped: +20",
        "kernel differs: 6.1 in A, 6.2 in B.",
    ] {
        assert!(shown.stdout.contains(fragment), "`{fragment}` is not in {shown}");
    }
    let printed = run("lab history results --json");
    let printed: Value = serde_json::from_str(&printed.stdout).expect("JSON");
    assert_eq!(printed[0]["cells"][0]["changes"][0]["run"], 6);

    let since = run("lab history results --since 2026-11-07");
    assert_eq!(since.code, Some(0), "{since}");
    let found = "of 1 cells 0 became slower and 0 faster";
    assert!(since.stdout.replace("\n  ", " ").contains(found), "{since}");
    assert!(since.stdout.contains("too few runs"), "four runs since: {since}");
    let since = run("lab history results --since 2026-11-06T12:00:00Z --json");
    let since: Value = serde_json::from_str(&since.stdout).expect("JSON");
    assert_eq!(since["runs"], json!([6, 4]));
    assert_eq!(since["cells"][0]["change"]["n"], json!([6, 4]));
    run("lab history results --since yesterday").assert_says(2, &["is not a time"]);

    // one that cannot be read is no reason to miss the others
    ground.write("results/03/results.json", "{\"schema\": 1}");
    let shown = run("lab history results");
    assert!(shown.stderr.contains("left out") && shown.stdout.contains("p: 9 runs"), "{shown}");
    run("lab history nowhere").assert_says(2, &["nowhere"]);
    std::fs::create_dir(ground.path("empty")).expect("a folder");
    run("lab history empty").assert_says(2, &["there is no run in empty"]);
}

#[test]
fn an_export_has_the_samples_of_all_runs() {
    let ground = Ground::new("export");
    write_history(&ground, &[1.0, 1.1, 1.2]);
    let run = |arguments: &str| ground.end_of(ground.headroom(arguments));
    let written = run("lab export results --parquet samples.parquet");
    assert_eq!(written.code, Some(0), "{written}");
    assert!(written.stdout.contains("15 samples of 3 runs"), "{written}");
    let file = std::fs::read(ground.path("samples.parquet")).expect("a file");
    assert!(file.starts_with(b"PAR1") && file.ends_with(b"PAR1"), "Parquet");
    run("lab export results --parquet nowhere/samples.parquet").assert_says(1, &["nowhere"]);
}
