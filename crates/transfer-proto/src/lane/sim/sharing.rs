//! How fast, how long the queue, and who gets what.

use std::time::Duration;

use super::super::testing::Cheap;
use super::{Link, Losses, Ours, World};
use crate::rate::RateConfig;

const MS: Duration = Duration::from_millis(1);
const S: Duration = Duration::from_secs(1);

fn ours(seed: u64) -> Ours<Cheap> {
    Ours::new(seed, u64::MAX, RateConfig::default(), 1472)
}

fn alone(mbps: f64, rtt: Duration, bdps: f64, loss: f64) -> World<Cheap> {
    let mut link = Link::new(mbps, rtt, bdps);
    link.losses = Losses::alone(loss);
    let mut world = World::new(link, 7);
    world.add_ours(Duration::ZERO, ours(1));
    world
}

/// Goodput's share of the link after start-up, and the queue's 95th percentile.
fn share_and_queue(mbps: f64, rtt: u32, loss: f64, seconds: u32) -> (f64, f32) {
    let mut world = alone(mbps, rtt * MS, 1.0, loss);
    let start = (20 * rtt + 1000) * MS;
    world.run(start);
    world.link.queued_ms.clear();
    world.run(seconds * S);
    (world.mbps(0, start, seconds * S) / mbps, world.link.queue_quantile(0.95))
}

#[test]
fn random_loss_does_not_slow_it_and_the_queue_stays_below_the_ceiling() {
    // a full packet is 95.1 % files, and loss comes ahead of the bottleneck
    for (mbps, rtt, loss, seconds) in
        [(100.0, 50, 0.01, 8), (1000.0, 50, 0.01, 6), (100.0, 200, 0.05, 15)]
    {
        let (share, queue) = share_and_queue(mbps, rtt, loss, seconds);
        assert!(share >= 0.94 && queue <= 25.0, "{mbps} Mbit/s, {rtt} ms: {share}, {queue} ms");
    }
}

#[test]
fn startup_ends_at_the_rate_of_the_path_and_overflows_its_queue_once() {
    for (mbps, rtt, bdps, loss) in
        [(100.0, 50, 1.0, 0.01), (1000.0, 50, 1.0, 0.01), (100.0, 200, 0.25, 0.05)]
    {
        let mut world = alone(mbps, rtt * MS, bdps, loss);
        let full = world.link.rate * f64::from(rtt) * 1e-3 / 1500.0;
        world.run(12 * rtt * MS);
        let dropped = world.link.dropped as f64 / full;
        world.run(32 * rtt * MS);
        let share = world.mbps(0, 16 * rtt * MS, 32 * rtt * MS) / mbps;
        assert!(dropped < 1.5, "{mbps} Mbit/s, {rtt} ms: {dropped} of what is on the way");
        assert!(share > 0.85, "{mbps} Mbit/s, {rtt} ms: {share} after the start");
    }
}

#[test]
fn a_slow_source_does_not_keep_it_in_startup() {
    let mut world = alone(1000.0, 50 * MS, 1.0, 0.0);
    world.ours(0).ahead = 32 << 10;
    world.run(2 * S);
    let dropped = world.link.dropped;
    world.run(4 * S);
    assert_eq!(world.link.dropped, dropped);
    let share = world.mbps(0, 2 * S, 4 * S) / 1000.0;
    assert!(share > 0.9, "{share}");
}

#[test]
fn freed_capacity_is_found_soon() {
    for (rtt, soon) in [(50, 1000), (200, 4000)] {
        let mut world = alone(20.0, rtt * MS, 1.0, 0.0);
        world.run(8 * S);
        world.link.rate *= 5.0;
        world.link.buffer *= 5.0;
        world.run(10 * S + soon * MS);
        let mbps = world.mbps(0, 8 * S + soon * MS, 10 * S + soon * MS);
        assert!(mbps > 85.0, "{mbps} Mbit/s at {rtt} ms");
    }
}

#[test]
fn hosts_that_pause_are_no_bottleneck() {
    let mut world = World::new(Link::new(2000.0, Duration::from_micros(200), 1000.0), 7);
    world.busy = Some((7 * MS, 3 * MS));
    world.add_ours(Duration::ZERO, ours(1));
    world.run(1200 * MS);
    let share = world.mbps(0, 200 * MS, 1200 * MS) / 2000.0;
    assert!(share > 0.9, "{share}");
}

