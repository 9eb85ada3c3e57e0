//! Clocks that jump: a host was suspended, or its clock was set.

use std::time::Duration;

use headroom_ike::PostQuantum;

use crate::world::{A, B, World, configs};

#[test]
fn a_clock_that_jumps_ends_nothing() {
    for jump in [Duration::from_secs(3600), Duration::from_secs(30 * 24 * 3600)] {
        let configs = configs(PostQuantum::Off).map(|mut config| {
            config.timing.liveness = Some(Duration::from_secs(30));
            config.timing.retransmissions = 3;
            config
        });
        let mut world = World::established_for_now(configs, 72);
        world.rekey_child(A);
        world.lose(A);
        // suspended in the middle of an exchange
        world.now += jump;
        for host in [A, B] {
            world.poll(host);
        }
        for _ in 0..20 {
            while !world.in_flight.is_empty() {
                world.deliver(0, false);
            }
            world.advance();
        }
        assert!(world.hosts.iter().all(|host| host.closed.is_empty()), "{jump:?}");
        assert_eq!(world.hosts[A].installed, 2, "rekeyed after all");
        // and back: nothing is due, nothing panics
        world.now -= jump / 2;
        for host in [A, B] {
            world.poll(host);
        }
        assert!(world.hosts.iter().all(|host| host.closed.is_empty()));
    }
}
