//! `headroom serve`, the commands that talk to it and its page. One program, so that its
//! tests, which wait most of the time, run beside each other; `tests/transfer_snapshots.rs`
//! has what they print.

#[path = "../common/mod.rs"]
mod common;

mod browse;
mod browser;
mod bucket;
mod commands;
mod fleet;
mod measuring;
mod monitoring;
mod roaming;
mod server;
mod spread;
mod store;
mod words;
