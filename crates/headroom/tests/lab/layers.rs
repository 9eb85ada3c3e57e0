//! Layers around applications: each one around one that fits, to any depth, over
//! IPv4 and IPv6, with every file verified; what makes no sense is refused, and a
//! layer that dies is named.

mod ipsec;
mod streams;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use crate::common::{Ground, array, number, text};
use headroom_testing::privileged;
use nix::sys::signal::{Signal, kill};
use pcap_file::pcap::PcapReader;
use serde_json::Value;

/// One transfer in each sample: the lab would choose as many as last 0.3 s, and nothing here is
/// about time.
const WORKLOADS: &str = "[[workload]]\nkind = \"download\"\nsizes = [\"256KiB\"]\ntransfers-per-sample = 1\n\
                         [[workload]]\nkind = \"upload\"\nsizes = [\"256KiB\"]\ntransfers-per-sample = 1\n";

/// For runs that are still measuring when a layer dies.
const LONG: &str = "repetitions = 100\n[[workload]]\nkind = \"download\"\nsizes = [\"256KiB\"]\n";

fn measure(ground: &Ground, stacks: &[&str], family: &str) -> Value {
    let plan = format!("stacks = {stacks:?}\nfamily = \"{family}\"\nrepetitions = 2\n{WORKLOADS}");
    measure_plan(ground, &plan)
}

fn measure_plan(ground: &Ground, plan: &str) -> Value {
    measure_with(ground, plan, "")
}

fn measure_with(ground: &Ground, plan: &str, options: &str) -> Value {
    ground.write("p.toml", plan);
    let results = ground.measure(&format!("p.toml {options}"));
    for sample in array(&results, "samples") {
        assert_eq!(sample["ok"], Value::Bool(true), "{sample}");
        assert!(number(sample, "seconds") > 0.0, "{sample}");
        assert!(number(sample, "session_seconds") >= number(sample, "seconds"), "{sample}");
        // nothing is cut on its way: neither fragments nor more than the link takes
        assert!(number(&sample["wire"], "largest_frame_bytes") <= 1514.0, "{sample}");
    }
    results
}

/// Bytes on the wire of a download, by stack.
fn bytes(results: &Value) -> BTreeMap<&str, f64> {
    array(results, "samples")
        .iter()
        .filter(|sample| text(sample, "workload").starts_with("download"))
        .map(|sample| (text(sample, "stack"), number(&sample["wire"], "bytes")))
        .collect()
}

/// Layers in the order in which they were set up, with packets and round trips.
fn set_ups(results: &Value) -> Vec<(&str, &str, f64, f64)> {
    array(results, "layer_setups")
        .iter()
        .map(|row| {
            let seconds = array(row, "seconds");
            assert_eq!(seconds.len(), 5, "{row}");
            assert!(seconds.iter().all(|s| s.as_f64().is_some_and(|s| s > 0.0)), "{row}");
            let counts = (number(row, "packets"), number(row, "round_trips"));
            (text(row, "stack"), text(row, "layer"), counts.0, counts.1)
        })
        .collect()
}

