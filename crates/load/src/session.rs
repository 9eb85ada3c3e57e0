//! What the two ends say to each other by TCP: one line of JSON asks, one answers.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::reception::{Question, Streamed};

/// After so long nobody is there.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
/// Octets of the longest question, and of the longest answer.
const LONGEST_QUESTION: u64 = 4096;
const LONGEST_ANSWER: u64 = 1 << 20;

/// What a server is asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Request {
    /// A stream begins, of this source or of any. Answered by whether all is ready.
    Begin { ssrc: Option<u32> },
    /// What became of it? Answered when nothing more of it comes.
    Report(Question),
    /// A film of this source begins, of so many seconds. Answered when a player listens,
    /// and once more, to the [`Question`] that then comes, by what became of it. A
    /// connection that ends before ends the player.
    Show { ssrc: u32, seconds: u32 },
    /// What follows is to be taken and counted, and is not answered.
    Bulk,
}

/// Opens a connection and asks.
pub(crate) fn connect(to: SocketAddr, request: &Request) -> io::Result<TcpStream> {
    let mut socket = TcpStream::connect_timeout(&to, PATIENCE)?;
    socket.set_nodelay(true)?;
    let line = serde_json::to_string(request)? + "\n";
    socket.write_all(line.as_bytes())?;
    Ok(socket)
}

/// Asks, and reads the answer.
pub(crate) fn ask<T: DeserializeOwned>(to: SocketAddr, request: &Request) -> io::Result<T> {
    hear_answer(&connect(to, request)?)
}

/// Reads what the other end answers.
pub(crate) fn hear_answer<T: DeserializeOwned>(socket: &TcpStream) -> io::Result<T> {
    socket.set_read_timeout(Some(PATIENCE))?;
    Ok(serde_json::from_str(&line(socket, LONGEST_ANSWER)?)?)
}

/// What became of the latest stream; none where nothing of it arrived.
pub(crate) fn answer(to: SocketAddr, question: Question) -> io::Result<Option<Streamed>> {
    ask(to, &Request::Report(question))
}

/// Reads what a client asks; none where it only looked whether anybody is there.
pub(crate) fn hear(socket: &TcpStream) -> io::Result<Option<Request>> {
    socket.set_read_timeout(Some(PATIENCE))?;
    let line = line(socket, LONGEST_QUESTION)?;
    if line.is_empty() { Ok(None) } else { Ok(Some(serde_json::from_str(&line)?)) }
}

/// Reads the question that ends a film, which comes within that time.
pub(crate) fn hear_question(socket: &TcpStream, within: Duration) -> io::Result<Question> {
    socket.set_read_timeout(Some(within))?;
    Ok(serde_json::from_str(&line(socket, LONGEST_QUESTION)?)?)
}

/// Asks or answers on an open connection.
pub(crate) fn say<T: Serialize>(mut socket: &TcpStream, answer: &T) -> io::Result<()> {
    socket.write_all((serde_json::to_string(answer)? + "\n").as_bytes())
}

/// One line, no longer than that; its reader may take octets behind it.
fn line(from: impl Read, longest: u64) -> io::Result<String> {
    let mut line = String::new();
    BufReader::new(from.take(longest)).read_line(&mut line)?;
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_an_end_and_a_limit() {
        assert_eq!(line(&b"{}\nmore"[..], 100).expect("a line"), "{}\n");
        assert_eq!(line(&[b'x'; 100][..], 10).expect("its beginning").len(), 10);
        assert!(line(&b"\xff\n"[..], 10).is_err());
    }
}
