//! Message IDs are never used up: an IKE SA is rekeyed after a number of requests, and deleted if
//! that does not succeed (RFC 7296 §2.2).

use std::sync::Arc;

use headroom_ike::crypto::Method;
use headroom_ike::{Command, PostQuantum, Reason};

use crate::world::{A, B, World, configs};

const LIMIT: u32 = 20;

/// Two hosts, of which these limit requests.
fn limited(hosts: &[usize]) -> World {
    let mut configs = configs(PostQuantum::Off);
    hosts.iter().for_each(|&host| configs[host].limits.requests = LIMIT);
    World::established_with(configs, 71)
}

/// Makes a host ask for a sign of life, and returns the ID of its next request.
fn ask(world: &mut World, host: usize) -> u32 {
    let session = world.hosts[host].session.expect("a session");
    world.command(host, &Command::CheckLiveness(session));
    world.settle();
    world.hosts[host].next_request
}

#[test]
fn an_ike_sa_is_rekeyed_after_many_requests_of_either_end() {
    for (limits, asks) in [(A, A), (A, B), (B, A), (B, B)] {
        let mut world = limited(&[limits]);
        let ids: Vec<u32> = (0..5 * LIMIT).map(|_| ask(&mut world, asks)).collect();
        assert!(ids.iter().all(|id| *id <= LIMIT + 2), "{ids:?}");
        assert_eq!(world.hosts.each_ref().map(|host| host.rekeyed), [5; 2]);
        world.check_agreement(1);
    }
}

#[test]
fn both_ends_may_notice_it_at_once() {
    let mut world = limited(&[A, B]);
    for _ in 0..3 * LIMIT {
        for host in [A, B] {
            let session = world.hosts[host].session.expect("a session");
            world.command(host, &Command::CheckLiveness(session));
        }
        world.settle();
    }
    assert!(world.hosts.iter().all(|host| host.rekeyed >= 2 && host.next_request <= LIMIT + 2));
    world.check_agreement(1);
}

#[test]
fn an_ike_sa_that_cannot_be_rekeyed_ends_before_its_ids_repeat() {
    let mut world = limited(&[A]);
    // from now on B takes no IKE SA of A's algorithms
    let [_, mut refusing] = configs(PostQuantum::Off);
    let connection = Arc::get_mut(&mut refusing.connections[0]).expect("ours alone");
    connection.ike.iter_mut().for_each(|one| one.key_exchanges = vec![Method::MlKem512]);
    world.hosts[B].endpoint.reconfigure(refusing.connections);
    world.closing = true;
    let session = world.hosts[A].session.expect("a session");
    let mut highest = 0;
    for _ in 0..4 * LIMIT {
        world.command(A, &Command::CheckLiveness(session));
        for _ in 0..4 {
            while !world.in_flight.is_empty() {
                world.deliver(0, false);
            }
            world.advance();
        }
        highest = highest.max(world.hosts[A].next_request);
    }
    world.settle();
    assert_eq!(world.hosts[A].closed, [Reason::MessageIds]);
    assert_eq!(world.hosts[B].closed, [Reason::Peer]);
    assert!((2 * LIMIT..2 * LIMIT + 3).contains(&highest), "{highest}");
    world.check_closed();
}
