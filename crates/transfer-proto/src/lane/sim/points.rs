//! Whole transfers over six links, the start included, and who gets what beside a TCP.

use std::time::Duration;

use super::super::testing::Cheap;
use super::{Link, Losses, Opener, Ours, World};
use crate::rate::RateConfig;

const MS: Duration = Duration::from_millis(1);
const S: Duration = Duration::from_secs(1);
/// Bytes of an Ethernet header, which count on the link as in netem.
const ETHERNET: usize = 14;
/// A full packet on the link.
const FULL: f64 = 1514.0;
/// Bytes of a file in it.
const CONTENT: f64 = 1425.0;
/// Round trips of a session before its lane opens: the handshake, and the request, which entries
/// follow at once, with its answer (docs/transfer.md, "A delivery"). A `put` ends with the server's
/// answer, which travels with the last acknowledgement; a `get` when the client has everything.
const SESSION_ROUND_TRIPS: u32 = 2;

/// A link, and the transfer over it.
#[derive(Debug, Clone, Copy)]
struct Point {
    name: &'static str,
    mbps: f64,
    rtt: u32,
    loss: f64,
    burst: u32,
    /// Packets.
    queue: f64,
    megabytes: u64,
    /// Per cent of the link's rate that it is to use at least.
    least: f64,
}

const POINTS: [Point; 6] = [
    Point {
        name: "a",
        mbps: 100.0,
        rtt: 70,
        loss: 0.003,
        burst: 1,
        queue: 406.0,
        megabytes: 100,
        least: 90.0,
    },
    Point {
        name: "b",
        mbps: 100.0,
        rtt: 150,
        loss: 0.02,
        burst: 1,
        queue: 406.0,
        megabytes: 100,
        least: 86.0,
    },
    Point {
        name: "c",
        mbps: 50.0,
        rtt: 300,
        loss: 0.01,
        burst: 1,
        queue: 203.0,
        megabytes: 60,
        least: 82.0,
    },
    Point {
        name: "d",
        mbps: 200.0,
        rtt: 30,
        loss: 0.01,
        burst: 8,
        queue: 812.0,
        megabytes: 200,
        least: 91.0,
    },
    Point {
        name: "e",
        mbps: 20.0,
        rtt: 600,
        loss: 0.001,
        burst: 1,
        queue: 100.0,
        megabytes: 40,
        least: 80.0,
    },
    Point {
        name: "f",
        mbps: 500.0,
        rtt: 10,
        loss: 0.0,
        burst: 1,
        queue: 50.0,
        megabytes: 200,
        least: 91.0,
    },
];

/// Per cent that the transfers use today, in the order of [`POINTS`], less a little.
const HOLDS: [f64; 6] = [89.5, 85.0, 81.0, 91.0, 80.5, 91.0];

/// A finished transfer.
#[derive(Debug, Clone, Copy)]
struct Took {
    /// With the round trips of a session.
    seconds: f64,
    /// Per cent of the link's rate.
    share: f64,
    /// Per cent from the tenth round trip on to a second before the end.
    after_start: f64,
    /// When it first had 90 % of what the link carries for a tenth of a second.
    full_at: f64,
    dropped: u64,
    queue_ms: [f32; 2],
}

fn rate() -> RateConfig {
    RateConfig { peer_buffer: Some(4 << 20), ..RateConfig::default() }
}

impl Point {
    fn rtt(&self) -> Duration {
        self.rtt * MS
    }

    fn world(&self, seed: u64) -> World<Cheap> {
        let mut link = Link::new(self.mbps, self.rtt(), 1.0);
        link.buffer = self.queue * FULL;
        link.losses = Losses::in_bursts(self.loss, self.burst);
        let mut world = World::new(link, seed);
        world.framing = ETHERNET;
        world.feedback_losses = Losses::in_bursts(self.loss, self.burst);
        world
    }

    fn transfer(&self, opener: Opener, seed: u64) -> Took {
        let mut world = self.world(seed);
        let bytes = self.megabytes * 1_000_000;
        world.add_ours(Duration::ZERO, Ours::opened_by(opener, seed, bytes, rate(), 1472));
        let done = loop {
            let until = world.now + 100 * MS;
            world.run(until);
            let ours = world.ours(0);
            let ended = match opener {
                Opener::Sender => ours.done_at,
                Opener::Receiver => ours.received_at,
            };
            if let Some(done) = ended {
                break done;
            }
            assert!(until < 120 * S, "{self:?} does not end");
        };
        let seconds = (done + SESSION_ROUND_TRIPS * self.rtt()).as_secs_f64();
        let capacity = self.mbps * CONTENT / FULL;
        let full_at = world.goodput[0]
            .iter()
            .position(|&bytes| bytes as f64 * 8e-5 >= 0.9 * capacity)
            .map_or(f64::NAN, |bin| bin as f64 / 10.0);
        Took {
            seconds,
            share: bytes as f64 * 800e-6 / seconds / self.mbps,
            after_start: 100.0 * world.mbps(0, 10 * self.rtt(), done - S) / self.mbps,
            full_at,
            dropped: world.link.dropped,
            queue_ms: [0.5, 0.95].map(|share| world.link.queue_quantile(share)),
        }
    }
}

