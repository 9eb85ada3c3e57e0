//! What carries a session: a QUIC connection of our own protocol, or a browser's WebTransport
//! session or WebSocket. All have streams, and nothing else in common; requests and deliveries see
//! this alone.

use std::net::SocketAddr;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use quinn::{ConnectionError, ReadError, ReadExactError, Side, StoppedError, VarInt, WriteError};

use crate::error::Closing;
use crate::mux::{MuxConnection, MuxRecvStream, MuxSendStream};
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
    /// Streams over a WebSocket.
    Mux(MuxConnection),
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
            Self::Web(_) | Self::Mux(_) => None,
        }
    }

    /// Returns the QUIC connection below, or the WebSocket's streams.
    fn lower(&self) -> Result<&quinn::Connection, &MuxConnection> {
        match self {
            Self::Quic(connection) => Ok(connection),
            Self::Web(session) => Ok(session.quic_connection()),
            Self::Mux(streams) => Err(streams),
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
            Self::Mux(streams) => {
                let (send, recv) = streams.accept_bi().await?;
                Ok((SendStream::Mux(send), RecvStream::Mux(recv)))
            }
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
            Self::Mux(streams) => streams.accept_uni().await.map(RecvStream::Mux),
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
            Self::Mux(streams) => streams.open_uni().map(SendStream::Mux),
        }
    }

    /// Closes the connection.
    pub(crate) fn close(&self, code: Closing, reason: &str) {
        match self.lower() {
            Ok(quic) => quic.close(code.into(), reason.as_bytes()),
            Err(streams) => streams.close(code.into(), reason),
        }
    }

    /// Returns why it ended; `None` while it is open.
    pub(crate) fn close_reason(&self) -> Option<ConnectionError> {
        match self.lower() {
            Ok(quic) => quic.close_reason(),
            Err(streams) => streams.close_reason(),
        }
    }

    /// Waits until it has ended.
    pub(crate) async fn ended(&self) {
        match self.lower() {
            Ok(quic) => drop(quic.closed().await),
            Err(streams) => streams.ended().await,
        }
    }

    /// Returns the peer's address.
    pub(crate) fn remote_address(&self) -> SocketAddr {
        match self.lower() {
            Ok(quic) => quic.remote_address(),
            Err(streams) => streams.remote_address(),
        }
    }

    /// Returns a number that no other connection of this process has at the same time.
    pub(crate) fn stable_id(&self) -> usize {
        match self.lower() {
            Ok(quic) => quic.stable_id(),
            Err(streams) => streams.stable_id(),
        }
    }

    /// Returns which side this one is.
    pub(crate) fn side(&self) -> Side {
        self.lower().map_or(Side::Server, quinn::Connection::side)
    }

    /// Returns the round trip time, for lanes; a WebSocket has none.
    pub(crate) fn rtt(&self) -> Duration {
        self.lower().map_or(Duration::ZERO, quinn::Connection::rtt)
    }

    /// Lets the peer have this many data streams. Over a WebSocket their number is fixed.
    pub(crate) fn set_data_streams(&self, count: u32) {
        let own = if self.native().is_some() { 0 } else { HTTP3_STREAMS };
        if let Ok(quic) = self.lower() {
            quic.set_max_concurrent_uni_streams(VarInt::from_u32(count + own));
        }
    }

    /// Sets the window for what is received and not read.
    pub(crate) fn set_receive_window(&self, bytes: u32) {
        match self.lower() {
            Ok(quic) => quic.set_receive_window(VarInt::from_u32(bytes)),
            Err(streams) => streams.set_receive_window(u64::from(bytes)),
        }
    }

    /// Sets the windows for what is received and not read, and sent and not acknowledged.
    pub(crate) fn set_windows(&self, bytes: u64) {
        self.set_receive_window(u32::try_from(bytes).unwrap_or(u32::MAX));
        if let Ok(quic) = self.lower() {
            quic.set_send_window(bytes);
        }
    }

    /// Pings the peer while nothing arrives, until the connection ends. TCP does so by itself.
    pub(crate) async fn ping_when_silent(&self, window: impl Fn() -> u32) {
        match self.lower() {
            Ok(quic) => ping_when_silent(quic, window).await,
            Err(streams) => streams.ended().await,
        }
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
    Mux(MuxSendStream),
}

impl From<quinn::SendStream> for SendStream {
    fn from(stream: quinn::SendStream) -> Self {
        Self::Quic(stream)
    }
}

impl SendStream {
    fn lower(&mut self) -> Result<&mut quinn::SendStream, &mut MuxSendStream> {
        match self {
            Self::Quic(stream) => Ok(stream),
            Self::Web(stream) => Ok(stream.quic_stream_mut()),
            Self::Mux(stream) => Err(stream),
        }
    }

    /// Sets the priority, 0 by default. Over a WebSocket frames are sent as they come.
    pub(crate) fn set_priority(&mut self, priority: i32) {
        if let Ok(stream) = self.lower() {
            let _ = stream.set_priority(priority);
        }
    }

