//! HTTPS: the files of the page, and where its sessions connect to. Nothing else is read from
//! requests than method, path and a few headers; nothing of the directory that is served is
//! reachable here.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use data_encoding::HEXLOWER;
use headroom_mutex::lock;
use headroom_transfer::server::{TcpSlot, WEB_PATH};
use http_body_util::Full;
use hyper::body::{Body, Incoming};
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::server::Acceptor;
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::server::TlsStream;

use crate::acme::ACME_TLS_ALPN;
use crate::answer::{Answer, allowed_host, closing, empty, with_body};
use crate::assets::{self, File};
use crate::{Shared, socket};

/// How long a TLS handshake, and the head of a request, may take. A connection without requests is
/// closed after this time.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a connection may last that does not become a WebSocket; browsers open others.
const LONGEST: Duration = Duration::from_secs(60);
/// The most bytes of the head of a request.
const MAX_HEAD: usize = 16 << 10;
/// How many requests one connection of HTTP/2 may have open: more than the page has files.
const MAX_STREAMS: u32 = 64;

/// Serves for ever.
pub(crate) async fn serve(shared: Arc<Shared>) {
    let listener = lock(&shared.listener).take();
    let listener = listener.map(TcpListener::from_std);
    let Some(Ok(listener)) = listener else {
        tracing::warn!("the page cannot listen");
        return std::future::pending().await;
    };
    loop {
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                // too many open files, perhaps: others end meanwhile
                tracing::debug!("a TCP connection was not accepted: {error}");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let Some(slot) = shared.server.admit_tcp(peer.ip()) else { continue };
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            // the slot stays with a WebSocket
            let slot = Arc::new(slot);
            if let Err(error) = connection(shared, stream, peer, &slot).await {
                tracing::debug!("{peer}: {error}");
            }
        });
    }
}

async fn connection(
    shared: Arc<Shared>,
    stream: TcpStream,
    peer: SocketAddr,
    slot: &Arc<TcpSlot>,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let _ = stream.set_nodelay(true);
    let handshake = async {
        let permit = slot.handshake().await;
        let stream = accept(&shared, stream).await;
        drop(permit);
        stream
    };
    let Some(stream) = tokio::time::timeout(PATIENCE, handshake).await?? else { return Ok(()) };
    let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let answering = service_fn(|mut request: Request<Incoming>| {
        let is_named = name_host(&mut request, is_http2);
        let answer = match request.uri().path() {
            _ if !is_named => closing(StatusCode::BAD_REQUEST, ""),
            WEB_PATH => socket::answer(&shared, request, peer, slot),
            _ => answer(&shared, &request),
        };
        std::future::ready(Ok::<_, Infallible>(answer))
    });
    if is_http2 {
        let serving = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .max_concurrent_streams(MAX_STREAMS)
            .max_header_list_size(MAX_HEAD as u32)
            .serve_connection(TokioIo::new(stream), answering);
        let mut serving = std::pin::pin!(serving);
        if let Ok(served) = tokio::time::timeout(LONGEST, serving.as_mut()).await {
            return Ok(served?);
        }
        // requests that have begun are answered, others go to a new connection
        serving.as_mut().graceful_shutdown();
        return Ok(tokio::time::timeout(PATIENCE, serving).await??);
    }
    // a WebSocket goes on when this is over; a client that does not read its answers does not
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .max_buf_size(MAX_HEAD)
        .serve_connection(TokioIo::new(stream), answering)
        .with_upgrades();
    Ok(tokio::time::timeout(LONGEST, serving).await??)
}

/// Completes the TLS handshake; returns nothing where the client was an authority's validation, which
/// ends with it.
async fn accept(
    shared: &Shared,
    stream: TcpStream,
) -> std::io::Result<Option<TlsStream<TcpStream>>> {
    let start = LazyConfigAcceptor::new(Acceptor::default(), stream).await?;
    let hello = start.client_hello();
    let name = hello.server_name().unwrap_or_default().to_owned();
    let is_validation = hello.alpn().is_some_and(|mut offered| {
        offered.next() == Some(ACME_TLS_ALPN) && offered.next().is_none()
    });
    if is_validation && let Some(config) = shared.challenges.config(&name) {
        start.into_stream(config).await?;
        return Ok(None);
    }
    start.into_stream(shared.certificate().0.config).await.map(Some)
}

