//! Everything arrives, whatever the network does, and nothing is sent that must
//! not be.

use std::time::Duration;

use super::super::Event;
use super::super::testing::{Aes, Cheap};
use super::{Chance, Link, Losses, Ours, World};
use crate::rate::RateConfig;

const MS: Duration = Duration::from_millis(1);
const S: Duration = Duration::from_secs(1);

fn checked(seed: u64, bytes: u64) -> Ours<Aes> {
    let mut ours = Ours::new(seed, bytes, RateConfig::default(), 1472);
    ours.checked = true;
    ours
}

#[test]
fn every_byte_arrives_over_hundreds_of_networks() {
    for seed in 0..300 {
        let mut chance = Chance(seed);
        let mut between = |least: f64, most: f64| least + (most - least) * chance.share();
        let rtt = Duration::from_secs_f64(10_f64.powf(between(-4.0, -0.5)));
        let mut link = Link::new(10_f64.powf(between(0.0, 3.0)), rtt, between(0.1, 3.0));
        link.losses = Losses::in_bursts(between(-0.1, 0.15).max(0.0), between(1.0, 8.0) as u32);
        link.duplicate = between(-0.1, 0.1);
        link.corrupt = between(-0.1, 0.1);
        link.reorder = (between(-0.2, 0.4), rtt.mul_f64(between(0.0, 1.0)));
        link.mtu = between(1228.0, 1600.0) as usize;
        let feedback_losses =
            Losses::in_bursts(between(-0.2, 0.4).max(0.0), between(1.0, 8.0) as u32);
        let bytes = between(0.0, 400_000.0) as u64 + 1;
        let mut world = World::new(link, seed);
        world.feedback_losses = feedback_losses;
        world.add_ours(Duration::ZERO, checked(seed, bytes));
        for _ in 0..200 {
            let until = world.now + S;
            world.run(until);
            if world.ours(0).done_at.is_some() {
                break;
            }
        }
        let now = world.now;
        let ours = world.ours(0);
        assert_eq!(ours.bytes_arrived(), bytes, "network {seed}, after {now:?}");
        assert!(ours.done_at.is_some(), "network {seed}");
    }
}

#[test]
fn without_feedback_the_sender_stops_and_resumes_when_it_returns() {
    let mut world = World::new(Link::new(100.0, 50 * MS, 1.0), 1);
    let ours: Ours<Cheap> = Ours::new(1, u64::MAX, RateConfig::default(), 1472);
    world.add_ours(Duration::ZERO, ours);
    world.run(2 * S);
    world.dark = [true; 2];
    // three timeouts of about 60 to 110 ms
    world.run(2 * S + 500 * MS);
    let sent = world.ours(0).sent;
    assert_eq!(world.ours(0).events.last().map(|(_, event)| *event), Some(Event::Silent));
    world.run(12 * S);
    let probes = world.ours(0).sent - sent;
    assert!((1..=20).contains(&probes), "{probes} packets in ten seconds of silence");
    world.dark = [false; 2];
    world.run(30 * S);
    let mbps = world.mbps(0, 25 * S, 30 * S);
    assert!(mbps > 80.0, "{mbps} Mbit/s after the silence");
}

#[test]
fn a_sender_whose_address_changes_continues() {
    for elsewhere in [false, true] {
        let mut world = World::new(Link::new(100.0, 20 * MS, 1.0), 1);
        world.add_ours(Duration::ZERO, checked(1, 20_000_000));
        world.run(500 * MS);
        let ours = world.ours(0);
        ours.sender_at =
            if elsewhere { ([198, 51, 100, 7], 9).into() } else { ([192, 0, 2, 1], 9).into() };
        let new = ours.sender_at;
        world.run(10 * S);
        let ours = world.ours(0);
        assert!(ours.done_at.is_some());
        assert_eq!(ours.receiver_events.last().map(|(_, event)| *event), Some(Event::Reached(new)));
    }
}

#[test]
fn a_path_that_drops_long_packets_delays_and_does_not_end_a_transfer() {
    let mut link = Link::new(50.0, 30 * MS, 1.0);
    link.losses = Losses::alone(0.01);
    let mut world = World::new(link, 3);
    world.add_ours(Duration::ZERO, checked(1, 40_000_000));
    world.run(2 * S);
    assert_eq!(world.ours(0).sender.stats().mtu, 1472);
    world.link.mtu = 1400;
    world.run(20 * S);
    let ours = world.ours(0);
    assert!(ours.done_at.is_some());
    let mtu = ours.sender.stats().mtu;
    assert!((1364..=1372).contains(&mtu), "{mtu}");
}
