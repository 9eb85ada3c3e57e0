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
    /// Whether the server has sent its certificate in the handshake that is going on.
    certificate: bool,
    pub(crate) full_handshakes: u32,
    pub(crate) resumed_handshakes: u32,
    /// Whether the first line of an answer ends the transfer, and its connection.
    pub(crate) ends_at_answer: bool,
    /// Whether such a line has come.
    pub(crate) is_answered: bool,
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

    fn header(&mut self, _line: &[u8]) -> bool {
        self.is_answered = true;
        !self.ends_at_answer
    }

    fn debug(&mut self, kind: InfoType, data: &[u8]) {
        if matches!(kind, InfoType::Text) {
            self.note_handshake(data);
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

impl Transfer {
    /// Reads libcurl's messages about TLS handshakes.
    fn note_handshake(&mut self, text: &[u8]) {
        self.certificate |= is_certificate(text);
        let Some(tls) = negotiated(text) else { return };
        // in a resumed session the key of the earlier one proves who the server is (RFC 8446
        // §2.2, RFC 5246 §7.3)
        if std::mem::take(&mut self.certificate) {
            self.full_handshakes += 1;
        } else {
            self.resumed_handshakes += 1;
        }
        if !self.tls.contains(&tls) {
            self.tls.push(tls);
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

/// Checks whether libcurl says that the server's message Certificate came, whose type is 11 (RFC
/// 8446 §4; vtls/openssl.c: `VERSION (IN), TLS handshake, NAME (TYPE):`).
fn is_certificate(text: &[u8]) -> bool {
    let text = String::from_utf8_lossy(text);
    text.contains("(IN), TLS handshake, ") && text.trim_end().ends_with(" (11):")
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
    fn a_handshake_without_a_certificate_resumes_a_session() {
        const CERTIFICATE: &str = "TLSv1.3 (IN), TLS handshake, Certificate (11):\n";
        const AGREED: &str =
            "SSL connection using TLSv1.3 / TLS_AES_128_GCM_SHA256 / [blank] / UNDEF\n";
        let mut transfer = Transfer::default();
        for text in [
            "TLSv1.3 (OUT), TLS handshake, Client hello (1):\n",
            CERTIFICATE,
            AGREED,
            "TLSv1.3 (IN), TLS handshake, Newsession Ticket (4):\n",
            // a client's own certificate, and another message
            "TLSv1.3 (OUT), TLS handshake, Certificate (11):\n",
            "TLSv1.3 (IN), TLS handshake, Finished (20):\n",
            AGREED,
            AGREED,
            CERTIFICATE,
            AGREED,
        ] {
            transfer.debug(InfoType::Text, text.as_bytes());
        }
        assert_eq!((transfer.full_handshakes, transfer.resumed_handshakes), (2, 2));
        assert_eq!(transfer.tls, ["TLSv1.3 / TLS_AES_128_GCM_SHA256"]);
    }

    #[test]
    fn the_first_line_of_an_answer_ends_a_transfer_that_asks_for_no_more() {
        let mut transfer = Transfer { ends_at_answer: true, ..Transfer::default() };
        assert!(!transfer.header(b"HTTP/1.1 200 OK\r\n") && transfer.is_answered);
        transfer.ends_at_answer = false;
        assert!(transfer.header(b"HTTP/1.1 200 OK\r\n"));
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
