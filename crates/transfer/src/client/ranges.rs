//! Ranges of one file, for programs that fetch it over several connections.

use std::collections::HashSet;
use std::sync::Arc;

use headroom_transfer_proto::message::{Message, TreeOptions, Wanted};
use headroom_transfer_proto::path::RelPath;
use tokio::task::spawn_blocking;

use super::connection::{Client, limited, receive_counts};
use super::listed::joined;
use crate::control::{MessageReader, MessageWriter, unexpected};
use crate::delivery::{Destination, DividedFile, Observer, Participant, Receiver, Summary};
use crate::error::Error;
use crate::files::settable;
use crate::lanes::LaneOffer;
use crate::rate::RateLimits;

impl Client {
    /// Whether files are to be fetched of which a range is enough: not if they may change.
    pub(crate) const fn takes_ranges(&self) -> bool {
        !self.tree.changing
    }

    /// Fetches ranges of a file, as long as there are some that no other connection fetches: the
    /// file `name` in the directory `directory` below `from`, which is below the server's root. It
    /// is larger than 64 KiB. `None` if the server sends no ranges, as an older version does, or
    /// files that change are to be fetched: nothing of it was fetched then.
    ///
    /// When this returns, what this connection has not completed is left to others; when it is
    /// dropped, as soon as nothing of that is being written. If the server cannot send the version
    /// of the file that is divided, or it cannot be written here, no connection is asked for more,
    /// and [`DividedFile::failure`] says why. When [`DividedFile::is_whole`] says so,
    /// [`DividedFile::finish`] stores the file.
    ///
    /// # Errors
    /// The request failed as a whole, or the server sends what was not asked for.
    pub async fn get_ranges(
        &mut self,
        from: &[u8],
        place: (Option<&RelPath>, &RelPath),
        file: &Arc<DividedFile>,
        observer: Arc<dyn Observer>,
    ) -> Result<Option<Summary>, Error> {
        let (part, leaving) = file.join(self.address().to_string());
        let fetched = self.get_part(from, place, part, observer).await;
        leaving.ended().await;
        fetched
    }

    /// Does what [`Self::get_ranges`] does, for a connection that takes part already.
    pub(crate) async fn get_part(
        &mut self,
        from: &[u8],
        (directory, name): (Option<&RelPath>, &RelPath),
        part: Participant,
        observer: Arc<dyn Observer>,
    ) -> Result<Option<Summary>, Error> {
        if !self.takes_ranges() {
            return Ok(None);
        }
        let path = joined(self.below(from)?.as_ref(), directory, name).map_err(|error| {
            Error::OnServer { reason: format!("{name} cannot be read: {error}"), code: None }
        })?;
        let asked: HashSet<_> = [path.name().to_vec()].into();
        let root = part.root().clone();
        let resolved = spawn_blocking(move || Destination::directory(&root, None, false)).await;
        let (destination, _) = resolved.map_err(|error| Error::task(&error))??;
        // the rate of a lane cannot be limited at the receiver
        let offer = self.offer().filter(|_| self.rate_bps.is_none());
        // the values of ranges are those of BLAKE3
        let tree = TreeOptions { verification: None, ..self.tree };
        let request = Message::Get {
            from: vec![Wanted { path: Some(path), contents: false }],
            compress: Some(self.compress),
            lanes: offer.as_ref().map(LaneOffer::message),
            tree: Some(tree),
            ranges: Some(true),
        };
        let (mut writer, mut reader, accepted) = self.request(&request, offer).await?;
        if !accepted.ranges {
            decline(&mut writer, &mut reader).await?;
            receive_counts(accepted.counts, &mut reader).await;
            self.finish_request(writer, reader).await;
            return Ok(None);
        }
        accepted.verification(tree.verification, &observer)?;
        let params = accepted.report_params(&observer);
        let stored_as = limited(tree, settable(), "this user may not set", &observer);
        let receiver = Receiver {
            connection: self.connection.clone().into(),
            joining: None,
            destination: destination.only(asked),
            fsync: false,
            observer,
            claims: None,
            limits: RateLimits::default().and(self.rate_bps),
            sync: None,
            tree: stored_as,
            lanes: accepted.lanes,
            acceptance: None,
            part: Some(part.clone()),
            parts: None,
        };
        let mut summary = receiver.receive(&mut writer, &mut reader).await?;
        if summary.requests.is_none() {
            summary.requests = receive_counts(accepted.counts, &mut reader).await;
        }
        self.finish_request(writer, reader).await;
        if !part.has_begun() {
            part.fail("it does not send the file");
        }
        Ok(Some(Summary { cipher: params.map(|params| params.cipher), ..summary }))
    }
}

/// Lets the server of an older version send nothing: it offers whole files.
async fn decline(writer: &mut MessageWriter, reader: &mut MessageReader) -> Result<(), Error> {
    let mut failed = 0;
    loop {
        match reader.expect().await? {
            Message::Entry { id, .. } => {
                failed += 1;
                let reason = "only ranges of it are wanted: it is fetched later".to_owned();
                writer.send(&Message::Failed { id, reason, code: None }).await?;
            }
            Message::EntriesEnd { .. } => break,
            Message::Unreadable { .. } | Message::Remark { .. } => {}
            Message::Refused { reason, about_files, code } => {
                return Err(Error::refused(reason, about_files, code));
            }
            other => return Err(unexpected(&other)),
        }
    }
    writer.send(&Message::End { stored: 0, failed }).await
}
