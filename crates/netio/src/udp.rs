//! A UDP socket that sends and receives trains: many datagrams of one length in one system call and
//! one pass through the kernel (`UDP_SEGMENT`, `UDP_GRO`).

use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use crate::control::Control;
use crate::inbox::Inbox;
use crate::socket;

/// The most datagrams of one train (`UDP_MAX_SEGMENTS` of older kernels).
pub const MAX_SEGMENTS: usize = 64;
/// The most bytes of one train: with headers at most 65,535.
pub const MAX_TRAIN: usize = 65_000;
/// Words of control messages of one send: segment length, TOS, source address.
const CONTROL_WORDS: usize = 16;

/// The options of a new socket.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// The mark of its packets, for `ip rule fwmark`. Needs `CAP_NET_ADMIN`.
    pub mark: Option<u32>,
    /// Whether it joins a port that another socket of this user shares: [`UdpSocket::share_port`].
    pub join_port: bool,
    /// Whether an IPv6 socket also sends and receives IPv4, with addresses as `::ffff:a.b.c.d`.
    pub dual_stack: bool,
    /// Whether to ignore reports of routers and peers about datagrams (ICMP).
    pub ignore_errors: bool,
}

/// Datagrams to one destination, all of one length except the last, which may be shorter.
#[derive(Debug, Clone, Copy)]
pub struct Train<'a> {
    /// The destination.
    pub destination: SocketAddr,
    /// The source address; None: chosen by the kernel.
    pub source: Option<IpAddr>,
    /// DSCP and ECN of the IP header.
    pub tos: u8,
    /// Whether routers must not fragment the datagrams (DF of IPv4; in IPv6 false lets this host
    /// fragment them).
    pub dont_fragment: bool,
    /// The payloads, one slice per datagram, at most [`MAX_SEGMENTS`] with [`MAX_TRAIN`] bytes.
    pub datagrams: &'a [IoSlice<'a>],
}

/// The addresses of a train, and settings of its IP headers.
#[derive(Debug, Clone, Copy)]
pub struct Path {
    /// The destination.
    pub destination: SocketAddr,
    /// The source address; None: chosen by the kernel.
    pub source: Option<IpAddr>,
    /// DSCP and ECN of the IP header.
    pub tos: u8,
}

/// A socket of one address family. One thread may send, and one may receive.
#[derive(Debug)]
pub struct UdpSocket {
    socket: OwnedFd,
    local: SocketAddr,
    dual_stack: bool,
    /// Whether the kernel segments trains; set after a failed attempt.
    has_gso: AtomicBool,
    /// The current setting of path MTU discovery.
    discovery: AtomicU8,
}

