//! `headroom lab compare`: exit codes that a CI can use. Needs no privilege.

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
