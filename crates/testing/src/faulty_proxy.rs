//! A proxy before an S3 server that does to chosen requests what networks and servers do.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use headroom_mutex::lock;

/// Bytes of the head of a request or an answer, at most.
const LONGEST_HEAD: usize = 64 << 10;

/// What happens to one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireFault {
    /// Nothing: it and its answer pass.
    Nothing,
    /// It is not forwarded. The answer has this status, and this code in its body.
    Answers(u16, &'static str),
    /// It is not forwarded, and never answered.
    Silence,
    /// It is forwarded, and its answer is lost.
    Lost,
    /// It is forwarded, and half of its answer's body arrives.
    Cut,
    /// It is forwarded, and its answer has other ETags.
    OtherEtag,
    /// It is not forwarded. A listing is answered as the one before was.
    Stale,
}

/// A proxy on loopback. It forwards each request over a connection of its own, and accepts no
/// others when this is dropped.
#[derive(Debug)]
pub struct FaultyProxy {
    address: SocketAddr,
    state: Arc<State>,
}

#[derive(Debug)]
struct State {
    upstream: SocketAddr,
    /// Kinds of requests, and what happens to the next one of each.
    faults: Mutex<Vec<(&'static str, WireFault)>>,
    /// How the last listing was answered.
    listing: Mutex<Vec<u8>>,
    is_closed: AtomicBool,
}

impl FaultyProxy {
    /// Starts a proxy before a server, through which everything passes for now.
    ///
    /// # Panics
    /// No port is free.
    pub fn start(upstream: SocketAddr) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let address = listener.local_addr().expect("an address");
        let state = Arc::new(State {
            upstream,
            faults: Mutex::default(),
            listing: Mutex::default(),
            is_closed: AtomicBool::new(false),
        });
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for client in listener.incoming() {
                if shared.is_closed.load(Ordering::Relaxed) {
                    return;
                }
                let Ok(client) = client else { continue };
                let state = Arc::clone(&shared);
                // a broken connection is what the client has to cope with
                thread::spawn(move || drop(state.serve(client)));
            }
        });
        Self { address, state }
    }

    /// Returns where it listens.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sets what happens to the next requests of a kind, by the names that `Requests` of the store
    /// has: `list`, `head`, `get`, `put`, `create`, `part`, `complete`, `copy`, `delete`, `abort`.
    pub fn will(&self, kind: &'static str, faults: impl IntoIterator<Item = WireFault>) {
        lock(&self.state.faults).extend(faults.into_iter().map(|fault| (kind, fault)));
    }

    /// Returns what has not happened yet.
    pub fn left(&self) -> Vec<(&'static str, WireFault)> {
        lock(&self.state.faults).clone()
    }
}

impl Drop for FaultyProxy {
    fn drop(&mut self) {
        self.state.is_closed.store(true, Ordering::Relaxed);
        // it waits for a connection
        let _ = TcpStream::connect(self.address);
    }
}

impl State {
    fn next(&self, kind: &str) -> WireFault {
        let mut faults = lock(&self.faults);
        match faults.iter().position(|(of, _)| *of == kind) {
            Some(index) => faults.remove(index).1,
            None => WireFault::Nothing,
        }
    }

    /// Serves one request of a connection, and closes it.
    fn serve(&self, mut client: TcpStream) -> io::Result<()> {
        let (head, mut body) = read_head(&mut client)?;
        let missing = content_length(&head).saturating_sub(body.len() as u64);
        let arrived = (&client).take(missing).read_to_end(&mut body)?;
        if (arrived as u64) < missing {
            return Ok(());
        }
        let kind = kind_of(&head);
        match self.next(kind) {
            WireFault::Nothing => {
                let answer = self.forward(&head, &body)?;
                if kind == "list" {
                    lock(&self.listing).clone_from(&answer);
                }
                client.write_all(&answer)?;
            }
            WireFault::Answers(status, code) => {
                client.write_all(complaint(status, code, kind == "head").as_bytes())?;
            }
            WireFault::Silence => {
                // until the client gives up
                while client.read(&mut [0; 1024])? > 0 {}
            }
            WireFault::Lost => drop(self.forward(&head, &body)?),
            WireFault::Cut => {
                let answer = self.forward(&head, &body)?;
                let begin = end_of_head(&answer).unwrap_or(answer.len());
                client.write_all(&answer[..begin + (answer.len() - begin) / 2])?;
            }
            WireFault::OtherEtag => {
                let mut answer = self.forward(&head, &body)?;
                change_etags(&mut answer);
                client.write_all(&answer)?;
            }
            WireFault::Stale => {
                let answer = lock(&self.listing).clone();
                client.write_all(&answer)?;
            }
        }
        client.shutdown(Shutdown::Write)
    }

    /// Makes a request, and returns its whole answer, which says that its connection ends.
    fn forward(&self, head: &str, body: &[u8]) -> io::Result<Vec<u8>> {
        let mut server = TcpStream::connect(self.upstream)?;
        // the empty line at the end comes after one more header
        let lines = head.strip_suffix("\r\n").unwrap_or(head);
        server.write_all(format!("{lines}connection: close\r\n\r\n").as_bytes())?;
        server.write_all(body)?;
        let mut answer = Vec::new();
        server.read_to_end(&mut answer)?;
        announce_close(&mut answer);
        Ok(answer)
    }
}

