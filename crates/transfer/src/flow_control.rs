//! Splits a fixed flow-control budget among active connections, for received data that waits
//! here and for sent data that is not acknowledged. Idle connections need little.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use headroom_mutex::lock;

use crate::connection::Connection;
use crate::idle_socket::ActivityFlag;
use crate::quic::{DATA_STREAMS, QUIET_WINDOW, WINDOW};

/// The budget of all connections in bytes, in each direction, as long as it leaves [`MIN`]
/// for each.
const BUDGET: u64 = 512 << 20;
/// The least window of a connection: with less, a transfer over a long path would crawl.
const MIN: u64 = 512 << 10;

/// The flow-control windows of a server's connections.
#[derive(Debug, Clone, Default)]
pub(crate) struct FlowControlBudget {
    moving: Arc<Mutex<Moving>>,
    activity: ActivityFlag,
}

/// Connections with a running transfer, by their ID.
type Moving = HashMap<usize, Connection>;

impl FlowControlBudget {
    /// Opens a connection's window until the result is dropped. The windows of the others shrink if
    /// necessary.
    pub(crate) fn open(&self, connection: &Connection) -> OpenWindow {
        let id = connection.stable_id();
        let mut moving = self.lock();
        let before = share(moving.len());
        moving.insert(id, connection.clone());
        self.activity.set(true);
        let share = share(moving.len());
        connection.set_data_streams(DATA_STREAMS);
        set(connection, share);
        if share != before {
            moving.values().for_each(|connection| set(connection, share));
        }
        drop(moving);
        OpenWindow { budget: self.clone(), id }
    }

    fn lock(&self) -> MutexGuard<'_, Moving> {
        lock(&self.moving)
    }

    /// Returns the flag that says whether any window is open.
    pub(crate) fn activity(&self) -> &ActivityFlag {
        &self.activity
    }
}

/// An open window of a connection.
pub(crate) struct OpenWindow {
    budget: FlowControlBudget,
    id: usize,
}

impl OpenWindow {
    /// Returns its size in bytes.
    pub(crate) fn bytes(&self) -> u32 {
        u32::try_from(share(self.budget.lock().len())).unwrap_or(WINDOW)
    }
}

impl Drop for OpenWindow {
    fn drop(&mut self) {
        let mut moving = self.budget.lock();
        let before = share(moving.len());
        let Some(connection) = moving.remove(&self.id) else { return };
        self.budget.activity.set(!moving.is_empty());
        connection.set_data_streams(0);
        set(&connection, u64::from(QUIET_WINDOW));
        let share = share(moving.len());
        if share != before {
            moving.values().for_each(|connection| set(connection, share));
        }
    }
}

/// Returns the share of each connection: a power of two, so that it changes rarely.
fn share(count: usize) -> u64 {
    let count = count.max(1).next_power_of_two() as u64;
    (BUDGET / count).clamp(MIN, u64::from(WINDOW))
}

fn set(connection: &Connection, bytes: u64) {
    connection.set_windows(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_stay_within_the_budget_while_each_has_the_minimum() {
        for count in 1..=1024 {
            let share = share(count);
            assert!(share * count as u64 <= BUDGET, "{count}");
            assert!(share >= MIN && share <= u64::from(WINDOW));
        }
        assert_eq!((share(1), share(32), share(33)), (16 << 20, 16 << 20, 8 << 20));
        assert_eq!(share(100_000), MIN);
    }
}
