//! Reauthentication: a new IKE SA with its CHILD SAs takes the place of another, and no packet is lost.

use std::sync::Arc;
use std::time::Duration;

use headroom_ike::wire::{ExchangeType, Notify, NotifyType, Payload};
use headroom_ike::{Auth, Command, Config, PostQuantum, Reason};
use headroom_suite::Key;
use rand::rngs::ChaCha12Rng;
use rand::{RngExt, SeedableRng};

use crate::impostor::Impostor;
use crate::setup::road_warrior;
use crate::world::{A, B, World, configs};

const HOUR: Duration = Duration::from_secs(3600);

fn reauthenticate(world: &mut World, host: usize) {
    let session = world.hosts[host].session.expect("a session");
    world.command(host, &Command::Reauthenticate(session));
}

fn established(configs: [Config; 2], seed: u64) -> World {
    let mut world = World::established_with(configs, seed);
    world.oldest_sends = true;
    world
}

/// Changes how long authentications of both hosts last.
fn lasting(ages: [Option<Duration>; 2]) -> [Config; 2] {
    let mut ages = ages.into_iter();
    configs(PostQuantum::Off).map(|mut config| {
        let connection = Arc::get_mut(&mut config.connections[0]).expect("not shared yet");
        connection.reauthenticate = ages.next().expect("two ends");
        config
    })
}

/// Delivers all in order, with packets of both hosts under way while each message arrives.
fn settle_with_packets(world: &mut World) {
    for _ in 0..1000 {
        while !world.in_flight.is_empty() {
            [A, B].into_iter().for_each(|host| world.send_packet(host));
            let datagram = world.in_flight.remove(0);
            world.hand_over(&datagram);
            [A, B].into_iter().for_each(|host| world.send_packet(host));
            world.arrive();
        }
        if !world.advance() {
            return;
        }
    }
    panic!("it ends");
}

/// Checks that the newest IKE SA alone is left, with so many CHILD SAs.
fn check_replaced(world: &World, times: usize, children: usize) {
    let [a, b] = &world.hosts;
    assert_eq!(a.closed, vec![Reason::Reauthenticated; times]);
    assert_eq!(b.closed, vec![Reason::Peer; times]);
    world.check_children(children);
    for host in &world.hosts {
        assert_eq!(host.endpoint.sessions(), 1, "the IKE SA stands");
        assert_eq!(host.endpoint.child_spis(), children, "no SPI is kept for nothing");
        assert_eq!(host.endpoint.half_open(), 0);
        let of_newest = |session| Some(session) == host.session;
        assert!(host.children.values().all(|child| of_newest(child.session)));
    }
}

#[test]
fn a_new_ike_sa_takes_over_and_no_packet_is_lost() {
    for policy in [PostQuantum::Off, PostQuantum::Required] {
        let mut world = established(configs(policy), 70);
        for times in 1..4 {
            let before = world.hosts[A].session;
            reauthenticate(&mut world, A);
            settle_with_packets(&mut world);
            check_replaced(&world, times, 1);
            assert_ne!(world.hosts[A].session, before);
            // it is an IKE SA like any other
            world.rekey_ike(B);
            world.rekey_child(A);
            settle_with_packets(&mut world);
            check_replaced(&world, times, 1);
        }
        world.close(B);
        world.settle();
        assert!(world.hosts.iter().all(|host| host.children.is_empty()));
        assert!(world.hosts.iter().all(|host| host.endpoint.sessions() == 0));
    }
}

#[test]
fn all_child_sas_have_a_successor() {
    let mut world = established(configs(PostQuantum::Required), 71);
    for _ in 0..2 {
        world.create_child(A);
        world.settle();
    }
    world.closing = false;
    reauthenticate(&mut world, A);
    settle_with_packets(&mut world);
    check_replaced(&world, 1, 3);
}

#[test]
fn an_ike_sa_without_child_sas_is_replaced_by_one_without() {
    let mut world = established(configs(PostQuantum::Off), 72);
    world.close_child(B);
    world.settle();
    reauthenticate(&mut world, A);
    world.settle();
    let reasons = world.hosts.each_ref().map(|host| host.closed.clone());
    assert_eq!(reasons, [[Reason::Reauthenticated], [Reason::Peer]]);
    assert!(world.hosts.iter().all(|host| host.children.is_empty()));
    assert!(world.hosts.iter().all(|host| host.endpoint.sessions() == 1));
}

