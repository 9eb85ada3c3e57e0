//! Requests of a hostile peer for CHILD SAs, and its answers to those of others.

use std::sync::Arc;
use std::time::Duration;

use headroom_ike::crypto::{Method, SystemRandom};
use headroom_ike::wire::ExchangeType::{CreateChildSa, Informational};
use headroom_ike::wire::{
    AddressRange, Delete, KeyExchangeMethod, Nonce, Notify, NotifyType, Payload, Proposal,
    ProtocolId, SecurityAssociation, TrafficSelector, parse_decrypted,
};
use headroom_ike::{PostQuantum, Reason};

use crate::hostile_peer::request::{Request, network, transforms};
use crate::hostile_peer::stands;
use crate::impostor::{Answer, Impostor};
use crate::script::plain;
use crate::world::{A, B, World, configs};

#[test]
fn the_request_that_others_are_made_from_is_right() {
    let mut world = plain();
    let answer = Request::new(0x1234).ask(&mut world).expect("an answer");
    assert_eq!(answer.notifies(), []);
    assert_eq!(world.hosts[B].installed, 2);
}

#[test]
fn a_malformed_request_ends_the_ike_sa() {
    type Change = fn(&mut Request);
    let changes: [(&str, Change); 7] = [
        ("a nonce of 15 bytes", |one| one.nonce.truncate(15)),
        ("a nonce of 257 bytes", |one| one.nonce = vec![1; 257]),
        ("proposals 1 and 3", |one| one.proposals.push((3, ProtocolId::Esp, vec![1; 4]))),
        ("a proposal 0", |one| one.proposals[0].0 = 0),
        ("an SPI of 3 bytes", |one| one.proposals[0].2.truncate(3)),
        ("an empty public value", |one| one.key_exchange.as_mut().expect("one").1.clear()),
        ("an SPI of 8 bytes", |one| one.proposals[0].2 = vec![1; 8]),
    ];
    for (name, change) in changes {
        let mut world = plain();
        let mut request = Request::new(0x1234);
        change(&mut request);
        let answer = request.ask(&mut world).expect("an answer");
        assert_eq!(answer.notifies(), [NotifyType::InvalidSyntax], "{name}");
        assert_eq!(world.hosts[B].closed, [Reason::Protocol("a malformed request")], "{name}");
    }
}

#[test]
fn a_request_that_cannot_be_met_is_refused_and_the_ike_sa_stands() {
    type Change = fn(&mut Request);
    use NotifyType::{
        ChildSaNotFound, InvalidKePayload, InvalidSyntax, NoProposalChosen, TsUnacceptable,
    };
    let changes: [(&str, NotifyType, Change); 11] = [
        ("a short public value", InvalidSyntax, |one| {
            one.key_exchange.as_mut().expect("one").1.truncate(31);
        }),
        ("a long public value", InvalidSyntax, |one| {
            one.key_exchange.as_mut().expect("one").1.push(0);
        }),
        ("a public value that yields zero", InvalidSyntax, |one| {
            one.key_exchange.as_mut().expect("one").1.fill(0);
        }),
        ("another method", InvalidKePayload, |one| {
            one.key_exchange.as_mut().expect("one").0 = KeyExchangeMethod::Ecp256;
        }),
        ("no key exchange", InvalidKePayload, |one| one.key_exchange = None),
        ("AH", NoProposalChosen, |one| one.proposals[0].1 = ProtocolId::Ah),
        ("an SPI that is not there", ChildSaNotFound, |one| {
            one.rekeys = Some((ProtocolId::Esp, vec![0, 0, 0, 9]));
        }),
        ("an SPI of 1 byte", ChildSaNotFound, |one| one.rekeys = Some((ProtocolId::Esp, vec![9]))),
        ("no SPI", ChildSaNotFound, |one| one.rekeys = Some((ProtocolId::None, vec![]))),
        ("an SPI of 255 bytes", ChildSaNotFound, |one| {
            one.rekeys = Some((ProtocolId::Ah, vec![9; 255]));
        }),
        ("other networks", TsUnacceptable, |one| one.ts = [network(7, 24), network(8, 24)]),
    ];
    for (name, refusal, change) in changes {
        let mut world = plain();
        let mut request = Request::new(0x1234);
        change(&mut request);
        let answer = request.ask(&mut world);
        let answer = answer.unwrap_or_else(|| panic!("{name}: no answer"));
        assert_eq!(answer.notifies(), [refusal], "{name}");
        assert_eq!(world.hosts[B].installed, 1, "{name}");
        assert!(stands(&world, B), "{name}");
        // and nothing is left of it: the next one is made
        let mut impostor = Impostor::of(&world, A);
        impostor.next_id(|id| id + 1);
        Request::new(0x1234).ask_as(&mut impostor, &mut world).expect("an answer");
        assert_eq!(world.hosts[B].installed, 2, "{name}");
    }
}

