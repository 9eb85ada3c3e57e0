//! The control connection between client and server over TCP: one line of JSON for each
//! request and each answer.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::ops::Range;
use std::time::Duration;

use headroom_lab_trace::StreamStats;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Timeout of connections, requests and answers.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(20);
/// Bytes of the longest request, and of the longest answer.
const MAX_REQUEST: u64 = 4096;
const MAX_ANSWER: u64 = 1 << 20;

/// A request to the server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Request {
    /// Announces a stream of this source, or of any. The server answers when it is ready.
    Begin { ssrc: Option<u32> },
    /// Asks for statistics. The server answers when the stream has ended.
    Report(StatsQuery),
    /// Announces a video stream of this source and length. The server answers when its
    /// decoder listens, and a second time, with the statistics, to the [`StatsQuery`] that
    /// follows. Closing the connection stops the decoder.
    Show { ssrc: u32, seconds: u32 },
    /// Announces cross traffic on this connection, which the server counts.
    Bulk,
}

/// Selects statistics of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct StatsQuery {
    /// Packets that were sent, from number 0; none: the client has not counted them.
    pub(crate) sent: Option<u64>,
    /// Start of the time that totals cover, after the first packet.
    pub(crate) from_s: f64,
    /// End of this time; none: the end of the stream.
    pub(crate) to_s: Option<f64>,
    /// Length of the intervals.
    pub(crate) bin_s: f64,
}

impl StatsQuery {
    /// Asks for intervals of 0.2 s, and for totals of the time with cross traffic, if there
    /// was any.
    pub(crate) fn new(sent: Option<u64>, cross_traffic: Option<&Range<f64>>) -> Self {
        let from_s = cross_traffic.map_or(0.0, |time| time.start);
        Self { sent, from_s, to_s: cross_traffic.map(|time| time.end), bin_s: 0.2 }
    }
}

/// Opens a connection and sends a request.
pub(crate) fn connect(to: SocketAddr, request: &Request) -> io::Result<TcpStream> {
    let socket = TcpStream::connect_timeout(&to, TIMEOUT)?;
    socket.set_nodelay(true)?;
    send(&socket, request)?;
    Ok(socket)
}

/// Sends a request on a connection of its own and reads the answer.
pub(crate) fn query<T: DeserializeOwned>(to: SocketAddr, request: &Request) -> io::Result<T> {
    recv_answer(&connect(to, request)?)
}

/// Reads an answer.
pub(crate) fn recv_answer<T: DeserializeOwned>(socket: &TcpStream) -> io::Result<T> {
    socket.set_read_timeout(Some(TIMEOUT))?;
    Ok(serde_json::from_str(&line(socket, MAX_ANSWER)?)?)
}

/// Asks for statistics of the latest stream; none: no packet of it arrived.
pub(crate) fn query_stats(to: SocketAddr, stats: StatsQuery) -> io::Result<Option<StreamStats>> {
    query(to, &Request::Report(stats))
}

/// Reads a request; none: the client only tested whether the server listens.
pub(crate) fn recv_request(socket: &TcpStream) -> io::Result<Option<Request>> {
    socket.set_read_timeout(Some(TIMEOUT))?;
    let line = line(socket, MAX_REQUEST)?;
    if line.is_empty() { Ok(None) } else { Ok(Some(serde_json::from_str(&line)?)) }
}

/// Reads the query that ends a video stream, waiting up to `within`.
pub(crate) fn recv_query(socket: &TcpStream, within: Duration) -> io::Result<StatsQuery> {
    socket.set_read_timeout(Some(within))?;
    Ok(serde_json::from_str(&line(socket, MAX_REQUEST)?)?)
}

/// Sends a request or an answer.
pub(crate) fn send<T: Serialize>(mut socket: &TcpStream, message: &T) -> io::Result<()> {
    socket.write_all((serde_json::to_string(message)? + "\n").as_bytes())
}

/// Reads one line of up to `longest` bytes. It may consume bytes after the line.
fn line(from: impl Read, longest: u64) -> io::Result<String> {
    let mut line = String::new();
    BufReader::new(from.take(longest)).read_line(&mut line)?;
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_ends_at_its_newline_or_its_limit() {
        assert_eq!(line(&b"{}\nmore"[..], 100).expect("a line"), "{}\n");
        assert_eq!(line(&[b'x'; 100][..], 10).expect("its beginning").len(), 10);
        assert!(line(&b"\xff\n"[..], 10).is_err());
    }
}