#[test]
fn beside_cubic_each_gets_at_least_a_quarter() {
    for (mbps, rtt, bdps) in
        [(50.0, 20, 0.5), (50.0, 20, 1.0), (50.0, 20, 4.0), (20.0, 100, 0.5), (100.0, 50, 1.0)]
    {
        let mut world = World::new(Link::new(mbps, rtt * MS, bdps), 7);
        world.add_ours(Duration::ZERO, ours(1));
        world.add_tcp(5 * S);
        world.run(70 * S);
        let [ours, cubic] = [0, 1].map(|flow| world.mbps(flow, 10 * S, 70 * S));
        let share = ours / (ours + cubic);
        let what = format!("{mbps} Mbit/s, {rtt} ms, {bdps} BDP");
        assert!((0.25..=0.75).contains(&share), "{share} at {what}");
    }
}

#[test]
fn beside_cubic_with_a_deep_queue_each_gets_at_least_three_tenths() {
    for is_first in [true, false] {
        let mut world = World::new(Link::new(100.0, 50 * MS, 20.0), 7);
        let (a, b) = if is_first { (Duration::ZERO, 5 * S) } else { (5 * S, Duration::ZERO) };
        world.add_ours(a, ours(1));
        world.add_tcp(b);
        world.run(75 * S);
        let [ours, cubic] = [0, 1].map(|flow| world.mbps(flow, 15 * S, 75 * S));
        let share = ours / (ours + cubic);
        assert!((0.3..=0.7).contains(&share), "{share}, first: {is_first}");
    }
}

/// RFC 3168, section 5: a mark has the effect of a loss. This CUBIC does not see them.
#[test]
fn marks_are_answered_beside_others() {
    let share = |mark_above: f64| {
        let mut link = Link::new(100.0, 50 * MS, 4.0);
        link.mark_above = mark_above;
        let mut world = World::new(link, 7);
        world.add_ours(Duration::ZERO, ours(1));
        world.add_tcp(Duration::ZERO);
        world.run(30 * S);
        let [ours, cubic] = [0, 1].map(|flow| world.mbps(flow, 10 * S, 30 * S));
        ours / (ours + cubic)
    };
    // above one bandwidth-delay product
    let [unmarked, marked] = [f64::INFINITY, 625_000.0].map(share);
    assert!(marked < unmarked / 2.0, "{marked}, without marks {unmarked}");
}

#[test]
fn a_deep_queue_beside_cubic_is_not_taken_for_the_path() {
    let mut world = World::new(Link::new(100.0, 50 * MS, 20.0), 7);
    world.add_ours(Duration::ZERO, ours(1));
    world.add_tcp(5 * S);
    world.run(75 * S);
    // 50 to 60 ms
    let state = world.ours(0).sender.describe();
    assert!(state.contains(" min  5"), "{state}");
}

#[test]
fn two_lanes_share_evenly_and_keep_the_queue_short() {
    for (mbps, rtt, loss) in [(100.0, 50, 0.0), (50.0, 20, 0.0), (100.0, 50, 0.01)] {
        let mut link = Link::new(mbps, rtt * MS, 1.0);
        link.losses = Losses::alone(loss);
        let mut world = World::new(link, 8);
        world.add_ours(Duration::ZERO, ours(1));
        world.add_ours(5 * S, ours(2));
        world.run(10 * S);
        world.link.queued_ms.clear();
        world.run(70 * S);
        let [first, second] = [0, 1].map(|flow| world.mbps(flow, 10 * S, 70 * S));
        let share = first / (first + second);
        let queue = world.link.queue_quantile(0.5) / rtt as f32;
        assert!((0.4..=0.6).contains(&share), "{share} at {mbps} Mbit/s, {loss} lost");
        assert!(queue < 0.65, "{queue} round trips at {mbps} Mbit/s, {loss} lost");
    }
}

/// Jain's index: 1 where all have the same, 1/n where one has all.
fn jain(rates: &[f64]) -> f64 {
    let sum: f64 = rates.iter().sum();
    let squares: f64 = rates.iter().map(|rate| rate * rate).sum();
    sum * sum / (rates.len() as f64 * squares)
}

#[test]
fn many_lanes_share_a_link_evenly() {
    for (mbps, rtt, bdps) in [(100.0, 50, 1.0), (200.0, 20, 1.0)] {
        let mut world = World::new(Link::new(mbps, rtt * MS, bdps), 8);
        for n in 0..8 {
            world.add_ours(n * 500 * MS, ours(u64::from(n) + 1));
        }
        world.run(60 * S);
        let rates: Vec<f64> = (0..8).map(|flow| world.mbps(flow, 10 * S, 60 * S)).collect();
        let index = jain(&rates);
        assert!(index >= 0.95, "{index} at {mbps} Mbit/s, {rtt} ms: {rates:.1?}");
    }
}

