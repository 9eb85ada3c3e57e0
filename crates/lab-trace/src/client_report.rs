//! What this program's own clients print for the lab, which finds their packets by it.

use serde::{Deserialize, Serialize};

/// The line that a client prints when what is not measured of it is over.
pub const READY: &str = "ready";

/// The line of JSON that `headroom fetch` prints.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct FetchReport {
    /// Version of libcurl and of its TLS library.
    pub client: String,
    /// Wall clock in nanoseconds since the epoch just after the first data
    /// command (FTP: `EPSV` or `PASV`; HTTP: the request) was written.
    pub request_ns: Option<u64>,
    /// Wall clock in nanoseconds since the epoch when the last completion
    /// reply had been read.
    pub done_ns: Option<u64>,
    /// Seconds: libcurl's own total time, summed over the requests.
    pub total_s: f64,
    /// Bytes of file moved.
    pub bytes: u64,
    /// Each negotiated version and cipher suite, once: `TLSv1.3 / TLS_AES_128_GCM_SHA256`.
    pub tls: Vec<String>,
    /// Full TLS handshakes: the server showed its certificate.
    pub full_handshakes: u32,
    /// TLS handshakes that resumed an earlier session.
    pub resumed_handshakes: u32,
    /// The error that ended it; later requests were not tried.
    pub error: Option<String>,
}

/// The line of JSON that `headroom browse` prints.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct BrowserReport {
    /// Name and version of the browser.
    pub client: String,
    /// What carried the file: `webtransport`, `websocket` or `fetch`.
    pub transport: Option<String>,
    /// Wall clock in nanoseconds since the epoch when the page began, which had loaded before.
    pub start_ns: Option<u64>,
    /// Wall clock in nanoseconds since the epoch when the page had the file, or its receipt.
    pub done_ns: Option<u64>,
    /// Seconds between the two.
    pub total_s: f64,
    /// Bytes of file moved.
    pub bytes: u64,
    /// The BLAKE3 hash that the page computed, if it does.
    pub hash: Option<String>,
    /// The error that ended it.
    pub error: Option<String>,
}

/// The part of the lines of JSON of `headroom put` and `get` that the lab reads. Other
/// events, and other members of these, are in docs/transfer.md.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum CopyEvent {
    /// The client is connected and asks for the transfer next.
    Connected {
        /// Wall clock, nanoseconds since the epoch.
        time_ns: u64,
    },
    /// No lane answers, so that files go on streams.
    LanesSilent,
    /// Everything is stored, or has failed.
    End {
        /// Wall clock, nanoseconds since the epoch.
        time_ns: u64,
        /// Time since the start.
        seconds: f64,
    },
    /// An event that the lab ignores.
    #[serde(other)]
    Other,
}
