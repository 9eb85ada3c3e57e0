//! `headroom tunnel` and `headroom ipsec` between hosts of the tests' own. One program, so
//! that its tests, which wait most of the time, run beside each other.

#[path = "../common/mod.rs"]
mod common;

mod commands;
mod ike;
mod ike_pool;
