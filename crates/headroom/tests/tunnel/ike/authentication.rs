//! Keys and certificates of both ends, and wrong ones.

use std::os::unix::fs::PermissionsExt;

use super::{ADDRESSES, KEY, NETWORKS, SECRET, configure, echo, hosts, sockets, until};
use crate::common::Ground;
use crate::common::gateways::{Site, listen, text};
use headroom_testing::{contains, privileged};

#[test]
fn with_another_key_nothing_passes() {
    if !privileged() {
        return;
    }
    let ground = Ground::new("ike-key");
    let hosts = hosts(&ground);
    let other = KEY.replace("horse", "zebra");
    let files = configure(&ground, [KEY, &other], ["", ""]);
    let sockets = sockets(&hosts);
    let capture = listen(&hosts);
    let mut command = hosts[0].command(&["up", text(&files[0])]);
    let log = std::fs::File::create(ground.path("log")).expect("a log");
    let mut gateway = hosts[0].run(move || command.stderr(log).spawn().expect("a gateway"));
    hosts[1].up(&files[1]);
    let said = || std::fs::read_to_string(ground.path("log")).expect("a log");
    until("this host is refused, and its log says what to check", || {
        let said = said();
        said.contains("(AUTHENTICATION_FAILED)") && said.contains("pre-shared key is the same")
    });
    assert!(![KEY, &other].iter().any(|key| said().contains(*key)), "a key is in the log");
    assert!(!echo(&sockets, SECRET));
    let frames = capture.finish();
    assert!(!frames.iter().any(|frame| contains(frame, SECRET)), "it is on the wire in clear");
    hosts[0].must(&["down"]);
    gateway.wait().expect("its end");
}

#[test]
fn keygen_makes_both_ends_of_a_tunnel_with_ike() {
    if !privileged() {
        return;
    }
    let ground = Ground::new("ike-keygen");
    let hosts = hosts(&ground);
    let folder = ground.path("keys");
    let networks = ["--local-net", NETWORKS[0], "--remote-net", NETWORKS[1]];
    let out = ["--out", text(&folder), "--ike"];
    hosts[0].must(&[&["keygen"], &ADDRESSES[..], &networks, &out].concat());
    let again = hosts[0].tunnel(&[&["keygen"], &ADDRESSES[..], &networks, &out].concat());
    assert!(!again.status.success(), "it overwrites nothing");
    let file = std::fs::read_to_string(folder.join("left.toml")).expect("a configuration");
    let expected = "name = \"hr0\"\n[ike]\nlocal = \"192.0.2.1\"\nremote = \"192.0.2.2\"\npsk_file = \"hr0.psk\"\n\
                    [[child]]\nlocal = \"10.1.0.0/16\"\nremote = \"10.2.0.0/16\"\n";
    assert_eq!(file, expected);
    for (host, end) in hosts.iter().zip(["left", "right"]) {
        host.up(&folder.join(format!("{end}.toml")));
    }
    let sockets = sockets(&hosts);
    until("packets pass", || echo(&sockets, SECRET));
}

#[test]
fn certificates_of_keygen_make_a_tunnel_and_those_of_another_authority_none() {
    if !privileged() {
        return;
    }
    let ground = Ground::new("ike-certificates");
    let hosts = hosts(&ground);
    let networks = ["--local-net", NETWORKS[0], "--remote-net", NETWORKS[1]];
    let make = |folder: &str| {
        let folder = ground.path(folder);
        let out = ["--out", text(&folder), "--ike=certificates"];
        hosts[0].must(&[&["keygen"], &ADDRESSES[..], &networks, &out].concat());
        folder
    };
    let (folder, other) = (make("keys"), make("other"));
    let sockets = sockets(&hosts);
    hosts[0].up(&folder.join("left.toml"));
    hosts[1].up(&other.join("right.toml"));
    let refused = |host: &Site| {
        let failures = &host.status()["ike_counters"]["authentication_failures"];
        failures.as_u64() > Some(0)
    };
    until("one refuses the other", || hosts.iter().any(refused));
    assert!(!echo(&sockets, SECRET));
    hosts[1].must(&["down"]);
    hosts[1].up(&folder.join("right.toml"));
    until("packets pass", || echo(&sockets, SECRET));
    for host in &hosts {
        host.must(&["down"]);
    }
}

#[test]
fn a_post_quantum_pre_shared_key_must_be_the_same_at_both_ends() {
    if !privileged() {
        return;
    }
    let ground = Ground::new("ike-ppk");
    let hosts = hosts(&ground);
    let ppk = |name: &str, key: &str| {
        let file = ground.write(name, key);
        let mode = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(&file, mode).expect("chmod");
        format!("ppk_id = \"us\"\nppk_file = {file:?}")
    };
    let (same, other) = (ppk("ppk", KEY), ppk("ppk-other", &KEY.replace("horse", "zebra")));
    let sockets = sockets(&hosts);
    let here = configure(&ground, [KEY, KEY], [&same, ""]);
    let left = ground.write("left.toml", &std::fs::read_to_string(&here[0]).expect("a file"));
    let right = std::fs::read_to_string(&here[1]).expect("a file");
    let wrong = ground.write("wrong.toml", &right.replace(&same, &other));
    let right = ground.write("right.toml", &right);
    for file in [&left, &wrong, &right] {
        let mode = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(file, mode).expect("chmod");
    }
    hosts[0].up(&left);
    hosts[1].up(&wrong);
    let refused = |host: &Site| {
        let failures = &host.status()["ike_counters"]["authentication_failures"];
        failures.as_u64() > Some(0)
    };
    until("one refuses the other", || hosts.iter().any(refused));
    assert!(!echo(&sockets, SECRET));
    hosts[1].must(&["down"]);
    hosts[1].up(&right);
    until("packets pass", || echo(&sockets, SECRET));
    for host in &hosts {
        host.must(&["down"]);
    }
}