impl UdpSocket {
    /// Lets further sockets join its port ([`Options::join_port`]). It is bound alone: whoever joins
    /// when binding would silently get a part of the datagrams of another program of the same user,
    /// even with port 0.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn share_port(&self) -> io::Result<()> {
        socket::set_number(&self.socket, libc::SOL_SOCKET, libc::SO_REUSEPORT, 1)
    }

    /// Opens a socket on `address` (port 0: any) in the network namespace of the calling thread.
    ///
    /// # Errors
    /// The error of the kernel: `EADDRINUSE`, `EADDRNOTAVAIL`, `EPERM` for the mark.
    pub fn bind(address: SocketAddr, options: &Options) -> io::Result<Self> {
        let family = socket::family_of(&address.ip());
        let socket = socket::open(family, libc::SOCK_DGRAM, libc::IPPROTO_UDP)?;
        if options.join_port {
            socket::set_number(&socket, libc::SOL_SOCKET, libc::SO_REUSEPORT, 1)?;
        }
        if let Some(mark) = options.mark {
            socket::set_mark(&socket, mark)?;
        }
        let dual_stack = options.dual_stack && address.is_ipv6();
        let (level, wanted, errors) = if address.is_ipv4() {
            (libc::IPPROTO_IP, [libc::IP_PKTINFO, libc::IP_RECVTOS], libc::IP_RECVERR)
        } else {
            let only = libc::c_int::from(!dual_stack);
            socket::set_number(&socket, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, only)?;
            let wanted = [libc::IPV6_RECVPKTINFO, libc::IPV6_RECVTCLASS];
            (libc::IPPROTO_IPV6, wanted, libc::IPV6_RECVERR)
        };
        for option in wanted.into_iter().chain((!options.ignore_errors).then_some(errors)) {
            socket::set_number(&socket, level, option, 1)?;
        }
        if dual_stack {
            socket::set_number(&socket, libc::IPPROTO_IP, libc::IP_RECVTOS, 1)?;
        }
        socket::set_number(&socket, libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 1)?;
        socket::set_number(&socket, libc::SOL_UDP, libc::UDP_GRO, 1)?;
        socket::enlarge_buffers(&socket)?;
        socket::limit_wait(&socket)?;
        socket::bind(&socket, &address)?;
        let local = socket::local_address(&socket)?;
        Ok(Self {
            socket,
            local,
            dual_stack,
            has_gso: AtomicBool::new(true),
            discovery: AtomicU8::new(u8::MAX),
        })
    }

    /// Returns the address of the socket.
    #[must_use]
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// Returns the bytes of received datagrams that the kernel can queue, including its overhead.
    #[must_use]
    pub fn receive_buffer(&self) -> usize {
        let size = socket::get_number(&self.socket, libc::SOL_SOCKET, libc::SO_RCVBUF);
        size.map_or(0, |size| size.max(0) as usize)
    }

    /// Checks whether trains are sent in one call, as far as is known.
    #[must_use]
    pub fn has_gso(&self) -> bool {
        self.has_gso.load(Ordering::Relaxed)
    }

    /// Sends a train; waits briefly if the buffer of the kernel is full. If the kernel or the
    /// interface cannot segment trains, it sends single datagrams from then on.
    ///
    /// # Errors
    /// The number of sent datagrams, and the error of the kernel about the next: `EMSGSIZE` if it
    /// exceeds the path MTU, `ENETUNREACH`, `EAGAIN` if the buffer was full for a quarter of a
    /// second.
    pub fn send(&self, train: &Train<'_>) -> Result<(), (usize, io::Error)> {
        self.set_discovery(train.dont_fragment).map_err(|error| (0, error))?;
        let one = train.datagrams.len() == 1;
        if one || self.has_gso() {
            match self.send_whole(train) {
                Ok(()) => return Ok(()),
                Err(error) if one || !may_pass_singly(&error) => return Err((0, error)),
                Err(error) => {
                    self.send_singly(train)?;
                    self.note_refused_train(&error);
                    return Ok(());
                }
            }
        }
        self.send_singly(train)
    }

    /// Receives a batch into `inbox` and returns its number of messages. Does not wait.
    ///
    /// # Errors
    /// The error of the kernel; among others, once, the report about an earlier datagram
    /// (`ECONNREFUSED`, `EMSGSIZE`), which [`crate::errors::read`] returns in full.
    pub fn receive(&self, inbox: &mut Inbox) -> io::Result<usize> {
        let local = self.local.ip();
        inbox.fill(&self.socket, |arrival, _, _| {
            if arrival.destination.is_unspecified() {
                arrival.destination = local;
            }
            true
        })
    }

    /// Sends the consecutive datagrams of `bytes`, each of `segment_len` bytes except the last,
    /// which may be shorter. Otherwise like [`Self::send`]: at most [`MAX_TRAIN`] bytes and
    /// [`MAX_SEGMENTS`] datagrams.
    ///
    /// # Errors
    /// The error of the kernel, as with [`Self::send`]; some datagrams may have been sent.
    pub fn send_segmented(&self, path: Path, segment_len: usize, bytes: &[u8]) -> io::Result<()> {
        self.set_discovery(true)?;
        self.send_pieces(path, segment_len, bytes, self.has_gso())
    }

    /// Sends datagrams that may be fragmented, by this host or, in IPv4, by routers. Datagrams
    /// longer than `whole` bytes are sent one by one: the kernel does not segment trains whose
    /// datagrams need fragments.
    ///
    /// # Errors
    /// As with [`Self::send_segmented`].
    pub fn send_fragmented(
        &self,
        path: Path,
        segment_len: usize,
        bytes: &[u8],
        whole: usize,
    ) -> io::Result<()> {
        self.set_discovery(false)?;
        self.send_pieces(path, segment_len, bytes, self.has_gso() && segment_len <= whole)
    }

    fn send_pieces(
        &self,
        Path { destination, source, tos }: Path,
        segment_len: usize,
        bytes: &[u8],
        as_train: bool,
    ) -> io::Result<()> {
        let whole = [IoSlice::new(bytes)];
        let dont_fragment = self.discovery.load(Ordering::Relaxed) == 1;
        let train = Train { destination, source, tos, dont_fragment, datagrams: &whole };
        let one = bytes.len() <= segment_len;
        let mut refused = None;
        if one || as_train {
            match self.send_as(&train, (!one).then_some(segment_len as u16)) {
                Ok(()) => return Ok(()),
                Err(error) if one || !may_pass_singly(&error) => return Err(error),
                Err(error) => refused = Some(error),
            }
        }
        let mut slices = [IoSlice::new(&[]); MAX_SEGMENTS];
        let pieces = bytes.chunks(segment_len.max(1));
        let count = slices.iter_mut().zip(pieces).map(|(to, of)| *to = IoSlice::new(of)).count();
        let train = Train { datagrams: &slices[..count], ..train };
        self.send_singly(&train).map_err(|(_, error)| error)?;
        if let Some(error) = refused {
            self.note_refused_train(&error);
        }
        Ok(())
    }

    /// Sends no further trains after one was refused whose datagrams passed one by one: the
    /// way out has no checksum offload (EIO) or the kernel no UDP_SEGMENT (EINVAL). Other
    /// reasons for EINVAL, such as a source address that the host lost, refuse those, too.
    fn note_refused_train(&self, error: &io::Error) {
        if matches!(error.raw_os_error(), Some(libc::EIO | libc::EINVAL)) {
            self.has_gso.store(false, Ordering::Relaxed);
        }
    }

    fn send_whole(&self, train: &Train<'_>) -> io::Result<()> {
        let cut = match train.datagrams {
            [first, _, ..] => Some(first.len() as u16),
            _ => None,
        };
        self.send_as(train, cut)
    }

    /// Sends all slices in one call, which the kernel segments.
    fn send_as(&self, train: &Train<'_>, cut: Option<u16>) -> io::Result<()> {
        let (name, name_len) = socket::to_storage(&train.destination);
        let mut control = self.control(train);
        if let Some(len) = cut {
            control.push(libc::SOL_UDP, libc::UDP_SEGMENT, &len.to_ne_bytes());
        }
        let mut message = socket::empty_message().msg_hdr;
        message.msg_name = (&raw const name).cast_mut().cast();
        message.msg_namelen = name_len;
        message.msg_iov = train.datagrams.as_ptr().cast_mut().cast();
        message.msg_iovlen = train.datagrams.len() as _;
        message.msg_controllen = control.len() as _;
        message.msg_control = control.as_mut_ptr();
        socket::retried(|| {
            // SAFETY: `IoSlice` has the layout of `iovec`; slices, address and control messages
            // live until the call returns, which only reads them.
            let sent = unsafe { libc::sendmsg(self.socket.as_raw_fd(), &raw const message, 0) };
            if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
        })
    }

    fn send_singly(&self, train: &Train<'_>) -> Result<(), (usize, io::Error)> {
        let (name, name_len) = socket::to_storage(&train.destination);
        let mut control = self.control(train);
        let mut messages = [socket::empty_message(); MAX_SEGMENTS];
        let count = train.datagrams.len().min(MAX_SEGMENTS);
        for (message, datagram) in messages.iter_mut().zip(train.datagrams) {
            let message = &mut message.msg_hdr;
            message.msg_name = (&raw const name).cast_mut().cast();
            message.msg_namelen = name_len;
            message.msg_iov = (&raw const *datagram).cast_mut().cast();
            message.msg_iovlen = 1;
            message.msg_controllen = control.len() as _;
            message.msg_control = control.as_mut_ptr();
        }
        let mut sent = 0;
        while sent < count {
            let rest = &mut messages[sent..count];
            let (first, length) = (rest.as_mut_ptr(), rest.len());
            let went = socket::retried(|| {
                // SAFETY: `rest` are messages written above, of one slice each; slices, address and
                // control messages live until the call returns.
                unsafe { socket::send_messages(&self.socket, first, length, 0) }
            });
            sent += went.map_err(|error| (sent, error))?;
        }
        Ok(())
    }

    /// Returns the control messages for TOS and source address of a train.
    fn control(&self, train: &Train<'_>) -> Control<CONTROL_WORDS> {
        let mut control = Control::new();
        let tos = libc::c_int::from(train.tos).to_ne_bytes();
        match (self.local, train.source) {
            (SocketAddr::V4(_), source) => {
                control.push(libc::IPPROTO_IP, libc::IP_TOS, &tos);
                if let Some(IpAddr::V4(source)) = source {
                    // struct in_pktinfo: interface (any), local address, unused
                    let mut info = [0; 12];
                    info[4..8].copy_from_slice(&source.octets());
                    control.push(libc::IPPROTO_IP, libc::IP_PKTINFO, &info);
                }
            }
            (SocketAddr::V6(_), source) => {
                control.push(libc::IPPROTO_IPV6, libc::IPV6_TCLASS, &tos);
                if self.dual_stack {
                    // Used for IPv4 destinations; the other for IPv6.
                    control.push(libc::IPPROTO_IP, libc::IP_TOS, &tos);
                }
                if let Some(IpAddr::V6(source)) = source {
                    let mut info = [0; 20];
                    info[..16].copy_from_slice(&source.octets());
                    control.push(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &info);
                }
            }
        }
        control
    }

    /// Sets DF, a property of the socket that rarely changes. `PROBE` sets it and ignores path MTUs
    /// from earlier ICMP messages: the gateway knows the path MTU itself.
    fn set_discovery(&self, dont_fragment: bool) -> io::Result<()> {
        if self.discovery.load(Ordering::Relaxed) == u8::from(dont_fragment) {
            return Ok(());
        }
        let (level, option, how) = match (&self.local, dont_fragment) {
            (SocketAddr::V4(_), true) => {
                (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE)
            }
            (SocketAddr::V4(_), false) => {
                (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DONT)
            }
            (SocketAddr::V6(_), true) => {
                (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_PROBE)
            }
            (SocketAddr::V6(_), false) => {
                (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_DONT)
            }
        };
        socket::set_number(&self.socket, level, option, how)?;
        if self.dual_stack {
            let how = if dont_fragment { libc::IP_PMTUDISC_PROBE } else { libc::IP_PMTUDISC_DONT };
            socket::set_number(&self.socket, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, how)?;
        }
        self.discovery.store(u8::from(dont_fragment), Ordering::Relaxed);
        Ok(())
    }
}

