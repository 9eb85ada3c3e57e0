//! Any octets as a capture, with keys for packets that may be in it.
#![no_main]

use std::path::Path;

use headroom_gateway::config::Config;
use headroom_gateway::decode::{Decoder, Search};
use headroom_gateway::decode::capture::Capture;
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

fuzz_target!(|octets: &[u8]| {
    let parsed = Config::parse(CONFIG, Path::new("fuzz.toml"));
    let config = parsed.expect("a configuration");
    let Ok(capture) = Capture::new(octets) else { return };
    // a thorough search takes as long as ten thousand inputs
    let search = Search { likely: vec![7], thorough: 0 };
    let decoder = Decoder::new(config, search).expect("keys");
    let mut packets = 0u64;
    let summary = decoder.capture(capture, &mut |_: &_, _: Option<&[u8]>| packets += 1);
    assert!(summary.frames <= octets.len() as u64);
});
