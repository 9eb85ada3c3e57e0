//! The FTP and HTTP client that the lab measures with: a thin process around a
//! current libcurl with AWS-LC for its TLS, because the one a system ships may sleep inside FTPS
//! (curl 7.88 does, for whole seconds) and says nothing of when it did what.
//!
//! It reports its own clock and the wall-clock instants at which it sent the
//! first data command and had the completion reply, so that the lab can find
//! the packets that carried them.

mod handler;
mod option;

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use curl::easy::{Easy2, HttpVersion, SslVersion};
use headroom_lab_trace::FetchReport;

use handler::Transfer;

/// One file to move.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Where to or from: `ftp://`, `http://` or `https://`.
    pub url: String,
    /// The local end.
    pub file: LocalFile,
}

/// The local end of a transfer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LocalFile {
    /// The file is created and filled from the server.
    Download(PathBuf),
    /// The file is sent to the server.
    Upload(PathBuf),
}

/// What holds for all requests of one process.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The certificate that signs the server's; none: the connection is not TLS.
    pub ca: Option<PathBuf>,
    /// TLS 1.3 cipher suite to offer, in OpenSSL's notation; none: all.
    pub tls13_cipher: Option<String>,
    /// TLS 1.2 cipher suite to offer in place of TLS 1.3, in OpenSSL's notation.
    pub tls12_cipher: Option<String>,
    /// TLS key exchange groups to offer, in OpenSSL's notation; none: X25519 with ML-KEM-768
    /// and X25519, each with a key share, and others behind them (AWS-LC's own).
    pub tls_groups: Option<String>,
    /// `name:password` for FTP.
    pub user: Option<String>,
    /// Speak HTTP/2 over TLS, in place of HTTP/1.1.
    pub http2: bool,
    /// Which TLS handshakes resume an earlier session.
    pub resumption: Resumption,
}

/// Which TLS handshakes resume an earlier session.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Resumption {
    /// None: each is a full handshake.
    #[default]
    Off,
    /// Those of FTP's data connections resume the session of their control connection.
    DataConnections,
    /// All (HTTP): a session that a connection of its own sets up before the requests.
    Session,
}

/// Version of libcurl and of its TLS library, for the record.
pub fn version() -> String {
    let version = curl::Version::get();
    format!("libcurl {} {}", version.version(), version.ssl_version().unwrap_or("without TLS"))
}

/// Runs the requests one after the other over one handle, connections reused.
///
/// With [`Resumption::Session`] it calls `ready` when the session that they resume is set up; its
/// error ends the run.
pub fn run(
    requests: &[Request],
    options: &Options,
    ready: impl FnOnce() -> io::Result<()>,
) -> FetchReport {
    let mut report = FetchReport { client: version(), ..FetchReport::default() };
    let mut easy = Easy2::new(Transfer::default());
    if let Err(error) = configure(&mut easy, options) {
        report.error = Some(format!("cannot configure libcurl: {error}"));
        return report;
    }
    if options.resumption == Resumption::Session
        && let Err(error) = set_up_session(&mut easy, requests)
            .and_then(|()| ready().map_err(|error| format!("nobody asked for a transfer: {error}")))
    {
        report.error = Some(error);
        return report;
    }
    for request in requests {
        match one(&mut easy, request) {
            Ok(total) => {
                report.done_ns = Some(handler::now_ns());
                report.total_s += total.as_secs_f64();
            }
            Err(error) => {
                report.error = Some(format!("{}: {error}", request.url));
                break;
            }
        }
    }
    if let Some(other) =
        easy.get_ref().http.as_deref().filter(|one| options.http2 && *one != "HTTP/2")
    {
        report.error.get_or_insert_with(|| format!("the server spoke {other}, not HTTP/2"));
    }
    report.request_ns = easy.get_ref().request_ns;
    report.bytes = easy.get_ref().bytes;
    report.tls.clone_from(&easy.get_ref().tls);
    report.full_handshakes = easy.get_ref().full_handshakes;
    report.resumed_handshakes = easy.get_ref().resumed_handshakes;
    report
    // dropping the handle closes the session (FTP: QUIT), after the clock
}

/// libcurl's largest transfer buffer is 10 MiB; beyond 512 KiB nothing was gained.
const BUFFER: usize = 512 * 1024;

