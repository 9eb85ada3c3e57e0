//! Sends the content of files: on a lane, or on streams.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use headroom_transfer_proto::lane::Piece;
use headroom_transfer_proto::message::{DataHeader, MAX_HOLE, Message};
use headroom_transfer_proto::span::{SPAN_BYTES, Verification};
use tokio::sync::mpsc;
use tokio::task::{JoinSet, spawn_blocking};

use super::open_file::{Extent, Lacking, OpenFile, Sealed};
use super::shared::{Held, Shared};
use crate::connection::SendStream;
use crate::delivery::data_stream::DataStream;
use crate::delivery::event::Event;
use crate::error::Error;
use crate::failure::Failure;
use crate::files::{self, SourceFile};
use crate::lanes;

/// Spans of a piece, which has a stream of its own.
const SPANS_OF_PIECE: usize = 8;
/// The most spans of a hole.
const SPANS_OF_HOLE: usize = (MAX_HOLE / SPAN_BYTES) as usize;
/// The size from which a file waits as long as a lane may take to open. Shorter ones wait for a
/// round trip at most, which the lane makes up for: on streams the first megabyte takes seven.
const WORTH_WAITING: u64 = 4 << 20;
/// How much later than the end of the lane answers may arrive.
const ANSWERS_LATE: Duration = Duration::from_millis(50);

impl Shared {
    /// Sends the spans that the receiver lacks of a file, then the file's hash.
    pub(super) async fn send_file(
        self: Arc<Self>,
        id: u64,
        file: SourceFile,
        held: Held,
        messages: mpsc::Sender<Message>,
    ) -> Result<(), Error> {
        let begun = self.offered().get(&id).map(|entry| (entry.path.clone(), entry.bytes));
        if let Some((path, _)) = &begun {
            self.observer.event(Event::Begun { path });
        }
        let verification = self.verification(&held.spans);
        let outcome = self.send_spans(id, file, (held, verification), &messages).await?;
        if let (Some((path, bytes)), Ok((hash, _))) = (&begun, &outcome) {
            self.observer.event(Event::hashed(path, *bytes, (hash, verification)));
        }
        let last = match outcome {
            Ok((root, bytes)) => Message::Sealed { id, root, bytes },
            Err(failure) => {
                self.withdraw(id, failure, &messages).await;
                return Ok(());
            }
        };
        // it is lost if the transfer has ended meanwhile
        let _ = messages.send(last).await;
        Ok(())
    }

    /// Tells the receiver that a file cannot be sent.
    pub(super) async fn withdraw(
        &self,
        id: u64,
        failure: Failure,
        messages: &mpsc::Sender<Message>,
    ) {
        self.note_withdrawn(id);
        let entry = self.offered().remove(&id);
        // the receiver may have given it up before
        if entry.is_none() {
            return;
        }
        self.failed(&failure);
        let Failure { reason, code } = failure;
        let _ = messages.send(Message::Withdrawn { id, reason, code }).await;
        // released only now, so that the next entry follows this message
        drop(entry);
    }

    /// Sends the missing spans. Returns the root hash and the bytes sent, or why the file cannot be
    /// sent.
    async fn send_spans(
        self: &Arc<Self>,
        id: u64,
        file: SourceFile,
        (held, verification): (Held, Verification),
        messages: &mpsc::Sender<Message>,
    ) -> Result<Result<([u8; 32], u64), Failure>, Error> {
        let changing = self.tree.changing;
        let divided = self.divided.clone();
        let Held { spans: held, ahead } = held;
        let ahead = match ahead {
            Some(ahead) => ahead.finish().await?,
            None => HashMap::new(),
        };
        let open = move || {
            let divided = divided.filter(|divided| divided.is_unchanged());
            let divided = |span| divided.as_ref().and_then(|divided| divided.value(span));
            let known = |span: u64| ahead.get(&span).copied().or_else(|| divided(span));
            OpenFile::new(&file, &held, changing, verification, known)
        };
        let opened = blocking(open).await?;
        let opened = match opened {
            Ok(opened) => Arc::new(opened),
            Err(error) => return Ok(Err(error.into())),
        };
        if opened.kept > 0 {
            self.counts.add(|counts| counts.kept += opened.kept);
            self.observer.event(Event::Kept { bytes: opened.kept });
        }
        if let Some(entry) = self.offered().get_mut(&id) {
            entry.opened = Some(Arc::clone(&opened));
        }
        let patched = match self.send_delta(id, &opened, messages).await? {
            Ok(bytes) => bytes,
            Err(failure) => return Ok(Err(failure)),
        };
        let sent = match self.send_lacking(id, &opened, &Lacking::Rest, messages).await? {
            Ok(bytes) => bytes,
            Err(failure) => return Ok(Err(failure)),
        };
        Ok(match blocking(move || opened.seal()).await? {
            Ok(Sealed { root, warning }) => {
                if let Some(remark) = warning.and_then(|text| self.warn(text)) {
                    let _ = messages.send(remark).await;
                }
                Ok((root, patched + sent))
            }
            Err(reason) => Err(reason),
        })
    }

