//! Receives pieces of files on data streams.

use std::sync::Arc;

use headroom_transfer_proto::message::{DataHeader, body_len};
use headroom_transfer_proto::span::SPAN_BYTES;
use tokio::sync::mpsc;
use tokio::task::{JoinSet, spawn_blocking};

use super::data_session::{Arrived, Arriving, DataSession};
use super::incoming::Writing;
use super::shared::{Shared, WorkerEvent};
use super::worker::not_asked;
use crate::connection::RecvStream;
use crate::delivery::compression::decompress;
use crate::delivery::event::Event;
use crate::error::Error;
use crate::rate::RateLimits;

/// The longest header of a data stream.
const MAX_HEADER: usize = 64;

/// Receives data streams, also those of sessions that join, until an error of any.
pub(super) async fn take_streams(
    session: DataSession,
    mut joining: Option<mpsc::Receiver<DataSession>>,
    shared: &Arc<Shared>,
    events: &mpsc::Sender<WorkerEvent>,
) -> Error {
    let mut sessions = JoinSet::new();
    let take = |session| take_pieces(session, Arc::clone(shared), events.clone());
    sessions.spawn(take(session));
    loop {
        tokio::select! {
            session = joined(&mut joining) => {
                sessions.spawn(take(session));
            }
            Some(ended) = sessions.join_next() => {
                return ended.unwrap_or_else(|error| Error::task(&error));
            }
        }
    }
}

/// Waits for another session.
async fn joined(joining: &mut Option<mpsc::Receiver<DataSession>>) -> DataSession {
    let next = match joining {
        Some(joining) => joining.recv().await,
        None => None,
    };
    match next {
        Some(session) => session,
        None => std::future::pending().await,
    }
}

/// Receives the data streams of one session, until an error.
async fn take_pieces(
    session: DataSession,
    shared: Arc<Shared>,
    events: mpsc::Sender<WorkerEvent>,
) -> Error {
    let mut pieces = JoinSet::new();
    loop {
        let stream = tokio::select! {
            stream = session.connection.accept_uni() => stream,
            Some(ended) = pieces.join_next() => match ended {
                Ok(Ok(())) => continue,
                Ok(Err(error)) => return error,
                Err(error) => return Error::task(&error),
            },
        };
        match stream {
            Ok(stream) => {
                let arrived = session.arrived();
                pieces.spawn(take_piece(stream, arrived, Arc::clone(&shared), events.clone()));
            }
            Err(error) => return error.into(),
        }
    }
}

/// Receives one piece, a span at a time.
async fn take_piece(
    mut stream: RecvStream,
    arrived: Arrived,
    shared: Arc<Shared>,
    events: mpsc::Sender<WorkerEvent>,
) -> Result<(), Error> {
    // a sender whose lane answers again resets its streams
    let Some(header) = header(&mut stream).await? else { return Ok(()) };
    let mut arriving = arrived.begin(header.len);
    let Some(incoming) = shared.open().get(&header.id).cloned() else {
        // it failed here, and the sender does not know yet
        stream.stop();
        return Ok(());
    };
    if !incoming.is_asked_for(header.offset, header.len) {
        return Err(not_asked(header.offset));
    }
    let zstd = header.zstd == Some(true);
    let (mut buffer, mut frame) = (Vec::new(), Vec::new());
    let (mut offset, mut left) = (header.offset, header.len);
    while left > 0 {
        let want = usize::try_from(left.min(SPAN_BYTES)).unwrap_or(usize::MAX);
        let len = if zstd { frame_len(&mut stream, want).await? } else { Some(want) };
        let Some(len) = len else { return Ok(()) };
        // data as long as the span is not compressed
        let is_frame = len < want;
        let into = if is_frame { &mut frame } else { &mut buffer };
        if !fill(&mut stream, &mut arriving, &shared.limits, into, len).await? {
            // the sender gave up, and reports why in a message
            return Ok(());
        }
        let saved = (want - len) as u64;
        let writing = Arc::clone(&incoming);
        let write = move || {
            if is_frame {
                buffer.resize(want, 0);
                if decompress(&frame, &mut buffer).is_err() {
                    return (None, buffer, frame);
                }
            }
            (Some(writing.partial.write_at(offset, &buffer)), buffer, frame)
        };
        let counting = Writing::begin(&incoming);
        let (written, used, frame_used) =
            spawn_blocking(write).await.map_err(|error| Error::task(&error))?;
        (buffer, frame) = (used, frame_used);
        let Some(written) = written else {
            return Err(Error::Protocol("a span cannot be decompressed".to_owned()));
        };
        // what arrived on a lane before is not counted again
        let moved = match written {
            Ok(moved) => moved,
            Err(error) => {
                stream.stop();
                let _ = events.send(WorkerEvent::WriteFailed(header.id, error)).await;
                return Ok(());
            }
        };
        let bytes = want as u64;
        shared.counts.add(|counts| {
            counts.moved += moved;
            counts.saved += saved;
        });
        drop(counting);
        incoming.wrote(bytes, moved);
        shared.observer.event(Event::Moved { bytes: moved });
        if saved > 0 {
            shared.observer.event(Event::Saved { bytes: saved });
        }
        // a write that succeeded is within the file, and so is its end
        offset = offset.saturating_add(bytes);
        left -= bytes;
    }
    let _ = events.send(WorkerEvent::PieceStored(header.id)).await;
    Ok(())
}

