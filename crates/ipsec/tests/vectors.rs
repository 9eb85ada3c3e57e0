//! Whole packets that were published: RFC 3602, section 4, cases 5 to 8
//! (AES-CBC), draft-mcgrew-gcm-test-01, section 4 (AES-GCM), RFC 7634, appendix A
//! (ChaCha20-Poly1305).

mod common;

use std::net::IpAddr;

use headroom_ipsec::spec::{Action, Direction, Mode, Protection, Secrets};
use headroom_ipsec::{OpenScratch, Outer, Reason, SaSpec};
use headroom_suite::{Key, Mac, Suite};

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let octet = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).expect("ASCII"), 16);
    digits.chunks(2).map(|pair| octet(pair).expect("two digits")).collect()
}

/// One published packet: its ESP part, and the packet that is in it.
struct Vector {
    suite: &'static str,
    mode: Mode,
    key: &'static str,
    /// The outer IP header, where it is published; else `packet` is without.
    header: Option<&'static str>,
    esp: &'static str,
    packet: &'static str,
}

/// Cases 5 to 8 have no check value: one is made here, so that the rest of them
/// can be opened.
fn with_check_value(mut esp: Vec<u8>, mac_key: &Key) -> Vec<u8> {
    let mut icv = [0; 16];
    Mac::HmacSha256.bind(mac_key).expect("a key").sign(&[&esp], &mut icv);
    esp.extend(icv);
    esp
}

fn open(vector: &Vector) -> Vec<u8> {
    let suite: Suite = vector.suite.parse().expect("a suite");
    let key = Key::from_bytes(&hex(vector.key));
    let mut body = hex(vector.esp);
    let mut mac_key = None;
    if let Suite::Separate(..) = suite {
        let octets = common::key(32, 5);
        body = with_check_value(body, &octets);
        mac_key = Some(octets);
    }
    let spi = u32::from_be_bytes(body[..4].try_into().expect("four bytes"));
    let header = vector.header.map(hex).unwrap_or_default();
    let address = |at: usize| match header.get(at..at + 4) {
        Some(octets) => IpAddr::from(<[u8; 4]>::try_from(octets).expect("four bytes")),
        None => "192.0.2.1".parse().expect("an address"),
    };
    let ends = (address(12), address(16));
    let secrets = Secrets { suite, key, mac_key };
    let mut sa =
        SaSpec::new("vector", Direction::In, vector.mode, spi, ends, Protection::Esp(secrets));
    sa.extended_sequence = false;
    let action = Action::Protect { out: Vec::new(), inbound: vec!["vector".into()] };
    let engine = common::engine(vec![sa], action);
    let (source, destination) = ends;
    let outer = Outer { source, destination, tos: 0, header: &header, udp: None };

    let mut forged = body.clone();
    forged[20] ^= 1;
    let mut room = OpenScratch::default();
    assert_eq!(engine.open(&outer, 50, &mut forged, &mut room).map(drop), Err(Reason::Forged));
    let opened = engine.open(&outer, 50, &mut body, &mut room).expect("opened");
    let head = if header.is_empty() { &[] } else { opened.header };
    [head, &body[opened.payload.clone()]].concat()
}

