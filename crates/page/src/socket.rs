//! WebSockets (RFC 6455): sessions for browsers where UDP is blocked. Each message is one frame of
//! [`headroom_transfer::MuxConnection`].

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use headroom_transfer::server::TcpSlot;
use headroom_transfer::{MuxConnection, Outgoing};
use hyper::body::Incoming;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::upgrade::OnUpgrade;
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Message, Role, WebSocketConfig};

use crate::Shared;
use crate::answer::{Answer, allowed_host, closing, empty};

/// The most bytes of a message: more than a frame of a stream.
const MAX_MESSAGE: usize = 66 << 10;
/// The most bytes that wait to be written; a message is one of them.
const MAX_WAITING: usize = 1 << 20;
/// How often a silent client is pinged, and after how many pings without an answer it is gone.
const PING: Duration = Duration::from_secs(15);
const PINGS: u32 = 4;
/// How long the end of a connection may take.
const ENDING: Duration = Duration::from_secs(5);
/// WebSocket close codes for our own (RFC 6455, section 7.4.2).
const OWN_CODES: u64 = 4000;

/// Answers the request for a WebSocket, and serves it.
pub(crate) fn answer(
    shared: &Arc<Shared>,
    mut request: Request<Incoming>,
    peer: SocketAddr,
    slot: &Arc<TcpSlot>,
) -> Answer {
    let headers = request.headers();
    let host = match allowed_host(shared, headers) {
        Ok(host) => host.to_owned(),
        Err(refused) => return closing(refused, ""),
    };
    // a browser always names the page's origin, which was checked above
    let origin = headers.get(header::ORIGIN).and_then(|origin| origin.to_str().ok());
    let Some(origin) = origin.map(str::to_owned) else {
        return closing(StatusCode::FORBIDDEN, &host);
    };
    let Some(upgraded) = upgrade_headers(request.method(), headers) else {
        return closing(StatusCode::BAD_REQUEST, &host);
    };
    let upgrade = hyper::upgrade::on(&mut request);
    let (shared, slot) = (Arc::clone(shared), Arc::clone(slot));
    tokio::spawn(async move {
        if let Err(error) = serve(&shared, upgrade, peer, &origin).await {
            tracing::debug!("{peer}: {error}");
        }
        drop(slot);
    });
    let mut answer = empty(StatusCode::SWITCHING_PROTOCOLS, &host);
    answer.headers_mut().extend(upgraded);
    answer
}

/// Returns the headers of the answer that upgrades a connection to a WebSocket, if that is what a
/// request with these headers asks for.
#[must_use]
pub fn upgrade_headers(method: &Method, headers: &HeaderMap) -> Option<HeaderMap> {
    let has = |name: HeaderName, wanted: &str| has_token(headers, &name, wanted);
    let is_socket = method == Method::GET
        && has(header::CONNECTION, "upgrade")
        && has(header::UPGRADE, "websocket")
        && has(header::SEC_WEBSOCKET_VERSION, "13");
    let key = headers.get(header::SEC_WEBSOCKET_KEY).filter(|_| is_socket)?;
    let accept = HeaderValue::from_str(&derive_accept_key(key.as_bytes())).ok()?;
    let mut answer = HeaderMap::new();
    answer.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    answer.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    answer.insert(header::SEC_WEBSOCKET_ACCEPT, accept);
    Some(answer)
}

fn has_token(headers: &HeaderMap, name: &HeaderName, wanted: &str) -> bool {
    headers.get_all(name).iter().any(|value| {
        let mut tokens = value.to_str().unwrap_or_default().split(',');
        tokens.any(|token| token.trim().eq_ignore_ascii_case(wanted))
    })
}

async fn serve(
    shared: &Shared,
    upgrade: OnUpgrade,
    peer: SocketAddr,
    origin: &str,
) -> Result<(), hyper::Error> {
    let stream = TokioIo::new(upgrade.await?);
    let config = WebSocketConfig::default()
        .max_message_size(Some(MAX_MESSAGE))
        .max_frame_size(Some(MAX_MESSAGE))
        .max_write_buffer_size(MAX_WAITING);
    let socket = WebSocketStream::from_raw_socket(stream, Role::Server, Some(config)).await;
    let (streams, outgoing) = MuxConnection::new(peer);
    let carrying = carry(socket, streams.clone(), outgoing);
    // the session ends first: it closes the streams, and what waits is sent
    tokio::join!(shared.server.serve_socket(streams.clone(), origin), carrying);
    Ok(())
}

/// Carries frames both ways, until either side ends the connection.
async fn carry<S: AsyncRead + AsyncWrite + Unpin>(
    socket: WebSocketStream<S>,
    streams: MuxConnection,
    mut outgoing: Outgoing,
) {
    let (mut to_client, mut from_client) = socket.split();
    let sending = async {
        let mut pings = tokio::time::interval_at(tokio::time::Instant::now() + PING, PING);
        loop {
            let message = tokio::select! {
                frame = outgoing.next() => match frame {
                    Some(frame) => Message::Binary(frame),
                    None => break,
                },
                _ = pings.tick() => Message::Ping(Vec::new().into()),
            };
            if to_client.send(message).await.is_err() {
                break;
            }
        }
        to_client
    };
    let receiving = async {
        loop {
            let received = match tokio::time::timeout(PING * PINGS, from_client.next()).await {
                Ok(Some(Ok(message))) => message,
                _ => return streams.lost(),
            };
            match received {
                Message::Binary(frame) => {
                    if streams.receive(&frame).is_err() {
                        return;
                    }
                }
                Message::Ping(_) | Message::Pong(_) => {}
                Message::Text(_) | Message::Close(_) | Message::Frame(_) => {
                    return streams.lost();
                }
            }
        }
    };
    // a client that reads nothing holds up what is sent to it, and not the end
    let held_up = async {
        streams.ended().await;
        tokio::time::sleep(ENDING).await;
    };
    let sent = async {
        tokio::select! {
            to_client = sending => Some(to_client),
            () = receiving => None,
            () = held_up => None,
        }
    };
    let Some(mut to_client) = sent.await else { return };
    let (code, reason) = streams.closing();
    streams.lost();
    let code = CloseCode::from(u16::try_from(OWN_CODES + code).unwrap_or(u16::MAX));
    // a close frame has at most 123 bytes of reason
    let end =
        reason.char_indices().map(|(at, it)| at + it.len_utf8()).take_while(|end| *end <= 123);
    let reason = reason[..end.last().unwrap_or(0)].to_owned().into();
    let closing = to_client.send(Message::Close(Some(CloseFrame { code, reason })));
    let _ = tokio::time::timeout(ENDING, closing).await;
}