    /// Writes all of it.
    pub(crate) async fn write_all(&mut self, bytes: &[u8]) -> Result<(), WriteError> {
        match self.lower() {
            Ok(stream) => stream.write_all(bytes).await,
            Err(stream) => stream.write(Bytes::copy_from_slice(bytes)).await,
        }
    }

    /// Writes all of it without copying, where that is possible.
    pub(crate) async fn write_chunk(&mut self, bytes: Bytes) -> Result<(), WriteError> {
        match self.lower() {
            Ok(stream) => stream.write_chunk(bytes).await,
            Err(stream) => stream.write(bytes).await,
        }
    }

    /// Closes the stream: everything is written.
    pub(crate) fn finish(&mut self) {
        match self.lower() {
            Ok(stream) => drop(stream.finish()),
            Err(stream) => stream.finish(),
        }
    }

    /// Gives the stream up: what was not received yet is lost.
    pub(crate) fn reset(&mut self) {
        let code = error_code(matches!(self, Self::Web(_)));
        match self.lower() {
            Ok(stream) => drop(stream.reset(code)),
            Err(stream) => stream.reset(),
        }
    }

    /// Waits until the peer has acknowledged a finished stream, or stopped it. What is passed to a
    /// WebSocket arrives before its end.
    pub(crate) async fn stopped(&mut self) -> Result<Option<VarInt>, StoppedError> {
        match self.lower() {
            Ok(stream) => stream.stopped().await,
            Err(_) => Ok(None),
        }
    }

    /// Drops a finished stream, and returns what waits as [`Self::stopped`] does: as long as the
    /// stream is held, QUIC lets the peer open no other in its place.
    pub(crate) fn into_stopped(mut self) -> Stopped {
        match self.lower() {
            Ok(stream) => Box::pin(stream.stopped()),
            Err(_) => Box::pin(std::future::ready(Ok(None))),
        }
    }
}

/// Waits until the peer has acknowledged a stream, or stopped it.
pub(crate) type Stopped =
    Pin<Box<dyn Future<Output = Result<Option<VarInt>, StoppedError>> + Send>>;

/// A stream to receive from.
#[derive(Debug)]
pub(crate) enum RecvStream {
    Quic(quinn::RecvStream),
    Web(wtransport::RecvStream),
    Mux(MuxRecvStream),
}

impl From<quinn::RecvStream> for RecvStream {
    fn from(stream: quinn::RecvStream) -> Self {
        Self::Quic(stream)
    }
}

impl RecvStream {
    fn lower(&mut self) -> Result<&mut quinn::RecvStream, &mut MuxRecvStream> {
        match self {
            Self::Quic(stream) => Ok(stream),
            Self::Web(stream) => Ok(stream.quic_stream_mut()),
            Self::Mux(stream) => Err(stream),
        }
    }

    /// Reads what is there, at most this many bytes; `None` at the end.
    pub(crate) async fn read_chunk(&mut self, most: usize) -> Result<Option<Bytes>, ReadError> {
        match self.lower() {
            Ok(stream) => Ok(stream.read_chunk(most, true).await?.map(|chunk| chunk.bytes)),
            Err(stream) => stream.read(most).await,
        }
    }

    /// Reads into a buffer; `None` at the end.
    pub(crate) async fn read(&mut self, buffer: &mut [u8]) -> Result<Option<usize>, ReadError> {
        let stream = match self.lower() {
            Ok(stream) => return stream.read(buffer).await,
            Err(stream) => stream,
        };
        Ok(stream.read(buffer.len()).await?.map(|bytes| {
            buffer[..bytes.len()].copy_from_slice(&bytes);
            bytes.len()
        }))
    }

    /// Fills a buffer.
    pub(crate) async fn read_exact(&mut self, buffer: &mut [u8]) -> Result<(), ReadExactError> {
        if let Ok(stream) = self.lower() {
            return stream.read_exact(buffer).await;
        }
        let mut filled = 0;
        while filled < buffer.len() {
            let read = self.read(&mut buffer[filled..]).await.map_err(ReadExactError::ReadError)?;
            filled += read.ok_or(ReadExactError::FinishedEarly(filled))?;
        }
        Ok(())
    }

    /// Tells the peer to send nothing more.
    pub(crate) fn stop(&mut self) {
        let code = error_code(matches!(self, Self::Web(_)));
        match self.lower() {
            Ok(stream) => drop(stream.stop(code)),
            Err(stream) => stream.stop(),
        }
    }
}

/// Returns the error code of a stream that is given up.
fn error_code(is_webtransport: bool) -> VarInt {
    match is_webtransport {
        true => VarInt::from_u64(WEBTRANSPORT_ERROR).unwrap_or(VarInt::MAX),
        false => VarInt::from_u32(0),
    }
}
