//! How much may wait here of what peers send and of what they do not take: the less
//! for each, the more of them there are. One that does nothing needs little.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use quinn::{Connection, VarInt};

use crate::idle_socket::ActivityFlag;
use crate::quic::{DATA_STREAMS, QUIET_WINDOW, WINDOW};

/// Octets that all together may have waiting, in each direction, as long as that
/// leaves [`LEAST`] for each.
const BUDGET: u64 = 512 << 20;
/// With less than this, a transfer over a long way would crawl.
const LEAST: u64 = 512 << 10;

/// The windows of a server's connections.
#[derive(Debug, Clone, Default)]
pub(crate) struct FlowControlBudget {
    moving: Arc<Mutex<Moving>>,
    activity: ActivityFlag,
}

/// Connections on which something moves, by their number.
type Moving = HashMap<usize, Connection>;

impl FlowControlBudget {
    /// Opens a connection's windows, until what is returned is dropped. Those of the
    /// others shrink where that is needed.
    pub(crate) fn open(&self, connection: &Connection) -> OpenWindow {
        let id = connection.stable_id();
        let mut moving = self.lock();
        let before = share(moving.len());
        moving.insert(id, connection.clone());
        self.activity.set(true);
        let share = share(moving.len());
        connection.set_max_concurrent_uni_streams(VarInt::from_u32(DATA_STREAMS));
        set(connection, share);
        if share != before {
            moving.values().for_each(|connection| set(connection, share));
        }
        drop(moving);
        OpenWindow { budget: self.clone(), id }
    }

    fn lock(&self) -> MutexGuard<'_, Moving> {
        self.moving.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether any are open.
    pub(crate) fn activity(&self) -> &ActivityFlag {
        &self.activity
    }
}

/// A connection's windows are open.
pub(crate) struct OpenWindow {
    budget: FlowControlBudget,
    id: usize,
}

impl OpenWindow {
    /// How far.
    pub(crate) fn octets(&self) -> u32 {
        u32::try_from(share(self.budget.lock().len())).unwrap_or(WINDOW)
    }
}

impl Drop for OpenWindow {
    fn drop(&mut self) {
        let mut moving = self.budget.lock();
        let before = share(moving.len());
        let Some(connection) = moving.remove(&self.id) else { return };
        self.budget.activity.set(!moving.is_empty());
        connection.set_max_concurrent_uni_streams(VarInt::from_u32(0));
        set(&connection, u64::from(QUIET_WINDOW));
        let share = share(moving.len());
        if share != before {
            moving.values().for_each(|connection| set(connection, share));
        }
    }
}

/// What each of so many has: a power of two, so that it changes seldom.
fn share(count: usize) -> u64 {
    let count = count.max(1).next_power_of_two() as u64;
    (BUDGET / count).clamp(LEAST, u64::from(WINDOW))
}

fn set(connection: &Connection, octets: u64) {
    connection.set_receive_window(VarInt::from_u64(octets).unwrap_or(VarInt::from_u32(WINDOW)));
    connection.set_send_window(octets);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_together_keep_to_the_budget_as_long_as_each_has_the_least() {
        for count in 1..=1024 {
            let share = share(count);
            assert!(share * count as u64 <= BUDGET, "{count}");
            assert!(share >= LEAST && share <= u64::from(WINDOW));
        }
        assert_eq!((share(1), share(32), share(33)), (16 << 20, 16 << 20, 8 << 20));
        assert_eq!(share(100_000), LEAST);
    }
}
