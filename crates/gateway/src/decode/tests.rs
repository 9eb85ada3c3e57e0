//! Packets that an engine sealed, captured, and opened with the right keys and
//! with wrong ones.

mod encapsulation;
mod findings;
mod sequence;

use std::path::Path;
use std::time::Duration;

use headroom_ipsec::spec::{Action, Selector};
use headroom_ipsec::{Engine, FlowCache, Headers, PolicySpec, Verdict};
use headroom_packet::{Ip, protocol, udp};

use super::attempt::rebuild;
use super::capture::{Capture, Frame};
use super::*;
use crate::config::{Config, Purpose};
use crate::wireshark::KeyTables;

/// One `[[sa]]` from the first end to the second.
fn sa(name: &str, protocol: &str, mode: &str, suite: &str, more: &str) -> String {
    let suite_of = |text: &str| text.parse::<headroom_suite::Suite>().ok();
    let (key, mac) = match suite_of(suite) {
        Some(suite) => (suite.key_len(), suite.mac_key_len()),
        None => (suite.parse::<headroom_suite::Mac>().expect("a suite").key_len(), 0),
    };
    let hex = |len: usize, seed: u8| -> String {
        (0..len).map(|at| format!("{:02x}", seed.wrapping_add(at as u8).wrapping_mul(31))).collect()
    };
    let mut text = format!(
        "[[sa]]\nname = \"{name}\"\ndirection = \"out\"\nprotocol = \"{protocol}\"\nmode = \"{mode}\"\nspi = 0x1000\n\
         source = \"192.0.2.1\"\ndestination = \"192.0.2.2\"\nsuite = \"{suite}\"\n"
    );
    if key > 0 {
        text += &format!("key = \"{}\"\n", hex(key, 1));
    }
    if mac > 0 {
        text += &format!("integrity_key = \"{}\"\n", hex(mac, 99));
    }
    text + more
}

fn config(sas: &str) -> Config {
    let text = format!("name = \"hr0\"\n{sas}");
    Config::parse_with(&text, Path::new("hr0.toml"), Purpose::Decode, |_, _| Err(String::new()))
        .expect("a configuration")
}

/// An engine that protects everything by the associations of `sas`.
fn sender(sas: &str) -> Engine {
    let specs: Vec<_> = config(sas).associations.into_iter().map(|one| one.spec).collect();
    let out = specs.iter().map(|spec| spec.name.clone()).collect();
    let action = Action::Protect { out, inbound: Vec::new() };
    let policy = PolicySpec { name: "all".into(), selector: Selector::ANY, action };
    let engine = Engine::new(specs, vec![policy], None, Duration::ZERO).expect("an engine");
    engine.associations().for_each(|sa| sa.sequence().grant(u64::MAX));
    engine
}

/// A UDP datagram with `octets` of payload.
fn packet(v6: bool, octets: usize) -> Vec<u8> {
    let (source, destination) =
        if v6 { ("fd00::1", "fd00::2") } else { ("192.0.2.1", "192.0.2.2") };
    let fresh = headroom_packet::header::IpHeader {
        source: source.parse().expect("an address"),
        destination: destination.parse().expect("an address"),
        tos: 0,
        hop_limit: 64,
        protocol: protocol::UDP,
        id: 7,
        dont_fragment: false,
        flow_label: 0,
    };
    let mut packet = vec![0x61; 100 + octets];
    let front = fresh.write(udp::HEADER_LEN + octets, &mut packet).expect("room");
    udp::write(5000, 80, octets, &mut packet[front..]).expect("room");
    packet.truncate(front + udp::HEADER_LEN + octets);
    packet
}

fn seal(engine: &Engine, packet: &[u8]) -> Vec<u8> {
    let headers = Headers::read(&Ip::parse(packet).expect("a packet"));
    let Verdict::Protect(_, bundle) = engine.decide(&headers, &mut FlowCache::default()) else {
        panic!("not protected");
    };
    let mut reservation = bundle.reserve(1, packet.len() as u64).expect("numbers");
    let mut out = vec![0; 70_000];
    let write = |room: &mut [u8]| room.copy_from_slice(packet);
    let len =
        bundle.seal(&mut reservation, &headers, packet.len(), &mut out, write).expect("sealed");
    out.truncate(len);
    out
}

