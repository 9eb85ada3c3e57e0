//! One campaign measures on a machine at a time. The lock is the name of an abstract Unix socket
//! (unix(7)): users of one machine share it, it needs no file that somebody must be allowed to
//! write, and the kernel releases it with the process that holds it.

use std::io::ErrorKind;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

use headroom_lab_host::error::{Doing, Result};

const NAME: &str = "headroom-lab-campaign";

/// Held while a campaign measures.
#[derive(Debug)]
pub(super) struct MachineLock {
    /// Accepts nobody.
    _socket: UnixListener,
}

impl MachineLock {
    /// Takes the lock; none: another campaign measures.
    ///
    /// # Errors
    /// The machine has no such sockets.
    pub(super) fn take() -> Result<Option<Self>> {
        Self::take_named(NAME)
    }

    fn take_named(name: &str) -> Result<Option<Self>> {
        let doing = || format!("take the lock of this machine's campaigns (@{name})");
        let address = SocketAddr::from_abstract_name(name).doing(doing)?;
        match UnixListener::bind_addr(&address) {
            Ok(socket) => Ok(Some(Self { _socket: socket })),
            Err(error) if error.kind() == ErrorKind::AddrInUse => Ok(None),
            Err(error) => Err(error).doing(doing),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    /// Longer than anything here takes, even on a busy machine.
    const PATIENCE: Duration = Duration::from_secs(60);

    #[test]
    fn one_holds_it_at_a_time() {
        let take = || MachineLock::take_named(&format!("campaign-test-{}", std::process::id()));
        let first = take().expect("a lock").expect("nobody has it");
        assert!(take().expect("a lock").is_none());
        drop(first);
        // A child that the thread of another test has forked has the socket, too, until it calls
        // execve(2). No call takes the name of a socket away before.
        let begun = Instant::now();
        while take().expect("a lock").is_none() {
            assert!(begun.elapsed() < PATIENCE, "it is held although it was dropped");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
