//! The end that counts, and sends back.

use std::io::{self, IoSlice, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use headroom_netio::udp::{Options, Train};
use headroom_netio::{Inbox, UdpSocket, errors, wait_readable};

use crate::film::Shown;
use crate::form::{Answer, Header, Kind};
use crate::player::Player;
use crate::reception::Reception;
use crate::session::{self, PATIENCE, Request};

/// Connections at once; more are closed.
const MOST_CONNECTIONS: usize = 16;
/// A stream is over when nothing of it came for so long.
const SILENCE: Duration = Duration::from_millis(600);
/// However many more come, it is over then.
const OVER: Duration = Duration::from_secs(8);

/// A film is over then, whoever shows it.
const LONGEST_FILM: Duration = Duration::from_secs(24 * 3600);

/// A socket for datagrams, and beside it one for connections, by which one sees that
/// the server is there and asks what became of a stream.
#[derive(Debug)]
pub struct Server {
    socket: UdpSocket,
    connections: TcpListener,
    player: Option<PathBuf>,
}

/// What is told of datagrams to those who ask, in threads of their own.
#[derive(Debug, Default)]
struct Heard {
    reception: Mutex<Reception>,
    /// Where packets of a film go on to, while there is one.
    screen: Mutex<Option<std::net::UdpSocket>>,
}

/// What was counted of the latest session.
#[derive(Debug, Clone, Copy)]
struct Session {
    number: u32,
    highest: u64,
    counted: u64,
}

impl Server {
    /// Opens both sockets; `player` is the ffmpeg that plays films, if they may be shown.
    ///
    /// # Errors
    /// What the kernel answered.
    pub fn bind(address: SocketAddr, player: Option<PathBuf>) -> io::Result<Self> {
        let connections = TcpListener::bind(address)?;
        let address = connections.local_addr()?;
        let socket = UdpSocket::bind(address, &Options::default())?;
        Ok(Self { socket, connections, player })
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
        let Self { socket, connections, player } = self;
        let heard = Arc::new(Heard::default());
        let shared = Arc::clone(&heard);
        thread::spawn(move || accept(&connections, &shared, player.as_deref()));
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
                        heard.hear(now_ns, datagram);
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

impl Heard {
    /// Takes what came; what belongs to a film goes on to its player.
    fn hear(&self, now_ns: u64, datagram: &[u8]) {
        if lock(&self.reception).hear(now_ns, datagram)
            && let Some(screen) = &*lock(&self.screen)
        {
            // what it has no room for is missing in its pictures, as it would be anyway
            let _ = screen.send(datagram);
        }
    }
}

/// Answers connections, each in a thread of its own.
fn accept(connections: &TcpListener, heard: &Arc<Heard>, player: Option<&Path>) {
    let open = Arc::new(AtomicUsize::new(0));
    for socket in connections.incoming().flatten() {
        if open.fetch_add(1, Ordering::Relaxed) >= MOST_CONNECTIONS {
            open.fetch_sub(1, Ordering::Relaxed);
            continue;
        }
        let (open, heard) = (Arc::clone(&open), Arc::clone(heard));
        let player = player.map(Path::to_owned);
        thread::spawn(move || {
            // whoever does not get an answer says so itself
            let _ = converse(&socket, &heard, player.as_deref());
            open.fetch_sub(1, Ordering::Relaxed);
        });
    }
}

fn converse(socket: &TcpStream, heard: &Heard, player: Option<&Path>) -> io::Result<()> {
    let Heard { reception, .. } = heard;
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
        Some(Request::Show { ssrc, seconds }) => {
            let player = player.ok_or_else(|| {
                io::Error::other("the server has no player: start it with --player")
            });
            match player.and_then(Player::start) {
                Ok(player) => show(socket, heard, player, ssrc, seconds),
                Err(error) => session::say(socket, &Err::<(), _>(error.to_string())),
            }
        }
    }
}

/// Follows a film, and answers what became of it.
fn show(
    socket: &TcpStream,
    heard: &Heard,
    player: Player,
    ssrc: u32,
    seconds: u32,
) -> io::Result<()> {
    *lock(&heard.reception) = Reception::of_film(ssrc);
    *lock(&heard.screen) = Some(player.way()?);
    session::say(socket, &Ok::<_, String>(()))?;
    let within = Duration::from_secs(seconds.into()).min(LONGEST_FILM) + PATIENCE;
    let question = session::hear_question(socket, within).inspect(|question| {
        wait_for_the_end(&heard.reception, question.sent);
    });
    *lock(&heard.screen) = None;
    let question = question?;
    let streamed = lock(&heard.reception).answer(&question);
    let shown = match (player.end(ssrc), streamed) {
        (Ok(frames), Some(streamed)) => Ok(Shown { streamed, frames }),
        (_, None) => Err("no packet of the film arrived".to_owned()),
        (Err(error), Some(seen)) => Err(format!("{error} ({} packets arrived)", seen.arrived)),
    };
    session::say(socket, &shown)
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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
    fn a_film_goes_on_to_its_player_and_nothing_else_does() {
        let screen = std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket");
        screen.set_nonblocking(true).expect("a mode");
        let way = std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket");
        way.connect(screen.local_addr().expect("its address")).expect("a way");
        let heard = Heard::default();
        *lock(&heard.reception) = Reception::of_film(7);
        let mut packet = [0; 40];
        let mut send = |ssrc: u32, number: u64| {
            crate::stream::packet(&mut packet, ssrc, number, 25.0, 0);
            heard.hear(1000 + number, &packet);
            packet
        };
        send(7, 0); // before there is a screen
        *lock(&heard.screen) = Some(way);
        let shown = [send(7, 1), send(7, 2)];
        send(8, 3); // of another source
        heard.hear(1, &crate::rtp::goodbye(7));
        heard.hear(1, b"no RTP at all");
        let mut seen = [0; 64];
        for packet in shown {
            let octets = screen.recv(&mut seen).expect("a packet");
            assert_eq!(seen[..octets], packet);
        }
        assert!(screen.recv(&mut seen).is_err(), "no more than these");
        assert_eq!(lock(&heard.reception).arrived(), 3);
    }

    #[test]
    fn a_client_that_is_gone_does_not_keep_the_server_busy() {
        let address = "127.0.0.1:0".parse().expect("an address");
        let server = Server::bind(address, None).expect("a server");
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
