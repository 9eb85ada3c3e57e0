//! `headroom tunnel` and `headroom ipsec decode` as they are typed, between two
//! hosts of the test's own.

use std::collections::HashSet;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::common::gateways::{Site, link, listen, text};
use crate::common::{Ground, HEADROOM, part};
use headroom_testing::{contains, privileged, retried};
use nix::sys::signal::{Signal, kill};
use serde_json::Value;

/// Longer than anything here takes, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
const HERE: &str = "192.0.2.1";
const THERE: &str = "192.0.2.2";
const SECRET: &[u8] = b"nobody on the way reads this";

/// Writes a pair of configurations for the two hosts.
fn keygen(ground: &Ground, words: &[&str]) -> [PathBuf; 2] {
    crate::common::gateways::keygen(ground, [HERE, THERE], words)
}

/// Frames as a pcap file of Ethernet.
fn pcap(frames: &[Vec<u8>]) -> Vec<u8> {
    let mut file: Vec<u8> = [0xa1b2_c3d4_u32, 2 | 4 << 16, 0, 0, 262_144, 1]
        .into_iter()
        .flat_map(u32::to_le_bytes)
        .collect();
    for (at, frame) in frames.iter().enumerate() {
        let len = frame.len() as u32;
        file.extend([at as u32, 0, len, len].into_iter().flat_map(u32::to_le_bytes));
        file.extend(frame);
    }
    file
}

