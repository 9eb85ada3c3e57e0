//! Buffers for one batch of received packets, and the metadata of each packet.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};

use crate::control::{Control, field};
use crate::socket;

/// The most packets of one system call.
pub const MAX_SLOTS: usize = 64;
/// Bytes before the buffer of a packet, in which its headers are assembled if the kernel returns
/// them separately (IPv6).
pub(crate) const HEADER_SPACE: usize = 1024;
pub(crate) const MAX_PACKET: usize = 65_535;
/// The distance between buffers; not a multiple of a page, since otherwise the starts of all
/// packets would share a few cache lines.
const STRIDE: usize = HEADER_SPACE + 65_536 + 192;
/// Words of control messages, which include IPv6 extension headers.
pub(crate) const CONTROL_WORDS: usize = 160;

/// Buffers for a batch of packets.
pub struct Inbox {
    slots: Vec<u8>,
    names: Vec<libc::sockaddr_storage>,
    controls: Vec<Control<CONTROL_WORDS>>,
    arrivals: Vec<Arrival>,
    overflowed: u32,
}

impl std::fmt::Debug for Inbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inbox").field("slots", &self.names.len()).finish_non_exhaustive()
    }
}

/// The metadata of one packet of the batch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arrival {
    pub(crate) source: SocketAddr,
    pub(crate) destination: IpAddr,
    pub(crate) tos: u8,
    pub(crate) segment_len: usize,
    /// The offsets of its header, its body and its end in the slot.
    pub(crate) header: usize,
    pub(crate) body: usize,
    pub(crate) end: usize,
    pub(crate) truncated: bool,
}

/// A received packet or train of datagrams.
#[derive(Debug)]
pub struct Received<'a> {
    /// The source; its port is 0 for protocols without ports.
    pub source: SocketAddr,
    /// The destination, an address of this host.
    pub destination: IpAddr,
    /// DSCP and ECN of the IP header.
    pub tos: u8,
    /// The length of each datagram of a train (the last may be shorter); for a single packet the
    /// length of `body`.
    pub segment_len: usize,
    /// The IP header with its options or extension headers, for raw sockets.
    pub header: &'a [u8],
    /// The bytes after the header; for UDP the payload.
    pub body: &'a mut [u8],
    /// Whether the packet or its control messages were truncated: count and drop it.
    pub truncated: bool,
}

impl Inbox {
    /// Makes buffers for batches of `slots` packets, at most [`MAX_SLOTS`]. The kernel allocates
    /// their memory at the first use.
    #[must_use]
    pub fn new(slots: usize) -> Self {
        let slots = slots.clamp(1, MAX_SLOTS);
        // SAFETY: all-zero bytes are a valid `sockaddr_storage`.
        let name: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
        Self {
            slots: vec![0; slots * STRIDE],
            names: vec![name; slots],
            controls: vec![Control::new(); slots],
            arrivals: Vec::with_capacity(slots),
            overflowed: 0,
        }
    }

