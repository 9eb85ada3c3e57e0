//! The protocol of the control socket: a line of JSON per request and per response
//! (docs/tunnel.md).

use std::io::{self, BufRead, ErrorKind, Read};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::status::Status;

/// The longest request in bytes.
pub(super) const MAX_REQUEST: usize = 4096;
/// The longest response in bytes: the status of a hundred thousand associations.
const MAX_RESPONSE: usize = 256 << 20;

/// A request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// Return the status.
    Status,
    /// Send a record per packet, one per line.
    Trace {
        /// The number of records; none: until the client disconnects.
        #[serde(default)]
        count: Option<u64>,
    },
    /// Read the configuration again.
    Reload {
        /// Accept keys that are missing from the ledger as new.
        #[serde(default)]
        new_keys: bool,
    },
    /// Take the tunnel down.
    Down,
}

impl Request {
    /// Reads the next request of a client, at most 4096 bytes; none if it has disconnected.
    ///
    /// # Errors
    /// `InvalidData`, with a message for the client, if it is no request; else the connection's
    /// error.
    pub fn read(from: &mut impl BufRead) -> io::Result<Option<Self>> {
        let line = read_line(from, MAX_REQUEST)?;
        if line.is_empty() {
            return Ok(None);
        }
        if line.last() != Some(&b'\n') {
            return Err(invalid("a request is one line of JSON of at most 4096 bytes".into()));
        }
        let request = serde_json::from_slice(&line);
        request.map(Some).map_err(|error| invalid(format!("the request is invalid: {error}")))
    }
}

/// A response.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Response {
    /// The request was refused or failed.
    Error {
        /// The message.
        error: String,
        /// The exit code of a command that fails with this error.
        #[serde(default = "failed")]
        code: u8,
    },
    /// To [`Request::Status`].
    Status {
        /// The status.
        status: Box<Status>,
    },
    /// To [`Request::Reload`] and [`Request::Down`], and the end of a trace.
    Done {
        /// Messages for the user.
        done: Vec<String>,
    },
    /// To [`Request::Trace`], repeatedly.
    Record {
        /// The record of a packet.
        record: Value,
    },
}

/// The exit code if a gateway sends none.
fn failed() -> u8 {
    1
}

impl Response {
    /// Reads the next response of a gateway, at most 256 MiB; none if the gateway ended before it
    /// sent a whole line.
    ///
    /// # Errors
    /// `InvalidData`, with a message, if it is no response; else the connection's error.
    pub fn read(from: &mut impl BufRead) -> io::Result<Option<Self>> {
        let line = read_line(from, MAX_RESPONSE)?;
        if line.last() != Some(&b'\n') {
            let longer = invalid(format!("the gateway's response exceeds {MAX_RESPONSE} bytes"));
            return if line.len() < MAX_RESPONSE { Ok(None) } else { Err(longer) };
        }
        let answer = serde_json::from_slice(&line);
        answer
            .map(Some)
            .map_err(|error| invalid(format!("the gateway's response is invalid: {error}")))
    }
}

/// Reads a line of at most `most` bytes, including its end. A line without an end was truncated by
/// a disconnect, or is longer.
fn read_line(from: &mut impl BufRead, most: usize) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    from.by_ref().take(most as u64).read_until(b'\n', &mut line)?;
    Ok(line)
}

fn invalid(message: String) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_responses_one_by_one_and_ignores_a_truncated_one() {
        let text = "{\"record\":{\"direction\":\"out\"}}\n{\"done\":[\"one\"]}\n{\"done\":[\"tw";
        let mut from = text.as_bytes();
        let mut next = || Response::read(&mut from).expect("readable");
        assert!(
            matches!(next(), Some(Response::Record { record }) if record["direction"] == "out")
        );
        assert!(matches!(next(), Some(Response::Done { done }) if done == ["one"]));
        assert!(next().is_none() && next().is_none());
    }

    #[test]
    fn reads_no_more_of_a_request_than_its_limit() {
        let long = [b'a'; 3 * MAX_REQUEST];
        let mut from = &long[..];
        let error = Request::read(&mut from).expect_err("too long");
        assert_eq!((error.kind(), from.len()), (ErrorKind::InvalidData, 2 * MAX_REQUEST));
        let mut longest = b"{\"request\":\"down\"}".to_vec();
        longest.resize(MAX_REQUEST - 1, b' ');
        longest.push(b'\n');
        assert_eq!(Request::read(&mut &longest[..]).expect("a request"), Some(Request::Down));
        longest.insert(0, b' ');
        assert!(Request::read(&mut &longest[..]).is_err());
    }
}
