//! Rekeying and deleting from both sides at once, under every order of arrival.

use headroom_ike::PostQuantum;
use rand::rngs::ChaCha12Rng;
use rand::{RngExt, SeedableRng};

use crate::world::{A, B, World};

/// What a host does.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Action {
    RekeyChild(usize),
    RekeyIke(usize),
    CreateChild(usize),
    CloseChild(usize),
    Close(usize),
}

impl Action {
    fn run(self, world: &mut World) {
        match self {
            Self::RekeyChild(host) => world.rekey_child(host),
            Self::RekeyIke(host) => world.rekey_ike(host),
            Self::CreateChild(host) => world.create_child(host),
            Self::CloseChild(host) => world.close_child(host),
            Self::Close(host) => world.close(host),
        }
    }
}

use Action::{Close, CloseChild, CreateChild, RekeyChild, RekeyIke};

/// What both hosts do at the same time.
const SIMULTANEOUS: [&[Action]; 12] = [
    &[RekeyChild(A)],
    &[RekeyIke(A)],
    &[RekeyChild(A), RekeyChild(B)],
    &[RekeyIke(A), RekeyIke(B)],
    &[RekeyChild(A), RekeyIke(B)],
    &[RekeyIke(A), RekeyChild(B)],
    &[CloseChild(A), RekeyChild(B)],
    &[CloseChild(A), CloseChild(B)],
    &[CloseChild(A), RekeyIke(B)],
    &[Close(A), RekeyIke(B)],
    &[Close(A), RekeyChild(B)],
    &[Close(A), Close(B)],
];

/// What the network may do next, with the datagram at an index.
#[derive(Clone, Copy, Debug)]
enum Step {
    Deliver(usize),
    Duplicate(usize),
    Lose(usize),
    /// Both hosts send a packet, which is under way while messages arrive.
    Send,
    /// All packets arrive.
    Packets,
    Wait,
}

fn steps(world: &World) -> Vec<Step> {
    let each = (0..world.in_flight.len())
        .flat_map(|at| [Step::Deliver(at), Step::Duplicate(at), Step::Lose(at)]);
    each.chain([Step::Packets, Step::Wait]).collect()
}

fn step(world: &mut World, step: Step) {
    match step {
        Step::Deliver(at) => world.deliver(at, false),
        Step::Duplicate(at) => world.deliver(at, true),
        Step::Lose(at) => drop(world.in_flight.swap_remove(at)),
        Step::Send => [A, B].into_iter().for_each(|host| world.send_packet(host)),
        Step::Packets => {
            [A, B].into_iter().for_each(|host| world.send_packet(host));
            world.arrive();
        }
        Step::Wait => drop(world.advance()),
    }
}

fn finish(world: &mut World, actions: &[Action]) {
    world.settle();
    let closes = |action: &Action| matches!(action, Close(_));
    if actions.iter().any(closes) {
        return world.check_closed();
    }
    if actions.iter().any(|action| matches!(action, CreateChild(_))) {
        return world.check_children(world.hosts[A].children.len());
    }
    let closed = actions.iter().any(|action| matches!(action, CloseChild(_)));
    if !closed {
        world.check_agreement(1);
    } else {
        // the deletion may have met the old or the new one
        let left = world.hosts[A].children.len();
        assert!(left <= 1);
        world.check_agreement(left);
    }
}

/// Runs all sequences of `depth` steps of the network, then lets it settle. Returns how many.
fn exhaust(policy: PostQuantum, actions: &[Action], depth: usize) -> usize {
    let mut count = 0;
    // the choice at each step; a run makes the choices so far and then the first of each
    let mut path: Vec<(usize, usize)> = Vec::new();
    loop {
        let mut world = World::established(policy, 7);
        actions.iter().for_each(|action| action.run(&mut world));
        for at in 0..depth {
            let choices = steps(&world);
            let chosen = match path.get(at) {
                Some(&(chosen, _)) => chosen,
                None => {
                    path.push((0, choices.len()));
                    0
                }
            };
            step(&mut world, choices[chosen]);
        }
        if std::env::var_os("IKE_TRACE").is_some() {
            println!("{actions:?} {path:?}");
        }
        finish(&mut world, actions);
        count += 1;
        while let Some((chosen, of)) = path.pop() {
            if chosen + 1 < of {
                path.push((chosen + 1, of));
                break;
            }
        }
        if path.is_empty() {
            return count;
        }
    }
}

