//! What an authenticated peer that is broken or hostile can cause: nothing but the loss of its own
//! SAs. Some are what others' implementations failed at.

use std::time::Duration;

use headroom_ike::crypto::{FRAGMENT_MIN, Method, SystemRandom};
use headroom_ike::wire::{
    AddressRange, Delete, EncryptionId, ExchangeType, KeyExchange, KeyExchangeMethod, Nonce,
    Notify, NotifyType, Payload, PayloadType, Proposal, ProtocolId, SecurityAssociation,
    SequenceNumbersId, TrafficSelector, TrafficSelectors, Transform, TransformType, emit_chain,
    parse_decrypted,
};
use headroom_ike::{Command, Reason};

use crate::impostor::{Answer, Impostor};
use crate::script::plain;
use crate::world::{A, B, World};

use ExchangeType::{CreateChildSa, Informational};

/// A CREATE_CHILD_SA request whose parts a test changes.
struct Request {
    rekeys: Option<(ProtocolId, Vec<u8>)>,
    proposals: Vec<(u8, ProtocolId, Vec<u8>)>,
    nonce: Vec<u8>,
    key_exchange: Option<(KeyExchangeMethod, Vec<u8>)>,
    ts: [Vec<TrafficSelector>; 2],
}

impl Request {
    /// One that is right.
    fn new(spi: u32) -> Self {
        let key_exchange = Method::Curve25519.generate(&mut SystemRandom);
        Self {
            rekeys: None,
            proposals: vec![(1, ProtocolId::Esp, spi.to_be_bytes().to_vec())],
            nonce: vec![7; 32],
            key_exchange: Some((KeyExchangeMethod::Curve25519, key_exchange.public().to_vec())),
            ts: [network(1, 24), network(2, 24)],
        }
    }

    /// One that rekeys what the other host has.
    fn rekey(world: &World, spi: u32) -> Self {
        let old = world.hosts[B].children.values().next().expect("a CHILD SA");
        let rekeys = (ProtocolId::Esp, old.outbound.spi.to_be_bytes().to_vec());
        Self { rekeys: Some(rekeys), ..Self::new(spi) }
    }

    fn emit(&self) -> (PayloadType, Vec<u8>) {
        self.emit_after(Vec::new())
    }

    /// Writes it with a notification more.
    fn emit_with(&self, notify_type: NotifyType, data: &[u8]) -> (PayloadType, Vec<u8>) {
        self.emit_after(vec![Payload::Notify(Notify::new(notify_type, data))])
    }

    fn emit_after(&self, before: Vec<Payload<'_>>) -> (PayloadType, Vec<u8>) {
        let mut payloads: Vec<Payload<'_>> = before;
        if let Some((protocol, spi)) = &self.rekeys {
            let (protocol, notify_type) = (*protocol, NotifyType::RekeySa);
            payloads.push(Payload::Notify(Notify { protocol, spi, notify_type, data: &[] }));
        }
        let proposals = self.proposals.iter().map(|(number, protocol, spi)| Proposal {
            number: *number,
            protocol: *protocol,
            spi,
            transforms: transforms(),
        });
        let proposals = proposals.collect();
        payloads.push(Payload::SecurityAssociation(SecurityAssociation { proposals }));
        payloads.push(Payload::Nonce(Nonce(&self.nonce)));
        payloads.extend(
            self.key_exchange
                .as_ref()
                .map(|(method, data)| Payload::KeyExchange(KeyExchange { method: *method, data })),
        );
        let [initiator, responder] =
            self.ts.clone().map(|selectors| TrafficSelectors { selectors });
        payloads.extend([Payload::TsInitiator(initiator), Payload::TsResponder(responder)]);
        let mut inner = Vec::new();
        (emit_chain(&payloads, &mut inner), inner)
    }

    fn ask(&self, world: &mut World) -> Option<Answer> {
        let mut impostor = Impostor::of(world, A);
        self.ask_as(&mut impostor, world)
    }

    fn ask_as(&self, impostor: &mut Impostor, world: &mut World) -> Option<Answer> {
        let (first, inner) = self.emit();
        world.closing = true;
        impostor.ask_raw(world, CreateChildSa, first, &inner)
    }
}

