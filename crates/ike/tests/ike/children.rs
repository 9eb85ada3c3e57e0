//! Making and deleting CHILD SAs and IKE SAs: alone, and against what the other end does meanwhile.

use std::sync::Arc;
use std::time::Duration;

use headroom_ike::wire::{Delete, ExchangeType, NotifyType, Payload};
use headroom_ike::{PostQuantum, Reason};
use headroom_suite::{Aead, Suite};

use crate::impostor::Impostor;
use crate::script::{either, plain, with_ml_kem};
use crate::world::{A, B, World, configs};

// Making.

#[test]
fn a_second_child_is_made() {
    for (make, messages) in [(plain as fn() -> World, 2), (with_ml_kem, 5)] {
        either(make, |mut world, host| {
            let before = world.sent;
            world.create_child(host);
            world.settle();
            assert_eq!(world.sent - before, messages);
            world.check_children(2);
        });
    }
}

#[test]
fn the_same_child_is_made_by_both_ends_at_once() {
    for make in [plain, with_ml_kem] {
        let mut world = make();
        world.create_child(A);
        world.create_child(B);
        world.settle();
        world.check_children(3);
    }
}

#[test]
fn a_child_is_made_after_the_ike_sa_was_rekeyed_meanwhile() {
    for make in [plain, with_ml_kem] {
        either(make, |mut world, host| {
            world.create_child(host);
            world.rekey_ike(1 - host);
            world.pass(host);
            world.pass(1 - host);
            world.settle();
            world.check_children(2);
            for host in &world.hosts {
                assert_eq!((host.rekeyed, &host.failed_children[..]), (1, &[][..]));
            }
        });
    }
}

#[test]
fn a_child_that_is_deleted_before_the_answer_that_makes_it_is_not_made() {
    for make in [plain, with_ml_kem] {
        either(make, |mut world, host| {
            world.create_child(host);
            while world.hosts[1 - host].installed == 1 {
                world.pass(host);
                if world.hosts[1 - host].installed == 1 {
                    world.pass(1 - host);
                }
            }
            let answer = world.hold(1 - host);
            let new = world.newest(1 - host);
            world.delete(1 - host, new);
            world.pass(1 - host);
            world.give(&answer);
            world.settle();
            world.check_children(1);
            assert_eq!(world.hosts[host].failed_children, [Reason::Peer]);
        });
    }
}

#[test]
fn a_child_that_is_rekeyed_before_the_answer_that_makes_it_is_rekeyed_later() {
    for make in [plain, with_ml_kem] {
        either(make, |mut world, host| {
            world.create_child(host);
            while world.hosts[1 - host].installed == 1 {
                world.pass(host);
                if world.hosts[1 - host].installed == 1 {
                    world.pass(1 - host);
                }
            }
            let answer = world.hold(1 - host);
            let new = world.newest(1 - host);
            world.command(1 - host, &headroom_ike::Command::RekeyChild(new));
            world.pass(1 - host);
            world.pass(host);
            world.give(&answer);
            world.settle();
            world.check_children(2);
            assert_eq!(world.hosts[1 - host].failed_children, []);
        });
    }
}

#[test]
fn a_refusal_that_comes_while_the_ike_sa_is_closed_leaves_nothing_due_for_ever() {
    let mut world = plain();
    world.create_child(A);
    // B refuses for now, for it rekeys the IKE SA
    world.rekey_ike(B);
    world.lose(B);
    world.close(A);
    world.pass(A);
    world.pass(B);
    // nobody answers the deletion
    let end = world.now + Duration::from_secs(60);
    let mut polls = 0;
    while let Some(due) = world.hosts[A].endpoint.next_deadline().filter(|due| *due < end) {
        world.in_flight.clear();
        world.now = world.now.max(due);
        world.poll(A);
        polls += 1;
        assert!(polls < 20, "what is due is done");
    }
    assert!(polls > 5, "the deletion is sent again");
}

