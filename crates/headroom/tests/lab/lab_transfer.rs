//! Headroom's own transfer in the lab, beside one of its peers.

use crate::common::Ground;
use headroom_testing::privileged;
use serde_json::Value;

const STACKS: [&str; 4] = ["headroom", "headroom(streams)", "headroom/esp(udp)", "scp"];

#[test]
fn headroom_and_scp_stand_in_one_report() {
    if !privileged() {
        return;
    }
    let ground = Ground::new("lab-transfer");
    ground.write(
        "plan.toml",
        &format!(
            "stacks = {STACKS:?}\nfamily = \"ipv6\"\nrepetitions = 2\ncount-packets = false\n\
             [baselines]\nheadroom = \"scp\"\n\
             [[workload]]\nkind = \"download\"\nsizes = [\"1MiB\"]\n\
             [[workload]]\nkind = \"upload\"\nsizes = [\"1KiB\"]\n\
             [[workload]]\nkind = \"many\"\nfiles = 20\n"
        ),
    );
    let results = ground.measure("plan.toml");
    assert_eq!(results["complete"], true);
    let samples = results["samples"].as_array().expect("samples");
    for stack in STACKS {
        for (workload, size) in [("download", 1 << 20), ("upload", 1 << 10), ("many", 1 << 10)] {
            let cell = samples.iter().filter(|sample| {
                sample["stack"] == stack
                    && sample["workload"] == workload
                    && sample["size_bytes"] == size
            });
            let cell: Vec<&Value> = cell.collect();
            assert!(cell.len() >= 2, "{stack} {workload} {size}: {cell:?}");
            for sample in cell {
                assert_eq!(sample["ok"], true, "{sample}");
                let clock = |name: &str| sample[name].as_f64().expect("a time");
                let (transfer, session) = (clock("seconds"), clock("session_seconds"));
                assert!(0.0 < transfer && transfer <= session, "{sample}");
                assert!(session <= clock("process_seconds"), "{sample}");
                // TCP's own figures are TCP's alone
                assert_eq!(sample["tcp"].is_null(), stack != "scp", "{sample}");
            }
        }
        let facts = &results["environment"]["stacks"][stack];
        assert!(facts["verification"].is_string(), "{stack}: {facts}");
    }
    let clear = results["clear_text"].as_array().expect("what was looked for");
    assert!(clear.iter().all(|row| row["marker_seen"] == false), "{clear:?}");
    let report = std::fs::read_to_string(ground.path("out/report.html")).expect("a report");
    for name in ["headroom(streams)", "headroom/esp(udp)", "scp"] {
        assert!(report.contains(name), "{name}");
    }
}

#[test]
fn what_encryption_costs_a_transfer_can_be_measured() {
    if !privileged() {
        return;
    }
    let ground = Ground::new("lab-ciphers");
    let stacks = [
        "headroom(cipher=none)",
        "headroom(cipher=simplecrypt,chunk=2000,lane-ports=256)",
        "headroom(cipher=chacha20-poly1305)",
    ];
    ground.write(
        "plan.toml",
        &format!(
            "stacks = {stacks:?}\nrepetitions = 2\ncount-packets = false\n\
             [[workload]]\nkind = \"download\"\nsizes = [\"5MiB\"]\n"
        ),
    );
    let results = ground.measure("plan.toml");
    assert_eq!(results["complete"], true);
    let samples = results["samples"].as_array().expect("samples");
    assert!(samples.len() >= 6 && samples.iter().all(|sample| sample["ok"] == true), "{samples:?}");
    let clear = results["clear_text"].as_array().expect("what was looked for");
    let found = |name: &str| clear.iter().map(|row| row[name].clone()).collect::<Vec<_>>();
    assert_eq!(found("stack"), stacks);
    // in clear; scrambled, which is not secured; encrypted
    assert_eq!(found("marker_seen"), [true, false, false]);
    assert_eq!(found("secured"), [false, false, true]);
    let facts = |stack: &str| results["environment"]["stacks"][stack].clone();
    for stack in &stacks[..2] {
        let facts = facts(stack);
        assert!(facts["encryption"].as_str().is_some_and(|text| text.starts_with("NONE")));
        assert!(facts["INSECURE"].is_string(), "{facts}");
    }
    assert!(facts(stacks[2])["INSECURE"].is_null());
    let report = std::fs::read_to_string(ground.path("out/report.html")).expect("a report");
    for text in ["--insecure-measurement", "SimpleCrypt", "256 UDP ports", "2000 bytes"] {
        assert!(report.contains(text), "{text}");
    }
}
