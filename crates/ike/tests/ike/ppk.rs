//! Post-quantum pre-shared keys in IKE_INTERMEDIATE (RFC 9867): which exchange is used, what the keys
//! protect, and what a hostile initiator can cause.

use std::sync::Arc;

use headroom_ike::crypto::{Nonces, Prf};
use headroom_ike::wire::{ExchangeType, Message, Nonce, Notify, NotifyType, Payload};
use headroom_ike::{Config, PostQuantum, Ppk, PpkExchange, Reason, UsedPpk};
use headroom_suite::Key;

use crate::impostor::Impostor;
use crate::world::{A, B, World, configs};

use PpkExchange::{Auth, Either, Intermediate};

const KEY: [u8; 32] = [7; 32];

fn ppk(exchange: PpkExchange, is_required: bool) -> Option<Ppk> {
    Some(Ppk { id: b"one".to_vec(), key: Key::from_bytes(&KEY), is_required, exchange })
}

fn with_ppks(policy: PostQuantum, ppks: [Option<Ppk>; 2]) -> [Config; 2] {
    let mut ppks = ppks.into_iter();
    configs(policy).map(|mut config| {
        let connection = Arc::get_mut(&mut config.connections[0]).expect("not shared yet");
        connection.ppk = ppks.next().expect("two ends");
        config
    })
}

/// Two hosts that have the same key.
fn same(policy: PostQuantum) -> [Config; 2] {
    with_ppks(policy, [ppk(Either, true), ppk(Either, true)])
}

#[test]
fn the_key_is_used_in_the_exchange_that_both_permit() {
    let refused = Reason::Refused(NotifyType::AuthenticationFailed);
    let table = [
        ((Either, true), (Either, true), Ok(Some(UsedPpk::All))),
        ((Intermediate, true), (Either, false), Ok(Some(UsedPpk::All))),
        ((Either, false), (Intermediate, true), Ok(Some(UsedPpk::All))),
        ((Either, true), (Auth, true), Ok(Some(UsedPpk::AllButFirst))),
        ((Auth, true), (Either, true), Ok(Some(UsedPpk::AllButFirst))),
        ((Intermediate, false), (Auth, false), Ok(None)),
        ((Auth, false), (Intermediate, false), Ok(None)),
        ((Intermediate, true), (Auth, false), Err(Reason::NoPpk)),
        ((Auth, false), (Intermediate, true), Err(refused)),
    ];
    for policy in [PostQuantum::Off, PostQuantum::Required] {
        for (row, (a, b, expected)) in table.iter().enumerate() {
            let mut world = World::new(with_ppks(policy, [ppk(a.0, a.1), ppk(b.0, b.1)]), 60);
            world.connect(A);
            world.settle();
            match expected {
                Ok(used) => {
                    world.check_agreement(1);
                    let both = world.hosts.each_ref().map(|host| host.ppk);
                    assert_eq!(both, [*used; 2], "row {row} {policy:?}");
                }
                Err(reason) => {
                    assert_eq!(
                        world.hosts[A].closed,
                        std::slice::from_ref(reason),
                        "row {row} {policy:?}"
                    );
                    assert!(world.hosts.iter().all(|host| host.installed == 0));
                }
            }
        }
    }
}

#[test]
fn rekeying_goes_on_with_keys_that_have_it() {
    let mut world = World::established_with(same(PostQuantum::Required), 61);
    for host in [A, B] {
        world.rekey_ike(host);
        world.settle();
        world.rekey_child(host);
        world.settle();
    }
    world.check_agreement(1);
}

#[test]
fn the_last_key_exchange_has_room_for_it_and_without_one_it_costs_a_round_trip() {
    for (policy, datagrams) in [(PostQuantum::Required, 2 + 3 + 2), (PostQuantum::Off, 2 + 2 + 2)] {
        let world = World::established_with(same(policy), 62);
        assert_eq!(world.sent, datagrams, "{policy:?}");
    }
}

#[test]
fn a_lost_datagram_of_the_exchange_is_sent_again() {
    for lost in 0..7 {
        let mut world = World::new(same(PostQuantum::Required), 63);
        world.connect(A);
        while !world.hosts[A].ready {
            match world.in_flight.is_empty() {
                true => drop(world.advance()),
                false if world.sent > lost => {
                    world.in_flight.pop();
                    break;
                }
                false => world.deliver(0, false),
            }
        }
        world.settle();
        world.check_agreement(1);
        assert_eq!(world.hosts[A].ppk, Some(UsedPpk::All));
    }
}

