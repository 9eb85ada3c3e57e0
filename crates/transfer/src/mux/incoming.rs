//! What the client sends: frames for streams that are open, and for those that it opens.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use headroom_mutex::lock;
use headroom_transfer_proto::mux::{Frame, MAX_STREAMS, STREAM_WINDOW, StreamId};
use quinn::VarInt;

use super::{MuxConnection, Stream, StreamState, closed, new_stream};

/// The least room for received bytes: what many short frames carry lies together.
const MIN_ROOM: usize = 4 << 10;

impl MuxConnection {
    /// Takes a frame from the client.
    ///
    /// # Errors
    /// It violates the protocol: the text says how. The connection has ended then.
    pub fn receive(&self, frame: &Bytes) -> Result<(), String> {
        if self.close_reason().is_some() {
            // it came while the last frames leave
            return Ok(());
        }
        self.take(frame).inspect_err(|error| self.end(closed(VarInt::from_u32(2), error)))
    }

    fn take(&self, bytes: &Bytes) -> Result<(), String> {
        let frame = Frame::parse(bytes).map_err(|error| error.to_string())?;
        match frame {
            Frame::Data { stream: id, end, bytes: data } => {
                let stream = self.stream(id, data.len())?;
                let Some(stream) = stream else {
                    self.consumed(data.len());
                    return Ok(());
                };
                let mut state = lock(&stream.state);
                if state.end || state.receive_left < data.len() as u64 {
                    return Err(
                        "a stream has more bytes than were granted, or after its end".into()
                    );
                }
                state.receive_left -= data.len() as u64;
                state.end = end;
                let is_discarded = state.discarded;
                if !is_discarded && !data.is_empty() {
                    keep(&mut state.received, data);
                }
                drop(state);
                stream.readable.notify_waiters();
                if is_discarded {
                    self.consumed(data.len());
                }
                self.forget(&stream);
            }
            Frame::Reset { stream: id } => {
                let Some(stream) = self.stream(id, 0)? else { return Ok(()) };
                let mut state = lock(&stream.state);
                (state.end, state.reset) = (true, true);
                let left = state.received.drain(..).map(|bytes| bytes.len()).sum();
                drop(state);
                stream.readable.notify_waiters();
                self.consumed(left);
                self.forget(&stream);
            }
            Frame::Stop { stream } => {
                let stream = lock(&self.0.state).streams.get(&stream).cloned();
                if let Some(stream) = stream {
                    let mut state = lock(&stream.state);
                    let was_finished = std::mem::replace(&mut state.finished, true);
                    state.stopped = true;
                    drop(state);
                    stream.writable.notify_waiters();
                    if !was_finished {
                        self.send(&Frame::Reset { stream: stream.id }, None);
                    }
                    self.forget(&stream);
                }
            }
            Frame::Credit { stream: Some(id), bytes } => {
                let stream = lock(&self.0.state).streams.get(&id).cloned();
                if let Some(stream) = stream {
                    let mut state = lock(&stream.state);
                    state.send_left = state.send_left.saturating_add(u64::from(bytes));
                    drop(state);
                    stream.writable.notify_waiters();
                }
            }
            Frame::Credit { stream: None, bytes } => {
                let mut state = lock(&self.0.state);
                state.send_left = state.send_left.saturating_add(u64::from(bytes));
                drop(state);
                self.0.granted.notify_waiters();
            }
        }
        Ok(())
    }

    /// Finds the stream that a frame belongs to, or opens it; `None` if it is closed already.
    fn stream(&self, id: StreamId, bytes: usize) -> Result<Option<Arc<Stream>>, String> {
        let mut state = lock(&self.0.state);
        let state = &mut *state;
        state.receive_left = state
            .receive_left
            .checked_sub(bytes as u64)
            .ok_or_else(|| "the streams have more bytes than were granted".to_owned())?;
        if let Some(stream) = state.streams.get(&id) {
            return match id.is_by_server() && id.is_one_way() {
                true => Err("the client sends on a stream of the server".to_owned()),
                false => Ok(Some(Arc::clone(stream))),
            };
        }
        if id.is_by_server() {
            // the server opens none that the client sends on
            return Err("the client sends on a stream of the server".to_owned());
        }
        let seen = &mut state.seen[usize::from(id.is_one_way())];
        if id.index() < *seen {
            return Ok(None);
        }
        if id.index() > *seen {
            return Err("the streams are not numbered in order".to_owned());
        }
        // streams that nobody has accepted count even when they have ended
        let unaccepted = state.requests.len() + state.data.len();
        let open = state.streams.keys().filter(|it| !it.is_by_server()).count();
        if open.max(unaccepted) >= MAX_STREAMS {
            return Err("there are too many streams".to_owned());
        }
        *seen += 1;
        let window = u64::from(STREAM_WINDOW);
        let own = StreamState {
            receive_left: window,
            send_left: window,
            finished: id.is_one_way(),
            ..StreamState::default()
        };
        let stream = new_stream(id, own);
        state.streams.insert(id, Arc::clone(&stream));
        let queue = if id.is_one_way() { &mut state.data } else { &mut state.requests };
        queue.push_back(Arc::clone(&stream));
        self.0.opened.notify_waiters();
        Ok(Some(stream))
    }
}

/// Appends bytes to those that wait, in as few pieces as possible: what is kept is little more than
/// what the peer was granted, however short its frames are.
fn keep(received: &mut VecDeque<BytesMut>, mut data: &[u8]) {
    if let Some(last) = received.back_mut() {
        let (fits, rest) = data.split_at(data.len().min(last.capacity() - last.len()));
        last.extend_from_slice(fits);
        data = rest;
    }
    if !data.is_empty() {
        let mut next = BytesMut::with_capacity(data.len().max(MIN_ROOM));
        next.extend_from_slice(data);
        received.push_back(next);
    }
}