#[test]
fn each_layer_around_https_and_sftp_over_ipv6() {
    if !privileged() {
        return;
    }
    let ground = Ground::new("layers");
    let stacks = [
        "https",
        "https/wireguard",
        "https/openvpn",
        "https/esp(ike,cert)",
        "sftp/tls",
        "sftp/tls/strongswan",
        "sftp/tls/esp(ike,pq=off,transport)",
    ];
    let results = measure(&ground, &stacks, "ipv6");

    let bytes = bytes(&results);
    for (inner, outer) in [
        ("https", "https/wireguard"),
        ("https", "https/openvpn"),
        ("https", "https/esp(ike,cert)"),
        ("sftp/tls", "sftp/tls/strongswan"),
        ("sftp/tls", "sftp/tls/esp(ike,pq=off,transport)"),
    ] {
        // more than a header of its own on every full packet
        assert!(bytes[outer] > bytes[inner] * 1.02, "{bytes:?}");
    }
    let set_ups = set_ups(&results);
    let of_headroom = stacks[6];
    let named: Vec<(&str, &str)> =
        set_ups.iter().map(|&(stack, layer, ..)| (stack, layer)).collect();
    assert_eq!(
        named,
        [
            ("https/wireguard", "wireguard"),
            ("https/openvpn", "openvpn"),
            ("https/esp(ike,cert)", "esp"),
            ("sftp/tls", "tls"),
            ("sftp/tls/strongswan", "strongswan"),
            ("sftp/tls/strongswan", "tls"),
            (of_headroom, "esp"),
            (of_headroom, "tls"),
        ]
    );
    // WireGuard: initiation, response, the packet that confirms; IKEv2: two exchanges
    assert_eq!((set_ups[0].2, set_ups[0].3), (3.0, 1.0));
    assert_eq!((set_ups[4].2, set_ups[4].3), (4.0, 2.0));
    assert_eq!((set_ups[6].2, set_ups[6].3), (4.0, 2.0));
    // between them one for ML-KEM-768, whose request is longer than a packet (RFC 7383)
    assert_eq!((set_ups[2].2, set_ups[2].3), (7.0, 3.0));
    let exchange =
        text(&results["environment"]["stacks"]["https/esp(ike,cert)"], "esp: key exchange");
    assert!(exchange.ends_with("ML-KEM-768, certificates of ECDSA P-256"), "{exchange}");
    // around TLS, set up anew
    assert_eq!((set_ups[5].2, set_ups[5].3), (set_ups[7].2, set_ups[7].3));

    let facts = &results["environment"]["stacks"];
    assert_eq!(text(&facts["https/wireguard"], "wireguard: inner MTU"), "1420");
    assert_eq!(text(&facts["https/openvpn"], "openvpn: inner MTU"), "1428");
    let programs = array(&results["environment"], "programs");
    for name in ["wireguard-go", "openvpn", "stunnel", "swanctl"] {
        assert!(programs.iter().any(|program| text(program, "name") == name), "{name}");
    }
    let baselines: BTreeMap<&str, Option<&str>> = array(&results["plan"], "stacks")
        .iter()
        .map(|stack| (text(stack, "name"), stack["baseline"].as_str()))
        .collect();
    assert_eq!(baselines["sftp/tls/strongswan"], Some("sftp/tls"));
    assert_eq!(baselines["https/openvpn"], Some("https"));
}

#[test]
fn to_any_depth_over_ipv4() {
    if !privileged() {
        return;
    }
    let ground = Ground::new("depth");
    let stacks = [
        "ftp/wireguard",
        "http/tls/tls",
        "sftp/tls/wireguard/openvpn",
        "http/strongswan",
        "ftp/wireguard/qesp(ike)",
    ];
    let results = measure(&ground, &stacks, "ipv4");
    let set_ups = set_ups(&results);
    let of_deepest: Vec<&str> = set_ups
        .iter()
        .filter(|(stack, ..)| *stack == "sftp/tls/wireguard/openvpn")
        .map(|&(_, layer, ..)| layer)
        .collect();
    assert_eq!(of_deepest, ["openvpn", "wireguard", "tls"]);
    // Q-ESP is agreed on in the exchanges of ESP
    assert!(set_ups.contains(&("ftp/wireguard/qesp(ike)", "qesp", 7.0, 3.0)), "{set_ups:?}");
    let facts = &results["environment"]["stacks"]["sftp/tls/wireguard/openvpn"];
    assert_eq!(text(facts, "openvpn: inner MTU"), "1448");
    assert_eq!(text(facts, "wireguard: inner MTU"), "1388");
}

