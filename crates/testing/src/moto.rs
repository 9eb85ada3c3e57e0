//! An independent S3 server, moto, on loopback. It shares no code and no design with the
//! others: it is written in Python, and keeps objects in memory.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::parts;
use crate::server::{Server, own_address};

/// What starts the server, for its Python.
const SCRIPT: &str = include_str!("moto.py");
/// What the helpers' own requests are signed with: the server compares no signatures, and makes
/// buckets in the region that the key is for.
const AUTHORIZATION: &str = "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/s3/aws4_request";

/// Returns the Python with moto that `scripts/fetch-parts moto` fetches, or nothing where it is
/// missing: the test is skipped then.
///
/// # Panics
/// It is missing, and tests are required (`CI`, `HEADROOM_TESTS=required`).
pub fn moto() -> Option<PathBuf> {
    parts::program("moto", "bin/moto-python")
}

/// A server with the bucket `bucket`, for anybody. It ends when this is dropped.
#[derive(Debug)]
pub struct Moto {
    server: Server,
    recording: PathBuf,
}

impl Moto {
    /// Starts a server with an empty bucket, whose log and recording are in `folder`.
    ///
    /// # Panics
    /// It does not start.
    pub fn start(python: &Path, folder: &Path) -> Self {
        let address = own_address(5000);
        let recording = folder.join("recording");
        let mut command = Command::new(python);
        // variables of the environment would be settings of it
        command.env_clear().env("HOME", folder).env("TMPDIR", folder);
        command.env("MOTO_RECORDER_FILEPATH", &recording);
        command.args(["-c", SCRIPT, &address.ip().to_string(), &address.port().to_string()]);
        let server = Server::start(&mut command, address, &folder.join("moto.log"));
        let moto = Self { server, recording };
        moto.request("PUT", "/bucket").expect("a bucket");
        moto
    }

    /// Returns where it listens.
    pub const fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// Records all requests from now on, with headers and bodies.
    ///
    /// # Panics
    /// It does not answer.
    pub fn record(&self) {
        self.request("POST", "/moto-api/recorder/start-recording").expect("it records");
    }

    /// Returns what was recorded: a line of JSON for each request.
    ///
    /// # Panics
    /// There is no request.
    pub fn recording(&self) -> String {
        std::fs::read_to_string(&self.recording).expect("a recording")
    }

    /// Returns the content of an object, whose key needs no encoding in a URL; nothing if it is
    /// not there.
    pub fn object(&self, key: &str) -> Option<Vec<u8>> {
        self.request("GET", &format!("/bucket/{key}"))
    }

    /// Returns the keys and the bytes of the objects below a prefix, at most 1000; none if it
    /// does not answer.
    pub fn objects(&self, prefix: &str) -> Vec<(String, u64)> {
        let answer = self.request("GET", &format!("/bucket?list-type=2&prefix={prefix}"));
        listed(&String::from_utf8_lossy(&answer.unwrap_or_default()))
    }

    /// Returns the body of an answer, if it is 200.
    fn request(&self, method: &str, target: &str) -> Option<Vec<u8>> {
        let address = self.address();
        let head = format!(
            "{method} {target} HTTP/1.1\r\nhost: {address}\r\nauthorization: {AUTHORIZATION}\r\n\
             content-length: 0\r\nconnection: close\r\n\r\n"
        );
        let mut stream = TcpStream::connect(address).ok()?;
        stream.write_all(head.as_bytes()).ok()?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).ok()?;
        let body = answer.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
        answer.starts_with(b"HTTP/1.1 200 ").then(|| answer.split_off(body))
    }
}

/// Finds keys and sizes in a listing.
fn listed(xml: &str) -> Vec<(String, u64)> {
    let text = |of: &str, name: &str| {
        let (_, rest) = of.split_once(&format!("<{name}>"))?;
        Some(rest.split_once("</")?.0.to_owned())
    };
    let objects = xml.split("<Contents>").skip(1);
    objects.filter_map(|one| Some((text(one, "Key")?, text(one, "Size")?.parse().ok()?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listings_have_keys_and_sizes() {
        let xml = "<ListBucketResult><Contents><Key>a/b</Key><ETag>\"0\"</ETag><Size>7</Size>\
                   </Contents><Contents><Key>c</Key><Size>0</Size></Contents><Name>x</Name>\
                   </ListBucketResult>";
        assert_eq!(listed(xml), [("a/b".to_owned(), 7), ("c".to_owned(), 0)]);
        assert!(listed("<ListBucketResult></ListBucketResult>").is_empty());
    }
}