const VECTORS: &[Vector] = &[
    // RFC 3602, case 5
    Vector {
        suite: "aes-128-cbc+hmac-sha256",
        mode: Mode::Transport,
        key: "90d382b4 10eeba7a d938c46c ec1a82bf",
        header: Some("4500007c 08f20000 4032f9a5 c0a87b03 c0a87b64"),
        esp: "00004321 00000001 e96e8c08 ab465763 fd098d45 dd3ff893
              f663c25d 325c18c6 a9453e19 4e120849 a4870b66 cc6b9965 330013b4 898dc856
              a4699e52 3a55db08 0b59ec3a 8e4b7e52 775b07d1 db34ed9c 538ab50c 551b874a
              a269add0 47ad2d59 13ac19b7 cfbad4a6",
        packet: "45000054 08f20000 4001f9fe c0a87b03 c0a87b64
              08000ebd a70a0000 8e9c083d b95b0700 08090a0b 0c0d0e0f 10111213 14151617
              18191a1b 1c1d1e1f 20212223 24252627 28292a2b 2c2d2e2f 30313233 34353637",
    },
    // RFC 3602, case 6; the outer header is published with another ID than the
    // packet has, so the packet's own is given here
    Vector {
        suite: "aes-128-cbc+hmac-sha256",
        mode: Mode::Transport,
        key: "90d382b4 10eeba7a d938c46c ec1a82bf",
        header: Some("4500004c 08fe0000 4032f9c9 c0a87b03 c0a87b64"),
        esp: "00004321 00000008 69d08df7 d203329d b093fc49 24e5bd80
              f5199588 1ec4e0c4 488987ce 742e8109 689bb379 d2d750c0 d915dca3 46a89f75",
        packet: "45000030 08fe0000 4001fa16 c0a87b03 c0a87b64
              0800b5e8 a80a0500 a69c083d 0b660e00 77777777 77777777 77777777",
    },
    // RFC 3602, case 7
    Vector {
        suite: "aes-128-cbc+hmac-sha256",
        mode: Mode::Tunnel,
        key: "01234567 89abcdef 01234567 89abcdef",
        header: Some("4500008c 09050000 4032f91e c0a87b03 c0a87bc8"),
        esp: "00008765 00000002 f4e76524 4f6407ad f13dc138 0f673f37
              773b5241 a4c44922 5e4f3ce5 ed611b0c 237ca96c f74a9301 3c1b0ea1 a0cf70f8
              e4ecaec7 8ac53aad 7a0f022b 859243c6 47752e94 a859352b 8a4d4d2d ecd136e5
              c177f132 ad3fbfb2 201ac990 4c74ee0a 109e0ca1 e4dfe9d5 a100b842 f1c22f0d",
        packet: "45000054 09040000 4001f988 c0a87b03 c0a87bc8 08009f76 a90a0100 b49c083d
              02a20400 08090a0b 0c0d0e0f 10111213 14151617 18191a1b 1c1d1e1f 20212223
              24252627 28292a2b 2c2d2e2f 30313233 34353637",
    },
    // RFC 3602, case 8
    Vector {
        suite: "aes-128-cbc+hmac-sha256",
        mode: Mode::Tunnel,
        key: "01234567 89abcdef 01234567 89abcdef",
        header: Some("4500007c 090d0000 4032f926 c0a87b03 c0a87bc8"),
        esp: "00008765 00000005 85d47224 b5f3dd5d 2101d4ea 8dffab22
              15b92683 819596a8 047232cc 00f7048f e45318e1 1f8a0f62 ede3c3fc 61203bb5
              0f980a08 c9843fd3 a1b06d5c 07ff9639 b7eb7dfb 3512e5de 435e7207 ed971ef3
              d2726d9b 5ef6affc 6d17a0de cbb13892",
        packet: "45000044 090c0000 4001f990 c0a87b03 c0a87bc8 0800d63c aa0a0200 c69c083d
              a3de0300 ffffffff ffffffff ffffffff ffffffff ffffffff ffffffff ffffffff
              ffffffff",
    },
    // draft-mcgrew-gcm-test-01: its trailer says ICMP, so it is no tunnel's
    Vector {
        suite: "aes-128-gcm",
        mode: Mode::Transport,
        key: "feffe992 8665731c 6d6a8f94 67308308 cafebabe",
        header: None,
        esp: "0000a5f8 0000000a facedbad decaf888
              deb22cd9 b07c72c1 6e3a65be eb8df304 a5a5897d 33ae530f 1ba76d5d 114d2a5c
              3de81827 c10e9a4f 51330d0e ec416642 cfbb85a5 b47e48a4 ec3b9ba9 5d918bd1
              83b70d3a a8bc6ee4 c309e9d8 5a41ad4a",
        packet: "4500003e 698f0000 80114dcc c0a80102 c0a80101 0a980035 002a2343 b2d00100
              00010000 00000000 03736970 09637962 65726369 74790264 6b000001 0001",
    },
    // RFC 7634, appendix A
    Vector {
        suite: "chacha20-poly1305",
        mode: Mode::Tunnel,
        key: "80818283 84858687 88898a8b 8c8d8e8f 90919293 94959697 98999a9b 9c9d9e9f
              a0a1a2a3",
        header: Some("4500008c 23450000 4032de5b cb007199 cb007105"),
        esp: "01020304 00000005 10111213 14151617
              24039428 b97f417e 3c13753a 4f05087b 67c352e6 a7fab1b9 82d466ef 407ae5c6
              14ee8099 d52844eb 61aa95df ab4c02f7 2aa71e7c 4c4f64c9 befe2fac c638e8f3
              cbec163f ac469b50 2773f6fb 94e664da 9165b828 29f641e0
              76aaa826 6b7fb0f7 b11b3699 07e1ad43",
        packet: "45000054 a6f20000 4001e778 c6336405 c0000205 08005b7a 3a080000 553bec10
              00073627 08090a0b 0c0d0e0f 10111213 14151617 18191a1b 1c1d1e1f 20212223
              24252627 28292a2b 2c2d2e2f 30313233 34353637",
    },
];

#[test]
fn published_packets_open_to_what_was_published() {
    for vector in VECTORS {
        assert_eq!(open(vector), hex(vector.packet), "{} {}", vector.suite, vector.esp);
    }
}
