//! Streams over one WebSocket, at the server: see [`headroom_transfer_proto::mux`]. Whoever has the
//! WebSocket passes frames in and out; here are streams, flow control and the end.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::{Bytes, BytesMut};
use headroom_transfer_proto::mux::{
    CLIENT_WINDOW, Frame, MAX_DATA, MAX_STREAMS, SERVER_WINDOW, STREAM_WINDOW, StreamId,
};
use quinn::{ApplicationClose, ConnectionError, ReadError, VarInt, WriteError};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc};

/// Frames of data that wait to be sent.
const WAITING: usize = 16;
/// Frames that may wait: a client that reads none of them is cut off.
const MAX_WAITING: usize = 1024;
/// The least room for received bytes: what many short frames carry lies together.
const MIN_ROOM: usize = 4 << 10;

/// A connection of streams. Clones share it.
#[derive(Debug, Clone)]
pub struct MuxConnection(Arc<Shared>);

/// Frames to be sent, in order. It ends when the connection is closed and all are taken.
#[derive(Debug)]
pub struct Outgoing {
    frames: mpsc::UnboundedReceiver<Waiting>,
    of: Arc<Shared>,
}

/// A frame that waits, and the permission to wait, if it has data.
#[derive(Debug)]
struct Waiting {
    bytes: Bytes,
    /// Given back when it is sent.
    _permit: Option<OwnedSemaphorePermit>,
}

#[derive(Debug)]
struct Shared {
    peer: SocketAddr,
    outgoing: Mutex<Option<mpsc::UnboundedSender<Waiting>>>,
    /// How many frames wait to be sent.
    waiting: AtomicUsize,
    permits: Arc<Semaphore>,
    state: Mutex<State>,
    /// The client opened a stream, or the connection has ended.
    opened: Notify,
    /// The client grants more for all streams, or the connection has ended.
    granted: Notify,
    closed: Notify,
    next: AtomicU32,
}

#[derive(Debug)]
struct State {
    streams: HashMap<StreamId, Arc<Stream>>,
    /// Streams that the client opened, by direction, and that nobody has accepted.
    requests: VecDeque<Arc<Stream>>,
    data: VecDeque<Arc<Stream>>,
    /// How many the client has opened: both ways, one way.
    seen: [u32; 2],
    /// What the client may send, what it has been granted in all beyond what was consumed, and how
    /// much of the consumed is not granted again because the window shrank.
    receive_left: u64,
    window: u64,
    withheld: u64,
    consumed: u64,
    send_left: u64,
    ended: Option<ConnectionError>,
}

#[derive(Debug)]
struct Stream {
    id: StreamId,
    state: Mutex<StreamState>,
    readable: Notify,
    writable: Notify,
}

#[derive(Debug, Default)]
struct StreamState {
    received: VecDeque<BytesMut>,
    receive_left: u64,
    consumed: u64,
    /// All was received, or the client gave it up.
    end: bool,
    reset: bool,
    /// Nobody reads it.
    discarded: bool,
    send_left: u64,
    /// This side ended it, or the client wants no more.
    finished: bool,
    stopped: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn closed(code: VarInt, reason: &str) -> ConnectionError {
    let reason = Bytes::copy_from_slice(reason.as_bytes());
    ConnectionError::ApplicationClosed(ApplicationClose { error_code: code, reason })
}

impl MuxConnection {
    /// Starts a connection with a client at this address.
    pub fn new(peer: SocketAddr) -> (Self, Outgoing) {
        let (outgoing, frames) = mpsc::unbounded_channel();
        let state = State {
            streams: HashMap::new(),
            requests: VecDeque::new(),
            data: VecDeque::new(),
            seen: [0; 2],
            receive_left: u64::from(SERVER_WINDOW),
            window: u64::from(SERVER_WINDOW),
            withheld: 0,
            consumed: 0,
            send_left: u64::from(CLIENT_WINDOW),
            ended: None,
        };
        let shared = Shared {
            peer,
            outgoing: Mutex::new(Some(outgoing)),
            waiting: AtomicUsize::new(0),
            permits: Arc::new(Semaphore::new(WAITING)),
            state: Mutex::new(state),
            opened: Notify::new(),
            granted: Notify::new(),
            closed: Notify::new(),
            next: AtomicU32::new(0),
        };
        let shared = Arc::new(shared);
        (Self(Arc::clone(&shared)), Outgoing { frames, of: shared })
    }

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

    /// Notes that the WebSocket has ended.
    pub fn lost(&self) {
        self.end(ConnectionError::Reset);
    }

