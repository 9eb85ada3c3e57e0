//! A network namespace for each test, and waiting.

use std::os::fd::AsFd;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::socket::wait_readable;

/// Ends the namespace; nothing to do, since it ends with its thread.
pub(crate) struct Namespace;

/// Moves the calling thread to a new network namespace with the loopback interface up. None, with a
/// message, without the privilege.
pub(crate) fn own_namespace() -> Option<Namespace> {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: this test makes a network namespace, which needs root");
        return None;
    }
    nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).expect("a network namespace");
    run("ip link set lo up");
    Some(Namespace)
}

/// Runs a command of words separated by spaces, which must succeed.
pub(crate) fn run(line: &str) {
    let mut words = line.split_whitespace();
    let status = Command::new(words.next().expect("a program")).args(words).status();
    assert!(status.is_ok_and(|status| status.success()), "`{line}` failed");
}

/// Waits until a socket has something to read, also when the wait is interrupted.
///
/// # Panics
/// Nothing comes within a minute.
pub(crate) fn await_readable(socket: &dyn AsFd) {
    const PATIENCE: Duration = Duration::from_secs(60);
    let begun = Instant::now();
    while wait_readable(&[socket], Some(PATIENCE)).expect("a wait") == 0 {
        assert!(begun.elapsed() < PATIENCE, "nothing came");
    }
}
