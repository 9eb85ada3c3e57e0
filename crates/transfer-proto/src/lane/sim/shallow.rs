//! Queues that are shorter than what a probe adds, and hardly longer than a train.

use std::time::Duration;

use super::super::testing::Cheap;
use super::{Link, Ours, World};
use crate::rate::RateConfig;

const MS: Duration = Duration::from_millis(1);

/// One transfer over 500 Mbit/s and 10 ms, with a queue of 50 packets: 1.2 ms.
fn world() -> World<Cheap> {
    let mut link = Link::new(500.0, 10 * MS, 1.0);
    link.buffer = 50.0 * 1500.0;
    let mut world = World::new(link, 7);
    world.add_ours(Duration::ZERO, Ours::new(1, u64::MAX, RateConfig::default(), 1472));
    world
}

#[test]
fn a_queue_of_fifty_packets_does_not_keep_it_from_the_rate_of_the_link() {
    let mut world = world();
    world.run(300 * MS);
    let (dropped, sent) = (world.link.dropped, world.ours(0).sent);
    world.run(2000 * MS);
    let (dropped, sent) = (world.link.dropped - dropped, world.ours(0).sent - sent);
    // a full packet is 95 % files
    let share = world.mbps(0, 300 * MS, 2000 * MS) / 500.0;
    assert!(share >= 0.91, "{share}");
    assert!((dropped as f64) < 0.02 * sent as f64, "{dropped} of {sent} packets dropped");
}

/// A sender that pauses reads feedback that much too late: for 4 ms, ten times in a second, or for
/// more than a round trip, three times in two seconds.
#[test]
fn pauses_of_the_sender_do_not_hide_how_short_the_queue_is() {
    for (pause, every, least, most_dropped) in [(4, 100, 0.86, 0.03), (12, 700, 0.91, 0.01)] {
        let mut world = world();
        world.run(300 * MS);
        let (dropped, sent) = (world.link.dropped, world.ours(0).sent);
        for at in (500_u32..2500).step_by(every) {
            world.run(at * MS);
            world.pause(0, (at + pause) * MS);
        }
        world.run(2500 * MS);
        let (dropped, sent) = (world.link.dropped - dropped, world.ours(0).sent - sent);
        let share = world.mbps(0, 300 * MS, 2500 * MS) / 500.0;
        // the pauses take 4 and 2 % of the time
        assert!(share >= least, "{share} with pauses of {pause} ms");
        // probes of a quarter lose half of it, and losses taken for random up to a tenth of all
        let lost = dropped as f64 / sent as f64;
        assert!(lost < most_dropped, "{lost} dropped with pauses of {pause} ms");
    }
}

#[test]
fn its_own_overflow_is_not_taken_for_others() {
    let mut world = world();
    for at in 1..1000 {
        world.run(at * MS);
        let state = world.ours(0).sender.describe();
        let competes = state.starts_with("ProbeRtt") || state.starts_with("Compete");
        assert!(!competes, "after {at} ms: {state}");
    }
}
