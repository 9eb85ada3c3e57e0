//! A CHILD SA for each resource, such as a queue (RFC 9611).

use std::sync::Arc;

use headroom_ike::wire::NotifyType;
use headroom_ike::{ChildSa, Command, Config, PostQuantum, Reason};

use crate::world::{A, B, World, configs};

/// Two hosts that have so many resources.
fn with_resources(numbers: [u32; 2]) -> [Config; 2] {
    let mut numbers = numbers.into_iter();
    configs(PostQuantum::Off).map(|mut config| {
        let connection = Arc::get_mut(&mut config.connections[0]).expect("not shared yet");
        let child = Arc::get_mut(&mut connection.children[0]).expect("not shared yet");
        child.per_resource = numbers.next().expect("two ends");
        config
    })
}

fn established(numbers: [u32; 2], seed: u64) -> World {
    let mut world = World::new(with_resources(numbers), seed);
    world.most = usize::MAX;
    // a responder sends on a new CHILD SA before its initiator has it
    world.closing = true;
    world.connect(A);
    world.settle();
    world
}

/// Returns the resources of a host's CHILD SAs, and checks what must hold of them.
fn resources(world: &World, host: usize, of: u32) -> Vec<Option<u32>> {
    let children: Vec<&ChildSa> = world.hosts[host].children.values().collect();
    for child in &children {
        assert_eq!((&child.local, &child.remote), (&children[0].local, &children[0].remote));
        if let Some(number) = child.resource {
            assert_eq!(child.inbound.spi % of, number, "queues are told apart by SPI");
        }
    }
    let mut resources: Vec<_> = children.iter().map(|child| child.resource).collect();
    resources.sort_unstable();
    resources
}

fn all_of(number: u32) -> Vec<Option<u32>> {
    [None].into_iter().chain((0..number).map(Some)).collect()
}

#[test]
fn each_resource_has_a_child_sa_beside_the_first() {
    for number in [1, 4, 16] {
        let world = established([number; 2], 80);
        world.check_children(number as usize + 1);
        for host in [A, B] {
            assert_eq!(resources(&world, host, number), all_of(number));
            assert!(world.hosts[host].failed_children.is_empty());
        }
    }
}

#[test]
fn a_peer_that_does_not_have_it_has_one_child_sa() {
    for numbers in [[4, 0], [0, 4], [0, 0]] {
        let world = established(numbers, 81);
        world.check_children(1);
        assert!(world.hosts.iter().all(|host| host.failed_children.is_empty()));
    }
}

#[test]
fn the_initiator_makes_no_more_than_the_responder_wants() {
    let world = established([8, 2], 82);
    world.check_children(3);
    let refused = Reason::Refused(NotifyType::TsMaxQueue);
    assert_eq!(world.hosts[A].failed_children, [refused], "it asks once more and not again");
    assert_eq!(resources(&world, B, 2), all_of(2));
    let world = established([2, 8], 83);
    world.check_children(3);
    assert!(world.hosts[A].failed_children.is_empty());
}

#[test]
fn rekeying_keeps_what_a_child_sa_is_for() {
    let mut world = established([3; 2], 84);
    for host in [A, B] {
        let all: Vec<_> = world.hosts[host].children.keys().copied().collect();
        for child in all {
            world.command(host, &Command::RekeyChild(child));
            world.settle();
        }
        world.rekey_ike(host);
        world.settle();
        world.check_children(4);
        assert_eq!(resources(&world, A, 3), all_of(3));
        assert_eq!(resources(&world, B, 3), all_of(3));
    }
    assert!(world.hosts.iter().all(|host| host.installed == 4 + 8));
}

#[test]
fn as_many_as_the_limit_of_child_sas_are_rekeyed_and_more_are_made() {
    for number in [31, 40] {
        let mut world = established([number; 2], 87);
        for host in [A, B] {
            assert!(world.hosts[host].failed_children.is_empty(), "{number}");
            world.rekey_child(host);
            world.settle();
            world.check_children(number as usize + 1);
            assert_eq!(resources(&world, host, number), all_of(number));
        }
    }
}

#[test]
fn a_new_ike_sa_has_them_all_again() {
    let mut world = established([3; 2], 85);
    let session = world.hosts[A].session.expect("a session");
    world.command(A, &Command::Reauthenticate(session));
    world.settle();
    assert_eq!(world.hosts[A].closed, [Reason::Reauthenticated]);
    world.check_children(4);
    assert_eq!(resources(&world, A, 3), all_of(3));
    assert_eq!(resources(&world, B, 3), all_of(3));
}

#[test]
fn a_lost_datagram_is_sent_again() {
    for lost in 0..16 {
        let mut world = World::new(with_resources([3; 2]), 86);
        (world.most, world.closing) = (usize::MAX, true);
        world.connect(A);
        loop {
            if world.sent > lost {
                world.in_flight.pop();
                break;
            }
            match world.in_flight.is_empty() {
                true if !world.advance() => break,
                true => {}
                false => world.deliver(0, false),
            }
        }
        world.settle();
        world.check_children(4);
        assert_eq!(resources(&world, A, 3), all_of(3));
    }
}
