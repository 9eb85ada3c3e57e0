//! Describes the old version of a file to its sender, and makes the new one from it.

use std::ops::Range;
use std::sync::Arc;

use headroom_transfer_proto::message::{ChunkKind, ChunkSize, MAX_COPY, MAX_INLINE, Message};

use super::worker::Worker;
use crate::control::unexpected;
use crate::delivery::compression::decompress;
use crate::delivery::event::Event;
use crate::error::Error;
use crate::files::{self, Partial};

/// How many times a sender may let all of an old file be described: by blocks, by groups of chunks,
/// a part to try, and by chunks.
const DESCRIPTIONS: u64 = 4;
/// Chunks of one message, fewer than it may have: the sender need not wait for all of them.
const CHUNKS_AT_ONCE: usize = 4096;
/// Chunks between two looks whether the transfer has ended.
const CHUNKS_UNSEEN: usize = 256;

impl Worker {
    /// Returns the size in bytes of the old version of a file, if the sender may reuse its content.
    pub(super) fn old_to_reuse(&self, partial: &Partial) -> Option<u64> {
        let sync = self.sync.as_ref()?;
        let is_searched = sync.delta.covers(partial.spans().size());
        partial.old_size().filter(|old| is_searched && *old > 0)
    }

    /// Handles a message about the old version of a file.
    pub(super) fn delta(&mut self, message: Message) -> Result<(), Error> {
        if self.sync.is_none() {
            return Err(unexpected(&message));
        }
        match message {
            Message::Describe { id, size, kind, ranges } => self.describe(id, size, kind, &ranges),
            Message::Copy { id, from, to, len } => self.copy_old(id, from, to, len),
            Message::Literal { id, offset, len, content } => {
                self.literal(id, offset, len as usize, content)
            }
            other => Err(unexpected(&other)),
        }
    }

    fn describe(
        &mut self,
        id: u64,
        size: ChunkSize,
        kind: ChunkKind,
        ranges: &[Range<u64>],
    ) -> Result<(), Error> {
        // the sender may not know yet that the file failed here
        let Some(file) = self.files.get_mut(&id) else { return Ok(()) };
        let old = file.incoming.partial.old_size().unwrap_or(0);
        // they are in order, so their sum is that of the last one's end at most
        let bytes: u64 = ranges.iter().map(|range| range.end - range.start).sum();
        file.described = file.described.saturating_add(bytes);
        if ranges.last().is_some_and(|range| range.end > old)
            || file.described > old.saturating_mul(DESCRIPTIONS)
        {
            return Err(Error::Protocol(
                "it asks for more of an old file than there is".to_owned(),
            ));
        }
        let incoming = Arc::clone(&file.incoming);
        // reading it may take long
        self.answers.flush();
        let (mut chunks, mut unseen) = (Vec::new(), 0);
        let described = incoming.partial.describe_old(ranges, size, kind, |_, chunk| {
            chunks.push(chunk);
            if chunks.len() == CHUNKS_AT_ONCE {
                let chunks = std::mem::take(&mut chunks);
                self.send(Message::Described { id, chunks, last: false });
            }
            unseen += 1;
            // a group is as long as many chunks
            if kind == ChunkKind::Group || unseen == CHUNKS_UNSEEN {
                unseen = 0;
                return !self.answers.is_closed();
            }
            true
        });
        if let Err(error) = described {
            // what cannot be read is not reused
            tracing::debug!("{error}");
        }
        self.send(Message::Described { id, chunks, last: true });
        Ok(())
    }

    fn copy_old(&mut self, id: u64, from: u64, to: u64, len: u64) -> Result<(), Error> {
        let Some(file) = self.files.get_mut(&id) else { return Ok(()) };
        file.copied = file.copied.saturating_add(len);
        if len > MAX_COPY || file.copied > file.incoming.partial.spans().size() {
            return Err(Error::Protocol(format!(
                "it copies {len} bytes of an old file, which are too many"
            )));
        }
        let copied = file.incoming.partial.copy_old(from, to, len);
        if self.go_on(id, copied).is_some() {
            self.shared.counts.add(|counts| {
                counts.kept += len;
                counts.reused += len;
            });
            self.shared.observer.event(Event::Kept { bytes: len });
        }
        Ok(())
    }

    fn literal(&mut self, id: u64, offset: u64, len: usize, content: Vec<u8>) -> Result<(), Error> {
        let Some(file) = self.files.get(&id) else { return Ok(()) };
        if len > MAX_INLINE || content.len() > len {
            return Err(Error::Protocol(format!("it sends {len} bytes of a file in one message")));
        }
        let saved = (len - content.len()) as u64;
        let mut bytes = content;
        if saved > 0 {
            let frame = std::mem::replace(&mut bytes, vec![0; len]);
            decompress(&frame, &mut bytes).map_err(|_| {
                Error::Protocol("a part of a file cannot be decompressed".to_owned())
            })?;
        }
        let written = file.incoming.partial.write_at(offset, &bytes);
        if let Some(moved) = self.go_on(id, written) {
            self.shared.counts.add(|counts| {
                counts.moved += moved;
                counts.saved += saved;
            });
            self.shared.observer.event(Event::Moved { bytes: moved });
            if saved > 0 {
                self.shared.observer.event(Event::Saved { bytes: saved });
            }
        }
        Ok(())
    }

    /// Returns what was written of a file; one that cannot be written fails.
    fn go_on(&mut self, id: u64, written: Result<u64, files::Error>) -> Option<u64> {
        match written {
            Ok(bytes) => Some(bytes),
            Err(error) => {
                self.close(id);
                self.failed(id, error);
                None
            }
        }
    }
}
