//! contrib/qesp.lua and exported keys in Wireshark's terminal program.

mod common;

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use common::wireshark::{RAW_IP, pcap, said, tshark};
use common::{Ground, HEADROOM};

/// The packet of docs/qesp.md.
const PACKET: &str = "450000640002400040fdb597c0000201c0000202138c177011000000000010000000000100000000\
                      00000001697dd469e4f85686271120a11ee390369a7652e94aceeca2a4671a7c164933567f0d5a66\
                      6eebf6de85a219c62e384f88ed71fd58634dcb02";
const CONFIG: &str = r#"
name = "hr0"
[[sa]]
name = "qesp"
direction = "in"
protocol = "qesp"
mode = "tunnel"
spi = 0x1000
source = "192.0.2.1"
destination = "192.0.2.2"
suite = "aes-128-gcm"
key = "01264b7095badf04294e7398bde2072c51769bc0"
"#;

fn packet() -> Vec<u8> {
    let digits: String = PACKET.chars().filter(char::is_ascii_hexdigit).collect();
    let pairs = digits.as_bytes().chunks(2);
    pairs
        .map(|pair| {
            let pair = std::str::from_utf8(pair).expect("digits");
            u8::from_str_radix(pair, 16).expect("digits")
        })
        .collect()
}

#[test]
fn q_esp_is_dissected_and_decrypted_with_exported_keys() {
    let ground = Ground::new("wireshark");
    let good = packet();
    let mut reserved = good.clone();
    reserved[25] = 1;
    let mut short = good[..30].to_vec();
    short[2..4].copy_from_slice(&[0, 30]);
    let capture = ground.path("qesp.pcap");
    std::fs::write(&capture, pcap(RAW_IP, &[good, reserved, short])).expect("a capture");

    let mut fields = tshark(&ground, &capture);
    fields.args(["-T", "fields", "-E", "separator=|"]);
    for field in ["srcport", "dstport", "proto", "spi", "sequence"] {
        fields.args(["-e", &format!("qesp.{field}")]);
    }
    let listed = said(fields.args(["-e", "_ws.expert.message"]));
    let lines: Vec<&str> = listed.lines().collect();
    assert_eq!(lines.len(), 3, "{listed}");
    assert_eq!(lines[0], "5004|6000|17|0x00001000|1|");
    assert!(lines[1].contains("5004|6000|17|") && lines[1].contains("Reserved bytes"), "{listed}");
    assert!(lines[2].contains("Shorter than the header"), "{listed}");

    let config = ground.write("qesp.toml", CONFIG);
    std::fs::set_permissions(&config, PermissionsExt::from_mode(0o600)).expect("its mode");
    let keys = said(Command::new(HEADROOM).args(["tunnel", "wireshark"]).arg(&config));
    let mut decrypted = tshark(&ground, &capture);
    decrypted.args(["-o", "esp.enable_encryption_decode:TRUE", "-o"]);
    decrypted.arg(format!("uat:esp_sa:{}", keys.trim()));
    decrypted.args(["-T", "fields", "-E", "separator=|"]);
    let inner = said(decrypted.args(["-e", "ip.dst", "-e", "udp.dstport", "-e", "data.data"]));
    let first = inner.lines().next().expect("a line");
    assert!(first.contains("192.0.2.2,10.2.0.2|6000|"), "{inner}");
    let text: String = b"headroom".iter().map(|byte| format!("{byte:02x}")).collect();
    assert!(first.replace(':', "").ends_with(&text), "{inner}");
}