#[test]
fn a_tunnel_from_keygen_to_down() {
    if !privileged() {
        return;
    }
    let ground = Ground::new("tunnel");
    let hosts = link(&ground);
    let files = keygen(&ground, &["--protocol", "qesp"]);
    let rules = hosts[0].ip("rule");
    let printed = hosts[0].must(&["up", text(&files[0]), "--dry-run"]);
    assert!(printed.contains("ip tuntap add dev hr0") && hosts[0].ip("rule") == rules, "{printed}");
    let sockets = [hosts[0].socket("192.0.2.1:5000"), hosts[1].socket("192.0.2.2:5001")];
    let exchange = || {
        sockets[0].send_to(SECRET, "192.0.2.2:5001").map_err(|error| error.to_string())?;
        let mut room = [0; 100];
        let (len, from) =
            retried(|| sockets[1].recv_from(&mut room)).map_err(|error| error.to_string())?;
        sockets[1].send_to(&room[..len], from).map_err(|error| error.to_string())?;
        retried(|| sockets[0].recv(&mut room))
            .map(|len| room[..len].to_vec())
            .map_err(|error| error.to_string())
    };

    // up, and what passes is protected
    let gateways = [0, 1].map(|n| hosts[n].up(&files[n]));
    let capture = listen(&hosts);
    assert_eq!(exchange().as_deref(), Ok(SECRET));
    let frames = capture.finish();
    assert!(!frames.iter().any(|frame| contains(frame, SECRET)), "it is on the wire in clear");

    // status says so
    let status = hosts[0].status();
    let of = |name: &str| {
        let all = status["associations"].as_array().expect("associations");
        all.iter().find(|one| one["name"] == name).expect("the association").clone()
    };
    assert_eq!(
        (&of("out-qesp")["packets"], &of("in-qesp")["packets"]),
        (&1.into(), &1.into()),
        "{status}"
    );
    assert_eq!(status["policies"][0]["hits"], 1);
    let human = hosts[0].must(&["status", "hr0"]);
    assert!(human.contains("out transport, Q-ESP") && human.contains("protected"), "{human}");

    // trace says so of what passes from some moment on
    let mut tracing = hosts[0].command(&["trace", "--count", "2", "--json"]);
    let mut tracing =
        hosts[0].run(move || tracing.stdout(Stdio::piped()).spawn().expect("a trace"));
    until("two packets are traced", || {
        assert_eq!(exchange().as_deref(), Ok(SECRET));
        tracing.try_wait().expect("a child's state").is_some()
    });
    let traced = wait(tracing);
    let records: Vec<Value> =
        traced.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(records.len(), 2, "{traced}");
    assert!(
        records
            .iter()
            .all(|record| record["decision"] == "protect" && record["policy"] == "protected"),
        "{traced}"
    );

    // the capture opens with the keys of either end
    let captured = ground.path("wire.pcap");
    std::fs::write(&captured, pcap(&frames)).expect("a capture");
    for file in &files {
        let (code, said) =
            decode(&captured, file, &["--json", "--out", text(&ground.path("clear.pcap"))]);
        assert_eq!(code, Some(0), "{said}");
        let opened: Vec<Value> = said
            .lines()
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .filter(|packet: &Value| packet["result"] == "opened")
            .collect();
        assert_eq!(opened.len(), 2, "{said}");
        // in either order: each was seen at another interface
        let mut ports: Vec<_> = opened
            .iter()
            .map(|packet| packet["layers"][0]["clear"]["destination_port"].as_u64())
            .collect();
        ports.sort_unstable();
        assert_eq!(ports, [Some(5000), Some(5001)], "{said}");
        assert!(contains(&std::fs::read(ground.path("clear.pcap")).expect("a file"), SECRET));
    }
    let others = Ground::new("tunnel-others");
    let foreign = keygen(&others, &["--protocol", "qesp"]);
    let (code, said) = decode(&captured, &foreign[0], &["--failures"]);
    assert!(
        code == Some(1)
            && said.contains("unknown-spi")
            && said.contains("SPIs configured for Q-ESP"),
        "{said}"
    );

    // a reload that is refused changes nothing
    let before = std::fs::read_to_string(&files[0]).expect("a configuration");
    std::fs::write(&files[0], before.replace("action", "acton")).expect("written");
    let refused = hosts[0].tunnel(&["reload"]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.contains("unknown field `acton`"), "{said}");
    assert_eq!(exchange().as_deref(), Ok(SECRET));
    std::fs::write(&files[0], format!("address = [\"10.9.0.1/24\"]\n{before}")).expect("written");
    let refused = hosts[0].tunnel(&["reload"]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(2) && said.contains("cannot change `address`"), "{said}");
    std::fs::write(&files[0], before).expect("written");
    hosts[0].must(&["reload"]);
    assert_eq!(exchange().as_deref(), Ok(SECRET));
    let twice = hosts[0].tunnel(&["up", text(&files[0]), "--background"]);
    assert!(String::from_utf8_lossy(&twice.stderr).contains("is up already"), "{twice:?}");

    // a gateway that dies leaves nothing open, and comes back with new numbers
    let capture = listen(&hosts);
    kill(gateways[0], Signal::SIGKILL).expect("it was there");
    until("the interface is gone", || {
        !Path::new(&format!("/proc/{}", gateways[0])).join("exe").exists()
    });
    let wait_for_answers = |time| {
        for socket in &sockets {
            socket.set_read_timeout(Some(time)).expect("a timeout");
        }
    };
    wait_for_answers(Duration::from_secs(2));
    assert!(exchange().is_err(), "it left in clear");
    wait_for_answers(PATIENCE);
    assert!(
        String::from_utf8_lossy(&hosts[0].tunnel(&["status"]).stderr).contains("no gateway runs")
    );
    assert!(!capture.finish().iter().any(|frame| contains(frame, SECRET)));
    hosts[0].up(&files[0]);
    assert_eq!(exchange().as_deref(), Ok(SECRET));
    let out = hosts[0].status();
    let out = out["associations"]
        .as_array()
        .expect("associations")
        .iter()
        .find(|one| one["direction"] == "out")
        .cloned();
    assert!(out.expect("one")["sequence"].as_u64() > Some(1 << 20), "numbers of the former life");

    // down, also of one that is dead
    hosts[0].must(&["down"]);
    kill(gateways[1], Signal::SIGKILL).expect("it was there");
    hosts[1].must(&["down"]);
    assert_eq!(hosts[0].ip("rule"), rules);
    assert_eq!(hosts[1].ip("rule"), rules);
    assert_eq!(exchange().as_deref(), Ok(SECRET), "in clear, as before");
    let nothing = hosts[1].tunnel(&["down"]);
    assert!(String::from_utf8_lossy(&nothing.stderr).contains("no tunnel is up"), "{nothing:?}");
}

