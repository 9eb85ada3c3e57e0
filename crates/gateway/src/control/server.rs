//! Serves the control socket, with limits on clients, their number, and the length of lines.

use std::io::{self, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use nix::sys::socket::{getsockopt, sockopt};
use serde::Serialize;

use super::protocol::{Request, Response};
use crate::datapath::tracer::Trace;

/// The most clients at once.
const MAX_CLIENTS: usize = 16;
/// The time limit for a client to send or to accept a line.
const TIMEOUT: Duration = Duration::from_secs(5);
/// How often an idle trace checks whether its client is still connected.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// A request, and the channel for its response.
#[derive(Debug)]
pub(super) struct PendingRequest {
    pub(super) request: Request,
    pub(super) reply: Sender<Reply>,
}

/// The gateway's reply to a request.
#[derive(Debug)]
pub(super) enum Reply {
    Answer(Response),
    /// Records to forward.
    Trace(Trace),
}

/// The control socket's server.
#[derive(Debug)]
pub(super) struct Server {
    clients: Arc<AtomicUsize>,
}

impl Server {
    /// Starts listening. Passes each request to `submit`.
    pub(super) fn start(
        path: &Path,
        submit: impl Fn(PendingRequest) -> bool + Send + Sync + 'static,
    ) -> io::Result<Self> {
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(path)?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
        let clients = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&clients);
        let submit = Arc::new(submit);
        std::thread::Builder::new().name("control".into()).spawn(move || {
            for stream in listener.incoming() {
                match stream {
                    Ok(stream) => accept(stream, &counted, &submit),
                    // no descriptors at the moment
                    Err(_) => std::thread::sleep(POLL_INTERVAL),
                }
            }
        })?;
        Ok(Self { clients })
    }

    /// Closes the connections whose `requests` wait for a response that will not come, and waits until
    /// all others have theirs, at most 2 s.
    pub(super) fn finish<T>(&self, requests: Receiver<T>) {
        drop(requests);
        self.wait();
    }

    fn wait(&self) {
        let end = Instant::now() + Duration::from_secs(2);
        while self.clients.load(Ordering::Acquire) > 0 && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn accept<F: Fn(PendingRequest) -> bool + Send + Sync + 'static>(
    stream: UnixStream,
    clients: &Arc<AtomicUsize>,
    submit: &Arc<F>,
) {
    let slot = ConnectionSlot::take(clients);
    let _ = stream.set_read_timeout(Some(TIMEOUT));
    let _ = stream.set_write_timeout(Some(TIMEOUT));
    if !is_authorized(&stream) {
        return refuse(&stream, "only root and the gateway's user may use this socket");
    }
    if slot.number > MAX_CLIENTS {
        return refuse(&stream, "too many clients; try again");
    }
    let submit = Arc::clone(submit);
    // if no thread can be started, the connection is closed
    let _ = std::thread::Builder::new().name("request".into()).spawn(move || {
        let _slot = slot;
        let _ = serve(&stream, submit.as_ref());
    });
}

/// A slot for a client, released when dropped.
struct ConnectionSlot {
    clients: Arc<AtomicUsize>,
    number: usize,
}

impl ConnectionSlot {
    fn take(clients: &Arc<AtomicUsize>) -> Self {
        let number = clients.fetch_add(1, Ordering::AcqRel) + 1;
        Self { clients: Arc::clone(clients), number }
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.clients.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Checks the client's user. The socket's mode does as well, but might have been changed.
fn is_authorized(stream: &UnixStream) -> bool {
    let own = nix::unistd::geteuid().as_raw();
    getsockopt(stream, sockopt::PeerCredentials)
        .is_ok_and(|peer| peer.uid() == 0 || peer.uid() == own)
}

fn refuse(stream: &UnixStream, error: &str) {
    let _ = send_line(stream, &Response::Error { error: error.into(), code: 1 });
}

fn send_line(mut stream: &UnixStream, what: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(what)?;
    line.push(b'\n');
    stream.write_all(&line)
}

/// Serves one client until it disconnects.
fn serve(stream: &UnixStream, submit: &dyn Fn(PendingRequest) -> bool) -> io::Result<()> {
    let mut reader = BufReader::new(stream);
    loop {
        let request = match Request::read(&mut reader) {
            Ok(Some(request)) => request,
            Ok(None) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                refuse(stream, &error.to_string());
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let (reply, answer) = channel();
        if !submit(PendingRequest { request, reply }) {
            return Ok(());
        }
        match answer.recv() {
            Ok(Reply::Answer(answer)) => send_line(stream, &answer)?,
            Ok(Reply::Trace(trace)) => {
                let count = if let Request::Trace { count } = request { count } else { None };
                forward_trace(stream, &trace, count)?;
            }
            Err(_) => return Ok(()),
        }
    }
}

/// Forwards records until `count` is reached, the client disconnects or the gateway ends.
fn forward_trace(stream: &UnixStream, trace: &Trace, count: Option<u64>) -> io::Result<()> {
    #[derive(Serialize)]
    struct Line<'a> {
        record: &'a crate::datapath::tracer::Entry,
    }
    let mut left = count.unwrap_or(u64::MAX);
    let mut missed = 0;
    while left > 0 {
        match trace.next(POLL_INTERVAL) {
            Ok(Some(record)) => {
                send_line(stream, &Line { record: &record })?;
                left -= 1;
            }
            Ok(None) if is_closed(stream) => return Ok(()),
            Ok(None) => {}
            Err(_) => break,
        }
        missed += trace.dropped();
    }
    let done = if missed > 0 {
        vec![format!("{missed} records are not shown: the reader was too slow")]
    } else {
        Vec::new()
    };
    send_line(stream, &Response::Done { done })
}

/// Whether the client has closed the connection.
fn is_closed(mut stream: &UnixStream) -> bool {
    let _ = stream.set_nonblocking(true);
    let read = headroom_netio::retried(|| stream.read(&mut [0; 64]));
    let _ = stream.set_nonblocking(false);
    matches!(read, Ok(0)) || read.is_err_and(|error| error.kind() != io::ErrorKind::WouldBlock)
}

#[cfg(test)]
mod tests;
