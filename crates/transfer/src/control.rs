//! Messages on a stream, and the `Hello` with which both sides begin.

use headroom_transfer_proto::message::{self, Message, VERSION};
use headroom_transfer_proto::rate::Priority;
use tokio::sync::mpsc;

use crate::connection::{RecvStream, SendStream, Stopped};
use crate::error::Error;

/// Queued messages are sent when they reach this many bytes.
const FULL: usize = 64 << 10;

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
    /// Received bytes; those before `start` are consumed.
    received: Vec<u8>,
    start: usize,
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
        while let Some(message) = messages.recv().await {
            self.queue(&message).await?;
            while let Ok(message) = messages.try_recv() {
                self.queue(&message).await?;
            }
            self.flush().await?;
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
        Self { stream: stream.into(), received: Vec::new(), start: 0 }
    }

    /// Receives the next message; `None` at the end of the stream. Cancel-safe: a dropped future
    /// loses nothing.
    pub(crate) async fn recv(&mut self) -> Result<Option<Message>, Error> {
        loop {
            let waiting = &self.received[self.start..];
            if let Some((length, rest)) = waiting.split_first_chunk::<4>() {
                let len = message::body_len(*length)?;
                if let Some(body) = rest.get(..len) {
                    let message = Message::parse(body)?;
                    self.start += 4 + len;
                    return Ok(Some(message));
                }
            }
            if self.start > 0 {
                self.received.drain(..self.start);
                self.start = 0;
            }
            match self.stream.read_chunk(FULL).await? {
                Some(chunk) => self.received.extend_from_slice(&chunk),
                None if self.received.is_empty() => return Ok(None),
                None => return Err(Error::Protocol("its last message is incomplete".to_owned())),
            }
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
