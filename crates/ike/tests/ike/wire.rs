//! Messages are emitted as they were parsed, whatever they hold; any bytes parse or fail.

use std::net::{Ipv4Addr, Ipv6Addr};

use headroom_ike::wire::{
    AddressRange, Authentication, Certificate, CertificateRequest, Configuration, Delete, Eap,
    EapCode, Encrypted, ExchangeType, Fragment, Header, IdType, Identification, KeyExchange,
    Message, Nonce, Notify, Payload, PayloadType, Proposal, ProtocolId, SecurityAssociation,
    TrafficSelector, TrafficSelectors, Transform, parse_chain,
};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::captured::{self, Captured};

#[test]
fn reads_every_message_of_the_captures_and_writes_it_again() {
    for (name, expected) in captured::NAMES.into_iter().zip([14, 14, 23]) {
        let messages = captured::messages(name);
        assert_eq!(messages.len(), expected, "{name}");
        for Captured { message, .. } in messages {
            let parsed = Message::parse(&message).expect("a well-formed message");
            assert_eq!(parsed.emit(), message, "{name}");
        }
    }
}

#[test]
fn reads_what_strongswan_offers() {
    let messages = captured::messages("psk-mlkem768");
    let message = Message::parse(&messages[0].message).expect("IKE_SA_INIT");
    let types: Vec<_> = message.payloads.iter().map(|one| one.payload_type().to_string()).collect();
    assert_eq!(types.join(" "), "SA KE Nonce N N N N N N");
    let Payload::SecurityAssociation(sa) = &message.payloads[0] else { panic!("{message:?}") };
    let transforms = sa.proposals[0].transforms.iter();
    let shown: Vec<_> = transforms
        .map(|one| format!("{} {} {:?}", one.transform_type, one.id, one.key_length))
        .collect();
    assert_eq!(shown, ["ENCR 20 Some(256)", "PRF 6 None", "KE 31 None", "ADDKE1 36 None"]);
}

#[test]
fn truncated_messages_fail() {
    for Captured { message, .. } in captured::messages("cert").iter().take(2) {
        for len in 0..message.len() {
            assert!(Message::parse(&message[..len]).is_err());
        }
    }
}

proptest! {
    #[test]
    fn emitted_messages_parse_to_the_same(header in header(), payloads in vec(payload(), 0..12), last in encrypted()) {
        let payloads = payloads.into_iter().chain(last).collect();
        let message = Message { header, payloads };
        let bytes = message.emit();
        prop_assert_eq!(Message::parse(&bytes), Ok(message));
    }

    #[test]
    fn any_bytes_parse_or_fail(first in any::<u8>(), bytes in vec(any::<u8>(), 0..400)) {
        if let Ok(payloads) = parse_chain(first.into(), &bytes) {
            prop_assert!(payloads.len() <= 64);
        }
    }

    #[test]
    fn a_changed_byte_parses_or_fails(which in 0_usize..3, at in any::<prop::sample::Index>(), value in any::<u8>()) {
        for Captured { mut message, .. } in captured::messages(captured::NAMES[which]).into_iter().take(2) {
            let at = at.index(message.len());
            message[at] = value;
            let _ = Message::parse(&message);
        }
    }
}

/// Payloads borrow: what a test generates is leaked.
fn bytes(len: impl Into<proptest::collection::SizeRange>) -> impl Strategy<Value = &'static [u8]> {
    vec(any::<u8>(), len).prop_map(|bytes| &*bytes.leak())
}

fn header() -> impl Strategy<Value = Header> {
    (1..=u64::MAX, any::<u64>(), any::<u8>(), any::<bool>(), any::<bool>(), any::<u32>()).prop_map(
        |(spi_initiator, spi_responder, exchange, from_initiator, response, message_id)| Header {
            spi_initiator,
            spi_responder,
            exchange: ExchangeType::from(exchange),
            from_initiator,
            response,
            message_id,
        },
    )
}

