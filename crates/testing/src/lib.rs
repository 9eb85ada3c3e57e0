//! Helpers for the tests of several crates: two hosts on one link, a capture of the frames
//! between them, programs to execute, servers of a message queue and of objects, a proxy that
//! makes faults, and a parser of metrics. For tests alone: every failure panics.

mod capture;
mod executable;
pub mod exposition;
mod faulty_proxy;
mod host;
mod moto;
mod nats;
mod parts;
mod server;
mod versitygw;

pub use capture::{Capture, contains};
pub use executable::write_executable;
pub use faulty_proxy::{FaultyProxy, WireFault};
pub use headroom_netio::retried;
pub use host::{Host, address, link};
pub use moto::{Moto, moto};
pub use nats::{NatsServers, nats_server};
pub use server::own_address;
pub use versitygw::{Versitygw, versitygw};

/// Tells whether this process may create network namespaces.
///
/// # Panics
/// Tests are required (`CI`, `HEADROOM_TESTS=required`) and the process lacks root.
pub fn privileged() -> bool {
    if nix::unistd::geteuid().is_root() {
        return true;
    }
    let required = std::env::var_os("CI").is_some()
        || std::env::var("HEADROOM_TESTS").is_ok_and(|value| value == "required");
    assert!(!required, "this test creates network namespaces, which needs root");
    eprintln!("skipped: this test creates network namespaces, which needs root");
    false
}