/// A site whose all traffic goes to the other still reaches its own networks, and
/// the other site does.
#[test]
fn a_tunnel_to_any_excludes_local_networks() {
    if !privileged() {
        return;
    }
    let ground = Ground::new("any");
    let hosts = link(&ground);
    // a router of 10.1.0.0/16 is behind the first gateway, 10.2.0.1 is the second itself
    hosts[0].ip("link add lan0 type veth peer name lan1");
    hosts[0].ip("link set lan1 up");
    // nothing else is sent there
    hosts[0].run(|| {
        std::fs::write("/proc/sys/net/ipv6/conf/lan0/disable_ipv6", "1").expect("without IPv6");
    });
    hosts[0].ip("addr add 10.1.0.254/16 dev lan0");
    hosts[0].ip("link set lan0 up");
    hosts[0].ip("neigh add 10.1.0.1 lladdr 02:00:00:00:00:01 dev lan0");
    hosts[0].run(|| std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").expect("forwards"));
    hosts[1].ip("addr add 10.2.0.1/32 dev lo");
    let files = keygen(&ground, &["--local-net", "10.1.0.0/16", "--remote-net", "any"]);
    for (host, file) in hosts.iter().zip(&files) {
        host.up(file);
    }
    let sent = || -> u64 {
        let shown = hosts[0].ip("-s -s -j link show dev lan0");
        let shown: Value = serde_json::from_str(&shown).expect("JSON");
        shown[0]["stats64"]["tx"]["packets"].as_u64().expect("a number")
    };
    // through the tunnel to the network behind it, and to the gateway's address there
    let sender = hosts[1].socket("10.2.0.1:5001");
    let before = sent();
    sender.send_to(SECRET, "10.1.0.1:9").expect("sent");
    until("the packet is on the network behind the gateway", || sent() > before);
    let gateway = hosts[0].socket("10.1.0.254:5000");
    sender.send_to(SECRET, "10.1.0.254:5000").expect("sent");
    let mut room = [0; 100];
    let (len, from) = retried(|| gateway.recv_from(&mut room)).expect("it arrives");
    assert_eq!(&room[..len], SECRET);
    gateway.send_to(&room[..len], from).expect("sent");
    let len = retried(|| sender.recv(&mut room)).expect("the answer arrives");
    assert_eq!(&room[..len], SECRET);
    // the gateway's own packets to that network do not go into the tunnel, others do
    assert!(hosts[0].ip("route get 10.1.0.1 from 10.1.0.254").contains("dev lan0"));
    assert!(hosts[0].ip("route get 198.51.100.1 from 10.1.0.254").contains("dev hr0"));
    let before = sent();
    gateway.send_to(SECRET, "10.1.0.1:9").expect("sent");
    until("the gateway's own packet is there", || sent() > before);
    for host in &hosts {
        host.must(&["down"]);
    }
}

#[test]
fn a_refused_configuration_exits_with_2_also_in_background() {
    let ground = Ground::new("refused");
    let files = keygen(&ground, &[]);
    let before = std::fs::read_to_string(&files[0]).expect("a configuration");
    std::fs::write(&files[0], before.replace("action", "acton")).expect("written");
    for more in [&["--background"][..], &[], &["--dry-run"]] {
        let mut command = Command::new(HEADROOM);
        command.args(["tunnel", "up"]).arg(&files[0]).args(more);
        command.env("HEADROOM_RUN_DIR", ground.path("run"));
        let output = command.output().expect("the command starts");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && said.contains("acton"), "{more:?}: {said}");
    }
}

