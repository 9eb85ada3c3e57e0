//! Peers whose addresses change: MOBIKE (RFC 4555), and mappings of a NAT.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use headroom_ike::wire::{ExchangeType, Notify, NotifyType, Payload, emit_chain};
use headroom_ike::{Command, Config, PostQuantum, Transmit};

use crate::impostor::Impostor;
use crate::world::{A, B, World, configs};

fn mobile() -> World {
    mobile_with(|_| ())
}

/// The initiator says that it is behind a NAT.
fn mobile_behind_nat() -> World {
    mobile_with(|initiator| initiator.force_encapsulation = true)
}

fn mobile_with(change: impl Fn(&mut Config)) -> World {
    let mut configs = configs(PostQuantum::Off).map(|mut config| {
        let connection = Arc::get_mut(&mut config.connections[0]).expect("not shared yet");
        connection.mobike = true;
        config
    });
    change(&mut configs[A]);
    let mut world = World::new(configs, 34);
    world.connect(A);
    world.settle();
    world
}

/// Gives an initiator another address; the network does not know the old one any more.
fn move_initiator(world: &mut World, address: [u8; 4]) {
    let remote = SocketAddr::new(world.hosts[B].address.ip(), 4500);
    world.hosts[A].address.set_ip(address.into());
    let local = SocketAddr::from((address, 4500));
    let session = world.hosts[A].session.expect("a session");
    world.command(A, &Command::Move(session, local, remote));
}

#[test]
fn an_initiator_with_another_address_goes_on() {
    let mut world = mobile();
    let marked: Vec<_> = world.ports.iter().copied().collect();
    assert_eq!(marked, [500, 4500], "IKE_AUTH goes to the port that has NAT traversal");
    // a request is under way, and its answer goes to where nobody is
    world.rekey_child(A);
    world.in_flight.clear();
    move_initiator(&mut world, [198, 51, 100, 7]);
    assert_eq!(world.hosts[A].moved, 1, "the initiator sends from there at once");
    world.settle();
    world.check_agreement(1);
    assert_eq!(world.hosts[B].moved, 1, "the responder follows once");
    let at = world.hosts[B].remote_address.expect("it has moved");
    assert_eq!(at.ip(), IpAddr::from([198, 51, 100, 7]));
    world.rekey_ike(B);
    world.settle();
    assert_eq!(world.hosts[A].rekeyed, 1);
}

#[test]
fn an_initiator_that_moves_after_its_last_transmission_goes_on() {
    let configs = configs(PostQuantum::Off).map(|mut config| {
        let connection = Arc::get_mut(&mut config.connections[0]).expect("not shared yet");
        connection.mobike = true;
        config.timing.retransmissions = 2;
        config
    });
    let mut world = World::new(configs, 39);
    world.connect(A);
    world.settle();
    // the network of the old address is gone
    world.rekey_child(A);
    for _ in 0..2 {
        world.in_flight.clear();
        assert!(world.advance());
    }
    world.in_flight.clear();
    move_initiator(&mut world, [198, 51, 100, 7]);
    // and the first message from the new one is lost
    assert!(world.advance());
    world.lose(A);
    world.settle();
    world.check_agreement(1);
    assert_eq!((world.hosts[A].installed, world.hosts[B].moved), (2, 1));
}

#[test]
fn a_responder_sends_no_packets_to_an_address_that_does_not_answer() {
    let mut world = mobile();
    move_initiator(&mut world, [198, 51, 100, 7]);
    // its update arrives; the answer and the question for the cookie go astray
    while let Some(at) =
        world.in_flight.iter().position(|one| one.to.ip() == world.hosts[B].address.ip())
    {
        world.deliver(at, false);
    }
    assert_eq!(world.hosts[B].moved, 0);
    world.in_flight.clear();
    world.settle();
    assert_eq!(world.hosts[B].moved, 1, "the question is asked again");
}

