//! Finds the reason for a wrong ICV: which change makes it correct?

use headroom_ipsec::spec::{Protection, Secrets};
use headroom_ipsec::{Protocol, SaSpec, SaTransform, ah};
use headroom_packet::Ip;
use headroom_suite::{Aead, Cipher, Key, Mac, Suite};
use zeroize::Zeroizing;

use super::attempt::{Addresses, Assumptions, Sealed, configured};
use super::sa_decoder::SaDecoder;

/// The most other SAs tried.
const MAX_TRIED: usize = 256;

/// Describes why `known[index]` does not open a packet; `number` is the inferred sequence number.
pub(super) fn forged(
    sealed: &Sealed<'_>,
    known: &[SaDecoder],
    index: usize,
    number: u64,
) -> Vec<String> {
    let own = &known[index];
    let spec = &own.spec;
    let assumed = configured(spec, number);
    let mut findings = Vec::new();
    let mut note = |found: bool, sentence: &dyn Fn() -> String| {
        if found {
            findings.push(sentence());
        }
    };
    let opens =
        |transform: &SaTransform, assumed: Assumptions| sealed.open(transform, assumed).is_some();

    let other = Assumptions { extended: !assumed.extended, ..assumed };
    note(opens(&own.transform, other), &|| {
        let (now, then) = (spec.extended_sequence, !spec.extended_sequence);
        format!(
            "the check value is correct with `esn = {then}`: the sender has {}-bit sequence numbers (this file has `esn = {now}`)",
            if then { 64 } else { 32 }
        )
    });
    for (high, words) in [
        (assumed.number.checked_add(1 << 32), "one more"),
        (assumed.number.checked_sub(1 << 32), "one less"),
    ] {
        let Some(number) = high.filter(|_| assumed.extended) else { continue };
        note(opens(&own.transform, Assumptions { number, ..assumed }), &|| {
            format!(
                "the check value is correct if the high half of the sequence number is {words} ({})",
                number >> 32
            )
        });
    }
    let covers_addresses = !matches!(sealed.protocol, Protocol::Esp);
    let meant = Addresses::Of(spec.source, spec.destination);
    let turned = Addresses::Of(sealed.destination, sealed.source);
    if covers_addresses {
        note(opens(&own.transform, Assumptions { addresses: meant, ..assumed }), &|| {
            format!(
                "the check value is correct with the SA's addresses ({} → {}): a NAT changed an address, and {} covers addresses",
                spec.source, spec.destination, sealed.protocol
            )
        });
        note(opens(&own.transform, Assumptions { addresses: turned, ..assumed }), &|| {
            "the check value is correct with source and destination exchanged: the sender covers the addresses in the wrong order".into()
        });
    }
    if matches!(sealed.protocol, Protocol::QEsp(_)) {
        note(
            opens(&own.transform, Assumptions { addresses: Addresses::NotCovered, ..assumed }),
            &|| {
                "the check value is correct without the addresses: the sender does not cover them (docs/qesp.md)"
                    .into()
            },
        );
    }
    let others = known.iter().enumerate().filter(|(place, _)| *place != index).take(MAX_TRIED);
    for (_, candidate) in others {
        let same_kind = matches!(candidate.transform, SaTransform::Mac(_))
            == matches!(own.transform, SaTransform::Mac(_));
        if !same_kind {
            continue;
        }
        for extended in [true, false] {
            note(opens(&candidate.transform, Assumptions { extended, ..assumed }), &|| {
                format!(
                    "the check value is correct with the suite and key of `{}`",
                    candidate.spec.name
                )
            });
        }
    }
    for (transform, words) in changed_keys(spec) {
        note(opens_correctly(sealed, &transform, assumed), &|| words.into());
    }
    truncations(sealed, own, assumed, &mut findings);
    truncated_tags(sealed, own, assumed, &mut findings);
    if let Some(icv_len) = in_clear(sealed) {
        findings.push(format!(
            "the packet is not encrypted: an IP packet in clear follows the header, then a check value of {icv_len} bytes \
             (the null cipher)"
        ));
    }
    findings
}

/// Checks whether the ICV is correct with this transform and, if it encrypts, the padding too.
fn opens_correctly(sealed: &Sealed<'_>, transform: &SaTransform, assumed: Assumptions) -> bool {
    let opened = sealed.open(transform, assumed);
    opened.is_some_and(|text| {
        matches!(transform, SaTransform::Mac(_)) || headroom_ipsec::esp::read_trailer(&text).is_ok()
    })
}

