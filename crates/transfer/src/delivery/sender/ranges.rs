//! Sends ranges of a file, as the receiver asks for them: another sender of the same file sends
//! others.

use std::ops::Range;
use std::sync::Arc;

use headroom_mutex::lock;
use headroom_transfer_proto::message::{MAX_VALUES, Message};
use headroom_transfer_proto::span::{ChainingValue, Spans};
use tokio::sync::mpsc;

use super::content::blocking;
use super::open_file::{Lacking, OpenFile};
use super::range_queue::{RangeQueue, RangeRequest};
use super::shared::Shared;
use crate::delivery::event::Event;
use crate::error::Error;
use crate::failure::Failure;
use crate::files::SourceFile;

/// A file of which ranges are sent, and from where the requests for them are taken.
pub(super) type Asked = (SourceFile, mpsc::UnboundedReceiver<RangeRequest>);

impl Shared {
    /// Notes a range that the receiver asks for. With the first one of a file, returns the file.
    ///
    /// # Errors
    /// There is no such range, it overlaps an earlier one, or there are too many.
    pub(super) fn note_asked(
        &self,
        id: u64,
        first_span: u64,
        spans: u64,
    ) -> Result<Option<Asked>, Error> {
        let wrong = |what: &str| Err(Error::Protocol(format!("it asks for {what}")));
        if !self.by_ranges {
            return wrong("a range of a file in a request for whole files");
        }
        let mut offered = self.offered();
        let Some(entry) = offered.get_mut(&id) else {
            return wrong("a range of a file that was not offered");
        };
        let count = Spans::new(entry.bytes).count();
        let end = first_span.checked_add(spans).filter(|end| *end <= count);
        let Some(end) = end.filter(|_| (1..=MAX_VALUES as u64).contains(&spans)) else {
            return wrong("a range that the file does not have, or that is too long");
        };
        let range = first_span..end;
        let held = std::mem::take(&mut entry.held.spans);
        if held.iter().any(|(span, _)| !range.contains(span)) {
            return wrong("a range, and says what it has outside of it");
        }
        let mut begun = None;
        if entry.ranges.is_none() {
            let Some(file) = entry.file.take() else {
                return wrong("a range of a file that it has asked for as a whole");
            };
            let (queue, requests) = RangeQueue::new();
            entry.ranges = Some(queue);
            begun = Some((file, requests));
        }
        let Some(queue) = &mut entry.ranges else { return Ok(None) };
        match queue.add(RangeRequest { spans: range, held }) {
            Ok(()) => Ok(begun),
            Err(what) => wrong(what),
        }
    }

    /// Notes that a file is about to be withdrawn: the receiver may be asking for more of it.
    pub(super) fn note_withdrawn(&self, id: u64) {
        if self.by_ranges {
            lock(&self.withdrawn).insert(id);
        }
    }

    /// Whether a message is about a file that was withdrawn, which the receiver may not know yet.
    pub(super) fn is_of_withdrawn(&self, message: &Message) -> bool {
        let id = match message {
            Message::Have { id, .. }
            | Message::AskRange { id, .. }
            | Message::Failed { id, .. } => id,
            _ => return false,
        };
        lock(&self.withdrawn).contains(id)
    }

    /// Sends the ranges of a file one after the other, until the receiver has answered the file.
    pub(super) async fn send_ranges(
        self: Arc<Self>,
        id: u64,
        (file, mut requests): Asked,
        messages: mpsc::Sender<Message>,
    ) -> Result<(), Error> {
        let path = self.offered().get(&id).map(|entry| entry.path.clone());
        if let Some(path) = &path {
            self.observer.event(Event::Begun { path });
        }
        let opened = match blocking(move || OpenFile::by_ranges(&file)).await? {
            Ok(opened) => Arc::new(opened),
            Err(error) => {
                self.withdraw(id, error.into(), &messages).await;
                return Ok(());
            }
        };
        if let Some(entry) = self.offered().get_mut(&id) {
            entry.opened = Some(Arc::clone(&opened));
        }
        while let Some(RangeRequest { spans, held }) = requests.recv().await {
            match self.send_range(id, &opened, spans.clone(), held, &messages).await? {
                Ok(values) => {
                    self.note_sent(id);
                    let first_span = spans.start;
                    // it is lost if the transfer has ended meanwhile
                    let _ = messages.send(Message::RangeSent { id, first_span, values }).await;
                }
                Err(failure) => {
                    self.withdraw(id, failure, &messages).await;
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Sends what the receiver lacks of a range. Returns the values of all its spans, or why the
    /// file cannot be sent.
    pub(super) async fn send_range(
        self: &Arc<Self>,
        id: u64,
        opened: &Arc<OpenFile>,
        spans: Range<u64>,
        held: Vec<(u64, ChainingValue)>,
        messages: &mpsc::Sender<Message>,
    ) -> Result<Result<Vec<ChainingValue>, Failure>, Error> {
        let (comparing, range) = (Arc::clone(opened), spans.clone());
        let compared = blocking(move || comparing.compare_range(&range, &held)).await?;
        let (lacking, kept) = match compared {
            Ok(compared) => compared,
            Err(error) => return Ok(Err(error.into())),
        };
        if kept > 0 {
            self.counts.add(|counts| counts.kept += kept);
            self.observer.event(Event::Kept { bytes: kept });
        }
        let lacking = Lacking::Of(lacking);
        if let Err(failure) = self.send_lacking(id, opened, &lacking, messages).await? {
            return Ok(Err(failure));
        }
        let sealing = Arc::clone(opened);
        blocking(move || sealing.seal_range(spans)).await
    }

    fn note_sent(&self, id: u64) {
        if let Some(entry) = self.offered().get_mut(&id)
            && let Some(queue) = &mut entry.ranges
        {
            queue.note_sent();
        }
    }
}
