//! A flag that a waiting thread sees: set once, it ends every wait.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::eventfd::{EfdFlags, EventFd};

/// Tells threads to stop. A busy thread asks [`Stop::is_set`], which costs no
/// system call; a waiting one has [`Stop::as_fd`] among what it waits for.
#[derive(Debug, Clone)]
pub struct Stop {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    set: AtomicBool,
    event: EventFd,
}

impl Stop {
    /// A flag that is not set.
    ///
    /// # Errors
    /// What the kernel answered: no more descriptors.
    pub fn new() -> io::Result<Self> {
        let event = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        Ok(Self { shared: Arc::new(Shared { set: AtomicBool::new(false), event }) })
    }

    /// Sets the flag, for good.
    pub fn set(&self) {
        self.shared.set.store(true, Ordering::Release);
        // Fails only where the count is full, and then the event is readable too.
        let _ = self.shared.event.write(1);
    }

    /// Whether it is set.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.shared.set.load(Ordering::Acquire)
    }
}

impl AsFd for Stop {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.event.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::socket::wait_readable;
    use std::time::Duration;

    #[test]
    fn a_set_flag_ends_a_wait_and_every_later_one() {
        let stop = Stop::new().expect("an event");
        assert!(!stop.is_set());
        let wait = |time| wait_readable(&[&stop], Some(time)).expect("a wait");
        assert_eq!(wait(Duration::from_millis(1)), 0);
        let other = stop.clone();
        let thread = std::thread::spawn(move || other.set());
        assert_eq!(wait(Duration::from_secs(600)), 1);
        assert_eq!(wait(Duration::from_secs(600)), 1);
        assert!(stop.is_set());
        thread.join().expect("a thread that sets");
    }
}
