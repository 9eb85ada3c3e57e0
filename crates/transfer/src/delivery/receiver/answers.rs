//! Answers of the worker. Short ones, one for each entry, are sent several at once: a single one
//! costs a thread switch and a packet, and both again at the sender.

use std::cell::RefCell;

use headroom_transfer_proto::message::Message;
use tokio::sync::mpsc;

/// The most answers that wait: each holds back an entry of the sender.
const MAX_WAITING: usize = 32;

/// Where the worker's answers go. They are lost if the connection has ended.
pub(super) struct Answers {
    messages: mpsc::Sender<Message>,
    /// Answers that wait for the next ones.
    waiting: RefCell<Vec<Message>>,
}

impl Answers {
    pub(super) fn new(messages: mpsc::Sender<Message>) -> Self {
        Self { messages, waiting: RefCell::default() }
    }

    /// Sends a short answer together with the next ones. A caller that is about to wait calls
    /// [`Self::flush`].
    pub(super) fn later(&self, message: Message) {
        let mut waiting = self.waiting.borrow_mut();
        waiting.push(message);
        if waiting.len() >= MAX_WAITING {
            drop(waiting);
            self.flush();
        }
    }

    /// Sends an answer now, after those that wait.
    pub(super) fn send(&self, message: Message) {
        self.flush();
        let _ = self.messages.blocking_send(message);
    }

    /// Sends the answers that wait.
    pub(super) fn flush(&self) {
        for message in self.waiting.borrow_mut().drain(..) {
            let _ = self.messages.blocking_send(message);
        }
    }

    /// Whether no receiver of answers is left.
    pub(super) fn is_closed(&self) -> bool {
        self.messages.is_closed()
    }
}

/// However the worker ends, what it has stored is answered.
impl Drop for Answers {
    fn drop(&mut self) {
        self.flush();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(answers: &mut mpsc::Receiver<Message>) -> Option<u64> {
        match answers.try_recv().ok()? {
            Message::Stored { id } => Some(id),
            Message::End { .. } => Some(u64::MAX),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn short_answers_wait_for_the_next_other_one() {
        let (messages, mut sent) = mpsc::channel(2 * MAX_WAITING);
        let answers = Answers::new(messages);
        answers.later(Message::Stored { id: 1 });
        answers.later(Message::Stored { id: 2 });
        assert_eq!(next(&mut sent), None);
        answers.send(Message::End { stored: 2, failed: 0 });
        assert_eq!([(); 4].map(|()| next(&mut sent)), [Some(1), Some(2), Some(u64::MAX), None]);
        answers.later(Message::Stored { id: 3 });
        answers.flush();
        assert_eq!([(); 2].map(|()| next(&mut sent)), [Some(3), None]);
        answers.later(Message::Stored { id: 4 });
        drop(answers);
        assert_eq!(next(&mut sent), Some(4));
    }

    #[test]
    fn no_more_than_some_answers_wait() {
        let (messages, mut sent) = mpsc::channel(2 * MAX_WAITING);
        let answers = Answers::new(messages);
        for id in 0..MAX_WAITING as u64 {
            assert_eq!(next(&mut sent), None);
            answers.later(Message::Stored { id });
        }
        assert_eq!(sent.len(), MAX_WAITING);
    }
}
