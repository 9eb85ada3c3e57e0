//! Snapshots of the text that `headroom tunnel` and `headroom ipsec` print.

mod common;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use common::{Ground, HEADROOM};

/// The packet of docs/qesp.md: Q-ESP, AES-128-GCM, tunnel mode, sequence number 1.
const PROTECTED: &str = "45000064000240 0040fdb597c0000201c0000202138c17701100000000001000\
    0000000100000000000000 01697dd469e4f85686271120a11ee390369a7652e94aceeca2a4671a7c16493356\
    7f0d5a666eebf6de85a219c62e384f88ed71fd58634dcb02";

/// The configuration that opens it.
const CONFIGURATION: &str = r#"
name = "hr0"

[[sa]]
name = "in-qesp"
direction = "in"
protocol = "qesp"
mode = "tunnel"
spi = 0x1000
source = "192.0.2.1"
destination = "192.0.2.2"
suite = "aes-128-gcm"
key = "01264b7095badf04294e7398bde2072c51769bc0"
"#;

/// ESP by RFC 4106 with an extended sequence number, 0x01234567 00000009, in tunnel mode from
/// 192.0.2.1 to 192.0.2.2: a UDP datagram, sealed by another program (cryptography 48 for Python).
const FAR: &str = "4500005c000000004032f66cc0000201c0000202000020000000000901234567000000094d21c76d50\
    a3a2c990dcf61ee12837369bbecbe4a1381f462e4ca7ced0dd1bcc55dac0fb887aa66652bb8fd178753bb07a0fe63b7a67ea41";

/// Runs the command. Returns its exit code, standard output and standard error, with the test's
/// folder replaced.
fn run(ground: &Ground, program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program)
        .args(arguments)
        .env("HEADROOM_RUN_DIR", ground.path("run"))
        .current_dir(ground.path(""))
        .output()
        .expect("the command starts");
    let [stdout, stderr] = [output.stdout, output.stderr]
        .map(|bytes| String::from_utf8_lossy(&bytes).replace(shown(&ground.path("")), "FOLDER/"));
    format!("exit code {:?}\n{stdout}--- standard error\n{stderr}", output.status.code())
}

fn headroom(ground: &Ground, arguments: &[&str]) -> String {
    run(ground, HEADROOM, arguments)
}

fn shown(path: &Path) -> &str {
    path.to_str().expect("a path of the test")
}

fn private(ground: &Ground, name: &str, content: &str) {
    let path = ground.write(name, content);
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o600)).expect("private");
}

#[test]
fn prints_help() {
    let ground = Ground::new("help");
    let commands = ["", "up", "down", "status", "trace", "reload", "keygen", "check", "wireshark"]
        .map(|name| {
            let arguments: Vec<&str> = ["tunnel", name, "--help"].into_iter().collect();
            headroom(&ground, &arguments.into_iter().filter(|a| !a.is_empty()).collect::<Vec<_>>())
        });
    insta::assert_snapshot!(commands.join("\n================\n"));
}

#[test]
fn prints_help_of_decode() {
    insta::assert_snapshot!(headroom(&Ground::new("help"), &["ipsec", "decode", "--help"]));
}

#[test]
fn keygen_prints_its_files_and_writes_configurations() {
    let ground = Ground::new("keygen");
    let networks = ["--local-net", "10.1.0.0/16", "--remote-net", "10.2.0.0/16"];
    let ends = ["tunnel", "keygen", "192.0.2.1", "192.0.2.2"];
    let printed = headroom(&ground, &[&ends[..], &networks, &["--udp"]].concat());
    let again = headroom(&ground, &ends);
    let text = std::fs::read_to_string(ground.path("left.toml")).expect("a configuration");
    // keys and SPIs are random
    let fixed = |line: &str| match line.split_once(" = ") {
        Some((name @ ("key" | "spi"), _)) => format!("{name} = RANDOM\n"),
        _ => format!("{line}\n"),
    };
    let text: String = text.lines().map(fixed).collect();
    insta::assert_snapshot!(format!("{printed}\n{again}\n{text}"));
}

#[test]
fn keygen_names_what_to_copy_with_its_folder() {
    let ground = Ground::new("keygen-out");
    for (folder, proof, expected) in [
        ("none", None, "Copy none/right.* to the other end"),
        (
            "psk",
            Some("--ike"),
            "Copy psk/right.* and psk/hr0.psk to the other end over a channel that you trust, and delete psk/right.* here.",
        ),
        (
            "cert",
            Some("--ike=certificates"),
            "Copy cert/right.* and cert/hr0-ca.pem to the other end over a channel that you trust, and delete cert/right.* here.",
        ),
    ] {
        let networks = ["--local-net", "10.1.0.0/16", "--remote-net", "10.2.0.0/16"];
        let mut arguments = vec!["tunnel", "keygen", "192.0.2.1", "192.0.2.2", "--out", folder];
        arguments.extend(networks.into_iter().chain(proof));
        let printed = headroom(&ground, &arguments);
        assert!(printed.contains(expected), "{printed}");
        assert!(ground.path(folder).join("right.toml").exists(), "{printed}");
    }
}

