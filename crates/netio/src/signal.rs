//! What ends a thread's wait: a flag that is set once, and a bell that rings again
//! and again.

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

/// Wakes a waiting thread, again and again. The thread has it among what it
/// waits for; who wakes one that does not wait makes no system call.
#[derive(Debug)]
pub struct Wake {
    waits: AtomicBool,
    event: EventFd,
}

impl Wake {
    /// A new one.
    ///
    /// # Errors
    /// What the kernel answered: no more descriptors.
    pub fn new() -> io::Result<Self> {
        let event = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        Ok(Self { waits: AtomicBool::new(false), event })
    }

    /// Wakes the thread, after that which it is woken for is there to be seen.
    pub fn wake(&self) {
        if self.waits.swap(false, Ordering::SeqCst) {
            // Fails only where the count is full, and then the event is readable too.
            let _ = self.event.write(1);
        }
    }

    /// The thread is about to wait: it looks once more for what it is woken for,
    /// then waits.
    pub fn will_wait(&self) {
        self.waits.store(true, Ordering::SeqCst);
    }

    /// The thread has waited, or does not wait after all.
    pub fn has_waited(&self) {
        if !self.waits.swap(false, Ordering::SeqCst) {
            // empty if whoever woke it has not come so far: one wait is then short
            let _ = self.event.read();
        }
    }
}

impl AsFd for Wake {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::socket::wait_readable;
    use std::time::Duration;

    #[test]
    fn a_thread_is_woken_when_it_waits_and_not_before() {
        let wake = Wake::new().expect("a descriptor");
        wake.wake();
        wake.will_wait();
        assert_eq!(wait_readable(&[&wake], Some(Duration::ZERO)).expect("a wait"), 0);
        wake.wake();
        wake.wake();
        assert_eq!(wait_readable(&[&wake], None).expect("a wait"), 1);
        wake.has_waited();
        wake.will_wait();
        assert_eq!(wait_readable(&[&wake], Some(Duration::ZERO)).expect("a wait"), 0);
        wake.has_waited();
    }

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
