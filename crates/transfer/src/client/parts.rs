//! Ranges of one file that several connections send to servers of one store.

use std::sync::Arc;

use headroom_transfer_proto::message::{Keep, Message, TreeOptions};

use super::connection::{Client, receive_counts};
use crate::control::{MessageReader, MessageWriter, unexpected};
use crate::delivery::{
    DividedUpload, Observer, Offering, Sender, Summary, Terms, UploadParticipant,
};
use crate::error::Error;
use crate::files::Source;
use crate::lanes::LaneOffer;
use crate::rate::RateLimits;

impl Client {
    /// Sends ranges of a file into the directory `to` below the server's root, or with `rename`
    /// under that name, as long as there are some that no other connection sends. `source` is this
    /// file alone. `None` if the server stores whole files only, as one of several of a directory or
    /// one of an older version does: nothing was sent then.
    ///
    /// # Errors
    /// The request failed as a whole. What is wrong with the file is noted in `participant`.
    pub(crate) async fn put_ranges(
        &mut self,
        source: Source,
        (to, rename): (&[u8], bool),
        participant: UploadParticipant,
        observer: Arc<dyn Observer>,
    ) -> Result<Option<Summary>, Error> {
        let to = self.below(to)?;
        let offer = self.offer();
        let lanes = offer.as_ref().map(LaneOffer::message);
        // a store keeps no other attributes, and its spans are BLAKE3's
        let tree = TreeOptions { keep: Keep::NONE, verification: None, ..self.tree };
        let request = Message::Put {
            to,
            rename,
            fsync: false,
            lanes,
            tree: Some(tree),
            parts: Some(participant.request()),
        };
        let (mut writer, mut reader, accepted) = self.request(&request, offer).await?;
        if !accepted.parts {
            send_nothing(&mut writer, &mut reader).await?;
            receive_counts(accepted.counts, &mut reader).await;
            return Ok(None);
        }
        let cipher = accepted.report_params(&observer).map(|params| params.cipher);
        let verification = accepted.verification(None, &observer)?;
        let limits = RateLimits::default().and(self.rate_bps).and(accepted.peer_limit_bps);
        let terms = Terms { limits, lane: accepted.lanes, verification };
        let connection = self.connection.clone().into();
        let sender = Sender::new(connection, Offering::Content, observer, terms);
        let sender = sender.compressing(self.compress).of_tree(tree, false);
        let sender = sender.taking_part(participant.clone());
        let next_id = &mut self.next_id;
        let sent = sender.send(source, next_id, &mut writer, &mut reader).await?;
        let requests = receive_counts(accepted.counts, &mut reader).await;
        if !participant.has_begun() {
            participant.fail("it cannot be read, or the server does not accept it");
        }
        Ok(Some(Summary { cipher, requests, ..sent }))
    }

    /// Sends a file whose ranges are stored as [`Self::put_ranges`] says: what is missing of it, so
    /// that it gets its name.
    ///
    /// # Errors
    /// The request failed as a whole. A failure of the file is counted, and reported to `observer`.
    pub(crate) async fn complete_divided(
        &mut self,
        source: Source,
        (to, rename): (&[u8], bool),
        fsync: bool,
        divided: Arc<DividedUpload>,
        observer: Arc<dyn Observer>,
    ) -> Result<Summary, Error> {
        let to = self.below(to)?;
        self.put_or_complete(source, (to, rename), fsync, Some(divided), observer).await
    }
}

/// Ends a request that a server has accepted as one for whole files, without any.
async fn send_nothing(writer: &mut MessageWriter, reader: &mut MessageReader) -> Result<(), Error> {
    writer.send(&Message::EntriesEnd { files: 0, bytes: 0 }).await?;
    match reader.expect().await? {
        Message::End { .. } => Ok(()),
        Message::Refused { reason, about_files, code } => {
            Err(Error::refused(reason, about_files, code))
        }
        other => Err(unexpected(&other)),
    }
}
