//! Deletions of CHILD SAs that are another IKE SA's, or not there.

use std::time::Duration;

use headroom_ike::wire::ExchangeType::Informational;
use headroom_ike::wire::{Delete, NotifyType, Payload, ProtocolId};

use crate::hostile_peer::request::Request;
use crate::hostile_peer::stands;
use crate::impostor::Impostor;
use crate::script::plain;
use crate::world::{A, B};

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
