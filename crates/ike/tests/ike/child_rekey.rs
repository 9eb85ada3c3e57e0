//! Rekeying of CHILD SAs, alone and against what the other end does meanwhile (RFC 7296 §2.8,
//! §2.25.1): with and without packets between all messages, with each nonce as the lowest.

use std::sync::Arc;
use std::time::Duration;

use headroom_ike::crypto::Method;
use headroom_ike::wire::{Delete, ExchangeType, Notify, NotifyType, Payload, ProtocolId};
use headroom_ike::{Command, PostQuantum, Reason};

use crate::impostor::Impostor;
use crate::script::{Crossing, crossing, either, mixed, plain, with_ml_kem};
use crate::world::{A, B, World, configs};

// One end rekeys.

#[test]
fn one_end_rekeys() {
    either(plain, |mut world, host| {
        let before = world.sent;
        world.rekey_child(host);
        world.pass(host);
        world.pass(1 - host);
        world.ends_with_rekeyed_child(host);
        assert_eq!(world.sent - before, 4, "CREATE_CHILD_SA and a deletion");
        assert!(world.hosts.iter().all(|host| host.installed == 2));
    });
}

#[test]
fn one_end_rekeys_with_an_additional_key_exchange() {
    either(with_ml_kem, |mut world, host| {
        world.rekey_child(host);
        for _ in 0..2 {
            world.pass(host);
            world.pass(1 - host);
        }
        assert_eq!(world.hosts[host].installed, 2, "after IKE_FOLLOWUP_KE");
        world.ends_with_rekeyed_child(host);
    });
}

#[test]
fn one_end_rekeys_with_a_key_exchange_that_the_other_refuses() {
    either(refusing(PostQuantum::Off), |mut world, host| {
        let before = world.sent;
        world.rekey_child(host);
        world.ends_with_rekeyed_child(host);
        assert_eq!(world.sent - before, 6, "one round trip more");
    });
}

#[test]
fn one_end_rekeys_with_refused_and_additional_key_exchanges() {
    either(refusing(PostQuantum::Required), |mut world, host| {
        world.rekey_child(host);
        world.ends_with_rekeyed_child(host);
        assert!(world.hosts.iter().all(|host| host.installed == 2));
    });
}

#[test]
fn one_end_rekeys_and_the_other_asks_for_one_key_exchange_after_the_other() {
    either(plain, |mut world, host| {
        let mut impostor = Impostor::of(&world, 1 - host);
        world.rekey_child(host);
        for wanted in [20_u16, 19, 31] {
            let request = world.in_flight.remove(0);
            let data = wanted.to_be_bytes();
            let notify = Notify::new(NotifyType::InvalidKePayload, &data);
            impostor.respond(&mut world, &request, &[Payload::Notify(notify)]);
        }
        assert!(world.in_flight.is_empty(), "X25519 was refused before: it is not asked again");
        assert_eq!(world.hosts[host].failed_children, [Reason::KeyExchange]);
        assert_eq!(world.hosts[host].endpoint.child_spis(), 1);
    });
}

#[test]
fn the_other_end_does_not_rekey_what_is_already_replaced() {
    either(plain, |mut world, host| {
        let old = world.oldest(1 - host);
        world.rekey_child(host);
        world.pass(host);
        let under_way = world.sent;
        world.command(1 - host, &Command::RekeyChild(old));
        assert_eq!(world.sent, under_way);
        world.ends_with_rekeyed_child(host);
    });
}

#[test]
fn the_other_end_removes_the_old_one_if_nobody_else_does() {
    either(plain, |mut world, host| {
        world.traffic = true;
        world.rekey_child(host);
        world.pass(host);
        world.pass(1 - host);
        let until = world.now + Duration::from_secs(60);
        while world.now < until {
            // nothing of the first end arrives
            while !world.is_silent(host) {
                world.lose(host);
            }
            while !world.is_silent(1 - host) {
                world.pass(1 - host);
            }
            world.advance();
        }
        assert_eq!(world.hosts[host].children.len(), 1, "deleted by the other end");
        world.ends_with_rekeyed_child(host);
    });
}

#[test]
fn the_new_one_is_deleted_while_the_old_one_is() {
    either(plain, |mut world, host| {
        world.rekey_child(host);
        world.pass(host);
        world.pass(1 - host);
        // the first end deletes the old one, the other end the new one
        let new = world.newest(1 - host);
        world.delete(1 - host, new);
        world.pass(1 - host);
        world.pass(host);
        world.ends_without_child();
    });
}

