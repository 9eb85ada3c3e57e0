//! The end that counts, and sends back.

use std::io::{self, IoSlice};
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use headroom_netio::udp::{Options, Train};
use headroom_netio::{Inbox, UdpSocket, errors, wait_readable};

use crate::form::{Answer, Header, Kind};

/// A socket for datagrams, and beside it one for connections, by which one sees that
/// the server is there.
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
        std::thread::spawn(move || connections.incoming().for_each(drop));
        let mut inbox = Inbox::new(16);
        let mut session = Session { number: 0, highest: 0, counted: 0 };
        loop {
            wait_readable(&[&socket], Some(Duration::from_secs(60)))?;
            if !take(&socket, &mut inbox) {
                continue;
            }
            for message in inbox.packets().filter(|message| !message.damaged) {
                let to = message.source;
                for datagram in message.body.chunks(message.segment_len.max(1)) {
                    let Some(header) = Header::read(datagram) else { continue };
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
