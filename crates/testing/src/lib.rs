//! What tests of several rooms share: two hosts on one link, and what passes
//! between them. For tests alone: what goes wrong here panics.

mod capture;
mod host;

pub use capture::{Capture, contains};
pub use headroom_netio::retried;
pub use host::{Host, address, link};

/// Whether this process may make namespaces. Where tests are required, one that
/// cannot run is a failure.
///
/// # Panics
/// Where tests are required and this process is not root's.
pub fn privileged() -> bool {
    if nix::unistd::geteuid().is_root() {
        return true;
    }
    let required = std::env::var_os("CI").is_some()
        || std::env::var("HEADROOM_TESTS").is_ok_and(|value| value == "required");
    assert!(!required, "this test makes network namespaces, which needs root");
    eprintln!("skipped: this test makes network namespaces, which needs root");
    false
}