#[test]
fn the_old_one_is_deleted_by_the_wrong_end_before_its_answer_arrives() {
    either(plain, |mut world, host| {
        let old = world.hosts[1 - host].children[&world.oldest(1 - host)].inbound.spi;
        world.rekey_child(host);
        world.pass(host);
        let answer = world.hold(1 - host);
        world.may_be_empty = true;
        let payload =
            Payload::Delete(Delete::Children { protocol: ProtocolId::Esp, spis: vec![old] });
        let mut impostor = Impostor::of(&world, 1 - host);
        impostor.ask(&mut world, ExchangeType::Informational, &[payload]).expect("an answer");
        world.give(&answer);
        world.ends_with_rekeyed_child(host);
    });
}

#[test]
fn all_messages_of_a_rekeying_are_lost_once() {
    either(with_ml_kem, |mut world, host| {
        world.rekey_child(host);
        for _ in 0..3 {
            world.lose(host);
            while world.is_silent(host) {
                world.advance();
            }
            world.pass(host);
            world.lose(1 - host);
            while world.is_silent(host) {
                world.advance();
            }
            world.pass(host);
            world.pass(1 - host);
        }
        world.ends_with_rekeyed_child(host);
    });
}

// Both ends rekey.

#[test]
fn both_rekey() {
    crossing(plain, World::rekey_child, |mut it| {
        let before = it.world.sent;
        both_requests(&mut it);
        both_answers(&mut it);
        it.ends_with_winners_child();
        // two answers, and the deletions of the redundant and of the old one
        assert_eq!(it.world.sent - before, 2 + 4);
        assert!(it.world.hosts.iter().all(|host| host.installed == 3));
    });
}

#[test]
fn both_rekey_with_an_additional_key_exchange() {
    crossing(with_ml_kem, World::rekey_child, |mut it| {
        both_requests(&mut it);
        both_answers(&mut it);
        it.ends_with_winners_child();
    });
}

#[test]
fn both_rekey_and_one_has_an_additional_key_exchange() {
    crossing(mixed, World::rekey_child, |mut it| {
        both_requests(&mut it);
        both_answers(&mut it);
        it.ends_with_winners_child();
    });
}

#[test]
fn both_rekey_and_an_answer_is_late() {
    crossing(plain, World::rekey_child, |mut it| {
        both_requests(&mut it);
        let late = it.world.hold(B);
        it.world.pass(A);
        it.world.pass(B);
        it.world.pass(A);
        it.world.give(&late);
        it.ends_with_winners_child();
    });
}

#[test]
fn both_rekey_and_the_new_one_is_deleted_before_a_late_answer() {
    crossing(plain, World::rekey_child, |mut it| {
        both_requests(&mut it);
        let late = it.world.hold(B);
        it.world.pass(A);
        it.world.pass(B);
        it.world.pass(A);
        // B made one by A's request, then one by its own
        let [by_a, by_b] = [it.world.newest_but_one(B), it.world.newest(B)];
        it.world.delete(B, if it.winner == A { by_a } else { by_b });
        it.world.pass(B);
        it.world.pass(A);
        it.world.give(&late);
        it.world.ends_without_child();
    });
}

#[test]
fn both_rekey_with_an_additional_key_exchange_and_an_answer_is_late() {
    crossing(with_ml_kem, World::rekey_child, |mut it| {
        both_requests(&mut it);
        let late = it.world.hold(B);
        it.world.pass(A);
        // B continues with IKE_FOLLOWUP_KE, or gives up
        while !it.world.is_silent(B) {
            it.world.pass(B);
            it.world.pass(A);
        }
        it.world.give(&late);
        it.ends_with_winners_child();
    });
}

#[test]
fn both_rekey_and_a_request_is_late() {
    for refused_before_deleted in [false, true] {
        crossing(plain, World::rekey_child, |mut it| {
            let late = it.world.hold(A);
            it.world.pass(B);
            it.world.pass(A);
            // B knows of no collision: it deletes the old one
            let deletion = it.world.hold(B);
            it.world.give(&late);
            let refusal = it.world.hold(B);
            let order = match refused_before_deleted {
                true => [refusal, deletion],
                false => [deletion, refusal],
            };
            order.iter().for_each(|held| it.world.give(held));
            it.ends_with_child_of(B);
            assert!(it.world.hosts[A].failed_children.is_empty());
        });
    }
}

#[test]
fn both_rekey_and_a_request_comes_after_the_old_one_is_gone() {
    crossing(plain, World::rekey_child, |mut it| {
        let late = it.world.hold(A);
        it.world.pass(B);
        it.world.pass(A);
        it.world.pass(B);
        it.world.pass(A);
        it.world.give(&late);
        it.ends_with_child_of(B);
        assert_eq!(it.world.hosts[A].failed_children, [], "it was rekeyed by the peer");
    });
}