#[test]
fn an_initiator_cannot_answer_for_an_address_from_the_one_that_its_esp_has() {
    let mut world = mobile_behind_nat();
    let session = world.hosts[B].session.expect("a session");
    let esp_from = SocketAddr::new(world.hosts[A].address.ip(), 61234);
    let of_another = SocketAddr::from(([198, 51, 100, 7], 4500));
    let payloads = [
        Payload::Notify(Notify::new(NotifyType::UpdateSaAddresses, &[])),
        // of no address: it is behind a NAT
        Payload::Notify(Notify::new(NotifyType::NatDetectionSourceIp, &[0; 20])),
    ];
    let mut inner = Vec::new();
    let first = emit_chain(&payloads, &mut inner);
    world.command(B, &Command::Follow(session, esp_from));
    let update =
        Impostor::of(&world, A).seal(ExchangeType::Informational, (first, &inner), None).remove(0);
    world.hand_over(&Transmit { from: of_another, ..update });
    // its answer and the question for the cookie
    assert_eq!(world.in_flight.len(), 2);
    world.command(B, &Command::Follow(session, esp_from));
    for _ in 0..3 {
        assert!(world.advance());
    }
    assert_eq!(world.in_flight.len(), 5, "the question is sent again");
    assert!(world.in_flight.iter().all(|one| one.to == of_another), "{:?}", world.in_flight);
    assert_eq!(world.hosts[B].moved, 0);
}

#[test]
fn an_update_that_a_rekeying_overtakes_finds_no_nat() {
    let mut world = mobile();
    let before = world.hosts[A].address.ip();
    move_initiator(&mut world, [198, 51, 100, 7]);
    let update = world.hold(A);
    // the initiator is reached at its former address still
    world.hosts[A].address.set_ip(before);
    world.rekey_ike(B);
    world.pass(B);
    world.pass(A);
    world.hosts[A].address.set_ip([198, 51, 100, 7].into());
    world.give(&update);
    world.settle();
    world.check_agreement(1);
    assert_eq!(world.hosts[B].moved, 1);
    assert!(world.hosts.iter().all(|host| !host.in_udp && host.rekeyed == 1));
}

#[test]
fn the_answer_to_an_update_that_a_rekeying_overtakes_shows_no_nat() {
    let mut world = mobile();
    move_initiator(&mut world, [198, 51, 100, 7]);
    world.pass(A);
    let answer = world.hold(B);
    // the question for the cookie, and the cookie
    world.pass(B);
    world.pass(A);
    world.rekey_ike(B);
    world.pass(B);
    world.give(&answer);
    assert_eq!((world.hosts[A].moved, world.hosts[A].in_udp), (1, false));
    world.settle();
    world.check_agreement(1);
    assert!(world.hosts.iter().all(|host| host.moved == 1 && host.rekeyed == 1));
}

#[test]
fn an_initiator_that_forbids_nats_in_place_of_detecting_them_is_followed() {
    // from port 500 in place of 4500
    let here: [u8; 12] = [192, 0, 2, 1, 192, 0, 2, 2, 1, 244, 1, 244];
    let elsewhere: [u8; 12] = [198, 51, 100, 7, 192, 0, 2, 2, 1, 244, 1, 244];
    let nat = NotifyType::UnexpectedNatDetected;
    for (addresses, refused, moved) in [(here, vec![], 1), (elsewhere, vec![nat], 0)] {
        let mut world = mobile();
        let mut impostor = Impostor::of(&world, A);
        let update = [
            Payload::Notify(Notify::new(NotifyType::UpdateSaAddresses, &[])),
            Payload::Notify(Notify::new(NotifyType::NoNatsAllowed, &addresses)),
        ];
        let answer = impostor.ask(&mut world, ExchangeType::Informational, &update);
        assert_eq!(answer.expect("an answer").notifies(), refused);
        assert_eq!(world.hosts[B].moved, moved);
    }
}

#[test]
fn who_has_no_mobike_does_not_move() {
    for both in [false, true] {
        let mut world = if both { mobile() } else { World::established(PostQuantum::Off, 35) };
        let remote = world.hosts[A].address;
        let session = world.hosts[B].session.expect("a session");
        let local = SocketAddr::from(([198, 51, 100, 8], 4500));
        let command = Command::Move(session, local, remote);
        let now = world.now;
        assert!(world.hosts[B].endpoint.command(&command, now).is_err(), "a responder stays");
        let session = world.hosts[A].session.expect("a session");
        let command = Command::Move(session, local, remote);
        assert_eq!(world.hosts[A].endpoint.command(&command, now).is_ok(), both);
    }
}

