//! Fragments in any order, of any numbers, and more than any message has (RFC 7383).

use headroom_ike::crypto::FRAGMENT_MIN;
use headroom_ike::wire::ExchangeType::{IkeAuth, Informational};
use headroom_ike::wire::{Payload, PayloadType, emit_chain};
use headroom_ike::{Command, PostQuantum};

use crate::impostor::Impostor;
use crate::script::plain;
use crate::world::{A, B, World, configs};

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
    let mut world = World::new(configs(PostQuantum::Off), 70);
    world.connect(A);
    world.pass(A);
    world.pass(B);
    world.lose(A);
    let mut impostor = Impostor::of(&world, A);
    impostor.next_id(|_| 1);
    let (first, inner) = filling(17 * 1024);
    let fragments = impostor.seal(IkeAuth, (first, &inner), Some(1232));
    fragments.iter().for_each(|one| world.hand_over(one));
    assert!(world.in_flight.is_empty() && world.hosts[B].closed.is_empty());
    let (first, inner) = filling(15 * 1024);
    let fragments = impostor.seal(IkeAuth, (first, &inner), Some(FRAGMENT_MIN));
    fragments.iter().for_each(|one| world.hand_over(one));
    assert_eq!(world.in_flight.len(), 1, "refused: no IDi, no AUTH");
}

/// Vendor IDs that fill so many bytes.
fn filling(len: usize) -> (PayloadType, Vec<u8>) {
    let vendor_id = vec![9; len - 4];
    let mut inner = Vec::new();
    (emit_chain(&[Payload::VendorId(&vendor_id)], &mut inner), inner)
}
