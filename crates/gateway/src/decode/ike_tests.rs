//! Captures of strongSwan 6.0.1 with itself, opened with what its initiator logged.

use std::path::PathBuf;
use std::time::Duration;

use headroom_ike::wire::{ExchangeType, Header, Message};
use proptest::prelude::*;

use super::capture::{Capture, Writer};
use super::*;
use crate::wireshark::KeyTables;

fn file(name: &str) -> Vec<u8> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../ike/tests/captures");
    std::fs::read(folder.join(name)).expect("a file of the repository")
}

/// A capture, its table of IKE and its table of ESP.
struct Recorded {
    capture: Vec<u8>,
    ike: String,
    esp: String,
}

/// Reads the capture `name`, whose SAs have these SPIs: of IKE, each as often as its keys were
/// replaced; of ESP, to the responder and to the initiator.
fn recorded(name: &str, cipher: &str, ike: &[(u64, u64)], esp: &[(u32, u32)]) -> Recorded {
    let text = String::from_utf8(file(&format!("{name}.keys"))).expect("text");
    let values = |name: &str| -> Vec<&str> {
        let lines = text.lines().filter_map(|line| line.split_once(' '));
        lines.filter(|(key, _)| *key == name).map(|(_, value)| value).collect()
    };
    let (ei, er) = (values("sk_ei"), values("sk_er"));
    assert_eq!(ei.len(), ike.len());
    let lines = ike.iter().zip(ei.iter().zip(er)).map(|((initiator, responder), (ei, er))| {
        format!("{initiator:016x},{responder:016x},{ei},{er},\"{cipher}\",,,\"NONE [RFC4306]\"\n")
    });
    let line = |from: u8, to: u8, spi: u32, key: &str| {
        format!(
            "\"IPv4\",\"10.77.0.{from}\",\"10.77.0.{to}\",\"{spi:#010x}\",\
             \"AES-GCM with 16 octet ICV [RFC4106]\",\"0x{key}\",\"NULL\",\"\"\n"
        )
    };
    let keys = values("child-ei").into_iter().zip(values("child-er"));
    let children = esp.iter().zip(keys).map(|((to_responder, to_initiator), (ei, er))| {
        line(1, 2, *to_responder, ei) + &line(2, 1, *to_initiator, er)
    });
    let capture = file(&format!("{name}.pcap"));
    Recorded { capture, ike: lines.collect(), esp: children.collect() }
}

fn psk() -> Recorded {
    let ike = [
        (0x79c9_4f7c_fa9b_9322, 0x0d50_a214_3d65_cbab),
        (0xd82c_eef8_0aef_6f52, 0xc1b5_f7b7_e183_b83b),
    ];
    let esp = [(0x4ba0_413e, 0xdbdb_aae4), (0x26bd_b0f1, 0xdde0_d470)];
    recorded("psk", "AES-GCM-128 with 16 octet ICV [RFC5282]", &ike, &esp)
}

/// With fragments, and keys that IKE_INTERMEDIATE replaced.
fn ml_kem() -> Recorded {
    let first = (0xca04_49dd_1842_5d6e, 0xecfa_8878_2d32_8269);
    let ike = [first, first, (0x96bf_4b01_9703_ef95, 0x22f6_c26f_39e6_47f8)];
    let esp = [(0x37d6_cc05, 0xe7d8_3d9c), (0xd795_a0e9, 0x5ca0_19ce)];
    recorded("psk-mlkem768", "AES-GCM-256 with 16 octet ICV [RFC5282]", &ike, &esp)
}

/// The report as `ipsec decode` prints it, and the summary.
fn decoded(capture: &[u8], ike: &str, esp: &str) -> (String, Summary) {
    let tables = KeyTables::parse(ike, esp);
    assert!(tables.notes.is_empty(), "{:?}", tables.notes);
    decode_with(capture, tables)
}