/// Tries AEADs with a truncated tag, which RFC 4106, section 6, allows.
fn truncated_tags(
    sealed: &Sealed<'_>,
    own: &SaDecoder,
    assumed: Assumptions,
    findings: &mut Vec<String>,
) {
    let SaTransform::Cipher(transform) = &own.transform else { return };
    for icv_len in [8, 12] {
        if sealed.verifies_truncated(transform.as_ref(), icv_len, assumed) {
            findings.push(format!(
                "the check value is correct with {icv_len} bytes instead of {}: choose the peer's suite with 16 \
                 (strongSwan: `…gcm16`; Linux: `icv_len 128`)",
                transform.icv_len()
            ));
        }
    }
}

/// Returns transforms with frequent configuration errors undone.
fn changed_keys(spec: &SaSpec) -> Vec<(SaTransform, &'static str)> {
    let mut transforms = Vec::new();
    let mut add = |suite: Suite, key: &Key, mac_key: Option<&Key>, words| {
        if let Ok(transform) = suite.bind(key, mac_key) {
            transforms.push((SaTransform::Cipher(transform), words));
        }
    };
    let (Protection::Esp(secrets) | Protection::QEsp { secrets, .. }) = &spec.protection else {
        return transforms;
    };
    let Secrets { suite, key, mac_key } = secrets;
    match (suite, mac_key) {
        (Suite::Aead(own), _) => {
            const SALT_LEN: usize = 4;
            let (first, salt) = key.as_bytes().split_at(key.len().saturating_sub(SALT_LEN));
            let turned = Key::from_bytes(&[salt, first].concat());
            add(
                *suite,
                &turned,
                None,
                "the check value is correct with the salt moved to the other end of the key: the last 4 bytes of `key` are the salt (RFC 4106)",
            );
            if let Some((salt, rest)) = key.as_bytes().split_at_checked(SALT_LEN) {
                let turned = Key::from_bytes(&[rest, salt].concat());
                add(
                    *suite,
                    &turned,
                    None,
                    "the check value is correct with the first 4 bytes of `key` as the salt: move them to its end (RFC 4106)",
                );
            }
            let mut reversed = Zeroizing::new(key.as_bytes().to_vec());
            reversed[first.len()..].reverse();
            add(
                *suite,
                &Key::from_bytes(&reversed),
                None,
                "the check value is correct with the bytes of the salt reversed",
            );
            for aead in Aead::ALL.into_iter().filter(|aead| aead != own) {
                let words = match aead {
                    Aead::ChaCha20Poly1305 => {
                        "the check value is correct for chacha20-poly1305 with the same key: the suites differ"
                    }
                    _ => {
                        "the check value is correct for AES-GCM with the same key: the suites differ"
                    }
                };
                add(Suite::Aead(aead), key, None, words);
            }
        }
        (Suite::Separate(cipher, mac), Some(mac_key)) => {
            add(
                *suite,
                mac_key,
                Some(key),
                "the check value is correct with `key` and `integrity_key` exchanged",
            );
            let words = "the check value is correct with `key` as the integrity key too: the sender uses one key for both";
            add(Suite::Separate(*cipher, *mac), key, Some(key), words);
            for other in Mac::ALL.into_iter().filter(|other| other != mac) {
                let words = "the check value is correct with another integrity algorithm and the same keys: the suites differ";
                add(Suite::Separate(*cipher, other), key, Some(mac_key), words);
            }
        }
        (Suite::Separate(..), None) => {}
    }
    transforms
}

/// Lengths to which implementations have truncated an HMAC; Linux truncated SHA-256 to 96 bits
/// before it followed RFC 4868.
const TRUNCATED_LENS: [usize; 8] = [8, 10, 12, 16, 20, 24, 32, 64];

