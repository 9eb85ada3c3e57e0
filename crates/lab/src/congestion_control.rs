//! TCP congestion controls of this machine's kernel.

use std::ffi::OsString;

use headroom_lab_host::error::{Error, Result};
use headroom_suggest::suggestion;
use nix::errno::Errno;
use nix::sys::socket::sockopt::TcpCongestion;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, setsockopt, socket};

/// The names of those that are loaded.
const AVAILABLE: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";

/// Refuses this machine where its kernel has no congestion control of this name. For root, the
/// kernel looks for a module of it and loads that, as it does for a route
/// (net/ipv4/tcp_cong.c).
///
/// # Errors
/// [`Error::Missing`]: what it lacks.
pub(crate) fn require(name: &str) -> Result<()> {
    if is_known(name) { Ok(()) } else { Err(Error::Missing(lack(name, &available()))) }
}

/// Says that none of this name is loaded, where the kernel says which are; loads none.
pub(crate) fn not_loaded(name: &str) -> Option<String> {
    let available = available();
    let is_loaded = available.split_whitespace().any(|known| known == name);
    (!is_loaded && !available.is_empty()).then(|| lack(name, &available))
}

/// Whether the kernel gives a connection the congestion control of this name.
fn is_known(name: &str) -> bool {
    let of_tcp = socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None);
    of_tcp.is_ok_and(|socket| {
        // one that a user may not choose is there all the same: EPERM
        let refusal = setsockopt(&socket, TcpCongestion, &OsString::from(name));
        refusal != Err(Errno::ENOENT)
    })
}

fn available() -> String {
    std::fs::read_to_string(AVAILABLE).unwrap_or_default()
}

/// The sentence about a name that is not among those that are loaded.
fn lack(name: &str, available: &str) -> String {
    let known: Vec<&str> = available.split_whitespace().collect();
    format!(
        "this machine's kernel has not loaded the TCP congestion control `{name}`{}; it has {}: load its module \
         (`modprobe tcp_{name}`, as root), or use a kernel that has it",
        suggestion(name, known.iter().copied()),
        known.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_what_no_kernel_has() {
        let error = require("no-such-control").expect_err("nobody has it").to_string();
        assert!(error.contains("the TCP congestion control `no-such-control`"), "{error}");
        assert!(not_loaded("no-such-control").is_some_and(|said| error.contains(&said)));
    }

    #[test]
    fn accepts_all_that_the_kernel_has_loaded() {
        for name in available().split_whitespace() {
            assert!(require(name).is_ok(), "{name}");
            assert_eq!(not_loaded(name), None);
        }
    }

    #[test]
    fn suggests_one_that_is_loaded() {
        let said = lack("brr", "reno cubic bbr\n");
        assert!(said.contains("`brr` (did you mean `bbr`?); it has reno, cubic, bbr"), "{said}");
        assert!(said.contains("modprobe tcp_brr"), "{said}");
    }
}