/// Whether each packet of a kept capture is a datagram.
fn is_all_udp(capture: &Path, family: &str) -> bool {
    const UDP: u8 = 17;
    // behind Ethernet: IPv6's next header, IPv4's protocol
    let place = 14 + if family == "ipv6" { 6 } else { 9 };
    let file = File::open(capture).expect("a capture");
    let mut reader = PcapReader::new(BufReader::new(file)).expect("a pcap file");
    let mut packets = 0;
    while let Some(packet) = reader.next_packet() {
        if packet.expect("a packet").data[place] != UDP {
            return false;
        }
        packets += 1;
    }
    packets > 0
}

#[test]
fn dtls_carries_everything_in_datagrams_over_both_families() {
    if !privileged() {
        return;
    }
    for (family, mtu) in [("ipv4", "1434"), ("ipv6", "1402")] {
        let ground = Ground::new("dtls");
        let of = ["http/dtls", "http/tls/dtls", "ftp/dtls", "http/dtls/dtls"];
        let plan = format!(
            "stacks = {:?}\nfamily = \"{family}\"\nrepetitions = 2\n{WORKLOADS}[[workload]]\n\
             kind = \"setup\"\nstacks = [\"http/dtls\", \"http/dtls/dtls\"]\n",
            [&["http"], &of[..]].concat(),
        );
        let results = measure_with(&ground, &plan, "--keep-captures");

        let set_ups = set_ups(&results);
        let named: Vec<(&str, &str)> =
            set_ups.iter().map(|&(stack, layer, ..)| (stack, layer)).collect();
        assert_eq!(
            named,
            [
                (of[0], "dtls"),
                (of[1], "dtls"),
                (of[1], "tls"),
                (of[2], "dtls"),
                (of[3], "dtls"),
                (of[3], "dtls"),
            ]
        );
        // TCP and TLS twice, requests, and DTLS
        let of_dtls = set_ups.iter().filter(|set_up| set_up.1 == "dtls");
        assert!(of_dtls.clone().all(|set_up| set_up.2 >= 25.0 && set_up.3 >= 8.0), "{set_ups:?}");

        let captures = array(&results, "captures");
        assert!(captures.iter().any(|capture| capture["stack"] == "http/dtls"));
        for capture in captures {
            let file = ground.path("out").join(text(capture, "file"));
            let in_dtls = text(capture, "stack") != "http";
            assert_eq!(is_all_udp(&file, family), in_dtls, "{capture}");
        }
        let bytes = bytes(&results);
        assert!(bytes["http/dtls"] > bytes["http"] * 1.02, "{bytes:?}");
        assert!(seen_in_clear(&results).iter().all(|(stack, seen)| *seen == (*stack == "http")));
        let facts = &results["environment"]["stacks"]["http/dtls"];
        assert_eq!(text(facts, "dtls: inner MTU"), mtu);
        assert_eq!(text(facts, "dtls: cipher"), "AES-128-GCM");
        let programs = array(&results["environment"], "programs");
        for name in ["openconnect", "ocserv"] {
            let program = programs.iter().find(|program| text(program, "name") == name);
            let version = program.and_then(|program| program["version"].as_str());
            assert!(version.is_some_and(|version| !version.is_empty()), "{name}: {program:?}");
        }
    }
}

/// openconnect would go on in TLS, and its user would not notice.
#[test]
fn data_that_leaves_dtls_for_tls_fails_the_run() {
    if !privileged() {
        return;
    }
    let ground = Ground::new("fallback");
    ground.write("p.toml", &format!("stacks = [\"http/dtls\"]\n{LONG}"));
    let mut run = ground.start(ground.headroom("lab run p.toml --out out"));
    run.until_download(2);
    let client =
        run.until("openconnect", |run| run.processes("client", "openconnect").into_iter().next());
    let no_udp = ["ip", "-6", "rule", "add", "pref", "1", "ipproto", "udp", "prohibit"];
    let status = std::process::Command::new("nsenter")
        .args(["--net", "--target", &client.to_string()])
        .args(no_udp)
        .status();
    assert!(status.expect("nsenter runs").success());
    let ended = run.end();
    ended
        .assert_says(1, &["dtls of http/dtls: openconnect does not send data in DTLS", "It said:"]);
    ended.assert_nothing_left();
}

