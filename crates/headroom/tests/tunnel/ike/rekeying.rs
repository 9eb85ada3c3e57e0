//! New keys and new IKE SAs, without loss.

use std::time::Instant;

use super::{
    KEY, PATIENCE, PORTS, SECRET, configure, dropped, echo, hosts, session, sockets, until,
};
use crate::common::Ground;
use crate::common::gateways::Site;
use headroom_testing::privileged;
use nix::sys::signal::{Signal, kill};
use serde_json::Value;

/// A request is answered or it is not: nothing here depends on how fast.
#[test]
fn no_packet_is_lost_while_keys_change() {
    if !privileged() {
        return;
    }
    let ground = Ground::new("ike-rekey");
    let hosts = hosts(&ground);
    // only one side begins a rekey by its age; the other would as well, a moment later
    let files = configure(&ground, [KEY, KEY], ["rekey_seconds = 2", "rekey_seconds = 1"]);
    let sockets = sockets(&hosts);
    for (host, file) in hosts.iter().zip(&files) {
        host.up(file);
    }
    until("packets pass", || echo(&sockets, SECRET));
    for socket in &sockets {
        // lost is what does not come at all, however busy the machine
        socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    }
    let spis = |host: &Site| -> Vec<Value> {
        let status = host.status();
        let all = status["associations"].as_array().expect("associations");
        all.iter().map(|one| one["spi"].clone()).collect()
    };
    let (mut seen, mut sent, mut changes) = (spis(&hosts[0]), 0_u64, 0);
    let end = Instant::now() + 3 * PATIENCE;
    while changes < 4 || session(&hosts[0])["rekeys"].as_u64() < Some(2) {
        assert!(Instant::now() < end, "{changes} changes: {}", hosts[0].status());
        for _ in 0..200 {
            sent += 1;
            let passed = echo(&sockets, &sent.to_be_bytes());
            assert!(passed, "packet {sent} was lost: {}", dropped(&hosts));
        }
        let now = spis(&hosts[0]);
        changes += usize::from(now.iter().all(|spi| !seen.contains(spi)));
        if now.iter().all(|spi| !seen.contains(spi)) {
            seen = now;
        }
    }
    println!("{sent} packets, {changes} changes of all keys");
    for host in &hosts {
        host.must(&["down"]);
    }
}

#[test]
fn no_packet_is_lost_while_peers_authenticate_again() {
    if !privileged() {
        return;
    }
    let ground = Ground::new("ike-reauth");
    let hosts = hosts(&ground);
    let files = configure(&ground, [KEY, KEY], ["", ""]);
    // one begins, and the other says how long that lasts
    let changed = ["reauth_seconds = 2\n", "initiate = false\n"];
    for (file, more) in files.iter().zip(changed) {
        let text = std::fs::read_to_string(file).expect("a configuration");
        let text = text.replace("[ike]\n", &format!("[ike]\n{more}"));
        std::fs::write(file, text).expect("written");
    }
    let sockets = sockets(&hosts);
    for (host, file) in hosts.iter().zip(&files) {
        host.up(file);
    }
    until("packets pass", || echo(&sockets, SECRET));
    for socket in &sockets {
        socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    }
    let spis = || -> Vec<Value> {
        let status = hosts[0].status();
        let all = status["associations"].as_array().expect("associations");
        all.iter().map(|one| one["spi"].clone()).collect()
    };
    let (mut seen, mut sent, mut changes) = (spis(), 0_u64, 0);
    let end = Instant::now() + 3 * PATIENCE;
    while changes < 3 {
        assert!(Instant::now() < end, "{changes} changes: {}", hosts[0].status());
        for _ in 0..200 {
            sent += 1;
            let passed = echo(&sockets, &sent.to_be_bytes());
            assert!(passed, "packet {sent} was lost: {}", dropped(&hosts));
        }
        let now = spis();
        if now.iter().all(|spi| !seen.contains(spi)) {
            (seen, changes) = (now, changes + 1);
        }
    }
    assert_eq!(session(&hosts[0])["rekeys"], 0, "they are new IKE SAs");
    for host in &hosts {
        host.must(&["down"]);
    }
}

#[test]
fn an_association_that_cannot_be_rekeyed_is_not_used_beyond_its_life() {
    if !privileged() {
        return;
    }
    let ground = Ground::new("ike-life");
    let hosts = hosts(&ground);
    let files = configure(&ground, [KEY, KEY], ["", "rekey_seconds = 2\nlife_seconds = 4"]);
    let sockets = sockets(&hosts);
    hosts[0].up(&files[0]);
    let other = hosts[1].up(&files[1]);
    until("packets pass", || echo(&sockets, SECRET));
    kill(other, Signal::SIGSTOP).expect("it runs");
    let log = || std::fs::read_to_string(hosts[0].run.join("hr0.log")).expect("a log");
    until("it ends", || log().contains("has reached a hard limit"));
    let status = hosts[0].status();
    let associations = status["associations"].as_array().expect("associations");
    // nobody answers who could make others
    assert!(associations.iter().any(|one| one["stage"] == "expired"), "{status}");
    // one that had been rekeyed just before ends after it
    until("packets are dropped", || {
        assert!(sockets[0].send_to(SECRET, PORTS[1]).is_ok());
        hosts[0].status()["drops"]["expired"].as_u64() > Some(0)
    });
    kill(other, Signal::SIGCONT).expect("it is stopped");
    until("packets pass again", || echo(&sockets, SECRET));
    for host in &hosts {
        host.must(&["down"]);
    }
}

/// A request is answered or it is not: nothing here depends on how fast.
#[test]
fn bytes_that_were_carried_change_keys() {
    if !privileged() {
        return;
    }
    let ground = Ground::new("ike-bytes");
    let hosts = hosts(&ground);
    let files = configure(&ground, [KEY, KEY], ["", "rekey_bytes = \"200KB\""]);
    let sockets = sockets(&hosts);
    for (host, file) in hosts.iter().zip(&files) {
        host.up(file);
    }
    until("packets pass", || echo(&sockets, SECRET));
    for socket in &sockets {
        socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    }
    let spis = |host: &Site| -> Vec<Value> {
        let status = host.status();
        let all = status["associations"].as_array().expect("associations");
        all.iter().map(|one| one["spi"].clone()).collect()
    };
    let (mut seen, mut changes) = (spis(&hosts[0]), 0);
    let end = Instant::now() + 3 * PATIENCE;
    while changes < 3 {
        assert!(Instant::now() < end, "{changes} changes: {}", hosts[0].status());
        for _ in 0..100 {
            assert!(echo(&sockets, &[7; 1000]), "a packet was lost: {}", dropped(&hosts));
        }
        let now = spis(&hosts[0]);
        if now.iter().all(|spi| !seen.contains(spi)) {
            (seen, changes) = (now, changes + 1);
        }
    }
    for host in &hosts {
        host.must(&["down"]);
    }
}