fn nonce(datagram: &[u8]) -> Vec<u8> {
    let message = Message::parse(datagram).expect("IKE_SA_INIT");
    let nonce = message.payloads.iter().find_map(|payload| match payload {
        Payload::Nonce(Nonce(nonce)) => Some(nonce.to_vec()),
        _ => None,
    });
    nonce.expect("a nonce")
}

#[test]
fn all_keys_from_ike_auth_on_are_derived_with_it() {
    let mut world = World::new(same(PostQuantum::Off), 64);
    world.connect(A);
    let initiator = nonce(&world.in_flight[0].datagram);
    world.deliver(0, false);
    let responder = nonce(&world.in_flight[0].datagram);
    world.settle();
    for host in &world.hosts {
        let [(spis, before), (same, after)] = &host.keys[..] else { panic!("{}", host.keys.len()) };
        assert_eq!(spis, same);
        let prf: Prf = before.prf;
        let skeyseed = prf.plus(&KEY, &[before.sk_d.as_bytes()], prf.output_len());
        let spis = [spis.initiator.to_be_bytes(), spis.responder.to_be_bytes()].concat();
        let parts = [&after.sk_d, &after.sk_ei, &after.sk_er, &after.sk_pi, &after.sk_pr];
        let parts = parts.map(Key::as_bytes).concat();
        let stream = prf.plus(skeyseed.as_bytes(), &[&initiator, &responder, &spis], parts.len());
        assert_eq!(stream.as_bytes(), parts);
    }
}

#[test]
fn another_key_of_the_same_name_is_noticed_before_ike_auth() {
    let other = |is_required| {
        let (id, key) = (b"one".to_vec(), Key::from_bytes(&[8; 32]));
        Some(Ppk { id, key, is_required, exchange: Either })
    };
    let refused = Reason::Refused(NotifyType::AuthenticationFailed);
    for (a, b, expected) in [
        (false, false, None),
        (true, false, Some(Reason::NoPpk)),
        (false, true, Some(refused.clone())),
    ] {
        let configs = with_ppks(PostQuantum::Required, [ppk(Either, a), other(b)]);
        let mut world = World::new(configs, 65);
        world.connect(A);
        world.settle();
        match expected {
            None => {
                world.check_agreement(1);
                assert_eq!(world.hosts.each_ref().map(|host| host.ppk), [None; 2]);
            }
            Some(reason) => assert_eq!(world.hosts[A].closed, [reason]),
        }
    }
}

#[test]
fn the_key_of_another_connection_is_not_enough() {
    let [config_a, mut config_b] = same(PostQuantum::Off);
    // the key is one of B's, but for a peer of another name
    let [_, mut own] = with_ppks(PostQuantum::Off, [None, None]);
    let mut theirs = config_b.connections.remove(0);
    let changed = Arc::get_mut(&mut theirs).expect("not shared yet");
    changed.name = "another".to_owned();
    changed.remote = Some(headroom_ike::Identity::from_text("another.example"));
    own.connections.push(theirs);
    let mut world = World::new([config_a, own], 66);
    world.connect(A);
    world.settle();
    assert_eq!(world.hosts[B].closed, [Reason::OtherPpk]);
    assert_eq!(world.hosts[A].closed, [Reason::Refused(NotifyType::AuthenticationFailed)]);
}

/// Delivers IKE_SA_INIT, takes the initiator's next request off the network, and sends another.
fn ask_instead(configs: [Config; 2], payloads: &[Payload<'_>]) -> (World, Option<Vec<NotifyType>>) {
    let mut world = World::new(configs, 67);
    world.connect(A);
    world.deliver(0, false);
    world.deliver(0, false);
    world.in_flight.clear();
    let mut impostor = Impostor::of(&world, A);
    impostor.next_id(|_| 1);
    let answer = impostor.ask(&mut world, ExchangeType::IkeIntermediate, payloads);
    (world, answer.map(|answer| answer.notifies()))
}

fn offer(data: &[u8]) -> Payload<'_> {
    Payload::Notify(Notify::new(NotifyType::PpkIdentityKey, data))
}

