//! What libcurl calls back: file data in and out, the commands it sent, and what it
//! negotiated.

use std::fs::File;
use std::io::{self, Read, Write};

use curl::easy::{Handler, InfoType, ReadError, WriteError};

/// The state of a transfer in progress.
#[derive(Debug, Default)]
pub(crate) struct Transfer {
    pub(crate) file: Option<File>,
    pub(crate) file_error: Option<io::Error>,
    /// Wall clock when the first data command was sent.
    pub(crate) request_ns: Option<u64>,
    pub(crate) bytes: u64,
    /// See `FetchReport::tls`.
    pub(crate) tls: Vec<String>,
    /// Version of the last HTTP answer, `HTTP/2`.
    pub(crate) http: Option<String>,
}

impl Handler for Transfer {
    fn write(&mut self, data: &[u8]) -> Result<usize, WriteError> {
        let Some(file) = &mut self.file else { return Ok(0) };
        match file.write_all(data) {
            Ok(()) => {
                self.bytes += data.len() as u64;
                Ok(data.len())
            }
            Err(error) => {
                self.file_error = Some(error);
                Ok(0) // fewer than given: libcurl ends the transfer
            }
        }
    }

    fn read(&mut self, data: &mut [u8]) -> Result<usize, ReadError> {
        let Some(file) = &mut self.file else { return Ok(0) };
        match file.read(data) {
            Ok(len) => {
                self.bytes += len as u64;
                Ok(len)
            }
            Err(error) => {
                self.file_error = Some(error);
                Err(ReadError::Abort)
            }
        }
    }

    fn debug(&mut self, kind: InfoType, data: &[u8]) {
        if matches!(kind, InfoType::Text)
            && let Some(tls) = negotiated(data)
            && !self.tls.contains(&tls)
        {
            self.tls.push(tls);
        }
        if matches!(kind, InfoType::HeaderIn)
            && let Some(version) = http_version(data)
        {
            self.http = Some(version);
        }
        let sent = matches!(kind, InfoType::HeaderOut);
        if sent && self.request_ns.is_none() && is_data_command(data) {
            self.request_ns = Some(now_ns());
        }
    }
}

/// Checks whether a command ends the set-up of a session and starts its transfer.
fn is_data_command(command: &[u8]) -> bool {
    [&b"EPSV"[..], b"PASV", b"GET ", b"PUT "].iter().any(|verb| command.starts_with(verb))
}

/// Parses version and cipher suite in libcurl's message about a handshake (vtls/openssl.c:
/// `SSL connection using VERSION / SUITE / GROUP / SIGNATURE`).
fn negotiated(text: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(text).ok()?.strip_prefix("SSL connection using ")?;
    let mut words = text.trim().split(" / ");
    Some(format!("{} / {}", words.next()?, words.next()?))
}

/// Parses the version in a status line.
fn http_version(header: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(header).ok()?;
    text.starts_with("HTTP/").then(|| text.split(' ').next().map(str::to_owned))?
}

/// Returns the wall clock, which also stamps captures, in nanoseconds since the epoch.
pub(crate) fn now_ns() -> u64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| since.as_nanos() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_libcurls_handshake_message() {
        let said = b"SSL connection using TLSv1.2 / AES128-SHA / [blank] / UNDEF\n";
        assert_eq!(negotiated(said).as_deref(), Some("TLSv1.2 / AES128-SHA"));
        assert_eq!(negotiated(b"SSL connection using \xff / x"), None);
        assert_eq!(negotiated(b"Trying [::1]:21..."), None);
    }

    #[test]
    fn parses_the_version_in_a_status_line() {
        assert_eq!(http_version(b"HTTP/2 200 \r\n").as_deref(), Some("HTTP/2"));
        assert_eq!(http_version(b"HTTP/1.1 206 Partial\r\n").as_deref(), Some("HTTP/1.1"));
        assert_eq!(http_version(b"Server: HTTP/1.1\r\n"), None);
    }

    #[test]
    fn login_is_not_a_data_command() {
        for command in ["USER x", "AUTH TLS", "PWD", "PROT P", "CWD /"] {
            assert!(!is_data_command(command.as_bytes()), "{command}");
        }
        for command in ["EPSV\r\n", "PASV\r\n", "GET / HTTP/1.1", "PUT /x HTTP/1.1"] {
            assert!(is_data_command(command.as_bytes()), "{command}");
        }
    }
}