/// What holds of the six points: what start-up, losses and a short queue leave of the link.
#[test]
fn whole_transfers_use_the_links_of_six_kinds() {
    for (point, holds) in POINTS.iter().zip(HOLDS) {
        for opener in [Opener::Sender, Opener::Receiver] {
            let took = point.transfer(opener, 2);
            assert!(took.share >= holds, "{} {opener:?}: {took:?}", point.name);
        }
    }
}

/// The feedback of a round trip is eight packets, which one burst takes: without more of it the
/// window closes, and each timeout sends little into the same burst, until the lane is silent.
#[test]
fn bursts_that_take_all_feedback_of_a_round_trip_do_not_silence_a_transfer() {
    let point = &POINTS[3];
    for opener in [Opener::Sender, Opener::Receiver] {
        let shares: [f64; 8] =
            std::array::from_fn(|seed| point.transfer(opener, seed as u64 + 1).share);
        // the worst of 48 was 89
        assert!(shares.iter().all(|&share| share >= 87.0), "{opener:?}: {shares:.1?}");
    }
}

/// One lost packet in a hundred, or two: of eight transfers none waits for a timeout because the
/// answer to its challenge was lost.
#[test]
fn a_lost_challenge_does_not_delay_a_transfer() {
    for point in [POINTS[1], POINTS[2]] {
        for seed in 1..=8 {
            let took = point.transfer(Opener::Receiver, seed);
            assert!(took.share >= point.least - 2.0, "{seed}: {took:?}");
        }
    }
}

#[test]
fn startup_fills_long_links_in_three_round_trips() {
    // queues of 48 and 60 ms
    for (mbps, rtt, bdps) in [(50.0, 300, 0.16), (20.0, 600, 0.1)] {
        let mut world: World<Cheap> = World::new(Link::new(mbps, rtt * MS, bdps), 1);
        let ours = Ours::new(1, u64::MAX, RateConfig::default(), 1472);
        world.add_ours(Duration::ZERO, ours);
        let full = world.link.rate * f64::from(rtt) * 1e-3;
        // half of a round trip passes until data arrives
        world.run(rtt * MS * 7 / 2);
        let arrived = world.ours(0).bytes_arrived() as f64 / full;
        assert!(arrived >= 1.33, "{mbps} Mbit/s, {rtt} ms: {arrived} of what is on the way");
        assert_eq!(world.link.dropped, 0, "{mbps} Mbit/s, {rtt} ms");
    }
}

/// Two round trips are the session's, one the first packets' and one the end's. The rest is for
/// what startup sends at less than the rate of the link, and for half of a round trip on the way.
#[test]
fn a_mebibyte_on_a_lane_takes_at_most_five_round_trips_more_than_the_link_needs() {
    const BYTES: u64 = 1 << 20;
    let point = Point { loss: 0.0, ..POINTS[0] };
    let needs = BYTES as f64 / CONTENT * FULL * 8e-6 / point.mbps;
    for opener in [Opener::Sender, Opener::Receiver] {
        let mut world = point.world(1);
        world.add_ours(Duration::ZERO, Ours::opened_by(opener, 1, BYTES, rate(), 1472));
        // the client is done
        let is_done = |ours: &Ours<Cheap>| match opener {
            Opener::Sender => ours.done_at.is_some(),
            Opener::Receiver => ours.bytes_arrived() == BYTES,
        };
        while !is_done(world.ours(0)) {
            let until = world.now + MS;
            world.run(until);
            assert!(until < 10 * S, "{opener:?}: it does not end");
        }
        let took = world.now + SESSION_ROUND_TRIPS * point.rtt();
        let more = (took.as_secs_f64() - needs) / point.rtt().as_secs_f64();
        assert!(more <= 5.0, "{opener:?}: {more:.2} round trips");
    }
}

/// Prints the six points, or the one that `POINT` names.
/// `cargo test ... -- --ignored --nocapture figures_of_points`
#[test]
#[ignore = "prints figures"]
fn figures_of_points() {
    println!(
        "| link | sends | % of the link | after the start | least | s | full after s | dropped | queue ms p50, p95 |"
    );
    println!("|---|---|--:|--:|--:|--:|--:|--:|--:|");
    let chosen = std::env::var("POINT").ok();
    for point in
        POINTS.iter().filter(|point| chosen.as_deref().is_none_or(|name| name == point.name))
    {
        for opener in [Opener::Sender, Opener::Receiver] {
            let took: [_; 8] = std::array::from_fn(|seed| point.transfer(opener, seed as u64 + 1));
            let shares = took.map(|took| took.share);
            let worst =
                took.iter().copied().min_by(|a, b| a.share.total_cmp(&b.share)).expect("eight");
            println!(
                "| {} | {} | {shares:.1?} | {:.1} | {} | {:.2} | {:.1} | {} | {:.1?} |",
                point.name,
                if opener == Opener::Sender { "client" } else { "server" },
                worst.after_start,
                point.least,
                worst.seconds,
                worst.full_at,
                worst.dropped,
                worst.queue_ms,
            );
        }
    }
}

