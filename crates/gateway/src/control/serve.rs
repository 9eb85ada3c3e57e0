//! The gateway's process: brings a tunnel up, serves requests, and takes it down on request.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use headroom_ipsec::{Event, PeerMoved, Stage};
use nix::sys::signal::{SigSet, Signal};
use sd_notify::NotifyState;

use super::error::{Doing, Error};
use super::protocol::{Request, Response};
use super::server::{PendingRequest, Reply, Server};
use super::tunnel::{Options, Tunnel, TunnelEvent};
use crate::ike::Report;

/// The interval of checks.
const TICK: Duration = Duration::from_secs(1);

/// An event that the gateway waits for.
enum GatewayEvent {
    Request(PendingRequest),
    Signal(Signal),
    Event(TunnelEvent),
}

/// Brings a tunnel up and stays until it is taken down: by request, SIGTERM or
/// SIGINT. SIGHUP reloads. `log` receives messages for the user; `ready` is
/// called when packets pass.
///
/// Call it before the process has other threads: capabilities and the signals
/// that are waited for belong to threads.
///
/// # Errors
/// The tunnel cannot be brought up, or has failed. Then its traffic is blocked.
pub fn run(
    options: &Options,
    mut log: impl FnMut(&str),
    ready: impl FnOnce(),
) -> Result<(), Error> {
    headroom_netio::capabilities::keep_network_only().doing(|| {
        "give up all capabilities but CAP_NET_ADMIN and CAP_NET_RAW (are you root?)".into()
    })?;
    let (happens, happened) = channel();
    let signals = catch_signals()?;
    let (events, received) = channel();
    let mut tunnel = Tunnel::up(options.clone(), events)?;
    tunnel.warnings().iter().for_each(|warning| log(&format!("warning: {warning}")));
    forward(signals, received, &happens)?;
    let socket = options.run.socket(tunnel.name());
    let server =
        Server::start(&socket, move |asked| happens.send(GatewayEvent::Request(asked)).is_ok());
    let server = server.doing(|| super::error::path("listen at", &socket))?;
    log(&format!("{} is up", tunnel.name()));
    tell_service_manager(&[NotifyState::Ready]);
    ready();
    let mut next = Instant::now() + TICK;
    loop {
        let reply = match happened.recv_timeout(next.saturating_duration_since(Instant::now())) {
            Err(RecvTimeoutError::Timeout) => {
                next = Instant::now() + TICK;
                tunnel.tick()?;
                continue;
            }
            Err(RecvTimeoutError::Disconnected) => None,
            Ok(GatewayEvent::Signal(Signal::SIGHUP)) => {
                match reload(&mut tunnel, false) {
                    Ok(done) => {
                        log("reloaded");
                        done.iter().for_each(|words| log(words));
                    }
                    Err(error) => log(&format!("not reloaded: {error}")),
                }
                continue;
            }
            // SIGTERM or SIGINT
            Ok(GatewayEvent::Signal(_)) => None,
            Ok(GatewayEvent::Event(TunnelEvent::Ike(Report::Message(sentence)))) => {
                log(&sentence);
                continue;
            }
            Ok(GatewayEvent::Event(TunnelEvent::Ike(Report::Assigned(addresses)))) => {
                tunnel.assign(addresses).iter().for_each(|error| log(&error.to_string()));
                continue;
            }
            Ok(GatewayEvent::Event(TunnelEvent::Datapath(event))) => {
                log(&describe(&event));
                match &event {
                    Event::Lifetime { sa, stage: Stage::Expired } => tunnel.expired(sa),
                    Event::Lifetime { .. } => {}
                    Event::PeerMoved(moved) => tunnel.moved(moved),
                }
                continue;
            }
            Ok(GatewayEvent::Request(PendingRequest { request: Request::Down, reply })) => {
                Some(reply)
            }
            Ok(GatewayEvent::Request(PendingRequest { request, reply })) => {
                // the client may have disconnected
                let _ = reply.send(answer(&mut tunnel, request, &mut log));
                continue;
            }
        };
        return down(tunnel, &server, happened, reply, &mut log);
    }
}