#[test]
fn selectors_that_widen_when_rekeying_are_narrowed_to_what_is_configured() {
    let mut world = plain();
    let mut request = Request::rekey(&world, 0x1234);
    request.ts = [0, 0].map(|_| vec![TrafficSelector::network([0, 0, 0, 0].into(), 0)]);
    let answer = request.ask(&mut world).expect("an answer");
    let selectors: Vec<_> = answer
        .payloads()
        .into_iter()
        .filter_map(|payload| match payload {
            Payload::TsInitiator(one) | Payload::TsResponder(one) => Some(one.selectors),
            _ => None,
        })
        .collect();
    assert_eq!(selectors, [network(1, 24), network(2, 24)]);
}

#[test]
fn an_answer_that_widens_is_not_accepted_and_what_it_made_is_deleted() {
    for widened in [0, 1] {
        let mut world = plain();
        world.rekey_child(A);
        let asked = world.in_flight.remove(0);
        let mut impostor = Impostor::of(&world, B);
        let request = impostor.open(&asked);
        let public = request.payloads().iter().find_map(|payload| match payload {
            Payload::KeyExchange(theirs) => Some(theirs.data.to_vec()),
            _ => None,
        });
        let (own, _) = Method::Curve25519
            .respond(&public.expect("a public value"), &mut SystemRandom)
            .expect("a valid one");
        let mut answer = Request::new(0x1234);
        answer.key_exchange = Some((KeyExchangeMethod::Curve25519, own));
        answer.ts[widened] = network(0, 8);
        let (first, inner) = answer.emit();
        let payloads = parse_decrypted(first, &inner).expect("well formed");
        impostor.respond(&mut world, &asked, &payloads);
        assert_eq!(world.hosts[A].failed_children, [Reason::NoTraffic]);
        assert_eq!(world.hosts[A].installed, 1);
        let deletion = impostor.open(&world.in_flight.remove(0));
        let deleted = matches!(deletion.payloads()[..], [Payload::Delete(Delete::Children { .. })]);
        assert!(deleted, "{deletion:?}");
        assert!(stands(&world, A));
        assert_eq!(world.hosts[A].sends_on.len(), 1, "the old one is used on");
        // the deletion would be forgotten with the IKE SA that it is sent on
        let (number, protocol, spi) = (1, ProtocolId::Ike, &[7; 8]);
        let proposals = vec![Proposal { number, protocol, spi, transforms: transforms() }];
        let rekey = [
            Payload::SecurityAssociation(SecurityAssociation { proposals }),
            Payload::Nonce(Nonce(&[7; 32])),
        ];
        let refused = impostor.ask(&mut world, CreateChildSa, &rekey).expect("an answer");
        assert_eq!(refused.notifies(), [NotifyType::TemporaryFailure]);
    }
}

#[test]
fn a_second_rekeying_of_the_same_child_is_refused() {
    let mut world = plain();
    let mut impostor = Impostor::of(&world, A);
    let requests = [0x1111, 0x2222].map(|spi| Request::rekey(&world, spi));
    let first = requests[0].ask_as(&mut impostor, &mut world).expect("an answer");
    assert_eq!(first.notifies(), []);
    let second = requests[1].ask_as(&mut impostor, &mut world).expect("an answer");
    assert_eq!(second.notifies(), [NotifyType::TemporaryFailure]);
    // then it deletes the first replacement, and the old one
    for spi in [0x1111, 0x2222, world.hosts[A].children.values().next().expect("one").inbound.spi] {
        let delete = Delete::Children { protocol: ProtocolId::Esp, spis: vec![spi] };
        impostor.ask(&mut world, Informational, &[Payload::Delete(delete)]).expect("an answer");
    }
    world.now += Duration::from_secs(10);
    world.hosts[A].children.clear();
    world.hosts[A].sends_on.clear();
    world.advance();
    assert!(world.hosts[B].children.is_empty() && stands(&world, B));
}