/// The same for BBR, to see whether the model of the link and of BBR agree with the kernel.
#[test]
#[ignore = "prints figures"]
fn figures_of_points_with_bbr() {
    for point in POINTS {
        let shares = [1, 2, 3].map(|seed| {
            let mut world = point.world(seed);
            world.add_bbr(Duration::ZERO);
            let bytes = point.megabytes * 1_000_000;
            while world.goodput[0].iter().sum::<u64>() < bytes {
                let until = world.now + 100 * MS;
                world.run(until);
                assert!(until < 120 * S, "{point:?} does not end");
            }
            let seconds = (world.now + 2 * point.rtt()).as_secs_f64();
            bytes as f64 * 800e-6 / seconds / point.mbps
        });
        println!("| {} | BBR | {shares:.1?} |", point.name);
    }
}

#[derive(Debug, Clone, Copy)]
enum Other {
    Cubic,
    Bbr,
    Ours,
}

/// Mbit/s of ours and of the other over a minute that begins 10 s after the later of them, at
/// 100 Mbit/s and 50 ms.
fn beside(other: Other, first: bool, bdps: f64, seed: u64) -> ([f64; 2], f32) {
    let mut link = Link::new(100.0, 50 * MS, bdps);
    link.buffer = (bdps * 100e6 / 8.0 * 0.05).max(4.0 * FULL);
    let mut world: World<Cheap> = World::new(link, seed);
    let (a, b) = if first { (Duration::ZERO, 5 * S) } else { (5 * S, Duration::ZERO) };
    world.add_ours(a, Ours::new(1, u64::MAX, RateConfig::default(), 1472));
    match other {
        Other::Cubic => world.add_tcp(b),
        Other::Bbr => world.add_bbr(b),
        Other::Ours => world.add_ours(b, Ours::new(2, u64::MAX, RateConfig::default(), 1472)),
    }
    world.run(15 * S);
    world.link.queued_ms.clear();
    world.run(75 * S);
    ([0, 1].map(|flow| world.mbps(flow, 15 * S, 75 * S)), world.link.queue_quantile(0.5))
}

/// Prints the sharing grid.
#[test]
#[ignore = "prints figures"]
fn figures_of_sharing() {
    println!("| other | first | queue, BDP | ours | other | share | queue p50 ms |");
    println!("|---|---|--:|--:|--:|--:|--:|");
    for other in [Other::Cubic, Other::Bbr, Other::Ours] {
        for first in [true, false] {
            for bdps in [0.5, 1.0, 4.0, 20.0] {
                let runs = [7, 8].map(|seed| beside(other, first, bdps, seed));
                let shares = runs.map(|([a, b], _)| a / (a + b));
                let ([a, b], queue) = runs[0];
                println!(
                    "| {other:?} | {} | {bdps} | {a:.1} | {b:.1} | {shares:.2?} | {queue:.0} |",
                    if first { "ours" } else { "other" },
                );
            }
        }
    }
}

/// Prints the state over time of a transfer: `POINT`, `SEED`, `RTTS` and `SENDER` (`server`)
/// choose it.
#[test]
#[ignore = "prints figures"]
fn figures_over_time() {
    let chosen = std::env::var("POINT").unwrap_or_else(|_| "f".into());
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let (rtts, seed) = (number("RTTS").unwrap_or(60), u64::from(number("SEED").unwrap_or(1_u32)));
    let point = POINTS.iter().find(|point| point.name == chosen).expect("a point");
    let is_server = std::env::var("SENDER").is_ok_and(|sender| sender == "server");
    let opener = if is_server { Opener::Receiver } else { Opener::Sender };
    let mut world = point.world(seed);
    world.add_ours(Duration::ZERO, Ours::opened_by(opener, seed, u64::MAX, rate(), 1472));
    let mut before = (String::new(), 0, 0);
    for step in 0..rtts * 8 {
        world.run(point.rtt() / 8 * step);
        let now = world.now.as_secs_f64() / point.rtt().as_secs_f64();
        let (dropped, ours) = (world.link.dropped, world.ours(0));
        let (state, arrived) = (ours.sender.describe(), ours.bytes_arrived());
        let mode = state.split_whitespace().next().unwrap_or_default().to_owned();
        if mode != before.0 || step % 8 == 0 {
            let share = (arrived - before.2) as f64 / 8.0;
            println!("| {now:6.2} rtt | {state} | dropped {} | {share:.0}", dropped - before.1);
            before = (mode, dropped, arrived);
        }
    }
}