fn configure(easy: &mut Easy2<Transfer>, options: &Options) -> Result<(), curl::Error> {
    easy.verbose(true)?; // delivers the commands to `Transfer::debug`; nothing is printed
    easy.fail_on_error(true)?;
    easy.buffer_size(BUFFER)?;
    easy.upload_buffer_size(BUFFER)?;
    easy.tcp_nodelay(true)?;
    easy.proxy("")?; // a proxy in the environment would be measured instead
    easy.connect_timeout(Duration::from_secs(20))?;
    easy.ssl_sessionid_cache(options.resumption != Resumption::Off)?;
    easy.http_version(if options.http2 { HttpVersion::V2TLS } else { HttpVersion::V11 })?;
    if let Some(ca) = &options.ca {
        easy.cainfo(ca)?;
        let version =
            if options.tls12_cipher.is_some() { SslVersion::Tlsv12 } else { SslVersion::Tlsv13 };
        easy.ssl_min_max_version(version, version)?;
        option::require_tls(easy)?;
        option::auth_tls(easy)?;
    }
    if let Some(cipher) = &options.tls12_cipher {
        easy.ssl_cipher_list(cipher)?;
    }
    if let Some(cipher) = &options.tls13_cipher {
        option::tls13_ciphers(easy, cipher)?;
    }
    if let Some(groups) = &options.tls_groups {
        option::groups(easy, groups)?;
    }
    if let Some(user) = &options.user {
        let (name, password) = user.split_once(':').unwrap_or((user, ""));
        easy.username(name)?;
        easy.password(password)?;
    }
    let mut headers = curl::easy::List::new();
    headers.append("Expect:")?; // else curl waits a round trip before a large PUT
    easy.http_headers(headers)
}

/// Sets up a TLS session that later connections of the handle resume: asks for the head of the
/// first file. The server's tickets come before its answer, which ends the connection.
fn set_up_session(easy: &mut Easy2<Transfer>, requests: &[Request]) -> Result<(), String> {
    let Some(first) = requests.first() else { return Ok(()) };
    easy.get_mut().ends_at_answer = true;
    let asked = easy
        .url(&first.url)
        .and_then(|()| easy.nobody(true))
        .and_then(|()| easy.forbid_reuse(true))
        .and_then(|()| easy.fail_on_error(false)) // what is to be uploaded is not there yet
        .and_then(|()| easy.perform());
    let seen = std::mem::take(easy.get_mut());
    let failed = match (seen.is_answered, seen.full_handshakes, asked) {
        (true, 1, _) => {
            let reset = easy
                .nobody(false)
                .and_then(|()| easy.forbid_reuse(false))
                .and_then(|()| easy.fail_on_error(true));
            return reset.map_err(|error| format!("cannot configure libcurl: {error}"));
        }
        (true, full, _) => format!("{full} full TLS handshakes in place of one"),
        (false, _, Err(error)) => error.to_string(),
        (false, _, Ok(())) => "no answer".to_owned(),
    };
    Err(format!("{}: cannot set up the TLS session to resume: {failed}", first.url))
}

fn one(easy: &mut Easy2<Transfer>, request: &Request) -> Result<Duration, String> {
    let opened = match &request.file {
        LocalFile::Download(path) => File::create(path).map(|file| (path, file, None)),
        LocalFile::Upload(path) => File::open(path).and_then(|file| {
            let size = file.metadata()?.len();
            Ok((path, file, Some(size)))
        }),
    };
    let (path, file, upload_size) = opened.map_err(|error| match &request.file {
        LocalFile::Download(path) => format!("cannot create {}: {error}", path.display()),
        LocalFile::Upload(path) => format!("cannot open {}: {error}", path.display()),
    })?;
    easy.get_mut().file = Some(file);
    easy.get_mut().file_error = None;
    let performed = easy
        .url(&request.url)
        .and_then(|()| easy.upload(upload_size.is_some()))
        .and_then(|()| easy.in_filesize(upload_size.unwrap_or(0)))
        .and_then(|()| easy.perform());
    easy.get_mut().file = None;
    match (performed, easy.get_mut().file_error.take()) {
        (_, Some(error)) => Err(format!("{}: {error}", path.display())),
        (Err(error), None) => Err(error.to_string()),
        (Ok(()), None) => easy.total_time().map_err(|error| error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn names_libcurl_and_its_tls_library() {
        let version = super::version();
        assert!(version.starts_with("libcurl 8.") && version.contains(" AWS-LC/"), "{version}");
    }
}