#[test]
fn only_who_began_replaces_an_ike_sa_and_not_twice_at_once() {
    let mut world = established(configs(PostQuantum::Off), 73);
    let session = world.hosts[B].session.expect("a session");
    let refused = world.hosts[B].endpoint.command(&Command::Reauthenticate(session), world.now);
    assert!(refused.is_err());
    reauthenticate(&mut world, A);
    let session = world.hosts[A].session.expect("a session");
    let again = world.hosts[A].endpoint.command(&Command::Reauthenticate(session), world.now);
    assert!(again.is_err(), "it is under way");
    settle_with_packets(&mut world);
    check_replaced(&world, 1, 1);
}

#[test]
fn a_lost_datagram_is_sent_again() {
    let sent = {
        let mut world = established(configs(PostQuantum::Required), 74);
        let before = world.sent;
        reauthenticate(&mut world, A);
        world.settle();
        world.sent - before
    };
    assert!(sent > 10);
    for lost in 0..sent {
        let mut world = established(configs(PostQuantum::Required), 74);
        let before = world.sent;
        reauthenticate(&mut world, A);
        loop {
            if world.sent - before > lost {
                world.in_flight.pop();
                break;
            }
            match world.in_flight.is_empty() {
                true => drop(world.advance()),
                false => world.deliver(0, false),
            }
        }
        settle_with_packets(&mut world);
        check_replaced(&world, 1, 1);
    }
}

#[test]
fn an_address_of_a_pool_is_kept_also_if_it_is_the_last() {
    for last in [1, 9] {
        let mut world = established(road_warrior(last), 75);
        let assigned = world.hosts[A].assigned.addresses.clone();
        for times in 1..3 {
            reauthenticate(&mut world, A);
            settle_with_packets(&mut world);
            check_replaced(&world, times, 1);
            let both = world.hosts.each_ref().map(|host| host.assigned.addresses.clone());
            assert_eq!(both, [assigned.clone(), assigned.clone()]);
        }
        // it is free when the last session ends
        world.close(A);
        world.settle();
        world.connect(A);
        world.settle();
        assert_eq!(world.hosts[A].assigned.addresses, assigned);
    }
}

/// Lets all that is due happen until this time.
fn run_until(world: &mut World, age: Duration, start: std::time::Instant) {
    loop {
        while !world.in_flight.is_empty() {
            world.send_packet(A);
            world.send_packet(B);
            let datagram = world.in_flight.remove(0);
            world.hand_over(&datagram);
            world.arrive();
        }
        let next = world.hosts.iter().filter_map(|host| host.endpoint.next_deadline()).min();
        match next {
            Some(at) if at <= start + age => drop(world.advance()),
            _ => return,
        }
    }
}

#[test]
fn it_is_done_by_age_and_where_the_responder_asks_for_it() {
    for ages in [[Some(HOUR), None], [None, Some(HOUR)], [Some(4 * HOUR), Some(HOUR)]] {
        let mut world = World::established_for_now(lasting(ages), 76);
        world.oldest_sends = true;
        let start = world.now;
        run_until(&mut world, HOUR * 8 / 10, start);
        assert!(world.hosts[A].closed.is_empty(), "{ages:?}");
        run_until(&mut world, HOUR, start);
        assert_eq!(world.hosts[A].closed, [Reason::Reauthenticated], "{ages:?}");
        run_until(&mut world, 10 * HOUR, start);
        let again = world.hosts[A].closed.len();
        assert!((10..14).contains(&again), "{again} times in ten hours, {ages:?}");
        world.check_children(1);
    }
}

#[test]
fn without_a_new_proof_the_ike_sa_ends() {
    let mut world = World::established_for_now(lasting([None, Some(HOUR)]), 77);
    world.oldest_sends = true;
    let start = world.now;
    // from now on the initiator has another secret than the responder
    let [_, mut changed] = lasting([None, Some(HOUR)]);
    let connection = Arc::get_mut(&mut changed.connections[0]).expect("not shared yet");
    connection.auth = Auth::shared_key(&Key::from_bytes(b"another secret of both"));
    world.hosts[B].endpoint.reconfigure(changed.connections);
    run_until(&mut world, HOUR, start);
    let refused = Reason::Refused(NotifyType::AuthenticationFailed);
    let failed = world.hosts[A].closed.len();
    assert!((5..40).contains(&failed), "it tries again, with pauses: {failed}");
    assert!(world.hosts[A].closed.iter().all(|reason| *reason == refused));
    assert!(world.hosts.iter().all(|host| host.children.len() == 1), "the old one is in use");
    world.closing = true;
    run_until(&mut world, HOUR * 12 / 10, start);
    assert!(world.hosts[B].closed.contains(&Reason::NotReauthenticated));
    assert!(world.hosts[A].closed.contains(&Reason::Peer));
    assert!(world.hosts.iter().all(|host| host.children.is_empty()));
}