/// What is report of packets, what was in them, and the summary.
type Decoded = (Vec<Packet>, Vec<Option<Vec<u8>>>, Summary);

fn decode(sas: &str, packets: &[Vec<u8>]) -> Decoded {
    decode_with(sas, packets, Search::default())
}

fn decode_with(sas: &str, packets: &[Vec<u8>], search: Search) -> Decoded {
    let mut file = Vec::new();
    let mut writer = capture::Writer::new(&mut file).expect("memory");
    for (at, packet) in packets.iter().enumerate() {
        writer.write(Duration::from_millis(at as u64), packet).expect("memory");
    }
    writer.finish().expect("memory");
    let (mut report, mut inside) = (Vec::new(), Vec::new());
    let decoder = Decoder::new(Some(config(sas)), KeyTables::default(), search).expect("keys");
    let summary =
        decoder.capture(Capture::new(&file[..]).expect("a capture"), &mut |packet: &Packet,
                                                                           clear: Option<
            &[u8],
        >| {
            report.push(packet.clone());
            inside.push(clear.map(<[u8]>::to_vec));
        });
    (report, inside, summary)
}

const GCM: &str = "aes-128-gcm";
const CBC: &str = "aes-128-cbc+hmac-sha256";

#[test]
fn opens_every_protocol_and_mode() {
    let over = sa("ah", "ah", "transport", "hmac-sha384", "").replace("0x1000", "0x2000");
    for (sas, layers) in [
        (sa("a", "esp", "tunnel", GCM, ""), 1),
        (sa("a", "esp", "transport", CBC, "esn = false\n"), 1),
        (sa("a", "esp", "tunnel", "null+hmac-md5", ""), 1),
        (sa("a", "ah", "transport", "hmac-sha1", ""), 1),
        (sa("a", "ah", "tunnel", "hmac-sha512", ""), 1),
        (sa("a", "qesp", "transport", GCM, ""), 1),
        (sa("a", "qesp", "tunnel", CBC, ""), 1),
        (sa("a", "esp", "tunnel", GCM, "udp = { source = 4500, destination = 4500 }\n"), 1),
        (sa("a", "esp", "transport", GCM, "udp = { source = 999, destination = 998 }\n"), 1),
        (sa("a", "esp", "transport", GCM, "") + &over, 2),
        (sa("a", "qesp", "tunnel", GCM, "") + &over, 2),
    ] {
        let engine = sender(&sas);
        let mut families = vec![false];
        families.extend(sas.contains("\"tunnel\"").then_some(true));
        for v6 in families {
            let plain = packet(v6, 333);
            let sealed = [seal(&engine, &plain), seal(&engine, &plain)];
            let (report, inside, summary) = decode(&sas, &sealed);
            assert_eq!(inside[1].as_deref(), Some(&plain[..]), "{sas}{}", report[1]);
            assert_eq!(report[1].layers.len(), layers, "{}", report[1]);
            assert!(summary.all_opened() && summary.opened == 2);
            let words = report[1].to_string();
            assert!(words.contains("UDP ") && words.contains(":80, "), "{words}");
            assert!(report[1].notes.is_empty(), "{words}");
        }
    }
}

/// A VPN through a VPN: the outer one was opened, whatever becomes of the inner.
#[test]
fn reports_the_tunnel_packet_around_foreign_ipsec() {
    let foreign = [&[0, 0, 0x99, 0x99, 0, 0, 0, 7][..], &[0xab; 64]].concat();
    for (protocol, inner) in [("esp", 50), ("esp", 51), ("qesp", 50), ("qesp", 253)] {
        let sas = sa("a", protocol, "tunnel", GCM, "");
        for body in [&foreign[..], &foreign[..4]] {
            let plain = rebuild(&packet(false, 0)[..20], inner, body).expect("a packet");
            let (report, inside, summary) = decode(&sas, &[seal(&sender(&sas), &plain)]);
            assert_eq!(inside[0].as_deref(), Some(&plain[..]), "{}", report[0]);
            let Outcome::Opened { nested: Some(_), .. } = &report[0].outcome else {
                panic!("{}", report[0]);
            };
            assert!(report[0].to_string().contains("no SA can open"), "{}", report[0]);
            assert!(summary.all_opened() && summary.nested == 1, "{summary}");
        }
    }
    // one of ours inside that fails is a failure, and still no reason to hide it
    let sas = sa("a", "esp", "tunnel", GCM, "");
    let forged = [&[0, 0, 0x10, 0, 0, 0, 0, 7][..], &[0xab; 64]].concat();
    let plain = rebuild(&packet(false, 0)[..20], 50, &forged).expect("a packet");
    let (report, inside, summary) = decode(&sas, &[seal(&sender(&sas), &plain)]);
    assert!(matches!(report[0].outcome, Outcome::Failed { reason: "forged", .. }), "{}", report[0]);
    assert_eq!((inside[0].as_deref(), summary.all_opened()), (Some(&plain[..]), false));
    // AH over an unknown ESP has opened nothing
    let sas = sa("a", "ah", "transport", "hmac-sha1", "");
    let plain = rebuild(&packet(false, 0)[..20], 50, &foreign).expect("a packet");
    let (report, inside, _) = decode(&sas, &[seal(&sender(&sas), &plain)]);
    assert!(
        matches!(report[0].outcome, Outcome::Failed { reason: "unknown-spi", .. }),
        "{}",
        report[0]
    );
    assert_eq!(inside[0], None);
}

