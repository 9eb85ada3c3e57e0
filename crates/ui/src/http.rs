//! The local HTTP server: the files of the page for everybody on this machine, and the API for
//! the page that has the token.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use headroom_page::{is_cached, secure, upgrade_headers};
use http_body_util::{BodyExt, Limited};
use hyper::body::{Body, Frame, Incoming};
use hyper::header::{self, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};

use crate::access::{Refusals, allowed_host};
use crate::api::{self, Reply};
use crate::error::ApiError;
use crate::socket;
use crate::state::Shared;

/// Connections at once. A browser has six, and a WebSocket for each tab.
const MAX_CONNECTIONS: usize = 64;
/// How long the head of a request, and then its body, may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// The most bytes of the head of a request, and of its body: the names that were selected.
const MAX_HEAD: usize = 16 << 10;
const MAX_BODY: usize = 4 << 20;

type Answer = Response<Content>;

/// The body of an answer.
pub(crate) enum Content {
    Whole(Option<Bytes>),
    Parts(mpsc::Receiver<Bytes>),
}

impl Body for Content {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.get_mut() {
            Self::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Parts(parts) => {
                parts.poll_recv(context).map(|part| part.map(|part| Ok(Frame::data(part))))
            }
        }
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        match self {
            Self::Whole(bytes) => {
                hyper::body::SizeHint::with_exact(bytes.as_ref().map_or(0, |it| it.len() as u64))
            }
            Self::Parts(_) => hyper::body::SizeHint::default(),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(bytes) if bytes.as_ref().is_none_or(Bytes::is_empty))
    }
}

/// Serves for ever.
pub(crate) async fn serve(listener: &TcpListener, shared: &Arc<Shared>) {
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::debug!("a TCP connection was not accepted: {error}");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
            Refusals::count(&shared.refusals.connections);
            continue;
        };
        let shared = Arc::clone(shared);
        tokio::spawn(async move {
            // a WebSocket keeps its place
            let place = Arc::new(place);
            if let Err(error) = connection(shared, stream, peer, Arc::clone(&place)).await {
                tracing::debug!("{peer}: {error}");
            }
        });
    }
}

async fn connection<P: Send + Sync + 'static>(
    shared: Arc<Shared>,
    stream: TcpStream,
    peer: SocketAddr,
    place: Arc<P>,
) -> Result<(), hyper::Error> {
    let _ = stream.set_nodelay(true);
    let answering = service_fn(move |request| {
        let (shared, place) = (Arc::clone(&shared), Arc::clone(&place));
        async move {
            let answer = answer(&shared, request, peer, place).await;
            Ok::<_, Infallible>(answer)
        }
    });
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .max_buf_size(MAX_HEAD)
        .serve_connection(TokioIo::new(stream), answering)
        .with_upgrades()
        .await
}

async fn answer<P: Send + Sync + 'static>(
    shared: &Arc<Shared>,
    request: Request<Incoming>,
    peer: SocketAddr,
    place: Arc<P>,
) -> Answer {
    let host = match allowed_host(shared.address, request.headers(), &shared.refusals) {
        Ok(host) => host.to_owned(),
        Err(refused) => return closing(refused, ""),
    };
    let path = request.uri().path().to_owned();
    match path.strip_prefix("/api/") {
        Some("events") => events(shared, request, peer, place, &host),
        Some(name) => call(shared, request, name, &host).await,
        None => match path.strip_prefix("/report/") {
            Some(name) => report(shared, &request, name).await,
            None => file(&request, &path, &host),
        },
    }
}

/// Answers a request for a file of the page.
fn file(request: &Request<Incoming>, path: &str, host: &str) -> Answer {
    if !request.body().is_end_stream() {
        return closing(StatusCode::PAYLOAD_TOO_LARGE, host);
    }
    if request.method() != Method::GET {
        let mut answer = empty(StatusCode::METHOD_NOT_ALLOWED, host);
        answer.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET"));
        return answer;
    }
    let Some(file) = headroom_page::file(path) else { return empty(StatusCode::NOT_FOUND, host) };
    // the same page, which starts another module; its tag differs, too
    let (content, tag) = match file.name {
        "index.html" => {
            let text = String::from_utf8_lossy(file.bytes).replace("app.js", "ui.js");
            (Bytes::from(text), format!("\"ui-{}\"", file.tag))
        }
        _ => (Bytes::from_static(file.bytes), format!("\"{}\"", file.tag)),
    };
    let is_known = is_cached(&tag, request.headers());
    let mut answer = match is_known {
        true => empty(StatusCode::NOT_MODIFIED, host),
        false => with_body(StatusCode::OK, host, Content::Whole(Some(content))),
    };
    let headers = answer.headers_mut();
    if !is_known {
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(file.content_type));
    }
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        headers.insert(header::ETAG, tag);
    }
    answer
}