#[test]
fn a_new_mapping_of_the_nat_is_seen_in_a_sign_of_life() {
    let [mut a, mut b] = configs(PostQuantum::Off);
    for config in [&mut a, &mut b] {
        let connection = Arc::get_mut(&mut config.connections[0]).expect("not shared yet");
        connection.mobike = true;
    }
    a.timing.liveness = Some(Duration::from_secs(30));
    let mut world = World::new([a, b], 36);
    world.nat = Some((A, [198, 51, 100, 1].into()));
    world.connect(A);
    let start = world.now;
    let run = |world: &mut World, until: u64| {
        while world.now < start + Duration::from_secs(until) {
            while !world.in_flight.is_empty() {
                let datagram = world.in_flight.remove(0);
                world.hand_over(&datagram);
            }
            assert!(world.advance());
        }
    };
    run(&mut world, 100);
    assert_eq!(world.hosts[B].moved, 0);
    world.nat = Some((A, [198, 51, 100, 2].into()));
    run(&mut world, 200);
    assert_eq!(world.hosts[B].moved, 1);
    let at = world.hosts[B].remote_address.expect("it has moved");
    assert_eq!(at.ip(), IpAddr::from([198, 51, 100, 2]));
}

#[test]
fn messages_follow_esp_to_a_new_mapping_of_the_nat() {
    let [mut config_a, config_b] = configs(PostQuantum::Off);
    config_a.force_encapsulation = true;
    let mut world = World::new([config_a, config_b], 27);
    world.connect(A);
    world.settle();
    let mapped = SocketAddr::new(world.hosts[A].address.ip(), 61234);
    let [a, b] = [A, B].map(|host| world.hosts[host].session.expect("a session"));
    // a question is under way, and lost
    world.command(B, &Command::CheckLiveness(b));
    world.in_flight.clear();
    world.command(B, &Command::Follow(b, mapped));
    assert_eq!((world.hosts[B].moved, world.hosts[B].remote_address), (1, Some(mapped)));
    world.poll(B);
    assert_eq!(world.in_flight.len(), 1, "it is asked again at once");
    assert_eq!(world.in_flight[0].to, mapped);
    // a peer that is behind no NAT has no other mapping
    let elsewhere = SocketAddr::new(world.hosts[B].address.ip(), 61234);
    world.command(A, &Command::Follow(a, elsewhere));
    assert_eq!(world.hosts[A].moved, 0);
}

#[test]
fn a_peer_with_mobike_that_does_not_know_its_new_mapping_is_asked_there_too() {
    let mut world = mobile_behind_nat();
    let session = world.hosts[B].session.expect("a session");
    let mapped = SocketAddr::new(world.hosts[A].address.ip(), 61234);
    let told = SocketAddr::new(mapped.ip(), 4500);
    world.command(B, &Command::Follow(session, mapped));
    assert_eq!(world.hosts[B].moved, 0, "it says itself where it is");
    let ask = |world: &mut World| {
        world.command(B, &Command::CheckLiveness(session));
        assert_eq!(world.in_flight.remove(0).to, told);
        assert!(world.advance());
        world.in_flight.iter().map(|one| one.to).collect::<Vec<_>>()
    };
    assert_eq!(ask(&mut world), [mapped, told]);
    // one arrives: the NAT sends it on to port 4500
    world.in_flight.truncate(1);
    world.in_flight[0].to = told;
    world.settle();
    assert_eq!(world.hosts[B].endpoint.next_deadline(), None, "it has answered");
    world.command(B, &Command::Follow(session, told));
    assert_eq!(ask(&mut world), [told], "it is back");
    world.settle();
    world.check_agreement(1);
}

#[test]
fn a_mapping_that_moves_in_the_middle_of_ike_auth_is_followed() {
    let [mut config_a, config_b] = configs(PostQuantum::Required);
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
