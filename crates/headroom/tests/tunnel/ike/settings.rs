//! Settings of CHILD SAs, and changes of them.

use super::{
    ATTEMPT, KEY, PATIENCE, PORTS, SECRET, configure, dropped, echo, hosts, is_established,
    session, sockets, until,
};
use crate::common::Ground;
use crate::common::gateways::Site;
use headroom_testing::{privileged, retried};
use serde_json::Value;

#[test]
fn each_queue_has_associations_of_its_own_where_both_ends_want_it() {
    if !privileged() {
        return;
    }
    let ground = Ground::new("ike-queues");
    let hosts = hosts(&ground);
    let files = configure(&ground, [KEY, KEY], ["", "per_queue = true"]);
    for file in &files {
        let text = std::fs::read_to_string(file).expect("a configuration");
        let text = text.replace("[ike]\n", "queues = 2\n[ike]\n");
        std::fs::write(file, text).expect("written");
    }
    // one begins, so that there is one IKE SA
    let text = std::fs::read_to_string(&files[1]).expect("a configuration");
    std::fs::write(&files[1], text.replace("[ike]\n", "[ike]\ninitiate = false\n"))
        .expect("written");
    let sockets = sockets(&hosts);
    for (host, file) in hosts.iter().zip(&files) {
        host.up(file);
    }
    until("packets pass", || echo(&sockets, SECRET));
    let spis = |host: &Site| -> Vec<u64> {
        let status = host.status();
        let all = status["associations"].as_array().cloned().unwrap_or_default();
        let inbound = all.iter().filter(|one| one["direction"] == "in");
        inbound.filter_map(|one| one["spi"].as_u64()).collect()
    };
    until("one for all, and one for each queue", || hosts.iter().all(|host| spis(host).len() == 3));
    for host in &hosts {
        let remainders: std::collections::BTreeSet<u64> =
            spis(host).iter().map(|spi| spi % 2).collect();
        assert_eq!(remainders.len(), 2, "both queues receive");
    }
    until("packets pass still", || echo(&sockets, SECRET));
    for host in &hosts {
        host.must(&["down"]);
    }
}

#[test]
fn ciphers_with_a_separate_integrity_algorithm_are_for_who_asks_for_them() {
    if !privileged() {
        return;
    }
    let ground = Ground::new("ike-suites");
    let hosts = hosts(&ground);
    let suites = ["suites = \"aes-256-cbc+hmac-sha384\"", "suites = \"aes-128-cbc+hmac-sha256\""];
    let files = configure(&ground, [KEY, KEY], suites);
    let text = std::fs::read_to_string(&files[0]).expect("a configuration");
    // the first has the usual ones at first
    let usual = text.lines().filter(|line| !line.starts_with("suites")).collect::<Vec<_>>();
    std::fs::write(&files[0], usual.join("\n")).expect("written");
    let sockets = sockets(&hosts);
    for (host, file) in hosts.iter().zip(&files) {
        host.up(file);
    }
    let log = || std::fs::read_to_string(hosts[1].run.join("hr0.log")).expect("a log");
    until("it is refused", || log().contains("NO_PROPOSAL_CHOSEN"));
    assert!(!is_established(&hosts[0]) && !is_established(&hosts[1]));
    std::fs::write(&files[0], text).expect("written");
    hosts[0].must(&["reload"]);
    until("packets pass", || echo(&sockets, SECRET));
    let status = hosts[0].status();
    let algorithms = status["ike"][0]["algorithms"].as_str().expect("algorithms");
    assert!(algorithms.starts_with("aes-256-cbc+hmac-sha384 "), "{algorithms}");
    let associations = status["associations"].as_array().expect("associations");
    let asked = |one: &Value| one["suite"] == "aes-128-cbc+hmac-sha256";
    assert!(!associations.is_empty() && associations.iter().all(asked), "{status}");
    for host in &hosts {
        host.must(&["down"]);
    }
}