#[test]
fn what_a_hostile_initiator_offers_makes_no_key() {
    let hostile: [&[u8]; 6] =
        [b"", b"\x02", b"\x02one", &[0; 8], &[2; 3000], b"\x01one\0\0\0\0\0\0\0\0"];
    for data in hostile {
        // required: refused; not required: nothing is agreed on
        let (world, answer) = ask_instead(same(PostQuantum::Off), &[offer(data)]);
        assert_eq!(answer, Some(vec![NotifyType::AuthenticationFailed]), "{data:?}");
        assert_eq!(world.hosts[B].closed, [Reason::NoPpk]);
        assert_eq!(world.hosts[B].endpoint.counters().authentication_failures, 1);
        let lax = with_ppks(PostQuantum::Off, [ppk(Either, false), ppk(Either, false)]);
        let (world, answer) = ask_instead(lax, &[offer(data)]);
        assert_eq!(answer, Some(vec![]), "{data:?}");
        assert!(world.hosts[B].closed.is_empty());
    }
}

#[test]
fn few_of_many_offered_keys_are_looked_at() {
    let wrong = b"\x02one\0\0\0\0\0\0\0\0";
    let many = vec![offer(wrong); 64];
    let (world, answer) = ask_instead(same(PostQuantum::Off), &many);
    assert_eq!(answer, Some(vec![NotifyType::AuthenticationFailed]));
    assert!(matches!(world.hosts[B].closed[..], [Reason::Authentication(_)]), "a guess");
    assert_eq!(world.hosts[B].endpoint.counters().authentication_failures, 1);
    // the right one behind them is not found any more
    let lax = || with_ppks(PostQuantum::Off, [ppk(Either, false), ppk(Either, false)]);
    for (before, found) in [(7, true), (8, false)] {
        let mut world = World::new(lax(), 68);
        world.connect(A);
        let initiator = nonce(&world.in_flight[0].datagram);
        world.deliver(0, false);
        let responder = nonce(&world.in_flight[0].datagram);
        world.deliver(0, false);
        world.in_flight.clear();
        let (spis, keys) = world.hosts[A].keys.last().expect("keys");
        let nonces = Nonces { initiator: &initiator, responder: &responder };
        let spis = [spis.initiator.to_be_bytes(), spis.responder.to_be_bytes()].concat();
        let proof = keys.prf.compute(&KEY, &[nonces.initiator, nonces.responder, &spis]);
        let right = [b"\x02one", &proof.as_bytes()[..8]].concat();
        let mut offers = vec![offer(wrong); before];
        offers.push(offer(&right));
        let mut impostor = Impostor::of(&world, A);
        impostor.next_id(|_| 1);
        let answer = impostor.ask(&mut world, ExchangeType::IkeIntermediate, &offers);
        let expected = if found { vec![NotifyType::PpkIdentity] } else { vec![] };
        assert_eq!(answer.map(|answer| answer.notifies()), Some(expected), "{before}");
    }
}

#[test]
fn it_is_not_taken_before_the_last_key_exchange_nor_where_it_was_not_agreed_on() {
    let data = b"\x02one\0\0\0\0\0\0\0\0";
    // instead of ML-KEM
    let (world, answer) = ask_instead(same(PostQuantum::Required), &[offer(data)]);
    assert_eq!(answer, Some(vec![NotifyType::InvalidSyntax]));
    assert!(matches!(world.hosts[B].closed[..], [Reason::Protocol(_)]));
    // an exchange for nothing
    let none = with_ppks(PostQuantum::Off, [None, None]);
    let (world, answer) = ask_instead(none, &[offer(data)]);
    assert_eq!(answer, Some(vec![NotifyType::InvalidSyntax]));
    assert!(matches!(world.hosts[B].closed[..], [Reason::Protocol(_)]));
    // twice
    let lax = with_ppks(PostQuantum::Off, [ppk(Either, false), ppk(Either, false)]);
    let (mut world, _) = ask_instead(lax, &[offer(data)]);
    let mut impostor = Impostor::of(&world, A);
    impostor.next_id(|_| 2);
    let again = impostor.ask(&mut world, ExchangeType::IkeIntermediate, &[offer(data)]);
    assert_eq!(again.map(|answer| answer.notifies()), Some(vec![NotifyType::InvalidSyntax]));
}
