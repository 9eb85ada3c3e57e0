//! The worked example of docs/qesp.md: what is printed there is what is sealed,
//! and it opens.

mod common;

use std::fmt::Write;

use common::{Kind, Shape, open, seal};
use etherparse::PacketBuilder;

const DOCUMENT: &str = include_str!("../../../docs/qesp.md");

#[test]
fn the_example_of_the_document_is_what_is_sealed() {
    let suite = "aes-128-gcm".parse().expect("a suite");
    let shape = Shape { kind: Kind::QEsp, ..Shape::esp(suite) };
    let mut packet = Vec::new();
    PacketBuilder::ipv4([10, 1, 0, 1], [10, 2, 0, 2], 64)
        .udp(5004, 6000)
        .write(&mut packet, b"headroom")
        .expect("etherparse writes to a vector");
    let sealed = seal(&shape.sender(), &packet).expect("sealed");
    assert_eq!(open(&shape.receiver(), &sealed), Ok(packet.clone()));
    let key = common::key(20, 1);
    for (what, octets) in
        [("key and salt", key.as_bytes()), ("packet", &packet), ("protected", &sealed)]
    {
        let example = lines(what, octets);
        assert!(DOCUMENT.contains(&example), "docs/qesp.md does not have\n{example}");
    }
}

/// Bytes as the document has them: sixteen to a line.
fn lines(what: &str, octets: &[u8]) -> String {
    let mut text = String::new();
    for (n, line) in octets.chunks(16).enumerate() {
        let label = if n == 0 { what } else { "" };
        write!(text, "{label:<14}").expect("a string");
        for word in line.chunks(4) {
            text.push(' ');
            word.iter().for_each(|octet| write!(text, "{octet:02x}").expect("a string"));
        }
        text.push('\n');
    }
    text
}