    /// Waits until the connection has ended.
    pub async fn ended(&self) {
        loop {
            let closed = self.0.closed.notified();
            tokio::pin!(closed);
            closed.as_mut().enable();
            if self.close_reason().is_some() {
                return;
            }
            closed.await;
        }
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

    /// Forgets a stream that has ended in both directions.
    fn forget(&self, stream: &Stream) {
        let state = lock(&stream.state);
        let is_over = state.finished && state.end && (state.discarded || state.received.is_empty());
        drop(state);
        if is_over {
            lock(&self.0.state).streams.remove(&stream.id);
        }
    }

    /// Notes that bytes were read or discarded, and grants as many, when it is worth a frame.
    fn consumed(&self, bytes: usize) {
        let mut state = lock(&self.0.state);
        let mut bytes = bytes as u64;
        let withheld = bytes.min(state.withheld);
        state.withheld -= withheld;
        bytes -= withheld;
        state.consumed += bytes;
        if state.consumed == 0 || state.consumed < state.window / 4 {
            return;
        }
        let grant = std::mem::take(&mut state.consumed);
        state.receive_left += grant;
        drop(state);
        self.credit(None, grant);
    }

    fn credit(&self, stream: Option<StreamId>, bytes: u64) {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        self.send(&Frame::Credit { stream, bytes }, None);
    }

    fn send(&self, frame: &Frame<'_>, permit: Option<OwnedSemaphorePermit>) {
        let outgoing = lock(&self.0.outgoing);
        let Some(sender) = &*outgoing else { return };
        // counted before it can be taken
        let before = self.0.waiting.fetch_add(1, Ordering::Relaxed);
        // the receiver goes when the WebSocket has ended
        let _ = sender.send(Waiting { bytes: frame.encode().into(), _permit: permit });
        drop(outgoing);
        if before >= MAX_WAITING {
            self.end(closed(VarInt::from_u32(2), "the client does not read"));
        }
    }

    fn end(&self, reason: ConnectionError) {
        let mut state = lock(&self.0.state);
        if state.ended.is_some() {
            return;
        }
        state.ended = Some(reason);
        let streams: Vec<_> = state.streams.drain().map(|(_, stream)| stream).collect();
        state.requests.clear();
        state.data.clear();
        drop(state);
        lock(&self.0.outgoing).take();
        self.0.permits.close();
        for stream in streams {
            stream.readable.notify_waiters();
            stream.writable.notify_waiters();
        }
        self.0.opened.notify_waiters();
        self.0.granted.notify_waiters();
        self.0.closed.notify_waiters();
    }

    pub(crate) async fn accept_bi(
        &self,
    ) -> Result<(MuxSendStream, MuxRecvStream), ConnectionError> {
        let stream = self.accept(|state| &mut state.requests).await?;
        let send = MuxSendStream { connection: self.clone(), stream: Arc::clone(&stream) };
        Ok((send, MuxRecvStream { connection: self.clone(), stream }))
    }

    pub(crate) async fn accept_uni(&self) -> Result<MuxRecvStream, ConnectionError> {
        let stream = self.accept(|state| &mut state.data).await?;
        Ok(MuxRecvStream { connection: self.clone(), stream })
    }

    async fn accept(
        &self,
        queue: impl Fn(&mut State) -> &mut VecDeque<Arc<Stream>>,
    ) -> Result<Arc<Stream>, ConnectionError> {
        loop {
            let opened = self.0.opened.notified();
            tokio::pin!(opened);
            opened.as_mut().enable();
            {
                let mut state = lock(&self.0.state);
                if let Some(reason) = &state.ended {
                    return Err(reason.clone());
                }
                if let Some(stream) = queue(&mut state).pop_front() {
                    return Ok(stream);
                }
            }
            opened.await;
        }
    }

    pub(crate) fn open_uni(&self) -> Result<MuxSendStream, ConnectionError> {
        let index = self.0.next.fetch_add(1, Ordering::Relaxed);
        let id = StreamId::new(index, true, true);
        let own = StreamState {
            send_left: u64::from(STREAM_WINDOW),
            end: true,
            discarded: true,
            ..StreamState::default()
        };
        let stream = new_stream(id, own);
        let mut state = lock(&self.0.state);
        if let Some(reason) = &state.ended {
            return Err(reason.clone());
        }
        state.streams.insert(id, Arc::clone(&stream));
        drop(state);
        Ok(MuxSendStream { connection: self.clone(), stream })
    }

    pub(crate) fn close(&self, code: VarInt, reason: &str) {
        self.end(closed(code, reason));
    }

    /// Returns why it has ended; `None` while it is open.
    pub(crate) fn close_reason(&self) -> Option<ConnectionError> {
        lock(&self.0.state).ended.clone()
    }

    /// Returns the code and the reason for the WebSocket's end.
    pub fn closing(&self) -> (u64, String) {
        match self.close_reason() {
            Some(ConnectionError::ApplicationClosed(close)) => {
                let reason = String::from_utf8_lossy(&close.reason).into_owned();
                (close.error_code.into_inner(), reason)
            }
            _ => (0, String::new()),
        }
    }

    pub(crate) fn remote_address(&self) -> SocketAddr {
        self.0.peer
    }

    pub(crate) fn stable_id(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }

    /// Sets the window for what is received and not read. A smaller one holds when as much was read
    /// as it is smaller.
    pub(crate) fn set_receive_window(&self, bytes: u64) {
        let mut state = lock(&self.0.state);
        let former = std::mem::replace(&mut state.window, bytes);
        if bytes <= former {
            state.withheld += former - bytes;
            return;
        }
        let mut more = bytes - former;
        let withheld = more.min(state.withheld);
        state.withheld -= withheld;
        more -= withheld;
        state.receive_left += more;
        drop(state);
        if more > 0 {
            self.credit(None, more);
        }
    }
}

fn new_stream(id: StreamId, state: StreamState) -> Arc<Stream> {
    let (readable, writable) = (Notify::new(), Notify::new());
    Arc::new(Stream { id, state: Mutex::new(state), readable, writable })
}

impl Outgoing {
    /// Returns the next frame to be sent; `None` at the end.
    pub async fn next(&mut self) -> Option<Bytes> {
        let Waiting { bytes, .. } = self.frames.recv().await?;
        self.of.waiting.fetch_sub(1, Ordering::Relaxed);
        Some(bytes)
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

/// A stream to send on.
#[derive(Debug)]
pub(crate) struct MuxSendStream {
    connection: MuxConnection,
    stream: Arc<Stream>,
}

impl MuxSendStream {
    pub(crate) async fn write(&mut self, mut bytes: Bytes) -> Result<(), WriteError> {
        while !bytes.is_empty() {
            let len = self.grant(bytes.len().min(MAX_DATA)).await?;
            let part = bytes.split_to(len);
            let permit = Arc::clone(&self.connection.0.permits).acquire_owned().await;
            let permit = permit.map_err(|_| self.lost())?;
            let stream = self.stream.id;
            self.connection.send(&Frame::Data { stream, end: false, bytes: &part }, Some(permit));
        }
        Ok(())
    }

    /// Waits for permission to send some of these bytes.
    async fn grant(&self, most: usize) -> Result<usize, WriteError> {
        loop {
            let (writable, granted) =
                (self.stream.writable.notified(), self.connection.0.granted.notified());
            tokio::pin!(writable, granted);
            writable.as_mut().enable();
            granted.as_mut().enable();
            {
                let mut all = lock(&self.connection.0.state);
                let mut own = lock(&self.stream.state);
                if let Some(reason) = &all.ended {
                    return Err(WriteError::ConnectionLost(reason.clone()));
                }
                if own.stopped {
                    return Err(WriteError::Stopped(VarInt::from_u32(0)));
                }
                if own.finished {
                    return Err(WriteError::ClosedStream);
                }
                let least = all.send_left.min(own.send_left).min(most as u64);
                if least > 0 {
                    all.send_left -= least;
                    own.send_left -= least;
                    return Ok(usize::try_from(least).unwrap_or(most));
                }
            }
            tokio::select! {
                () = writable => {}
                () = granted => {}
            }
        }
    }

    fn lost(&self) -> WriteError {
        let reason = self.connection.close_reason();
        WriteError::ConnectionLost(reason.unwrap_or(ConnectionError::Reset))
    }

    pub(crate) fn finish(&mut self) {
        self.conclude(&Frame::Data { stream: self.stream.id, end: true, bytes: &[] });
    }

    pub(crate) fn reset(&mut self) {
        self.conclude(&Frame::Reset { stream: self.stream.id });
    }

    fn conclude(&self, last: &Frame<'_>) {
        if !std::mem::replace(&mut lock(&self.stream.state).finished, true) {
            self.connection.send(last, None);
            self.connection.forget(&self.stream);
        }
    }
}

impl Drop for MuxSendStream {
    /// As QUIC's streams do.
    fn drop(&mut self) {
        self.finish();
    }
}

/// A stream to receive from.
#[derive(Debug)]
pub(crate) struct MuxRecvStream {
    connection: MuxConnection,
    stream: Arc<Stream>,
}

impl MuxRecvStream {
    /// Reads what is there, at most this many bytes; `None` at the end.
    pub(crate) async fn read(&mut self, most: usize) -> Result<Option<Bytes>, ReadError> {
        let read = loop {
            let readable = self.stream.readable.notified();
            tokio::pin!(readable);
            readable.as_mut().enable();
            {
                let mut state = lock(&self.stream.state);
                if state.reset {
                    return Err(ReadError::Reset(VarInt::from_u32(0)));
                }
                if let Some(first) = state.received.front_mut() {
                    let read = first.split_to(first.len().min(most)).freeze();
                    if first.is_empty() {
                        state.received.pop_front();
                    }
                    state.consumed += read.len() as u64;
                    let grant = if state.consumed >= u64::from(STREAM_WINDOW) / 2 && !state.end {
                        std::mem::take(&mut state.consumed)
                    } else {
                        0
                    };
                    state.receive_left += grant;
                    break (read, grant);
                }
                if state.end {
                    drop(state);
                    self.connection.forget(&self.stream);
                    return Ok(None);
                }
            }
            if let Some(reason) = self.connection.close_reason() {
                return Err(ReadError::ConnectionLost(reason));
            }
            readable.await;
        };
        let (bytes, grant) = read;
        if grant > 0 {
            self.connection.credit(Some(self.stream.id), grant);
        }
        self.connection.consumed(bytes.len());
        Ok(Some(bytes))
    }

    /// Tells the client to send nothing more.
    pub(crate) fn stop(&mut self) {
        let mut state = lock(&self.stream.state);
        if std::mem::replace(&mut state.discarded, true) {
            return;
        }
        let left = state.received.drain(..).map(|bytes| bytes.len()).sum();
        let is_end = state.end;
        drop(state);
        self.connection.consumed(left);
        if !is_end {
            self.connection.send(&Frame::Stop { stream: self.stream.id }, None);
        }
        self.connection.forget(&self.stream);
    }
}

impl Drop for MuxRecvStream {
    fn drop(&mut self) {
        self.stop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connection() -> (MuxConnection, Outgoing) {
        MuxConnection::new(SocketAddr::from(([127, 0, 0, 1], 4861)))
    }

    fn run(test: impl Future<Output = ()>) {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.worker_threads(2).build().expect("a runtime").block_on(test);
    }

    #[test]
    fn a_client_that_reads_gets_everything_and_is_never_cut_off() {
        run(async {
            let (connection, mut outgoing) = connection();
            let (client, bytes) = (connection.clone(), 64_u64 << 20);
            let reading = tokio::spawn(async move {
                let mut got = 0;
                while let Some(frame) = outgoing.next().await {
                    let Frame::Data { stream, end, bytes } = Frame::parse(&frame).expect("a frame")
                    else {
                        continue;
                    };
                    got += bytes.len() as u64;
                    let credit = u32::try_from(bytes.len()).expect("it is short");
                    for stream in [Some(stream), None] {
                        let frame = Frame::Credit { stream, bytes: credit }.encode();
                        client.receive(&frame.into()).expect("credit");
                    }
                    if end {
                        break;
                    }
                }
                got
            });
            let mut stream = connection.open_uni().expect("a stream");
            // short pieces, so that taking and sending meet often
            let piece = Bytes::from_static(&[7; 4 << 10]);
            for _ in 0..bytes / piece.len() as u64 {
                stream.write(piece.clone()).await.expect("it goes on");
            }
            stream.finish();
            assert_eq!(reading.await.expect("no panic"), bytes);
            assert!(connection.close_reason().is_none());
        });
    }

    #[test]
    fn a_client_that_reads_nothing_is_cut_off() {
        let (connection, _outgoing) = connection();
        for index in 0..u32::try_from(2 * MAX_WAITING).expect("it is small") {
            let stream = StreamId::new(index, false, true);
            let frame = Frame::Data { stream, end: false, bytes: b"x" }.encode();
            if connection.receive(&frame.into()).is_err() || connection.close_reason().is_some() {
                break;
            }
            // nobody wants it: the client is told so
            let accepted = lock(&connection.0.state).data.pop_front().expect("it was opened");
            drop(MuxRecvStream { connection: connection.clone(), stream: Arc::clone(&accepted) });
            connection.receive(&Frame::Reset { stream }.encode().into()).expect("it is given up");
        }
        assert!(connection.close_reason().is_some());
    }
}
