//! Messages on a stream, and the `Hello` with which both sides begin.

use std::ops::Range;

use headroom_transfer_proto::message::{self, Message, VERSION};
use headroom_transfer_proto::rate::Priority;
use tokio::sync::mpsc;

use crate::connection::{RecvStream, SendStream, Stopped};
use crate::error::Error;

/// Queued messages are sent when they reach this many bytes, and as many are read at once.
const FULL: usize = 64 << 10;
/// Messages that are taken from a channel at once: each time, those that wait to queue more are
/// woken.
const AT_ONCE: usize = 32;

/// Writes messages to a stream.
#[derive(Debug)]
pub(crate) struct MessageWriter {
    stream: SendStream,
    out: Vec<u8>,
}

/// Reads messages from a stream.
#[derive(Debug)]
pub(crate) struct MessageReader {
    stream: RecvStream,
    /// Received bytes, and space for more.
    buffer: Vec<u8>,
    /// Where the bytes are that are received and not consumed.
    waiting: Range<usize>,
}

impl MessageWriter {
    pub(crate) fn new(stream: impl Into<SendStream>) -> Self {
        let mut stream = stream.into();
        // messages take precedence over data
        stream.set_priority(1);
        Self { stream, out: Vec::new() }
    }

    /// Queues a message; it is sent with the next [`Self::flush`], or when enough wait.
    pub(crate) async fn queue(&mut self, message: &Message) -> Result<(), Error> {
        message.frame(&mut self.out)?;
        if self.out.len() >= FULL { self.flush().await } else { Ok(()) }
    }

    /// Sends a message now.
    pub(crate) async fn send(&mut self, message: &Message) -> Result<(), Error> {
        self.queue(message).await?;
        self.flush().await
    }

    /// Sends what is queued. STOP_SENDING is not an error: the peer is done, or reports its own.
    pub(crate) async fn flush(&mut self) -> Result<(), Error> {
        match self.stream.write_all(&self.out).await {
            Ok(()) | Err(quinn::WriteError::Stopped(_)) => {}
            Err(error) => return Err(error.into()),
        }
        self.out.clear();
        Ok(())
    }

    /// Sends messages as they come, together where several wait, until their channel closes.
    pub(crate) async fn forward(
        &mut self,
        mut messages: mpsc::Receiver<Message>,
    ) -> Result<(), Error> {
        let mut taken = Vec::new();
        while messages.recv_many(&mut taken, AT_ONCE).await > 0 {
            for message in taken.drain(..) {
                self.queue(&message).await?;
            }
            if messages.is_empty() {
                self.flush().await?;
            }
        }
        Ok(())
    }

    /// Closes the stream. What was sent arrives as long as the connection lives.
    pub(crate) async fn close(mut self) -> Result<ClosedStream, Error> {
        self.flush().await?;
        self.stream.finish();
        Ok(ClosedStream(self.stream.into_stopped()))
    }

    /// Closes the stream and waits until the peer has acknowledged everything.
    pub(crate) async fn close_and_wait(self) -> Result<(), Error> {
        self.close().await?.acknowledged().await
    }
}

/// A stream of which everything is written.
pub(crate) struct ClosedStream(Stopped);

impl ClosedStream {
    /// Waits until the peer has acknowledged everything, which may take a while (RFC 9000, section
    /// 13.2.1): only needed before the connection is closed.
    pub(crate) async fn acknowledged(self) -> Result<(), Error> {
        match self.0.await {
            Ok(_) | Err(quinn::StoppedError::ZeroRttRejected) => Ok(()),
            Err(quinn::StoppedError::ConnectionLost(error)) => Err(error.into()),
        }
    }
}

impl MessageReader {
    pub(crate) fn new(stream: impl Into<RecvStream>) -> Self {
        Self { stream: stream.into(), buffer: Vec::new(), waiting: 0..0 }
    }

    /// Receives the next message; `None` at the end of the stream. Cancel-safe: a dropped future
    /// loses nothing.
    pub(crate) async fn recv(&mut self) -> Result<Option<Message>, Error> {
        loop {
            let waiting = &self.buffer[self.waiting.clone()];
            if let Some((length, rest)) = waiting.split_first_chunk::<4>() {
                let len = message::body_len(*length)?;
                if let Some(body) = rest.get(..len) {
                    let message = Message::parse(body)?;
                    self.waiting.start += 4 + len;
                    return Ok(Some(message));
                }
            }
            self.make_space();
            // one packet is one chunk: this reads many of them with the connection locked once
            match self.stream.read(&mut self.buffer[self.waiting.end..]).await? {
                Some(bytes) => self.waiting.end += bytes,
                None if self.waiting.is_empty() => return Ok(None),
                None => return Err(Error::Protocol("its last message is incomplete".to_owned())),
            }
        }
    }