    /// Returns the packets of the batch, the oldest first.
    pub fn packets(&mut self) -> impl Iterator<Item = Received<'_>> {
        self.arrivals.iter().zip(self.slots.chunks_exact_mut(STRIDE)).map(|(arrival, slot)| {
            let (before, rest) = slot.split_at_mut(arrival.body);
            Received {
                source: arrival.source,
                destination: arrival.destination,
                tos: arrival.tos,
                segment_len: arrival.segment_len,
                header: &before[arrival.header..],
                body: &mut rest[..arrival.end - arrival.body],
                truncated: arrival.truncated,
            }
        })
    }

    /// Checks whether all buffers are in use: there may be more packets.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.arrivals.len() == self.names.len()
    }

    /// Returns the packets that the kernel dropped since the socket was opened because its buffer
    /// was full, as reported with the newest packet.
    #[must_use]
    pub fn overflowed(&self) -> u32 {
        self.overflowed
    }

    /// Empties the batch.
    pub fn clear(&mut self) {
        self.arrivals.clear();
    }

    /// Adds a packet to the batch without a socket, for tests and for packets from files. Returns
    /// false if the batch is full.
    pub fn put(&mut self, packet: &Received<'_>) -> bool {
        let (header, body) = (packet.header, &*packet.body);
        let n = self.arrivals.len();
        if n == self.names.len() || header.len() > HEADER_SPACE || body.len() > MAX_PACKET {
            return false;
        }
        let slot = &mut self.slots[n * STRIDE..][..STRIDE];
        let begin = HEADER_SPACE - header.len();
        slot[begin..HEADER_SPACE].copy_from_slice(header);
        slot[HEADER_SPACE..][..body.len()].copy_from_slice(body);
        self.arrivals.push(Arrival {
            source: packet.source,
            destination: packet.destination,
            tos: packet.tos,
            segment_len: packet.segment_len,
            header: begin,
            body: HEADER_SPACE,
            end: HEADER_SPACE + body.len(),
            truncated: packet.truncated,
        });
        true
    }

    /// Receives a batch from a socket, without waiting. `finish` reads what is specific to this
    /// kind of socket from the control messages and the packet in its slot; if it refuses a packet,
    /// the packet is marked as truncated.
    pub(crate) fn fill(
        &mut self,
        from: &impl AsFd,
        finish: impl Fn(&mut Arrival, &mut [u8], &Control<CONTROL_WORDS>) -> bool,
    ) -> io::Result<usize> {
        self.arrivals.clear();
        let count = self.names.len();
        let mut vectors = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; MAX_SLOTS];
        let mut messages = [socket::empty_message(); MAX_SLOTS];
        let slots = self.slots.chunks_exact_mut(STRIDE);
        for ((((slot, name), control), vector), message) in
            slots.zip(&mut self.names).zip(&mut self.controls).zip(&mut vectors).zip(&mut messages)
        {
            let buffer = &mut slot[HEADER_SPACE..][..MAX_PACKET];
            vector.iov_base = buffer.as_mut_ptr().cast();
            vector.iov_len = buffer.len();
            let header = &mut message.msg_hdr;
            header.msg_iov = vector;
            header.msg_iovlen = 1;
            header.msg_name = (&raw mut *name).cast();
            header.msg_namelen = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
            header.msg_control = control.as_mut_ptr();
            header.msg_controllen = Control::<CONTROL_WORDS>::CAPACITY as _;
        }
        // SAFETY: the first `count` messages each have one vector of MAX_PACKET bytes inside their
        // own slot, a name and a control buffer of the given sizes; all of them live until the call
        // returns, and nothing else refers to them meanwhile.
        let got = unsafe {
            libc::recvmmsg(
                from.as_fd().as_raw_fd(),
                messages.as_mut_ptr(),
                count as libc::c_uint,
                libc::MSG_DONTWAIT as _,
                std::ptr::null_mut(),
            )
        };
        if got < 0 {
            let error = io::Error::last_os_error();
            return match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(0),
                _ => Err(error),
            };
        }
        let got = (got as usize).min(count);
        for (n, message) in messages[..got].iter().enumerate() {
            let len = (message.msg_len as usize).min(MAX_PACKET);
            let control = &mut self.controls[n];
            control.set_len(message.msg_hdr.msg_controllen as _);
            let nobody = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
            let mut arrival = Arrival {
                source: socket::from_storage(&self.names[n]).unwrap_or(nobody),
                destination: Ipv4Addr::UNSPECIFIED.into(),
                tos: 0,
                segment_len: len,
                header: HEADER_SPACE,
                body: HEADER_SPACE,
                end: HEADER_SPACE + len,
                truncated: message.msg_hdr.msg_flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC) != 0,
            };
            for (level, kind, data) in control.messages() {
                read_common(&mut arrival, &mut self.overflowed, (level, kind), data);
            }
            let slot = &mut self.slots[n * STRIDE..][..STRIDE];
            arrival.truncated |= !finish(&mut arrival, slot, control);
            self.arrivals.push(arrival);
        }
        Ok(got)
    }
}

/// Reads the control messages that all kinds of sockets have.
pub(crate) fn read_common(
    arrival: &mut Arrival,
    overflowed: &mut u32,
    kind: (libc::c_int, libc::c_int),
    data: &[u8],
) {
    match kind {
        (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
            // struct in_pktinfo: interface, local address, the header's destination
            if let Some(bytes) = field::<4>(data, 8) {
                arrival.destination = Ipv4Addr::from(bytes).into();
            }
        }
        (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
            if let Some(bytes) = field::<16>(data, 0) {
                arrival.destination = Ipv6Addr::from(bytes).into();
            }
        }
        (libc::IPPROTO_IP, libc::IP_TOS) => arrival.tos = data.first().copied().unwrap_or(0),
        (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
            arrival.tos = field(data, 0).map_or(0, |bytes| i32::from_ne_bytes(bytes) as u8);
        }
        (libc::SOL_UDP, libc::UDP_GRO) => {
            let len = field(data, 0).map_or(0, i32::from_ne_bytes);
            if let Ok(len @ 1..) = usize::try_from(len) {
                arrival.segment_len = len;
            }
        }
        (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => {
            *overflowed = field(data, 0).map_or(*overflowed, u32::from_ne_bytes);
        }
        _ => {}
    }
}
