//! Any bytes as a capture, with keys for packets and messages of IKE that may be in it.
#![no_main]

use std::path::Path;

use headroom_gateway::config::Config;
use headroom_gateway::decode::capture::Capture;
use headroom_gateway::decode::{Decoder, Search};
use headroom_gateway::wireshark::KeyTables;
use libfuzzer_sys::fuzz_target;

const CONFIG: &str = r#"
name = "fuzz"
allow_insecure = true
[[sa]]
name = "esp"
direction = "in"
protocol = "esp"
mode = "tunnel"
spi = 0x1000
source = "192.0.2.1"
destination = "192.0.2.2"
suite = "aes-128-gcm"
key = "01264b7095badf04294e7398bde2072c51769bc0"
[[sa]]
name = "qesp"
direction = "in"
protocol = "qesp"
mode = "tunnel"
spi = 0x1000
source = "192.0.2.1"
destination = "192.0.2.2"
suite = "aes-128-gcm"
key = "02264b7095badf04294e7398bde2072c51769bc0"
[[sa]]
name = "ah"
direction = "in"
protocol = "ah"
mode = "transport"
spi = 0x2000
source = "192.0.2.1"
destination = "192.0.2.2"
suite = "hmac-sha256"
key = "0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f20"
"#;

/// The keys of crates/ike/tests/captures/psk-mlkem768.pcap, which is a seed.
const IKE_TABLE: &str = "\
ca0449dd18425d6e,ecfa88782d328269,5e9baab509a29dbdee15c23c64c1ffb75192654dfa3e1afebe99e46b76c1606e6230bd82,6c9162e8a80fef7737622abd08aecc1ca918e91cd764c15f7d75009cb722ff505df27cac,AES-GCM-256 with 16 octet ICV [RFC5282],,,NONE [RFC4306]\n\
ca0449dd18425d6e,ecfa88782d328269,23e259cb26fb2ba670605e1dc80e32478d03e59f8d4dc3f992a55ab358918e2c2fd6b02a,eb56791e63945607d8eb4f61e600d8c6990c80529b8dd62c5a3e9fd6377bde9e0941b6ab,AES-GCM-256 with 16 octet ICV [RFC5282],,,NONE [RFC4306]\n\
96bf4b019703ef95,22f6c26f39e647f8,1d7e09270dc1d5438e1a673d6e4f3cc079def4042da678c2f6d239cd8e31296f777195fa,7bfe87de24789239484ceaad83b071e80897d48e1ca9f43b440680b5b325d005b7dca742,AES-GCM-256 with 16 octet ICV [RFC5282],,,NONE [RFC4306]\n\
";

fuzz_target!(|octets: &[u8]| {
    let parsed = Config::parse(CONFIG, Path::new("fuzz.toml"));
    let config = parsed.expect("a configuration");
    let tables = KeyTables::parse(IKE_TABLE, "");
    assert!(tables.notes.is_empty(), "{:?}", tables.notes);
    let Ok(capture) = Capture::new(octets) else { return };
    // a thorough search takes as long as ten thousand inputs
    let search = Search { likely: vec![7], thorough: 0 };
    let decoder = Decoder::new(Some(config), tables, search).expect("keys");
    let mut packets = 0u64;
    let summary = decoder.capture(capture, &mut |_: &_, _: Option<&[u8]>| packets += 1);
    assert!(summary.frames <= octets.len() as u64);
});
