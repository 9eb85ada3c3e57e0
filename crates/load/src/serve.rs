//! The server: counts datagrams, returns echoes, receives streams.

use std::io::{self, IoSlice, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use headroom_lab_trace::StreamStats;
use headroom_mutex::lock;
use headroom_netio::udp::{Options, Train};
use headroom_netio::{Inbox, UdpSocket, errors, wait_readable};

use crate::datagram::{DatagramKind, Header, Report};
use crate::decoder::VideoDecoder;
use crate::net::now_ns;
use crate::rtp_receiver::RtpReceiver;
use crate::session::{self, Request, TIMEOUT};

/// Bound of concurrent connections; the server closes further ones.
const MAX_CONNECTIONS: usize = 16;
/// How often to try to find a port that is free for UDP and TCP.
const TRIES: usize = 16;
/// A stream has ended when none of its packets arrives for this time.
const SILENCE: Duration = Duration::from_millis(600);
/// A stream has ended this long after the query, even if packets still arrive.
const MAX_TAIL: Duration = Duration::from_secs(8);
/// Longest video.
const MAX_VIDEO: Duration = Duration::from_secs(24 * 3600);

/// A UDP socket for datagrams, and a TCP socket on the same port for requests, which also
/// shows that the server is up.
#[derive(Debug)]
pub struct Server {
    socket: UdpSocket,
    connections: TcpListener,
    decoder: Option<PathBuf>,
}

/// State that the receiving thread shares with the threads of connections.
#[derive(Debug, Default)]
struct Shared {
    receiver: Mutex<RtpReceiver>,
    /// Forwards packets of a video to its decoder, while there is one.
    to_decoder: Mutex<Option<std::net::UdpSocket>>,
}

/// The count of the latest session.
#[derive(Debug, Clone, Copy)]
struct Session {
    number: u32,
    highest: u64,
    counted: u64,
}

impl Server {
    /// Opens both sockets; port 0 chooses one that is free for both. `decoder` is the ffmpeg that
    /// decodes videos; none: the server rejects videos.
    ///
    /// # Errors
    /// A system call failed.
    pub fn bind(address: SocketAddr, decoder: Option<PathBuf>) -> io::Result<Self> {
        let mut tries = if address.port() == 0 { TRIES } else { 1 };
        loop {
            let connections = TcpListener::bind(address)?;
            tries -= 1;
            match UdpSocket::bind(connections.local_addr()?, &Options::default()) {
                Ok(socket) => return Ok(Self { socket, connections, decoder }),
                // the system chose a port whose number another program uses for UDP
                Err(error) if error.kind() == io::ErrorKind::AddrInUse && tries > 0 => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns the address of both sockets.
    pub fn local(&self) -> SocketAddr {
        self.socket.local()
    }

    /// Serves until an error.
    ///
    /// # Errors
    /// A system call failed.
    pub fn run(self) -> io::Result<()> {
        let Self { socket, connections, decoder } = self;
        let shared = Arc::new(Shared::default());
        {
            let shared = Arc::clone(&shared);
            thread::spawn(move || accept(&connections, &shared, decoder.as_deref()));
        }
        let mut inbox = Inbox::new(16);
        let mut session = Session { number: 0, highest: 0, counted: 0 };
        loop {
            wait_readable(&[&socket], Some(Duration::from_secs(60)))?;
            if !receive_batch(&socket, &mut inbox) {
                continue;
            }
            let now_ns = now_ns();
            for message in inbox.packets().filter(|message| !message.truncated) {
                let to = message.source;
                for datagram in message.body.chunks(message.segment_len.max(1)) {
                    let Some(header) = Header::read(datagram) else {
                        shared.receive(now_ns, datagram);
                        continue;
                    };
                    match header.kind {
                        DatagramKind::Data => session.count(&header),
                        DatagramKind::Query => {
                            session.count(&header);
                            send(&socket, to, &session.report().octets());
                        }
                        DatagramKind::Echo => send(&socket, to, datagram),
                        DatagramKind::Report => {}
                    }
                }
            }
        }
    }
}

impl Shared {
    /// Records a datagram, and forwards it if it belongs to a video.
    fn receive(&self, now_ns: u64, datagram: &[u8]) {
        if lock(&self.receiver).receive(now_ns, datagram)
            && let Some(decoder) = &*lock(&self.to_decoder)
        {
            // a packet that the decoder has no buffer for is lost, as for any receiver
            let _ = decoder.send(datagram);
        }
    }
}

/// Accepts connections and serves each in a thread of its own.
fn accept(connections: &TcpListener, shared: &Arc<Shared>, decoder: Option<&Path>) {
    let open = Arc::new(AtomicUsize::new(0));
    for socket in connections.incoming().flatten() {
        if open.fetch_add(1, Ordering::Relaxed) >= MAX_CONNECTIONS {
            open.fetch_sub(1, Ordering::Relaxed);
            continue;
        }
        let (open, shared) = (Arc::clone(&open), Arc::clone(shared));
        let decoder = decoder.map(Path::to_owned);
        thread::spawn(move || {
            // a client without an answer reports that itself
            let _ = handle(&socket, &shared, decoder.as_deref());
            open.fetch_sub(1, Ordering::Relaxed);
        });
    }
}

fn handle(socket: &TcpStream, shared: &Shared, decoder: Option<&Path>) -> io::Result<()> {
    let Shared { receiver, .. } = shared;
    match session::recv_request(socket)? {
        None => Ok(()),
        Some(Request::Begin { ssrc }) => {
            *lock(receiver) = RtpReceiver::new(ssrc);
            session::send(socket, &true)
        }
        Some(Request::Report(query)) => {
            wait_for_end(receiver, query.sent);
            let stats = lock(receiver).stats(&query);
            session::send(socket, &stats)
        }
        Some(Request::Bulk) => receive_cross_traffic(socket, receiver),
        Some(Request::Show { ssrc, seconds }) => {
            let decoder = decoder.ok_or_else(|| {
                io::Error::other("the server has no decoder: start it with --decoder")
            });
            match decoder.and_then(VideoDecoder::start) {
                Ok(decoder) => receive_video(socket, shared, decoder, ssrc, seconds),
                Err(error) => session::send(socket, &Err::<(), _>(error.to_string())),
            }
        }
    }
}

/// Receives a video and answers with its statistics.
fn receive_video(
    socket: &TcpStream,
    shared: &Shared,
    decoder: VideoDecoder,
    ssrc: u32,
    seconds: u32,
) -> io::Result<()> {
    *lock(&shared.receiver) = RtpReceiver::of_video(ssrc);
    *lock(&shared.to_decoder) = Some(decoder.socket()?);
    session::send(socket, &Ok::<_, String>(()))?;
    let within = Duration::from_secs(seconds.into()).min(MAX_VIDEO) + TIMEOUT;
    let query = session::recv_query(socket, within).inspect(|query| {
        wait_for_end(&shared.receiver, query.sent);
    });
    *lock(&shared.to_decoder) = None;
    let stream = lock(&shared.receiver).stats(&query?);
    let stats = match (decoder.end(ssrc), stream) {
        (Ok(frames), Some(stream)) => Ok(StreamStats { frames: Some(frames), ..stream }),
        (_, None) => Err("no packet of the video arrived".to_owned()),
        (Err(error), Some(seen)) => Err(format!("{error} ({} packets arrived)", seen.arrived)),
    };
    session::send(socket, &stats)
}

/// Waits until all packets of a stream have arrived, or no more arrive.
fn wait_for_end(receiver: &Mutex<RtpReceiver>, sent: Option<u64>) {
    let asked = Instant::now();
    let (mut before, mut since) = (0, Instant::now());
    while asked.elapsed() < MAX_TAIL && since.elapsed() < SILENCE {
        let arrived = lock(receiver).arrived();
        if sent.is_some_and(|sent| arrived >= sent) {
            return;
        }
        if arrived != before {
            (before, since) = (arrived, Instant::now());
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// Counts cross traffic until its sender resets the connection.
fn receive_cross_traffic(mut socket: &TcpStream, receiver: &Mutex<RtpReceiver>) -> io::Result<()> {
    let mut block = vec![0; 1 << 18];
    loop {
        match socket.read(&mut block) {
            Ok(0) => return Ok(()),
            Ok(octets) => lock(receiver).receive_cross_traffic(now_ns(), octets as u64),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Receives a batch, if there is one. A client that has gone refuses its reply (ICMP), and
/// the socket stays readable until the error queue has been read.
fn receive_batch(socket: &UdpSocket, inbox: &mut Inbox) -> bool {
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

    fn report(&self) -> Report {
        Report { session: self.number, highest: self.highest, counted: self.counted }
    }
}

/// Sends one datagram. A lost one is the client's to notice.
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
    fn forwards_a_video_to_its_decoder_and_nothing_else() {
        let decoder = std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket");
        decoder.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
        let to_decoder = std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket");
        to_decoder.connect(decoder.local_addr().expect("its address")).expect("connected");
        let shared = Shared::default();
        *lock(&shared.receiver) = RtpReceiver::of_video(7);
        let mut packet = [0; 40];
        let mut send = |ssrc: u32, number: u64| {
            crate::stamped::write(&mut packet, ssrc, number, 25.0, 0);
            shared.receive(1000 + number, &packet);
            packet
        };
        send(7, 0); // before there is a decoder
        *lock(&shared.to_decoder) = Some(to_decoder);
        let forwarded = [send(7, 1), send(7, 2)];
        send(8, 3); // of another source
        shared.receive(1, &crate::rtp::bye(7));
        shared.receive(1, b"no RTP at all");
        let mut seen = [0; 64];
        for packet in forwarded {
            let octets = headroom_netio::retried(|| decoder.recv(&mut seen)).expect("a packet");
            assert_eq!(seen[..octets], packet);
        }
        decoder.set_nonblocking(true).expect("a mode");
        assert!(decoder.recv(&mut seen).is_err(), "no more than these");
        assert_eq!(lock(&shared.receiver).arrived(), 3);
    }

    #[test]
    fn a_client_that_has_gone_does_not_keep_the_server_busy() {
        let address = "127.0.0.1:0".parse().expect("an address");
        let server = Server::bind(address, None).expect("a server");
        // a port that nobody gets by chance, as one that was just closed might be
        let gone = "127.0.0.1:9".parse().expect("an address");
        send(&server.socket, gone, b"an answer that is refused");
        let mut inbox = Inbox::new(1);
        let a_second = Some(Duration::from_secs(1));
        wait_readable(&[&server.socket], a_second).expect("the refusal");
        assert!(!receive_batch(&server.socket, &mut inbox), "nothing was received");
        // poll(2) reports nothing any more
        let ready = wait_readable(&[&server.socket], Some(Duration::ZERO)).expect("an answer");
        assert_eq!(ready, 0);
    }
}
