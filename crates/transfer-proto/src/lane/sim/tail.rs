//! How long the end of a transfer takes, when there is nothing new to send.

use std::time::Duration;

use super::super::testing::Cheap;
use super::{Link, Losses, Ours, World};
use crate::rate::RateConfig;

const MS: Duration = Duration::from_millis(1);
const S: Duration = Duration::from_secs(1);
const RTT: Duration = Duration::from_millis(300);

/// The end of a transfer.
struct Tail {
    /// From when nothing waits to be sent until all is acknowledged.
    took: Duration,
    /// Bytes of packets that were sent again before they were known to be lost.
    repeated: u64,
}

/// Moves so many bytes over 50 Mbit/s and 300 ms.
fn tail(bytes: u64, loss: f64, seed: u64) -> Tail {
    let mut link = Link::new(50.0, RTT, 0.16);
    link.losses = Losses::alone(loss);
    let mut world: World<Cheap> = World::new(link, seed);
    world.feedback_losses = Losses::alone(loss);
    world.add_ours(Duration::ZERO, Ours::new(seed, bytes, RateConfig::default(), 1472));
    world.run(100 * MS);
    let mut nothing_waits = None;
    loop {
        let until = world.now + 5 * MS;
        world.run(until);
        assert!(until < 60 * S, "it does not end");
        let ours = world.ours(0);
        if ours.sender.waiting() == 0 {
            nothing_waits.get_or_insert(until);
        }
        if let (Some(since), Some(done)) = (nothing_waits, ours.done_at) {
            assert_eq!(ours.bytes_arrived(), bytes);
            return Tail { took: done - since, repeated: ours.sender.stats().repeated };
        }
    }
}

#[test]
fn the_last_losses_cost_no_further_round_trip() {
    const BYTES: u64 = 40_000_000;
    let tails = [1, 2, 3, 4, 5].map(|seed| tail(BYTES, 0.01, seed));
    let mean = tails.iter().map(|tail| tail.took).sum::<Duration>() / 5;
    // of what is in flight some packets are lost: two round trips, if they are sent again when
    // they are known to be
    assert!(mean < RTT * 9 / 5, "{mean:?}");
    for Tail { repeated, .. } in tails {
        assert!((1..=BYTES / 28).contains(&repeated), "{repeated} bytes sent again");
    }
}

#[test]
fn nothing_is_sent_again_where_nothing_is_lost() {
    let tail = tail(20_000_000, 0.0, 1);
    assert_eq!(tail.repeated, 0);
    assert!(tail.took < RTT * 3 / 2, "{:?}", tail.took);
}

/// Prints the ends of transfers. `cargo test --release -- --ignored --nocapture figures_of_tails`
#[test]
#[ignore = "prints figures"]
fn figures_of_tails() {
    println!("| MB | loss | round trips until all is acknowledged, by seed | sent again, % |");
    println!("|--:|--:|---|---|");
    for megabytes in [2, 10, 40] {
        for loss in [0.0, 0.001, 0.003, 0.01, 0.02] {
            let bytes = megabytes * 1_000_000;
            let tails = [1, 2, 3, 4, 5].map(|seed| tail(bytes, loss, seed));
            let round_trips = tails.each_ref().map(|tail| tail.took.div_duration_f64(RTT));
            let share = tails.each_ref().map(|tail| 100.0 * tail.repeated as f64 / bytes as f64);
            println!("| {megabytes} | {loss} | {round_trips:.2?} | {share:.2?} |");
        }
    }
}
