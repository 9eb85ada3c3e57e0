//! Two signals that end the wait of a thread: a stop flag, and a repeatable wake-up.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::eventfd::{EfdFlags, EventFd};

/// Tells threads to stop. A busy thread checks [`Stop::is_set`], which needs no system call; a
/// waiting one waits for [`Stop::as_fd`] too.
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
    /// Makes a flag that is not set.
    ///
    /// # Errors
    /// The error of the kernel: no more descriptors.
    pub fn new() -> io::Result<Self> {
        let event = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        Ok(Self { shared: Arc::new(Shared { set: AtomicBool::new(false), event }) })
    }

    /// Sets the flag permanently.
    pub fn set(&self) {
        self.shared.set.store(true, Ordering::Release);
        // Fails only if the counter is full; the event is then readable too.
        let _ = self.shared.event.write(1);
    }

    /// Checks whether the flag is set.
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

/// Wakes a waiting thread repeatedly. The thread includes it in its wait; waking a thread that does
/// not wait needs no system call.
#[derive(Debug)]
pub struct Wake {
    waits: AtomicBool,
    event: EventFd,
}

impl Wake {
    /// Makes a new signal.
    ///
    /// # Errors
    /// The error of the kernel: no more descriptors.
    pub fn new() -> io::Result<Self> {
        let event = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        Ok(Self { waits: AtomicBool::new(false), event })
    }

    /// Wakes the thread. Call this after publishing the data for the thread.
    pub fn wake(&self) {
        if self.waits.swap(false, Ordering::SeqCst) {
            // Fails only if the counter is full; the event is then readable too.
            let _ = self.event.write(1);
        }
    }

    /// Announces that the thread is about to wait. It must check for data once more before waiting.
    pub fn will_wait(&self) {
        self.waits.store(true, Ordering::SeqCst);
    }

    /// Announces that the thread no longer waits.
    pub fn has_waited(&self) {
        if !self.waits.swap(false, Ordering::SeqCst) {
            // Empty if the waking thread has not written yet: the next wait is then short.
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
