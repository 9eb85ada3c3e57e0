//! Receives IP packets of one protocol (raw(7), ipv6(7)), and sends whole IP packets.

use std::io::{self, IoSlice};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::control::{Control, field};
use crate::inbox::{Arrival, CONTROL_WORDS, HEADER_SPACE, Inbox};
use crate::socket;

/// The most packets of one system call.
pub const BATCH: usize = 64;
const IPV6_HEADER_LEN: usize = 40;

/// Receives all packets of one IP protocol to this host; the kernel has reassembled fragments.
///
/// While it is open, the kernel does not answer such packets with "protocol unreachable".
#[derive(Debug)]
pub struct RawReceiver {
    socket: OwnedFd,
    v6: bool,
    protocol: u8,
}

/// The share of packets that one of several receivers takes.
#[derive(Debug, Clone, Copy)]
pub struct Share {
    /// Bytes from the end of the IP header to the 32-bit number that selects the receiver, the SPI.
    pub offset: u32,
    /// The number of receivers.
    pub of: u32,
    /// The index of this receiver, from 0.
    pub index: u32,
}

impl RawReceiver {
    /// Opens a socket for `protocol` over IPv4 or IPv6 in the network namespace of the calling
    /// thread. Needs `CAP_NET_RAW`.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn open(protocol: u8, v6: bool, share: Option<Share>) -> io::Result<Self> {
        let family = if v6 { libc::AF_INET6 } else { libc::AF_INET };
        let socket = socket::open(family, libc::SOCK_RAW, protocol.into())?;
        if let Some(share) = share {
            attach(&socket, v6, share)?;
        }
        if v6 {
            for option in [
                libc::IPV6_RECVPKTINFO,
                libc::IPV6_RECVHOPLIMIT,
                libc::IPV6_FLOWINFO,
                libc::IPV6_RECVTCLASS,
                libc::IPV6_RECVHOPOPTS,
                libc::IPV6_RECVRTHDR,
                libc::IPV6_RECVDSTOPTS,
                libc::IPV6_RECVERR,
            ] {
                socket::set_number(&socket, libc::IPPROTO_IPV6, option, 1)?;
            }
        } else {
            socket::set_number(&socket, libc::IPPROTO_IP, libc::IP_RECVERR, 1)?;
        }
        socket::set_number(&socket, libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 1)?;
        socket::enlarge_buffers(&socket)?;
        Ok(Self { socket, v6, protocol })
    }

    /// Receives a batch into `inbox` and returns its number of packets. Does not wait.
    ///
    /// # Errors
    /// The error of the kernel; among others, once, the report about an earlier packet, which
    /// [`crate::errors::read`] returns in full.
    pub fn receive(&self, inbox: &mut Inbox) -> io::Result<usize> {
        inbox.fill(&self.socket, |arrival, slot, control| {
            if self.v6 {
                rebuild_v6(arrival, slot, control, self.protocol)
            } else {
                split_v4(arrival, slot)
            }
        })
    }
}