#[test]
fn both_rekey_and_a_request_comes_after_the_new_one_is_gone() {
    crossing(plain, World::rekey_child, |mut it| {
        let late = it.world.hold(A);
        it.world.pass(B);
        it.world.pass(A);
        it.world.pass(B);
        it.world.pass(A);
        let new = it.world.newest(B);
        it.world.delete(B, new);
        it.world.pass(B);
        it.world.pass(A);
        it.world.give(&late);
        it.world.ends_without_child();
    });
}

#[test]
fn both_rekey_with_an_additional_key_exchange_and_a_request_is_late() {
    for after_followup in [false, true] {
        crossing(with_ml_kem, World::rekey_child, |mut it| {
            let late = it.world.hold(A);
            it.world.pass(B);
            it.world.pass(A);
            if after_followup {
                it.world.pass(B);
                it.world.pass(A);
            }
            it.world.give(&late);
            match after_followup {
                true => it.ends_with_child_of(B),
                false => it.ends_with_winners_child(),
            }
        });
    }
}

#[test]
fn both_rekey_with_key_exchanges_that_are_refused() {
    crossing(refusing(PostQuantum::Off), World::rekey_child, |mut it| {
        both_requests(&mut it);
        it.expect_requests();
        both_answers(&mut it);
        it.expect_answers();
        both_requests(&mut it);
        both_answers(&mut it);
        it.ends_with_winners_child();
    });
}

#[test]
fn both_rekey_with_refused_key_exchanges_and_one_asks_again_late() {
    crossing(refusing(PostQuantum::Off), World::rekey_child, |mut it| {
        both_requests(&mut it);
        it.expect_requests();
        both_answers(&mut it);
        it.expect_answers();
        let late = it.world.hold(A);
        it.world.pass(B);
        it.world.pass(A);
        let deletion = it.world.hold(B);
        it.world.give(&late);
        it.world.give(&deletion);
        it.ends_with_child_of(B);
        assert!(it.world.hosts[A].failed_children.is_empty());
    });
}

#[test]
fn both_rekey_and_a_request_is_lost() {
    crossing(plain, World::rekey_child, |mut it| {
        it.world.lose(A);
        let request = it.world.hold(B);
        it.world.give(&request);
        // A's request arrives when it is sent again
        it.world.settle();
        it.world.check_agreement(1);
    });
}

#[test]
fn both_rekey_and_the_loser_closes_the_old_one_too() {
    crossing(plain, World::rekey_child, |mut it| {
        let loser = 1 - it.winner;
        let old = it.world.oldest(loser);
        both_requests(&mut it);
        it.world.delete(loser, old);
        both_answers(&mut it);
        // what replaces it is closed with it
        it.world.ends_without_child();
    });
}

// One end rekeys, the other deletes.

#[test]
fn one_rekeys_what_the_other_deletes() {
    for make in [plain, with_ml_kem] {
        either(make, |mut world, host| {
            world.rekey_child(host);
            world.close_child(1 - host);
            world.pass(host);
            world.pass(1 - host);
            world.ends_without_child();
            assert!(world.hosts[host].failed_children.is_empty());
        });
    }
}

#[test]
fn one_rekeys_what_the_other_deletes_between_its_key_exchanges() {
    either(with_ml_kem, |mut world, host| {
        world.rekey_child(host);
        world.pass(host);
        world.close_child(1 - host);
        world.pass(1 - host);
        // IKE_FOLLOWUP_KE and the deletion cross
        world.pass(host);
        world.ends_without_child();
    });
}

#[test]
fn one_rekeys_what_the_other_deletes_and_the_deletion_is_lost() {
    either(plain, |mut world, host| {
        world.rekey_child(host);
        world.close_child(1 - host);
        world.lose(1 - host);
        world.pass(host);
        world.pass(1 - host);
        world.ends_without_child();
    });
}

#[test]
fn one_rekeys_what_the_other_deletes_and_the_rekeying_is_lost() {
    for make in [plain, with_ml_kem] {
        either(make, |mut world, host| {
            world.rekey_child(host);
            world.close_child(1 - host);
            // it comes again when there is nothing left to rekey
            world.lose(host);
            world.pass(1 - host);
            world.ends_without_child();
            assert!(world.hosts[host].failed_children.is_empty());
        });
    }
}

#[test]
fn one_rekeys_what_the_other_has_deleted() {
    either(plain, |mut world, host| {
        world.rekey_child(host);
        let late = world.hold(host);
        world.close_child(1 - host);
        world.pass(1 - host);
        world.pass(host);
        world.give(&late);
        world.ends_without_child();
        assert_eq!(world.hosts[host].failed_children, [], "the peer said that it is gone");
    });
}

