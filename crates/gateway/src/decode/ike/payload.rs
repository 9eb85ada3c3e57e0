//! One payload in words.

use std::fmt::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use headroom_ike::Identity;
use headroom_ike::wire::{
    AddressRange, AuthMethod, Configuration, ConfigurationAttributeType, Delete, DigitalSignature,
    Eap, EncryptionId, HashAlgorithmId, IntegrityId, KeyExchangeMethod, Notify, NotifyType,
    Payload, PayloadType, PrfId, Proposal, ProtocolId, SequenceNumbersId, TrafficSelector,
    Transform, TransformType,
};
use serde::Serialize;

/// The most characters of a name that a peer sent.
const MAX_TEXT: usize = 200;
/// The most elements of a list that are shown.
const MAX_SHOWN: usize = 64;

/// A payload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PayloadReport {
    /// The name of its type in RFC 7296, section 3.2, or its number.
    #[serde(rename = "type")]
    pub payload_type: String,
    /// Its content in words; of secrets, public values and proofs only their length.
    pub content: String,
}

impl fmt::Display for PayloadReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<7} {}", self.payload_type, self.content)
    }
}

impl PayloadReport {
    pub(super) fn of(payload: &Payload<'_>) -> Self {
        let payload_type = payload.payload_type().to_string();
        Self { payload_type, content: content(payload) }
    }
}

fn content(payload: &Payload<'_>) -> String {
    let bytes = |data: &[u8]| format!("{} bytes", data.len());
    match payload {
        Payload::SecurityAssociation(sa) => list(&sa.proposals, "; ", proposal),
        Payload::KeyExchange(one) => format!("{}, {}", one.method, bytes(one.data)),
        Payload::IdInitiator(one) | Payload::IdResponder(one) => {
            match Identity::from_payload(one) {
                Some(name) => format!("{} {}", one.id_type, short(&name.to_string())),
                None => format!("{}, {}", one.id_type, bytes(one.data)),
            }
        }
        Payload::Certificate(one) => format!("{}, {}", one.encoding, bytes(one.data)),
        Payload::CertificateRequest(one) => format!("{}, {}", one.encoding, bytes(one.authorities)),
        Payload::Authentication(one) => {
            let signature = (one.method == AuthMethod::DigitalSignature)
                .then(|| DigitalSignature::parse(one.data).ok())
                .flatten();
            let data = signature.map_or(one.data, |signature| signature.signature);
            format!("{}, {}", one.method, bytes(data))
        }
        Payload::Nonce(nonce) => bytes(nonce.0),
        Payload::Notify(one) => notify(one),
        Payload::Delete(Delete::Ike) => "this IKE SA".into(),
        Payload::Delete(Delete::Children { protocol, spis }) => {
            format!("{protocol} {}", list(spis, ", ", |spi| format!("{spi:#010x}")))
        }
        Payload::VendorId(id) => vendor(id),
        Payload::TsInitiator(one) | Payload::TsResponder(one) => {
            list(&one.selectors, ", ", selector)
        }
        Payload::Encrypted(one) => bytes(one.body),
        Payload::Configuration(one) => configuration(one),
        Payload::Eap(one) => eap(one),
        Payload::Unknown { body, .. } => bytes(body),
    }
}

/// Joins the descriptions of the first elements.
fn list<T>(all: &[T], separator: &str, describe: impl Fn(&T) -> String) -> String {
    let shown: Vec<String> = all.iter().take(MAX_SHOWN).map(describe).collect();
    let mut text = shown.join(separator);
    if all.len() > MAX_SHOWN {
        let _ = write!(text, "{separator}and {} more", all.len() - MAX_SHOWN);
    }
    text
}

fn proposal(proposal: &Proposal<'_>) -> String {
    let Proposal { number, protocol, spi, transforms } = proposal;
    let spi = match spi {
        [] => String::new(),
        spi => format!(" SPI 0x{}", hex(spi)),
    };
    format!("{number}: {protocol}{spi} {}", list(transforms, " ", transform))
}

fn transform(transform: &Transform) -> String {
    let Transform { transform_type, id, .. } = *transform;
    let mut text = match transform_type {
        TransformType::Encryption => EncryptionId::from(id).to_string(),
        TransformType::PseudorandomFunction => PrfId::from(id).to_string(),
        TransformType::Integrity => format!("INTEG={}", IntegrityId::from(id)),
        TransformType::KeyExchange => format!("KE={}", KeyExchangeMethod::from(id)),
        TransformType::SequenceNumbers => format!("SN={}", SequenceNumbersId::from(id)),
        other if TransformType::ADDITIONAL_KEY_EXCHANGES.contains(&other) => {
            format!("{other}={}", KeyExchangeMethod::from(id))
        }
        other => format!("transform {other}={id}"),
    };
    if let Some(bits) = transform.key_length {
        let _ = write!(text, "/{bits}");
    }
    if transform.has_unknown_attribute {
        text.push_str("/unknown attribute");
    }
    text
}