    /// Sends spans that the receiver lacks. Returns the bytes sent, or why the file cannot be sent.
    pub(super) async fn send_lacking(
        self: &Arc<Self>,
        id: u64,
        opened: &Arc<OpenFile>,
        lacking: &Lacking,
        messages: &mpsc::Sender<Message>,
    ) -> Result<Result<u64, Failure>, Error> {
        let mut pieces = JoinSet::new();
        let (mut bytes, mut next) = (0, 0);
        while let Some(piece) = lacking.piece(opened, next, SPANS_OF_PIECE) {
            let longest = lacking.piece(opened, piece.start, SPANS_OF_HOLE);
            let hole_end = longest.map_or(piece.end, |longest| longest.end);
            let looking = Arc::clone(opened);
            let mut piece = match blocking(move || looking.extent(piece, hole_end)).await? {
                Ok(Extent::Data(piece)) => piece,
                Ok(Extent::Hole(spans)) => {
                    next = spans.end;
                    let (offset, len) = opened.bytes(&spans);
                    self.counts.add(|counts| counts.holes += len);
                    self.observer.event(Event::Hole { bytes: len });
                    let _ = messages.send(Message::Hole { id, offset, len }).await;
                    continue;
                }
                Err(error) => return Ok(Err(error.into())),
            };
            let begins = piece.start;
            match self.feed_piece(id, opened, piece.clone(), false).await? {
                Ok(left) => piece = left,
                Err(reason) => return Ok(Err(reason)),
            }
            let is_fallback = self.is_fallback(id, opened);
            if is_fallback {
                piece.end = piece.end.min(piece.start + 1);
            }
            next = piece.end;
            bytes += opened.bytes(&(begins..next)).1;
            if piece.is_empty() {
                continue;
            }
            // these semaphores are never closed
            let permits = if is_fallback { &self.fallbacks_begun } else { &self.pieces };
            let Ok(permit) = Arc::clone(permits).acquire_owned().await else { break };
            if !self.offered().contains_key(&id) {
                return Ok(Err("it was given up".to_owned().into()));
            }
            let (shared, opened) = (Arc::clone(self), Arc::clone(opened));
            pieces.spawn(async move {
                let sent = match is_fallback {
                    true => shared.send_fallback(id, &opened, piece.start, false).await,
                    false => shared.send_piece(id, &opened, piece).await,
                };
                drop(permit);
                sent
            });
            while let Some(ended) = pieces.try_join_next() {
                if let Err(reason) = ended.map_err(|error| Error::task(&error))?? {
                    return Ok(Err(reason));
                }
            }
        }
        while let Some(ended) = pieces.join_next().await {
            if let Err(reason) = ended.map_err(|error| Error::task(&error))?? {
                return Ok(Err(reason));
            }
        }
        Ok(Ok(bytes))
    }

    /// Whether data that a lane does not accept now should be sent on streams in small steps,
    /// because the lane may carry it later: it is silent, or has not opened in the time that a big
    /// file waits.
    fn is_fallback(&self, id: u64, opened: &OpenFile) -> bool {
        let state = self.lane().map(|lane| *lane.states().borrow());
        let waits = match state {
            Some(lanes::LaneState::Silent | lanes::LaneState::Ready) => true,
            Some(lanes::LaneState::Opening) => opened.size() >= WORTH_WAITING,
            Some(lanes::LaneState::Idle | lanes::LaneState::GivenUp) | None => false,
        };
        waits && u32::try_from(id).is_ok() && !self.compressor.should_try()
    }

