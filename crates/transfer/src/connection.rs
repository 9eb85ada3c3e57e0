//! What carries a session: a QUIC connection of our own protocol, or a WebTransport session of a
//! browser. Both have streams and nothing else in common with their lower layers; requests and
//! deliveries see this alone.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use quinn::{ConnectionError, ReadError, ReadExactError, Side, StoppedError, VarInt, WriteError};

use crate::error::Closing;
use crate::streams::ping_when_silent;

/// Streams that HTTP/3 itself opens, which a browser must always be able to: control, the two of
/// QPACK (RFC 9114, section 6.2), and some of reserved types.
pub(crate) const HTTP3_STREAMS: u32 = 8;
/// The least error code of a WebTransport stream (draft-ietf-webtrans-http3, section 4.4), which
/// stands for the application's code 0.
const WEBTRANSPORT_ERROR: u64 = 0x52e4_a40f_a8db;

/// A connection. Clones are cheap and share everything.
#[derive(Debug, Clone)]
pub(crate) enum Connection {
    /// QUIC with our application protocol.
    Quic(quinn::Connection),
    /// WebTransport over HTTP/3.
    Web(wtransport::Connection),
}

impl From<quinn::Connection> for Connection {
    fn from(connection: quinn::Connection) -> Self {
        Self::Quic(connection)
    }
}

impl Connection {
    /// Returns the QUIC connection with our application protocol, which has lanes and certificates
    /// of clients; `None` for a browser.
    pub(crate) const fn native(&self) -> Option<&quinn::Connection> {
        match self {
            Self::Quic(connection) => Some(connection),
            Self::Web(_) => None,
        }
    }

    fn quic(&self) -> &quinn::Connection {
        match self {
            Self::Quic(connection) => connection,
            Self::Web(session) => session.quic_connection(),
        }
    }

    /// Accepts the next request.
    pub(crate) async fn accept_bi(&self) -> Result<(SendStream, RecvStream), ConnectionError> {
        match self {
            Self::Quic(connection) => {
                connection.accept_bi().await.map(|(send, recv)| (send.into(), recv.into()))
            }
            Self::Web(session) => session
                .accept_bi()
                .await
                .map(|(send, recv)| (SendStream::Web(send), RecvStream::Web(recv)))
                .map_err(|error| ended(session, &error)),
        }
    }

    /// Accepts the next data stream.
    pub(crate) async fn accept_uni(&self) -> Result<RecvStream, ConnectionError> {
        match self {
            Self::Quic(connection) => connection.accept_uni().await.map(Into::into),
            Self::Web(session) => session
                .accept_uni()
                .await
                .map(RecvStream::Web)
                .map_err(|error| ended(session, &error)),
        }
    }

    /// Opens a data stream.
    pub(crate) async fn open_uni(&self) -> Result<SendStream, ConnectionError> {
        match self {
            Self::Quic(connection) => connection.open_uni().await.map(Into::into),
            Self::Web(session) => {
                let opening = session.open_uni().await.map_err(|error| ended(session, &error))?;
                let stream = opening.await.map(SendStream::Web);
                stream.map_err(|_| {
                    session.quic_connection().close_reason().unwrap_or(ConnectionError::Reset)
                })
            }
        }
    }

    /// Closes the connection.
    pub(crate) fn close(&self, code: Closing, reason: &str) {
        self.quic().close(code.into(), reason.as_bytes());
    }

    /// Returns why it ended; `None` while it is open.
    pub(crate) fn close_reason(&self) -> Option<ConnectionError> {
        self.quic().close_reason()
    }

    /// Returns the peer's address.
    pub(crate) fn remote_address(&self) -> SocketAddr {
        self.quic().remote_address()
    }

    /// Returns a number that no other connection of this process has at the same time.
    pub(crate) fn stable_id(&self) -> usize {
        self.quic().stable_id()
    }

    /// Returns which side this one is.
    pub(crate) fn side(&self) -> Side {
        self.quic().side()
    }

    /// Returns the round trip time.
    pub(crate) fn rtt(&self) -> Duration {
        self.quic().rtt()
    }

    /// Lets the peer have this many data streams.
    pub(crate) fn set_data_streams(&self, count: u32) {
        let own = if self.native().is_some() { 0 } else { HTTP3_STREAMS };
        self.quic().set_max_concurrent_uni_streams(VarInt::from_u32(count + own));
    }

    /// Sets the window for what is received and not read.
    pub(crate) fn set_receive_window(&self, bytes: u32) {
        self.quic().set_receive_window(VarInt::from_u32(bytes));
    }