fn decode_with(capture: &[u8], tables: KeyTables) -> (String, Summary) {
    let decoder = Decoder::new(None, tables, Search::default()).expect("keys");
    let mut text = String::new();
    let mut take = |packet: &Packet, _: Option<&[u8]>| text += &format!("{packet}\n");
    let summary = decoder.capture(Capture::new(capture).expect("a capture"), &mut take);
    (text + &summary.to_string(), summary)
}

#[test]
fn opens_ike_and_esp_with_a_log_of_keys() {
    let Recorded { capture, ike, esp } = psk();
    let (text, summary) = decoded(&capture, &ike, &esp);
    assert!(summary.all_opened(), "{text}");
    insta::assert_snapshot!(text);
}

#[test]
fn puts_fragments_together_and_follows_keys_that_are_replaced() {
    let Recorded { capture, ike, esp } = ml_kem();
    let (text, summary) = decoded(&capture, &ike, &esp);
    assert!(summary.all_opened(), "{text}");
    insta::assert_snapshot!(text);
}

#[test]
fn shows_what_is_not_encrypted_without_a_log() {
    let (_, summary) = decode_with(&psk().capture, KeyTables::default());
    assert_eq!((summary.ike.messages, summary.ike.sealed, summary.ike.failed), (14, 12, 0));
    // an SA whose keys are not in the log that was given is a failure
    let ike = psk().ike;
    let (text, summary) = decoded(&psk().capture, ike.lines().next().expect("a line"), "");
    assert_eq!((summary.ike.opened, summary.ike.failed), (10, 2), "{text}");
    assert!(text.contains("FAILED: the log has no keys for these SPIs"), "{text}");
    // the keys of another SA
    let wrong = ike.replacen("4ac9359a", "4ac9359b", 1);
    let (text, summary) = decoded(&psk().capture, &wrong, "");
    assert_eq!(summary.ike.failed, 5, "{text}");
    assert!(text.contains("FAILED: it does not verify"), "{text}");
}

/// The payloads of UDP of a capture, without markers, and whether they are of port 4500.
fn messages(capture: &[u8]) -> Vec<(bool, Vec<u8>)> {
    let mut capture = Capture::new(capture).expect("a capture");
    let mut messages = Vec::new();
    while let Some(frame) = capture.next_frame().expect("a whole capture") {
        // Ethernet, IPv4 without options, UDP
        let (headers, payload) = frame.data.split_at(14 + 20 + 8);
        let has_marker = headers[36..38] == 4500_u16.to_be_bytes();
        let message = if has_marker { payload.strip_prefix(&[0; 4]) } else { Some(payload) };
        messages.extend(message.map(|message| (has_marker, message.to_vec())));
    }
    messages
}

/// A capture of these messages on port 500.
fn capture_of<'a>(messages: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut file = Vec::new();
    let mut writer = Writer::new(&mut file).expect("memory");
    for message in messages {
        let mut packet = vec![0; 20 + 8];
        packet.extend(message);
        let len = (packet.len() as u16).to_be_bytes();
        packet[..10].copy_from_slice(&[0x45, 0, len[0], len[1], 0, 0, 0, 0, 64, 17]);
        packet[12..20].copy_from_slice(&[10, 77, 0, 1, 10, 77, 0, 2]);
        let len = ((8 + message.len()) as u16).to_be_bytes();
        packet[20..26].copy_from_slice(&[1, 244, 1, 244, len[0], len[1]]);
        writer.write(Duration::ZERO, &packet).expect("memory");
    }
    writer.finish().expect("memory");
    file
}

#[test]
fn counts_what_was_sent_again_and_what_is_missing() {
    let Recorded { capture, ike, .. } = ml_kem();
    let all = messages(&capture);
    let fragments: Vec<&[u8]> =
        all.iter().filter(|(_, one)| one[16] == 53).map(|(_, one)| &one[..]).collect();
    let [first, second, ..] = fragments[..] else { panic!("two fragments") };
    let (text, summary) = decoded(&capture_of([second, second, first, first]), &ike, "");
    let counts = summary.ike;
    assert_eq!((counts.opened, counts.repeated, counts.incomplete), (1, 2, 0), "{text}");
    assert!(text.contains("KE      ML-KEM-768, 1184 bytes"), "{text}");
    let (text, summary) = decoded(&capture_of([first]), &ike, "");
    assert!(summary.ike.incomplete == 1 && !summary.all_opened(), "{text}");
}