fn payload() -> impl Strategy<Value = Payload<'static>> {
    let id = (6..=255_u8, bytes(1..40))
        .prop_map(|(id_type, data)| Identification { id_type: id_type.into(), data });
    let address = bytes(4).prop_map(|data| Identification { id_type: IdType::Ipv4, data });
    prop_oneof![
        security_association(),
        (any::<u16>(), bytes(1..200)).prop_map(|(method, data)| {
            Payload::KeyExchange(KeyExchange { method: method.into(), data })
        }),
        id.prop_map(Payload::IdInitiator),
        address.prop_map(Payload::IdResponder),
        (any::<u8>(), bytes(0..99)).prop_map(|(encoding, data)| {
            Payload::Certificate(Certificate { encoding: encoding.into(), data })
        }),
        bytes(40).prop_map(|authorities| {
            Payload::CertificateRequest(CertificateRequest { encoding: 4.into(), authorities })
        }),
        (any::<u8>(), bytes(1..99)).prop_map(|(method, data)| {
            Payload::Authentication(Authentication { method: method.into(), data })
        }),
        bytes(16..=256).prop_map(|nonce| Payload::Nonce(Nonce(nonce))),
        (any::<u8>(), bytes(0..9), any::<u16>(), bytes(0..50)).prop_map(
            |(protocol, spi, notify_type, data)| {
                let (protocol, notify_type) = (protocol.into(), notify_type.into());
                Payload::Notify(Notify { protocol, spi, notify_type, data })
            }
        ),
        Just(Payload::Delete(Delete::Ike)),
        vec(any::<u32>(), 0..9).prop_map(|spis| {
            Payload::Delete(Delete::Children { protocol: ProtocolId::Esp, spis })
        }),
        bytes(0..30).prop_map(Payload::VendorId),
        traffic_selectors().prop_map(Payload::TsInitiator),
        traffic_selectors().prop_map(Payload::TsResponder),
        (any::<u8>(), vec((0..0x8000_u16, bytes(0..20)), 0..5)).prop_map(|(kind, attributes)| {
            let attributes =
                attributes.into_iter().map(|(kind, value)| (kind.into(), value)).collect();
            let configuration_type = kind.into();
            Payload::Configuration(Configuration { configuration_type, attributes })
        }),
        (any::<u8>(), any::<u8>(), bytes(1..30)).prop_map(|(code, identifier, data)| {
            Payload::Eap(Eap { code: EapCode::from(code), identifier, data })
        }),
        (54..=255_u8, bytes(0..30))
            .prop_map(|(payload_type, body)| Payload::Unknown { payload_type, body }),
    ]
}

fn security_association() -> impl Strategy<Value = Payload<'static>> {
    let transform = (any::<u8>(), any::<u16>(), any::<Option<u16>>()).prop_map(
        |(transform_type, id, key_length)| Transform {
            transform_type: transform_type.into(),
            id,
            key_length,
            has_unknown_attribute: false,
        },
    );
    let proposal = (bytes(4), vec(transform, 0..9));
    vec(proposal, 1..5).prop_map(|proposals| {
        let numbered = proposals.into_iter().zip(1..);
        let proposals = numbered.map(|((spi, transforms), number)| Proposal {
            number,
            protocol: ProtocolId::Esp,
            spi,
            transforms,
        });
        Payload::SecurityAssociation(SecurityAssociation { proposals: proposals.collect() })
    })
}

fn traffic_selectors() -> impl Strategy<Value = TrafficSelectors> {
    let v4 = [any::<u32>(), any::<u32>()].prop_map(|mut ends| {
        ends.sort_unstable();
        let [first, last] = ends.map(Ipv4Addr::from);
        AddressRange::V4(first..=last)
    });
    let v6 = [any::<u128>(), any::<u128>()].prop_map(|mut ends| {
        ends.sort_unstable();
        let [first, last] = ends.map(Ipv6Addr::from);
        AddressRange::V6(first..=last)
    });
    let selector = (any::<u8>(), [any::<u16>(), any::<u16>()], prop_oneof![v4, v6]).prop_map(
        |(protocol, mut ports, addresses)| {
            ports.sort_unstable();
            TrafficSelector { protocol, ports: ports.into(), addresses }
        },
    );
    vec(selector, 1..6).prop_map(|selectors| TrafficSelectors { selectors })
}

fn encrypted() -> impl Strategy<Value = Option<Payload<'static>>> {
    let whole = (any::<u8>(), bytes(0..60)).prop_map(|(first, body)| Encrypted {
        first: first.into(),
        fragment: None,
        body,
    });
    let fragment = (1..9_u16, 0..9_u16, bytes(0..60)).prop_map(|(number, more, body)| Encrypted {
        first: if number == 1 { PayloadType::Nonce } else { PayloadType::None },
        fragment: Some(Fragment { number, total: number + more }),
        body,
    });
    proptest::option::of(prop_oneof![whole, fragment].prop_map(Payload::Encrypted))
}
