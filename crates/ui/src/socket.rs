//! The WebSocket of events: what runs, and how far it is. A page that was reloaded sees all of it.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Message, Role, WebSocketConfig};

use crate::access::Refusals;
use crate::local::text_of;
use crate::state::Shared;

/// The most bytes of a message of the page, which sends nothing but the token.
const MAX_MESSAGE: usize = 1 << 10;
/// How long the token may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often the page hears of what runs.
const OFTEN: Duration = Duration::from_millis(250);
/// How long a page may take for a message, and how often a silent one is pinged.
const SENDING: Duration = Duration::from_secs(10);
const PING: Duration = Duration::from_secs(15);
/// The close code for a page without the token.
const NO_TOKEN: u16 = 4001;

pub(crate) async fn serve(shared: &Arc<Shared>, upgrade: OnUpgrade) -> Result<(), hyper::Error> {
    let stream = TokioIo::new(upgrade.await?);
    // what waits to be written has no limit of its own: it is one message, as long as the state
    // that it shows, and a page that was refused it would ask for the same again
    let config = WebSocketConfig::default()
        .max_message_size(Some(MAX_MESSAGE))
        .max_frame_size(Some(MAX_MESSAGE));
    let mut socket = WebSocketStream::from_raw_socket(stream, Role::Server, Some(config)).await;
    let first = tokio::time::timeout(PATIENCE, socket.next()).await;
    let is_known = match first {
        Ok(Some(Ok(Message::Text(text)))) => {
            let message: Option<Value> = serde_json::from_str(text.as_str()).ok();
            message.is_some_and(|it| it["token"].as_str().is_some_and(|it| shared.token.is(it)))
        }
        _ => false,
    };
    if !is_known {
        Refusals::count(&shared.refusals.tokens);
        let frame = CloseFrame {
            code: CloseCode::from(NO_TOKEN),
            reason: "the token is missing or wrong".into(),
        };
        let _ = tokio::time::timeout(SENDING, socket.send(Message::Close(Some(frame)))).await;
        return Ok(());
    }
    let (mut to_page, mut from_page) = socket.split();
    let sending = async {
        let mut send = async |message| {
            tokio::time::timeout(SENDING, to_page.send(message))
                .await
                .is_ok_and(|sent| sent.is_ok())
        };
        let greeting = greeting(shared);
        if !send(Message::Text(greeting.to_string().into())).await {
            return;
        }
        let (mut changed, mut lab_changed) = (shared.transfers.subscribe(), shared.lab.subscribe());
        let (mut fleets_changed, _looking) = (shared.fleets.subscribe(), shared.fleets.look());
        let (mut since, mut lab_since, mut fleets_since) = (0, 0, 0);
        let mut servers = Value::Null;
        let mut pings = tokio::time::interval(PING);
        loop {
            let (transfers, version) = shared.transfers.changes(since);
            let mut message = json!({"transfers": transfers});
            since = version;
            let now = shared.servers.json();
            if now != servers {
                message["servers"] = now.clone();
                servers = now;
            }
            if let Some((lab, version)) = shared.lab.changes(lab_since) {
                message["lab"] = lab;
                lab_since = version;
            }
            if let Some((fleets, version)) = shared.fleets.changes(fleets_since) {
                message["fleets"] = fleets;
                fleets_since = version;
            }
            if !send(Message::Text(message.to_string().into())).await {
                return;
            }
            // at most so often, and as long as nothing runs only when something changes
            tokio::time::sleep(OFTEN).await;
            if shared.transfers.active() > 0 {
                continue;
            }
            tokio::select! {
                _ = changed.changed() => {}
                _ = lab_changed.changed() => {}
                _ = fleets_changed.changed() => {}
                _ = pings.tick() => if !send(Message::Ping(Vec::new().into())).await { return },
            }
        }
    };
    let receiving = async {
        // the page has nothing more to send; its pongs show that it is there
        while let Ok(Some(Ok(message))) = tokio::time::timeout(PING * 4, from_page.next()).await {
            if matches!(message, Message::Text(_) | Message::Binary(_) | Message::Close(_)) {
                return;
            }
        }
    };
    tokio::select! {
        () = sending => {}
        () = receiving => {}
    }
    Ok(())
}

/// Returns what a page must know first.
fn greeting(shared: &Shared) -> Value {
    let home = std::env::var_os("HOME").map(std::path::PathBuf::from).unwrap_or_else(|| "/".into());
    json!({
        "program": concat!("headroom ", env!("CARGO_PKG_VERSION")),
        "folder": text_of(&shared.folder), "home": text_of(&home),
        "suggestions": shared.servers.suggestions(),
        "root": nix::unistd::geteuid().is_root(),
    })
}