    /// Sends spans on a lane if one is open, and returns those that it did not accept. `again`:
    /// they were counted when they were queued before.
    async fn feed_piece(
        self: &Arc<Self>,
        id: u64,
        opened: &Arc<OpenFile>,
        piece: std::ops::Range<u64>,
        again: bool,
    ) -> Result<Result<std::ops::Range<u64>, Failure>, Error> {
        let (Some(lane), Ok(file)) = (self.lane(), u32::try_from(id)) else {
            return Ok(Ok(piece));
        };
        // data to be compressed uses a stream
        if self.compressor.should_try() {
            return Ok(Ok(piece));
        }
        if !lane.is_ready(opened.size() >= WORTH_WAITING).await {
            return Ok(Ok(piece));
        }
        let Some(turn) = lane.turn().await else { return Ok(Ok(piece)) };
        if !self.offered().contains_key(&id) {
            return Ok(Err("it was given up".to_owned().into()));
        }
        let (shared, opened) = (Arc::clone(self), Arc::clone(opened));
        blocking(move || {
            let _turn = turn;
            let Some(lane) = shared.lane() else { return Ok(piece) };
            let wait_for_turn = |bytes| shared.limits().take_blocking(bytes, &shared.stop);
            for span in piece.clone() {
                match opened.feed_span(file, span, lane, wait_for_turn) {
                    Ok(0) => return Ok(span..piece.end),
                    Ok(bytes) => {
                        shared.counts.add(|counts| counts.on_lanes += bytes);
                        if !again {
                            shared.counts.add(|counts| counts.moved += bytes);
                            shared.observer.event(Event::Moved { bytes });
                        }
                    }
                    Err(error) => return Err(Failure::from(error)),
                }
            }
            Ok(piece.end..piece.end)
        })
        .await
    }

    /// Sends again what did not arrive on a lane that fell silent or ended.
    pub(super) async fn send_undelivered(self: Arc<Self>) -> Result<(), Error> {
        let Some(lane) = self.lane() else { return Ok(()) };
        let mut sending = JoinSet::new();
        loop {
            tokio::select! {
                pieces = lane.undelivered() => match pieces {
                    Some(pieces) => self.send_again(pieces, &mut sending).await,
                    None => break,
                },
                Some(ended) = sending.join_next() => {
                    ended.map_err(|error| Error::task(&error))??;
                }
            }
        }
        while let Some(ended) = sending.join_next().await {
            ended.map_err(|error| Error::task(&error))??;
        }
        Ok(())
    }

    async fn send_again(
        self: &Arc<Self>,
        pieces: Vec<Piece>,
        sending: &mut JoinSet<Result<(), Error>>,
    ) {
        if self.lane().is_none_or(|lane| !lane.may_recover()) {
            // a receiver that has everything closes the lane, and its last answers may arrive
            tokio::time::sleep((3 * self.connection.rtt()).max(ANSWERS_LATE)).await;
        }
        let mut left: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
        for piece in pieces {
            let (first, last) = (piece.offset, piece.offset + piece.len.saturating_sub(1));
            let spans = first / SPAN_BYTES..=last / SPAN_BYTES;
            left.entry(u64::from(piece.file)).or_default().extend(spans);
        }
        for (id, spans) in left {
            let opened = self.offered().get(&id).and_then(|entry| entry.opened.clone());
            let Some(opened) = opened else { continue };
            for span in spans {
                let len = opened.bytes(&(span..span + 1)).1;
                self.counts.add(|counts| counts.on_lanes = counts.on_lanes.saturating_sub(len));
                let (shared, opened) = (Arc::clone(self), Arc::clone(&opened));
                sending.spawn(async move {
                    // if it cannot be read now, the receiver finds another hash
                    shared.send_fallback(id, &opened, span, true).await.map(drop)
                });
            }
        }
    }

    /// Sends one span while a lane is silent: on a stream, or on the lane if that answers before
    /// the peer has acknowledged the stream, which is then reset. This bounds what streams hold
    /// when an outage ends, and lanes carry the rest. `again`: it was counted when it was queued
    /// for the lane.
    async fn send_fallback(
        self: &Arc<Self>,
        id: u64,
        opened: &Arc<OpenFile>,
        span: u64,
        again: bool,
    ) -> Result<Result<(), Failure>, Error> {
        // this semaphore is never closed
        let Ok(_permit) = self.fallbacks.acquire().await else { return Ok(Ok(())) };
        let Some(lane) = self.lane() else { return Ok(Ok(())) };
        loop {
            match self.feed_piece(id, opened, span..span + 1, again).await? {
                Ok(left) if left.is_empty() => return Ok(Ok(())),
                Ok(_) => {}
                Err(reason) => return Ok(Err(reason)),
            }
            let mut stream = tokio::select! {
                biased;
                () = lane.ready() => continue,
                stream = DataStream::open(&self.connection) => stream?,
            };
            let written = tokio::select! {
                biased;
                () = lane.ready() => None,
                written = self.write_fallback(&mut stream, id, opened, span) => Some(written?),
            };
            match written {
                Some(Ok(len)) => {
                    if !again {
                        self.counts.add(|counts| counts.moved += len);
                        self.observer.event(Event::Moved { bytes: len });
                    }
                    return Ok(Ok(()));
                }
                Some(Err(reason)) => return Ok(Err(reason)),
                None => {}
            }
        }
    }

