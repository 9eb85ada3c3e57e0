//! Why a check value is wrong: what would have made it right?

use headroom_ipsec::spec::{Protection, Secrets};
use headroom_ipsec::{Protocol, SaSpec, SaTransform, ah};
use headroom_packet::Ip;
use headroom_suite::{Aead, Cipher, Key, Mac, Suite};
use zeroize::Zeroizing;

use super::attempt::{Addresses, Assumptions, Sealed, configured};
use super::sa_decoder::SaDecoder;

/// Other associations that are tried.
const MAX_TRIED: usize = 256;

/// Sentences about a packet that `known[index]` does not open; `number` is what
/// was inferred.
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
            "it verifies with `esn = {then}`: the sender's numbers are {} bits long (here: `esn = {now}`)",
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
                "it verifies with the high half of the sequence number {words} ({})",
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
                "it verifies with the SA's addresses ({} → {}): a NAT on the way changed one, which {} does not survive",
                spec.source, spec.destination, sealed.protocol
            )
        });
        note(opens(&own.transform, Assumptions { addresses: turned, ..assumed }), &|| {
            "it verifies with source and destination exchanged: the sender covers them in the wrong order".into()
        });
    }
    if matches!(sealed.protocol, Protocol::QEsp(_)) {
        note(
            opens(&own.transform, Assumptions { addresses: Addresses::NotCovered, ..assumed }),
            &|| {
                "it verifies without the addresses: the sender does not cover them (docs/qesp.md)"
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
                format!("it verifies with the suite and key of `{}`", candidate.spec.name)
            });
        }
    }
    for (transform, words) in changed_keys(spec) {
        note(opens_rightly(sealed, &transform, assumed), &|| words.into());
    }
    truncations(sealed, own, assumed, &mut findings);
    shorter_tags(sealed, own, assumed, &mut findings);
    if let Some(icv_len) = in_clear(sealed) {
        findings.push(format!(
            "it is not encrypted: behind the header stands a packet in clear, with {icv_len} octets of check value (the \
             null cipher)"
        ));
    }
    findings
}

/// Whether it verifies, and a cipher whose key is another than the integrity
/// algorithm's finds padding as it must be.
fn opens_rightly(sealed: &Sealed<'_>, transform: &SaTransform, assumed: Assumptions) -> bool {
    let opened = sealed.open(transform, assumed);
    opened.is_some_and(|text| {
        matches!(transform, SaTransform::Mac(_)) || headroom_ipsec::esp::read_trailer(&text).is_ok()
    })
}

/// AEADs whose tag was cut, which RFC 4106, section 6, allows.
fn shorter_tags(
    sealed: &Sealed<'_>,
    own: &SaDecoder,
    assumed: Assumptions,
    findings: &mut Vec<String>,
) {
    let SaTransform::Cipher(transform) = &own.transform else { return };
    for icv_len in [8, 12] {
        if sealed.verifies_truncated(transform.as_ref(), icv_len, assumed) {
            findings.push(format!(
                "it verifies with a check value of {icv_len} bytes, where {} are used here: choose the peer's suite with \
                 16 (strongSwan: `…gcm16`; Linux: `icv_len 128`)",
                transform.icv_len()
            ));
        }
    }
}

/// Guards of what people mix up.
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
                "it verifies with the salt moved to the key's other end: the last 4 octets of `key` are the salt (RFC 4106)",
            );
            if let Some((salt, rest)) = key.as_bytes().split_at_checked(SALT_LEN) {
                let turned = Key::from_bytes(&[rest, salt].concat());
                add(
                    *suite,
                    &turned,
                    None,
                    "it verifies with the first 4 octets of `key` as the salt: they belong at its end (RFC 4106)",
                );
            }
            let mut reversed = Zeroizing::new(key.as_bytes().to_vec());
            reversed[first.len()..].reverse();
            add(
                *suite,
                &Key::from_bytes(&reversed),
                None,
                "it verifies with the octets of the salt reversed",
            );
            for aead in Aead::ALL.into_iter().filter(|aead| aead != own) {
                let words = match aead {
                    Aead::ChaCha20Poly1305 => {
                        "it verifies as chacha20-poly1305 with the same key: the suites differ"
                    }
                    _ => "it verifies as AES-GCM with the same key: the suites differ",
                };
                add(Suite::Aead(aead), key, None, words);
            }
        }
        (Suite::Separate(cipher, mac), Some(mac_key)) => {
            add(*suite, mac_key, Some(key), "it verifies with `key` and `integrity_key` exchanged");
            let words =
                "it verifies with `key` as the integrity key too: the sender uses one key for both";
            add(Suite::Separate(*cipher, *mac), key, Some(key), words);
            for other in Mac::ALL.into_iter().filter(|other| other != mac) {
                let words = "it verifies with another integrity algorithm and the same keys: the suites differ";
                add(Suite::Separate(*cipher, other), key, Some(mac_key), words);
            }
        }
        (Suite::Separate(..), None) => {}
    }
    transforms
}

/// Lengths at which implementations have cut an HMAC; Linux cut SHA-256 to 96
/// bits before it followed RFC 4868.
const CUTS: [usize; 8] = [8, 10, 12, 16, 20, 24, 32, 64];

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
    for cut in CUTS.into_iter().filter(|cut| *cut != mac.icv_len()) {
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
                "it verifies with {mac} cut to {} bits: the sender does not cut it to {} (RFC 4868, RFC 2404)",
                cut * 8,
                mac.icv_len() * 8
            ));
        }
    }
}

/// Octets of check value, where what follows the header is a packet in clear.
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
            // a length field that is right is no chance
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

/// Why the padding is wrong though the check value is right.
pub(super) fn bad_padding(sealed: &Sealed<'_>, own: &SaDecoder, number: u64) -> Vec<String> {
    let (Protection::Esp(secrets) | Protection::QEsp { secrets, .. }) = &own.spec.protection else {
        return Vec::new();
    };
    let (Suite::Separate(cipher, mac), Some(mac_key)) = (secrets.suite, &secrets.mac_key) else {
        return vec!["the sender pads in its own way (RFC 4303, section 2.4: 1, 2, 3, …)".into()];
    };
    let assumed = configured(&own.spec, number);
    for other in Cipher::ALL.into_iter().filter(|other| *other != cipher) {
        let key = if other == Cipher::Null { &Key::empty() } else { &secrets.key };
        let Ok(transform) = Suite::Separate(other, mac).bind(key, Some(mac_key)) else { continue };
        let text = sealed.open(&SaTransform::Cipher(transform), assumed);
        if text.is_some_and(|text| headroom_ipsec::esp::read_trailer(&text).is_ok()) {
            return vec![format!(
                "the padding is right with the cipher {other}: the suites differ"
            )];
        }
    }
    vec![format!("the integrity key is right: `key` or the cipher ({cipher}) is not the sender's")]
}

/// AH headers longer than the check value needs, as Linux makes them.
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
        format!("the AH header has {} octets where {shortest} would do: a peer such as Linux without `align4`", header.len)
    })
}
