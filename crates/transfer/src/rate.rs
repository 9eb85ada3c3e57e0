//! Limits the rate of file content, which several transfers may share.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use headroom_mutex::lock;

use crate::key::PublicKey;

/// How much a late sender may catch up: timers are a little late.
const CATCH_UP: Duration = Duration::from_millis(50);
/// The duration of one slice at the limit.
const SLICE: Duration = Duration::from_millis(20);
/// The bounds of a slice in bytes.
const SLICE_BYTES: std::ops::RangeInclusive<u64> = 1 << 10..=256 << 10;

/// A rate that its holders share. Turns are given in the order of requests, so none starves.
#[derive(Debug)]
pub(crate) struct Limit {
    rate_bps: u64,
    /// When the next bytes may be sent: everything allowed so far will then have been sent.
    next_free: Mutex<Option<Instant>>,
}

impl Limit {
    /// Makes a limit in bits per second.
    pub(crate) fn new(rate_bps: u64) -> Arc<Self> {
        Arc::new(Self { rate_bps: rate_bps.max(1), next_free: Mutex::new(None) })
    }

    /// Returns when these bytes may be sent.
    fn turn(&self, bytes: u64, now: Instant) -> Instant {
        let mut next_free = lock(&self.next_free);
        let earliest = now.checked_sub(CATCH_UP).unwrap_or(now);
        let turn = next_free.unwrap_or(now).max(earliest);
        *next_free =
            Some(turn + Duration::from_secs_f64(bytes as f64 * 8.0 / self.rate_bps as f64));
        turn
    }
}

/// The limits of one transfer; there may be none.
#[derive(Debug, Clone, Default)]
pub(crate) struct RateLimits(Vec<Arc<Limit>>);

impl RateLimits {
    /// Adds a limit in bits per second, if there is one.
    pub(crate) fn and(mut self, rate_bps: Option<u64>) -> Self {
        self.0.extend(rate_bps.map(Limit::new));
        self
    }

    /// Returns the lowest limit in bits per second.
    pub(crate) fn rate_bps(&self) -> Option<u64> {
        self.0.iter().map(|limit| limit.rate_bps).min()
    }

    /// Returns how many of these bytes to send at once.
    pub(crate) fn slice(&self, bytes: usize) -> usize {
        let Some(rate_bps) = self.rate_bps() else { return bytes };
        let slice = (rate_bps as f64 / 8.0 * SLICE.as_secs_f64()) as u64;
        let slice = slice.clamp(*SLICE_BYTES.start(), *SLICE_BYTES.end());
        bytes.min(usize::try_from(slice).unwrap_or(usize::MAX))
    }

    /// Waits until these bytes may be sent.
    pub(crate) async fn take(&self, bytes: usize) {
        if let Some(turn) = self.turn(bytes) {
            tokio::time::sleep_until(turn.into()).await;
        }
    }

    /// Waits until these bytes may be sent, on a blocking thread. This needs no runtime: a blocking
    /// thread outlives the runtime's timers when the program ends.
    ///
    /// # Errors
    /// [`Stopped`], as soon as `stop` is set.
    pub(crate) fn take_blocking(&self, bytes: usize, stop: &Stop) -> Result<(), Stopped> {
        match self.turn(bytes) {
            Some(turn) => stop.sleep_until(turn),
            None => Ok(()),
        }
    }

    /// Returns when these bytes may be sent; `None` is now.
    pub(crate) fn turn(&self, bytes: usize) -> Option<Instant> {
        let now = Instant::now();
        let turn = self.0.iter().map(|limit| limit.turn(bytes as u64, now)).max();
        turn.filter(|turn| *turn > now)
    }
}

/// When a transfer ends, wakes the threads that wait for their turn.
#[derive(Debug, Default)]
pub(crate) struct Stop {
    stopped: Mutex<bool>,
    changed: Condvar,
}

/// The transfer has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stopped;

impl Stop {
    /// Stops all waits, now and later.
    pub(crate) fn stop(&self) {
        *lock(&self.stopped) = true;
        self.changed.notify_all();
    }

    /// Whether all waits were stopped.
    pub(crate) fn is_stopped(&self) -> bool {
        *lock(&self.stopped)
    }

    /// Waits until the turn comes, as [`RateLimits::take_blocking`] does.
    pub(crate) fn sleep_until(&self, turn: Instant) -> Result<(), Stopped> {
        let stopped = lock(&self.stopped);
        let left = turn.saturating_duration_since(Instant::now());
        let (stopped, _) = self
            .changed
            .wait_timeout_while(stopped, left, |stopped| !*stopped)
            .unwrap_or_else(PoisonError::into_inner);
        if *stopped { Err(Stopped) } else { Ok(()) }
    }
}

/// One limit for each direction: incoming and outgoing.
type Duplex = [Arc<Limit>; 2];

fn duplex(rate_bps: u64) -> Duplex {
    [Limit::new(rate_bps), Limit::new(rate_bps)]
}

/// A server's limits: one for all clients, and one for each key that has its own, shared by all
/// its connections.
#[derive(Debug)]
pub(crate) struct Rates {
    all: Option<Duplex>,
    of_keys: Mutex<HashMap<PublicKey, Weak<Duplex>>>,
}

