//! `put -` and `get … -`: one file of unknown length, from a reader or to a writer.

use std::io::{Read, Write};
use std::sync::Arc;

use headroom_transfer_proto::message::Message;
use headroom_transfer_proto::path::{RelPath, shown};
use headroom_transfer_proto::span::Hash;

use super::connection::{Client, receive_counts};
use crate::control::unexpected;
use crate::delivery::pipe::{self, PipeError};
use crate::delivery::{Event, Observer, Summary};
use crate::error::{Error, from_peer};
use crate::failure::Failure;
use crate::rate::RateLimits;

impl Client {
    /// Stores everything that can be read as the file `to` below the server's root, once it is
    /// verified. It is not resumed: after an interruption nothing is stored.
    ///
    /// # Errors
    /// It cannot be read or is interrupted, or `to` is a directory. If the server cannot store it,
    /// that is counted as failed and reported to `observer`.
    pub async fn put_stream(
        &mut self,
        from: impl Read + Send + 'static,
        to: &[u8],
        fsync: bool,
        observer: Arc<dyn Observer>,
    ) -> Result<Summary, Error> {
        let name = self.file(to)?;
        let request = Message::PutStream { to: name.clone(), fsync };
        let (mut writer, mut reader, accepted) = self.request(&request, None).await?;
        let limits = RateLimits::default().and(self.rate_bps).and(accepted.peer_limit_bps);
        let mut stream = self.connection.open_uni().await?.into();
        let moved = match pipe::send(from, &mut stream, &limits, &observer).await {
            Ok(passed) => {
                let (root, bytes) = (*passed.root.as_bytes(), passed.bytes);
                writer.send(&Message::Sealed { id: 0, root, bytes }).await?;
                bytes
            }
            Err(PipeError::Local(cause)) => {
                return Err(Error::System { doing: "read what is to be sent".to_owned(), cause });
            }
            // the server says why
            Err(PipeError::Peer) => 0,
            Err(PipeError::Connection(error)) => return Err(once(error)),
        };
        match reader.expect().await.map_err(once)? {
            Message::Stored { .. } => {
                observer.event(Event::Stored { path: &name });
                let requests = receive_counts(accepted.counts, &mut reader).await;
                Ok(Summary { stored: 1, moved, requests, ..Summary::default() })
            }
            Message::Failed { reason, code, .. } => {
                let reason = from_peer(self.connection.side(), &reason);
                observer.event(Event::Failed { reason: &reason, code });
                Ok(Summary { failed: 1, moved, ..Summary::default() })
            }
            Message::Refused { reason, about_files, code } => {
                Err(Error::refused(reason, about_files, code))
            }
            other => Err(unexpected(&other)),
        }
    }

    /// Writes a file below the server's root while it arrives, and reports at the end whether it is
    /// what was sent. What was written before is not taken back.
    ///
    /// # Errors
    /// It cannot be written, is interrupted, changed meanwhile, has another hash, or is not a file.
    pub async fn get_stream(
        &mut self,
        from: &[u8],
        to: impl Write + Send + 'static,
        observer: Arc<dyn Observer>,
    ) -> Result<Summary, Error> {
        let name = self.file(from)?;
        let request = Message::GetStream { from: name.clone(), tree: Some(self.tree) };
        let (_speaker, mut reader, accepted) = self.request(&request, None).await?;
        let limits = RateLimits::default().and(self.rate_bps);
        let stream = self.connection.accept_uni().await?.into();
        let (came, _) = pipe::receive(stream, to, &limits, &observer).await;
        let came = match came {
            Ok(came) => Some(came),
            Err(PipeError::Local(cause)) => {
                return Err(Error::System { doing: "write what came".to_owned(), cause });
            }
            // the server says why
            Err(PipeError::Peer) => None,
            Err(PipeError::Connection(error)) => return Err(once(error)),
        };
        let failed = match (reader.expect().await.map_err(once)?, came) {
            (Message::Sealed { root, bytes, .. }, Some(came))
                if came.root == Hash::from_bytes(root) && came.bytes == bytes =>
            {
                observer.event(Event::Stored { path: &name });
                let requests = receive_counts(accepted.counts, &mut reader).await;
                return Ok(Summary { stored: 1, moved: bytes, requests, ..Summary::default() });
            }
            (Message::Sealed { .. }, _) => {
                let reason = format!(
                    "{name} has another BLAKE3 hash than what was sent: do not use what was written"
                );
                Failure::from(reason)
            }
            (Message::Withdrawn { reason, code, .. }, _) => {
                let reason = format!(
                    "{name} is incomplete: do not use what was written. On the server: {reason}"
                );
                Failure { reason, code }
            }
            (Message::Refused { reason, about_files, code }, _) => {
                return Err(Error::refused(reason, about_files, code));
            }
            (other, _) => return Err(unexpected(&other)),
        };
        observer.event(failed.event());
        Ok(Summary { failed: 1, ..Summary::default() })
    }

    fn file(&self, path: &[u8]) -> Result<RelPath, Error> {
        let name = if path.ends_with(b"/") { None } else { self.below(path)? };
        name.ok_or_else(|| {
            Error::Usage(format!("`{}` is not the name of a file, which `-` needs", shown(path)))
        })
    }
}

/// Turns a lost connection into an error that does not promise to resume.
fn once(error: Error) -> Error {
    match error {
        Error::Lost(cause) => Error::Interrupted(cause),
        error => error,
    }
}