#[test]
fn an_spi_that_another_child_of_the_peer_has_is_refused() {
    use NotifyType::NoProposalChosen;
    let mut world = plain();
    let first = world.hosts[B].children.values().next().expect("a CHILD SA").outbound.spi;
    let mut impostor = Impostor::of(&world, A);
    let same = Request::new(first).ask_as(&mut impostor, &mut world).expect("an answer");
    assert_eq!(same.notifies(), [NoProposalChosen]);
    let other = Request::new(0x1234).ask_as(&mut impostor, &mut world).expect("an answer");
    assert_eq!(other.notifies(), []);
    let same = Request::rekey(&world, 0x1234).ask_as(&mut impostor, &mut world);
    assert_eq!(same.expect("an answer").notifies(), [NoProposalChosen]);
    // its packets may be under way still
    let delete = Delete::Children { protocol: ProtocolId::Esp, spis: vec![0x1234] };
    impostor.ask(&mut world, Informational, &[Payload::Delete(delete)]).expect("an answer");
    let same = Request::new(0x1234).ask_as(&mut impostor, &mut world).expect("an answer");
    assert_eq!(same.notifies(), [NoProposalChosen]);
    assert_eq!(world.hosts[B].installed, 2);
    assert_eq!(world.hosts[B].endpoint.child_spis(), 2, "none is reserved for what is refused");
    assert!(stands(&world, B));
}

#[test]
fn more_child_sas_of_one_group_than_there_are_resources_are_refused() {
    let mut world = {
        let configs = configs(PostQuantum::Off).map(|mut config| {
            let connection = Arc::get_mut(&mut config.connections[0]).expect("ours");
            let child = Arc::get_mut(&mut connection.children[0]).expect("ours");
            child.per_resource = 2;
            config
        });
        let mut world = World::new(configs, 87);
        (world.most, world.closing) = (usize::MAX, true);
        world.connect(A);
        world.settle();
        world
    };
    assert_eq!(world.hosts[B].children.len(), 3);
    // what it says about its resource means nothing
    for data in [vec![], vec![0; 4], vec![9; 1000]] {
        let mut impostor = Impostor::of(&world, A);
        let request = Request::new(0x1234);
        let (first, inner) = request.emit_with(NotifyType::SaResourceInfo, &data);
        let answer = impostor.ask_raw(&mut world, CreateChildSa, first, &inner);
        world.hosts[A].next_request += 1;
        assert_eq!(answer.expect("an answer").notifies(), [NotifyType::TsMaxQueue]);
        assert!(stands(&world, B) && world.hosts[B].children.len() == 3);
    }
}

#[test]
fn a_refused_rekeying_does_not_disturb_the_one_of_the_peer() {
    // B refuses what A wants, and its own is made
    for late in [false, true] {
        let mut world = plain();
        world.rekey_child(A);
        let asked = world.in_flight.remove(0);
        world.rekey_child(B);
        let theirs = world.in_flight.remove(0);
        let mut impostor = Impostor::of(&world, B);
        let refusal = [Payload::Notify(Notify::new(NotifyType::TsUnacceptable, &[]))];
        if !late {
            impostor.respond(&mut world, &asked, &refusal);
        }
        world.hand_over(&theirs);
        if late {
            impostor.respond(&mut world, &asked, &refusal);
        }
        world.settle();
        world.check_agreement(1);
        assert_eq!(world.hosts[A].installed, 2);
    }
}

#[test]
fn selectors_of_answers_and_requests_are_bounded() {
    let mut world = plain();
    world.most = 3;
    let mut impostor = Impostor::of(&world, A);
    let mut request = Request::new(0x1234);
    let many = (0..255).map(|last| {
        TrafficSelector::all_of(AddressRange::V4([10, 0, 1, last].into()..=[10, 0, 1, last].into()))
    });
    request.ts[0] = many.collect();
    let answer = request.ask_as(&mut impostor, &mut world).expect("an answer");
    assert_eq!(selectors(&answer), [32, 1]);
    // each of one end with each of the other is a policy
    let mut request = Request::new(0x1235);
    for (end, network) in [1, 2].into_iter().enumerate() {
        let whole = TrafficSelector::network([10, 0, network, 0].into(), 24);
        let of_port = |port| TrafficSelector { protocol: 17, ports: (port, port), ..whole.clone() };
        request.ts[end] = (1..=32).map(of_port).collect();
    }
    let answer = request.ask_as(&mut impostor, &mut world).expect("an answer");
    assert_eq!(selectors(&answer), [2, 32]);
}

/// Returns the number of selectors of both ends that are agreed on.
fn selectors(answer: &Answer) -> [usize; 2] {
    let mut numbers = answer.payloads().into_iter().filter_map(|payload| match payload {
        Payload::TsInitiator(one) | Payload::TsResponder(one) => Some(one.selectors.len()),
        _ => None,
    });
    [(); 2].map(|()| numbers.next().expect("selectors of both ends"))
}
