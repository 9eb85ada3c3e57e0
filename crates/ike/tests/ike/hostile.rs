//! What strangers and broken peers can cause: little.

use std::net::SocketAddr;
use std::time::Duration;

use headroom_ike::crypto::{Method, SystemRandom};
use headroom_ike::wire::{
    EncryptionId, Error, ExchangeType, Header, KeyExchange, KeyExchangeMethod, Message, Nonce,
    Notify, NotifyType, Payload, PayloadType, Proposal, ProtocolId, SecurityAssociation, Transform,
    TransformType,
};
use headroom_ike::{Auth, Config, Limits, PostQuantum, Reason, Transmit};
use headroom_suite::Key;

use crate::impostor::Impostor;
use crate::world::{A, B, World, configs};

/// The header of a first message.
const HEADER: Header = Header {
    spi_initiator: 1,
    spi_responder: 0,
    exchange: ExchangeType::IkeSaInit,
    from_initiator: true,
    response: false,
    message_id: 0,
};

/// Takes the first message of a host, as a stranger would send it.
fn first_message() -> Transmit {
    let mut world = World::new(configs(PostQuantum::Required), 3);
    world.connect(A);
    world.in_flight.remove(0)
}

fn notifies(datagram: &[u8]) -> Vec<NotifyType> {
    let message = Message::parse(datagram).expect("a message");
    let notify = |payload: &Payload<'_>| match payload {
        Payload::Notify(notify) => Some(notify.notify_type),
        _ => None,
    };
    message.payloads.iter().filter_map(notify).collect()
}

fn from(number: u32) -> SocketAddr {
    let [_, b, c, d] = number.to_be_bytes();
    SocketAddr::from(([10, b, c, d], 500))
}

#[test]
fn a_flood_of_first_messages_keeps_little_and_a_real_peer_connects() {
    // alone, so that the memory of the process is its own
    let this = std::env::current_exe().expect("this program");
    let flood = ["--exact", "hostile::flood_in_a_process_of_its_own", "--ignored", "--nocapture"];
    let done = std::process::Command::new(this).args(flood).output().expect("it runs");
    let output = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success() && output.contains("1 passed"), "{output}");
}

#[test]
#[ignore = "started by another test"]
fn flood_in_a_process_of_its_own() {
    let [config_a, mut config_b] = configs(PostQuantum::Required);
    config_b.limits = Limits { cookie_threshold: 8, half_open: 64, ..Limits::default() };
    let mut world = World::new([config_a, config_b], 4);
    let first = first_message();
    let mut bytes = 0;
    let mut resident_before = 0;
    for number in 0..100_000_u32 {
        if number == 1000 {
            resident_before = resident();
        }
        let mut datagram = first.datagram.clone();
        datagram[..8].copy_from_slice(&u64::from(number + 1).to_be_bytes());
        let host = &mut world.hosts[B];
        host.endpoint.handle(&datagram, from(number), first.to, world.now);
        while let Some(answer) = host.endpoint.transmit() {
            assert_eq!(answer.to, from(number));
            bytes += answer.datagram.len();
            // amplification stays below 3
            assert!(answer.datagram.len() < 3 * datagram.len());
            if number >= 8 {
                assert_eq!(notifies(&answer.datagram), [NotifyType::Cookie]);
            }
        }
        assert!(host.endpoint.half_open() <= 8 && host.endpoint.sessions() <= 8);
    }
    assert!(bytes < 100_000 * first.datagram.len());
    let grown = resident().saturating_sub(resident_before);
    assert!(grown < 1024 * 1024, "{grown} bytes more after 99 000 more messages");
    world.connect(A);
    world.settle();
    assert_eq!(world.hosts[A].post_quantum, Some(true), "a real peer connects with a cookie");
    assert_eq!(world.hosts[B].endpoint.half_open(), 0, "what strangers left is gone");
}

/// Returns the bytes of memory that this process occupies.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("the kernel counts them");
    let pages = statm.split_whitespace().nth(1).and_then(|pages| pages.parse::<usize>().ok());
    4096 * pages.expect("a number of pages")
}

