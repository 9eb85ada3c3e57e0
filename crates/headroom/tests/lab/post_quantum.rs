//! Keys that resist quantum computers, beside their classical twins.

use crate::common::{Ground, array, text};
use headroom_testing::privileged;
use serde_json::Value;

#[test]
fn ssh_agrees_on_hybrid_keys() {
    if !privileged() {
        return;
    }
    let ground = Ground::new("hybrid");
    let plan = "stacks = [\"sftp\", \"sftp(sntrup761)\"]\nrepetitions = 2\ncount-packets = false\n\
                [[workload]]\nkind = \"download\"\nsizes = [\"1KiB\"]\ntransfers-per-sample = 1\n";
    ground.write("p.toml", plan);
    let results = ground.measure("p.toml");
    let samples = array(&results, "samples");
    assert!(samples.iter().all(|sample| sample["ok"] == Value::Bool(true)), "{samples:?}");
    // both ends offer nothing else, so that a transfer that succeeds has used it
    let facts = &results["environment"]["stacks"]["sftp(sntrup761)"];
    assert_eq!(text(facts, "key exchange"), "sntrup761x25519-sha512@openssh.com");
    let stacks = array(&results["plan"], "stacks");
    assert_eq!(stacks[1]["baseline"].as_str(), Some("sftp"));
}