#[test]
fn tells_of_other_versions_and_of_messages_that_cannot_be_read() {
    let init = &messages(&psk().capture)[0].1;
    let mut version = init.clone();
    version[17] = 0x10;
    let mut payload = init.clone();
    payload[31] ^= 1;
    let (text, summary) = decoded(&capture_of([&version[..], &payload, &init[..20]]), "", "");
    assert!(text.contains("a message that is no IKEv2: IKE version 1, not 2"), "{text}");
    assert!(text.contains("IKE_SA_INIT request 0 from the initiator, FAILED: "), "{text}");
    assert_eq!((summary.others, summary.ike.messages, summary.ike.failed), (2, 1, 1), "{text}");
}

#[test]
fn shows_no_nonce_no_public_value_and_no_proof() {
    for Recorded { capture, ike, esp } in [psk(), ml_kem()] {
        let (text, _) = decoded(&capture, &ike, &esp);
        let json = {
            let decoder = Decoder::new(None, KeyTables::parse(&ike, &esp), Search::default());
            let mut json = String::new();
            let mut take = |packet: &Packet, _: Option<&[u8]>| {
                json += &serde_json::to_string(packet).expect("JSON");
            };
            let capture = Capture::new(&capture[..]).expect("a capture");
            decoder.expect("keys").capture(capture, &mut take);
            json
        };
        // keys, and the nonce of the first message, whose place is known
        let init = &messages(&capture)[0].1;
        let hex: String = init[28..].iter().map(|byte| format!("{byte:02x}")).collect();
        let words =
            hex.as_bytes().chunks(16).map(|word| String::from_utf8_lossy(word).into_owned());
        let keys = ike.split([',', '"', '\n', ' ']).filter(|key| key.len() > 32).map(str::to_owned);
        for secret in words.chain(keys) {
            assert!(!text.contains(&secret) && !json.contains(&secret), "{secret}");
        }
    }
}

proptest! {
    /// Payloads that are encrypted are of the peer, and may be anything.
    #[test]
    fn any_message_is_read_without_panic(
        which in 0_usize..23,
        changes in proptest::collection::vec((0_usize..2000, any::<u8>()), 0..4),
        len in 0_usize..2000,
    ) {
        let Recorded { capture, ike, esp } = ml_kem();
        let mut message = messages(&capture)[which].1.clone();
        for (at, byte) in changes {
            let len = message.len();
            message[at % len] = byte;
        }
        let cut = &message[..len.min(message.len())];
        let (text, summary) = decoded(&capture_of([&message[..], cut]), &ike, &esp);
        prop_assert_eq!(summary.frames, 2);
        prop_assert!(text.chars().all(|one| one == '\n' || !one.is_control()));
    }

    #[test]
    fn any_payload_is_described_without_control_characters(
        payload_type in any::<u8>(),
        body in proptest::collection::vec(any::<u8>(), 0..300),
    ) {
        let mut message = Vec::new();
        let header = Message {
            header: Header {
                spi_initiator: 1,
                spi_responder: 0,
                exchange: ExchangeType::IkeSaInit,
                from_initiator: true,
                response: false,
                message_id: 0,
            },
            payloads: Vec::new(),
        };
        message.extend(header.emit());
        message[16] = payload_type % 60;
        let len = (4 + body.len() as u16).to_be_bytes();
        message.extend([0, 0, len[0], len[1]]);
        message.extend(&body);
        let total = (message.len() as u32).to_be_bytes();
        message[24..28].copy_from_slice(&total);
        let (text, _) = decoded(&capture_of([&message[..]]), "", "");
        prop_assert!(text.chars().all(|one| one == '\n' || !one.is_control()), "{}", text);
    }
}
