//! Messages on a stream: said, heard, and the greeting with which both begin.

use headroom_transfer_proto::message::{self, Message, VERSION};
use quinn::{RecvStream, SendStream};
use tokio::sync::mpsc;

use crate::error::Error;

/// Messages that wait to be written leave when they are so many octets.
const FULL: usize = 64 << 10;

/// The half on which this end speaks.
#[derive(Debug)]
pub(crate) struct MessageWriter {
    stream: SendStream,
    out: Vec<u8>,
}

/// The half on which it listens.
#[derive(Debug)]
pub(crate) struct MessageReader {
    stream: RecvStream,
    /// What came; `start` and before has been read.
    received: Vec<u8>,
    start: usize,
}

impl MessageWriter {
    pub(crate) fn new(stream: SendStream) -> Self {
        // what is said is never behind data
        let _ = stream.set_priority(1);
        Self { stream, out: Vec::new() }
    }

    /// Says something soon: at the next [`Self::flush`], or when enough waits.
    pub(crate) async fn queue(&mut self, message: &Message) -> Result<(), Error> {
        message.frame(&mut self.out)?;
        if self.out.len() >= FULL { self.flush().await } else { Ok(()) }
    }

    /// Says something now.
    pub(crate) async fn send(&mut self, message: &Message) -> Result<(), Error> {
        self.queue(message).await?;
        self.flush().await
    }

    /// Writes what waits. Who listens no more has heard enough, as a receiver when the
    /// last of its files has failed, or says why itself: it is no error here.
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

    /// Says nothing more. What was said arrives as long as the connection lives.
    pub(crate) async fn close(mut self) -> Result<(), Error> {
        self.flush().await?;
        let _ = self.stream.finish();
        Ok(())
    }

    /// Says nothing more, and waits until the peer acknowledges all of it, for which it
    /// may take its time (RFC 9000, section 13.2.1): only for who ends the connection then.
    pub(crate) async fn close_and_wait(mut self) -> Result<(), Error> {
        self.flush().await?;
        let _ = self.stream.finish();
        match self.stream.stopped().await {
            Ok(_) | Err(quinn::StoppedError::ZeroRttRejected) => Ok(()),
            Err(quinn::StoppedError::ConnectionLost(error)) => Err(error.into()),
        }
    }
}

impl MessageReader {
    pub(crate) const fn new(stream: RecvStream) -> Self {
        Self { stream, received: Vec::new(), start: 0 }
    }

    /// The next message; none where the peer says nothing more. It may be dropped
    /// and asked for again.
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
            match self.stream.read_chunk(FULL, true).await? {
                Some(chunk) => self.received.extend_from_slice(&chunk.bytes),
                None if self.received.is_empty() => return Ok(None),
                None => return Err(Error::Protocol("its last message has no end".to_owned())),
            }
        }
    }

    /// Waits until the peer has nothing more to say, and passes over what it says.
    pub(crate) async fn drain(mut self) {
        while let Ok(Some(_)) = self.stream.read_chunk(FULL, false).await {}
    }

    /// The next message, which must come.
    pub(crate) async fn expect(&mut self) -> Result<Message, Error> {
        self.recv().await?.ok_or_else(|| Error::Lost("the other side says no more".to_owned()))
    }

    /// Hears the greeting, and how many bits of files per second the peer would take
    /// at most.
    pub(crate) async fn recv_hello(&mut self) -> Result<Option<u64>, Error> {
        match self.expect().await? {
            Message::Hello { version: VERSION, rate_bps, .. } => Ok(rate_bps),
            Message::Hello { version, program, .. } => Err(Error::Protocol(format!(
                "it is {program} and speaks version {version} of it, this program version {VERSION}. Use the same \
                 version of headroom on both sides"
            ))),
            other => Err(unexpected(&other)),
        }
    }
}

/// The greeting of this program, which takes no more than so many bits of files per
/// second.
pub(crate) fn hello(rate_bps: Option<u64>) -> Message {
    let program = concat!("headroom ", env!("CARGO_PKG_VERSION")).to_owned();
    Message::Hello { version: VERSION, program, rate_bps }
}

/// Something was said that has no place here.
pub(crate) fn unexpected(message: &Message) -> Error {
    let shown = format!("{message:?}");
    let name = shown.split([' ', '{', '(']).next().unwrap_or_default();
    Error::Protocol(format!("it says {name} where that means nothing"))
}
