//! What the reader has to know about a transfer before it reads the trace.

use serde::{Deserialize, Serialize};

/// What has to be known about a transfer to read its trace.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Expectation {
    /// Port on which the service listens; other ports are FTP data connections.
    pub port: u16,
    /// Whether file data has connections of its own (FTP).
    pub data_connections: bool,
    /// Whether it goes over UDP, perhaps beside TCP to the same port.
    pub over_datagrams: bool,
    /// Whether the client sends the file.
    pub upload: bool,
    /// Octets of one file; 0 where there is none.
    pub size: u64,
    /// Time that a full frame takes on the link, seconds; 0 on an unshaped one.
    pub frame_s: f64,
    /// Whether the session ends with an exchange of its own behind the last
    /// reply (SSH: end of file, exit status, close; RFC 4254 §6.10).
    pub parting: bool,
    /// What a login looks like, where no clock of the server's can say when it
    /// was.
    pub login: Option<Login>,
    /// When client and server say that things happened.
    pub marks: Marks,
}

/// A login by the sizes of the server's encrypted answers, in octets of TCP
/// payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Login {
    /// The answer that opens it.
    pub opened: u32,
    /// The answer that grants it, the first of its size after that.
    pub granted: u32,
}

impl Login {
    /// The same inside so many streams of TLS 1.3, each of which adds to a record
    /// its header (5), the type (1) and the tag (16) (RFC 8446 §5.2).
    pub fn inside(self, streams: u32) -> Self {
        const RECORD: u32 = 22;
        Self { opened: self.opened + streams * RECORD, granted: self.granted + streams * RECORD }
    }
}

/// Wall-clock instants, nanoseconds since the epoch, that name a packet.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct Marks {
    /// The client has just written its first data command.
    pub request_ns: Option<u64>,
    /// The server has just accepted the login.
    pub login_ns: Option<u64>,
    /// The client has just read the completion reply. Over UDP: it has all, and knows.
    pub done_ns: Option<u64>,
}
