//! The worker's end of the queue of events.

use tokio::sync::mpsc;

use super::shared::WorkerEvent;

/// Events that are taken at once. Where the queue is full, each time wakes the reader of messages,
/// which then queues as many.
const AT_ONCE: usize = 32;

/// The worker's end of the queue of events.
pub(super) struct Events {
    queue: mpsc::Receiver<WorkerEvent>,
    /// Those that were taken, the next one last.
    taken: Vec<WorkerEvent>,
}

impl Events {
    pub(super) fn new(queue: mpsc::Receiver<WorkerEvent>) -> Self {
        Self { queue, taken: Vec::new() }
    }

    /// Returns the next event; `None` if there is none and all senders are gone. Calls
    /// `before_waiting` if it has to wait.
    pub(super) fn next(&mut self, before_waiting: impl FnOnce()) -> Option<WorkerEvent> {
        if self.taken.is_empty() {
            if self.queue.is_empty() {
                before_waiting();
            }
            self.queue.blocking_recv_many(&mut self.taken, AT_ONCE);
            self.taken.reverse();
        }
        self.taken.pop()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(event: Option<WorkerEvent>) -> Option<u64> {
        event.map(|event| match event {
            WorkerEvent::PieceStored(id) => id,
            _ => panic!("nobody sent that"),
        })
    }

    fn never() {
        panic!("an event is there");
    }

    #[test]
    fn events_are_taken_many_at_once_and_come_in_order() {
        let (sender, queue) = mpsc::channel(AT_ONCE);
        let mut events = Events::new(queue);
        let fill = |from: u64| {
            let ids =
                (from..).take_while(|id| sender.try_send(WorkerEvent::PieceStored(*id)).is_ok());
            ids.count()
        };
        assert_eq!(fill(0), AT_ONCE);
        assert_eq!(id(events.next(never)), Some(0));
        // all of them have left the queue
        assert_eq!(fill(AT_ONCE as u64), AT_ONCE);
        for next in 1..2 * AT_ONCE as u64 {
            assert_eq!(id(events.next(never)), Some(next));
        }
        drop(sender);
        let mut waits = 0;
        assert_eq!(id(events.next(|| waits += 1)), None);
        assert_eq!(waits, 1);
    }
}
