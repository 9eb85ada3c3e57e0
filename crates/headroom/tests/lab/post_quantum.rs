//! Keys that resist quantum computers, compared with the same stacks without them.

use crate::common::{Ground, array, text};
use headroom_testing::privileged;
use serde_json::Value;

#[test]
fn ssh_agrees_on_hybrid_keys() {
    if !privileged() {
        return;
    }
    let ground = Ground::new("hybrid");
    let plan = "stacks = [\"sftp\", \"sftp(sntrup761)\", \"ssh\", \"ssh(sntrup761)\"]\nrepetitions = 2\n\
                count-packets = false\n\
                [[workload]]\nkind = \"download\"\nsizes = [\"1KiB\"]\ntransfers-per-sample = 1\n\
                stacks = [\"sftp\", \"sftp(sntrup761)\"]\n\
                [[workload]]\nkind = \"commands\"\ncommands = [\"echo yes\"]\n\
                stacks = [\"ssh\", \"ssh(sntrup761)\"]\n";
    ground.write("p.toml", plan);
    let results = ground.measure("p.toml");
    let samples = array(&results, "samples");
    assert!(samples.iter().all(|sample| sample["ok"] == Value::Bool(true)), "{samples:?}");
    // both ends offer nothing else, so that a transfer that succeeds has used it
    let stacks = array(&results["plan"], "stacks");
    for (nth, stack, baseline) in [(1, "sftp(sntrup761)", "sftp"), (3, "ssh(sntrup761)", "ssh")] {
        let facts = &results["environment"]["stacks"][stack];
        assert_eq!(text(facts, "key exchange"), "sntrup761x25519-sha512@openssh.com");
        assert_eq!(stacks[nth]["baseline"].as_str(), Some(baseline));
    }
}

#[test]
fn certificates_of_ml_dsa_are_refused_where_openssl_is_too_old() {
    if !privileged() {
        return;
    }
    let ground = Ground::new("old-openssl");
    ground.script("openssl", "#!/bin/sh\necho 'OpenSSL 3.0.0 7 Sep 2021'\n");
    let plan = "stacks = [\"https(mlkem768)\", \"https(mlkem768,mldsa65)\"]\n\
                [[workload]]\nkind = \"download\"\nsizes = [\"1KiB\"]\n";
    ground.write("p.toml", plan);
    let path = std::env::var("PATH").expect("PATH");
    let path = format!("{}:{path}", ground.path("").display());
    let words = ["this machine has OpenSSL 3.0.0", "need OpenSSL 3.5", "headroom lab parts"];
    let mut run = ground.headroom("lab run p.toml --host-programs --out out");
    run.env("PATH", &path);
    let ended = ground.end_of(run);
    ended.assert_says(3, &words);
    ended.assert_nothing_started();
    // a cache without the pinned programs
    let mut doctor = ground.headroom("lab doctor p.toml");
    doctor.env("PATH", &path).env("HEADROOM_PARTS", ground.path("parts"));
    let ended = ground.end_of(doctor);
    assert_eq!(ended.code, Some(3), "{ended}");
    assert!(ended.stdout.contains("MISSING  https(mlkem768,mldsa65)"), "{ended}");
    assert!(words.iter().all(|word| ended.stdout.contains(word)), "{ended}");
}