/// Reads the length of the next frame, at most that of the span; `None` if the sender reset the
/// stream.
async fn frame_len(stream: &mut RecvStream, span: usize) -> Result<Option<usize>, Error> {
    let mut head = [0; 4];
    if !exactly(stream, &mut head).await? {
        return Ok(None);
    }
    match u32::from_be_bytes(head) as usize {
        len if (1..=span).contains(&len) => Ok(Some(len)),
        len => Err(Error::Protocol(format!("it compresses {span} bytes to {len}"))),
    }
}

/// Fills the room with so many bytes, no faster than it may. Whether the sender goes
/// on with it.
async fn fill(
    stream: &mut RecvStream,
    arriving: &mut Arriving,
    limits: &RateLimits,
    buffer: &mut Vec<u8>,
    len: usize,
) -> Result<bool, Error> {
    // memory grows with what arrived, not with what was announced
    buffer.clear();
    buffer.reserve_exact(len);
    while buffer.len() < len {
        match stream.read_chunk(limits.slice(len - buffer.len())).await {
            Ok(Some(chunk)) => {
                buffer.extend_from_slice(&chunk);
                arriving.add(chunk.len() as u64);
                limits.take(chunk.len()).await;
            }
            Ok(None) => return Err(Error::Protocol("a piece of a file is incomplete".to_owned())),
            Err(quinn::ReadError::Reset(_)) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(true)
}

/// Reads the header; `None` if the sender reset the stream.
async fn header(stream: &mut RecvStream) -> Result<Option<DataHeader>, Error> {
    let mut length = [0; 4];
    if !exactly(stream, &mut length).await? {
        return Ok(None);
    }
    let len = body_len(length)?;
    if len > MAX_HEADER {
        return Err(Error::Protocol("a data stream has no header".to_owned()));
    }
    let mut body = vec![0; len];
    if !exactly(stream, &mut body).await? {
        return Ok(None);
    }
    Ok(Some(DataHeader::parse(&body)?))
}

/// Fills the room. Whether the sender goes on with the stream.
async fn exactly(stream: &mut RecvStream, buffer: &mut [u8]) -> Result<bool, Error> {
    match stream.read_exact(buffer).await {
        Ok(()) => Ok(true),
        Err(quinn::ReadExactError::FinishedEarly(_)) => {
            Err(Error::Protocol("a data stream ends in its header".to_owned()))
        }
        Err(quinn::ReadExactError::ReadError(quinn::ReadError::Reset(_))) => Ok(false),
        Err(quinn::ReadExactError::ReadError(error)) => Err(error.into()),
    }
}