#[test]
fn no_common_algorithms_of_a_child_leave_the_ike_sa_alone() {
    let [mut config_a, config_b] = configs(PostQuantum::Off);
    let connection = Arc::get_mut(&mut config_a.connections[0]).expect("ours alone");
    let child = Arc::get_mut(&mut connection.children[0]).expect("ours alone");
    child.proposals.iter_mut().for_each(|one| one.suites = vec![Suite::Aead(Aead::Aes192Gcm)]);
    let mut world = World::new([config_a, config_b], 60);
    world.connect(A);
    world.settle();
    let refused = Reason::Refused(NotifyType::NoProposalChosen);
    assert_eq!(world.hosts[A].failed_children, std::slice::from_ref(&refused));
    assert_eq!(world.hosts[B].failed_children, [Reason::NoProposal]);
    world.create_child(A);
    world.settle();
    assert_eq!(world.hosts[A].failed_children, [refused.clone(), refused]);
    assert!(world.hosts.iter().all(|host| host.closed.is_empty() && host.children.is_empty()));
}

#[test]
fn no_child_is_made_before_the_peer_is_authenticated() {
    let mut world = World::new(configs(PostQuantum::Off), 61);
    world.connect(A);
    world.pass(A);
    world.pass(B);
    world.lose(A);
    let mut impostor = Impostor::of(&world, A);
    impostor.next_id(|_| 1);
    for payloads in [vec![], vec![Payload::Delete(Delete::Ike)]] {
        for exchange in
            [ExchangeType::CreateChildSa, ExchangeType::IkeFollowupKe, ExchangeType::Informational]
        {
            assert!(impostor.ask(&mut world, exchange, &payloads).is_none(), "{exchange}");
        }
    }
    assert_eq!(world.hosts[B].installed, 0);
    assert_eq!(world.hosts[B].endpoint.half_open(), 1);
    world.now += Duration::from_secs(31);
    world.advance();
    assert_eq!(world.hosts[B].endpoint.sessions(), 0, "given up");
}

// Deleting CHILD SAs.

#[test]
fn one_end_deletes() {
    either(plain, |mut world, host| {
        let before = world.sent;
        world.close_child(host);
        world.ends_without_child();
        assert_eq!(world.sent - before, 2);
    });
}

#[test]
fn both_ends_delete() {
    for lost in [None, Some(A), Some(B)] {
        let mut world = plain();
        let before = world.sent;
        world.close_child(A);
        world.close_child(B);
        match lost {
            Some(host) => world.lose(host),
            None => {
                world.pass(A);
                world.pass(B);
            }
        }
        world.ends_without_child();
        assert_eq!(world.sent - before, if lost.is_some() { 5 } else { 4 });
    }
}

#[test]
fn a_deletion_is_answered_again_until_the_answer_arrives() {
    either(plain, |mut world, host| {
        world.close_child(host);
        for _ in 0..3 {
            world.pass(host);
            world.lose(1 - host);
            while world.is_silent(host) {
                world.advance();
            }
        }
        world.ends_without_child();
    });
}

#[test]
fn one_deletes_while_the_other_rekeys_the_ike_sa() {
    for make in [plain, with_ml_kem] {
        either(make, |mut world, host| {
            world.close_child(host);
            world.rekey_ike(1 - host);
            world.pass(host);
            world.pass(1 - host);
            world.ends_without_child();
            assert_eq!(world.hosts.each_ref().map(|host| host.rekeyed), [1, 1]);
        });
    }
}

#[test]
fn one_deletes_while_the_other_deletes_the_ike_sa() {
    either(plain, |mut world, host| {
        world.close_child(host);
        world.close(1 - host);
        world.pass(host);
        world.pass(1 - host);
        world.settle();
        world.check_closed();
    });
}

// Deleting IKE SAs.

#[test]
fn one_end_deletes_the_ike_sa() {
    either(plain, |mut world, host| {
        let before = world.sent;
        world.close(host);
        world.settle();
        world.check_closed();
        assert_eq!(world.sent - before, 2);
        let reasons = [host, 1 - host].map(|host| world.hosts[host].closed[0].clone());
        assert_eq!(reasons, [Reason::Command, Reason::Peer]);
    });
}

#[test]
fn both_ends_delete_the_ike_sa() {
    let mut world = plain();
    world.close(A);
    world.close(B);
    world.pass(A);
    world.pass(B);
    world.settle();
    world.check_closed();
    assert_eq!(
        world.hosts.each_ref().map(|host| host.closed[0].clone()),
        [Reason::Command, Reason::Command]
    );
}
