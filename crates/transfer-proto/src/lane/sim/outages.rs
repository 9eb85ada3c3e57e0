//! After an outage a transfer is as fast as before within three seconds, and after the
//! client's address has changed as well.

use std::time::Duration;

use super::super::Event;
use super::super::testing::Cheap;
use super::{Link, Losses, Opener, Ours, World};
use crate::rate::RateConfig;

const MS: Duration = Duration::from_millis(1);
const S: Duration = Duration::from_secs(1);
/// The transfer is undisturbed until then.
const BEGINS: Duration = Duration::from_secs(8);
const OPENERS: [Opener; 2] = [Opener::Sender, Opener::Receiver];

/// 100 Mbit/s, a round trip of 70 ms, 0.3 % loss each way.
fn world(opener: Opener) -> World<Cheap> {
    let mut link = Link::new(100.0, 70 * MS, 1.0);
    link.losses = Losses::alone(0.003);
    let mut world = World::new(link, 1);
    world.feedback_losses = Losses::alone(0.003);
    let ours = Ours::opened_by(opener, 1, u64::MAX, RateConfig::default(), 1472);
    world.add_ours(Duration::ZERO, ours);
    world.run(BEGINS);
    world
}

/// Checks the rate in the third second from `healed` on against that before the outage.
fn assert_is_back(mut world: World<Cheap>, healed: Duration, what: &str) {
    let before = world.mbps(0, BEGINS - 4 * S, BEGINS);
    assert!(before > 75.0, "{what}: {before} Mbit/s before");
    world.run(healed + 13 * S);
    let after = world.mbps(0, healed + 2 * S, healed + 3 * S);
    assert!(after >= 0.8 * before, "{what}: {after} of {before} Mbit/s after three seconds");
    let later = world.mbps(0, healed + 3 * S, healed + 13 * S);
    assert!(later >= 0.9 * before, "{what}: {later} of {before} Mbit/s later");
}

#[test]
fn returns_to_its_rate_within_three_seconds_of_an_outage() {
    for opener in OPENERS {
        for outage in [1200, 2000, 3000, 12_000, 15_000, 20_000, 25_000] {
            for dark in [[true; 2], [true, false], [false, true]] {
                let mut world = world(opener);
                world.dark = dark;
                let healed = BEGINS + outage * MS;
                world.run(healed);
                world.dark = [false; 2];
                let what = format!("{opener:?} is the client, {dark:?} dark for {outage} ms");
                assert_is_back(world, healed, &what);
            }
        }
    }
}

#[test]
fn both_ends_report_silence_and_its_end_whoever_sends() {
    for opener in OPENERS {
        let mut world = world(opener);
        world.dark = [true; 2];
        world.run(BEGINS + 5 * S);
        world.dark = [false; 2];
        world.run(BEGINS + 10 * S);
        let ours = world.ours(0);
        let client = match opener {
            Opener::Sender => &ours.events,
            Opener::Receiver => &ours.receiver_events,
        };
        for events in [client, &ours.events] {
            let told: Vec<Event> = events
                .iter()
                .filter(|(at, event)| {
                    *at >= BEGINS && matches!(event, Event::Silent | Event::Answered)
                })
                .map(|(_, event)| *event)
                .collect();
            assert_eq!(told, [Event::Silent, Event::Answered], "{opener:?} is the client");
        }
    }
}

#[test]
fn returns_to_its_rate_when_the_address_of_the_client_changes() {
    for opener in OPENERS {
        for outage in [0, 2000, 15_000] {
            for new in [([198, 51, 100, 7], 9), ([192, 0, 2, 1], 9), ([192, 0, 2, 2], 9)] {
                let mut world = world(opener);
                world.dark = [outage > 0; 2];
                let healed = BEGINS + outage * MS;
                world.run(healed);
                world.dark = [false; 2];
                let ours = world.ours(0);
                match opener {
                    Opener::Sender => ours.sender_at = new.into(),
                    Opener::Receiver => ours.receiver_at = new.into(),
                }
                let what = format!("{opener:?} is the client, now at {new:?} after {outage} ms");
                assert_is_back(world, healed, &what);
            }
        }
    }
}

#[test]
fn a_path_that_became_slower_in_an_outage_is_not_flooded() {
    for opener in OPENERS {
        let mut world = world(opener);
        world.dark = [true; 2];
        world.run(BEGINS + 5 * S);
        world.dark = [false; 2];
        world.link.rate /= 10.0;
        let dropped = world.link.dropped;
        world.run(BEGINS + 8 * S);
        // the queue holds 875 kB; three seconds of the link are 3.75 MB
        let flooded = (world.link.dropped - dropped) * 1500;
        assert!(flooded < 1_000_000, "{flooded} bytes dropped");
        let mbps = world.mbps(0, BEGINS + 7 * S, BEGINS + 8 * S);
        assert!(mbps > 6.0, "{mbps} of 10 Mbit/s");
    }
}

#[test]
fn a_silent_path_gets_about_a_packet_a_second() {
    for opener in OPENERS {
        let mut world = world(opener);
        world.dark = [true; 2];
        world.run(BEGINS + 5 * S);
        let sent = world.ours(0).sent;
        world.run(BEGINS + 65 * S);
        let probes = world.ours(0).sent - sent;
        // and reminders that this end is not known to be validated, every few seconds
        assert!((30..=75).contains(&probes), "{probes} packets in a minute");
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Pause {
    Sender,
    Receiver,
    Link,
}

/// 200 Mbit/s, a round trip of 30 ms, 1 % loss in bursts of eight packets: a transfer was
/// seen to end here when a host or the link stood still.
#[test]
fn pauses_of_hosts_and_link_end_no_transfer() {
    const BYTES: u64 = 24_000_000;
    let begins = 500 * MS;
    for opener in OPENERS {
        for pause in [Pause::Sender, Pause::Receiver, Pause::Link] {
            for seconds in [1, 2, 5, 10] {
                let mut link = Link::new(200.0, 30 * MS, 1.0);
                link.losses = Losses::in_bursts(0.01, 8);
                let mut world: World<Cheap> = World::new(link, seconds.into());
                world.feedback_losses = Losses::in_bursts(0.01, 8);
                let rate = RateConfig::default();
                world.add_ours(Duration::ZERO, Ours::opened_by(opener, 1, BYTES, rate, 1472));
                world.run(begins);
                let healed = begins + seconds * S;
                match pause {
                    Pause::Sender => world.pause(0, healed),
                    Pause::Receiver => world.pause(1, healed),
                    Pause::Link => {
                        world.link.pause(healed);
                        world.dark[1] = true;
                    }
                }
                let before = world.ours(0).bytes_arrived();
                world.run(healed);
                world.dark = [false; 2];
                world.run(healed + 60 * S);
                let ours = world.ours(0);
                let what = format!("{pause:?} paused for {seconds} s, {opener:?} is the client");
                assert!(before > 0 && before < BYTES, "{what}: {before} bytes before");
                assert_eq!(ours.bytes_arrived(), BYTES, "{what}");
                assert!(ours.done_at.is_some(), "{what}");
                let ended = |(_, event): &(Duration, Event)| {
                    matches!(event, Event::Closed(_) | Event::KeyExhausted)
                };
                let events = || ours.events.iter().chain(&ours.receiver_events);
                assert!(!events().any(ended), "{what}: {:?}", ours.events);
            }
        }
    }
}
