//! Headroom's own transfer in the lab, beside one of its peers.

mod common;

use common::Ground;
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