/// Sets the host of a request of HTTP/2, which names it as a part of its URI, as HTTP/1.1 does.
/// Returns false where two are named.
fn name_host(request: &mut Request<Incoming>, is_http2: bool) -> bool {
    if !is_http2 {
        return true;
    }
    let authority = request.uri().authority().map(|authority| authority.as_str().to_owned());
    let Some(authority) = authority else { return true };
    let Ok(host) = HeaderValue::from_str(&authority) else { return false };
    let named = request.headers_mut().insert(header::HOST, host.clone());
    named.is_none_or(|named| named == host)
}

/// Answers a request, by its head alone.
fn answer(shared: &Shared, request: &Request<Incoming>) -> Answer {
    let headers = request.headers();
    let host = match allowed_host(shared, headers) {
        Ok(host) => host,
        Err(refused) => return closing(refused, ""),
    };
    if !request.body().is_end_stream() {
        return closing(StatusCode::PAYLOAD_TOO_LARGE, host);
    }
    if ![Method::GET, Method::HEAD].contains(request.method()) {
        let mut answer = empty(StatusCode::METHOD_NOT_ALLOWED, host);
        answer.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
        return answer;
    }
    let mut answer = match request.uri().path() {
        "/connect.json" => connect(shared, host),
        path => match assets::file(path) {
            Some(file) => of_file(file, headers, host),
            None => empty(StatusCode::NOT_FOUND, host),
        },
    };
    if request.method() == Method::HEAD {
        let length = answer.body().size_hint().exact().unwrap_or(0);
        *answer.body_mut() = Full::default();
        answer.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    }
    answer
}

/// Says where and how the page's session connects.
fn connect(shared: &Shared, host: &str) -> Answer {
    let name = crate::certificate::host_names().into_iter().next();
    let hash = HEXLOWER.encode(&shared.sessions.certificate().hash());
    let body = json!({
        "program": concat!("headroom ", env!("CARGO_PKG_VERSION")),
        "name": name.unwrap_or_else(|| host.to_owned()),
        "fingerprint": shared.fingerprint.to_string(),
        "root": shared.options.root_name,
        "anonymous": shared.options.anonymous_read,
        "path": WEB_PATH,
        "webtransport": { "port": shared.address.port(), "hashes": [hash] },
    });
    let mut answer = with_body(StatusCode::OK, host, Bytes::from(body.to_string()));
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}

/// Whether the client has the file of this tag, in quotation marks, already.
#[must_use]
pub fn is_cached(tag: &str, asked: &HeaderMap) -> bool {
    asked
        .get(header::IF_NONE_MATCH)
        .and_then(|tags| tags.to_str().ok())
        .is_some_and(|tags| tags.split(',').any(|it| it.trim().trim_start_matches("W/") == tag))
}

fn of_file(file: &File, asked: &HeaderMap, host: &str) -> Answer {
    let is_gzipped = takes_gzip(asked);
    let suffix = if is_gzipped { "-gzip" } else { "" };
    let tag = format!("\"{}{suffix}\"", file.tag);
    let is_known = is_cached(&tag, asked);
    let bytes = if is_gzipped { file.gzipped } else { file.bytes };
    let mut answer = match is_known {
        true => empty(StatusCode::NOT_MODIFIED, host),
        false => with_body(StatusCode::OK, host, Bytes::from_static(bytes)),
    };
    let headers = answer.headers_mut();
    if !is_known {
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(file.content_type));
        if is_gzipped {
            headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
    }
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        headers.insert(header::ETAG, tag);
    }
    answer
}

/// Whether a client accepts gzip (RFC 9110, section 12.5.3).
fn takes_gzip(asked: &HeaderMap) -> bool {
    let codings = asked.get_all(header::ACCEPT_ENCODING).iter();
    let mut codings = codings.filter_map(|value| value.to_str().ok()).flat_map(|it| it.split(','));
    codings.any(|coding| {
        let (name, weight) = coding.split_once(';').unwrap_or((coding, ""));
        let weight = weight.trim().strip_prefix("q=").map(str::trim);
        let refused = weight.is_some_and(|weight| weight.parse::<f32>().is_ok_and(|it| it <= 0.0));
        name.trim().eq_ignore_ascii_case("gzip") && !refused
    })
}