impl AsFd for UdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Distributes datagrams among sockets that share one port: datagrams whose first byte, ANDed with
/// `mask`, is `value` arrive at one of the sockets 1 to `sockets`, chosen by the 4 bytes at `at`;
/// all others at the socket that was bound first.
///
/// # Errors
/// The error of the kernel.
pub fn steer_by_field(
    member: &impl AsFd,
    (mask, value): (u8, u8),
    at: u32,
    sockets: u32,
) -> io::Result<()> {
    let mut program = [
        (libc::BPF_LD | libc::BPF_B | libc::BPF_ABS, 0, 0, 0),
        (libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, 0, 0, u32::from(mask)),
        (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, 0, u32::from(value)),
        (libc::BPF_RET | libc::BPF_K, 0, 0, 0),
        (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, at),
        (libc::BPF_ALU | libc::BPF_MOD | libc::BPF_K, 0, 0, sockets.max(1)),
        (libc::BPF_ALU | libc::BPF_ADD | libc::BPF_K, 0, 0, 1),
        (libc::BPF_RET | libc::BPF_A, 0, 0, 0),
    ]
    .map(|(code, jt, jf, k)| libc::sock_filter { code: code as u16, jt, jf, k });
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // The kernel copies the program from the array, which lives until the call returns.
    socket::set_option(member, libc::SOL_SOCKET, libc::SO_ATTACH_REUSEPORT_CBPF, &program)
}

