//! The sender: offers files, learns what the receiver has, sends the rest.

mod content;
mod copies;
mod delta;
mod hash_ahead;
mod open_file;
mod outgoing;
mod parts;
mod range_queue;
mod ranges;
mod search;
mod shared;
mod sync;
mod upload;
mod walk;

use std::sync::Arc;

use headroom_transfer_proto::message::{Compress, MAX_INLINE, Message, TreeOptions};
use tokio::sync::mpsc;
use tokio::task::{JoinSet, spawn_blocking};

use self::shared::Shared;
use self::walk::Walk;
use super::compression::AdaptiveCompressor;
use super::delta::Delta;
use super::event::{Event, Observer};
use super::lane_status::report_lane_status;
use super::summary::Summary;
use crate::connection::Connection;
use crate::control::{MessageReader, MessageWriter};
use crate::error::{Error, from_peer};
use crate::files::Source;
use crate::rate::RateLimits;

pub(crate) use self::shared::{Offering, Terms};
pub(crate) use self::upload::{DividedUpload, UploadParticipant};

/// Messages that wait for the stream: as many again may have been taken to be written.
const WAITING: usize = 32;

/// One transfer, from the sender's view.
pub(crate) struct Sender {
    shared: Arc<Shared>,
}

impl Sender {
    /// Makes a sender after both sides have agreed on these terms.
    pub(crate) fn new(
        connection: Connection,
        offering: Offering,
        observer: Arc<dyn Observer>,
        terms: Terms,
    ) -> Self {
        let sender = Self::ahead(connection, offering, observer, RateLimits::default());
        sender.shared.agree(terms);
        sender
    }

    /// Makes a sender whose entries go ahead of the receiver's answer: [`Self::send_ahead`] is
    /// then told what both have agreed on. `own_limits` apply until then.
    pub(crate) fn ahead(
        connection: Connection,
        offering: Offering,
        observer: Arc<dyn Observer>,
        own_limits: RateLimits,
    ) -> Self {
        Self { shared: Arc::new(Shared::new(connection, offering, observer, own_limits)) }
    }

    /// Sets compression.
    pub(crate) fn compressing(mut self, how: Compress) -> Self {
        if let Some(shared) = Arc::get_mut(&mut self.shared) {
            shared.compressor = Arc::new(AdaptiveCompressor::new(how));
        }
        self
    }

    /// Sets whether changed files are searched for content that the receiver has. Without this they
    /// are, if the receiver has offered it.
    pub(crate) fn searching(mut self, delta: Delta) -> Self {
        if let Some(shared) = Arc::get_mut(&mut self.shared) {
            shared.delta = delta;
        }
        self
    }

    /// Sets whether the receiver asks for ranges of files instead of whole ones.
    pub(crate) fn by_ranges(mut self, by_ranges: bool) -> Self {
        if let Some(shared) = Arc::get_mut(&mut self.shared) {
            shared.by_ranges = by_ranges;
        }
        self
    }

    /// Sets that ranges of one file are sent, and others by other connections.
    pub(crate) fn taking_part(mut self, participant: UploadParticipant) -> Self {
        if let Some(shared) = Arc::get_mut(&mut self.shared) {
            shared.participant = Some(participant);
        }
        self
    }

    /// Sets the file whose ranges are stored, and which this transfer completes.
    pub(crate) fn completing(mut self, divided: Option<Arc<DividedUpload>>) -> Self {
        if let Some(shared) = Arc::get_mut(&mut self.shared) {
            shared.divided = divided;
        }
        self
    }

    /// Sets how trees are sent, and whether the receiver's user is told what is left out.
    pub(crate) fn of_tree(mut self, tree: TreeOptions, tells_remarks: bool) -> Self {
        if let Some(shared) = Arc::get_mut(&mut self.shared) {
            shared.tree = tree;
            shared.tells_remarks = tells_remarks;
        }
        self
    }

    /// Sends everything. Entries are numbered from `first_id` on.
    pub(crate) async fn send(
        self,
        source: Source,
        first_id: &mut u64,
        writer: &mut MessageWriter,
        reader: &mut MessageReader,
    ) -> Result<Summary, Error> {
        self.send_ahead(source, first_id, writer, reader, async |_| Ok(None)).await
    }

