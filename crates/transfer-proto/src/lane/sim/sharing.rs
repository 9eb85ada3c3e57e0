//! How fast, how long the queue, and who gets what.

use std::time::Duration;

use super::super::RateConfig;
use super::super::testing::Cheap;
use super::{Link, Ours, World};

const MS: Duration = Duration::from_millis(1);
const S: Duration = Duration::from_secs(1);

fn ours(seed: u64) -> Ours<Cheap> {
    Ours::new(seed, u64::MAX, RateConfig::default(), 1472)
}

fn alone(mbps: f64, rtt: Duration, bdps: f64, loss: f64) -> World<Cheap> {
    let mut link = Link::new(mbps, rtt, bdps);
    link.loss = loss;
    let mut world = World::new(link, 7);
    world.add_ours(Duration::ZERO, ours(1));
    world
}

/// Prints what the bars are about. `cargo test --release -- --ignored --nocapture figures`
#[test]
#[ignore = "prints figures"]
fn figures_alone() {
    println!(
        "alone: Mbit/s, RTT ms, buffer BDP, loss | goodput, share, queue p50 p95 p99 ms, time to 90 %"
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
        (1000.0, 1, 1.0, 0.01, 3),
    ] {
        let mut world = alone(mbps, rtt * MS, bdps, loss);
        let start = 3 * S;
        world.run(start);
        world.link.queued_ms.clear();
        world.run(seconds * S);
        let got = world.mbps(0, start, seconds * S);
        let up = world.goodput[0]
            .iter()
            .position(|&octets| octets as f64 * 8e-5 >= 0.9 * 0.96 * mbps * (1.0 - loss));
        println!(
            "{mbps:6} {rtt:4} {bdps:4} {loss:5} | {got:7.1} {:5.3}  {:6.2} {:6.2} {:6.2}  {:?}",
            got / mbps,
            world.link.queue_quantile(0.5),
            world.link.queue_quantile(0.95),
            world.link.queue_quantile(0.99),
            up.map(|bin| bin * 100),
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
                let mut world = World::new(Link::new(mbps, rtt * MS, bdps), 7);
                let (a, b) = match first {
                    "ours" => (0, 5),
                    "cubic" => (5, 0),
                    _ => (0, 0),
                };
                world.add_ours(a * S, ours(1));
                world.add_tcp(b * S);
                world.run(70 * S);
                let [a, b] = [0, 1].map(|flow| world.mbps(flow, 10 * S, 70 * S));
                println!(
                    "{mbps:6} {rtt:4} {bdps:4} {first:5} | {a:6.1} {b:6.1}  {:5.3}",
                    a / (a + b)
                );
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
        let mut link = Link::new(mbps, rtt * MS, bdps);
        link.loss = loss;
        let mut world = World::new(link, 7);
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
