//! The end that counts, and sends back.

use std::io::{self, IoSlice, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use headroom_netio::udp::{Options, Train};
use headroom_netio::{Inbox, UdpSocket, errors, wait_readable};

use crate::form::{Answer, Header, Kind};
use crate::reception::Reception;
use crate::session::{self, Request};

/// Connections at once; more are closed.
const MOST_CONNECTIONS: usize = 16;
/// A stream is over when nothing of it came for so long.
const SILENCE: Duration = Duration::from_millis(600);
/// However many more come, it is over then.
const OVER: Duration = Duration::from_secs(8);

/// A socket for datagrams, and beside it one for connections, by which one sees that
/// the server is there and asks what became of a stream.
#[derive(Debug)]
pub struct Server {
    socket: UdpSocket,
    connections: TcpListener,
}

/// What was counted of the latest session.
#[derive(Debug, Clone, Copy)]
struct Session {
    number: u32,
    highest: u64,
    counted: u64,
}

impl Server {
    /// Opens both sockets.
    ///
    /// # Errors
    /// What the kernel answered.
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        let connections = TcpListener::bind(address)?;
        let address = connections.local_addr()?;
        Ok(Self { socket: UdpSocket::bind(address, &Options::default())?, connections })
    }

    /// Where it listens.
    pub fn local(&self) -> SocketAddr {
        self.socket.local()
    }

    /// Answers for ever.
    ///
    /// # Errors
    /// What the kernel answered.
    pub fn run(self) -> io::Result<()> {
        let Self { socket, connections } = self;
        let reception = Arc::new(Mutex::new(Reception::default()));
        let shared = Arc::clone(&reception);
        thread::spawn(move || accept(&connections, &shared));
        let mut inbox = Inbox::new(16);
        let mut session = Session { number: 0, highest: 0, counted: 0 };
        loop {
            wait_readable(&[&socket], Some(Duration::from_secs(60)))?;
            if !take(&socket, &mut inbox) {
                continue;
            }
            let now_ns = crate::now_ns();
            for message in inbox.packets().filter(|message| !message.damaged) {
                let to = message.source;
                for datagram in message.body.chunks(message.segment_len.max(1)) {
                    let Some(header) = Header::read(datagram) else {
                        lock(&reception).hear(now_ns, datagram);
                        continue;
                    };
                    match header.kind {
                        Kind::Counted => session.count(&header),
                        Kind::Asking => {
                            session.count(&header);
                            send(&socket, to, &session.answer().octets());
                        }
                        Kind::Echo => send(&socket, to, datagram),
                        Kind::Answer => {}
                    }
                }
            }
        }
    }
}

/// Answers connections, each in a thread of its own.
fn accept(connections: &TcpListener, reception: &Arc<Mutex<Reception>>) {
    let open = Arc::new(AtomicUsize::new(0));
    for socket in connections.incoming().flatten() {
        if open.fetch_add(1, Ordering::Relaxed) >= MOST_CONNECTIONS {
            open.fetch_sub(1, Ordering::Relaxed);
            continue;
        }
        let (open, reception) = (Arc::clone(&open), Arc::clone(reception));
        thread::spawn(move || {
            // whoever does not get an answer says so itself
            let _ = converse(&socket, &reception);
            open.fetch_sub(1, Ordering::Relaxed);
        });
    }
}

fn converse(socket: &TcpStream, reception: &Mutex<Reception>) -> io::Result<()> {
    match session::hear(socket)? {
        None => Ok(()),
        Some(Request::Begin { ssrc }) => {
            *lock(reception) = Reception::new(ssrc);
            session::say(socket, &true)
        }
        Some(Request::Report(question)) => {
            wait_for_the_end(reception, question.sent);
            let answer = lock(reception).answer(&question);
            session::say(socket, &answer)
        }
        Some(Request::Bulk) => take_bulk(socket, reception),
    }
}

/// Waits until all of a stream has arrived, or nothing more of it comes.
fn wait_for_the_end(reception: &Mutex<Reception>, sent: Option<u64>) {
    let asked = Instant::now();
    let (mut before, mut since) = (0, Instant::now());
    while asked.elapsed() < OVER && since.elapsed() < SILENCE {
        let arrived = lock(reception).arrived();
        if sent.is_some_and(|sent| arrived >= sent) {
            return;
        }
        if arrived != before {
            (before, since) = (arrived, Instant::now());
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// Takes what comes, until its sender breaks off.
fn take_bulk(mut socket: &TcpStream, reception: &Mutex<Reception>) -> io::Result<()> {
    let mut block = vec![0; 1 << 18];
    loop {
        match socket.read(&mut block) {
            Ok(0) => return Ok(()),
            Ok(octets) => lock(reception).hear_beside(crate::now_ns(), octets as u64),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn lock(reception: &Mutex<Reception>) -> MutexGuard<'_, Reception> {
    reception.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Receives a batch, if there is one. A client that has ended, or whose way is
/// gone, refuses its answer, and the socket is readable until that was read.
fn take(socket: &UdpSocket, inbox: &mut Inbox) -> bool {
    let received = matches!(socket.receive(inbox), Ok(1..));
    if !received {
        while let Ok(Some(_)) = errors::read(socket) {}
    }
    received
}

impl Session {
    fn count(&mut self, header: &Header) {
        if self.number != header.session {
            *self = Self { number: header.session, highest: 0, counted: 0 };
        }
        self.highest = self.highest.max(header.number);
        self.counted += 1;
    }

    fn answer(&self) -> Answer {
        Answer { session: self.number, highest: self.highest, counted: self.counted }
    }
}

/// Sends one datagram; whoever waits for it finds out that it did not come.
fn send(socket: &UdpSocket, to: SocketAddr, datagram: &[u8]) {
    let datagrams = [IoSlice::new(datagram)];
    let train = Train {
        destination: to,
        source: None,
        tos: 0,
        dont_fragment: false,
        datagrams: &datagrams,
    };
    let _ = socket.send(&train);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_is_gone_does_not_keep_the_server_busy() {
        let server = Server::bind("127.0.0.1:0".parse().expect("an address")).expect("a server");
        let client = std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let gone = client.local_addr().expect("its address");
        drop(client);
        send(&server.socket, gone, b"an answer that is refused");
        let mut inbox = Inbox::new(1);
        let a_second = Some(Duration::from_secs(1));
        wait_readable(&[&server.socket], a_second).expect("the refusal");
        assert!(!take(&server.socket, &mut inbox), "nothing was received");
        // poll(2) tells of nothing any more
        let ready = wait_readable(&[&server.socket], Some(Duration::ZERO)).expect("an answer");
        assert_eq!(ready, 0);
    }
}