/// Returns the longest packet, with its IP header, that leaves for an address in one piece, as far
/// as this host knows.
///
/// # Errors
/// The error of the kernel: there is no route.
pub fn mtu_towards(address: SocketAddr) -> io::Result<usize> {
    let any: IpAddr = match address {
        SocketAddr::V4(_) => std::net::Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = std::net::UdpSocket::bind((any, 0))?;
    socket.connect(address)?;
    let (level, option) = match address {
        SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_MTU),
        SocketAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_MTU),
    };
    socket::get_number(&socket, level, option).map(|mtu| mtu.max(0) as usize)
}

/// Distributes datagrams among sockets that share one port by their first 4 bytes (the SPI of ESP):
/// all packets of one SA arrive at one socket.
///
/// # Errors
/// The error of the kernel.
pub fn steer_by_spi(sockets: &[UdpSocket]) -> io::Result<()> {
    let Some(first) = sockets.first() else { return Ok(()) };
    let instruction = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let mut program = [
        instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0),
        instruction(libc::BPF_ALU | libc::BPF_MOD | libc::BPF_K, sockets.len() as u32),
        instruction(libc::BPF_RET | libc::BPF_A, 0),
    ];
    let program = libc::sock_fprog { len: 3, filter: program.as_mut_ptr() };
    // The kernel copies the program from the array, which lives until the call returns.
    let option = libc::SO_ATTACH_REUSEPORT_CBPF;
    socket::set_option(&first.socket, libc::SOL_SOCKET, option, &program)
}