#[test]
fn the_new_one_is_deleted_before_the_answer_that_makes_it() {
    for make in [plain, with_ml_kem] {
        either(make, |mut world, host| {
            world.rekey_child(host);
            while world.hosts[1 - host].installed == 1 {
                world.pass(host);
                if world.hosts[1 - host].installed == 1 {
                    world.pass(1 - host);
                }
            }
            let answer = world.hold(1 - host);
            let [old, new] = [world.oldest(1 - host), world.newest(1 - host)];
            world.delete(1 - host, new);
            world.pass(1 - host);
            world.pass(host);
            world.delete(1 - host, old);
            world.pass(1 - host);
            world.give(&answer);
            world.ends_without_child();
        });
    }
}

#[test]
fn an_end_deletes_what_it_is_rekeying() {
    for make in [plain, with_ml_kem] {
        either(make, |mut world, host| {
            world.rekey_child(host);
            world.close_child(host);
            world.pass(host);
            world.ends_without_child();
        });
    }
}

#[test]
fn what_is_closed_is_closed_with_what_has_replaced_it() {
    for make in [plain, with_ml_kem] {
        either(make, |mut world, host| {
            let old = world.oldest(1 - host);
            world.rekey_child(host);
            while world.hosts[1 - host].installed == 1 {
                world.pass(host);
                if world.hosts[1 - host].installed == 1 {
                    world.pass(1 - host);
                }
            }
            // the answer arrives after both deletions, or before
            let answer = world.hold(1 - host);
            world.delete(1 - host, old);
            world.pass(1 - host);
            world.pass(host);
            world.give(&answer);
            world.ends_without_child();
        });
    }
}

#[test]
fn what_is_closed_does_not_come_back_by_a_late_key_exchange() {
    crossing(with_ml_kem, World::rekey_child, |mut it| {
        let request = it.world.hold(B);
        it.world.pass(A);
        it.world.pass(B);
        let late = it.world.hold(A);
        it.world.give(&request);
        it.world.pass(A);
        if it.winner == A {
            it.world.give(&late);
            return it.ends_with_winners_child();
        }
        it.world.pass(B);
        it.world.pass(A);
        it.world.close_child(B);
        // both deletions: of the old one and of the new one
        for _ in 0..2 {
            it.world.pass(B);
            it.world.pass(A);
        }
        it.world.give(&late);
        it.world.ends_without_child();
    });
}

// The IKE SA changes meanwhile.

#[test]
fn one_rekeys_while_the_other_rekeys_the_ike_sa() {
    for make in [plain, with_ml_kem] {
        either(make, |mut world, host| {
            world.rekey_child(host);
            world.rekey_ike(1 - host);
            world.pass(host);
            world.pass(1 - host);
            world.settle();
            world.check_agreement(1);
            for host in &world.hosts {
                assert_eq!((host.installed, host.rekeyed), (2, 1), "both are done later");
                assert_eq!(host.failed_children, []);
            }
        });
    }
}

#[test]
fn one_rekeys_while_the_other_deletes_the_ike_sa() {
    either(plain, |mut world, host| {
        world.rekey_child(host);
        world.close(1 - host);
        world.pass(host);
        world.pass(1 - host);
        world.settle();
        world.check_closed();
        let reasons = [host, 1 - host].map(|host| world.hosts[host].closed[0].clone());
        assert_eq!(reasons, [Reason::Peer, Reason::Command]);
    });
}

/// Both requests arrive.
fn both_requests(it: &mut Crossing) {
    let [a, b] = [it.world.hold(A), it.world.hold(B)];
    it.world.give(&a);
    it.world.give(&b);
}

/// Both answers arrive.
fn both_answers(it: &mut Crossing) {
    both_requests(it);
}

/// Two hosts whose first key exchange the other does not want: P-384 is what both have.
fn refusing(policy: PostQuantum) -> impl Fn() -> World {
    move || {
        let mut first = [Method::Curve25519, Method::Ecp256].into_iter();
        let configs = configs(policy).map(|mut config| {
            let connection = Arc::get_mut(&mut config.connections[0]).expect("ours alone");
            let child = Arc::get_mut(&mut connection.children[0]).expect("ours alone");
            let methods = vec![first.next().expect("two hosts"), Method::Ecp384];
            child.proposals.iter_mut().for_each(|one| one.key_exchanges = methods.clone());
            config
        });
        let world = World::established_with(configs, 43);
        assert!(
            !world.hosts[A]
                .failed_children
                .contains(&Reason::Refused(NotifyType::NoProposalChosen))
        );
        world
    }
}