#[test]
fn a_capture_without_ipsec_does_not_count_as_all_opened() {
    let sas = sa("a", "esp", "tunnel", GCM, "");
    for packets in [vec![], vec![packet(false, 10)]] {
        let summary = decode(&sas, &packets).2;
        assert!(!summary.all_opened());
        assert!(summary.to_string().contains("the capture has no IPsec packet"), "{summary}");
    }
}

#[test]
fn a_wholly_captured_frame_is_not_truncated() {
    let sas = sa("a", "esp", "tunnel", GCM, "");
    let mut sealed = seal(&sender(&sas), &packet(false, 10));
    sealed[2..4].fill(0xff);
    let (report, _, summary) = decode(&sas, &[sealed]);
    assert_eq!((summary.failed, summary.truncated), (1, 0));
    assert!(report[0].to_string().contains("the whole frame was captured"), "{}", report[0]);
}

#[test]
fn a_truncated_capture_is_not_reported_as_forged() {
    let sas = sa("a", "esp", "tunnel", GCM, "");
    let sealed = seal(&sender(&sas), &packet(false, 400));
    let mut decoder =
        Decoder::new(Some(config(&sas)), KeyTables::default(), Search::default()).expect("keys");
    let frame = Frame {
        number: 1,
        time: Duration::ZERO,
        link: 101,
        data: &sealed[..96],
        original_len: sealed.len(),
    };
    let mut words = String::new();
    decoder.frame(&frame, &mut |packet: &Packet, _: Option<&[u8]>| words = packet.to_string());
    assert!(
        words.contains("ESP 0x1000 #1") && words.contains("TRUNCATED by the capture: 96 of "),
        "{words}"
    );
    assert!(!decoder.finish().all_opened());
}

#[test]
fn every_report_is_json() {
    let sas = sa("a", "qesp", "tunnel", GCM, "");
    let (report, _, summary) = decode(&sas, &[seal(&sender(&sas), &packet(true, 40))]);
    let packet = serde_json::to_value(&report[0]).expect("JSON");
    assert_eq!(packet["result"], "opened");
    assert_eq!(packet["layers"][0]["sa"], "a");
    assert_eq!(packet["inner"]["destination_port"], 80);
    assert_eq!(serde_json::to_value(&summary).expect("JSON")["associations"][0]["opened"], 1);
}

mod hostile {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        #[test]
        fn damaged_packets_do_not_panic(
            kind in 0..5usize,
            at in 0..200usize,
            value in any::<u8>(),
            end in 0..300usize,
        ) {
            let over = sa("ah", "ah", "transport", "hmac-sha384", "").replace("0x1000", "0x2000");
            let sas = [
                sa("a", "esp", "transport", CBC, ""),
                sa("a", "qesp", "tunnel", GCM, ""),
                sa("a", "ah", "tunnel", "hmac-sha1", ""),
                sa("a", "esp", "tunnel", GCM, "udp = { source = 4500, destination = 4500 }\n"),
                sa("a", "esp", "transport", GCM, "") + &over,
            ][kind].clone();
            let mut sealed = seal(&sender(&sas), &packet(false, 100));
            let place = at % sealed.len();
            sealed[place] ^= value;
            sealed.truncate(end.max(1));
            let _ = decode(&sas, &[sealed]);
        }
    }
}