/// Whether the datagrams of a train that was refused may pass one by one: without offload
/// (`UdpSocket::note_refused_train`), or as a segment is longer than the MTU
/// (docs/datapath.md, "UDP trains").
fn may_pass_singly(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EIO | libc::EINVAL | libc::EMSGSIZE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::await_readable;

    const ALL: [&str; 2] = ["127.0.0.1:0", "[::1]:0"];

    fn open(address: &str) -> UdpSocket {
        UdpSocket::bind(address.parse().expect("an address"), &Options::default())
            .expect("a socket on loopback")
    }

    /// Receives until `count` datagrams have arrived, and returns them with TOS.
    fn datagrams(socket: &UdpSocket, count: usize) -> Vec<(Vec<u8>, u8)> {
        let mut inbox = Inbox::new(8);
        let mut all = Vec::new();
        while all.len() < count {
            await_readable(socket);
            assert!(socket.receive(&mut inbox).expect("datagrams") > 0, "nothing more came");
            for message in inbox.packets() {
                assert!(!message.truncated);
                assert_eq!(message.destination, socket.local().ip());
                let pieces = message.body.chunks(message.segment_len);
                all.extend(pieces.map(|piece| (piece.to_vec(), message.tos)));
            }
        }
        all
    }

    fn send_and_check(from: &UdpSocket, to: &UdpSocket) {
        let sent: Vec<Vec<u8>> =
            (0..40u8).map(|n| vec![n; if n == 39 { 7 } else { 1200 }]).collect();
        let datagrams_: Vec<IoSlice<'_>> = sent.iter().map(|bytes| IoSlice::new(bytes)).collect();
        let train = Train {
            destination: to.local(),
            source: Some(from.local().ip()),
            tos: 0b1011_1001,
            dont_fragment: true,
            datagrams: &datagrams_,
        };
        from.send(&train).expect("a train");
        let received = datagrams(to, sent.len());
        assert!(received.iter().all(|(_, tos)| *tos == 0b1011_1001), "{received:?}");
        assert!(received.into_iter().map(|(bytes, _)| bytes).eq(sent));
    }

    #[test]
    fn a_train_arrives_as_its_datagrams() {
        for address in ALL {
            send_and_check(&open(address), &open(address));
        }
    }

    #[test]
    fn a_source_that_is_not_this_hosts_does_not_end_trains() {
        for (address, source) in ALL.into_iter().zip(["192.0.2.77", "2001:db8::77"]) {
            let (from, to) = (open(address), open(address));
            let source = Some(source.parse().expect("an address"));
            let path = Path { destination: to.local(), source, tos: 0 };
            from.send_segmented(path, 1200, &[1; 2400]).expect_err("another host's address");
            assert!(from.has_gso(), "{address}");
            send_and_check(&from, &to);
        }
    }

    #[test]
    fn a_dual_stack_socket_sends_and_receives_trains() {
        let options = Options { dual_stack: true, ignore_errors: true, ..Options::default() };
        let to = UdpSocket::bind("[::]:0".parse().expect("an address"), &options).expect("both");
        let sent: Vec<u8> = (0..30_000_u32).map(|n| (n / 1200) as u8).collect();
        for host in ["::ffff:127.0.0.1", "::1"] {
            let host: IpAddr = host.parse().expect("an address");
            for cuts in [true, false] {
                let from =
                    UdpSocket::bind("[::]:0".parse().expect("an address"), &options).expect("both");
                from.has_gso.store(cuts, Ordering::Relaxed);
                let there = SocketAddr::new(host, to.local().port());
                let path = Path { destination: there, source: Some(host), tos: 2 };
                from.send_segmented(path, 1200, &sent).expect("a train");
                let (mut inbox, mut came) = (Inbox::new(8), Vec::new());
                while came.len() < sent.len() {
                    await_readable(&to);
                    assert!(to.receive(&mut inbox).expect("datagrams") > 0, "nothing more came");
                    for message in inbox.packets() {
                        assert_eq!((message.source.ip(), message.destination), (host, host));
                        assert_eq!((message.tos, message.segment_len), (2, 1200));
                        came.extend_from_slice(message.body);
                    }
                }
                assert_eq!(came, sent, "{host}, cut by the kernel: {cuts}");
            }
            let mapped = SocketAddr::new(host.to_canonical(), 9);
            assert!(mtu_towards(mapped).expect("a route") > 1280);
        }
    }

    #[test]
    fn datagrams_that_are_too_long_for_the_path_leave_in_fragments_or_not_at_all() {
        // The loopback interface has an MTU of 65,536, longer than any UDP datagram, so the
        // test makes a path with another MTU.
        let bytes: Vec<u8> = (0..12_000_u32).map(|n| (n / 4000) as u8).collect();
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let (from, to) = (open(address), open(address));
            for whole in [1472, 65_507] {
                let path =
                    Path { destination: to.local(), source: Some(from.local().ip()), tos: 2 };
                from.send_fragmented(path, 4000, &bytes, whole).expect("a train");
                assert!(from.has_gso(), "others go on as they did");
                let came = datagrams(&to, 3);
                assert!(came.iter().all(|(bytes, tos)| (bytes.len(), *tos) == (4000, 2)));
                assert!(came.iter().map(|(bytes, _)| bytes.as_slice()).eq(bytes.chunks(4000)));
            }
            // And with DF as before.
            let path = Path { destination: to.local(), source: None, tos: 2 };
            from.send_segmented(path, 4000, &bytes).expect("a train");
            assert_eq!(datagrams(&to, 3).len(), 3);
        }
    }

    #[test]
    fn marked_datagrams_come_to_the_socket_that_their_number_says() {
        let first = open(ALL[0]);
        first.share_port().expect("an option");
        let options = Options { join_port: true, ..Options::default() };
        let more = [(); 3].map(|()| UdpSocket::bind(first.local(), &options).expect("a socket"));
        steer_by_field(&first, (0xf8, 8), 12, 3).expect("a program");
        let from = open(ALL[0]);
        for n in 0..30_u8 {
            let mut datagram = [0; 32];
            (datagram[0], datagram[15], datagram[31]) = (8 + n % 9, n, n);
            let path = Path { destination: first.local(), source: None, tos: 0 };
            from.send_segmented(path, 32, &datagram).expect("a datagram");
            let to = if n % 9 == 8 { &first } else { &more[usize::from(n % 3)] };
            assert_eq!(datagrams(to, 1)[0].0, datagram);
        }
    }

    #[test]
    fn datagrams_go_singly_where_trains_are_not_cut() {
        for address in ALL {
            let (from, to) = (open(address), open(address));
            from.has_gso.store(false, Ordering::Relaxed);
            send_and_check(&from, &to);
        }
    }

    #[test]
    fn a_datagram_that_is_too_long_says_so_and_how_many_went() {
        let (from, to) = (open(ALL[0]), open(ALL[0]));
        let (short, long) = (vec![1; 100], vec![0; 65_530]);
        let datagrams = [IoSlice::new(&short), IoSlice::new(&long)];
        let train = Train {
            destination: to.local(),
            source: None,
            tos: 0,
            dont_fragment: true,
            datagrams: &datagrams,
        };
        let (sent, error) = from.send(&train).expect_err("sent 65 530 bytes of payload");
        assert_eq!((sent, error.raw_os_error()), (1, Some(libc::EMSGSIZE)));
    }

    #[test]
    fn a_port_that_is_shared_is_in_use_for_all_who_do_not_join_it() {
        let first = open(ALL[0]);
        first.share_port().expect("an option");
        let second = UdpSocket::bind(first.local(), &Options::default());
        assert_eq!(second.expect_err("in use").kind(), io::ErrorKind::AddrInUse);
    }

    #[test]
    fn the_spi_chooses_the_socket() {
        let options = Options { join_port: true, ..Options::default() };
        let first = open(ALL[0]);
        let second = UdpSocket::bind(first.local(), &options);
        assert_eq!(second.expect_err("not shared").kind(), io::ErrorKind::AddrInUse);
        first.share_port().expect("an option");
        let second = UdpSocket::bind(first.local(), &options).expect("another of the port");
        let sockets = [first, second];
        steer_by_spi(&sockets).expect("a program for the port");
        let from = open(ALL[0]);
        for spi in [0x1000u32, 0x1001, 0x2001, 0x3002] {
            let bytes = spi.to_be_bytes();
            let datagrams_ = [IoSlice::new(&bytes)];
            let train = Train {
                destination: sockets[0].local(),
                source: None,
                tos: 0,
                dont_fragment: false,
                datagrams: &datagrams_,
            };
            from.send(&train).expect("a datagram");
            let (received, _) = datagrams(&sockets[spi as usize % 2], 1).remove(0);
            assert_eq!(received, bytes);
        }
    }
}