#[test]
fn check_reports_what_it_finds() {
    if !privileged() {
        return;
    }
    let ground = Ground::new("check");
    let hosts = link(&ground);
    let words = ["--udp", "--local-net", "10.1.0.0/16", "--remote-net", "10.2.0.0/16"];
    let files = keygen(&ground, &words);
    let check = |host: usize, file: &Path| {
        let output = hosts[host].tunnel(&["check", text(file)]);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        (output.status.code(), said + &String::from_utf8_lossy(&output.stderr))
    };
    let has = |said: &str, verdict: &str, words: &str| {
        let found = said.lines().any(|line| line.starts_with(verdict) && line.contains(words));
        assert!(found, "`{verdict}` with `{words}` is not in:\n{said}");
    };
    // before anything is up; the peer's host answers that nobody listens
    let rules = hosts[0].ip("rule");
    let (code, said) = check(0, &files[0]);
    assert_eq!(code, Some(0), "{said}");
    has(&said, "ok", "this host has 192.0.2.1");
    has(&said, "ok", "4500 is free");
    has(&said, "ok", "contains the keys");
    has(&said, "ok", "192.0.2.2: 1500 bytes");
    has(&said, "ok", "bytes fit one packet to 192.0.2.2");
    has(&said, "warning", "is closed");
    has(&said, "not known", "whether the peer has the same keys");
    assert_eq!(hosts[0].ip("rule"), rules, "it changes nothing");

    // the file of the other end, a port that is held, a ledger that is gone
    let (_, said) = check(0, &files[1]);
    has(&said, "warning", "does not have 192.0.2.2");
    // it may come later, so `up` and `reload` say it, too, and go on
    for words in [&["up", text(&files[1]), "--background"][..], &["reload"]] {
        let output = hosts[0].tunnel(words);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && said.contains("192.0.2.2 for this host"), "{said}");
    }
    hosts[0].must(&["down"]);
    let held = hosts[0].socket("192.0.2.1:4500");
    let (code, said) = check(0, &files[0]);
    assert_eq!(code, Some(1), "{said}");
    has(&said, "FAILURE", "4500 is in use by another program");
    drop(held);
    let before = std::fs::read_to_string(&files[0]).expect("a configuration");
    std::fs::write(
        &files[0],
        format!("mtu = 1500\n{}", before.replace("left.ledger", "no.ledger")),
    )
    .expect("written");
    let (code, said) = check(0, &files[0]);
    assert_eq!(code, Some(1), "{said}");
    has(&said, "FAILURE", "no.ledger is missing");
    has(&said, "warning", "`mtu` is 1500");
    std::fs::write(&files[0], before.replace("action", "acton")).expect("written");
    assert_eq!(check(0, &files[0]).0, Some(2));
    std::fs::write(&files[0], before).expect("written");

    // an interface of its name, files of somebody else, a firewall of the router's own
    hosts[0].ip("link add hr0 type veth peer name other0");
    let (code, said) = check(0, &files[0]);
    assert_eq!(code, Some(1), "{said}");
    has(&said, "FAILURE", "the interface hr0 exists");
    let refused = hosts[0].tunnel(&["up", text(&files[0]), "--background"]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("give the tunnel another"), "{said}");
    assert_eq!(hosts[0].ip("rule"), rules, "nothing is blocked");
    hosts[0].ip("link del hr0");
    let folder = files[0].parent().expect("a folder");
    std::os::unix::fs::chown(folder, Some(65_534), Some(65_534)).expect("given away");
    let (code, said) = check(0, &files[0]);
    assert_eq!(code, Some(1), "{said}");
    has(&said, "FAILURE", "belongs to another user (uid 65534)");
    std::os::unix::fs::chown(folder, Some(0), Some(0)).expect("taken back");
    let six = Ground::new("check-six");
    let six = keygen(&six, &["--local-net", "fd00:1::/64", "--remote-net", "fd00:2::/64"]);
    let disable = |value: &'static str| {
        let file = "/proc/sys/net/ipv6/conf/default/disable_ipv6";
        hosts[0].run(move || std::fs::write(file, value).expect("written"));
    };
    for (value, code) in [("1", Some(1)), ("0", Some(0))] {
        disable(value);
        let (found, said) = check(0, &six[0]);
        assert!(
            found == code && said.contains("is disabled on new interfaces") == (value == "1"),
            "{said}"
        );
    }
    let forward = "table ip docker {
  chain FORWARD {
    type filter hook forward priority filter; policy drop;
  }
}
table ip6 other {
  chain in {
    type filter hook input priority filter; policy drop;
  }
}
";
    let forward = ground.write("forward.nft", forward);
    hosts[0].run(move || nft(&["-f", text(&forward)]));
    let (_, said) = check(0, &files[0]);
    has(&said, "warning", "`ip docker FORWARD` drops packets by default");
    assert!(!said.contains("`ip6 other in`"), "{said}");
    hosts[0].run(|| nft(&["flush", "ruleset"]));

    // both up: what has arrived is known
    for (host, file) in hosts.iter().zip(&files) {
        host.up(file);
    }
    let (code, said) = check(0, &files[0]);
    assert_eq!(code, Some(0), "{said}");
    has(&said, "ok", "4500 is in use by the gateway");
    has(&said, "warning", "no packet of the peer was authenticated yet");
    has(&said, "ok", "running with this file");

    // a file of other keys, and of the same name, is another tunnel
    let others = Ground::new("check-others");
    let foreign = keygen(&others, &words);
    let (code, said) = check(0, &foreign[0]);
    assert_eq!(code, Some(1), "{said}");
    has(&said, "FAILURE", "another tunnel `hr0` is up, with ");
    has(&said, "FAILURE", "4500 is in use by another program");
    assert!(!said.contains("no packet of the peer"), "{said}");
    // and so are other keys in the same file, until they are loaded
    let before = std::fs::read_to_string(&files[0]).expect("a configuration");
    let spi = before.lines().find(|line| line.starts_with("spi = ")).expect("an SPI");
    std::fs::write(&files[0], before.replacen(spi, "spi = 0x77777", 1)).expect("written");
    has(&check(0, &files[0]).1, "warning", "with other SAs than this file");
    std::fs::write(&files[0], before).expect("written");
    for host in &hosts {
        host.must(&["down"]);
    }
}

