//! Beside BBR, which does not yield to losses, and beside others, which do.

use std::time::Duration;

use super::super::testing::Cheap;
use super::{Link, Ours, World};
use crate::rate::{Priority, RateConfig};

const MS: Duration = Duration::from_millis(1);
const S: Duration = Duration::from_secs(1);
/// Flows settle until then; they are compared over a minute.
const SETTLED: Duration = Duration::from_secs(15);
const END: Duration = Duration::from_secs(75);

/// 100 Mbit/s and 50 ms.
fn world(bdps: f64, seed: u64) -> World<Cheap> {
    World::new(Link::new(100.0, 50 * MS, bdps), seed)
}

fn ours(seed: u64, priority: Priority) -> Ours<Cheap> {
    Ours::new(seed, u64::MAX, RateConfig { priority, ..RateConfig::default() }, 1472)
}

/// Seeds also differ in when the second flow starts, within BBR's cycle of 400 ms.
fn starts(is_first: bool, seed: u64) -> [Duration; 2] {
    let later = 5 * S + seed as u32 * 70 * MS;
    if is_first { [Duration::ZERO, later] } else { [later, Duration::ZERO] }
}

/// The share of one of `priority` beside one BBR flow, and the median of the queue in ms.
fn beside_bbr(priority: Priority, bdps: f64, is_first: bool, seed: u64) -> (f64, f32) {
    let mut world = world(bdps, seed);
    let [a, b] = starts(is_first, seed);
    world.add_ours(a, ours(1, priority));
    world.add_bbr(b);
    world.run(SETTLED);
    world.link.queued_ms.clear();
    world.run(END);
    let [ours, bbr] = [0, 1].map(|flow| world.mbps(flow, SETTLED, END));
    (ours / (ours + bbr), world.link.queue_quantile(0.5))
}

/// The median of the queue in ms that two BBR flows cause.
fn queue_of_two_bbrs(bdps: f64) -> f32 {
    let mut world = world(bdps, 1);
    world.add_bbr(Duration::ZERO);
    world.add_bbr(5 * S);
    world.run(SETTLED);
    world.link.queued_ms.clear();
    world.run(END);
    world.link.queue_quantile(0.5)
}

#[test]
fn beside_bbr_in_a_short_queue_each_gets_at_least_a_quarter() {
    for bdps in [0.5, 1.0] {
        let two = queue_of_two_bbrs(bdps);
        for is_first in [true, false] {
            let mut shares = [1, 2, 3].map(|seed| {
                let (share, queue) = beside_bbr(Priority::Normal, bdps, is_first, seed);
                assert!(queue < 1.1 * two, "{queue} ms at {bdps} BDP, two BBR flows {two} ms");
                share
            });
            shares.sort_by(f64::total_cmp);
            let what = format!("{shares:.3?} at {bdps} BDP, first: {is_first}");
            assert!(shares[0] >= 0.25 && shares[1] >= 0.3 && shares[2] <= 0.6, "{what}");
        }
    }
}

#[test]
fn beside_bbr_a_scavenger_does_not_hold_a_share() {
    for bdps in [0.5, 1.0] {
        let (share, _) = beside_bbr(Priority::Scavenger, bdps, true, 1);
        assert!(share < 0.1, "{share} at {bdps} BDP");
    }
}

/// What a late arrival has beside so many CUBIC flows, in even shares.
fn even_shares_beside(others: u32, bdps: f64, seed: u64) -> f64 {
    let mut world = world(bdps, seed);
    world.add_ours(5 * S, ours(1, Priority::Normal));
    (0..others).for_each(|nth| world.add_tcp(nth * 300 * MS));
    world.run(END);
    let rates: Vec<f64> =
        (0..=others as usize).map(|flow| world.mbps(flow, SETTLED, END)).collect();
    rates[0] / rates.iter().sum::<f64>() * f64::from(others + 1)
}

/// Twice an even share is that of chance; a held share would be four times as much, and so was
/// that of a late arrival which took the queue of the others for the path.
#[test]
fn beside_many_that_yield_it_has_no_more_than_two_of_them() {
    for (bdps, others, seed) in [(0.5, 8, 10), (1.0, 8, 7), (1.0, 16, 2), (1.0, 16, 3)] {
        let shares = even_shares_beside(others, bdps, seed);
        assert!(shares < 2.0, "{shares} beside {others} CUBIC flows at {bdps} BDP");
    }
}

/// Prints the same for ten starts each.
#[test]
#[ignore = "prints figures"]
fn figures_beside_many() {
    for (bdps, others) in [(0.5, 8), (1.0, 8), (1.0, 16)] {
        let shares: [f64; 10] =
            std::array::from_fn(|seed| even_shares_beside(others, bdps, seed as u64 + 1));
        println!("| {others} CUBIC flows | {bdps} BDP | {shares:.2?} |");
    }
}

/// Share of packets that a link drops that has carried `part` of 100 Mbit/s for 20 s, during 10 s.
fn dropped_after_slowing(mut world: World<Cheap>, part: f64) -> f64 {
    world.link.rate *= part;
    world.link.buffer *= part;
    let until = world.now + 20 * S;
    world.run(until);
    let (dropped, sent) = (world.link.dropped, world.ours(0).sent);
    world.run(until + 10 * S);
    (world.link.dropped - dropped) as f64 / (world.ours(0).sent - sent) as f64
}

#[test]
fn a_path_that_becomes_slower_is_not_held_against() {
    for part in [0.1, 0.3, 0.42, 0.6] {
        let mut alone = world(0.5, 7);
        alone.add_ours(Duration::ZERO, ours(1, Priority::Normal));
        alone.run(10 * S);
        let dropped = dropped_after_slowing(alone, part);
        assert!(dropped < 0.02, "{dropped} dropped alone at {part} of the rate");
        let mut after_bbr = world(0.5, 7);
        after_bbr.add_ours(Duration::ZERO, ours(1, Priority::Normal));
        after_bbr.add_bbr(5 * S);
        after_bbr.run(40 * S);
        let state = after_bbr.ours(0).sender.describe();
        assert!(state.contains("holds true"), "{state}");
        after_bbr.end(1);
        let dropped = dropped_after_slowing(after_bbr, part);
        assert!(dropped < 0.02, "{dropped} dropped after BBR at {part} of the rate");
    }
}

/// Prints shares and queues beside BBR, and those of others.
#[test]
#[ignore = "prints figures"]
fn figures_beside_bbr() {
    println!("| priority | queue, BDP | first | share beside BBR | queue p50, ms |");
    println!("|---|--:|---|--:|--:|");
    for priority in Priority::ALL {
        for bdps in [0.5, 1.0, 2.0, 4.0] {
            for is_first in [true, false] {
                let runs = [1, 2, 3, 4, 5].map(|seed| beside_bbr(priority, bdps, is_first, seed));
                let (shares, queues) = (runs.map(|run| run.0), runs.map(|run| run.1));
                println!("| {priority:?} | {bdps} | {is_first} | {shares:.2?} | {queues:.0?} |");
            }
        }
    }
    for bdps in [0.5, 1.0, 2.0, 4.0] {
        println!("two BBR flows at {bdps} BDP: {:.0} ms", queue_of_two_bbrs(bdps));
    }
}
