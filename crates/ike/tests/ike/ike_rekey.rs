//! Rekeying of IKE SAs, alone and against what the other end does meanwhile (RFC 7296 §2.8.1,
//! §2.25.2): with and without packets between all messages, with each nonce as the lowest.

use std::sync::Arc;

use headroom_ike::PostQuantum;
use headroom_ike::crypto::Method;

use crate::script::{Crossing, crossing, either, mixed, plain, with_ml_kem};
use crate::world::{A, B, World, configs};

// One end rekeys.

#[test]
fn one_end_rekeys() {
    either(plain, |mut world, host| {
        let before = world.sent;
        world.rekey_ike(host);
        world.pass(host);
        world.pass(1 - host);
        world.ends_with_ike_of(host, 0xc1, 0xc2);
        assert_eq!(world.hosts.each_ref().map(|host| host.rekeyed), [1, 1]);
        // CREATE_CHILD_SA, the deletion of the old one, and two questions for the test
        assert_eq!(world.sent - before, 4 + 4);
    });
}

#[test]
fn one_end_rekeys_with_an_additional_key_exchange() {
    either(with_ml_kem, |mut world, host| {
        world.rekey_ike(host);
        world.pass(host);
        world.pass(1 - host);
        assert_eq!(world.hosts.each_ref().map(|host| host.rekeyed), [0, 0]);
        world.pass(host);
        world.pass(1 - host);
        world.ends_with_ike_of(host, 0xc1, 0xc2);
        assert_eq!(world.hosts[host].post_quantum, Some(true));
    });
}

#[test]
fn one_end_rekeys_with_a_key_exchange_that_the_other_refuses() {
    either(refusing(PostQuantum::Off), |mut world, host| {
        let before = world.sent;
        world.rekey_ike(host);
        world.ends_with_ike_of(host, 0xc1, 0xc2);
        assert_eq!(world.sent - before, 2 + 4 + 4, "one round trip more");
    });
}

#[test]
fn one_end_rekeys_with_refused_and_additional_key_exchanges() {
    either(refusing(PostQuantum::Required), |mut world, host| {
        world.rekey_ike(host);
        world.ends_with_ike_of(host, 0xc1, 0xc2);
        assert_eq!(world.hosts[host].post_quantum, Some(true));
    });
}

#[test]
fn all_messages_of_a_rekeying_are_lost_once() {
    either(with_ml_kem, |mut world, host| {
        world.rekey_ike(host);
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
        world.ends_with_ike_of(host, 0xc1, 0xc2);
    });
}

// Both ends rekey.

#[test]
fn both_rekey() {
    crossing(plain, World::rekey_ike, |mut it| {
        both_arrive(&mut it);
        both_arrive(&mut it);
        it.ends_with_winners_ike();
    });
}

#[test]
fn both_rekey_with_an_additional_key_exchange() {
    crossing(with_ml_kem, World::rekey_ike, |mut it| {
        both_arrive(&mut it);
        both_arrive(&mut it);
        it.ends_with_winners_ike();
    });
}

#[test]
fn both_rekey_and_one_has_an_additional_key_exchange() {
    crossing(mixed, World::rekey_ike, |mut it| {
        both_arrive(&mut it);
        both_arrive(&mut it);
        it.ends_with_winners_ike();
    });
}

#[test]
fn both_rekey_with_key_exchanges_that_are_refused() {
    crossing(refusing(PostQuantum::Off), World::rekey_ike, |mut it| {
        both_arrive(&mut it);
        it.expect_requests();
        both_arrive(&mut it);
        it.expect_answers();
        both_arrive(&mut it);
        both_arrive(&mut it);
        it.ends_with_winners_ike();
    });
}

#[test]
fn both_rekey_with_refused_key_exchanges_and_one_asks_again_late() {
    crossing(refusing(PostQuantum::Off), World::rekey_ike, |mut it| {
        both_arrive(&mut it);
        it.expect_requests();
        both_arrive(&mut it);
        it.expect_answers();
        let late = it.world.hold(A);
        it.world.pass(B);
        it.world.pass(A);
        let deletion = it.world.hold(B);
        it.world.give(&late);
        it.world.give(&deletion);
        it.ends_with_ike_of(B);
    });
}