#[test]
fn every_answer_to_a_stranger_is_less_than_three_times_its_question() {
    use NotifyType::{
        Cookie, InvalidKePayload, InvalidMajorVersion, InvalidSyntax, NoProposalChosen,
        UnsupportedCriticalPayload,
    };
    let public = Method::Curve25519.generate(&mut SystemRandom).public().to_vec();
    let header = Header { spi_initiator: 5, ..HEADER };
    // the shortest question for each answer: no more than what is needed
    let question = |methods: [KeyExchangeMethod; 2], public: &[u8]| {
        let (encryption, prf) = (TransformType::Encryption, TransformType::PseudorandomFunction);
        let transforms = vec![
            Transform::with_key_length(encryption, EncryptionId::AesGcm16, 256),
            Transform::new(prf, 7_u16),
            Transform::new(TransformType::KeyExchange, methods[0]),
        ];
        let proposal = Proposal { number: 1, protocol: ProtocolId::Ike, spi: &[], transforms };
        let payloads = vec![
            Payload::SecurityAssociation(SecurityAssociation { proposals: vec![proposal] }),
            Payload::KeyExchange(KeyExchange { method: methods[1], data: public }),
            Payload::Nonce(Nonce(&[1; 16])),
        ];
        Message { header, payloads }.emit()
    };
    let (x25519, p256) = (KeyExchangeMethod::Curve25519, KeyExchangeMethod::Ecp256);
    let good = question([x25519; 2], &public);
    let mut version = good[..28].to_vec();
    version[17] = 0x30;
    let mut critical = [&good[..28], &[0, 0x80, 0, 4]].concat();
    critical[16] = 200;
    critical[27] = 32;
    let nonce = Message { header, payloads: vec![Payload::Nonce(Nonce(&[1; 16]))] }.emit();
    let questions = [
        ("an SA", vec![], good.clone(), 100),
        ("a cookie", vec![Cookie], good, 0),
        ("another cookie", vec![Cookie], nonce.clone(), 0),
        (
            "no proposal",
            vec![NoProposalChosen],
            question([KeyExchangeMethod::Modp2048; 2], &[1]),
            100,
        ),
        ("another key exchange", vec![InvalidKePayload], question([x25519, p256], &[1]), 100),
        ("a short public value", vec![InvalidSyntax], question([x25519; 2], &[1]), 100),
        ("nothing but a nonce", vec![InvalidSyntax], nonce, 100),
        ("another version", vec![InvalidMajorVersion], version, 100),
        ("a critical payload", vec![UnsupportedCriticalPayload], critical, 100),
    ];
    for (name, expected, question, cookie_threshold) in questions {
        let [_, mut config] = configs(PostQuantum::Preferred);
        config.limits.cookie_threshold = cookie_threshold;
        config.export_keys = false;
        let [other, _] = configs(PostQuantum::Off);
        let mut world = World::new([other, config], 16);
        let ours = world.hosts[B].address;
        let host = &mut world.hosts[B].endpoint;
        // again and again: each is answered once, and nothing comes by itself
        let mut bytes = 0;
        for round in 1..=3 {
            host.handle(&question, from(1), ours, world.now);
            while let Some(answer) = host.transmit() {
                let answered: Vec<_> = notifies(&answer.datagram)
                    .into_iter()
                    .filter(|one| one.is_error() || *one == Cookie)
                    .collect();
                assert_eq!(answered, expected, "{name}");
                bytes += 28 + answer.datagram.len();
            }
            let asked = round * (28 + question.len());
            assert!(bytes > 0 && bytes < 3 * asked, "{name}: {bytes} bytes for {asked}");
        }
        let later = world.now + Duration::from_secs(20);
        host.poll(later);
        assert!(host.transmit().is_none() && host.event().is_none(), "{name}");
        assert_eq!(host.sessions(), usize::from(name == "an SA"), "{name}");
    }
}

