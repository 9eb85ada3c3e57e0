//! How workers with items and without share the rate.

use super::*;
use crate::share::{MEMORY, Sharers};

/// A worker as the engine sees it, and what it makes of its orders.
struct Worker {
    name: &'static str,
    sharers: Sharers,
    item: Option<Item>,
}

impl Worker {
    /// A worker without an item.
    fn new(name: &'static str) -> Self {
        Self { name, sharers: Sharers::default(), item: None }
    }

    /// Settles the item that it has.
    fn settle<B: Bench>(&mut self, bench: &B, engine: &mut B::Engine) {
        let item = self.item.take().expect("an item");
        assert!(engine.settle(item.lease, &all_copied(&item), bench.now_ms()).expect("an answer"));
    }
}

/// Lets each worker report once. Returns the shares by which they go then, in Mbit/s, and checks
/// that those with items do not exceed the limit together.
fn report<B: Bench>(bench: &B, engine: &mut B::Engine, workers: &mut [Worker; 3]) -> [u64; 3] {
    let shares = workers.each_mut().map(|Worker { name, sharers, item }| {
        let lease = item.as_ref().map(|item| item.lease);
        let orders = engine.beat(name, lease, 0, bench.now_ms()).expect("orders");
        let division = sharers.steady(orders.division, item.is_some());
        division.expect("a limit").share_bps() / 1_000_000
    });
    let has_item = workers.each_ref().map(|worker| worker.item.is_some());
    let used: u64 = shares.iter().zip(has_item).filter(|it| it.1).map(|it| it.0).sum();
    assert!(used <= 90, "{shares:?}, with items {has_item:?}");
    shares
}

/// Only workers with items share the rate. One that waits begins with what it has if all work.
pub(super) fn run<B: Bench>(mut bench: B) {
    let job = job(&bench, "rate = \"90mbit\"\nlease = \"3600s\"");
    let mut engine = bench.begin(&job).expect("a state");
    list(&mut engine, 3, 1);
    let mut workers = ["one", "two", "three"].map(Worker::new);
    // now they know of each other
    report(&bench, &mut engine, &mut workers);
    assert_eq!(report(&bench, &mut engine, &mut workers), [30, 30, 30]);
    // the only one with an item has all, when that has been so for a while
    workers[0].item = Some(take(&mut bench, &mut engine, "one"));
    for _ in 1..MEMORY {
        assert_eq!(report(&bench, &mut engine, &mut workers), [30, 30, 30]);
    }
    assert_eq!(report(&bench, &mut engine, &mut workers), [90, 30, 30]);
    // until another one has an item
    workers[1].item = Some(take(&mut bench, &mut engine, "two"));
    assert_eq!(report(&bench, &mut engine, &mut workers), [45, 30, 30]);
    for _ in 1..MEMORY {
        report(&bench, &mut engine, &mut workers);
    }
    assert_eq!(report(&bench, &mut engine, &mut workers), [45, 45, 30]);
    // between two items a worker keeps its share, and no other one gets it
    workers[0].settle(&bench, &mut engine);
    assert_eq!(report(&bench, &mut engine, &mut workers), [45, 45, 30]);
    workers[0].item = Some(take(&mut bench, &mut engine, "one"));
    assert_eq!(report(&bench, &mut engine, &mut workers), [45, 45, 30]);
    // one that finds no other item gives it back
    workers[1].settle(&bench, &mut engine);
    for _ in 1..MEMORY {
        assert_eq!(report(&bench, &mut engine, &mut workers)[0], 45);
    }
    assert_eq!(report(&bench, &mut engine, &mut workers), [90, 30, 30]);
}