    /// Writes a span on a stream, and waits until all of it is acknowledged. Returns its size.
    async fn write_fallback(
        &self,
        stream: &mut SendStream,
        id: u64,
        opened: &Arc<OpenFile>,
        span: u64,
    ) -> Result<Result<u64, Failure>, Error> {
        let reading = Arc::clone(opened);
        let mut bytes = match blocking(move || reading.read_span(span)).await? {
            Ok(bytes) => bytes,
            Err(error) => return Ok(Err(error.into())),
        };
        let (offset, len) = opened.bytes(&(span..span + 1));
        let mut head = Vec::new();
        DataHeader { id, offset, len, zstd: None }.frame(&mut head)?;
        let written = async {
            stream.write_all(&head).await?;
            while !bytes.is_empty() {
                let slice = bytes.split_to(self.limits().slice(bytes.len()));
                self.limits().take(slice.len()).await;
                stream.write_chunk(slice).await?;
            }
            Ok(())
        };
        match written.await {
            Ok(()) => {}
            // the receiver stopped it, and reports why in a message
            Err(quinn::WriteError::Stopped(_)) => return Ok(Ok(len)),
            Err(error) => return Err(error.into()),
        }
        stream.finish();
        match stream.stopped().await {
            Ok(_) | Err(quinn::StoppedError::ZeroRttRejected) => Ok(Ok(len)),
            Err(quinn::StoppedError::ConnectionLost(error)) => Err(error.into()),
        }
    }

    /// Sends spans on a stream of their own; the next one is read while one is written.
    async fn send_piece(
        &self,
        id: u64,
        opened: &Arc<OpenFile>,
        piece: std::ops::Range<u64>,
    ) -> Result<Result<(), Failure>, Error> {
        let zstd = self.compressor.should_try();
        let read = |span| {
            let (opened, compressor) = (Arc::clone(opened), Arc::clone(&self.compressor));
            spawn_blocking(move || {
                let bytes = opened.read_span(span)?;
                let frame = if zstd { compressor.compress(&bytes) } else { None };
                Ok::<_, files::Error>((bytes.len(), frame.map_or(bytes, Bytes::from)))
            })
        };
        let mut ahead = Some(read(piece.start));
        let (offset, len) = opened.bytes(&piece);
        let mut head = Vec::new();
        DataHeader { id, offset, len, zstd: zstd.then_some(true) }.frame(&mut head)?;
        let mut stream = DataStream::open(&self.connection).await?;
        stream.write_all(&head).await?;
        for span in piece.clone() {
            let Some(reading) = ahead.take() else { break };
            let (len, bytes) = match reading.await.map_err(|error| Error::task(&error))? {
                Ok(bytes) => bytes,
                Err(error) => return Ok(Err(error.into())),
            };
            ahead = (span + 1 < piece.end).then(|| read(span + 1));
            match self.write_span(&mut stream, zstd, len, bytes).await {
                Ok(()) => {}
                // the receiver stopped it, and reports why in a message
                Err(quinn::WriteError::Stopped(_)) => return Ok(Ok(())),
                Err(error) => return Err(error.into()),
            }
        }
        stream.end();
        Ok(Ok(()))
    }

    /// Writes bytes of a file, as fast as the limits allow.
    async fn write(
        &self,
        stream: &mut SendStream,
        mut bytes: Bytes,
    ) -> Result<(), quinn::WriteError> {
        while !bytes.is_empty() {
            let slice = bytes.split_to(self.limits().slice(bytes.len()));
            let len = slice.len();
            self.limits().take(len).await;
            stream.write_chunk(slice).await?;
            self.counts.add(|counts| counts.moved += len as u64);
            self.observer.event(Event::Moved { bytes: len as u64 });
        }
        Ok(())
    }

    /// Writes a span of `len` bytes, as it is or as a zstd frame.
    async fn write_span(
        &self,
        stream: &mut SendStream,
        zstd: bool,
        len: usize,
        bytes: Bytes,
    ) -> Result<(), quinn::WriteError> {
        let saved = (len - bytes.len()) as u64;
        if zstd {
            let head = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
            stream.write_all(&head.to_be_bytes()).await?;
        }
        self.write(stream, bytes).await?;
        if saved > 0 {
            self.counts.add(|counts| {
                counts.moved += saved;
                counts.saved += saved;
            });
            self.observer.event(Event::Moved { bytes: saved });
            self.observer.event(Event::Saved { bytes: saved });
        }
        Ok(())
    }
}

/// Does work that takes time or waits for the disk, on a thread of its own.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Error> {
    spawn_blocking(work).await.map_err(|error| Error::task(&error))
}