#[test]
fn malformed_first_messages_keep_nothing() {
    let first = first_message();
    let message = Message::parse(&first.datagram).expect("a message");
    let nonce = |payloads: &mut Vec<Payload<'static>>, nonce: &'static [u8]| {
        payloads.retain(|one| !matches!(one, Payload::Nonce(_)));
        payloads.push(Payload::Nonce(Nonce(nonce)));
    };
    type Change = Box<dyn Fn(&mut Vec<Payload<'static>>)>;
    let changes: [(&str, Change); 6] = [
        ("a nonce of 15 bytes", Box::new(move |one| nonce(one, &[1; 15]))),
        ("a nonce of 257 bytes", Box::new(move |one| nonce(one, &[1; 257]))),
        ("two nonces", Box::new(|one| one.push(Payload::Nonce(Nonce(&[1; 32]))))),
        ("a short public value", Box::new(|one| public_value(one, |data| &data[1..]))),
        (
            "a long public value",
            Box::new(|one| public_value(one, |data| [data, &[0]].concat().leak())),
        ),
        (
            "proposals that skip",
            Box::new(|one| {
                for payload in one {
                    if let Payload::SecurityAssociation(sa) = payload {
                        let last = sa.proposals.last().expect("a proposal").clone();
                        sa.proposals.push(Proposal { number: last.number + 2, ..last });
                    }
                }
            }),
        ),
    ];
    for (name, change) in changes {
        let mut world = World::new(configs(PostQuantum::Required), 17);
        let bytes: &'static [u8] = first.datagram.clone().leak();
        let mut payloads = Message::parse(bytes).expect("a message").payloads;
        change(&mut payloads);
        let datagram = Message { header: message.header, payloads }.emit();
        let ours = world.hosts[B].address;
        world.hosts[B].endpoint.handle(&datagram, from(1), ours, world.now);
        if let Some(answer) = world.hosts[B].endpoint.transmit() {
            assert_eq!(notifies(&answer.datagram), [NotifyType::InvalidSyntax], "{name}");
        }
        assert_eq!(world.hosts[B].endpoint.sessions(), 0, "{name}");
    }
}

fn public_value(
    payloads: &mut [Payload<'static>],
    change: impl Fn(&'static [u8]) -> &'static [u8],
) {
    for payload in payloads {
        if let Payload::KeyExchange(one) = payload {
            one.data = change(one.data);
        }
    }
}

#[test]
fn clear_text_with_the_spis_of_an_ike_sa_is_ignored() {
    let mut world = World::established(PostQuantum::Off, 18);
    let session = world.hosts[A].session.expect("a session");
    world.command(A, &headroom_ike::Command::CheckLiveness(session));
    let request = world.in_flight.remove(0);
    let header = Message::parse(&request.datagram).expect("a message").header;
    let delete = || vec![Payload::Delete(headroom_ike::wire::Delete::Ike)];
    let error = || vec![Payload::Notify(Notify::new(NotifyType::InvalidIkeSpi, &[]))];
    let unknown = || vec![Payload::Unknown { payload_type: 200, body: &[] }];
    for payloads in [delete(), error(), unknown(), vec![]] {
        for exchange in [header.exchange, ExchangeType::CreateChildSa, ExchangeType::IkeSaInit] {
            for header in [header, header.respond()] {
                let header = Header { exchange, ..header };
                for critical in [false, true] {
                    let mut datagram = Message { header, payloads: payloads.clone() }.emit();
                    if let (true, Some(flags)) = (critical, datagram.get_mut(29)) {
                        *flags = 0x80;
                    }
                    for host in [A, B] {
                        let (from, to) = (world.hosts[1 - host].address, world.hosts[host].address);
                        world.hand_over(&Transmit { from, to, datagram: datagram.clone() });
                        assert!(world.in_flight.is_empty(), "{exchange} {payloads:?}");
                    }
                }
            }
        }
    }
    world.settle();
    world.check_agreement(1);
}

#[test]
fn without_cookies_the_number_of_half_open_peers_is_bounded_all_the_same() {
    let [config_a, mut config_b] = configs(PostQuantum::Required);
    config_b.limits = Limits { cookie_threshold: 1000, half_open: 16, ..Limits::default() };
    let mut world = World::new([config_a, config_b], 4);
    let first = first_message();
    for number in 0..100_u32 {
        let mut datagram = first.datagram.clone();
        datagram[..8].copy_from_slice(&u64::from(number + 1).to_be_bytes());
        world.hosts[B].endpoint.handle(&datagram, from(number), first.to, world.now);
    }
    assert_eq!(world.hosts[B].endpoint.half_open(), 16);
}

#[test]
fn a_source_that_fills_its_half_open_ike_sas_leaves_room_for_the_others() {
    let [config_a, mut config_b] = configs(PostQuantum::Required);
    config_b.limits = Limits {
        half_open: 16,
        half_open_of_source: 4,
        cookie_threshold: 1000,
        ..Limits::default()
    };
    let mut world = World::new([config_a, config_b], 4);
    let first = first_message();
    for number in 0..100_u16 {
        let mut datagram = first.datagram.clone();
        datagram[..8].copy_from_slice(&u64::from(number + 1).to_be_bytes());
        let from = SocketAddr::from(([10, 0, 0, 1], 500 + number));
        world.hosts[B].endpoint.handle(&datagram, from, first.to, world.now);
    }
    assert_eq!(world.hosts[B].endpoint.half_open(), 4);
    assert_eq!(world.hosts[B].endpoint.counters().refused_by_limit, 96);
    while world.hosts[B].endpoint.transmit().is_some() {}
    world.connect(A);
    while !world.in_flight.is_empty() {
        world.deliver(0, false);
    }
    assert!(world.hosts[A].ready, "a peer at another address connects at once");
    world.now += Duration::from_secs(30);
    world.poll(B);
    assert_eq!(world.hosts[B].endpoint.half_open(), 0);
    world.hosts[B].endpoint.handle(&first.datagram, from(1), first.to, world.now);
    assert_eq!(world.hosts[B].endpoint.half_open(), 1, "what it left is forgotten");
}

#[test]
fn a_cookie_of_another_address_is_answered_with_another_cookie() {
    let [config_a, mut config_b] = configs(PostQuantum::Required);
    config_b.limits.cookie_threshold = 0;
    let mut world = World::new([config_a, config_b], 5);
    world.connect(A);
    world.deliver(0, false);
    world.deliver(0, false);
    // the second request has the cookie
    let with_cookie = world.in_flight.remove(0);
    assert_eq!(notifies(&with_cookie.datagram)[0], NotifyType::Cookie);
    let host = &mut world.hosts[B];
    host.endpoint.handle(&with_cookie.datagram, from(9), with_cookie.to, world.now);
    let answer = host.endpoint.transmit().expect("an answer");
    assert_eq!(notifies(&answer.datagram), [NotifyType::Cookie]);
    assert_eq!(host.endpoint.sessions(), 0);
}

#[test]
fn another_key_exchange_costs_one_more_round_trip() {
    let [config_a, mut config_b] = configs(PostQuantum::Required);
    let connection = connection(&mut config_b);
    connection.ike[0].key_exchanges.retain(|method| method.to_string() == "p-384");
    let mut world = World::new([config_a, config_b], 6);
    world.connect(A);
    world.settle();
    world.check_agreement(1);
    assert_eq!(world.sent, 2 + 2 + 3 + 2);
}

#[test]
fn a_wrong_secret_is_told_to_the_log_and_not_to_the_peer() {
    let [mut config_a, config_b] = configs(PostQuantum::Required);
    connection(&mut config_a).auth = Auth::shared_key(&Key::from_bytes(b"another secret"));
    let mut world = World::new([config_a, config_b], 7);
    world.connect(A);
    world.settle();
    let refused = Reason::Refused(NotifyType::AuthenticationFailed);
    assert_eq!(world.hosts[A].closed, [refused]);
    let expected = Reason::Authentication("host-1.example".to_owned());
    assert_eq!(world.hosts[B].closed, [expected]);
    assert_eq!(world.hosts[B].endpoint.sessions(), 0);
}

#[test]
fn an_unknown_name_looks_to_the_peer_like_a_wrong_secret() {
    let [mut config_a, config_b] = configs(PostQuantum::Required);
    connection(&mut config_a).local = headroom_ike::Identity::from_text("stranger.example");
    let mut world = World::new([config_a, config_b], 8);
    world.connect(A);
    world.settle();
    let refused = Reason::Refused(NotifyType::AuthenticationFailed);
    assert_eq!(world.hosts[A].closed, [refused]);
    assert_eq!(world.hosts[B].closed, [Reason::Identity("stranger.example".to_owned())]);
}

#[test]
fn forged_refusals_do_not_end_what_would_succeed() {
    for notify_type in [NotifyType::NoProposalChosen, NotifyType::InvalidSyntax] {
        let mut world = World::new(configs(PostQuantum::Required), 9);
        world.connect(A);
        let request = Message::parse(&world.in_flight[0].datagram).expect("a message").header;
        let forged = Message {
            header: request.respond(),
            payloads: vec![Payload::Notify(Notify::new(notify_type, &[]))],
        };
        let (from, to) = (world.in_flight[0].to, world.in_flight[0].from);
        world.hand_over(&Transmit { from, to, datagram: forged.emit() });
        world.settle();
        world.check_agreement(1);
    }
}

#[test]
fn an_unanswered_refusal_is_believed_after_a_while() {
    let [config_a, _] = configs(PostQuantum::Required);
    let [_, config_b] = configs(PostQuantum::Off);
    let mut world = World::new([config_a, config_b], 10);
    world.connect(A);
    let start = world.now;
    world.settle();
    let refused = Reason::Unauthenticated(NotifyType::NoProposalChosen);
    assert_eq!(world.hosts[A].closed, [refused]);
    assert!(world.now - start < Duration::from_secs(10));
}

#[test]
fn a_silent_peer_is_given_up() {
    let [mut config_a, config_b] = configs(PostQuantum::Required);
    config_a.timing.retransmissions = 4;
    let mut world = World::new([config_a, config_b], 11);
    world.connect(A);
    loop {
        world.in_flight.clear();
        if !world.advance() {
            break;
        }
    }
    assert_eq!(world.hosts[A].closed, [Reason::Timeout(5)]);
    assert_eq!(world.sent, 5);
    assert_eq!(world.hosts[A].endpoint.sessions(), 0);
}

#[test]
fn every_changed_byte_of_a_protected_message_is_ignored() {
    let mut world = World::established(PostQuantum::Required, 12);
    world.rekey_child(A);
    let good = world.in_flight.remove(0);
    for at in 0..good.datagram.len() {
        let mut changed = good.clone();
        changed.datagram[at] ^= 0x10;
        world.hand_over(&changed);
        assert!(world.in_flight.is_empty(), "byte {at} is answered");
    }
    world.hand_over(&good);
    world.settle();
    world.check_agreement(1);
}

#[test]
fn an_old_request_is_not_answered_again() {
    let mut world = World::established(PostQuantum::Off, 13);
    world.rekey_child(A);
    let old = world.in_flight[0].clone();
    world.settle();
    world.rekey_child(A);
    world.settle();
    let before = world.sent;
    world.hand_over(&old);
    assert_eq!(world.sent, before, "its response was forgotten");
}

#[test]
fn only_first_messages_of_other_versions_are_answered() {
    let mut world = World::established(PostQuantum::Off, 14);
    let first = first_message();
    let ours = world.hosts[B].address;
    let mut answers = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut datagram = first.datagram.clone();
        change(&mut datagram);
        world.hosts[B].endpoint.handle(&datagram, from(1), ours, world.now);
        world.hosts[B].endpoint.transmit().map(|answer| notifies(&answer.datagram))
    };
    let version = answers(&|datagram| datagram[17] = 0x30);
    assert_eq!(version, Some(vec![NotifyType::InvalidMajorVersion]));
    assert_eq!(answers(&|datagram| datagram[17] = 0x10), None, "IKEv1 is ignored");
    assert_eq!(answers(&|datagram| datagram[19] |= 0x20), None, "a response is not answered");
    let critical = answers(&|datagram| {
        datagram[16] = 200;
        datagram[29] = 0x80;
    });
    assert_eq!(critical, Some(vec![NotifyType::UnsupportedCriticalPayload]));
    assert_eq!(answers(&|datagram| datagram.truncate(60)), None);
    assert_eq!(answers(&|datagram| datagram.truncate(5)), None);
}

#[test]
fn a_first_message_without_what_it_needs_keeps_nothing() {
    let mut world = World::new(configs(PostQuantum::Off), 15);
    let header = Header { spi_initiator: 5, ..HEADER };
    for payloads in [vec![], vec![Payload::Nonce(Nonce(&[1; 32]))]] {
        let message = Message { header, payloads }.emit();
        let ours = world.hosts[B].address;
        world.hosts[B].endpoint.handle(&message, from(1), ours, world.now);
        assert_eq!(world.hosts[B].endpoint.sessions(), 0);
    }
    // a nonce of 15 bytes is not even parsed
    let short = [&[0, 0, 0, 19][..], &[7; 15]].concat();
    let parsed = headroom_ike::wire::parse_chain(PayloadType::Nonce, &short);
    assert!(matches!(parsed, Err(Error::Payload { payload: PayloadType::Nonce, .. })));
}

fn connection(config: &mut Config) -> &mut headroom_ike::Connection {
    std::sync::Arc::get_mut(&mut config.connections[0]).expect("not shared yet")
}

#[test]
fn a_source_that_fails_to_authenticate_is_ignored_for_a_while() {
    let [mut config_a, config_b] = configs(PostQuantum::Off);
    connection(&mut config_a).local = headroom_ike::Identity::from_text("stranger.example");
    let mut world = World::new([config_a, config_b], 16);
    for _ in 0..10 {
        world.connect(A);
        // no time passes
        while !world.in_flight.is_empty() {
            world.deliver(0, false);
        }
    }
    let counters = |world: &World| world.hosts[B].endpoint.counters();
    assert_eq!(counters(&world).authentication_failures, 10);
    world.connect(A);
    let first = world.in_flight.remove(0);
    world.hand_over(&first);
    assert!(world.in_flight.is_empty(), "it is ignored");
    assert_eq!(counters(&world).refused_after_failures, 1);
    let host = &mut world.hosts[B];
    host.endpoint.handle(&first.datagram, from(5), first.to, world.now);
    assert!(host.endpoint.transmit().is_some(), "others are not");
    let later = world.now + Duration::from_secs(60);
    host.endpoint.handle(&first.datagram, first.from, first.to, later);
    assert!(host.endpoint.transmit().is_some(), "it may try again");
}

#[test]
fn a_source_that_breaks_off_before_its_proof_does_not_fill_the_table_of_ike_sas() {
    let mut world = World::new(configs(PostQuantum::Off), 19);
    for _ in 0..30 {
        world.connect(A);
        world.deliver(0, false);
        if world.in_flight.is_empty() {
            continue;
        }
        world.deliver(0, false);
        world.in_flight.clear();
        let mut impostor = Impostor::of(&world, A);
        impostor.next_id(|_| 1);
        let answer = impostor.ask(&mut world, ExchangeType::IkeAuth, &[]).expect("an answer");
        assert_eq!(answer.notifies(), [NotifyType::InvalidSyntax]);
    }
    let counters = world.hosts[B].endpoint.counters();
    assert_eq!((counters.authentication_failures, counters.refused_after_failures), (10, 20));
    assert_eq!(world.hosts[B].endpoint.sessions(), 10, "they answer retransmissions");
    assert!(matches!(world.hosts[B].closed[..], [Reason::Protocol(_), ..]));
}