#[test]
fn clear_packets_overwrite_neither_the_capture_nor_the_keys() {
    let ground = Ground::new("overwrite");
    let files = keygen(&ground, &[]);
    let captured = ground.path("wire.pcap");
    std::fs::write(&captured, pcap(&[vec![0; 60]])).expect("a capture");
    let (soft, hard) = (ground.path("soft.pcap"), ground.path("hard.pcap"));
    std::os::unix::fs::symlink(&captured, &soft).expect("a link");
    std::fs::hard_link(&captured, &hard).expect("a link");
    let content = std::fs::read(&captured).expect("a file");
    let [text_of, key, ledger, copy] =
        [files[0].clone(), ground.path("keys/out.key"), ground.path("keys/left.ledger"), {
            let folder = ground.path("ledger-copy-left");
            std::fs::create_dir(&folder).expect("a folder");
            folder.join("hr0-00.ledger")
        }];
    // the key of the first SA in a file of its own
    let written = std::fs::read_to_string(&text_of).expect("a configuration");
    let line = written.lines().find(|line| line.starts_with("key = ")).expect("a key");
    let digits = line.split('"').nth(1).expect("digits");
    for (path, content) in [(&key, digits), (&copy, "a copy")] {
        std::fs::write(path, content).expect("written");
        std::fs::set_permissions(path, Permissions::from_mode(0o600)).expect("private");
    }
    std::fs::write(&text_of, written.replacen(line, "key_file = \"out.key\"", 1)).expect("written");
    let keys = std::fs::read(&files[0]).expect("a file");
    let kept = [&key, &ledger, &copy].map(|path| std::fs::read(path).expect("a file"));
    for out in [&captured, &soft, &hard, &files[0], &key, &ledger, &copy] {
        let mut command = Command::new(HEADROOM);
        command.args(["ipsec", "decode"]).arg(&captured).arg("--config").arg(&files[0]);
        let output = command.arg("--out").arg(out).output().expect("the command starts");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && said.contains("overwrite"), "{out:?}: {said}");
        assert_eq!(std::fs::read(&captured).expect("a file"), content);
        assert_eq!(std::fs::read(&files[0]).expect("a file"), keys);
    }
    let after = [&key, &ledger, &copy].map(|path| std::fs::read(path).expect("a file"));
    assert_eq!(after, kept);
    // another file is emptied first, and is then its owner's alone
    let clear = ground.path("clear.pcap");
    std::fs::write(&clear, vec![7; 5000]).expect("a file");
    std::fs::set_permissions(&clear, Permissions::from_mode(0o644)).expect("public");
    decode(&captured, &files[0], &["--out", text(&clear)]);
    let about = std::fs::metadata(&clear).expect("a file");
    assert_eq!((about.len(), about.permissions().mode() & 0o777), (24, 0o600));
    for told in ["-", "/dev/stdout"] {
        assert_eq!(decode(&captured, &files[0], &["--out", told]).0, Some(2), "{told}");
    }
}

