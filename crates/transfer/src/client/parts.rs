//! Ranges of one file that several connections send to servers of one store, or to one server.

use std::ops::Range;
use std::sync::Arc;

use headroom_transfer_proto::message::{
    ANY_UPLOAD, Keep, Links, Message, PartsRequest, TreeOptions,
};
use headroom_transfer_proto::path::RelPath;

use super::connection::{Client, receive_counts};
use crate::control::{MessageReader, MessageWriter, unexpected};
use crate::delivery::{
    DividedUpload, Event, Observer, Offering, Sender, Summary, Terms, UploadParticipant,
};
use crate::error::Error;
use crate::files::{Root, Source};
use crate::lanes::LaneOffer;
use crate::rate::RateLimits;

/// How a range of a file was sent ([`Client::put_range`]).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SentRange {
    /// The counts of its request: what it has moved, and what the server had already.
    pub summary: Summary,
    /// Why the server has not stored all of it: a sentence. `None`: it has.
    pub failure: Option<String>,
}

impl Client {
    /// Sends a range of a file while others send other ranges of it, also other programs with the
    /// same key: of the file `path` below `from`, which has `size` bytes, what the range `bytes`
    /// touches. The file is to be stored under its path in the directory `to` below the server's
    /// root. All take part in one upload, which is found by path, size, time and mode of the file,
    /// and which the first one begins. What the server has of it is not sent. A server over a
    /// directory stores spans of 1 MiB, and there all have to reach the same server; one over an
    /// object store stores parts of 8 MiB or more, each of which belongs to the range in which it
    /// begins. [`Self::complete_ranges`] gives the file its name.
    ///
    /// `None` if the server takes no ranges of the file, as an older version does or where an upload
    /// in ranges is not possible, or if the file is not there or has another size. An observer gets
    /// the reason as a warning. Nothing was sent then, and the whole file can be.
    ///
    /// A server over a directory keeps an upload, and with it the lock of the partial file, as long
    /// as a connection is open that took part in it; what was written stays in any case.
    ///
    /// # Errors
    /// The request failed as a whole.
    pub async fn put_range(
        &mut self,
        from: &Root,
        path: &RelPath,
        (size, bytes): (u64, Range<u64>),
        to: &[u8],
        observer: Arc<dyn Observer>,
    ) -> Result<Option<SentRange>, Error> {
        let upload = DividedUpload::range(path.clone(), size, bytes);
        let Some(participant) = upload.join() else { return Ok(None) };
        let source = Source::listed(from, [path.clone()], Links::Skip);
        let told = Arc::clone(&observer);
        let sent = self.put_ranges(source, (to, false), participant.clone(), observer).await?;
        let failure = upload.failure();
        let Some(summary) = sent.filter(|_| participant.has_begun() && !upload.is_declined())
        else {
            if let Some(reason) = &failure {
                told.event(Event::Warning { reason });
            }
            return Ok(None);
        };
        let is_stored = upload.is_whole();
        let incomplete = || format!("the server has not stored all of a range of {path}");
        let failure = failure.or_else(|| (!is_stored).then(incomplete));
        Ok(Some(SentRange { summary, failure }))
    }

    /// Stores a file of which ranges were sent ([`Self::put_range`]), maybe by other programs: gives
    /// it name, mode and time when its hash is right. Whatever is missing or differs is sent, so
    /// this stores the file whether or not any range has arrived. It reads the whole file at the
    /// source. `paths` are those of the file and, before it, of directories that it is in and that
    /// may be missing; else as [`Client::put_names`]. Whoever still sends ranges of the file is
    /// stopped.
    ///
    /// # Errors
    /// As those of [`Self::put`].
    pub async fn complete_ranges(
        &mut self,
        from: &Root,
        paths: Vec<RelPath>,
        to: &[u8],
        fsync: bool,
        observer: Arc<dyn Observer>,
    ) -> Result<Summary, Error> {
        let to = self.below(to)?;
        let source = Source::listed(from, paths, self.tree.links);
        let parts = PartsRequest {
            upload: Some(ANY_UPLOAD),
            completes: Some(true),
            one_server: Some(true),
        };
        self.put_or_complete(source, (to, false), fsync, (Some(parts), None), observer).await
    }

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
        let parts = (Some(divided.completion()), Some(divided));
        self.put_or_complete(source, (to, rename), fsync, parts, observer).await
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
