//! Keys that resist quantum computers, beside their classical twins.

use crate::common::{Ground, array, number, text};
use headroom_testing::privileged;
use serde_json::Value;

#[test]
fn hybrid_keys_of_ssh_cost_bytes() {
    if !privileged() {
        return;
    }
    let ground = Ground::new("hybrid");
    let plan = "stacks = [\"sftp\", \"sftp(sntrup761)\"]\nrepetitions = 2\n\
                [[workload]]\nkind = \"download\"\nsizes = [\"1KiB\"]\ntransfers-per-sample = 1\n";
    ground.write("p.toml", plan);
    let results = ground.measure("p.toml");
    let samples = array(&results, "samples");
    assert!(samples.iter().all(|sample| sample["ok"] == Value::Bool(true)), "{samples:?}");
    let wire = |stack: &str, what: &str| {
        let of_stack = samples.iter().find(|sample| text(sample, "stack") == stack);
        number(&of_stack.expect("a sample")["wire"], what)
    };
    // a public key of 1158 bytes and a ciphertext of 1039 (sntrup761)
    let more = wire("sftp(sntrup761)", "bytes") - wire("sftp", "bytes");
    assert!((1158.0 + 1039.0..4000.0).contains(&more), "{more}");
    let facts = &results["environment"]["stacks"]["sftp(sntrup761)"];
    assert_eq!(text(facts, "key exchange"), "sntrup761x25519-sha512@openssh.com");
    let stacks = array(&results["plan"], "stacks");
    assert_eq!(stacks[1]["baseline"].as_str(), Some("sftp"));
}
