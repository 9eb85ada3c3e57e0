//! Reads the captures of strongSwan 6.0.1 with itself.

use std::path::PathBuf;

use pcap_file::pcap::PcapReader;

/// PSK and X25519; certificates and X25519; PSK, X25519 and ML-KEM-768 with fragments.
pub(crate) const NAMES: [&str; 3] = ["psk", "cert", "psk-mlkem768"];

/// Returns the IKE messages of a capture in order, without the non-ESP marker; ESP is left out.
pub(crate) fn messages(name: &str) -> Vec<Vec<u8>> {
    let file = std::fs::File::open(path(name, "pcap")).expect("a capture");
    let mut reader = PcapReader::new(file).expect("a capture");
    let mut messages = Vec::new();
    while let Some(packet) = reader.next_packet() {
        let packet = packet.expect("a packet");
        // Ethernet, IPv4 without options, UDP
        let (headers, payload) = packet.data.split_at(14 + 20 + 8);
        let on_4500 = headers[36..38] == 4500_u16.to_be_bytes();
        let message = if on_4500 { payload.strip_prefix(&[0; 4]) } else { Some(payload) };
        messages.extend(message.map(<[u8]>::to_vec));
    }
    messages
}

fn path(name: &str, extension: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/captures/{name}.{extension}"))
}