    /// Does what [`Self::send`] does, ahead of the receiver's answer to the request, which `agreed`
    /// receives.
    pub(crate) async fn send_ahead(
        self,
        source: Source,
        first_id: &mut u64,
        writer: &mut MessageWriter,
        reader: &mut MessageReader,
        agreed: impl AsyncFnOnce(&mut MessageReader) -> Result<Option<Terms>, Error>,
    ) -> Result<Summary, Error> {
        let shared = &self.shared;
        // the content of small files goes with their names
        let source = match shared.offering {
            Offering::Content => source.reading_ahead(MAX_INLINE as u64),
            Offering::Name | Offering::Hash => source,
        };
        let (messages, outgoing) = mpsc::channel(WAITING);
        let walk = Walk::new(Arc::clone(shared), messages.clone(), *first_id);
        let walker = spawn_blocking(move || walk.run(source));
        let speaking = async {
            let spoken = writer.forward(outgoing).await;
            // where the connection ended, what was received before says why: a refusal
            if shared.connection.close_reason().is_some() { Ok(spoken) } else { spoken.map(Ok) }
        };
        let answers = async {
            if let Some(terms) = agreed(reader).await? {
                shared.agree(terms);
            }
            self.receive_answers(reader, messages).await
        };
        let ((), spoken) = tokio::try_join!(answers, speaking)?;
        spoken?;
        *first_id = walker.await.map_err(|error| Error::task(&error))?;
        let mut summary = shared.counts.get();
        if let Some(lane) = shared.lane() {
            summary.lost = lane.lost();
        }
        Ok(summary)
    }

    /// Receives answers to entries, and sends the requested files.
    async fn receive_answers(
        &self,
        reader: &mut MessageReader,
        messages: mpsc::Sender<Message>,
    ) -> Result<(), Error> {
        let shared = &self.shared;
        let mut sending = JoinSet::new();
        let wanted = shared.send_contents(&messages);
        if let Some(lane) = shared.lane() {
            let (shared, states) = (Arc::clone(shared), lane.states());
            let observer = Arc::clone(&shared.observer);
            sending.spawn(async move { shared.send_undelivered().await });
            sending.spawn(async move {
                report_lane_status(observer, states).await;
                Ok(())
            });
        }
        loop {
            let message = tokio::select! {
                message = reader.expect() => message?,
                Some(ended) = sending.join_next() => {
                    ended.map_err(|error| Error::task(&error))??;
                    continue;
                }
            };
            match message {
                message if shared.is_of_withdrawn(&message) => {}
                Message::Have { id, first_span, values, last, old } => {
                    if let Some((file, held)) =
                        shared.note_held(id, first_span, values, last, old)?
                    {
                        let (sender, messages) = (Arc::clone(shared), messages.clone());
                        match shared.participant.clone() {
                            Some(participant) => sending.spawn(async move {
                                sender.send_parts(id, (file, held), participant, messages).await
                            }),
                            None => sending.spawn(async move {
                                sender.send_file(id, file, held, messages).await
                            }),
                        };
                    }
                }
                Message::AskRange { id, first_span, spans } => {
                    if let Some(asked) = shared.note_asked(id, first_span, spans)? {
                        let (shared, messages) = (Arc::clone(shared), messages.clone());
                        sending.spawn(async move { shared.send_ranges(id, asked, messages).await });
                    }
                }
                Message::PartsBegun { upload, part_spans, .. } if shared.participant.is_some() => {
                    if let Some(participant) = &shared.participant {
                        participant.begun(upload, part_spans)?;
                    }
                }
                Message::RangeStored { first_span, spans, .. } if shared.participant.is_some() => {
                    if let Some(participant) = &shared.participant {
                        participant.stored(first_span, spans)?;
                    }
                }
                // the file is not stored yet
                Message::Stored { id } if shared.participant.is_some() => {
                    drop(shared.answered(id)?);
                }
                Message::Failed { id, reason, .. } if shared.participant.is_some() => {
                    drop(shared.answered(id)?);
                    if let Some(participant) = &shared.participant {
                        participant.fail(&from_peer(shared.connection.side(), &reason));
                    }
                }
                Message::Described { id, chunks, last } => {
                    shared.note_described(id, chunks, last)?;
                }
                Message::Stored { id } => {
                    let entry = shared.answered(id)?;
                    shared.counts.add(|counts| {
                        counts.stored += 1;
                        if let Some(opened) = &entry.opened {
                            counts.add_verified(entry.bytes, opened.spans().verification());
                        }
                    });
                    shared.observer.event(Event::Stored { path: &entry.path });
                }
                Message::Failed { id, reason, code } => {
                    let entry = shared.answered(id)?;
                    shared.failed_there(&entry, &reason, code);
                }
                Message::Refused { reason, about_files, code } => {
                    return Err(Error::refused(reason, about_files, code));
                }
                Message::End { .. } => break,
                message => shared.handle_sync_answer(message, &wanted)?,
            }
        }
        if let Some(reason) = shared.failed_directories().summary() {
            let reason = from_peer(shared.connection.side(), &reason);
            shared.observer.event(Event::Failed { reason: &reason, code: None });
        }
        match shared.offered().len() {
            0 => Ok(()),
            left => Err(Error::Protocol(format!("it ends without an answer to {left} entries"))),
        }
    }
}

/// Stops the blocking threads of a transfer, however it ends, so that none waits for a permit
/// that is never given.
impl Drop for Sender {
    fn drop(&mut self) {
        self.shared.open_files.close();
        self.shared.unanswered.close();
        self.shared.stop.stop();
    }
}