/// A router without any key tells Q-ESP flows apart by a rule of nftables, and a
/// capture of it opens with the keys.
#[test]
fn q_esp_is_classified_by_a_stock_rule_and_decoded_from_a_capture() {
    if !privileged() {
        return;
    }
    const DATAGRAMS: usize = 20;
    let ground = Ground::new("qesp");
    let hosts = link(&ground);
    let files = keygen(&ground, &["--protocol", "qesp"]);
    for (host, file) in hosts.iter().zip(&files) {
        host.up(file);
    }
    // what a router on the way would have (docs/qesp.md)
    let rules = "table inet router {
  counter matched {}
  counter other_port {}
  counter other_protocol {}
  chain prerouting {
    type filter hook prerouting priority raw;
    meta l4proto 253 @th,16,16 6000 @th,32,8 17 counter name matched
    meta l4proto 253 @th,16,16 6001 counter name other_port
    meta l4proto 253 @th,16,16 6000 @th,32,8 6 counter name other_protocol
  }
}
";
    let rules = ground.write("rules.nft", rules);
    hosts[1].run(move || nft(&["-f", text(&rules)]));
    let capture = listen(&hosts);
    let receiver = hosts[1].socket("192.0.2.2:6000");
    let sender = hosts[0].socket("192.0.2.1:5004");
    for _ in 0..DATAGRAMS {
        let mut room = [0; 100];
        sender.send_to(SECRET, "192.0.2.2:6000").expect("sent");
        let len = retried(|| receiver.recv(&mut room)).expect("it arrives");
        assert_eq!(&room[..len], SECRET);
    }
    let frames = capture.finish();
    assert!(!frames.iter().any(|frame| contains(frame, SECRET)), "it is readable on the wire");
    let counted = hosts[1].run(|| nft(&["list", "counters", "table", "inet", "router"]));
    let packets = |name: &str| -> usize {
        let behind = counted.split(&format!("counter {name} {{")).nth(1).expect("the counter");
        let word = behind.split_whitespace().nth(1).expect("a number");
        word.parse().expect("a number")
    };
    let all = ["matched", "other_port", "other_protocol"].map(packets);
    assert_eq!(all, [DATAGRAMS, 0, 0], "{counted}");

    let captured = ground.path("wire.pcap");
    std::fs::write(&captured, pcap(&frames)).expect("written");
    let clear = ground.path("clear.pcap");
    let (code, said) = decode(&captured, &files[1], &["--json", "--out", text(&clear)]);
    assert_eq!(code, Some(0), "{said}");
    let clear = std::fs::read(&clear).expect("the clear packets");
    let secrets = clear.windows(SECRET.len()).filter(|window| *window == SECRET).count();
    assert_eq!(secrets, DATAGRAMS);
    for host in &hosts {
        host.must(&["down"]);
    }
}

