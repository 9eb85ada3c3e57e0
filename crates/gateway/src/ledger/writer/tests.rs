//! An engine's numbers and its ledger, across restarts and reloads.

use std::path::Path;

use headroom_ipsec::Reason;
use tempfile::TempDir;

use super::*;
use crate::config::Config;

const CONFIG: &str = r#"
name = "hr0"
[[sa]]
name = "out-1"
direction = "out"
protocol = "esp"
mode = "tunnel"
spi = 0x1001
source = "192.0.2.1"
destination = "192.0.2.2"
suite = "aes-128-gcm"
key = "000102030405060708090a0b0c0d0e0f10111213"
[[sa]]
name = "in-1"
direction = "in"
protocol = "esp"
mode = "tunnel"
spi = 0x1002
source = "192.0.2.2"
destination = "192.0.2.1"
suite = "aes-128-gcm"
key = "202122232425262728292a2b2c2d2e2f30313233"
[[policy]]
name = "all"
action = "protect"
out = ["out-1"]
in = ["in-1"]
"#;

struct Ground(TempDir);

impl Ground {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    fn place(&self) -> LedgerPaths {
        LedgerPaths {
            ledger: self.0.path().join("hr0.ledger"),
            copy_folder: self.0.path().join("w"),
            name: "hr0".into(),
        }
    }
}

fn engine(text: &str, previous: Option<&Engine>) -> Engine {
    let config = Config::parse(text, Path::new("hr0.toml")).expect("a configuration");
    let associations =
        config.associations.into_iter().map(|association| association.spec).collect();
    Engine::new(associations, config.policies, previous, Duration::ZERO).expect("an engine")
}

/// Sends `packets` and returns the next number.
fn send(engine: &Engine, packets: u64) -> Result<u64, Reason> {
    engine.policies()[0].bundles()[0].reserve(packets, packets)?;
    Ok(next(engine))
}

fn next(engine: &Engine) -> u64 {
    engine.association("out-1").expect("an association").sequence().next()
}

#[test]
fn a_clean_end_gives_back_and_a_crash_does_not() {
    let ground = Ground::new();
    let first = engine(CONFIG, None);
    assert_eq!(send(&first, 1), Err(Reason::LedgerBehind), "nothing is granted without a ledger");
    let ledger_writer = LedgerWriter::start(&ground.place(), &first, true).expect("a ledger");
    assert_eq!(send(&first, 100), Ok(101));
    ledger_writer.stop().expect("a clean end");

    let second = engine(CONFIG, None);
    let ledger_writer = LedgerWriter::start(&ground.place(), &second, false).expect("a ledger");
    assert_eq!(next(&second), 101);
    send(&second, 10).expect("granted");
    drop(ledger_writer); // as if it had been killed

    let third = engine(CONFIG, None);
    let _writer = LedgerWriter::start(&ground.place(), &third, false).expect("a ledger");
    assert_eq!(next(&third), 101 + MIN_BLOCK + 1, "behind the block that was reserved");
}

#[test]
fn the_next_block_is_there_before_the_last_is_used() {
    let ground = Ground::new();
    let engine = engine(CONFIG, None);
    let ledger_writer = LedgerWriter::start(&ground.place(), &engine, true).expect("a ledger");
    let now = Instant::now();
    let granted = || engine.association("out-1").expect("an association").sequence().granted();
    let first = granted();
    send(&engine, MIN_BLOCK / 2 - 1).expect("granted");
    assert!(lock(&ledger_writer.state).poll(now) && granted() == first, "more than half is left");
    send(&engine, 10).expect("granted");
    // a tenth of a second for half of a block: the next is for two seconds of that
    assert!(lock(&ledger_writer.state).poll(now + Duration::from_millis(100)));
    let ahead = granted() - next(&engine);
    assert!(ahead >= MIN_BLOCK, "{ahead}");
    assert_eq!(ledger_writer.last_error(), None);
}

#[test]
fn what_was_accepted_is_refused_after_a_crash() {
    let ground = Ground::new();
    let first = engine(CONFIG, None);
    let ledger_writer = LedgerWriter::start(&ground.place(), &first, true).expect("a ledger");
    first.association("in-1").expect("an association").accepted_up_to(777);
    assert!(lock(&ledger_writer.state).poll(Instant::now() + WINDOW_SAVE_INTERVAL));
    drop(ledger_writer);
    let second = engine(CONFIG, None);
    let _writer = LedgerWriter::start(&ground.place(), &second, false).expect("a ledger");
    assert_eq!(second.association("in-1").expect("an association").highest_accepted(), 777);
}

#[test]
fn a_reload_goes_on_and_a_changed_association_starts_behind() {
    let ground = Ground::new();
    let first = engine(CONFIG, None);
    let ledger_writer = LedgerWriter::start(&ground.place(), &first, true).expect("a ledger");
    send(&first, 100).expect("granted");
    let second = engine(CONFIG, Some(&first));
    ledger_writer.adopt(&second, false).expect("the same keys");
    assert_eq!(send(&second, 1), Ok(102));
    // the same key under another SPI is another association, but not another key
    let moved = engine(&CONFIG.replace("0x1001", "0x2001"), Some(&second));
    ledger_writer.adopt(&moved, false).expect("the same keys");
    assert_eq!(next(&moved), 1 + MIN_BLOCK + 1, "behind all that the old one may still use");
    send(&second, 1).expect("it may: its block is its own");

    let new_key = engine(&CONFIG.replace("0001", "0f01"), Some(&moved));
    let error = ledger_writer.adopt(&new_key, false).expect_err("an unknown key").to_string();
    assert!(error.contains("does not contain the keys of `out-1`"), "{error}");
    assert_eq!(send(&new_key, 1), Err(Reason::LedgerBehind));
    ledger_writer.adopt(&new_key, true).expect("said to be new");
    assert_eq!(send(&new_key, 1), Ok(2));
}

#[test]
fn numbers_of_32_bits_end() {
    let ground = Ground::new();
    let text = CONFIG.replacen("spi", "esn = false\nspi", 1);
    let engine = engine(&text, None);
    let ledger_writer = LedgerWriter::start(&ground.place(), &engine, true).expect("a ledger");
    let sequence = engine.association("out-1").expect("an association").sequence();
    sequence.skip_to(u64::from(u32::MAX) - 10);
    let before = lock(&ledger_writer.state).ledger.state.generation;
    for later in 1..5 {
        assert!(lock(&ledger_writer.state).poll(Instant::now() + Duration::from_secs(later)));
    }
    assert_eq!(sequence.granted(), u64::from(u32::MAX));
    assert!(
        lock(&ledger_writer.state).ledger.state.generation <= before + 1,
        "written once, not for ever"
    );
    assert_eq!(send(&engine, 12), Err(Reason::SequenceExhausted));
    send(&engine, 11).expect("the last eleven");
}