    /// Makes space for [`FULL`] bytes behind those that wait.
    fn make_space(&mut self) {
        if self.waiting.start > 0 {
            self.buffer.copy_within(self.waiting.clone(), 0);
            self.waiting = 0..self.waiting.len();
        }
        let needed = self.waiting.end + FULL;
        if self.buffer.len() < needed {
            self.buffer.resize(needed, 0);
        }
    }

    /// Discards everything until the peer closes the stream.
    pub(crate) async fn drain(mut self) {
        while let Ok(Some(_)) = self.stream.read_chunk(FULL).await {}
    }

    /// Receives the next message, which must come.
    pub(crate) async fn expect(&mut self) -> Result<Message, Error> {
        self.recv().await?.ok_or_else(|| Error::Lost("the other side closed the stream".to_owned()))
    }

    /// Receives `Hello`.
    pub(crate) async fn recv_hello(&mut self) -> Result<Greeting, Error> {
        match self.expect().await? {
            Message::Hello { version: VERSION, rate_bps, priority, counts, .. } => Ok(Greeting {
                rate_bps,
                priority: priority.unwrap_or_default(),
                counts: counts.unwrap_or_default(),
            }),
            Message::Hello { version, program, .. } => Err(Error::Protocol(format!(
                "it is {program} with version {version} of the protocol; this program has version {VERSION}. Use the same version of headroom on both sides"
            ))),
            other => Err(unexpected(&other)),
        }
    }
}

/// How a side wants to be sent files, as its `Hello` says.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Greeting {
    /// The most bits of file content per second that it accepts.
    pub(crate) rate_bps: Option<u64>,
    /// The share beside others.
    pub(crate) priority: Priority,
    /// A client: whether it wants the counts of requests to an object store. A server: whether it
    /// sends them.
    pub(crate) counts: bool,
}

/// Makes the `Hello` of this program.
pub(crate) fn hello(greeting: Greeting) -> Message {
    let program = concat!("headroom ", env!("CARGO_PKG_VERSION")).to_owned();
    let Greeting { rate_bps, priority, counts } = greeting;
    let priority = Some(priority).filter(|&priority| priority != Priority::default());
    let counts = counts.then_some(true);
    Message::Hello { version: VERSION, program, rate_bps, priority, counts }
}

/// Makes the error for a message that is not allowed here.
pub(crate) fn unexpected(message: &Message) -> Error {
    let shown = format!("{message:?}");
    let name = shown.split([' ', '{', '(']).next().unwrap_or_default();
    Error::Protocol(format!("it sends {name}, which is not allowed here"))
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};
    use std::time::Duration;

    use headroom_transfer_proto::message::{Inline, MAX_INLINE};
    use headroom_transfer_proto::mux::{Frame, StreamId};

    use super::*;
    use crate::connection::Connection;
    use crate::mux::MuxConnection;

    fn message(id: u64, len: usize) -> Message {
        let content = (0..len).map(|at| (at + len) as u8).collect();
        Message::Content { id, inline: Inline { root: [7; 32], content } }
    }

    #[tokio::test]
    async fn messages_are_received_whole_however_the_stream_is_divided() {
        let lengths = [MAX_INLINE, 0, 1, 4096, 3, FULL - 100, MAX_INLINE, 0, 5000, 77];
        let mut bytes = Vec::new();
        for (id, len) in (0..).zip(lengths) {
            message(id, len).frame(&mut bytes).expect("it is short enough");
        }
        for piece in [7, 1300, 65_000] {
            let peer = SocketAddr::from((Ipv4Addr::LOCALHOST, 4861));
            let (connection, _outgoing) = MuxConnection::new(peer);
            connection.set_receive_window(bytes.len() as u64);
            let stream = StreamId::new(0, false, true);
            // the first piece is not a whole message, and is read before the others arrive
            let mut pieces = bytes.chunks(piece);
            let mut next = || {
                let bytes = pieces.next()?;
                let frame = Frame::Data { stream, end: pieces.len() == 0, bytes };
                connection.receive(&frame.encode().into()).expect("it is allowed");
                Some(())
            };
            next().expect("a piece");
            let received = Connection::Mux(connection.clone()).accept_uni().await;
            let mut reader = MessageReader::new(received.expect("a stream"));
            assert!(tokio::time::timeout(Duration::ZERO, reader.recv()).await.is_err());
            while next().is_some() {}
            for (id, len) in (0..).zip(lengths) {
                let received = reader.recv().await.expect("it is whole");
                assert!(received == Some(message(id, len)), "message {id}");
            }
            assert!(reader.recv().await.expect("it has ended").is_none());
        }
    }
}