/// The limits of one connection.
#[derive(Debug)]
pub(crate) struct ClientRates {
    all: Option<Duplex>,
    own: Option<Arc<Duplex>>,
}

impl Rates {
    /// Makes the limits, with one for all clients in bits per second, if there is one.
    pub(crate) fn new(rate_bps: Option<u64>) -> Self {
        Self { all: rate_bps.map(duplex), of_keys: Mutex::default() }
    }

    /// Returns the limits of a connection whose client has this key and this rate of its own.
    pub(crate) fn of(&self, key: Option<PublicKey>, rate_bps: Option<u64>) -> ClientRates {
        let own = key.zip(rate_bps).map(|(key, rate_bps)| {
            let mut of_keys = lock(&self.of_keys);
            of_keys.retain(|_, duplex| duplex.strong_count() > 0);
            let there = of_keys.get(&key).and_then(Weak::upgrade);
            there.filter(|duplex| duplex[0].rate_bps == rate_bps).unwrap_or_else(|| {
                let duplex = Arc::new(duplex(rate_bps));
                of_keys.insert(key, Arc::downgrade(&duplex));
                duplex
            })
        });
        ClientRates { all: self.all.clone(), own }
    }
}

impl ClientRates {
    /// Returns the limits for data from the client.
    pub(crate) fn incoming(&self) -> RateLimits {
        self.direction(0)
    }

    /// Returns the limits for data to the client.
    pub(crate) fn outgoing(&self) -> RateLimits {
        self.direction(1)
    }

    fn direction(&self, direction: usize) -> RateLimits {
        let both = [self.all.as_ref(), self.own.as_deref()];
        RateLimits(
            both.into_iter().flatten().map(|duplex| Arc::clone(&duplex[direction])).collect(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_as_far_apart_as_the_rate_says() {
        let limit = Limit::new(8_000); // 1000 bytes a second
        let now = Instant::now();
        assert_eq!(limit.turn(500, now), now);
        assert_eq!(limit.turn(500, now), now + Duration::from_millis(500));
        assert_eq!(limit.turn(1, now), now + Duration::from_secs(1));
        // who did not ask for long has not saved up
        let later = now + Duration::from_secs(60);
        let turns: Vec<_> = (0..20).map(|_| limit.turn(100, later)).collect();
        assert_eq!(turns[0], later - CATCH_UP);
        assert_eq!(turns[19], later - CATCH_UP + Duration::from_millis(1900));
    }

    #[test]
    fn the_lowest_limit_says_how_much_goes_at_once() {
        let unlimited = RateLimits::default();
        assert_eq!((unlimited.rate_bps(), unlimited.slice(1 << 20)), (None, 1 << 20));
        let limits = unlimited.and(Some(80_000_000)).and(Some(8_000_000)).and(None);
        assert_eq!(limits.rate_bps(), Some(8_000_000));
        assert_eq!(limits.slice(1 << 20), 20_000);
        assert_eq!(limits.slice(7), 7);
        assert_eq!(limits.and(Some(1)).slice(1 << 20), 1 << 10);
    }

    #[test]
    fn a_blocking_wait_needs_no_runtime_and_ends_when_it_is_stopped() {
        let (limits, stop) = (RateLimits::default().and(Some(8)), Arc::new(Stop::default()));
        assert_eq!(limits.take_blocking(1, &stop), Ok(()), "the first goes at once");
        let waiting = {
            let (limits, stop) = (limits.clone(), Arc::clone(&stop));
            // 3000 bytes at one a second: nobody waits for that
            std::thread::spawn(move || {
                (limits.take_blocking(3000, &stop), limits.take_blocking(1, &stop))
            })
        };
        stop.stop();
        assert_eq!(waiting.join().expect("no panic"), (Err(Stopped), Err(Stopped)));
        assert_eq!(RateLimits::default().take_blocking(1, &stop), Ok(()), "there is no limit");
    }

    #[test]
    fn connections_of_a_key_share_its_limit() {
        let rates = Rates::new(Some(80_000));
        let key = |seed: u8| PublicKey::from([seed; 32]);
        let one = rates.of(Some(key(1)), Some(8_000));
        let again = rates.of(Some(key(1)), Some(8_000));
        let other = rates.of(Some(key(2)), Some(8_000));
        let now = Instant::now();
        let turn = |of: &ClientRates| of.incoming().0[1].turn(1000, now);
        assert_eq!(turn(&one), now);
        assert_eq!(turn(&again), now + Duration::from_secs(1));
        assert_eq!(turn(&other), now);
        assert_eq!(one.outgoing().0[1].turn(1000, now), now, "each way for itself");
        assert!(Arc::ptr_eq(&one.incoming().0[0], &other.incoming().0[0]));
        assert_eq!(rates.of(None, None).incoming().rate_bps(), Some(80_000));
        drop((one, again, other));
        rates.of(Some(key(3)), Some(1));
        assert_eq!(rates.of_keys.lock().expect("nobody panicked").len(), 1);
    }
}