#[test]
fn combinations_that_make_no_sense_are_refused_with_the_reason() {
    let ground = Ground::new("nonsense");
    for (stack, why) in [
        ("ftp/tls", "data connections of its own"),
        ("sftp/wireguard/tls", "sftp/tls/wireguard, would do"),
        ("sftp/ssl", "tls, wireguard, strongswan, openvpn"),
    ] {
        let ended = ground.end_of(ground.headroom(&format!("lab run {stack}")));
        ended.assert_says(2, &[why]);
        ended.assert_nothing_started();
    }
}

#[test]
fn a_packet_too_small_for_a_tunnel_is_refused() {
    if !privileged() {
        return;
    }
    let ground = Ground::new("small");
    ground.write("p.toml", &format!("stacks = [\"http/wireguard\"]\nmtu = 1300\n{WORKLOADS}"));
    let ended = ground.end_of(ground.headroom("lab run p.toml"));
    ended.assert_says(2, &["p.toml:1:", "at most 1220 bytes", "needs 1280"]);
    ended.assert_nothing_left();
}

#[test]
fn a_layer_that_dies_is_named() {
    if !privileged() {
        return;
    }
    for (stack, program, name) in [
        ("http/openvpn", "openvpn", "openvpn of http/openvpn on the server ended"),
        ("http/tls", "stunnel", "tls of http/tls on the server ended"),
        ("http/dtls", "ocserv-main", "dtls of http/dtls on the server ended"),
    ] {
        let ground = Ground::new("dies");
        let plan = "repetitions = 100\n[[workload]]\nkind = \"download\"\nsizes = [\"64KiB\"]\n";
        ground.write("p.toml", &format!("stacks = [\"{stack}\"]\n{plan}"));
        let mut run = ground.start(ground.headroom("lab run p.toml --out out"));
        run.until_download(2);
        let daemons = run.until("a daemon", |run| {
            Some(run.processes("server", program)).filter(|pids| !pids.is_empty())
        });
        for pid in daemons {
            kill(pid, Signal::SIGKILL).expect("the daemon runs");
        }
        let ended = run.end();
        ended.assert_says(1, &[name]);
        ended.assert_nothing_left();
    }
}

#[test]
fn a_dry_run_prints_what_the_layers_need() {
    let ground = Ground::new("dry");
    ground.write(
        "p.toml",
        &format!(
            "stacks = [\"sftp/tls/strongswan\", \"http/wireguard\", \"http/openvpn\", \"http/dtls\",\n             \"http/qesp(ike,cert)\", \"http/strongswan(pq,rekey=1MB)\"]\n\
             {WORKLOADS}"
        ),
    );
    let ended = ground.end_of(ground.headroom("lab run p.toml --dry-run"));
    assert_eq!(ended.code, Some(0), "{ended}");
    for line in [
        "stunnel.conf",
        "swanctl.conf",
        "dev ovpn",
        "genkey",
        "dev wg",
        "congctl cubic",
        "ocserv.conf",
        "--base-mtu",
        "--ike=certificates",
        "qesp = \"require\"",
        "x25519-ke1_mlkem768",
        "rekey_bytes = 1000000",
    ] {
        assert!(ended.stdout.contains(line), "`{line}` is not in: {ended}");
    }
    ended.assert_nothing_started();
}

/// Whether the content of files was seen on the wire, by stack.
fn seen_in_clear(results: &Value) -> BTreeMap<&str, bool> {
    array(results, "clear_text")
        .iter()
        .map(|row| (text(row, "stack"), row["marker_seen"] == Value::Bool(true)))
        .collect()
}
