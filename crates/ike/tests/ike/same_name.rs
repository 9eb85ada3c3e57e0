//! Sessions of peers that have, or claim, one name.

use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::Arc;

use headroom_ike::crypto::SystemRandom;
use headroom_ike::wire::TrafficSelector;
use headroom_ike::{
    Auth, Config, Connection, Endpoint, Identity, PostQuantum, Reason, VirtualAddresses,
};
use headroom_suite::Key;

use crate::setup::road_warrior;
use crate::world::{A, B, World, configs};

fn connection(config: &mut Config) -> &mut Connection {
    Arc::get_mut(&mut config.connections[0]).expect("not shared yet")
}

/// A client and a gateway that has addresses up to `last` for clients of any name.
fn pool(last: u8) -> World {
    let [client, mut gateway] = road_warrior(last);
    connection(&mut gateway).remote = None;
    let mut world = World::new([client, gateway], 71);
    // the client is many
    (world.closing, world.most) = (true, usize::MAX);
    world
}

/// Another client of this name takes the place of the former one.
fn become_client(world: &mut World, name: &str) {
    let [mut config, _] = road_warrior(9);
    connection(&mut config).local = Identity::from_text(name);
    world.hosts[A].restart(Endpoint::new(config, Box::new(SystemRandom), world.now));
}

/// Delivers all that is under way; no time passes.
fn deliver(world: &mut World) {
    while !world.in_flight.is_empty() {
        world.deliver(0, false);
    }
}

/// Returns how many CHILD SAs of the gateway are for an address.
fn holders(world: &World, address: IpAddr) -> usize {
    let children = world.hosts[B].children.values();
    children.filter(|child| child.remote == [TrafficSelector::host(address)]).count()
}

#[test]
fn an_address_that_is_taken_from_a_session_is_the_end_of_it() {
    let mut world = pool(1);
    let address = IpAddr::from([10, 9, 0, 1]);
    // begun before the other one, and finished after it: it says that it is the only one
    world.connect(A);
    world.deliver(0, false);
    world.deliver(0, false);
    let first = world.in_flight.remove(0);
    world.connect(A);
    deliver(&mut world);
    assert_eq!((holders(&world, address), world.hosts[B].closed.len()), (1, 0));
    world.hand_over(&first);
    assert_eq!(world.hosts[B].closed, [Reason::Restarted]);
    assert_eq!(holders(&world, address), 1);
    deliver(&mut world);
    world.close(A);
    deliver(&mut world);
    assert_eq!(holders(&world, address), 0, "whose address is free has no CHILD SA for it");
    become_client(&mut world, "bert.example");
    world.connect(A);
    deliver(&mut world);
    assert_eq!((world.hosts[B].assigned.addresses[0], holders(&world, address)), (address, 1));
}

#[test]
fn one_name_does_not_take_all_addresses_of_a_pool() {
    // also where all that there are have one name
    for last in [8, 4] {
        let mut world = pool(last);
        for _ in 0..9 {
            world.connect(A);
            deliver(&mut world);
            assert_eq!(world.hosts[A].assigned.addresses.len(), 1);
        }
        assert_eq!(world.hosts[B].closed, vec![Reason::Limit("IKE SAs of one peer"); 5]);
        let children = &world.hosts[B].children;
        let addresses: HashSet<_> =
            children.values().map(|one| format!("{:?}", one.remote)).collect();
        assert_eq!((children.len(), addresses.len()), (4, 4), "each has its own");
        become_client(&mut world, "bert.example");
        world.connect(A);
        deliver(&mut world);
        assert_eq!(world.hosts[A].assigned.addresses.len(), usize::from(last > 4));
    }
}

#[test]
fn a_name_that_is_written_in_another_way_is_the_same() {
    let mut world = pool(1);
    for name in ["anna.example", "ANNA.example"] {
        become_client(&mut world, name);
        world.connect(A);
        deliver(&mut world);
    }
    assert_eq!(world.hosts[B].closed, [Reason::Restarted]);
    assert_eq!(holders(&world, [10, 9, 0, 1].into()), 1);
}

/// A gateway with a connection for a site and another for all who know a secret.
fn site_and_pool() -> Config {
    let [_, mut site] = configs(PostQuantum::Off);
    let [_, mut pool] = road_warrior(9);
    (connection(&mut site).name, connection(&mut pool).name) = ("site".into(), "pool".into());
    connection(&mut site).remote_address = Some([192, 0, 2, 1].into());
    connection(&mut pool).remote = None;
    connection(&mut pool).auth = Auth::shared_key(&Key::from_bytes(b"a secret of many"));
    site.connections.push(pool.connections.remove(0));
    site
}

#[test]
fn a_client_of_a_pool_that_calls_itself_as_a_site_ends_nothing_of_it() {
    for gateway_begins in [false, true] {
        let [site, _] = configs(PostQuantum::Off);
        let mut world = World::new([site, site_and_pool()], 72);
        world.closing = true;
        if gateway_begins {
            let [to, from] = [A, B].map(|host| world.hosts[host].address);
            let now = world.now;
            world.hosts[B].endpoint.connect("site", from, to, now).expect("a connection");
            world.poll(B);
        } else {
            world.connect(A);
        }
        deliver(&mut world);
        world.now += std::time::Duration::from_secs(1);
        assert_eq!(world.hosts[B].children.len(), 1);

        let [mut client, _] = road_warrior(9);
        let claims = connection(&mut client);
        assert_eq!(claims.local, Identity::from_text("host-1.example"), "as the site");
        assert!(matches!(claims.virtual_addresses, VirtualAddresses::Request { .. }));
        claims.auth = Auth::shared_key(&Key::from_bytes(b"a secret of many"));
        world.hosts[A].restart(Endpoint::new(client, Box::new(SystemRandom), world.now));
        world.hosts[A].address.set_ip([198, 51, 100, 9].into());
        world.connect(A);
        deliver(&mut world);
        assert_eq!(world.hosts[A].assigned.addresses.len(), 1, "it is a client of the pool");
        assert!(world.hosts[B].closed.is_empty(), "the gateway begins: {gateway_begins}");
        assert_eq!(world.hosts[B].children.len(), 2);
    }
}
