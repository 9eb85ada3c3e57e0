//! Reads the captures of strongSwan 6.0.1 with itself, and what its initiator logged.

use std::path::PathBuf;

use pcap_file::pcap::PcapReader;

/// PSK and X25519; certificates and X25519; PSK, X25519 and ML-KEM-768 with fragments.
pub(crate) const NAMES: [&str; 3] = ["psk", "cert", "psk-mlkem768"];
/// Its initiator is 10.77.0.1, its responder 10.77.0.2.
const INITIATOR: [u8; 4] = [10, 77, 0, 1];

/// One IKE message of a capture.
pub(crate) struct Captured {
    /// Whether the initiator's host sent it.
    pub(crate) from_initiator_host: bool,
    /// The message, without the non-ESP marker.
    pub(crate) message: Vec<u8>,
}

/// Returns the IKE messages of a capture in order; ESP is left out.
pub(crate) fn messages(name: &str) -> Vec<Captured> {
    let file = std::fs::File::open(path(name, "pcap")).expect("a capture");
    let mut reader = PcapReader::new(file).expect("a capture");
    let mut messages = Vec::new();
    while let Some(packet) = reader.next_packet() {
        let packet = packet.expect("a packet");
        // Ethernet, IPv4 without options, UDP
        let (headers, payload) = packet.data.split_at(14 + 20 + 8);
        let on_4500 = headers[36..38] == 4500_u16.to_be_bytes();
        let message = if on_4500 { payload.strip_prefix(&[0; 4]) } else { Some(payload) };
        let from_initiator_host = headers[26..30] == INITIATOR;
        messages.extend(
            message.map(|message| Captured { from_initiator_host, message: message.to_vec() }),
        );
    }
    messages
}

/// Returns the values that the initiator logged, by name and in order.
pub(crate) fn logged(name: &str) -> Vec<(String, Vec<u8>)> {
    let text = std::fs::read_to_string(path(name, "keys")).expect("a log");
    let lines =
        text.lines().filter_map(|line| line.split_once(' ')).filter(|(name, _)| *name != "#");
    lines.map(|(name, digits)| (name.to_owned(), hex(digits))).collect()
}

fn path(name: &str, extension: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/captures/{name}.{extension}"))
}

fn hex(digits: &str) -> Vec<u8> {
    let byte = |at| u8::from_str_radix(&digits[at..at + 2], 16).expect("hexadecimal digits");
    (0..digits.len()).step_by(2).map(byte).collect()
}