#[test]
fn a_reload_keeps_what_stays_the_same() {
    if !privileged() {
        return;
    }
    let ground = Ground::new("ike-reload");
    let hosts = hosts(&ground);
    let files = configure(&ground, [KEY, KEY], ["", ""]);
    // one end begins, so that there is one of each
    let text = std::fs::read_to_string(&files[1]).expect("a configuration");
    std::fs::write(&files[1], text.replace("[ike]\n", "[ike]\ninitiate = false\n"))
        .expect("written");
    let sockets = sockets(&hosts);
    for (host, file) in hosts.iter().zip(&files) {
        host.up(file);
    }
    until("packets pass", || echo(&sockets, SECRET));
    for socket in &sockets {
        // lost is what does not come at all, however busy the machine
        socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    }
    let spis = |host: &Site, child: &str| -> Vec<Value> {
        let status = host.status();
        let all = status["associations"].as_array().expect("associations");
        let name = |one: &Value| one["name"].as_str().expect("a name").to_owned();
        let of = all.iter().filter(|one| name(one).starts_with(&format!("{child}/")));
        of.map(|one| one["spi"].clone()).collect()
    };
    let append = |end: usize, more: &str| {
        let text = std::fs::read_to_string(&files[end]).expect("a configuration");
        std::fs::write(&files[end], text + more).expect("written");
    };
    let before = spis(&hosts[0], "hr0");
    assert_eq!(before.len(), 2);

    // another child, and what a static policy says beside it
    for (end, other) in [(0, 1), (1, 0)] {
        append(
            end,
            &format!(
                "[[child]]\nname = \"more\"\nlocal = \"10.{}.9.0/24\"\nremote = \"10.{}.9.0/24\"\n\
                 [[policy]]\nname = \"no\"\naction = \"discard\"\nremote = \"10.99.0.0/16\"\n",
                end + 5,
                other + 5
            ),
        );
        hosts[end].must(&["reload"]);
        assert!(echo(&sockets, SECRET), "{}", dropped(&hosts));
    }
    until("the other child stands", || {
        assert!(echo(&sockets, SECRET), "{}", dropped(&hosts));
        hosts.iter().all(|host| spis(host, "more").len() == 2)
    });
    assert_eq!(spis(&hosts[0], "hr0"), before, "the first child has the same associations");
    assert_eq!(session(&hosts[0])["children"], 2);

    // it is removed on one side, which tells the other
    let text = std::fs::read_to_string(&files[0]).expect("a configuration");
    let (first, _) = text.split_once("[[child]]\nname").expect("two children");
    std::fs::write(&files[0], first).expect("written");
    hosts[0].must(&["reload"]);
    until("the other child is gone", || {
        assert!(echo(&sockets, SECRET), "{}", dropped(&hosts));
        session(&hosts[0])["children"] == 1 && spis(&hosts[0], "more").is_empty()
    });
    assert_eq!(spis(&hosts[0], "hr0"), before);

    // what is changed of the peer closes it, and it is set up again
    for end in [0, 1] {
        let text = std::fs::read_to_string(&files[end]).expect("a configuration");
        let (first, _) = text.split_once("[[child]]\nname").unwrap_or((&text, ""));
        let text = first.replace("[ike]\n", "[ike]\nrekey_seconds = 7777\n");
        std::fs::write(&files[end], text).expect("written");
        hosts[end].must(&["reload"]);
    }
    for socket in &sockets {
        socket.set_read_timeout(Some(ATTEMPT)).expect("a timeout");
    }
    until("packets pass again", || echo(&sockets, SECRET));
    // late packets of the former ones are accepted for a moment
    until("the former associations are gone", || {
        let now = spis(&hosts[0], "hr0");
        now.len() == 2 && now.iter().all(|spi| !before.contains(spi))
    });

    let text = std::fs::read_to_string(&files[0]).expect("a configuration");
    std::fs::write(&files[0], text.replace("192.0.2.2", "2001:db8::2")).expect("written");
    assert!(!hosts[0].tunnel(&["reload"]).status.success());
    assert!(echo(&sockets, SECRET), "the former configuration stays in force");
    for host in &hosts {
        host.must(&["down"]);
    }
}

#[test]
fn the_first_packet_brings_a_trapped_child_up_and_is_not_lost() {
    if !privileged() {
        return;
    }
    let ground = Ground::new("ike-trap");
    let hosts = hosts(&ground);
    let files = configure(&ground, [KEY, KEY], ["", ""]);
    for (file, action) in files.iter().zip(["trap", "none"]) {
        let text = std::fs::read_to_string(file).expect("a configuration");
        let text = text.replace("[[child]]", &format!("[[child]]\nstart_action = \"{action}\""));
        std::fs::write(file, text).expect("written");
    }
    let sockets = sockets(&hosts);
    for (host, file) in hosts.iter().zip(&files) {
        host.up(file);
    }
    assert_eq!(hosts[0].status()["ike"].as_array().map(Vec::len), Some(0), "nothing is set up");
    for socket in &sockets {
        socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    }
    for packet in 0..5_u8 {
        sockets[0].send_to(&[packet], PORTS[1]).expect("sent");
    }
    let mut room = [0; 100];
    for packet in 0..5 {
        let len = retried(|| sockets[1].recv(&mut room)).expect("the packet that waited");
        assert_eq!(room[..len], [packet]);
    }
    assert!(echo(&sockets, SECRET));
    assert_eq!(hosts[0].status()["drops"]["no-association"], Value::Null);

    // the peer closes it: the next packet brings it up again
    hosts[1].must(&["down"]);
    until("it is closed", || hosts[0].status()["ike"].as_array().is_some_and(Vec::is_empty));
    hosts[1].up(&files[1]);
    assert!(echo(&sockets, SECRET), "{}", dropped(&hosts));
}
