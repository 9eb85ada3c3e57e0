//! What is said over the control socket: a line of JSON a request, a line of
//! JSON an answer (docs/tunnel.md).

use std::io::{self, BufRead, ErrorKind, Read};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::status::Status;

/// Octets that a request may have.
pub(super) const MAX_REQUEST: usize = 4096;
/// Octets of an answer: a hundred thousand associations.
const MAX_RESPONSE: usize = 256 << 20;

/// A request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// How does it stand?
    Status,
    /// What is decided about packets? Records follow, one a line.
    Trace {
        /// After how many it ends; none: when the asker goes.
        #[serde(default)]
        count: Option<u64>,
    },
    /// Read the configuration again.
    Reload {
        /// Keys that the ledger does not know are new.
        #[serde(default)]
        new_keys: bool,
    },
    /// Take the tunnel down.
    Down,
}

impl Request {
    /// Reads the next request of an asker; none: they have gone.
    ///
    /// # Errors
    /// `InvalidData`, with a sentence for the asker, where it is no request; else
    /// what the connection answered. At most 4096 octets are read of a request.
    pub fn read(from: &mut impl BufRead) -> io::Result<Option<Self>> {
        let line = read_line(from, MAX_REQUEST)?;
        if line.is_empty() {
            return Ok(None);
        }
        if line.last() != Some(&b'\n') {
            return Err(no("a request is one line of JSON, of at most 4096 octets".into()));
        }
        let request = serde_json::from_slice(&line);
        request.map(Some).map_err(|error| no(format!("the request is not understood: {error}")))
    }
}

/// An answer.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Response {
    /// It was refused, or failed.
    Error {
        /// Why.
        error: String,
        /// The exit code of a command that failed of it.
        #[serde(default = "failed")]
        code: u8,
    },
    /// To [`Request::Status`].
    Status {
        /// How it stands.
        status: Box<Status>,
    },
    /// To [`Request::Reload`] and [`Request::Down`], and the end of a trace.
    Done {
        /// What should be known: sentences.
        done: Vec<String>,
    },
    /// To [`Request::Trace`], again and again.
    Record {
        /// What was decided about a packet.
        record: Value,
    },
}

/// The code of a gateway that does not say one.
fn failed() -> u8 {
    1
}

impl Response {
    /// Reads the next answer of a gateway; none: it has ended, with the answer
    /// unsaid or half said.
    ///
    /// # Errors
    /// `InvalidData`, with a sentence, where it is no answer; else what the
    /// connection answered. Memory is that of an answer of 256 MiB at most.
    pub fn read(from: &mut impl BufRead) -> io::Result<Option<Self>> {
        let line = read_line(from, MAX_RESPONSE)?;
        if line.last() != Some(&b'\n') {
            let longer = no(format!("the gateway's answer has more than {MAX_RESPONSE} octets"));
            return if line.len() < MAX_RESPONSE { Ok(None) } else { Err(longer) };
        }
        let answer = serde_json::from_slice(&line);
        answer
            .map(Some)
            .map_err(|error| no(format!("the gateway's answer is not understood: {error}")))
    }
}

/// A line of at most `most` octets, its end among them. Without an end, the peer
/// has gone, or there are `most` octets and the line is longer.
fn read_line(from: &mut impl BufRead, most: usize) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    from.by_ref().take(most as u64).read_until(b'\n', &mut line)?;
    Ok(line)
}

fn no(sentence: String) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, sentence)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_one_by_one_and_half_of_one_is_none() {
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
    fn of_a_request_no_more_is_read_than_it_may_have() {
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
