//! What is found out about packets that are not opened.

use headroom_ipsec::qesp;
use headroom_packet::protocol;

use super::{CBC, GCM, config, decode, packet, sa, seal, sender};
use crate::decode::Outcome;
use crate::decode::attempt::rebuild;

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