fn answer(tunnel: &mut Tunnel, request: Request, log: &mut impl FnMut(&str)) -> Reply {
    match request {
        Request::Status => Reply::Answer(Response::Status { status: Box::new(tunnel.status()) }),
        Request::Trace { .. } => Reply::Trace(tunnel.trace()),
        Request::Reload { new_keys } => Reply::Answer(match reload(tunnel, new_keys) {
            Ok(done) => {
                log("reloaded");
                Response::Done { done }
            }
            Err(error) => {
                log(&format!("not reloaded: {error}"));
                Response::Error { error: error.to_string(), code: error.exit_code() }
            }
        }),
        Request::Down => Reply::Answer(Response::Done { done: Vec::new() }),
    }
}

fn reload(tunnel: &mut Tunnel, new_keys: bool) -> Result<Vec<String>, Error> {
    let since = NotifyState::monotonic_usec_now().ok();
    tell_service_manager(&[&[NotifyState::Reloading][..], since.as_slice()].concat());
    let outcome = tunnel.reload(new_keys);
    tell_service_manager(&[NotifyState::Ready]);
    outcome
}

fn down(
    tunnel: Tunnel,
    server: &Server,
    happened: Receiver<GatewayEvent>,
    reply: Option<Sender<Reply>>,
    log: &mut impl FnMut(&str),
) -> Result<(), Error> {
    tell_service_manager(&[NotifyState::Stopping]);
    let name = tunnel.name().to_owned();
    let outcome = tunnel.down();
    let Some(reply) = reply else {
        outcome?;
        log(&format!("{name} is down"));
        return Ok(());
    };
    let answer = match &outcome {
        Ok(()) => Response::Done { done: Vec::new() },
        Err(error) => Response::Error { error: error.to_string(), code: error.exit_code() },
    };
    let _ = reply.send(Reply::Answer(answer));
    drop(reply);
    server.finish(happened);
    outcome
}

/// Blocks the signals that the gateway waits for.
fn catch_signals() -> Result<SigSet, Error> {
    let signals: SigSet = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP].into_iter().collect();
    let blocked = signals.thread_block().map_err(std::io::Error::from);
    blocked.doing(|| "watch for signals".into())?;
    Ok(signals)
}

/// Forwards signals and the datapath's events.
fn forward(
    signals: SigSet,
    events: Receiver<TunnelEvent>,
    happens: &Sender<GatewayEvent>,
) -> Result<(), Error> {
    let thread = |name: &str| std::thread::Builder::new().name(name.into());
    let to = happens.clone();
    let signalled = thread("signals").spawn(move || {
        while let Ok(signal) = signals.wait() {
            if to.send(GatewayEvent::Signal(signal)).is_err() {
                return;
            }
        }
    });
    signalled.doing(|| "start a thread".into())?;
    let to = happens.clone();
    let forwarder = thread("events").spawn(move || {
        for event in events {
            if to.send(GatewayEvent::Event(event)).is_err() {
                return;
            }
        }
    });
    forwarder.doing(|| "start a thread".into())?;
    Ok(())
}

fn describe(event: &Event) -> String {
    match event {
        Event::PeerMoved(PeerMoved { configured, now, changes: 1, .. }) => {
            format!("the peer {configured} is now at {now}")
        }
        Event::PeerMoved(PeerMoved { configured, now, changes, .. }) => {
            format!("the peer {configured} is now at {now}: change {changes}")
        }
        Event::Lifetime { sa, stage: Stage::Active } => format!("`{sa}` is in use"),
        Event::Lifetime { sa, stage: Stage::Soft } => {
            format!("`{sa}` has reached a soft limit: new keys are due")
        }
        Event::Lifetime { sa, stage: Stage::Expired } => {
            format!("`{sa}` has reached a hard limit and is out of use: it needs new keys")
        }
    }
}

/// Tells the service manager, if one asked for it; what it does not hear is no failure.
fn tell_service_manager(state: &[NotifyState<'_>]) {
    let _ = sd_notify::notify(state);
}