#[test]
fn a_responder_cannot_make_an_initiator_do_it_all_the_time() {
    for (data, expected) in [
        (&[0, 0, 0, 0][..], true),
        (&[0, 0, 0, 1], true),
        (&[0, 0, 1], false),
        (&[], false),
        (&[0; 5], false),
    ] {
        let mut world = established(configs(PostQuantum::Off), 78);
        let mut impostor = Impostor::of(&world, B);
        let lifetime = Payload::Notify(Notify::new(NotifyType::AuthLifetime, data));
        impostor.ask(&mut world, ExchangeType::Informational, &[lifetime]).expect("an answer");
        let next = world.hosts[A].endpoint.next_deadline();
        assert_eq!(next.is_some(), expected, "{data:?}");
        assert!(next.is_none_or(|at| at - world.now >= Duration::from_secs(45)));
    }
    // an initiator has nothing to say about it
    let mut world = established(configs(PostQuantum::Off), 79);
    let mut impostor = Impostor::of(&world, A);
    let lifetime = Payload::Notify(Notify::new(NotifyType::AuthLifetime, &[0; 4]));
    impostor.ask(&mut world, ExchangeType::Informational, &[lifetime]).expect("an answer");
    assert_eq!(world.hosts[B].endpoint.next_deadline(), None);
}

/// Returns the number of IKE SAs that stand.
fn standing(world: &World, host: usize) -> usize {
    world.hosts[host].established.saturating_sub(world.hosts[host].closed.len())
}

/// Runs one random schedule of replacing and rekeying, with losses up to a third.
fn random_schedule(seed: u64) -> usize {
    let mut random = ChaCha12Rng::seed_from_u64(seed);
    let policy = if random.random_ratio(1, 4) { PostQuantum::Required } else { PostQuantum::Off };
    let mut world = established(configs(policy), seed);
    // those of two IKE SAs, while both rekey
    world.most = 4;
    let loss = random.random_range(0..3);
    for _ in 0..random.random_range(20..100) {
        if random.random_ratio(1, 8) {
            let host = random.random_range(0..2);
            match random.random_range(0..8) {
                // a fifth IKE SA of one peer ends the oldest at once
                0..4 if standing(&world, B) < 3 => reauthenticate(&mut world, A),
                0..4 => {}
                4..6 => world.rekey_child(host),
                _ => world.rekey_ike(host),
            }
            continue;
        }
        if world.in_flight.is_empty() || random.random_ratio(1, 5) {
            match random.random_range(0..3) {
                0 => [A, B].into_iter().for_each(|host| world.send_packet(host)),
                1 => world.arrive(),
                _ => drop(world.advance()),
            }
            continue;
        }
        let at = random.random_range(0..world.in_flight.len());
        match random.random_range(0..9) {
            one if one < loss => drop(world.in_flight.swap_remove(at)),
            8 => world.deliver(at, true),
            _ => world.deliver(at, false),
        }
    }
    world.settle();
    for host in &world.hosts {
        assert_eq!(host.endpoint.sessions(), 1, "one IKE SA is left");
        assert_eq!(host.sends_on.len(), 1);
        let allowed = |reason: &Reason| {
            matches!(reason, Reason::Reauthenticated | Reason::Peer | Reason::Timeout(_))
        };
        assert!(host.closed.iter().all(allowed), "{:?}", host.closed);
    }
    world.check_children(1);
    world.sent
}

fn run_seeds(seeds: std::ops::Range<u64>) -> usize {
    let run = |seed| {
        let run = std::panic::catch_unwind(|| random_schedule(seed));
        run.unwrap_or_else(|_| panic!("seed {seed}"))
    };
    seeds.map(run).sum()
}

#[test]
fn random_schedules_of_reauthentication_end_well() {
    run_seeds(0..300);
}

/// `IKE_SEEDS=0..100000 cargo test --release -p headroom-ike --test ike -- --ignored many_reauth`
#[test]
#[ignore = "minutes to hours"]
fn many_reauthentications_end_well() {
    let seeds = std::env::var("IKE_SEEDS").unwrap_or("300..10000".to_owned());
    let (first, end) = seeds.split_once("..").expect("FIRST..END");
    let number = |text: &str| text.parse::<u64>().expect("a number");
    println!("seeds {seeds}: {} datagrams", run_seeds(number(first)..number(end)));
}
