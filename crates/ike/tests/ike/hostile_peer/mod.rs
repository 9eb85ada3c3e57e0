//! What an authenticated peer that is broken or hostile can cause: nothing but the loss of its own
//! SAs. Some are what others' implementations failed at.

mod child_requests;
mod deletions;
mod fragments;
mod message_ids;
mod request;

use headroom_ike::crypto::{Method, SystemRandom};
use headroom_ike::wire::ExchangeType::{self, CreateChildSa, Informational};
use headroom_ike::wire::{
    EncryptionId, KeyExchange, KeyExchangeMethod, Nonce, Notify, NotifyType, Payload, PayloadType,
    Proposal, ProtocolId, SecurityAssociation, Transform, TransformType,
};

use crate::impostor::Impostor;
use crate::script::plain;
use crate::world::{A, B, World};

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
fn initial_contact_removes_the_ike_sas_of_its_own_name_alone() {
    let mut world = plain();
    // IKE_AUTH is over: INITIAL_CONTACT in another exchange means nothing
    let mut impostor = Impostor::of(&world, A);
    let contact = [Payload::Notify(Notify::new(NotifyType::InitialContact, &[]))];
    assert!(impostor.ask(&mut world, Informational, &contact).is_some());
    assert!(stands(&world, B));
}

/// Checks that a host lives on with one IKE SA.
fn stands(world: &World, host: usize) -> bool {
    world.hosts[host].closed.is_empty() && world.hosts[host].endpoint.sessions() == 1
}
