//! A stream for a part of a file, which is finished only when all of it was written.

use std::ops::{Deref, DerefMut};

use quinn::ConnectionError;

use crate::connection::{Connection, SendStream};

/// A data stream. One that is dropped early, as when another part of the file cannot be read,
/// is reset: quinn would finish it as if it were complete, and the receiver would take that for
/// a protocol violation.
pub(super) struct DataStream {
    stream: SendStream,
    is_whole: bool,
}

impl DataStream {
    pub(super) async fn open(connection: &Connection) -> Result<Self, ConnectionError> {
        Ok(Self { stream: connection.open_uni().await?, is_whole: false })
    }

    /// Finishes the stream: everything was written.
    pub(super) fn end(mut self) {
        self.stream.finish();
        self.is_whole = true;
    }
}

impl Drop for DataStream {
    fn drop(&mut self) {
        if !self.is_whole {
            // without effect if everything is acknowledged
            self.stream.reset();
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