    /// Sets the windows for what is received and not read, and sent and not acknowledged.
    pub(crate) fn set_windows(&self, bytes: u64) {
        self.set_receive_window(u32::try_from(bytes).unwrap_or(u32::MAX));
        self.quic().set_send_window(bytes);
    }

    /// Pings the peer while nothing arrives, until the connection ends.
    pub(crate) async fn ping_when_silent(&self, window: impl Fn() -> u32) {
        ping_when_silent(self.quic(), window).await;
    }
}

/// Returns why a WebTransport session ended. A browser that closes its session is done.
fn ended(
    session: &wtransport::Connection,
    error: &wtransport::error::ConnectionError,
) -> ConnectionError {
    use wtransport::error::ConnectionError as Web;
    match (error, session.quic_connection().close_reason()) {
        (Web::ApplicationClosed(_), _) => {
            ConnectionError::ApplicationClosed(quinn::ApplicationClose {
                error_code: Closing::Done.into(),
                reason: Bytes::new(),
            })
        }
        (_, Some(reason)) => reason,
        (_, None) => ConnectionError::LocallyClosed,
    }
}

/// A stream to send on.
#[derive(Debug)]
pub(crate) enum SendStream {
    Quic(quinn::SendStream),
    Web(wtransport::SendStream),
}

impl From<quinn::SendStream> for SendStream {
    fn from(stream: quinn::SendStream) -> Self {
        Self::Quic(stream)
    }
}

impl SendStream {
    fn quic(&mut self) -> &mut quinn::SendStream {
        match self {
            Self::Quic(stream) => stream,
            Self::Web(stream) => stream.quic_stream_mut(),
        }
    }

    /// Sets the priority, 0 by default.
    pub(crate) fn set_priority(&self, priority: i32) {
        let stream = match self {
            Self::Quic(stream) => stream,
            Self::Web(stream) => stream.quic_stream(),
        };
        let _ = stream.set_priority(priority);
    }

    /// Writes all of it.
    pub(crate) async fn write_all(&mut self, bytes: &[u8]) -> Result<(), WriteError> {
        self.quic().write_all(bytes).await
    }

    /// Writes all of it without copying.
    pub(crate) async fn write_chunk(&mut self, bytes: Bytes) -> Result<(), WriteError> {
        self.quic().write_chunk(bytes).await
    }

    /// Closes the stream: everything is written.
    pub(crate) fn finish(&mut self) {
        let _ = self.quic().finish();
    }

    /// Gives the stream up: what was not received yet is lost.
    pub(crate) fn reset(&mut self) {
        let code = self.error_code();
        let _ = self.quic().reset(code);
    }

    /// Waits until the peer has acknowledged a finished stream, or stopped it.
    pub(crate) async fn stopped(&mut self) -> Result<Option<VarInt>, StoppedError> {
        self.quic().stopped().await
    }

    fn error_code(&self) -> VarInt {
        match self {
            Self::Quic(_) => VarInt::from_u32(0),
            Self::Web(_) => webtransport_error(),
        }
    }
}

/// A stream to receive from.
#[derive(Debug)]
pub(crate) enum RecvStream {
    Quic(quinn::RecvStream),
    Web(wtransport::RecvStream),
}

impl From<quinn::RecvStream> for RecvStream {
    fn from(stream: quinn::RecvStream) -> Self {
        Self::Quic(stream)
    }
}

impl RecvStream {
    fn quic(&mut self) -> &mut quinn::RecvStream {
        match self {
            Self::Quic(stream) => stream,
            Self::Web(stream) => stream.quic_stream_mut(),
        }
    }

    /// Reads what is there, at most this many bytes; `None` at the end.
    pub(crate) async fn read_chunk(&mut self, most: usize) -> Result<Option<Bytes>, ReadError> {
        Ok(self.quic().read_chunk(most, true).await?.map(|chunk| chunk.bytes))
    }

    /// Reads into a buffer; `None` at the end.
    pub(crate) async fn read(&mut self, buffer: &mut [u8]) -> Result<Option<usize>, ReadError> {
        self.quic().read(buffer).await
    }

    /// Fills a buffer.
    pub(crate) async fn read_exact(&mut self, buffer: &mut [u8]) -> Result<(), ReadExactError> {
        self.quic().read_exact(buffer).await
    }

    /// Tells the peer to send nothing more.
    pub(crate) fn stop(&mut self) {
        let code = match self {
            Self::Quic(_) => VarInt::from_u32(0),
            Self::Web(_) => webtransport_error(),
        };
        let _ = self.quic().stop(code);
    }
}

fn webtransport_error() -> VarInt {
    VarInt::from_u64(WEBTRANSPORT_ERROR).unwrap_or(VarInt::MAX)
}
