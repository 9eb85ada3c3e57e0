//! A stream for a part of a file, which ends only when all of it was written.

use std::ops::{Deref, DerefMut};

use quinn::{Connection, ConnectionError, SendStream};

/// A data stream. One that is dropped before its end, as its task is when another part of
/// the file cannot be read, is taken back: quinn would end it as if it were whole, and the
/// receiver would take that for a breach of the protocol.
pub(super) struct DataStream {
    stream: SendStream,
    is_whole: bool,
}

impl DataStream {
    pub(super) async fn open(connection: &Connection) -> Result<Self, ConnectionError> {
        Ok(Self { stream: connection.open_uni().await?, is_whole: false })
    }

    /// Ends it: all was written.
    pub(super) fn end(mut self) {
        let _ = self.stream.finish();
        self.is_whole = true;
    }
}

impl Drop for DataStream {
    fn drop(&mut self) {
        if !self.is_whole {
            // changes nothing where all is acknowledged
            let _ = self.stream.reset(0u32.into());
        }
    }
}

impl Deref for DataStream {
    type Target = SendStream;

    fn deref(&self) -> &SendStream {
        &self.stream
    }
}

impl DerefMut for DataStream {
    fn deref_mut(&mut self) -> &mut SendStream {
        &mut self.stream
    }
}