/// Reads a head with the empty line at its end, and what came of the body.
fn read_head(client: &mut TcpStream) -> io::Result<(String, Vec<u8>)> {
    let mut read = Vec::new();
    let mut piece = [0; 16 << 10];
    loop {
        if let Some(end) = end_of_head(&read) {
            let body = read.split_off(end);
            let head = String::from_utf8(read).map_err(io::Error::other)?;
            return Ok((head, body));
        }
        let length = client.read(&mut piece)?;
        if length == 0 || read.len() > LONGEST_HEAD {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        read.extend_from_slice(&piece[..length]);
    }
}

fn end_of_head(bytes: &[u8]) -> Option<usize> {
    bytes.windows(4).position(|four| four == b"\r\n\r\n").map(|at| at + 4)
}

fn content_length(head: &str) -> u64 {
    let mut headers = head.lines().filter_map(|line| line.split_once(':'));
    let length = headers.find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    length.and_then(|(_, value)| value.trim().parse().ok()).unwrap_or(0)
}

/// Tells which kind of request of S3 this is.
fn kind_of(head: &str) -> &'static str {
    let mut words = head.lines().next().unwrap_or_default().split(' ');
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let query = target.split_once('?').map_or("", |(_, query)| query);
    let has = |name: &str| query.split('&').any(|pair| pair.split('=').next() == Some(name));
    match method {
        "HEAD" => "head",
        "GET" if has("list-type") => "list",
        "GET" => "get",
        "PUT" if has("partNumber") => "part",
        "PUT" if head.to_ascii_lowercase().contains("\r\nx-amz-copy-source:") => "copy",
        "PUT" => "put",
        "POST" if has("uploads") => "create",
        "POST" if has("uploadId") => "complete",
        "DELETE" if has("uploadId") => "abort",
        "DELETE" => "delete",
        _ => "other",
    }
}

/// Makes an answer that says what is wrong, as S3 does.
fn complaint(status: u16, code: &str, is_head: bool) -> String {
    let body = match is_head {
        true => String::new(),
        false => format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?><Error><Code>{code}</Code><Message>a fault of the test</Message></Error>"
        ),
    };
    format!(
        "HTTP/1.1 {status} Fault\r\ncontent-type: application/xml\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )
}

/// Says in the head of an answer that its connection ends. Not every server does, and a client
/// would send its next request over a connection that is closed.
fn announce_close(answer: &mut Vec<u8>) {
    if let Some(line) = answer.windows(2).position(|two| two == b"\r\n") {
        let begin = line + 2;
        drop(answer.splice(begin..begin, *b"connection: close\r\n"));
    }
}

/// Changes ETags in headers and in XML to others of the same length.
fn change_etags(answer: &mut [u8]) {
    for (begin, end) in [(&b"etag:"[..], b'\r'), (&b"<etag>"[..], b'<')] {
        let starts: Vec<usize> = answer
            .windows(begin.len())
            .enumerate()
            .filter(|(_, window)| window.eq_ignore_ascii_case(begin))
            .map(|(at, _)| at + begin.len())
            .collect();
        for start in starts {
            let mut is_entity = false;
            for byte in answer[start..].iter_mut().take_while(|byte| **byte != end) {
                match *byte {
                    // a quote in XML, `&quot;` or `&#34;`
                    b'&' => is_entity = true,
                    b';' => is_entity = false,
                    b'0' if !is_entity => *byte = b'1',
                    b'0'..=b'9' | b'a'..=b'f' if !is_entity => *byte = b'0',
                    _ => {}
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_requests_are_told_apart() {
        for (line, kind) in [
            ("GET /b?list-type=2&prefix=x HTTP/1.1\r\n\r\n", "list"),
            ("GET /b/k HTTP/1.1\r\n\r\n", "get"),
            ("HEAD /b/k HTTP/1.1\r\n\r\n", "head"),
            ("PUT /b/k HTTP/1.1\r\n\r\n", "put"),
            ("PUT /b/k HTTP/1.1\r\nX-Amz-Copy-Source: b/o\r\n\r\n", "copy"),
            ("PUT /b/k?partNumber=1&uploadId=u HTTP/1.1\r\n\r\n", "part"),
            ("POST /b/k?uploads= HTTP/1.1\r\n\r\n", "create"),
            ("POST /b/k?uploadId=u HTTP/1.1\r\n\r\n", "complete"),
            ("DELETE /b/k HTTP/1.1\r\n\r\n", "delete"),
            ("DELETE /b/k?uploadId=u HTTP/1.1\r\n\r\n", "abort"),
        ] {
            assert_eq!(kind_of(line), kind, "{line}");
        }
        assert_eq!(content_length("PUT / HTTP/1.1\r\nContent-Length: 12\r\n\r\n"), 12);
    }

    #[test]
    fn answers_announce_the_end_of_their_connection() {
        let mut answer = b"HTTP/1.1 200 OK\r\nx: y\r\n\r\nbody".to_vec();
        announce_close(&mut answer);
        assert_eq!(answer, b"HTTP/1.1 200 OK\r\nconnection: close\r\nx: y\r\n\r\nbody");
    }

    #[test]
    fn etags_become_others_of_the_same_length() {
        let mut answer =
            b"HTTP/1.1 200 OK\r\nETag: \"0a9f\"\r\n\r\n<ETag>&quot;0a-2&quot;</ETag><Size>7</Size>"
                .to_vec();
        change_etags(&mut answer);
        assert_eq!(
            String::from_utf8(answer).expect("a text"),
            "HTTP/1.1 200 OK\r\nETag: \"1000\"\r\n\r\n<ETag>&quot;10-0&quot;</ETag><Size>7</Size>"
        );
    }
}