#[test]
fn both_rekey_and_an_answer_is_late() {
    for make in [plain, with_ml_kem] {
        crossing(make, World::rekey_ike, |mut it| {
            both_arrive(&mut it);
            let late = it.world.hold(B);
            it.world.pass(A);
            // B deletes one of them, or continues with IKE_FOLLOWUP_KE
            while !it.world.is_silent(B) {
                it.world.pass(B);
                if !it.world.is_silent(A) {
                    it.world.pass(A);
                }
            }
            it.world.give(&late);
            it.ends_with_winners_ike();
        });
    }
}

#[test]
fn both_rekey_and_a_request_is_lost() {
    crossing(plain, World::rekey_ike, |mut it| {
        it.world.lose(A);
        it.world.pass(B);
        it.world.pass(A);
        it.world.pass(B);
        it.world.pass(A);
        it.ends_with_ike_of(B);
        assert_eq!(it.world.hosts.each_ref().map(|host| host.rekeyed), [1, 1]);
    });
}

#[test]
fn both_rekey_and_a_request_is_late() {
    for refused_before_deleted in [false, true] {
        crossing(plain, World::rekey_ike, |mut it| {
            let late = it.world.hold(A);
            it.world.pass(B);
            it.world.pass(A);
            // B knows of no collision: it deletes the old one
            let deletion = it.world.hold(B);
            it.world.give(&late);
            let refusal = it.world.hold(B);
            match refused_before_deleted {
                true => [refusal, deletion],
                false => [deletion, refusal],
            }
            .iter()
            .for_each(|held| it.world.give(held));
            it.ends_with_ike_of(B);
            assert_eq!(it.world.hosts.each_ref().map(|host| host.rekeyed), [1, 1], "no more");
        });
    }
}

#[test]
fn both_rekey_with_an_additional_key_exchange_and_a_request_is_late() {
    for after_followup in [false, true] {
        crossing(with_ml_kem, World::rekey_ike, |mut it| {
            let late = it.world.hold(A);
            it.world.pass(B);
            it.world.pass(A);
            if after_followup {
                it.world.pass(B);
                it.world.pass(A);
            }
            it.world.give(&late);
            match after_followup {
                true => it.ends_with_ike_of(B),
                false => it.ends_with_winners_ike(),
            }
        });
    }
}

// One end rekeys, the other deletes.

#[test]
fn one_rekeys_what_the_other_deletes() {
    for make in [plain, with_ml_kem] {
        either(make, |mut world, host| {
            world.rekey_ike(host);
            world.close(1 - host);
            world.pass(host);
            world.pass(1 - host);
            world.settle();
            world.check_closed();
        });
    }
}

#[test]
fn one_rekeys_what_the_other_deletes_between_its_key_exchanges() {
    either(with_ml_kem, |mut world, host| {
        world.rekey_ike(host);
        world.pass(host);
        world.pass(1 - host);
        world.close(1 - host);
        world.pass(host);
        world.settle();
        world.check_closed();
    });
}

#[test]
fn one_rekeys_what_the_other_deletes_and_the_deletion_is_lost() {
    for make in [plain, with_ml_kem] {
        either(make, |mut world, host| {
            world.rekey_ike(host);
            world.close(1 - host);
            world.lose(1 - host);
            world.pass(host);
            world.pass(1 - host);
            world.settle();
            world.check_closed();
        });
    }
}

#[test]
fn one_rekeys_what_the_other_deletes_and_the_rekeying_is_lost() {
    for make in [plain, with_ml_kem] {
        either(make, |mut world, host| {
            world.rekey_ike(host);
            world.close(1 - host);
            world.lose(host);
            world.pass(1 - host);
            world.settle();
            world.check_closed();
        });
    }
}

/// The oldest messages of both hosts arrive.
fn both_arrive(it: &mut Crossing) {
    let [a, b] = [it.world.hold(A), it.world.hold(B)];
    it.world.give(&a);
    it.world.give(&b);
}

/// Two hosts whose first key exchange the other does not want: P-384 is what both have.
fn refusing(policy: PostQuantum) -> impl Fn() -> World {
    move || {
        let mut first = [Method::Curve25519, Method::Ecp256].into_iter();
        let configs = configs(policy).map(|mut config| {
            let connection = Arc::get_mut(&mut config.connections[0]).expect("ours alone");
            let methods = vec![first.next().expect("two hosts"), Method::Ecp384];
            connection.ike.iter_mut().for_each(|one| one.key_exchanges = methods.clone());
            config
        });
        World::established_with(configs, 44)
    }
}
