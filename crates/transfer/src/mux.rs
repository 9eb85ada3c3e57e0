//! Streams over one WebSocket, at the server: see [`headroom_transfer_proto::mux`]. Whoever has the
//! WebSocket passes frames in and out; here are streams, flow control and the end.

mod incoming;
mod streams;

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::{Bytes, BytesMut};
use headroom_mutex::lock;
use headroom_transfer_proto::mux::{CLIENT_WINDOW, Frame, SERVER_WINDOW, StreamId};
use quinn::{ApplicationClose, ConnectionError, VarInt};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc};

pub(crate) use self::streams::{MuxRecvStream, MuxSendStream};

/// Frames of data that wait to be sent.
const WAITING: usize = 16;
/// Frames that may wait: a client that reads none of them is cut off.
const MAX_WAITING: usize = 1024;

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