/// Prints what the bars are about. `cargo test --release -- --ignored --nocapture figures`
#[test]
#[ignore = "prints figures"]
fn figures_alone() {
    println!(
        "alone: Mbit/s, RTT ms, buffer BDP, loss | goodput, share, queue p50 p95 p99 ms, time to 90 %, dropped"
    );
    for (mbps, rtt, bdps, loss, seconds) in [
        (100.0, 50, 1.0, 0.0, 12),
        (100.0, 50, 1.0, 0.01, 12),
        (100.0, 50, 1.0, 0.05, 12),
        (1000.0, 50, 1.0, 0.01, 8),
        (100.0, 200, 1.0, 0.05, 30),
        (100.0, 200, 1.0, 0.0, 30),
        (100.0, 50, 0.1, 0.01, 12),
        (100.0, 50, 4.0, 0.01, 20),
        (10.0, 20, 1.0, 0.01, 20),
        (1000.0, 1, 1.0, 0.01, 2),
        (1000.0, 1, 1.0, 0.0, 2),
        (1000.0, 1, 0.2, 0.0, 2),
        (1000.0, 1, 20.0, 0.0, 2),
        (100.0, 1, 5.0, 0.0, 2),
    ] {
        let mut world = alone(mbps, rtt * MS, bdps, loss);
        let start = (20 * rtt + 1000) * MS;
        world.run(start);
        world.link.queued_ms.clear();
        world.run(seconds * S);
        let got = world.mbps(0, start, seconds * S);
        let up = world.goodput[0]
            .iter()
            .position(|&bytes| bytes as f64 * 8e-5 >= 0.9 * 0.96 * mbps * (1.0 - loss));
        println!(
            "{mbps:6} {rtt:4} {bdps:4} {loss:5} | {got:7.1} {:5.3}  {:6.2} {:6.2} {:6.2}  {:?} {}",
            got / mbps,
            world.link.queue_quantile(0.5),
            world.link.queue_quantile(0.95),
            world.link.queue_quantile(0.99),
            up.map(|bin| bin * 100),
            world.link.dropped,
        );
    }
}

/// Prints shares beside CUBIC.
#[test]
#[ignore = "prints figures"]
fn figures_beside_cubic() {
    println!("beside CUBIC: Mbit/s, RTT, buffer BDP, who first | ours, CUBIC, ours' share");
    for (mbps, rtt) in [(100.0, 50), (50.0, 20), (20.0, 100)] {
        for bdps in [0.5, 1.0, 4.0] {
            for first in ["ours", "cubic", "both"] {
                let shares = [7, 8, 9].map(|seed| {
                    let mut world = World::new(Link::new(mbps, rtt * MS, bdps), seed);
                    let (a, b) = match first {
                        "ours" => (0, 5),
                        "cubic" => (5, 0),
                        _ => (0, 0),
                    };
                    world.add_ours(a * S, ours(1));
                    world.add_tcp(b * S);
                    world.run(70 * S);
                    let [a, b] = [0, 1].map(|flow| world.mbps(flow, 10 * S, 70 * S));
                    a / (a + b)
                });
                println!("{mbps:6} {rtt:4} {bdps:4} {first:5} | {shares:.3?}");
            }
        }
    }
}

/// Prints shares of two.
#[test]
#[ignore = "prints figures"]
fn figures_of_two() {
    println!(
        "two of ours: Mbit/s, RTT, buffer BDP, loss, delay of the second | first, second, share, queue p50 p95"
    );
    for (mbps, rtt, bdps, loss, later) in [
        (100.0, 50, 1.0, 0.0, 5),
        (100.0, 50, 0.5, 0.0, 5),
        (100.0, 50, 4.0, 0.0, 5),
        (100.0, 50, 1.0, 0.01, 5),
        (100.0, 50, 1.0, 0.0, 0),
        (50.0, 20, 1.0, 0.0, 5),
        (20.0, 100, 1.0, 0.0, 5),
        (50.0, 20, 2.0, 0.01, 5),
    ] {
        for seed in [7, 8, 9] {
            let mut link = Link::new(mbps, rtt * MS, bdps);
            link.losses = Losses::alone(loss);
            let mut world = World::new(link, seed);
            world.add_ours(Duration::ZERO, ours(1));
            world.add_ours(later * S, ours(2));
            world.run(10 * S);
            world.link.queued_ms.clear();
            world.run(70 * S);
            let [a, b] = [0, 1].map(|flow| world.mbps(flow, 10 * S, 70 * S));
            println!(
                "{mbps:6} {rtt:4} {bdps:4} {loss:5} {later} | {a:6.1} {b:6.1}  {:5.3}  {:6.1} {:6.1}",
                a / (a + b),
                world.link.queue_quantile(0.5),
                world.link.queue_quantile(0.95),
            );
        }
    }
}