/// Runs nft and gives what it says.
fn nft(arguments: &[&str]) -> String {
    let output = part("nft").args(arguments).output().expect("nft");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// Kills a gateway under load again and again: no IV is sent twice.
#[test]
fn no_iv_is_sent_twice_by_gateways_that_are_killed() {
    if !privileged() {
        return;
    }
    const KILLS: usize = 100;
    let ground = Ground::new("kills");
    let hosts = link(&ground);
    let files = keygen(&ground, &["--local-net", HERE, "--remote-net", "10.2.0.0/16"]);
    hosts[0].ip(&format!("neigh add {THERE} lladdr {} dev eth0", address_of(&hosts[1])));
    let capture = listen(&hosts);
    let load = hosts[0].socket("192.0.2.1:5000");
    let mut seen: HashSet<u64> = HashSet::new();
    let mut lives = 0;
    for _ in 0..KILLS {
        let mut command = hosts[0].command(&["up", text(&files[0])]);
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        let mut gateway = hosts[0].run(move || command.spawn().expect("a gateway"));
        let socket = hosts[0].run.join("hr0.sock");
        let _ = std::fs::remove_file(&socket);
        until("the gateway is up", || {
            socket.exists() || gateway.try_wait().is_ok_and(|end| end.is_some())
        });
        let before = seen.len();
        let end = Instant::now() + Duration::from_millis(30);
        while Instant::now() < end {
            for _ in 0..32 {
                // blocked or full is as good
                let _ = load.send_to(&[0; 64], "10.2.0.1:9");
            }
        }
        gateway.kill().expect("it was there");
        let said = gateway.wait_with_output().expect("its end").stderr;
        for frame in capture.take() {
            let Some(iv) = iv_of(&frame) else { continue };
            assert!(
                seen.insert(iv),
                "the IV {iv} was sent twice; {}",
                String::from_utf8_lossy(&said)
            );
        }
        lives += usize::from(seen.len() > before);
    }
    for iv in capture.finish().iter().filter_map(|frame| iv_of(frame)) {
        assert!(seen.insert(iv), "the IV {iv} was sent twice");
    }
    println!("{} packets of {lives} gateways", seen.len());
    assert!(lives * 2 > KILLS, "only {lives} of {KILLS} gateways sent anything that was seen");
    hosts[0].must(&["down"]);
}

/// The IV of ESP over IPv4 in an Ethernet frame.
fn iv_of(frame: &[u8]) -> Option<u64> {
    const IV: std::ops::Range<usize> = 14 + 20 + 8..14 + 20 + 16;
    let esp = frame.get(12..14) == Some(&[8, 0]) && frame.get(23) == Some(&50);
    frame.get(IV).filter(|_| esp).map(|iv| u64::from_be_bytes(iv.try_into().expect("eight bytes")))
}

fn address_of(host: &Site) -> String {
    let link = host.ip("-o link show dev eth0");
    link.split("link/ether ")
        .nth(1)
        .and_then(|rest| rest.split(' ').next())
        .expect("an address")
        .to_owned()
}

fn decode(capture: &Path, config: &Path, words: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(HEADROOM);
    command.args(["ipsec", "decode"]).arg(capture).arg("--config").arg(config).args(words);
    let output = command.output().expect("the command starts");
    (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
}

fn wait(child: Child) -> String {
    String::from_utf8_lossy(&child.wait_with_output().expect("its end").stdout).into_owned()
}

#[track_caller]
fn until(what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < end, "{what}: not within a minute");
        sleep(Duration::from_millis(5));
    }
}
