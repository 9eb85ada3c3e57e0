//! Packets that an engine sealed, captured, and opened with the right keys and
//! with wrong ones.

use std::path::Path;
use std::time::Duration;

use headroom_ipsec::spec::{Action, Selector};
use headroom_ipsec::{Engine, FlowCache, Headers, PolicySpec, Verdict, qesp};
use headroom_packet::fragment::Fragmenter;
use headroom_packet::{Ip, protocol, udp};

use super::attempt::rebuild;
use super::capture::{Capture, Frame};
use super::*;
use crate::config::Config;
use crate::config::Purpose;
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

/// One packet of `sender_sas`, looked at with `sas`: why it fails, and what was
/// found out.
fn failure(sender_sas: &str, sas: &str) -> (String, String) {
    failure_of(&seal(&sender(sender_sas), &packet(false, 100)), sas)
}

fn failure_of(packet: &[u8], sas: &str) -> (String, String) {
    let (report, _, summary) = decode(sas, &[packet.to_vec()]);
    let Outcome::Failed { reason, findings, .. } = &report[0].outcome else {
        panic!("the packet was opened: {}", report[0]);
    };
    assert_eq!((summary.failed, summary.opened, summary.all_opened()), (1, 0, false));
    ((*reason).to_owned(), findings.join("\n"))
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

#[test]
fn names_the_difference_between_the_ends() {
    let other_key = |text: &str| text.replacen("key = \"1f", "key = \"2f", 1);
    let swapped = |text: &str| {
        let (key, mac) =
            (text.find("key = ").expect("a key"), text.find("integrity_key").expect("one"));
        let line = |at: usize| text[at..].split('"').nth(1).expect("digits").to_owned();
        let (key, mac) = (line(key), line(mac));
        text.replace(&key, "#").replace(&mac, &key).replace('#', &mac)
    };
    for (sender, receiver, words) in [
        (
            sa("a", "esp", "tunnel", GCM, ""),
            sa("a", "esp", "tunnel", GCM, "esn = false\n"),
            "`esn = true`",
        ),
        (
            sa("a", "esp", "tunnel", CBC, "esn = false\n"),
            sa("a", "esp", "tunnel", CBC, ""),
            "`esn = false`",
        ),
        (
            sa("a", "ah", "transport", "hmac-sha1", "esn = false\n"),
            sa("a", "ah", "transport", "hmac-sha1", ""),
            "`esn = false`",
        ),
        (
            sa("a", "esp", "tunnel", "aes-256-gcm", ""),
            sa("a", "esp", "tunnel", "chacha20-poly1305", ""),
            "for AES-GCM with the same key",
        ),
        (
            sa("a", "esp", "tunnel", "chacha20-poly1305", ""),
            sa("a", "esp", "tunnel", "aes-256-gcm", ""),
            "for chacha20-poly1305 with the same key",
        ),
        (
            sa("a", "esp", "tunnel", "aes-256-cbc+hmac-sha256", ""),
            swapped(&sa("a", "esp", "tunnel", "aes-256-cbc+hmac-sha256", "")),
            "`key` and `integrity_key` exchanged",
        ),
        (
            sa("a", "esp", "tunnel", GCM, ""),
            other_key(&sa("a", "esp", "tunnel", GCM, ""))
                + &sa("b", "esp", "tunnel", GCM, "").replace("0x1000", "0x1001"),
            "suite and key of `b`",
        ),
        (
            sa("a", "esp", "tunnel", "null+hmac-sha1", ""),
            sa("a", "esp", "tunnel", GCM, ""),
            "not encrypted",
        ),
    ] {
        let (reason, findings) = failure(&sender, &receiver);
        assert!(reason == "forged" || reason == "wrong-length", "{reason}");
        assert!(findings.contains(words), "{findings}\n{sender}{receiver}");
    }
    let (reason, findings) =
        failure(&sa("a", "esp", "tunnel", GCM, ""), &other_key(&sa("a", "esp", "tunnel", GCM, "")));
    // nothing is made up, but the attempts that were left out are reported
    assert_eq!((reason.as_str(), findings.lines().count()), ("forged", 1), "{findings}");
    assert!(findings.contains("65536 or more") && findings.contains("--esn-high"), "{findings}");
    let without = |text: String| text + "esn = false\n";
    let (_, findings) = failure(
        &without(sa("a", "esp", "tunnel", GCM, "")),
        &without(other_key(&sa("a", "esp", "tunnel", GCM, ""))),
    );
    assert_eq!(findings, "", "no findings without a reason");
}

#[test]
fn detects_a_misplaced_salt() {
    let right = sa("a", "esp", "tunnel", GCM, "");
    let digits = right
        .split("key = \"")
        .nth(1)
        .and_then(|rest| rest.split('"').next())
        .expect("a key")
        .to_owned();
    let (key, salt) = digits.split_at(32);
    let first = right.replace(&digits, &format!("{salt}{key}"));
    assert!(failure(&right, &first).1.contains("the first 4 bytes of `key` as the salt"));
    let reversed: String = salt
        .as_bytes()
        .chunks(2)
        .rev()
        .map(|pair| std::str::from_utf8(pair).expect("digits"))
        .collect();
    let reversed = right.replace(&digits, &format!("{key}{reversed}"));
    assert!(failure(&right, &reversed).1.contains("salt reversed"));
}

#[test]
fn detects_an_hmac_of_another_length() {
    let sas = sa("a", "esp", "tunnel", CBC, "esn = false\n");
    // as Linux did before RFC 4868: SHA-256 cut to 96 bits
    let mut short = seal(&sender(&sas), &packet(false, 100));
    short.truncate(short.len() - 4);
    let len = short.len();
    headroom_packet::header::set_total_len(&mut short, len).expect("a header");
    let (reason, findings) = failure_of(&short, &sas);
    assert!(findings.contains("hmac-sha256 truncated to 96 bits"), "{reason}: {findings}");
}

/// RFC 4106, section 6: 8 and 12 bytes are allowed too.
#[test]
fn detects_a_truncated_aead_tag() {
    for suite in [GCM, "aes-256-gcm", "chacha20-poly1305"] {
        for (icv_len, more) in [(8, ""), (12, "esn = false\n")] {
            let sas = sa("a", "esp", "tunnel", suite, more);
            let mut short = seal(&sender(&sas), &packet(false, 100));
            short.truncate(short.len() - 16 + icv_len);
            let len = short.len();
            headroom_packet::header::set_total_len(&mut short, len).expect("a header");
            let (_, findings) = failure_of(&short, &sas);
            let words = format!("correct with {icv_len} bytes");
            assert!(findings.contains(&words), "{suite}: {findings}");
        }
    }
}

#[test]
fn distinguishes_exchanged_keys_from_one_key_for_both() {
    let right = sa("a", "esp", "tunnel", "aes-256-cbc+hmac-sha256", "esn = false\n");
    let key = right.split("key = \"").nth(1).and_then(|rest| rest.split('"').next());
    let mac = right.split("integrity_key = \"").nth(1).and_then(|rest| rest.split('"').next());
    let (key, mac) = (key.expect("digits").to_owned(), mac.expect("digits").to_owned());
    let swapped = right.replace(&key, "#").replace(&mac, &key).replace('#', &mac);
    let findings = failure(&right, &swapped).1;
    assert_eq!(findings, "the check value is correct with `key` and `integrity_key` exchanged");
    let findings = failure(&right.replace(&mac, &key), &right).1;
    assert!(findings.contains("one key for both") && !findings.contains("exchanged"), "{findings}");
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
fn opens_esp_in_udp_on_other_ports_with_a_note() {
    let sas = sa("a", "esp", "tunnel", GCM, "udp = { source = 4500, destination = 4500 }\n");
    let mut sealed = seal(&sender(&sas), &packet(false, 100));
    sealed[20..24].copy_from_slice(&[0x17, 0x70, 0x17, 0x71]);
    let (report, inside, _) = decode(&sas, std::slice::from_ref(&sealed));
    assert_eq!(inside[0], Some(packet(false, 100)), "{}", report[0]);
    assert!(report[0].notes[0].contains("UDP destination port 6001"), "{:?}", report[0].notes);
    let none = sa("a", "esp", "tunnel", GCM, "");
    let (report, ..) = decode(&none, std::slice::from_ref(&sealed));
    assert!(
        report[0].notes[0].contains("has no `udp`, but the packet is in UDP"),
        "{:?}",
        report[0].notes
    );
    // another destination is another association
    sealed[19] = 9;
    headroom_packet::header::refresh_checksum(&mut sealed).expect("a header");
    assert!(matches!(decode(&sas, &[sealed]).0[0].outcome, Outcome::NotIpsec { .. }));
}

#[test]
fn opens_esp_inside_gre_and_vxlan() {
    let sas = sa("a", "esp", "tunnel", GCM, "");
    let sealed = seal(&sender(&sas), &packet(false, 100));
    let header = &packet(false, 0)[..20];
    let in_gre =
        |gre: &[u8], packet: &[u8]| rebuild(header, 47, &[gre, packet].concat()).expect("a packet");
    let frame = [&[0; 12][..], &[0x81, 0, 0, 7, 8, 0], &sealed].concat();
    let vxlan = [&[8, 0, 0, 0, 0, 0, 5, 0][..], &frame].concat();
    let mut datagram = vec![0; udp::HEADER_LEN];
    udp::write(40_000, 4789, vxlan.len(), &mut datagram).expect("room");
    let in_vxlan = rebuild(header, protocol::UDP, &[&datagram[..], &vxlan].concat());
    let packets = [
        in_gre(&[0, 0, 8, 0], &sealed),
        in_gre(&[0xb0, 0, 8, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12], &sealed),
        in_gre(&[0, 0, 0x65, 0x58], &frame),
        in_gre(&[0, 0, 8, 0], &in_gre(&[0, 0, 8, 0], &sealed)),
        in_vxlan.expect("a packet"),
    ];
    for packet_of in &packets {
        let (report, inside, summary) = decode(&sas, std::slice::from_ref(packet_of));
        assert!(summary.all_opened(), "{}", report[0]);
        assert_eq!(inside[0], Some(packet(false, 100)));
    }
    // in two fragments
    let whole = in_gre(&[0, 0, 8, 0], &sealed);
    let cut = 20 + 48;
    let part = |body: &[u8], flags: u16| {
        let mut packet = rebuild(header, 47, body).expect("a packet");
        packet[6..8].copy_from_slice(&flags.to_be_bytes());
        packet
    };
    let parts = [part(&whole[20..cut], 0x2000), part(&whole[cut..], 48 / 8)];
    let (_, inside, summary) = decode(&sas, &parts);
    assert_eq!((summary.opened, inside.last()), (1, Some(&Some(packet(false, 100)))));
    // as deep as anybody builds, and no deeper
    let deep = (0..6).fold(sealed, |inner, _| in_gre(&[0, 0, 8, 0], &inner));
    assert_eq!(decode(&sas, &[deep]).2.others, 1);
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
fn diagnoses_wrong_padding() {
    let sender_sas = sa("a", "esp", "tunnel", "3des-cbc+hmac-sha1", "");
    let aes = sa("a", "esp", "tunnel", "aes-192-cbc+hmac-sha1", "");
    let engine = sender(&sender_sas);
    // lengths that fit both blocks
    let found = (0..16).map(|more| seal(&engine, &packet(false, 100 + more))).find_map(|sealed| {
        let (report, ..) = decode(&aes, &[sealed]);
        match &report[0].outcome {
            Outcome::Failed { reason: "bad-padding", findings, .. } => Some(findings.join(" ")),
            _ => None,
        }
    });
    assert_eq!(
        found.as_deref(),
        Some("the padding is correct with the cipher 3des-cbc: the suites differ")
    );
}

#[test]
fn detects_a_nat_in_the_path() {
    for sas in [sa("a", "ah", "transport", "hmac-sha256", ""), sa("a", "qesp", "tunnel", GCM, "")] {
        let mut sealed = seal(&sender(&sas), &packet(false, 100));
        sealed[12..16].copy_from_slice(&[198, 51, 100, 7]);
        headroom_packet::header::refresh_checksum(&mut sealed).expect("a header");
        let (reason, findings) = failure_of(&sealed, &sas);
        assert!(
            reason == "forged" && findings.contains("a NAT changed an address"),
            "{reason}: {findings}"
        );
    }
}

#[test]
fn lists_the_configured_spis_for_an_unknown_one() {
    let sas = sa("a", "esp", "tunnel", GCM, "");
    let other = sas.replace("0x1000", "0x00100000").replace("\"a\"", "\"b\"");
    let (reason, findings) = failure(&sas, &other);
    assert_eq!(reason, "unknown-spi");
    assert_eq!(
        findings,
        "an SA has this SPI with its bytes reversed: the SPI was written in the wrong byte order\nSPIs configured for ESP: 0x100000 (b)"
    );
    let (_, findings) = failure(&sas, &sa("c", "ah", "tunnel", "hmac-sha1", ""));
    assert!(findings.contains("`c` has this SPI, but is AH to 192.0.2.2"), "{findings}");
    assert!(findings.contains("no SA for ESP"), "{findings}");
}

#[test]
fn counts_replays_reordering_and_gaps() {
    let sas = sa("a", "esp", "tunnel", GCM, "window = 64\n");
    let engine = sender(&sas);
    let sealed: Vec<_> = (0..200).map(|_| seal(&engine, &packet(false, 10))).collect();
    let order = [0, 1, 3, 2, 2, 10, 199, 50];
    let packets: Vec<_> = order.map(|at| sealed[at].clone()).into();
    let (report, _, summary) = decode(&sas, &packets);
    let tally = &summary.associations[0];
    assert_eq!((tally.opened, tally.reordered, tally.replayed, tally.stale), (8, 1, 1, 1));
    assert_eq!((tally.first, tally.last), (Some(1), Some(200)));
    assert_eq!((tally.missing, tally.furthest_behind), (200 - 6, 1));
    assert!(report[3].notes[0].starts_with("reordered: 1 behind"));
    assert!(report[4].notes[0].starts_with("replayed"));
    assert!(report[7].notes[0].starts_with("stale: 149 behind"), "{:?}", report[7].notes);
    assert!(summary.all_opened());
}

#[test]
fn a_sequence_number_before_the_first_is_stale() {
    let sas = sa("a", "esp", "tunnel", GCM, "");
    let engine = sender(&sas);
    let sequence = engine.associations().next().expect("one").sequence();
    let [first, second] = [0; 2].map(|_| seal(&engine, &packet(false, 10)));
    sequence.skip_to(0xffff_fff0);
    let high = seal(&engine, &packet(false, 10));
    let (report, _, summary) = decode(&sas, &[first, high.clone(), second]);
    assert!(report[1].notes[0].contains("before the first number"), "{:?}", report[1].notes);
    assert!(report[2].notes.is_empty(), "{:?}", report[2].notes);
    let tally = &summary.associations[0];
    assert_eq!((tally.stale, tally.last, tally.missing), (1, Some(2), 0));
    // where nothing came before, the capture begins there
    let (report, _, _) = decode(&sas, &[high]);
    assert!(report[0].notes.is_empty(), "{:?}", report[0].notes);
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
fn follows_extended_sequence_numbers() {
    let sas = sa("a", "esp", "tunnel", GCM, "");
    let engine = sender(&sas);
    let sequence = engine.associations().next().expect("one").sequence();
    sequence.skip_to((5 << 32) - 3);
    let sealed: Vec<_> = (0..6).map(|_| seal(&engine, &packet(false, 10))).collect();
    let (report, _, summary) = decode(&sas, &sealed);
    let numbers: Vec<_> = report.iter().map(|packet| packet.layers[0].sequence).collect();
    assert_eq!(numbers, ((5 << 32) - 3..(5 << 32) + 3).collect::<Vec<_>>());
    assert!(
        report[0].notes[0].contains("the high half of the sequence number is 4"),
        "{:?}",
        report[0].notes
    );
    assert!(report[1..].iter().all(|packet| packet.notes.is_empty()));
    assert_eq!(summary.associations[0].missing, 0);
}

#[test]
fn finds_a_large_high_half_or_takes_it_as_an_argument() {
    for suite in [GCM, CBC] {
        let sas = sa("a", "esp", "tunnel", suite, "");
        let at = |high: u64| {
            let engine = sender(&sas);
            engine.associations().next().expect("one").sequence().skip_to(high << 32 | 9);
            [seal(&engine, &packet(false, 10)), seal(&engine, &packet(false, 10))]
        };
        for high in if suite == GCM { &[63, 64, 1000, 65_535][..] } else { &[63, 64] } {
            let high = *high;
            let (report, _, summary) = decode(&sas, &at(high));
            assert!(summary.all_opened(), "{high}: {}", report[0]);
            assert_eq!(report[1].layers[0].sequence, high << 32 | 10);
        }
        // packets that anybody can send ahead of the others
        let [mut forged, _] = at(900);
        *forged.last_mut().expect("an ICV") ^= 1;
        let [sound, next] = at(900);
        let sent = [&forged, &forged, &forged, &sound, &next, &sound, &sound].map(Clone::clone);
        let (_, _, summary) = decode(&sas, &sent);
        assert_eq!(summary.opened, 3, "all behind the first that is searched for again");
        let far = at(0x1010_1010);
        let (report, _, summary) = decode(&sas, &far);
        assert_eq!(summary.opened, 0);
        assert!(report[0].to_string().contains("is 65536 or more"), "{}", report[0]);
        for given in [0x1010_1010, 0x1010_100f, 0x1010_1011] {
            let search = Search { likely: vec![5, given], thorough: 0 };
            assert!(decode_with(&sas, &far, search).2.all_opened(), "{given:#x}");
        }
    }
}

#[test]
fn rejects_clear_fields_that_differ_from_the_packet() {
    let sas = sa("a", "qesp", "transport", GCM, "");
    let plain = packet(false, 100);
    let engine = sender(&sas);
    let (report, ..) = decode(&sas, &[seal(&engine, &plain)]);
    let clear = report[0].layers[0].clear.expect("shown");
    assert_eq!((clear.source_port, clear.destination_port, clear.protocol), (5000, 80, 17));
    // a sender that shows other ports than it protects: sealed by hand
    let spec = &config(&sas).associations[0].spec;
    let headroom_ipsec::SaTransform::Cipher(transform) =
        headroom_ipsec::SaTransform::bind(&spec.protection).expect("keys")
    else {
        panic!("a cipher");
    };
    let mut body =
        qesp::Clear { source_port: 1, destination_port: 2, protocol: 17 }.octets().to_vec();
    body.extend([0, 0, 0x10, 0, 0, 0, 0, 1]);
    body.extend([0; 8]);
    body.extend(&plain[20..]);
    let padding = (plain.len() - 20 + 2).next_multiple_of(4) - (plain.len() - 20 + 2);
    body.extend((1..=padding as u8).chain([padding as u8, protocol::UDP]));
    body.extend([0; 16]);
    let (header, rest) = body.split_at_mut(qesp::HEADER_LEN);
    let addresses = &plain[12..20];
    let bound = headroom_suite::AadInput { header, sequence: 1, extended: true, addresses };
    transform.seal(&bound, rest).expect("sealed");
    let lying = rebuild(&plain[..20], 253, &body).expect("a packet");
    let (reason, findings) = failure_of(&lying, &sas);
    assert_eq!(
        (reason.as_str(), findings.as_str()),
        ("ports-mismatch", "the clear fields say UDP 1→2, but the packet is UDP 5000→80")
    );
}

#[test]
fn recognises_trains_fragments_and_keepalives() {
    let sas = sa("a", "esp", "tunnel", GCM, "udp = { source = 4500, destination = 4500 }\n");
    let engine = sender(&sas);
    let sealed: Vec<_> = (0..3).map(|_| seal(&engine, &packet(false, 400))).collect();
    // what a host sees of its own UDP GSO
    let body: Vec<u8> = sealed.iter().flat_map(|packet| packet[28..].to_vec()).collect();
    let in_udp = |body: &[u8]| {
        let mut datagram = vec![0; udp::HEADER_LEN];
        udp::write(4500, 4500, body.len(), &mut datagram).expect("room");
        rebuild(&sealed[0][..20], protocol::UDP, &[&datagram, body].concat()).expect("a packet")
    };
    let packets = [in_udp(&body), in_udp(&[0xff]), in_udp(&[0, 0, 0, 0, 1, 2]), packet(false, 5)];
    let (report, inside, summary) = decode(&sas, &packets);
    assert_eq!((summary.opened, summary.others, summary.frames), (3, 3, 4));
    assert_eq!(summary.ike.messages, 0, "no header");
    assert!(
        report[2].notes[0].contains("UDP GSO")
            && inside[2].as_deref() == Some(&packet(false, 400)[..])
    );
    assert!(matches!(report[3].outcome, Outcome::Keepalive));
    assert!(matches!(report[4].outcome, Outcome::NotIpsec { .. }));
    assert!(matches!(report[5].outcome, Outcome::NotIpsec { .. }));

    let sas = sa("a", "esp", "tunnel", GCM, "dont_fragment = \"clear\"\n");
    let long = seal(&sender(&sas), &packet(false, 3000));
    let cut = Fragmenter::new(Ip::parse(&long).expect("a packet"), 1500, 9).expect("fragments");
    let mut pieces: Vec<Vec<u8>> = (0..cut.fragments())
        .map(|index| {
            let mut piece = vec![0; 1500];
            let len = cut.copy(index, &mut piece).expect("room");
            piece.truncate(len);
            piece
        })
        .collect();
    pieces.reverse();
    let (report, _, summary) = decode(&sas, &pieces);
    assert!(summary.opened == 1 && summary.all_opened(), "{summary}");
    assert!(matches!(report.last().map(|report| &report.outcome), Some(Outcome::Opened { .. })));
    pieces.pop();
    assert_eq!(decode(&sas, &pieces).2.fragments_left, 1);
}

/// The fragments of a packet, each of at most 600 bytes.
fn fragments(packet: &[u8]) -> Vec<Vec<u8>> {
    let cut = Fragmenter::new(Ip::parse(packet).expect("a packet"), 600, 9).expect("fragments");
    let piece = |index| {
        let mut piece = vec![0; 600];
        let len = cut.copy(index, &mut piece).expect("room");
        piece.truncate(len);
        piece
    };
    (0..cut.fragments()).map(piece).collect()
}

/// RFC 8200, section 4.5: destination options may stand in the part that is cut, and
/// the fragment header then names them.
#[test]
fn reassembles_fragments_that_begin_with_destination_options() {
    let sas = sa("a", "esp", "tunnel", GCM, "");
    let sas = sas.replace("192.0.2.1", "fd00::1").replace("192.0.2.2", "fd00::2");
    let sealed = seal(&sender(&sas), &packet(false, 1500));
    let options = [50, 0, 1, 4, 0, 0, 0, 0];
    let behind = [&options[..], &sealed[40..]].concat();
    let long = rebuild(&sealed[..40], protocol::DESTINATION_OPTIONS, &behind).expect("a packet");
    let pieces = fragments(&long);
    assert!(pieces.len() > 2 && pieces[1][40] == protocol::DESTINATION_OPTIONS);
    let (_, inside, summary) = decode(&sas, &pieces);
    assert!(summary.all_opened() && summary.others == 0, "{summary}");
    assert_eq!(inside.last(), Some(&Some(packet(false, 1500))));
}

#[test]
fn reassembled_datagrams_keep_the_df_bit() {
    let sas = sa("a", "esp", "transport", GCM, "");
    let mut pieces = fragments(&seal(&sender(&sas), &packet(false, 1500)));
    for piece in &mut pieces {
        piece[6] |= 0x40;
        headroom_packet::header::refresh_checksum(piece).expect("a header");
    }
    let (_, inside, summary) = decode(&sas, &pieces);
    let whole = inside.last().and_then(Option::as_ref).expect("opened");
    assert!(summary.all_opened() && whole[6] & 0x40 != 0, "{summary}");
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
