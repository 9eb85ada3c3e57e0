//! What a server counts since its start. Nothing here waits: counters are relaxed, and one that is
//! read while others change may be a moment ahead of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::record::{Direction, Operation, Outcome};

/// The counters of a server.
#[derive(Debug, Default)]
pub(super) struct Counters {
    sessions: AtomicU64,
    sessions_started: AtomicU64,
    received: TrafficCounters,
    sent: TrafficCounters,
    /// Requests that have ended, by operation and outcome.
    requests: [[AtomicU64; Outcome::ALL.len()]; Operation::ALL.len()],
}

/// Those of one direction.
#[derive(Debug, Default)]
struct TrafficCounters {
    running: AtomicU64,
    bytes: AtomicU64,
    stored: AtomicU64,
    failed: AtomicU64,
}

/// What a server has moved in one direction since its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Traffic {
    /// Transfers that run now.
    pub running: u64,
    /// Bytes of content, counted before compression.
    pub bytes: u64,
    /// Files, directories and links that were stored and verified.
    pub stored: u64,
    /// Those that failed, in transfers that ended regularly.
    pub failed: u64,
}

/// How many requests of a kind have ended in a certain way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestCount {
    /// The operation, as in the log.
    pub operation: &'static str,
    /// How they ended.
    pub outcome: Outcome,
    /// How many.
    pub count: u64,
}

impl Counters {
    /// Counts a session until the result is dropped.
    pub(super) fn session(self: &Arc<Self>) -> Held {
        self.sessions_started.fetch_add(1, Ordering::Relaxed);
        Held::new(self, |counters| &counters.sessions)
    }

    /// Counts a running transfer until the result is dropped.
    pub(super) fn transfer(self: &Arc<Self>, direction: Direction) -> Held {
        match direction {
            Direction::Received => Held::new(self, |counters| &counters.received.running),
            Direction::Sent => Held::new(self, |counters| &counters.sent.running),
        }
    }

    pub(super) fn moved(&self, direction: Direction, bytes: u64) {
        self.of(direction).bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn stored(&self, direction: Direction, count: u64) {
        self.of(direction).stored.fetch_add(count, Ordering::Relaxed);
    }

    /// Counts a request that has ended, and how many of its files have failed.
    pub(super) fn ended(&self, operation: Operation, outcome: Outcome, failed: u64) {
        self.requests[operation as usize][outcome as usize].fetch_add(1, Ordering::Relaxed);
        if let Some(direction) = operation.direction() {
            self.of(direction).failed.fetch_add(failed, Ordering::Relaxed);
        }
    }

    /// Reads how many sessions are open, and how many have begun.
    pub(super) fn sessions(&self) -> (u64, u64) {
        (self.sessions.load(Ordering::Relaxed), self.sessions_started.load(Ordering::Relaxed))
    }

    pub(super) fn traffic(&self, direction: Direction) -> Traffic {
        let TrafficCounters { running, bytes, stored, failed } = self.of(direction);
        let [running, bytes, stored, failed] =
            [running, bytes, stored, failed].map(|count| count.load(Ordering::Relaxed));
        Traffic { running, bytes, stored, failed }
    }

    /// Reads the counts of all operations and outcomes, also those that are 0.
    pub(super) fn requests(&self) -> Vec<RequestCount> {
        let of = |operation: Operation| {
            Outcome::ALL.map(|outcome| RequestCount {
                operation: operation.name(),
                outcome,
                count: self.requests[operation as usize][outcome as usize].load(Ordering::Relaxed),
            })
        };
        Operation::ALL.into_iter().flat_map(of).collect()
    }

    const fn of(&self, direction: Direction) -> &TrafficCounters {
        match direction {
            Direction::Received => &self.received,
            Direction::Sent => &self.sent,
        }
    }
}

/// Something that is counted as long as it lasts.
#[derive(Debug)]
pub(super) struct Held {
    counters: Arc<Counters>,
    gauge: fn(&Counters) -> &AtomicU64,
}

impl Held {
    fn new(counters: &Arc<Counters>, gauge: fn(&Counters) -> &AtomicU64) -> Self {
        gauge(counters).fetch_add(1, Ordering::Relaxed);
        Self { counters: Arc::clone(counters), gauge }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        (self.gauge)(&self.counters).fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_by_operation_and_outcome() {
        let counters = Counters::default();
        for operation in Operation::ALL {
            for outcome in Outcome::ALL {
                counters.ended(operation, outcome, 2);
            }
        }
        counters.ended(Operation::Get, Outcome::Lost, 0);
        let counts = counters.requests();
        assert_eq!(counts.len(), Operation::ALL.len() * Outcome::ALL.len());
        for RequestCount { operation, outcome, count } in counts {
            let expected = 1 + u64::from((operation, outcome) == ("get", Outcome::Lost));
            assert_eq!(count, expected, "{operation} {outcome:?}");
        }
        // two operations each way, five outcomes, two files
        assert_eq!(counters.traffic(Direction::Sent).failed, 20);
        assert_eq!(counters.traffic(Direction::Received).failed, 20);
    }

    #[test]
    fn sessions_and_transfers_count_as_long_as_they_last() {
        let counters = Arc::new(Counters::default());
        let session = counters.session();
        let transfers = [Direction::Sent, Direction::Sent, Direction::Received]
            .map(|direction| counters.transfer(direction));
        counters.moved(Direction::Received, 7);
        counters.stored(Direction::Sent, 1);
        let running = |direction| counters.traffic(direction).running;
        assert_eq!((running(Direction::Sent), running(Direction::Received)), (2, 1));
        assert_eq!(counters.sessions(), (1, 1));
        drop((session, transfers));
        assert_eq!((running(Direction::Sent), running(Direction::Received)), (0, 0));
        assert_eq!(counters.sessions(), (0, 1));
        let sent = Traffic { stored: 1, ..Traffic::default() };
        assert_eq!(counters.traffic(Direction::Sent), sent);
        assert_eq!(counters.traffic(Direction::Received).bytes, 7);
    }
}
