//! What `decode`, Wireshark and `trace` show of IKE.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use super::{KEY, PATIENCE, PORTS, SECRET, configure, echo, hosts, sockets, until};
use crate::common::gateways::{listen, text};
use crate::common::{Ground, wireshark};
use headroom_testing::{contains, privileged};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

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
