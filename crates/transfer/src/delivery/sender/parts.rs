//! Sends ranges of a file, while other connections send other ranges of it.

use std::sync::Arc;

use headroom_transfer_proto::message::Message;
use tokio::sync::mpsc;

use super::content::blocking;
use super::shared::{Held, Shared};
use super::upload::UploadParticipant;
use crate::error::Error;
use crate::files::SourceFile;

impl Shared {
    /// Sends ranges of a file, until no more are left for this connection. `held` is what
    /// the store has.
    pub(super) async fn send_parts(
        self: Arc<Self>,
        id: u64,
        (file, held): (SourceFile, Held),
        participant: UploadParticipant,
        messages: mpsc::Sender<Message>,
    ) -> Result<(), Error> {
        if !participant.begin() {
            return Err(Error::Protocol("it does not name the upload of a file".to_owned()));
        }
        let opening = participant.clone();
        let opened = match blocking(move || opening.open(&file)).await? {
            Ok(opened) => opened,
            Err(error) => {
                participant.fail(&error.to_string());
                let _ = messages.send(Message::RangesEnd { id }).await;
                return Ok(());
            }
        };
        if let Some(entry) = self.offered().get_mut(&id) {
            entry.opened = Some(Arc::clone(&opened));
        }
        while let Some(spans) = participant.next().await {
            let from = held.spans.partition_point(|(span, _)| *span < spans.start);
            let end = held.spans.partition_point(|(span, _)| *span < spans.end);
            let there = held.spans[from..end].to_vec();
            match self.send_range(id, &opened, spans.clone(), there, &messages).await? {
                Ok(values) => {
                    participant.sent(&spans, &values);
                    let first_span = spans.start;
                    // it is lost if the transfer has ended meanwhile
                    let _ = messages.send(Message::RangeSent { id, first_span, values }).await;
                }
                Err(failure) => participant.fail(&failure.reason),
            }
        }
        // the request that completes the file needs what is stored
        let _ = messages.send(Message::RangesEnd { id }).await;
        Ok(())
    }
}
