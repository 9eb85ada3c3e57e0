//! Messages of a thread that reads files, sent several at once: a single one costs thread switches
//! and a packet, and both again at the receiver.

use std::time::{Duration, Instant};

use headroom_transfer_proto::message::{EntryKind, Inline, Message};
use tokio::sync::mpsc;

use crate::rate::{RateLimits, Stop};

/// The most messages that wait.
const MAX_MESSAGES: usize = 32;
/// The bytes of content with which messages are sent.
const MAX_CONTENT: usize = 64 << 10;
/// A message after a pause of this length is sent at once: what follows may be found as slowly.
const PAUSE: Duration = Duration::from_millis(5);

/// Where the messages of one thread go.
pub(super) struct Outgoing {
    messages: mpsc::Sender<Message>,
    waiting: Vec<Message>,
    /// Bytes of content in those that wait.
    content: usize,
    /// When messages were sent last.
    sent: Option<Instant>,
}

/// The transfer has ended.
#[derive(Debug)]
pub(super) struct Ended;

impl Outgoing {
    pub(super) fn new(messages: mpsc::Sender<Message>) -> Self {
        Self { messages, waiting: Vec::new(), content: 0, sent: None }
    }

    /// Sends a message, which is ready `now`, together with those that follow closely. A caller
    /// that is about to wait calls [`Self::flush`].
    pub(super) fn send(&mut self, message: Message, now: Instant) -> Result<(), Ended> {
        self.content += content_of(&message).map_or(0, |inline| inline.content.len());
        self.waiting.push(message);
        let is_full = self.waiting.len() >= MAX_MESSAGES || self.content >= MAX_CONTENT;
        let has_paused = |sent: Instant| now.saturating_duration_since(sent) >= PAUSE;
        if is_full || self.sent.is_none_or(has_paused) { self.flush() } else { Ok(()) }
    }

    /// Waits until these bytes of content may be sent. Messages that wait are sent before, unless
    /// the turn comes soon.
    pub(super) fn take_turn(
        &mut self,
        bytes: usize,
        limits: &RateLimits,
        stop: &Stop,
    ) -> Result<(), Ended> {
        let Some(turn) = limits.turn(bytes) else { return Ok(()) };
        if turn.saturating_duration_since(Instant::now()) >= PAUSE {
            self.flush()?;
        }
        stop.sleep_until(turn).map_err(|_| Ended)
    }

    /// Sends the messages that wait.
    pub(super) fn flush(&mut self) -> Result<(), Ended> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        self.content = 0;
        for message in self.waiting.drain(..) {
            self.messages.blocking_send(message).map_err(|_| Ended)?;
        }
        // now, because the channel may have been full
        self.sent = Some(Instant::now());
        Ok(())
    }
}

/// Returns the content in a message.
fn content_of(message: &Message) -> Option<&Inline> {
    match message {
        Message::Entry { kind: EntryKind::File { inline, .. }, .. } => inline.as_ref(),
        Message::Content { inline, .. } => Some(inline),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LATER: Duration = Duration::from_hours(1);

    fn content(id: u64, len: usize) -> Message {
        Message::Content { id, inline: Inline { root: [0; 32], content: vec![0; len] } }
    }

    /// Takes the IDs of what was sent.
    fn sent(messages: &mut mpsc::Receiver<Message>) -> Vec<u64> {
        let next = || match messages.try_recv().ok()? {
            Message::Content { id, .. } => Some(id),
            other => panic!("{other:?}"),
        };
        std::iter::from_fn(next).collect()
    }

    #[test]
    fn messages_that_follow_closely_are_sent_together() {
        let (messages, mut received) = mpsc::channel(2 * MAX_MESSAGES);
        let mut outgoing = Outgoing::new(messages);
        let start = Instant::now();
        outgoing.send(content(0, 1), start).expect("it is sent");
        assert_eq!(sent(&mut received), [0], "the first one waits for nothing");
        for id in 1..=MAX_MESSAGES as u64 {
            assert!(sent(&mut received).is_empty());
            outgoing.send(content(id, 1), start).expect("it is sent");
        }
        assert_eq!(sent(&mut received), (1..=MAX_MESSAGES as u64).collect::<Vec<_>>());
        outgoing.send(content(100, MAX_CONTENT - 1), start).expect("it is sent");
        assert!(sent(&mut received).is_empty());
        outgoing.send(content(101, 1), start).expect("it is sent");
        assert_eq!(sent(&mut received), [100, 101], "it is much content");
        outgoing.send(content(102, 1), start).expect("it is sent");
        outgoing.flush().expect("it is sent");
        assert_eq!(sent(&mut received), [102]);
    }

    #[test]
    fn a_message_after_a_pause_is_sent_at_once() {
        let (messages, mut received) = mpsc::channel(MAX_MESSAGES);
        let mut outgoing = Outgoing::new(messages);
        let start = Instant::now();
        outgoing.send(content(0, 1), start).expect("it is sent");
        outgoing.send(content(1, 1), start).expect("it is sent");
        assert_eq!(sent(&mut received), [0]);
        outgoing.send(content(2, 1), start + LATER).expect("it is sent");
        assert_eq!(sent(&mut received), [1, 2]);
        drop(received);
        assert!(outgoing.send(content(3, 1), start + 2 * LATER).is_err(), "nobody receives it");
    }

    #[test]
    fn messages_do_not_wait_for_a_limit_of_the_rate() {
        let (messages, mut received) = mpsc::channel(MAX_MESSAGES);
        let mut outgoing = Outgoing::new(messages);
        // a byte a second: nobody waits for the second turn
        let (limits, stop) = (RateLimits::default().and(Some(8)), Stop::default());
        outgoing.take_turn(3000, &limits, &stop).expect("the first goes at once");
        let start = Instant::now();
        outgoing.send(content(0, 1), start).expect("it is sent");
        outgoing.send(content(1, 1), start).expect("it is sent");
        assert_eq!(sent(&mut received), [0]);
        stop.stop();
        assert!(outgoing.take_turn(1, &limits, &stop).is_err(), "it is stopped");
        assert_eq!(sent(&mut received), [1]);
    }
}
