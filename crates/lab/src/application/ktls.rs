//! TLS records that the server's kernel encrypts (kTLS, Linux Documentation/networking/tls.rst):
//! whether this machine's kernel can, and whether a server's kernel did.

use std::path::Path;
use std::sync::LazyLock;

use headroom_lab_host::error::{Error, Result};
use headroom_lab_host::host::Host;
use nix::errno::Errno;
use nix::sys::socket::sockopt::TcpUlp;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, setsockopt, socket};

use super::SessionCount;

/// What the kernel has counted in a network namespace.
const COUNTS: &str = "/proc/net/tls_stat";
/// Connections whose sent records it encrypts without the help of a network card.
const SENDING: &str = "TlsTxSw";

/// Whether this machine's kernel encrypts TLS records.
pub(crate) fn is_supported() -> bool {
    static HAS: LazyLock<bool> = LazyLock::new(|| {
        let of_tcp = socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None);
        of_tcp.is_ok_and(|socket| {
            // A socket without a connection is refused in any case, but only after the kernel has
            // looked for the module `tls` and, for root, loaded it (net/ipv4/tcp_ulp.c). Kernels
            // without such modules do not know the option.
            let refusal = setsockopt(&socket, TcpUlp::<[u8; 3]>::default(), b"tls");
            !matches!(refusal, Err(Errno::ENOENT | Errno::ENOPROTOOPT))
        })
    });
    *HAS
}

/// Refuses this machine where its kernel does not encrypt TLS records.
///
/// # Errors
/// [`Error::Missing`]: what it lacks.
pub(super) fn require() -> Result<()> {
    if is_supported() {
        return Ok(());
    }
    Err(Error::Missing(
        "this machine's kernel does not encrypt TLS records, which `https(ktls)` is about: load its module tls \
         (`modprobe tls`, as root), or use a kernel that has it (CONFIG_TLS); or leave out `ktls`, and OpenSSL \
         encrypts them"
            .into(),
    ))
}

/// Reads how many connections of the server's namespace have had their records encrypted by the
/// kernel.
pub(super) fn session_count(server: &Host) -> SessionCount {
    // the file comes with the module, which the first connection may load
    let counts = server.read(Path::new(COUNTS)).unwrap_or_default();
    SessionCount {
        sessions: sending(&counts),
        broken: "the server's kernel did not encrypt the TLS records of each session, as TlsTxSw of \
                 /proc/net/tls_stat shows: nginx or its OpenSSL is built without kTLS, or the kernel lacks the \
                 cipher",
    }
}

fn sending(counts: &str) -> u64 {
    let count = |line: &str| line.strip_prefix(SENDING)?.trim().parse::<u64>().ok();
    counts.lines().find_map(count).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_connections_that_the_kernel_encrypts_without_a_card() {
        let counts = "TlsCurrTxSw                     \t1\nTlsCurrRxSw                     \t0\n\
                      TlsTxSw                         \t17\nTlsTxDevice                     \t3\n";
        assert_eq!(sending(counts), 17);
        for none in ["", "TlsTxSw\n", "TlsTxSw x\n", "TlsTxSwitch 5\n"] {
            assert_eq!(sending(none), 0, "{none:?}");
        }
    }

    #[test]
    fn a_session_that_the_kernel_did_not_encrypt_is_an_error_of_the_sample() {
        let count = |sessions| SessionCount { sessions, broken: "the kernel did not" };
        assert_eq!(count(20).objection(count(17), 3), None);
        assert_eq!(count(30).objection(count(17), 3), None);
        let objection = count(19).objection(count(17), 3);
        assert_eq!(objection.as_deref(), Some("the kernel did not (2 of 3 sessions)"));
    }
}