/// Answers a call of the API.
async fn call(shared: &Arc<Shared>, request: Request<Incoming>, name: &str, host: &str) -> Answer {
    if request.method() != Method::POST {
        return closing(StatusCode::METHOD_NOT_ALLOWED, host);
    }
    if !shared.token.is_shown(request.headers()) {
        Refusals::count(&shared.refusals.tokens);
        return failed(
            &ApiError::with_status(StatusCode::UNAUTHORIZED, "the token is missing or wrong"),
            host,
            true,
        );
    }
    let is_json = |value: &HeaderValue| value == "application/json";
    if !request.headers().get(header::CONTENT_TYPE).is_some_and(is_json) {
        return closing(StatusCode::UNSUPPORTED_MEDIA_TYPE, host);
    }
    let reading = Limited::new(request.into_body(), MAX_BODY).collect();
    let body = match tokio::time::timeout(PATIENCE, reading).await {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(_)) => {
            Refusals::count(&shared.refusals.too_large);
            return closing(StatusCode::PAYLOAD_TOO_LARGE, host);
        }
        Err(_) => return closing(StatusCode::REQUEST_TIMEOUT, host),
    };
    let reply = match serde_json::from_slice(&body) {
        Ok(body) => api::call(shared, name, body).await,
        Err(error) => Err(ApiError::usage(&format!("the body is not JSON: {error}"))),
    };
    let (content, content_type) = match reply {
        Ok(Reply::Json(value)) => {
            (Content::Whole(Some(Bytes::from(value.to_string()))), "application/json")
        }
        Ok(Reply::Bytes(bytes)) => {
            (Content::Whole(Some(Bytes::from(bytes))), "application/octet-stream")
        }
        Ok(Reply::Lines(parts)) => (Content::Parts(parts), "application/x-ndjson"),
        Err(error) => return failed(&error, host, false),
    };
    let mut answer = with_body(StatusCode::OK, host, content);
    uncached(&mut answer, content_type);
    answer
}

/// Upgrades to the WebSocket of events. Its first message has the token.
fn events<P: Send + Sync + 'static>(
    shared: &Arc<Shared>,
    mut request: Request<Incoming>,
    peer: SocketAddr,
    place: Arc<P>,
    host: &str,
) -> Answer {
    // a browser always names the page's origin, which was checked
    if !request.headers().contains_key(header::ORIGIN) {
        Refusals::count(&shared.refusals.origins);
        return closing(StatusCode::FORBIDDEN, host);
    }
    let Some(upgraded) = upgrade_headers(request.method(), request.headers()) else {
        return closing(StatusCode::BAD_REQUEST, host);
    };
    let upgrade = hyper::upgrade::on(&mut request);
    let shared = Arc::clone(shared);
    tokio::spawn(async move {
        if let Err(error) = socket::serve(&shared, upgrade).await {
            tracing::debug!("{peer}: {error}");
        }
        drop(place);
    });
    let mut answer = empty(StatusCode::SWITCHING_PROTOCOLS, host);
    answer.headers_mut().extend(upgraded);
    answer
}

/// Answers a request for a report of the lab, by a name that the API made. It is a document of no
/// origin: it can read nothing here and send nothing anywhere.
async fn report(shared: &Arc<Shared>, request: &Request<Incoming>, name: &str) -> Answer {
    let content = match request.method() == Method::GET {
        true => shared.lab.report(name).await,
        false => None,
    };
    let Some(content) = content else { return empty(StatusCode::NOT_FOUND, "") };
    let mut answer = Response::new(Content::Whole(Some(Bytes::from(content))));
    let policy = "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline'; \
                  style-src 'unsafe-inline'; img-src data:; font-src data:; form-action 'none'; \
                  frame-ancestors 'none'; base-uri 'none'";
    secure(answer.headers_mut(), policy);
    uncached(&mut answer, "text/html; charset=utf-8");
    answer
}

fn failed(error: &ApiError, host: &str, closes: bool) -> Answer {
    let content = Content::Whole(Some(Bytes::from(error.body().to_string())));
    let mut answer = with_body(error.status, host, content);
    uncached(&mut answer, "application/json");
    if closes {
        answer.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    answer
}

fn uncached(answer: &mut Answer, content_type: &'static str) {
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
}

/// Answers, and ends the connection.
fn closing(status: StatusCode, host: &str) -> Answer {
    let mut answer = empty(status, host);
    answer.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    answer
}

fn empty(status: StatusCode, host: &str) -> Answer {
    with_body(status, host, Content::Whole(None))
}

/// Makes an answer with the headers of all of them. `host` was checked.
fn with_body(status: StatusCode, host: &str, content: Content) -> Answer {
    let mut answer = Response::new(content);
    *answer.status_mut() = status;
    let sockets = if host.is_empty() { String::new() } else { format!(" ws://{host}") };
    let policy = format!(
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; \
         connect-src 'self'{sockets}; form-action 'none'; frame-ancestors 'none'; base-uri 'none'; \
         require-trusted-types-for 'script'"
    );
    secure(answer.headers_mut(), &policy);
    answer
}