fn truncations(
    sealed: &Sealed<'_>,
    own: &SaDecoder,
    assumed: Assumptions,
    findings: &mut Vec<String>,
) {
    let (mac, key) = match &own.spec.protection {
        Protection::Ah { mac, key } => (*mac, key),
        Protection::Esp(Secrets { suite: Suite::Separate(_, mac), mac_key: Some(key), .. })
        | Protection::QEsp {
            secrets: Secrets { suite: Suite::Separate(_, mac), mac_key: Some(key), .. },
            ..
        } => (*mac, key),
        _ => return,
    };
    let Ok(authenticator) = mac.bind(key) else { return };
    for cut in TRUNCATED_LENS.into_iter().filter(|cut| *cut != mac.icv_len()) {
        let right = match sealed.protocol {
            Protocol::Ah => {
                sealed.covered(cut, assumed).is_some_and(|(_, icv, zeroed, body, high)| {
                    authenticator.digest(&[&zeroed, &body, &high], |digest| {
                        digest.get(..cut) == Some(&icv[..])
                    })
                })
            }
            Protocol::Esp | Protocol::QEsp(_) => {
                let high = ((assumed.number >> 32) as u32).to_be_bytes();
                let high = if assumed.extended { &high[..] } else { &[] };
                let mut room = [0; headroom_ipsec::qesp::MAX_ADDRESSES_LEN];
                let addresses = match sealed.protocol {
                    Protocol::QEsp(_) => headroom_ipsec::qesp::addresses(
                        sealed.source,
                        sealed.destination,
                        &mut room,
                    ),
                    _ => &[],
                };
                let end = sealed.body.len().checked_sub(cut);
                end.is_some_and(|end| {
                    let (text, icv) = sealed.body.split_at(end);
                    authenticator
                        .digest(&[text, high, addresses], |digest| digest.get(..cut) == Some(icv))
                })
            }
        };
        if right {
            findings.push(format!(
                "the check value is correct with {mac} truncated to {} bits: the sender does not truncate it to {} (RFC 4868, RFC 2404)",
                cut * 8,
                mac.icv_len() * 8
            ));
        }
    }
}

/// Returns the length of the ICV, if a packet in clear follows the header.
fn in_clear(sealed: &Sealed<'_>) -> Option<usize> {
    if sealed.protocol == Protocol::Ah {
        return None;
    }
    let rest = sealed.body.get(sealed.header_len()..)?;
    [12, 16, 24, 32, 0].into_iter().find(|icv_len| {
        let Some(text) = rest.len().checked_sub(*icv_len).map(|end| &rest[..end]) else {
            return false;
        };
        let Ok((next_header, len)) = headroom_ipsec::esp::read_trailer(text) else { return false };
        match next_header {
            4 | 41 => Ip::parse(&text[..len])
                .is_ok_and(|ip| ip.version().protocol() == next_header && ip.total_len() == len),
            // A matching length field is not a coincidence.
            17 => text
                .get(4..6)
                .is_some_and(|field| usize::from(u16::from_be_bytes([field[0], field[1]])) == len),
            6 => {
                len >= 20
                    && text[..len].get(12).is_some_and(|offset| (5..=15).contains(&(offset >> 4)))
                    && text.len() - len > 3
            }
            _ => false,
        }
    })
}

/// Describes why the padding is wrong although the ICV is correct.
pub(super) fn bad_padding(sealed: &Sealed<'_>, own: &SaDecoder, number: u64) -> Vec<String> {
    let (Protection::Esp(secrets) | Protection::QEsp { secrets, .. }) = &own.spec.protection else {
        return Vec::new();
    };
    let (Suite::Separate(cipher, mac), Some(mac_key)) = (secrets.suite, &secrets.mac_key) else {
        return vec!["the padding is not 1, 2, 3, … (RFC 4303, section 2.4)".into()];
    };
    let assumed = configured(&own.spec, number);
    for other in Cipher::ALL.into_iter().filter(|other| *other != cipher) {
        let key = if other == Cipher::Null { &Key::empty() } else { &secrets.key };
        let Ok(transform) = Suite::Separate(other, mac).bind(key, Some(mac_key)) else { continue };
        let text = sealed.open(&SaTransform::Cipher(transform), assumed);
        if text.is_some_and(|text| headroom_ipsec::esp::read_trailer(&text).is_ok()) {
            return vec![format!(
                "the padding is correct with the cipher {other}: the suites differ"
            )];
        }
    }
    vec![format!("the integrity key is correct; `key` or the cipher ({cipher}) is not")]
}

/// Detects AH headers longer than the ICV needs, which Linux sends.
pub(super) fn ah_padding(sealed: &Sealed<'_>, own: &SaDecoder) -> Option<String> {
    let (Protocol::Ah, SaTransform::Mac(mac)) = (sealed.protocol, &own.transform) else {
        return None;
    };
    let header = ah::Header::read(sealed.body).ok()?;
    let shortest = (ah::FIXED_LEN + mac.icv_len()).next_multiple_of(if sealed.source.is_ipv4() {
        4
    } else {
        8
    });
    (header.len > shortest).then(|| {
        format!("the AH header has {} bytes where {shortest} are enough: the peer pads it, as Linux does without `align4`", header.len)
    })
}
