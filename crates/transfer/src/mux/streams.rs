//! Streams: accepting, opening, sending on and receiving from them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use headroom_mutex::lock;
use headroom_transfer_proto::mux::{Frame, MAX_DATA, STREAM_WINDOW, StreamId};
use quinn::{ConnectionError, ReadError, VarInt, WriteError};

use super::{MuxConnection, State, Stream, StreamState, new_stream};

impl MuxConnection {
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
    use std::net::SocketAddr;

    use super::super::{MAX_WAITING, Outgoing};
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
