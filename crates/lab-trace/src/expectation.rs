//! Describes a transfer to the reader of its trace.

use serde::{Deserialize, Serialize};

/// The properties of a transfer that its trace does not show.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Expectation {
    /// Port on which the application listens; other ports are FTP data connections.
    pub port: u16,
    /// Whether file data has connections of its own (FTP).
    pub data_connections: bool,
    /// Whether it uses UDP, perhaps besides TCP to the same port.
    pub over_datagrams: bool,
    /// Whether the client sends the file.
    pub upload: bool,
    /// Bytes of one file; 0: there is none.
    pub size: u64,
    /// Serialisation time of a full frame, or the longest gap of a trace, seconds; 0 on an
    /// unshaped link.
    pub frame_s: f64,
    /// Whether the session ends with an exchange of its own after the last reply (SSH: end
    /// of file, exit status, close; RFC 4254 §6.10).
    pub has_close_exchange: bool,
    /// Recognises a login, for servers whose clock cannot date it or whose log was read late.
    pub login: Option<Login>,
    /// Timestamps by client and server.
    pub hints: TimeHints,
}

/// Recognises a login by the sizes of the server's encrypted answers, bytes of TCP
/// payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Login {
    /// Size of the answer that opens it.
    pub opened: u32,
    /// Size of the answer that grants it, the first such answer after the one that opens it.
    pub granted: u32,
}

impl Login {
    /// Returns the sizes inside nested TLS 1.3 streams, each of which adds header (5), type
    /// (1) and tag (16) to a record (RFC 8446 §5.2).
    pub fn inside(self, streams: u32) -> Self {
        const RECORD: u32 = 22;
        Self { opened: self.opened + streams * RECORD, granted: self.granted + streams * RECORD }
    }
}

/// Timestamps by client and server, nanoseconds since the epoch. They are only as precise
/// as the program that took them; the nearest packet gives the exact time.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct TimeHints {
    /// When the client began, if it exchanged packets before that do not count (a page that
    /// loads).
    pub start_ns: Option<u64>,
    /// When the client had written its first data command.
    pub request_ns: Option<u64>,
    /// When the server accepted the login.
    pub login_ns: Option<u64>,
    /// When the client had read the completion reply. Over UDP: when the transfer was
    /// complete.
    pub done_ns: Option<u64>,
}
