//! Moves one file of unknown length on one stream, hashed at both ends.

use std::io::{self, Read, Write};
use std::sync::Arc;

use bytes::Bytes;
use headroom_transfer_proto::span::Hash;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;

use super::event::{Event, Observer};
use crate::connection::{RecvStream, SendStream};
use crate::error::Error;
use crate::rate::RateLimits;

/// Bytes that are read or written at once.
const PIECE: usize = 256 << 10;
/// Pieces that wait between disk and network.
const WAITING: usize = 4;

/// What was transferred.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Passed {
    pub(crate) root: Hash,
    pub(crate) bytes: u64,
}

/// Why the transfer is incomplete.
#[derive(Debug)]
pub(crate) enum PipeError {
    /// This end cannot read or write.
    Local(io::Error),
    /// The other end stopped, and reports why in a message.
    Peer,
    /// The connection is lost.
    Connection(Error),
}

/// Sends everything that can be read.
pub(crate) async fn send(
    mut from: impl Read + Send + 'static,
    stream: &mut SendStream,
    limits: &RateLimits,
    observer: &Arc<dyn Observer>,
) -> Result<Passed, PipeError> {
    let (read, mut was_read) = mpsc::channel::<Bytes>(WAITING);
    let reading = spawn_blocking(move || {
        let (mut hasher, mut bytes) = (blake3::Hasher::new(), 0);
        loop {
            let mut piece = vec![0; PIECE];
            let len = next(&mut from, &mut piece)?;
            piece.truncate(len);
            hasher.update(&piece);
            bytes += len as u64;
            // nobody receives it after the transfer has ended
            if len == 0 || read.blocking_send(piece.into()).is_err() {
                return Ok(Passed { root: hasher.finalize(), bytes });
            }
        }
    });
    while let Some(mut piece) = was_read.recv().await {
        while !piece.is_empty() {
            let slice = piece.split_to(limits.slice(piece.len()));
            let bytes = slice.len() as u64;
            limits.take(slice.len()).await;
            match stream.write_chunk(slice).await {
                Ok(()) => {}
                Err(quinn::WriteError::Stopped(_)) => return Err(PipeError::Peer),
                Err(error) => return Err(PipeError::Connection(error.into())),
            }
            observer.event(Event::Offered { bytes });
            observer.event(Event::Moved { bytes });
        }
    }
    let read: io::Result<Passed> =
        reading.await.map_err(|error| PipeError::Connection(Error::task(&error)))?;
    match read {
        Ok(passed) => {
            stream.finish();
            Ok(passed)
        }
        Err(error) => {
            stream.reset();
            Err(PipeError::Local(error))
        }
    }
}

/// Receives everything, and returns the writer.
pub(crate) async fn receive<W: Write + Send + 'static>(
    mut stream: RecvStream,
    mut to: W,
    limits: &RateLimits,
    observer: &Arc<dyn Observer>,
) -> (Result<Passed, PipeError>, Option<W>) {
    let (take, mut taken) = mpsc::channel::<Vec<u8>>(WAITING);
    let writing = spawn_blocking(move || {
        let (mut hasher, mut bytes) = (blake3::Hasher::new(), 0);
        while let Some(piece) = taken.blocking_recv() {
            hasher.update(&piece);
            bytes += piece.len() as u64;
            if let Err(error) = to.write_all(&piece) {
                return (Err(error), to);
            }
        }
        let flushed = to.flush();
        (flushed.map(|()| Passed { root: hasher.finalize(), bytes }), to)
    });
    let cut = loop {
        let mut piece = vec![0; limits.slice(PIECE)];
        let (filled, end) = match fill(&mut stream, &mut piece).await {
            Ok(filled) => filled,
            Err(quinn::ReadError::Reset(_)) => break Some(PipeError::Peer),
            Err(error) => break Some(PipeError::Connection(error.into())),
        };
        piece.truncate(filled);
        limits.take(filled).await;
        let bytes = filled as u64;
        // the writer ends early only if it cannot write
        if bytes > 0 && take.send(piece).await.is_err() {
            stream.stop();
            break None;
        }
        observer.event(Event::Offered { bytes });
        observer.event(Event::Moved { bytes });
        if end {
            break None;
        }
    };
    drop(take);
    match (writing.await, cut) {
        (Err(error), _) => (Err(PipeError::Connection(Error::task(&error))), None),
        (Ok((_, to)), Some(cut)) => (Err(cut), Some(to)),
        (Ok((written, to)), None) => (written.map_err(PipeError::Local), Some(to)),
    }
}

/// Reads what is available; 0 bytes at the end.
fn next(from: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match from.read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            read => return read,
        }
    }
}

/// Reads until the buffer is full or the stream ends; returns whether it has ended.
async fn fill(
    stream: &mut RecvStream,
    buffer: &mut [u8],
) -> Result<(usize, bool), quinn::ReadError> {
    let mut filled = 0;
    while filled < buffer.len() {
        match stream.read(&mut buffer[filled..]).await? {
            Some(bytes) => filled += bytes,
            None => return Ok((filled, true)),
        }
    }
    Ok((filled, false))
}