#[test]
fn explains_configurations_that_it_refuses() {
    let ground = Ground::new("refused");
    private(&ground, "unknown.toml", &format!("witness = \"/x\"\n{CONFIGURATION}"));
    private(&ground, "insecure.toml", &CONFIGURATION.replace("aes-128-gcm", "null+hmac-sha256"));
    private(&ground, "short.toml", &CONFIGURATION.replace("51769bc0", ""));
    private(&ground, "new.toml", CONFIGURATION);
    ground.write("public.toml", CONFIGURATION);
    let refusals = ["unknown.toml", "insecure.toml", "short.toml", "public.toml", "missing.toml"]
        .map(|file| headroom(&ground, &["tunnel", "up", file, "--dry-run"]));
    let others = [
        headroom(&ground, &["tunnel", "status"]),
        headroom(&ground, &["tunnel", "down", "hr9"]),
        headroom(&ground, &["tunnel", "keygen", "192.0.2.1", "192.0.2.2", "--suite", "rot13"]),
        headroom(&ground, &["tunnel", "keygen", "192.0.2.1", "192.0.2.2", "--mode", "tunnel"]),
    ];
    insta::assert_snapshot!(refusals.into_iter().chain(others).collect::<Vec<_>>().join("\n"));
}

fn bytes(digits: &str) -> Vec<u8> {
    let digits: Vec<u8> = digits.bytes().filter(u8::is_ascii_hexdigit).collect();
    let digit = |digit: u8| char::from(digit).to_digit(16).expect("a digit") as u8;
    digits.chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}

/// A capture of raw IP packets, one a second; the last is truncated to what is there.
fn pcap(packets: &[&Vec<u8>], len: usize) -> Vec<u8> {
    let mut file: Vec<u8> = [0xa1b2_c3d4_u32, 2 | 4 << 16, 0, 0, 65_535, 101]
        .iter()
        .flat_map(|word| word.to_le_bytes())
        .collect();
    for (second, packet) in packets.iter().enumerate() {
        let head = [1_700_000_000 + second as u32, 0, packet.len() as u32, len as u32];
        file.extend(head.iter().flat_map(|word| word.to_le_bytes()));
        file.extend_from_slice(packet);
    }
    file
}

#[test]
fn decode_is_given_the_high_half_of_a_sequence_number() {
    let ground = Ground::new("esn");
    let configuration = CONFIGURATION.replace("qesp", "esp").replace("0x1000", "0x2000");
    private(&ground, "keys.toml", &configuration);
    std::fs::write(ground.path("far.pcap"), pcap(&[&bytes(FAR)], 92)).expect("a capture");
    let decode = |more: &[&str]| {
        headroom(
            &ground,
            &[&["ipsec", "decode", "far.pcap", "--config", "keys.toml"], more].concat(),
        )
    };
    let unknown = decode(&["--failures"]);
    assert!(unknown.starts_with("exit code Some(1)"), "{unknown}");
    assert!(unknown.contains("65536 or more") && unknown.contains("--esn-high"), "{unknown}");
    for given in ["0x1234567", "19088743", "0x1234566"] {
        let opened = decode(&["--esn-high", "7", "--esn-high", given]);
        assert!(opened.starts_with("exit code Some(0)"), "{given}: {opened}");
    }
}

#[test]
fn decode_reports_packets_as_text_and_as_json() {
    let ground = Ground::new("decode");
    private(&ground, "keys.toml", CONFIGURATION);
    let good = bytes(PROTECTED);
    let (mut forged, mut foreign, mut plain) = (good.clone(), good.clone(), good.clone());
    forged[99] ^= 1;
    foreign[30] = 0x77; // a byte of the SPI
    plain[9] = 6;
    let truncated = good[..60].to_vec();
    let mut file = pcap(&[&good, &good, &forged, &foreign, &plain, &truncated], 100);
    file.extend([0; 7]); // the file ends inside the next frame
    std::fs::write(ground.path("wire.pcap"), file).expect("a capture");
    let arguments = ["ipsec", "decode", "wire.pcap", "--config", "keys.toml"];
    let text = headroom(&ground, &arguments);
    let json = headroom(&ground, &[&arguments[..], &["--json"]].concat());
    insta::assert_snapshot!(format!("{text}\n{json}"));
}

#[test]
fn check_reports_findings() {
    if !headroom_testing::privileged() {
        return;
    }
    let ground = Ground::new("check");
    private(&ground, "hr0.toml", CONFIGURATION);
    // a network namespace of its own, with nothing in it
    let arguments = ["--net", HEADROOM, "tunnel", "check", "hr0.toml"];
    let printed = run(&ground, "unshare", &arguments);
    // versions of programs, and the kernel's modules, differ between machines
    let stable = |line: &&str| !line.contains("programs") && !line.contains("firewall");
    let lines: Vec<&str> = printed.lines().filter(stable).collect();
    insta::assert_snapshot!(lines.join("\n"));
}