/// Runs one random schedule: actions of both hosts at any time, losses up to a third.
fn random_schedule(seed: u64) -> usize {
    let mut random = ChaCha12Rng::seed_from_u64(seed);
    let policy = if random.random_ratio(1, 4) { PostQuantum::Required } else { PostQuantum::Off };
    let mut world = World::established(policy, seed);
    let [may_close, may_close_child, may_create] =
        [4, 4, 8].map(|among| random.random_ratio(1, among));
    let loss = random.random_range(0..3);
    let mut done = Vec::new();
    for _ in 0..random.random_range(10..80) {
        if random.random_ratio(1, 8) {
            let host = random.random_range(0..2);
            let action = match random.random_range(0..10) {
                0..4 => RekeyChild(host),
                4..7 => RekeyIke(host),
                7 if may_close => Close(host),
                8 if may_close_child => CloseChild(host),
                9 if may_create => CreateChild(host),
                _ => continue,
            };
            done.push(action);
            action.run(&mut world);
            if matches!(action, Close(_)) {
                break;
            }
            continue;
        }
        if world.in_flight.is_empty() || random.random_ratio(1, 5) {
            step(&mut world, [Step::Send, Step::Packets, Step::Wait][random.random_range(0..3)]);
            continue;
        }
        let at = random.random_range(0..world.in_flight.len());
        let chosen = match random.random_range(0..9) {
            one if one < loss => Step::Lose(at),
            8 => Step::Duplicate(at),
            _ => Step::Deliver(at),
        };
        step(&mut world, chosen);
    }
    finish(&mut world, &done);
    world.sent
}

#[test]
fn every_order_of_a_few_steps_ends_well() {
    for actions in SIMULTANEOUS {
        for (policy, depth) in [(PostQuantum::Off, 3), (PostQuantum::Required, 2)] {
            assert!(exhaust(policy, actions, depth) > 20, "{actions:?}");
        }
    }
}

#[test]
fn random_schedules_end_well() {
    run_seeds(0..300);
}

/// `IKE_DEPTH=5 cargo test --release -p headroom-ike --test ike -- --ignored exhausted --nocapture`
#[test]
#[ignore = "minutes to hours"]
fn every_order_of_more_steps_is_exhausted() {
    let depth = std::env::var("IKE_DEPTH").map_or(5, |text| text.parse().expect("a number"));
    for actions in SIMULTANEOUS {
        for policy in [PostQuantum::Off, PostQuantum::Required] {
            println!("{actions:?} {policy:?}: {} schedules", exhaust(policy, actions, depth));
        }
    }
}

/// `IKE_SEEDS=0..1000000 cargo test --release -p headroom-ike --test ike -- --ignored many_random`
#[test]
#[ignore = "minutes to hours"]
fn many_random_schedules_end_well() {
    let seeds = std::env::var("IKE_SEEDS").unwrap_or("300..10000".to_owned());
    let (first, end) = seeds.split_once("..").expect("FIRST..END");
    let number = |text: &str| text.parse::<u64>().expect("a number");
    println!("seeds {seeds}: {} datagrams", run_seeds(number(first)..number(end)));
}

fn run_seeds(seeds: std::ops::Range<u64>) -> usize {
    let run = |seed| {
        let run = std::panic::catch_unwind(|| random_schedule(seed));
        run.unwrap_or_else(|_| panic!("seed {seed}"))
    };
    seeds.map(run).sum()
}
