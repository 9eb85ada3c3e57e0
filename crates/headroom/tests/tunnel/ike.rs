//! `headroom tunnel` with keys negotiated by IKEv2, between two hosts of the test's own.

use std::io::{BufRead, BufReader, ErrorKind};
use std::net::{SocketAddr, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::common::Ground;
use crate::common::gateways::{Site, link, listen, text};
use crate::common::wireshark;
use headroom_load::{Server, packets};
use headroom_testing::{contains, privileged, retried};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

/// Longer than anything here takes, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
const ADDRESSES: [&str; 2] = ["192.0.2.1", "192.0.2.2"];
const NETWORKS: [&str; 2] = ["10.1.0.0/16", "10.2.0.0/16"];
const INNER: [&str; 2] = ["10.1.0.1", "10.2.0.1"];
const PORTS: [&str; 2] = ["10.1.0.1:5000", "10.2.0.1:5000"];
const SECRET: &[u8] = b"nobody on the way reads this";
const KEY: &str = "correct horse battery staple, and more";

/// Two hosts, each with an address behind its gateway.
fn hosts(ground: &Ground) -> [Site; 2] {
    let hosts = link(ground);
    for (host, inner) in hosts.iter().zip(INNER) {
        host.ip("link set lo up");
        host.ip(&format!("addr add {inner}/32 dev lo"));
    }
    hosts
}

/// Writes the configurations of both ends, with `more` lines in `[ike]` and in `[[child]]`.
fn configure(ground: &Ground, keys: [&str; 2], more: [&str; 2]) -> [PathBuf; 2] {
    [0, 1].map(|end| {
        let [ike, child] = more;
        let other = 1 - end;
        let key = ground.write(&format!("key-{end}"), keys[end]);
        let file = ground.write(
            &format!("end-{end}.toml"),
            &format!(
                "name = \"hr0\"\n[ike]\nremote = \"{}\"\npsk_file = {key:?}\n{ike}\n[[child]]\nlocal = \"{}\"\n\
                 remote = \"{}\"\n{child}\n",
                ADDRESSES[other], NETWORKS[end], NETWORKS[other]
            ),
        );
        for path in [&key, &file] {
            let mode = std::fs::Permissions::from_mode(0o600);
            std::fs::set_permissions(path, mode).expect("chmod");
        }
        file
    })
}

/// Sends `payload` from the first host to the second and back. Returns whether it came back.
fn echo(sockets: &[UdpSocket; 2], payload: &[u8]) -> bool {
    let mut room = [0; 2000];
    let answered = sockets[0]
        .send_to(payload, PORTS[1])
        .and_then(|_| retried(|| sockets[1].recv_from(&mut room)))
        .and_then(|(len, from)| sockets[1].send_to(&room[..len], from))
        .and_then(|_| retried(|| sockets[0].recv(&mut room)));
    match answered {
        Ok(len) => room[..len] == *payload,
        Err(error) => {
            assert!(matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{error}");
            false
        }
    }
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < end, "{what}: not within a minute");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn session(host: &Site) -> Value {
    host.status()["ike"][0].clone()
}

fn is_established(host: &Site) -> bool {
    session(host)["established"] == true
}

/// What both gateways dropped, and what they have.
fn dropped(hosts: &[Site; 2]) -> String {
    let of = |host: &Site| {
        let status = host.status();
        let names = |of: &str| status[of].clone();
        let packets: Vec<String> = status["associations"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|one| format!("{} {}", one["name"], one["packets"]))
            .collect();
        format!("{} {} {packets:?}", names("drops"), names("policies"))
    };
    hosts.iter().map(of).collect::<Vec<_>>().join("\n")
}

fn sockets(hosts: &[Site; 2]) -> [UdpSocket; 2] {
    [hosts[0].socket(PORTS[0]), hosts[1].socket(PORTS[1])]
}

#[test]
fn a_few_lines_on_each_side_bring_up_a_tunnel() {
    if !privileged() {
        return;
    }
    let ground = Ground::new("ike");
    let hosts = hosts(&ground);
    let files = configure(&ground, [KEY, KEY], ["", ""]);
    let rules = hosts[0].ip("rule");
    let sockets = sockets(&hosts);
    let capture = listen(&hosts);
    for (host, file) in hosts.iter().zip(&files) {
        host.up(file);
    }
    until("keys are negotiated", || hosts.iter().all(is_established));
    until("packets pass", || echo(&sockets, SECRET));
    let frames = capture.finish();
    assert!(!frames.iter().any(|frame| contains(frame, SECRET)), "it is on the wire in clear");

    let status = hosts[0].status();
    assert_eq!(status["ike"][0]["post_quantum"], true, "{status}");
    let associations = status["associations"].as_array().expect("associations");
    assert!(associations.iter().all(|one| one["suite"] == "aes-256-gcm"), "{status}");
    let shown = hosts[0].must(&["status", "hr0"]);
    assert!(shown.contains("post-quantum"), "{shown}");
    assert!(!ground.path("hr0.ledger").exists(), "fresh keys need no ledger");

    for host in &hosts {
        host.must(&["down"]);
        assert_eq!(host.ip("rule"), rules, "what the tunnel changed is undone");
    }
}

#[test]
fn decode_and_wireshark_open_ike_and_esp_with_the_log_of_keys() {
    if !privileged() {
        return;
    }
    let ground = Ground::new("ike-keylog");
    let hosts = hosts(&ground);
    let files = configure(&ground, [KEY, KEY], ["", ""]);
    let sockets = sockets(&hosts);
    let capture = listen(&hosts);
    let keys = ground.path("keys");
    hosts[0].up_with(&files[0], &["--keylog", text(&keys)]);
    hosts[1].up(&files[1]);
    until("packets pass", || echo(&sockets, SECRET));
    let file = ground.path("ike.pcap");
    std::fs::write(&file, wireshark::pcap(wireshark::ETHERNET, &capture.finish())).expect("a file");
    for host in &hosts {
        host.must(&["down"]);
    }

    let clear = ground.path("clear.pcap");
    let words = ["ipsec", "decode", text(&file), "--keylog", text(&keys), "--out", text(&clear)];
    let shown = wireshark::said(Command::new(crate::common::HEADROOM).args(words));
    for line in [
        "IKE_SA_INIT request 0 from the initiator",
        "ADDKE1=ML-KEM-768",
        "IKE_INTERMEDIATE response 1 from the responder",
        "KE      ML-KEM-768, 1088 bytes",
        "IKE_AUTH request 2 from the initiator",
        "AUTH    Shared Key Message Integrity Code",
        "UDP 10.1.0.1",
    ] {
        assert!(shown.contains(line), "{line}: {shown}");
    }
    assert!(!shown.contains("FAILED"), "{shown}");
    assert!(contains(&std::fs::read(&clear).expect("a file"), SECRET), "{shown}");

    let mut decrypted = wireshark::tshark(&ground, &file);
    decrypted.env("WIRESHARK_CONFIG_DIR", &keys);
    decrypted.args(["-o", "esp.enable_encryption_decode:TRUE", "-T", "fields"]);
    decrypted.args(["-E", "separator=|", "-e", "isakmp.exchangetype"]);
    let shown = wireshark::said(decrypted.args(["-e", "isakmp.typepayload", "-e", "data.data"]));
    // IKE_AUTH with AUTH inside, and what was sent
    let opened = |line: &str| {
        let fields: Vec<_> = line.split('|').collect();
        fields[0] == "35" && fields[1].split(',').any(|payload| payload == "39")
    };
    assert!(shown.lines().filter(|line| opened(line)).count() >= 2, "{shown}");
    let digits: String = SECRET.iter().map(|byte| format!("{byte:02x}")).collect();
    assert!(shown.replace(':', "").contains(&digits), "{shown}");
}

#[test]
fn trace_shows_what_ike_does() {
    if !privileged() {
        return;
    }
    let ground = Ground::new("ike-trace");
    let hosts = hosts(&ground);
    // the second host begins nothing
    let files = configure(&ground, [KEY, KEY], ["", ""]);
    let text_of = |file: &PathBuf| std::fs::read_to_string(file).expect("a configuration");
    let waits = text_of(&files[1]).replace("[ike]\n", "[ike]\ninitiate = false\n");
    std::fs::write(&files[1], waits).expect("a configuration");
    let sockets = sockets(&hosts);
    hosts[1].up(&files[1]);
    let mut tracing = hosts[1].command(&["trace", "--json"]);
    let mut tracing =
        hosts[1].run(move || tracing.stdout(Stdio::piped()).spawn().expect("a trace"));
    let output = BufReader::new(tracing.stdout.take().expect("its output"));
    let (to, lines) = mpsc::channel();
    std::thread::spawn(move || {
        output.lines().map_while(Result::ok).try_for_each(|one| to.send(one))
    });
    // it follows what happens from now on
    until("a packet is traced", || {
        // there is no association for it
        let _ = sockets[1].send_to(SECRET, PORTS[0]);
        lines.recv_timeout(Duration::from_millis(100)).is_ok()
    });
    hosts[0].up(&files[0]);
    until("packets pass", || echo(&sockets, SECRET));
    hosts[0].must(&["down"]);
    let mut seen: Vec<Value> = Vec::new();
    while seen.last().is_none_or(|one| one["ike"] != "closed") {
        let line = lines.recv_timeout(PATIENCE).expect("a line");
        let record: Value = serde_json::from_str(&line).expect("JSON");
        seen.extend(Some(record).filter(|one| one["ike"].is_string()));
    }
    kill(Pid::from_raw(tracing.id() as i32), Signal::SIGTERM).expect("it runs");
    tracing.wait().expect("it ends");
    hosts[1].must(&["down"]);
    let shown = |one: &Value| match one["ike"].as_str() {
        Some("message") => {
            ["direction", "exchange", "kind"].map(|key| one[key].to_string()).join(" ")
        }
        _ => format!("{} {} {}", one["ike"], one["peer"], one["child"]),
    };
    let mut shown: Vec<String> = seen.iter().map(|one| shown(one).replace('"', "")).collect();
    // on a busy machine messages are sent again
    shown.dedup();
    let expected = [
        "in IKE_SA_INIT request",
        "out IKE_SA_INIT response",
        "in IKE_INTERMEDIATE request",
        "out IKE_INTERMEDIATE response",
        "in IKE_AUTH request",
        "established hr0 null",
        "out IKE_AUTH response",
        "child-installed hr0 hr0",
        "closed hr0 null",
    ];
    let mut rest = shown.iter();
    for line in expected {
        assert!(rest.any(|one| one == line), "{line}: {shown:#?}");
    }
}

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
    // it has answered, and begins again at once
    assert!(!is_established(&hosts[1]), "{}", session(&hosts[1]));
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
    until("it is refused", || {
        said().contains("AUTHENTICATION_FAILED") || said().contains("did not prove")
    });
    assert!(!echo(&sockets, SECRET));
    let frames = capture.finish();
    assert!(!frames.iter().any(|frame| contains(frame, SECRET)), "it is on the wire in clear");
    hosts[0].must(&["down"]);
    gateway.wait().expect("its end");
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
        socket.set_read_timeout(Some(Duration::from_secs(2))).expect("a timeout");
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

/// The address and the network of one of many peers.
fn one_of_many(peer: u16) -> (String, String) {
    let (high, low) = (peer / 250, peer % 250 + 1);
    (format!("10.200.{high}.{low}"), format!("10.3.{high}.{low}/32"))
}

/// Two hosts of which the second is many peers of the first, by as many addresses. Returns the
/// configurations of both, with `more` lines in the first `[[child]]`.
fn many(ground: &Ground, hosts: &[Site; 2], peers: u16, more: &str) -> [PathBuf; 2] {
    let addresses =
        (0..peers).map(|peer| format!("addr replace {}/32 dev eth0\n", one_of_many(peer).0));
    let batch = ground.write("addresses", &addresses.collect::<String>());
    hosts[1].ip(&format!("-batch {}", text(&batch)));
    hosts[0].ip("route replace 10.200.0.0/16 dev eth0 src 192.0.2.1");
    let configuration = |end: usize| {
        let mut file = "name = \"hr0\"\n".to_owned();
        for peer in 0..peers {
            let more = if peer == 0 { more } else { "" };
            let (address, network) = one_of_many(peer);
            let (local, remote, begins) = match end {
                0 => (ADDRESSES[0], &*address, "initiate = false"),
                _ => (&*address, ADDRESSES[0], "initiate = true"),
            };
            let (near, far) = match end {
                0 => (INNER[0], &*network),
                _ => (&*network, INNER[0]),
            };
            file += &format!(
                "[[ike]]\nname = \"peer-{peer}\"\nlocal = \"{local}\"\nremote = \"{remote}\"\n\
                 psk = \"{KEY} {peer}\"\n{begins}\n\
                 [[child]]\nike = \"peer-{peer}\"\nlocal = \"{near}\"\nremote = \"{far}\"\n{more}\n"
            );
        }
        let file = ground.write(&format!("many-{end}.toml"), &file);
        let mode = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(&file, mode).expect("chmod");
        file
    };
    [configuration(0), configuration(1)]
}

/// The number of IKE SAs that stand, and of all their CHILD SAs.
fn standing(host: &Site) -> (usize, u64) {
    let status = host.status();
    let sessions = status["ike"].as_array().expect("IKE SAs");
    let standing: Vec<_> = sessions.iter().filter(|one| one["established"] == true).collect();
    (standing.len(), standing.iter().filter_map(|one| one["children"].as_u64()).sum())
}

fn cpu_seconds(pid: nix::unistd::Pid) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("a process");
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split_whitespace().collect();
    let ticks: f64 = fields[11..13].iter().filter_map(|ticks| ticks.parse::<f64>().ok()).sum();
    ticks / 100.0
}

/// Brings up `peers` peers and returns the gateways' processes, with words about how long it took.
fn bring_up(hosts: &[Site; 2], files: &[PathBuf; 2], peers: u16) -> [nix::unistd::Pid; 2] {
    let begin = Instant::now();
    let hub = hosts[0].up(&files[0]);
    println!("the first gateway is up after {:.1?}", begin.elapsed());
    let begin = Instant::now();
    let spokes = hosts[1].up(&files[1]);
    println!("the second gateway is up after {:.1?}", begin.elapsed());
    let begin = Instant::now();
    let all = (usize::from(peers), u64::from(peers));
    until("all peers are connected", || hosts.iter().all(|host| standing(host) == all));
    println!(
        "{peers} peers are connected {:.1?} later; CPU {:.2} s and {:.2} s",
        begin.elapsed(),
        cpu_seconds(hub),
        cpu_seconds(spokes)
    );
    [hub, spokes]
}

#[test]
fn one_gateway_has_a_thousand_peers() {
    if !privileged() {
        return;
    }
    let ground = Ground::new("ike-many");
    let hosts = hosts(&ground);
    let files = many(&ground, &hosts, 1000, "");
    hosts[1].ip("addr add 10.3.2.7/32 dev lo");
    bring_up(&hosts, &files, 1000);
    let sockets = [hosts[0].socket(PORTS[0]), hosts[1].socket("10.3.2.7:5000")];
    let mut room = [0; 100];
    until("packets of one of them pass", || {
        sockets[1].send_to(SECRET, PORTS[0]).expect("sent");
        retried(|| sockets[0].recv(&mut room)).is_ok_and(|len| room[..len] == *SECRET)
    });
}

#[test]
#[ignore = "measures; for a quiet machine"]
fn measures_a_thousand_peers() {
    if !privileged() {
        return;
    }
    let ground = Ground::new("ike-measured");
    let hosts = hosts(&ground);
    // the load's source is the first address
    hosts[1].ip(&format!("addr del {}/32 dev lo", INNER[1]));
    hosts[1].ip("addr add 10.3.2.7/32 dev lo");
    let to = SocketAddr::from(([10, 1, 0, 1], 7000));
    hosts[0].run(move || {
        let server = Server::bind(to, None).expect("an address");
        std::thread::spawn(move || server.run());
    });
    for round in 0..6 {
        // in turns, and each of the two first as often
        for turn in [0, 1] {
            let more = ["", "rekey_seconds = 1"][(round + turn) % 2];
            let files = many(&ground, &hosts, 1000, more);
            let gateways = bring_up(&hosts, &files, 1000);
            let before = gateways.map(cpu_seconds);
            std::thread::sleep(Duration::from_secs(5));
            let idle = [0, 1].map(|end| (cpu_seconds(gateways[end]) - before[end]) / 5.0);
            let time = Duration::from_secs(10);
            let load = hosts[1].run(move || packets(to, 1280, time, b"rekey").expect("a load"));
            let rekeys = hosts[0].status()["ike"].as_array().map_or(0, |sessions| {
                sessions.iter().filter_map(|one| one["child_rekeys"].as_u64()).sum()
            });
            let rate = load.packets as f64 * 1280.0 * 8.0 / load.seconds / 1e9;
            println!(
                "{more:?}: {rate:.3} Gbit/s, {} lost, {rekeys} rekeys; idle {:.1} and {:.1} ms of CPU a second",
                load.lost,
                1000.0 * idle[0],
                1000.0 * idle[1]
            );
            hosts.iter().for_each(|host| drop(host.must(&["down"])));
        }
    }
}