fn notify(notify: &Notify<'_>) -> String {
    let Notify { protocol, spi, notify_type, data } = *notify;
    let mut text = match notify_type {
        NotifyType::Unknown(number) => format!("notification {number}"),
        known => known.to_string(),
    };
    if protocol != ProtocolId::None || !spi.is_empty() {
        let _ = write!(text, " {protocol}");
    }
    if !spi.is_empty() {
        let _ = write!(text, " SPI 0x{}", hex(spi));
    }
    let number = <[u8; 2]>::try_from(data).ok().map(u16::from_be_bytes);
    let detail = match (notify_type, data) {
        (NotifyType::InvalidKePayload, _) => {
            number.map(|method| KeyExchangeMethod::from(method).to_string())
        }
        (NotifyType::SignatureHashAlgorithms, _) => {
            Some(list(&data.chunks_exact(2).collect::<Vec<_>>(), " ", |pair| {
                HashAlgorithmId::from(u16::from_be_bytes([pair[0], pair[1]])).to_string()
            }))
        }
        (NotifyType::UnsupportedCriticalPayload, [payload]) => {
            Some(PayloadType::from(*payload).to_string())
        }
        (NotifyType::AdditionalIp4Address | NotifyType::AdditionalIp6Address, _) => {
            address(data).map(|address| address.to_string())
        }
        _ => None,
    };
    match (detail, data) {
        (Some(detail), _) => text + ": " + &detail,
        (None, []) => text,
        (None, data) => format!("{text}, {} bytes", data.len()),
    }
}

fn vendor(id: &[u8]) -> String {
    match std::str::from_utf8(id) {
        Ok(text)
            if !text.is_empty()
                && text.bytes().all(|one| one == b' ' || one.is_ascii_graphic()) =>
        {
            format!("\"{}\"", short(text))
        }
        _ => match id.len() {
            0..=MAX_TEXT => format!("0x{}", hex(id)),
            len => format!("{len} bytes"),
        },
    }
}

fn selector(selector: &TrafficSelector) -> String {
    let TrafficSelector { protocol, ports, addresses } = selector;
    let mut text = match addresses {
        AddressRange::V4(range) if range.start() == range.end() => range.start().to_string(),
        AddressRange::V4(range) => format!("{}-{}", range.start(), range.end()),
        AddressRange::V6(range) if range.start() == range.end() => range.start().to_string(),
        AddressRange::V6(range) => format!("{}-{}", range.start(), range.end()),
    };
    if *protocol != 0 {
        let _ = write!(text, " protocol {protocol}");
    }
    match *ports {
        (0, u16::MAX) => {}
        (u16::MAX, 0) => text.push_str(" ports opaque"),
        (first, last) if first == last => {
            let _ = write!(text, " port {first}");
        }
        (first, last) => {
            let _ = write!(text, " ports {first}-{last}");
        }
    }
    text
}

fn configuration(configuration: &Configuration<'_>) -> String {
    let attribute = |(kind, value): &(ConfigurationAttributeType, &[u8])| match value {
        [] => kind.to_string(),
        value => match address(value) {
            Some(address) => format!("{kind}={address}"),
            None => format!("{kind}, {} bytes", value.len()),
        },
    };
    let attributes = list(&configuration.attributes, " ", attribute);
    format!("{} {attributes}", configuration.configuration_type)
}

/// Never shows data: it has what passwords can be guessed by.
fn eap(eap: &Eap<'_>) -> String {
    let method = match eap.data {
        [] => return format!("{} {}", eap.code, eap.identifier),
        [1, ..] => "Identity".into(),
        [3, ..] => "Nak".into(),
        [13, ..] => "EAP-TLS".into(),
        [26, ..] => "EAP-MSCHAPv2".into(),
        [other, ..] => format!("type {other}"),
    };
    format!("{} {} {method}, {} bytes", eap.code, eap.identifier, eap.data.len())
}

/// An address, or one with the length of its prefix.
fn address(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(bytes).map(|four| Ipv4Addr::from(four).into());
    let v6 = bytes.first_chunk::<16>().filter(|_| bytes.len() <= 17);
    v4.ok().or_else(|| v6.map(|all| Ipv6Addr::from(*all).into()))
}

/// The beginning of a text, which has no control characters.
fn short(text: &str) -> String {
    text.chars().take(MAX_TEXT).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
