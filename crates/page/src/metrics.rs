//! A server's metrics and health, over HTTP on a port of their own, for programs that watch it.
//! Nothing else is read from requests than method, path and the name that was asked for, and
//! nothing that a client of the server chooses is in an answer.

use std::convert::Infallible;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use headroom_transfer::Server;
use http_body_util::Full;
use hyper::body::{Body, Incoming};
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

use crate::answer::Answer;
use crate::error::Error;
use crate::exposition::{CONTENT_TYPE, exposition};
use crate::names::Names;

/// The port of metrics, TCP, unless another is chosen.
pub const DEFAULT_PORT: u16 = 4862;

/// How long the head of a request may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a connection may last. Each has one request.
const LONGEST: Duration = Duration::from_secs(10);
/// The most bytes of the head of a request.
const MAX_HEAD: usize = 8 << 10;
/// The most connections at once; others wait to be accepted.
const MAX_CONNECTIONS: usize = 32;
/// The status codes that are counted: all that are answered. A head that does not come in time is
/// counted as 408 and has no answer.
const CODES: [u16; 9] = [200, 400, 404, 405, 408, 413, 421, 431, 503];
/// The content type of everything but metrics.
const PLAIN: &str = "text/plain; charset=utf-8";

/// An HTTP server of a server's metrics, which listens and does not serve yet.
#[derive(Debug)]
pub struct Metrics {
    shared: Arc<Shared>,
    listener: TcpListener,
}

#[derive(Debug)]
struct Shared {
    server: Server,
    address: SocketAddr,
    /// How often each of [`CODES`] was the answer.
    answers: [AtomicU64; CODES.len()],
}

/// What can be asked for.
#[derive(Debug, Clone, Copy)]
enum Resource {
    Metrics,
    Health,
}

impl Metrics {
    /// Starts listening.
    ///
    /// # Errors
    /// The address cannot be used.
    pub fn bind(server: &Server, address: SocketAddr) -> Result<Self, Error> {
        let failed = |cause| Error::Listen { address, cause };
        let listener = TcpListener::bind(address).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let bound = listener.local_addr().map_err(failed)?;
        let answers = Default::default();
        let shared = Arc::new(Shared { server: server.clone(), address: bound, answers });
        Ok(Self { shared, listener })
    }

    /// Returns the address on which it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.shared.address
    }

    /// Returns the URL of the metrics.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}/metrics", self.shared.address)
    }

    /// Serves in the background, until the runtime ends: also while the server shuts down. Must be
    /// called within a tokio runtime.
    pub fn start(self) {
        tokio::spawn(self.serve());
    }

    async fn serve(self) {
        let listener = match tokio::net::TcpListener::from_std(self.listener) {
            Ok(listener) => listener,
            Err(error) => {
                tracing::warn!("metrics cannot be served: {error}");
                return;
            }
        };
        let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        // a place is free within seconds, whatever clients do
        while let Ok(place) = Arc::clone(&places).acquire_owned().await {
            let stream = match listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    // too many open files, perhaps: others are closed meanwhile
                    tracing::debug!("a connection for metrics was not accepted: {error}");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            let shared = Arc::clone(&self.shared);
            tokio::spawn(async move {
                shared.serve(stream).await;
                drop(place);
            });
        }
    }
}

impl Shared {
    /// Answers one request.
    async fn serve(&self, stream: TcpStream) {
        let answering = service_fn(|request: Request<Incoming>| {
            std::future::ready(Ok::<_, Infallible>(self.answer(&request)))
        });
        let serving = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(PATIENCE)
            .max_buf_size(MAX_HEAD)
            .keep_alive(false)
            .serve_connection(TokioIo::new(stream), answering);
        match tokio::time::timeout(LONGEST, serving).await {
            Ok(Ok(())) => {}
            // these are answered before a request is seen, or not at all
            Ok(Err(error)) if error.is_parse_too_large() => {
                self.count(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
            }
            Ok(Err(error)) if error.is_parse() => self.count(StatusCode::BAD_REQUEST),
            Ok(Err(error)) if error.is_timeout() => self.count(StatusCode::REQUEST_TIMEOUT),
            Ok(Err(error)) => tracing::debug!("a connection for metrics ended: {error}"),
            Err(_) => self.count(StatusCode::REQUEST_TIMEOUT),
        }
    }

    fn answer(&self, request: &Request<Incoming>) -> Answer {
        let is_draining = self.server.is_draining();
        let asked = self.asked(request);
        let status = match asked {
            Ok(Resource::Health) if is_draining => StatusCode::SERVICE_UNAVAILABLE,
            Ok(_) => StatusCode::OK,
            Err(refused) => refused,
        };
        // before the metrics are written: they have this request, too
        self.count(status);
        let (content_type, body) = match asked {
            Ok(Resource::Metrics) => (CONTENT_TYPE, Bytes::from(self.exposition())),
            Ok(Resource::Health) if is_draining => (PLAIN, Bytes::from_static(b"draining\n")),
            Ok(Resource::Health) => (PLAIN, Bytes::from_static(b"ok\n")),
            Err(_) => (PLAIN, Bytes::new()),
        };
        let mut answer = Response::new(Full::new(body));
        *answer.status_mut() = status;
        let headers = answer.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        if status == StatusCode::METHOD_NOT_ALLOWED {
            headers.insert(header::ALLOW, HeaderValue::from_static("GET"));
        }
        answer
    }

    /// Returns what a request asks for, by its head alone, or the code of a refusal.
    fn asked(&self, request: &Request<Incoming>) -> Result<Resource, StatusCode> {
        self.check_host(request.headers())?;
        if !request.body().is_end_stream() {
            return Err(StatusCode::PAYLOAD_TOO_LARGE);
        }
        let resource = match request.uri().path() {
            "/metrics" => Resource::Metrics,
            "/healthz" => Resource::Health,
            _ => return Err(StatusCode::NOT_FOUND),
        };
        match *request.method() == Method::GET {
            true => Ok(resource),
            false => Err(StatusCode::METHOD_NOT_ALLOWED),
        }
    }

    /// Refuses the names of others at an address of this machine alone: a page in a browser here,
    /// whose own name resolves to this address (DNS rebinding), must not read what only this
    /// machine may. Browsers always say the name; programs without one are no browsers.
    fn check_host(&self, headers: &HeaderMap) -> Result<(), StatusCode> {
        let mut hosts = headers.get_all(header::HOST).iter();
        match (hosts.next(), hosts.next()) {
            (None, _) => Ok(()),
            (Some(_), Some(_)) => Err(StatusCode::BAD_REQUEST),
            (Some(host), None) => {
                let host = host.to_str().map_err(|_| StatusCode::BAD_REQUEST)?;
                let is_own = !self.address.ip().is_loopback() || Names::default().admits(host);
                if is_own { Ok(()) } else { Err(StatusCode::MISDIRECTED_REQUEST) }
            }
        }
    }

    fn exposition(&self) -> String {
        let counts = self.answers.iter().map(|count| count.load(Ordering::Relaxed));
        let answers: Vec<_> = CODES.into_iter().zip(counts).collect();
        exposition(&self.server.status(), &answers)
    }

    fn count(&self, status: StatusCode) {
        let counted = CODES.iter().position(|code| *code == status.as_u16());
        if let Some(count) = counted.and_then(|at| self.answers.get(at)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }
}