fn transforms() -> Vec<Transform> {
    vec![
        Transform::with_key_length(TransformType::Encryption, EncryptionId::AesGcm16, 256),
        Transform::new(TransformType::KeyExchange, KeyExchangeMethod::Curve25519),
        Transform::new(TransformType::SequenceNumbers, SequenceNumbersId::from(1)),
    ]
}

fn network(last: u8, prefix: u8) -> Vec<TrafficSelector> {
    vec![TrafficSelector::network([10, 0, last, 0].into(), prefix)]
}

/// Checks that a host lives on with one IKE SA.
fn stands(world: &World, host: usize) -> bool {
    world.hosts[host].closed.is_empty() && world.hosts[host].endpoint.sessions() == 1
}

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
        let configs = crate::world::configs(headroom_ike::PostQuantum::Off).map(|mut config| {
            let connection = std::sync::Arc::get_mut(&mut config.connections[0]).expect("ours");
            let child = std::sync::Arc::get_mut(&mut connection.children[0]).expect("ours");
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
fn deletions_are_of_the_children_of_their_own_ike_sa() {
    let mut world = plain();
    // a second IKE SA between both, with a CHILD SA
    world.closing = true;
    world.most = 4;
    let old = world.hosts[A].children.values().next().expect("a CHILD SA").inbound.spi;
    world.connect(A);
    world.settle();
    assert_eq!(world.hosts[B].endpoint.sessions(), 2);
    let mut impostor = Impostor::of(&world, A);
    let delete = Delete::Children { protocol: ProtocolId::Esp, spis: vec![old] };
    let answer = impostor.ask(&mut world, Informational, &[Payload::Delete(delete)]);
    assert_eq!(answer.expect("an answer").payloads(), []);
    world.now += Duration::from_secs(10);
    world.advance();
    assert_eq!(world.hosts[B].children.len(), 2, "nothing is deleted");
    let request = Request {
        rekeys: Some((ProtocolId::Esp, old.to_be_bytes().to_vec())),
        ..Request::new(0x1234)
    };
    let answer = request.ask_as(&mut impostor, &mut world).expect("an answer");
    assert_eq!(answer.notifies(), [NotifyType::ChildSaNotFound], "nothing is rekeyed");
}

#[test]
fn deletions_of_what_is_not_there_are_answered_with_nothing() {
    let mut world = plain();
    let mut impostor = Impostor::of(&world, A);
    let own = world.hosts[B].children.values().next().expect("a CHILD SA").inbound.spi;
    for (protocol, spis) in [
        (ProtocolId::Esp, vec![]),
        (ProtocolId::Esp, vec![0, 1, u32::MAX]),
        (ProtocolId::Esp, vec![own]),
        (ProtocolId::Ah, vec![world.hosts[A].children.values().next().expect("one").inbound.spi]),
        (ProtocolId::Esp, (0..16_000).collect()),
    ] {
        let payload = Payload::Delete(Delete::Children { protocol, spis });
        let answer = impostor.ask(&mut world, Informational, &[payload]).expect("an answer");
        assert_eq!(answer.payloads(), []);
    }
    assert_eq!(world.hosts[B].children.len(), 1);
    assert!(stands(&world, B));
}

#[test]
fn an_unknown_critical_payload_is_refused_and_the_ike_sa_stands() {
    let mut world = plain();
    let mut impostor = Impostor::of(&world, A);
    let critical = [0, 0x80, 0, 4];
    let answer = impostor.ask_raw(&mut world, Informational, PayloadType::Unknown(200), &critical);
    let answer = answer.expect("an answer");
    assert_eq!(answer.notifies(), [NotifyType::UnsupportedCriticalPayload]);
    let Payload::Notify(notify) = &answer.payloads()[0] else { panic!("{answer:?}") };
    assert_eq!(notify.data, [200]);
    let skipped = [0, 0, 0, 4];
    let answer = impostor.ask_raw(&mut world, Informational, PayloadType::Unknown(200), &skipped);
    assert_eq!(answer.expect("an answer").payloads(), []);
    assert!(stands(&world, B));
}

#[test]
fn exchanges_that_are_over_or_unknown_are_refused() {
    let mut world = plain();
    let mut impostor = Impostor::of(&world, A);
    for exchange in
        [ExchangeType::IkeAuth, ExchangeType::IkeIntermediate, ExchangeType::Unknown(77)]
    {
        let answer = impostor.ask(&mut world, exchange, &[]).expect("an answer");
        assert_eq!(answer.notifies(), [NotifyType::InvalidSyntax], "{exchange}");
    }
    let answer = impostor.ask(&mut world, ExchangeType::IkeFollowupKe, &[]).expect("an answer");
    assert_eq!(answer.notifies(), [NotifyType::StateNotFound]);
    assert!(stands(&world, B));
}

// Message IDs.

#[test]
fn requests_out_of_the_window_are_ignored() {
    let mut world = plain();
    let mut impostor = Impostor::of(&world, A);
    for change in [|id| id + 1, |id| id - 3, |_| 0, |_| u32::MAX, |_| u32::MAX - 1] {
        let mut other = Impostor::of(&world, A);
        other.next_id(change);
        assert!(other.ask(&mut world, Informational, &[]).is_none());
    }
    assert!(impostor.ask(&mut world, Informational, &[]).is_some());
}

#[test]
fn a_retransmission_is_answered_with_the_same_bytes() {
    let mut world = plain();
    let mut impostor = Impostor::of(&world, A);
    let request = impostor.seal(Informational, (PayloadType::None, &[]), None).remove(0);
    let mut answers = Vec::new();
    for _ in 0..3 {
        world.hand_over(&request);
        answers.push(world.in_flight.remove(0));
    }
    assert!(answers.windows(2).all(|two| two[0] == two[1]));
}

#[test]
fn answers_to_what_was_not_asked_are_ignored() {
    let mut world = plain();
    let session = world.hosts[A].session.expect("a session");
    world.command(A, &Command::CheckLiveness(session));
    let asked = world.in_flight.remove(0);
    let mut impostor = Impostor::of(&world, B);
    for change in [1, -1] {
        let mut other = asked.clone();
        let id = u32::from_be_bytes(other.datagram[20..24].try_into().expect("four bytes"));
        let id = id.wrapping_add_signed(change);
        other.datagram[20..24].copy_from_slice(&id.to_be_bytes());
        let error = [Payload::Notify(Notify::new(NotifyType::InvalidSyntax, &[]))];
        impostor.respond(&mut world, &other, &error);
        assert!(stands(&world, A));
    }
    let before = world.sent;
    world.advance();
    assert_eq!(world.sent, before + 1, "it is asked again");
}

#[test]
fn the_spi_of_a_new_ike_sa_is_that_of_the_chosen_proposal() {
    let mut world = plain();
    let public = Method::Curve25519.generate(&mut SystemRandom).public().to_vec();
    let proposal = |number, spi: &'static [u8], bits| {
        let (encryption, prf) = (TransformType::Encryption, TransformType::PseudorandomFunction);
        let transforms = vec![
            Transform::with_key_length(encryption, EncryptionId::AesGcm16, bits),
            Transform::new(prf, 7_u16),
            Transform::new(TransformType::KeyExchange, KeyExchangeMethod::Curve25519),
        ];
        Proposal { number, protocol: ProtocolId::Ike, spi, transforms }
    };
    // nobody offers 192 bits
    let proposals = vec![proposal(1, &[1; 8], 192), proposal(2, &[2; 8], 256)];
    let rekey = [
        Payload::SecurityAssociation(SecurityAssociation { proposals }),
        Payload::Nonce(Nonce(&[7; 32])),
        Payload::KeyExchange(KeyExchange { method: KeyExchangeMethod::Curve25519, data: &public }),
    ];
    let answer = Impostor::of(&world, A).ask(&mut world, CreateChildSa, &rekey);
    assert_eq!(answer.expect("an answer").notifies(), []);
    let (spis, _) = world.hosts[B].keys.last().expect("a new IKE SA");
    assert_eq!(spis.initiator, u64::from_be_bytes([2; 8]));
}

#[test]
fn message_ids_are_not_changed_by_a_peer() {
    // IKEV2_MESSAGE_ID_SYNC (RFC 6311) was not negotiated: it is a request with a wrong ID
    let mut world = plain();
    let mut impostor = Impostor::of(&world, A);
    impostor.next_id(|_| 0);
    let sync = [Payload::Notify(Notify::new(NotifyType::from(16422), &[0; 12]))];
    assert!(impostor.ask(&mut world, Informational, &sync).is_none());
    let mut impostor = Impostor::of(&world, A);
    assert!(impostor.ask(&mut world, Informational, &sync).is_some(), "ignored");
    assert!(impostor.ask(&mut world, Informational, &[]).is_some());
}

// Fragments.

/// Vendor IDs that fill so many bytes.
fn filling(len: usize) -> (PayloadType, Vec<u8>) {
    let vendor_id = vec![9; len - 4];
    let mut inner = Vec::new();
    (emit_chain(&[Payload::VendorId(&vendor_id)], &mut inner), inner)
}

#[test]
fn fragments_in_any_order_and_twice_make_one_message() {
    let mut world = plain();
    let mut impostor = Impostor::of(&world, A);
    let (first, inner) = filling(3000);
    let fragments = impostor.seal(Informational, (first, &inner), Some(FRAGMENT_MIN));
    assert!(fragments.len() > 5);
    for fragment in fragments[1..].iter().rev().chain(&fragments[1..]) {
        world.hand_over(fragment);
        assert!(world.in_flight.is_empty());
    }
    world.hand_over(&fragments[0]);
    assert_eq!(world.in_flight.len(), 1);
    // one answer again for all fragments of a retransmission
    fragments.iter().for_each(|one| world.hand_over(one));
    assert_eq!(world.in_flight.len(), 2);
}

#[test]
fn fragments_of_a_request_and_of_an_answer_do_not_disturb_each_other() {
    let mut world = plain();
    let session = world.hosts[B].session.expect("a session");
    world.command(B, &Command::CheckLiveness(session));
    let asked = world.in_flight.remove(0);
    let mut impostor = Impostor::of(&world, A);
    let (first, inner) = filling(1400);
    let request = impostor.seal(Informational, (first, &inner), Some(FRAGMENT_MIN));
    let answer = impostor.seal_answer(&asked, (first, &inner), Some(FRAGMENT_MIN));
    assert_eq!((request.len(), answer.len()), (3, 3));
    for fragment in request.iter().zip(&answer).flat_map(|(one, other)| [one, other]) {
        world.hand_over(fragment);
    }
    assert_eq!(world.in_flight.len(), 1, "the request is answered");
    assert_eq!(world.hosts[B].endpoint.next_deadline(), None, "and the answer has arrived");
}

#[test]
fn fewer_fragments_than_before_are_ignored_and_more_replace_them() {
    let mut world = plain();
    let mut impostor = Impostor::of(&world, A);
    let (first, inner) = filling(1400);
    let mut seal = |max| impostor.seal(Informational, (first, &inner), Some(max));
    let [two, three] = [seal(1000), seal(FRAGMENT_MIN)];
    assert_eq!((two.len(), three.len()), (2, 3));
    // 1 of 2, 1 of 3: a new attempt; 2 of 2 does not complete it
    for fragment in [&two[0], &three[0], &two[1], &two[0], &three[1]] {
        world.hand_over(fragment);
        assert!(world.in_flight.is_empty());
    }
    world.hand_over(&three[2]);
    assert_eq!(world.in_flight.len(), 1);
}

#[test]
fn fragments_that_are_not_numbered_from_1_to_their_total_are_ignored() {
    let mut world = plain();
    let mut impostor = Impostor::of(&world, A);
    let (first, inner) = filling(1400);
    let fragments = impostor.seal(Informational, (first, &inner), Some(FRAGMENT_MIN));
    for (number, total) in [(0_u16, 0_u16), (0, 3), (4, 3), (u16::MAX, 1), (1, 0), (1, u16::MAX)] {
        let mut changed = fragments[0].clone();
        changed.datagram[32..34].copy_from_slice(&number.to_be_bytes());
        changed.datagram[34..36].copy_from_slice(&total.to_be_bytes());
        world.hand_over(&changed);
        assert!(world.in_flight.is_empty(), "{number} of {total}");
    }
    fragments.iter().for_each(|one| world.hand_over(one));
    assert_eq!(world.in_flight.len(), 1, "nothing of them was kept");
}

#[test]
fn more_fragments_than_any_message_has_are_ignored() {
    let mut world = plain();
    let mut impostor = Impostor::of(&world, A);
    let (first, inner) = filling(65_000);
    let fragments = impostor.seal(Informational, (first, &inner), Some(FRAGMENT_MIN));
    assert!(fragments.len() > 128);
    fragments.iter().for_each(|one| world.hand_over(one));
    assert!(world.in_flight.is_empty());
    assert!(impostor.ask(&mut world, Informational, &[]).is_some(), "the ID was not used up");
}

#[test]
fn a_peer_that_is_not_authenticated_yet_has_less_room_for_fragments() {
    let mut world = World::new(crate::world::configs(headroom_ike::PostQuantum::Off), 70);
    world.connect(A);
    world.pass(A);
    world.pass(B);
    world.lose(A);
    let mut impostor = Impostor::of(&world, A);
    impostor.next_id(|_| 1);
    let (first, inner) = filling(17 * 1024);
    let fragments = impostor.seal(ExchangeType::IkeAuth, (first, &inner), Some(1232));
    fragments.iter().for_each(|one| world.hand_over(one));
    assert!(world.in_flight.is_empty() && world.hosts[B].closed.is_empty());
    let (first, inner) = filling(15 * 1024);
    let fragments = impostor.seal(ExchangeType::IkeAuth, (first, &inner), Some(FRAGMENT_MIN));
    fragments.iter().for_each(|one| world.hand_over(one));
    assert_eq!(world.in_flight.len(), 1, "refused: no IDi, no AUTH");
}

// Addresses and times.

#[test]
fn a_mapping_that_moves_in_the_middle_of_ike_auth_is_followed() {
    let [mut config_a, config_b] = crate::world::configs(headroom_ike::PostQuantum::Required);
    config_a.force_encapsulation = true;
    let mut world = World::new([config_a, config_b], 71);
    world.connect(A);
    // IKE_SA_INIT from one port, IKE_INTERMEDIATE from another, IKE_AUTH from a third
    let (mut mapping, mut inside) = (40_000, 0);
    while !world.hosts[A].ready {
        let mut message = world.in_flight.remove(0);
        if message.from.ip() == world.hosts[A].address.ip() {
            mapping += 1;
            inside = message.from.port();
            message.from.set_port(mapping);
        } else {
            assert_eq!(message.to.port(), mapping, "the newest mapping");
            message.to.set_port(inside);
        }
        world.hand_over(&message);
    }
    assert!(mapping >= 40_003 && inside == 4500);
    world.settle();
    world.check_agreement(1);
}

#[test]
fn a_clock_that_jumps_ends_nothing() {
    for jump in [Duration::from_secs(3600), Duration::from_secs(30 * 24 * 3600)] {
        let configs = crate::world::configs(headroom_ike::PostQuantum::Off).map(|mut config| {
            config.timing.liveness = Some(Duration::from_secs(30));
            config.timing.retransmissions = 3;
            config
        });
        let mut world = World::established_for_now(configs, 72);
        world.rekey_child(A);
        world.lose(A);
        // suspended in the middle of an exchange
        world.now += jump;
        for host in [A, B] {
            world.poll(host);
        }
        for _ in 0..20 {
            while !world.in_flight.is_empty() {
                world.deliver(0, false);
            }
            world.advance();
        }
        assert!(world.hosts.iter().all(|host| host.closed.is_empty()), "{jump:?}");
        assert_eq!(world.hosts[A].installed, 2, "rekeyed after all");
        // and back: nothing is due, nothing panics
        world.now -= jump / 2;
        for host in [A, B] {
            world.poll(host);
        }
        assert!(world.hosts.iter().all(|host| host.closed.is_empty()));
    }
}

#[test]
fn initial_contact_removes_the_ike_sas_of_its_own_name_alone() {
    let mut world = plain();
    // IKE_AUTH is over: INITIAL_CONTACT in another exchange means nothing
    let mut impostor = Impostor::of(&world, A);
    let contact = [Payload::Notify(Notify::new(NotifyType::InitialContact, &[]))];
    assert!(impostor.ask(&mut world, Informational, &contact).is_some());
    assert!(stands(&world, B));
}

/// Returns the number of selectors of both ends that are agreed on.
fn selectors(answer: &Answer) -> [usize; 2] {
    let mut numbers = answer.payloads().into_iter().filter_map(|payload| match payload {
        Payload::TsInitiator(one) | Payload::TsResponder(one) => Some(one.selectors.len()),
        _ => None,
    });
    [(); 2].map(|()| numbers.next().expect("selectors of both ends"))
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
