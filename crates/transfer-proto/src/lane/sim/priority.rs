//! What a sender of low or high priority gets beside others.

use std::time::Duration;

use super::super::testing::Cheap;
use super::{Link, Ours, World};
use crate::rate::{Priority, RateConfig};

const MS: Duration = Duration::from_millis(1);
const S: Duration = Duration::from_secs(1);

fn ours(seed: u64, bytes: u64, priority: Priority) -> Ours<Cheap> {
    Ours::new(seed, bytes, RateConfig { priority, ..RateConfig::default() }, 1472)
}

/// The share of one of `priority` beside one CUBIC flow, 5 s after both have started, over a
/// minute: the mean of three.
fn share_beside_cubic(priority: Priority, mbps: f64, rtt: u32, bdps: f64, is_first: bool) -> f64 {
    let shares = [7, 8, 9].map(|seed| {
        let mut world = World::new(Link::new(mbps, rtt * MS, bdps), seed);
        let (a, b) = if is_first { (Duration::ZERO, 5 * S) } else { (5 * S, Duration::ZERO) };
        world.add_ours(a, ours(1, u64::MAX, priority));
        world.add_tcp(b);
        world.run(70 * S);
        let [ours, cubic] = [0, 1].map(|flow| world.mbps(flow, 10 * S, 70 * S));
        ours / (ours + cubic)
    });
    shares.iter().sum::<f64>() / shares.len() as f64
}

/// The links on which shares are compared: Mbit/s, round trip in ms, queue in bandwidth-delay
/// products.
const LINKS: [(f64, u32, f64); 4] =
    [(50.0, 20, 1.0), (50.0, 20, 4.0), (20.0, 100, 1.0), (100.0, 50, 1.0)];

#[test]
fn a_scavenger_leaves_a_tcp_most_of_the_link() {
    for (mbps, rtt, bdps) in LINKS {
        for is_first in [true, false] {
            let share = share_beside_cubic(Priority::Scavenger, mbps, rtt, bdps, is_first);
            assert!(share <= 0.15, "{share} at {mbps} Mbit/s, {rtt} ms, {bdps} BDP, {is_first}");
        }
    }
}

#[test]
fn a_scavenger_leaves_one_of_normal_priority_most_of_the_link() {
    for (mbps, rtt, bdps) in LINKS {
        let mut world = World::new(Link::new(mbps, rtt * MS, bdps), 7);
        world.add_ours(Duration::ZERO, ours(1, u64::MAX, Priority::Scavenger));
        world.add_ours(5 * S, ours(2, u64::MAX, Priority::Normal));
        world.run(70 * S);
        let [scavenger, normal] = [0, 1].map(|flow| world.mbps(flow, 10 * S, 70 * S));
        let share = scavenger / (scavenger + normal);
        assert!(share <= 0.35, "{share} at {mbps} Mbit/s, {rtt} ms, {bdps} BDP");
    }
}

#[test]
fn a_scavenger_fills_a_link_that_nobody_else_uses() {
    let mut world = World::new(Link::new(100.0, 50 * MS, 1.0), 7);
    world.add_ours(Duration::ZERO, ours(1, u64::MAX, Priority::Scavenger));
    world.run(20 * S);
    let share = world.mbps(0, 5 * S, 20 * S) / 100.0;
    assert!(share > 0.9, "{share}");
}

#[test]
fn a_scavenger_takes_the_link_again_after_others() {
    let mut world = World::new(Link::new(100.0, 50 * MS, 1.0), 7);
    world.add_ours(Duration::ZERO, ours(1, u64::MAX, Priority::Scavenger));
    // 100 MB: some ten seconds
    world.add_ours(5 * S, ours(2, 100_000_000, Priority::High));
    world.run(60 * S);
    let done = world.ours(1).done_at.expect("it has ended");
    let share = world.mbps(0, done + 10 * S, 60 * S) / 100.0;
    assert!(share > 0.85, "{share} after {done:?}");
}

#[test]
fn high_priority_takes_up_to_two_shares() {
    for (mbps, rtt, bdps) in LINKS {
        // whether it comes first or second differs as much as the priorities do
        let [normal, high] = [Priority::Normal, Priority::High].map(|priority| {
            let [first, second] = [true, false]
                .map(|is_first| share_beside_cubic(priority, mbps, rtt, bdps, is_first));
            (first + second) / 2.0
        });
        let what = format!("{mbps} Mbit/s, {rtt} ms, {bdps} BDP");
        assert!(high > normal && high <= 0.8, "{high} and {normal} at {what}");
    }
}

/// Prints shares by priority, beside CUBIC and beside one of normal priority.
#[test]
#[ignore = "prints figures"]
fn figures_of_priorities() {
    println!("| priority | link | first, CUBIC | second, CUBIC | beside normal |");
    println!("|---|---|--:|--:|--:|");
    for priority in [Priority::Scavenger, Priority::Normal, Priority::High] {
        for (mbps, rtt, bdps) in LINKS.into_iter().chain([(100.0, 50, 0.5), (100.0, 50, 20.0)]) {
            let [first, second] = [true, false]
                .map(|is_first| share_beside_cubic(priority, mbps, rtt, bdps, is_first));
            let mut world = World::new(Link::new(mbps, rtt * MS, bdps), 7);
            world.add_ours(Duration::ZERO, ours(1, u64::MAX, priority));
            world.add_ours(5 * S, ours(2, u64::MAX, Priority::Normal));
            world.run(70 * S);
            let [a, b] = [0, 1].map(|flow| world.mbps(flow, 10 * S, 70 * S));
            println!(
                "| {priority:?} | {mbps} Mbit/s, {rtt} ms, {bdps} BDP | {first:.2} | {second:.2} | {:.2} |",
                a / (a + b)
            );
        }
    }
}
