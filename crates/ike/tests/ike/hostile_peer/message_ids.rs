//! Message IDs that are wrong, repeated, or not asked for.

use headroom_ike::Command;
use headroom_ike::wire::ExchangeType::Informational;
use headroom_ike::wire::{Notify, NotifyType, Payload, PayloadType};

use crate::hostile_peer::stands;
use crate::impostor::Impostor;
use crate::script::plain;
use crate::world::{A, B};

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