impl AsFd for RawReceiver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Sends whole IP packets.
pub trait SendPackets: Send + std::fmt::Debug {
    /// Sends complete packets with the same source and destination: lengths, checksums, and an IPv4
    /// ID other than 0 where it matters. Waits briefly if the buffer of the kernel is full.
    ///
    /// # Errors
    /// The number of sent packets, and the error of the kernel about the next: `EMSGSIZE` if it
    /// exceeds the MTU of the interface.
    fn send(&mut self, packets: &[IoSlice<'_>]) -> Result<(), (usize, io::Error)>;
}

/// Sends by the kernel's routing and neighbour tables.
#[derive(Debug)]
pub struct RawSender {
    v4: OwnedFd,
    v6: Option<OwnedFd>,
}

impl RawSender {
    /// Opens sockets whose packets carry a mark, in the network namespace of the calling thread.
    /// Needs `CAP_NET_RAW`, and `CAP_NET_ADMIN` for a mark.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn open(mark: Option<u32>) -> io::Result<Self> {
        let open = |family| -> io::Result<OwnedFd> {
            let socket = socket::open(family, libc::SOCK_RAW, libc::IPPROTO_RAW)?;
            if let Some(mark) = mark {
                socket::set_mark(&socket, mark)?;
            }
            socket::enlarge_buffers(&socket)?;
            socket::limit_wait(&socket)?;
            Ok(socket)
        };
        let v4 = open(libc::AF_INET)?;
        // The gateway fragments for the path MTU itself; a smaller MTU of a route must not make the
        // kernel refuse the fragments.
        let probe = libc::IP_PMTUDISC_PROBE;
        socket::set_number(&v4, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, probe)?;
        let v6 = match open(libc::AF_INET6) {
            Ok(v6) => {
                let probe = libc::IPV6_PMTUDISC_PROBE;
                socket::set_number(&v6, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, probe)?;
                Some(v6)
            }
            // A kernel without IPv6.
            Err(error) if error.raw_os_error() == Some(libc::EAFNOSUPPORT) => None,
            Err(error) => return Err(error),
        };
        Ok(Self { v4, v6 })
    }
}

impl SendPackets for RawSender {
    fn send(&mut self, packets: &[IoSlice<'_>]) -> Result<(), (usize, io::Error)> {
        let Some(destination) = packets.first().and_then(|packet| destination_of(packet)) else {
            return if packets.is_empty() { Ok(()) } else { Err((0, malformed())) };
        };
        let socket = match destination {
            IpAddr::V4(_) => &self.v4,
            IpAddr::V6(_) => self
                .v6
                .as_ref()
                .ok_or_else(|| (0, io::Error::from_raw_os_error(libc::EAFNOSUPPORT)))?,
        };
        let (name, len) = socket::to_storage(&SocketAddr::new(destination, 0));
        // SAFETY: the address has `len` bytes at the start of `name`.
        let name = unsafe { std::slice::from_raw_parts((&raw const name).cast(), len as usize) };
        send_all(socket, name, packets)
    }
}

/// Sends packets to one address (in the kernel's format) with as few system calls as possible.
pub(crate) fn send_all(
    socket: &OwnedFd,
    name: &[u8],
    packets: &[IoSlice<'_>],
) -> Result<(), (usize, io::Error)> {
    let mut sent = 0;
    while sent < packets.len() {
        let rest = &packets[sent..packets.len().min(sent + BATCH)];
        let mut messages = [socket::empty_message(); BATCH];
        for (message, packet) in messages.iter_mut().zip(rest) {
            let message = &mut message.msg_hdr;
            message.msg_name = name.as_ptr().cast_mut().cast();
            message.msg_namelen = name.len() as libc::socklen_t;
            message.msg_iov = (&raw const *packet).cast_mut().cast();
            message.msg_iovlen = 1;
        }
        let (first, length) = (messages.as_mut_ptr(), rest.len());
        let went = socket::retried(|| {
            // SAFETY: `IoSlice` has the layout of `iovec`; a message for each packet of `rest` is
            // written above; packets and address live until the call returns.
            unsafe { socket::send_messages(socket, first, length, 0) }
        });
        sent += went.map_err(|error| (sent, error))?;
    }
    Ok(())
}

/// Returns the destination of a packet.
pub(crate) fn destination_of(packet: &[u8]) -> Option<IpAddr> {
    match packet.first()? >> 4 {
        4 => Some(Ipv4Addr::from(field::<4>(packet, 16)?).into()),
        6 => Some(Ipv6Addr::from(field::<16>(packet, 24)?).into()),
        _ => None,
    }
}

/// Returns the source of a packet.
pub(crate) fn source_of(packet: &[u8]) -> Option<IpAddr> {
    match packet.first()? >> 4 {
        4 => Some(Ipv4Addr::from(field::<4>(packet, 12)?).into()),
        6 => Some(Ipv6Addr::from(field::<16>(packet, 8)?).into()),
        _ => None,
    }
}

pub(crate) fn malformed() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "this is no IP packet")
}

/// An IPv4 raw socket returns the header with the packet.
pub(crate) fn split_v4(arrival: &mut Arrival, slot: &mut [u8]) -> bool {
    let packet = &slot[arrival.body..arrival.end];
    let Some(destination) = destination_of(packet) else { return false };
    let header_len = usize::from(packet[0] & 0xf) * 4;
    if !destination.is_ipv4() || header_len < 20 || header_len > packet.len() {
        return false;
    }
    arrival.destination = destination;
    arrival.tos = packet[1];
    arrival.header = arrival.body;
    arrival.body += header_len;
    arrival.segment_len = arrival.end - arrival.body;
    arrival.source.set_port(0);
    true
}

/// An IPv6 raw socket returns the bytes after the headers, and the headers in their order as
/// control messages (RFC 3542, sections 6 to 9).
pub(crate) fn rebuild_v6(
    arrival: &mut Arrival,
    slot: &mut [u8],
    control: &Control<CONTROL_WORDS>,
    protocol: u8,
) -> bool {
    let SocketAddr::V6(source) = arrival.source else { return false };
    let IpAddr::V6(destination) = arrival.destination else { return false };
    arrival.source.set_port(0); // the kernel sets the protocol there
    let (mut flow, mut hop_limit) = ([0x60, 0, 0, 0], 0);
    let (mut first, mut len) = (None, 0);
    // Extension headers first, for their total length.
    for (level, kind, data) in control.messages() {
        if level != libc::IPPROTO_IPV6 {
            continue;
        }
        match kind {
            libc::IPV6_FLOWINFO => flow = field(data, 0).unwrap_or(flow),
            libc::IPV6_HOPLIMIT => {
                hop_limit = field(data, 0).map_or(0, |bytes| i32::from_ne_bytes(bytes) as u8);
            }
            kind => {
                if let Some(number) = extension(kind) {
                    first.get_or_insert(number);
                    len += data.len();
                }
            }
        }
    }
    let Some(begin) = HEADER_SPACE.checked_sub(IPV6_HEADER_LEN + len) else { return false };
    let Ok(payload_len) = u16::try_from(len + arrival.end - arrival.body) else { return false };
    let (header, mut rest) = slot[begin..HEADER_SPACE].split_at_mut(IPV6_HEADER_LEN);
    header[..4].copy_from_slice(&flow);
    // The kernel returns the traffic class in its own message; the flow information may lack it.
    header[0] = 0x60 | arrival.tos >> 4;
    header[1] = arrival.tos << 4 | flow[1] & 0x0f;
    header[4..6].copy_from_slice(&payload_len.to_be_bytes());
    header[6] = first.unwrap_or(protocol);
    header[7] = hop_limit;
    header[8..24].copy_from_slice(&source.ip().octets());
    header[24..].copy_from_slice(&destination.octets());
    for (level, kind, data) in control.messages() {
        if level == libc::IPPROTO_IPV6 && extension(kind).is_some() {
            let (to, behind) = rest.split_at_mut(data.len());
            to.copy_from_slice(data);
            rest = behind;
        }
    }
    arrival.header = begin;
    true
}

/// Returns the number of the extension header in a control message.
fn extension(kind: libc::c_int) -> Option<u8> {
    match kind {
        libc::IPV6_HOPOPTS => Some(0),
        libc::IPV6_RTHDR => Some(43),
        libc::IPV6_DSTOPTS => Some(60),
        _ => None,
    }
}

/// Attaches a filter for the share of this receiver.
fn attach(socket: &OwnedFd, v6: bool, share: Share) -> io::Result<()> {
    let instruction =
        |code: u32, jt: u8, jf: u8, k: u32| libc::sock_filter { code: code as u16, jt, jf, k };
    // The filter of IPv4 begins at the IP header, that of IPv6 after it (raw_rcv, rawv6_rcv in the
    // kernel).
    let (skip, load) = if v6 {
        (instruction(libc::BPF_LDX | libc::BPF_IMM, 0, 0, 0), libc::BPF_IND)
    } else {
        (instruction(libc::BPF_LDX | libc::BPF_B | libc::BPF_MSH, 0, 0, 0), libc::BPF_IND)
    };
    let mut program = [
        skip,
        instruction(libc::BPF_LD | libc::BPF_W | load, 0, 0, share.offset),
        instruction(libc::BPF_ALU | libc::BPF_MOD | libc::BPF_K, 0, 0, share.of.max(1)),
        instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, share.index),
        instruction(libc::BPF_RET | libc::BPF_K, 0, 0, u32::MAX),
        instruction(libc::BPF_RET | libc::BPF_K, 0, 0, 0),
    ];
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // The kernel copies the program from the array, which lives until the call returns.
    socket::set_option(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{await_readable, own_namespace};

    const EXPERIMENT: u8 = 253; // RFC 3692

    /// A packet whose body begins with `spi`.
    fn packet(v6: bool, extension: &[u8], spi: u32, body_len: usize) -> Vec<u8> {
        let mut packet = if v6 {
            let mut packet = vec![0x6a, 0xb1, 0x23, 0x45, 0, 0, EXPERIMENT, 33];
            let len = (extension.len() + body_len) as u16;
            packet[4..6].copy_from_slice(&len.to_be_bytes());
            if !extension.is_empty() {
                packet[6] = 60;
            }
            packet.extend(Ipv6Addr::LOCALHOST.octets());
            packet.extend(Ipv6Addr::LOCALHOST.octets());
            packet
        } else {
            let mut packet = vec![0x45, 0xab, 0, 0, 1, 2, 0x40, 0, 33, EXPERIMENT, 0, 0];
            packet.extend([127, 0, 0, 1, 127, 0, 0, 1]); // the kernel fills in the checksum
            packet[2..4].copy_from_slice(&((20 + body_len) as u16).to_be_bytes());
            packet
        };
        packet.extend(extension);
        packet.extend(spi.to_be_bytes());
        packet.resize(packet.len() + body_len - 4, 7);
        packet
    }

    fn receive(from: &RawReceiver, inbox: &mut Inbox) -> Vec<(Vec<u8>, Vec<u8>)> {
        await_readable(from);
        from.receive(inbox).expect("packets");
        inbox
            .packets()
            .map(|packet| {
                assert!(!packet.truncated && packet.source.ip().is_loopback());
                assert_eq!((packet.destination, packet.tos), (packet.source.ip(), 0xab));
                (packet.header.to_vec(), packet.body.to_vec())
            })
            .collect()
    }

    #[test]
    fn a_packet_arrives_with_its_header() {
        let Some(_namespace) = own_namespace() else { return };
        let mut sender = RawSender::open(Some(7)).expect("sockets that send");
        let mut inbox = Inbox::new(4);
        for v6 in [false, true] {
            let receiver = RawReceiver::open(EXPERIMENT, v6, None).expect("a socket");
            let sent = packet(v6, &[], 0x1000, 100);
            sender.send(&[IoSlice::new(&sent)]).expect("a packet");
            let (header, body) = receive(&receiver, &mut inbox).remove(0);
            assert_eq!(body, sent[sent.len() - 100..]);
            let mut expected = sent[..sent.len() - 100].to_vec();
            if !v6 {
                expected[10..12].copy_from_slice(&header[10..12]); // the checksum
            }
            assert_eq!(header, expected);
        }
    }

    #[test]
    fn extension_headers_come_back_in_place() {
        let Some(_namespace) = own_namespace() else { return };
        let mut sender = RawSender::open(None).expect("sockets that send");
        let receiver = RawReceiver::open(EXPERIMENT, true, None).expect("a socket");
        // Destination options: 8 bytes, with a padding option of 6.
        let extension = [EXPERIMENT, 0, 1, 4, 0, 0, 0, 0];
        let sent = packet(true, &extension, 9, 40);
        sender.send(&[IoSlice::new(&sent)]).expect("a packet");
        let (header, body) = receive(&receiver, &mut Inbox::new(4)).remove(0);
        assert_eq!(header, sent[..48]);
        assert_eq!(body, sent[48..]);
    }

    #[test]
    fn receivers_share_packets_by_spi() {
        let Some(_namespace) = own_namespace() else { return };
        let mut sender = RawSender::open(None).expect("sockets that send");
        for v6 in [false, true] {
            let open = |index| {
                let share = Share { offset: 0, of: 2, index };
                RawReceiver::open(EXPERIMENT, v6, Some(share)).expect("a socket")
            };
            let receivers = [open(0), open(1)];
            for spi in [0x1000u32, 0x2001, 0x3001, 0x1002] {
                let sent = packet(v6, &[], spi, 64);
                sender.send(&[IoSlice::new(&sent)]).expect("a packet");
                let mut inbox = Inbox::new(4);
                let got = receive(&receivers[spi as usize % 2], &mut inbox);
                assert_eq!((got.len(), &got[0].1[..4]), (1, &spi.to_be_bytes()[..]));
            }
        }
    }

    #[test]
    fn refuses_to_send_malformed_packets() {
        let Some(_namespace) = own_namespace() else { return };
        let mut sender = RawSender::open(None).expect("sockets that send");
        for bad in [&[][..], &[0x45; 10], &[0x60; 39], &[0x20; 60]] {
            assert!(sender.send(&[IoSlice::new(bad)]).is_err());
        }
    }
}
