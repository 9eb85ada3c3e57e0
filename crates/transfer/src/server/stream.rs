//! Transfers of one file of unknown length: a client's standard input or output.

use std::io::{self, Read};
use std::sync::Arc;

use headroom_transfer_proto::message::{ErrorCode, Links, Message, TreeOptions};
use headroom_transfer_proto::path::RelPath;
use headroom_transfer_proto::span::Hash;
use tokio::task::spawn_blocking;

use super::request::Request;
use crate::control::unexpected;
use crate::delivery::pipe::{self, PipeError};
use crate::delivery::{Observer, Summary};
use crate::error::Error;
use crate::failure::Failure;
use crate::files::{self, Reader, SourceKind};

impl Request<'_> {
    /// Stores a stream, if its hash is right.
    pub(super) async fn put_stream(&mut self, to: RelPath, fsync: bool) -> Result<Summary, Error> {
        self.may_write()?;
        let (root, paths) = (self.root.clone(), self.paths);
        let begin = move || {
            let destination = paths.destination(&root, Some(&to), true)?;
            let Some((root, name)) = destination.file() else {
                return Err(Error::from(files::Error::no_name(&to)));
            };
            Ok(root.create_stream_file(&name)?)
        };
        let file = spawn_blocking(begin).await.map_err(|error| Error::task(&error))??;
        self.writer.send(&Message::ACCEPTED).await?;
        let stream = self.connection.accept_uni().await?;
        let tally: Arc<dyn Observer> = self.tally.clone();
        let (came, file) = pipe::receive(stream, file, &self.rates.incoming(), &tally).await;
        let came = match (came, file) {
            (Ok(came), Some(file)) => Ok((came, file)),
            (Err(PipeError::Local(error)), Some(file)) => Err(Failure::from(file.error(error))),
            (Err(PipeError::Connection(error)), _) => return Err(error),
            _ => Err("the client stopped sending it".to_owned().into()),
        };
        let (came, file) = match came {
            Ok(came) => came,
            Err(Failure { reason, code }) => {
                self.writer.send(&Message::Failed { id: 0, reason, code }).await?;
                return Ok(Summary { failed: 1, ..Summary::default() });
            }
        };
        let sealed = match self.reader.expect().await? {
            Message::Sealed { root, bytes, .. } => {
                came.root == Hash::from_bytes(root) && came.bytes == bytes
            }
            other => return Err(unexpected(&other)),
        };
        let stored = match sealed {
            true => spawn_blocking(move || file.finish(fsync).map_err(Failure::from))
                .await
                .map_err(|error| Error::task(&error))?,
            false => Err("what arrived is not what was sent, and was discarded; send it again"
                .to_owned()
                .into()),
        };
        let summary = Summary { moved: came.bytes, ..Summary::default() };
        Ok(match stored {
            Ok(()) => {
                self.writer.send(&Message::Stored { id: 0 }).await?;
                Summary { stored: 1, ..summary }
            }
            Err(Failure { reason, code }) => {
                self.writer.send(&Message::Failed { id: 0, reason, code }).await?;
                Summary { failed: 1, ..summary }
            }
        })
    }

    /// Sends a file as a stream, and then its hash.
    pub(super) async fn get_stream(
        &mut self,
        from: RelPath,
        tree: Option<TreeOptions>,
    ) -> Result<Summary, Error> {
        let changing = tree.is_some_and(|tree| tree.changing);
        let (root, paths) = (self.root.clone(), self.paths);
        let open = move || {
            let wanted = vec![(Some(from.clone()), false)];
            let found = paths.source(&root, wanted, Links::Keep).next();
            match found.transpose()?.map(|found| found.kind) {
                Some(SourceKind::File(file)) => {
                    let reader = if changing { file.open_changed()? } else { file.open()? };
                    Ok(Arc::new(reader))
                }
                _ => Err(Error::from(files::Error::no_file(&from))),
            }
        };
        let reader = spawn_blocking(open).await.map_err(|error| Error::task(&error))??;
        self.writer.send(&Message::ACCEPTED).await?;
        let mut stream = self.connection.open_uni().await?;
        let tally: Arc<dyn Observer> = self.tally.clone();
        let content = FileReader { reader: Arc::clone(&reader), at: 0 };
        let limits = self.rates.outgoing().and(self.greeting.rate_bps);
        let withdrawn = match pipe::send(content, &mut stream, &limits, &tally).await {
            Ok(passed) => {
                let unchanged = spawn_blocking(move || reader.is_unchanged()).await;
                match unchanged.map_err(|error| Error::task(&error))? {
                    Ok(is_unchanged) if is_unchanged || changing => {
                        let (root, bytes) = (*passed.root.as_bytes(), passed.bytes);
                        self.writer.send(&Message::Sealed { id: 0, root, bytes }).await?;
                        return Ok(Summary { stored: 1, moved: bytes, ..Summary::default() });
                    }
                    Ok(_) => {
                        let reason =
                            "it changed while it was read; fetch it again, or use --allow-changing";
                        Failure::coded(ErrorCode::CHANGED, reason.to_owned())
                    }
                    Err(error) => error.into(),
                }
            }
            Err(PipeError::Local(error)) => error.to_string().into(),
            Err(PipeError::Peer) => "the client stopped receiving it".to_owned().into(),
            Err(PipeError::Connection(error)) => return Err(error),
        };
        let Failure { reason, code } = withdrawn;
        self.writer.send(&Message::Withdrawn { id: 0, reason, code }).await?;
        Ok(Summary { failed: 1, ..Summary::default() })
    }
}

/// Reads a file from its beginning to its end.
struct FileReader {
    reader: Arc<Reader>,
    at: u64,
}

impl Read for FileReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = self.reader.read_at(self.at, buffer).map_err(io::Error::other)?;
        self.at += bytes as u64;
        Ok(bytes)
    }
}
