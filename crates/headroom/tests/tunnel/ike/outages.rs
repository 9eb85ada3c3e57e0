//! Peers that go away, come back or get another address.

use super::{
    ADDRESSES, KEY, SECRET, configure, echo, hosts, is_established, session, sockets, until,
};
use crate::common::Ground;
use crate::common::gateways::{Site, listen};
use headroom_testing::{contains, privileged};
use nix::sys::signal::{Signal, kill};

#[test]
fn a_peer_that_was_killed_is_reached_again() {
    if !privileged() {
        return;
    }
    let ground = Ground::new("ike-killed");
    let hosts = hosts(&ground);
    let files = configure(&ground, [KEY, KEY], ["", ""]);
    let sockets = sockets(&hosts);
    hosts[0].up(&files[0]);
    let gateway = hosts[1].up(&files[1]);
    until("packets pass", || echo(&sockets, SECRET));
    kill(gateway, Signal::SIGKILL).expect("it runs");
    until("it is gone", || !hosts[1].tunnel(&["status"]).status.success());
    let capture = listen(&hosts);
    assert!(!echo(&sockets, SECRET), "who passed it on?");
    hosts[1].up(&files[1]);
    until("packets pass again", || echo(&sockets, SECRET));
    let frames = capture.finish();
    assert!(!frames.iter().any(|frame| contains(frame, SECRET)), "it is on the wire in clear");
}

#[test]
fn a_gateway_that_goes_down_leaves_its_peer_no_association() {
    if !privileged() {
        return;
    }
    let ground = Ground::new("ike-down");
    let hosts = hosts(&ground);
    let files = configure(&ground, [KEY, KEY], ["", ""]);
    let sockets = sockets(&hosts);
    hosts[0].up(&files[0]);
    hosts[1].up(&files[1]);
    until("packets pass", || echo(&sockets, SECRET));
    assert!(hosts[0].tunnel(&["down"]).status.success());
    // it begins again at once, and nobody answers
    until("it knows", || !is_established(&hosts[1]));
    let associations = || hosts[1].status()["associations"].as_array().map(Vec::len);
    until("its associations are gone", || associations() == Some(0));
}

#[test]
fn a_host_that_gets_another_address_goes_on() {
    if !privileged() {
        return;
    }
    let ground = Ground::new("ike-moves");
    let hosts = hosts(&ground);
    // the second begins, and may move
    let files = configure(&ground, [KEY, KEY], ["", ""]);
    let text = std::fs::read_to_string(&files[0]).expect("a configuration");
    let waits = text.replacen("[ike]", "[ike]\ninitiate = false", 1);
    std::fs::write(&files[0], waits).expect("written");
    let sockets = sockets(&hosts);
    for (host, file) in hosts.iter().zip(&files) {
        host.up(file);
    }
    until("packets pass", || echo(&sockets, SECRET));
    let link = hosts[1].ip("-o -4 route get 192.0.2.1");
    let device = link.split_whitespace().skip_while(|word| *word != "dev").nth(1).expect("a link");
    hosts[1].ip(&format!("addr add 192.0.2.77/24 dev {device}"));
    hosts[1].ip(&format!("addr del {}/24 dev {device}", ADDRESSES[1]));
    hosts[1].ip(&format!("addr replace 192.0.2.77/24 dev {device}"));
    let at = |host: &Site, end: &str| session(host)[end].as_str().unwrap_or_default().to_owned();
    until("it says where it is", || at(&hosts[0], "remote").starts_with("192.0.2.77:"));
    assert!(at(&hosts[1], "local").starts_with("192.0.2.77:"), "{}", hosts[1].status());
    until("packets pass again", || echo(&sockets, SECRET));
    let sessions = hosts[0].status()["ike"].as_array().map_or(0, Vec::len);
    assert_eq!(sessions, 1, "the same IKE SA goes on: {}", hosts[0].status());
    for host in &hosts {
        host.must(&["down"]);
    }
}

#[test]
fn a_host_begins_from_the_address_that_it_has_then() {
    if !privileged() {
        return;
    }
    let ground = Ground::new("ike-begins");
    let hosts = hosts(&ground);
    let files = configure(&ground, [KEY, KEY], ["", ""]);
    let replace = |end: usize, more: &str| {
        let text = std::fs::read_to_string(&files[end]).expect("a configuration");
        let text = text.replacen("[ike]", &format!("[ike]\n{more}"), 1);
        std::fs::write(&files[end], text).expect("written");
    };
    replace(0, "initiate = false");
    replace(1, &format!("local_id = \"{}\"", ADDRESSES[1]));
    let sockets = sockets(&hosts);
    let link = hosts[1].ip("-o -4 route get 192.0.2.1");
    let device = link.split_whitespace().skip_while(|word| *word != "dev").nth(1).expect("a link");
    let change = |from: &str, to: &str| {
        hosts[1].ip(&format!("addr del {from}/24 dev {device}"));
        hosts[1].ip(&format!("addr replace {to}/24 dev {device}"));
    };
    change(ADDRESSES[1], "192.0.2.77");
    for (host, file) in hosts.iter().zip(&files) {
        host.up(file);
    }
    // nobody expects it there
    assert!(!echo(&sockets, SECRET));
    change("192.0.2.77", ADDRESSES[1]);
    until("packets pass", || echo(&sockets, SECRET));
    for host in &hosts {
        host.must(&["down"]);
    }
}
