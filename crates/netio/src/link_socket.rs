//! Sends and receives whole frames of one interface in batches (packet(7)), including offloaded
//! trains and unfinished checksums (`PACKET_VNET_HDR`).

use std::io;
use std::mem::{MaybeUninit, size_of, zeroed};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use crate::control::field;
use crate::{packet_socket, socket};

/// The most frames of one system call.
pub const BATCH: usize = 64;
/// Bytes of `struct virtio_net_hdr` (linux/virtio_net.h).
pub(crate) const VNET_HEADER: usize = 10;
/// The longest frame: an IP packet of 65,535 bytes, Ethernet header, two tags.
const MAX_FRAME: usize = 65_535 + 14 + 8;
const SLOT: usize = VNET_HEADER + MAX_FRAME + 7; // a multiple of 8 bytes
/// Bytes of control messages: a `timespec` and a `tpacket_auxdata`, rounded up.
pub(crate) const CONTROL: usize = 128;
/// Bytes that the kernel may queue in each direction; bursts wait there while this process does not
/// run.
const BUFFER: libc::c_int = 64 << 20;
/// linux/if_packet.h
const TP_STATUS_VLAN_VALID: u32 = 1 << 4;
const TP_STATUS_VLAN_TPID_VALID: u32 = 1 << 6;

/// Work that a sender left to its network card (`struct virtio_net_hdr`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Offload {
    /// `csum_start` and `csum_offset`, if the checksum is unfinished.
    pub checksum: Option<(u16, u16)>,
    /// `gso_type`; 0: a single frame.
    pub train_kind: u8,
    /// Bytes of payload in each frame of a train (`gso_size`).
    pub segment_len: u16,
}

/// A received frame.
#[derive(Debug)]
pub struct Received<'a> {
    /// The time (`CLOCK_REALTIME`, since the epoch) at which the kernel received it; None if the
    /// kernel did not report it.
    pub time: Option<Duration>,
    /// The frame from its Ethernet header on, without the tag in `vlan`.
    pub bytes: &'a mut [u8],
    /// The unfinished work.
    pub offload: Offload,
    /// EtherType and TCI of the VLAN tag that the kernel removed from the frame.
    pub vlan: Option<(u16, u16)>,
    /// Whether the frame was longer than any valid one and is truncated.
    pub truncated: bool,
}

/// A raw socket on one interface, which is in promiscuous mode while the socket is open. It does
/// not receive frames sent on the interface.
#[derive(Debug)]
pub struct LinkSocket {
    socket: OwnedFd,
    slots: Vec<u8>,
    control: Vec<[u64; CONTROL / 8]>,
}

impl LinkSocket {
    /// Opens a socket on `interface` in the network namespace of the calling thread. Needs
    /// `CAP_NET_RAW`; with `CAP_NET_ADMIN` its buffers exceed the system limit.
    ///
    /// # Errors
    /// The error of the kernel: no such interface, no privilege.
    pub fn open(interface: &str) -> io::Result<Self> {
        let socket = packet_socket::open()?;
        let index = packet_socket::index_of(interface)?;
        let one: libc::c_int = 1;
        for option in [libc::PACKET_VNET_HDR, libc::PACKET_AUXDATA, libc::PACKET_IGNORE_OUTGOING] {
            packet_socket::set_option(&socket, libc::SOL_PACKET, option, &one)?;
        }
        packet_socket::set_option(&socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, &one)?;
        for (force, plain) in
            [(libc::SO_RCVBUFFORCE, libc::SO_RCVBUF), (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF)]
        {
            packet_socket::set_option(&socket, libc::SOL_SOCKET, force, &BUFFER).or_else(|_| {
                packet_socket::set_option(&socket, libc::SOL_SOCKET, plain, &BUFFER)
            })?;
        }
        // SAFETY: all-zero bytes are a valid `packet_mreq`.
        let mut promiscuous: libc::packet_mreq = unsafe { zeroed() };
        promiscuous.mr_ifindex = index;
        promiscuous.mr_type = libc::PACKET_MR_PROMISC as libc::c_ushort;
        let membership = libc::PACKET_ADD_MEMBERSHIP;
        packet_socket::set_option(&socket, libc::SOL_PACKET, membership, &promiscuous)?;
        packet_socket::bind(&socket, index)?;
        Ok(Self { socket, slots: vec![0; BATCH * SLOT], control: vec![[0; CONTROL / 8]; BATCH] })
    }

    /// Passes at most [`BATCH`] received frames to `take`, the oldest first, and returns their
    /// number. Does not wait.
    ///
    /// # Errors
    /// The error of the kernel: `ENETDOWN` or `ENXIO` if the interface is down or gone, `EINVAL`
    /// for a frame that the kernel cannot describe (and has dropped).
    pub fn receive(&mut self, mut take: impl FnMut(Received<'_>)) -> io::Result<usize> {
        let slots = self.slots.as_mut_ptr();
        let mut vectors: [libc::iovec; BATCH] = std::array::from_fn(|n| libc::iovec {
            iov_base: slots.wrapping_add(n * SLOT).cast(),
            iov_len: VNET_HEADER + MAX_FRAME,
        });
        let mut messages: [libc::mmsghdr; BATCH] = std::array::from_fn(|n| {
            let mut message = message_of(&raw mut vectors[n], 1);
            message.msg_hdr.msg_control = self.control[n].as_mut_ptr().cast();
            message.msg_hdr.msg_controllen = CONTROL as _;
            message
        });
        // SAFETY: BATCH messages, each with one vector of VNET_HEADER + MAX_FRAME bytes inside its
        // own slot and a control buffer of CONTROL bytes; slots, vectors and buffers live until the
        // call returns and nothing else refers to them meanwhile.
        let got = unsafe {
            libc::recvmmsg(
                self.socket.as_raw_fd(),
                messages.as_mut_ptr(),
                BATCH as libc::c_uint,
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
        let got = (got as usize).min(BATCH);
        for (n, message) in messages.iter().enumerate().take(got) {
            let len = (message.msg_len as usize).min(VNET_HEADER + MAX_FRAME);
            let slot = &mut self.slots[n * SLOT..][..len];
            let Some((header, bytes)) = slot.split_at_mut_checked(VNET_HEADER) else { continue };
            let control_len: usize = message.msg_hdr.msg_controllen as _;
            let (time, vlan) = read_control(&self.control[n], control_len.min(CONTROL));
            let truncated = message.msg_hdr.msg_flags & libc::MSG_TRUNC != 0;
            take(Received { time, bytes, offload: read_offload(header), vlan, truncated });
        }
        Ok(got)
    }

    /// Sends at most [`BATCH`] frames and returns the number of sent ones. If it is lower than
    /// given, send the rest again. Does not wait.
    ///
    /// # Errors
    /// The error of the kernel about the first frame, which was not sent.
    pub fn send(&self, frames: &[impl AsRef<[u8]>]) -> io::Result<usize> {
        let finished = [0u8; VNET_HEADER]; // these frames are finished
        let count = frames.len().min(BATCH);
        let mut vectors = [const { MaybeUninit::<[libc::iovec; 2]>::uninit() }; BATCH];
        let mut messages = [const { MaybeUninit::<libc::mmsghdr>::uninit() }; BATCH];
        for ((frame, vector), message) in frames.iter().zip(&mut vectors).zip(&mut messages) {
            let frame = frame.as_ref();
            let vector = vector.write([
                libc::iovec { iov_base: finished.as_ptr().cast_mut().cast(), iov_len: VNET_HEADER },
                libc::iovec { iov_base: frame.as_ptr().cast_mut().cast(), iov_len: frame.len() },
            ]);
            message.write(message_of(vector.as_mut_ptr(), 2));
        }
        let first = messages.as_mut_ptr().cast::<libc::mmsghdr>();
        // SAFETY: the first `count` messages and vectors are written above; they point to
        // `finished` and to the frames, which live until the call returns.
        unsafe { socket::send_messages(&self.socket, first, count, libc::MSG_DONTWAIT) }
    }

    /// Returns the frames that the kernel dropped since the last call because the socket's buffer
    /// was full.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn dropped(&self) -> io::Result<u32> {
        packet_socket::dropped(&self.socket)
    }
}

impl AsFd for LinkSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Returns a message of `count` vectors, without address and control data.
fn message_of(vectors: *mut libc::iovec, count: usize) -> libc::mmsghdr {
    let mut message = socket::empty_message();
    message.msg_hdr.msg_iov = vectors;
    message.msg_hdr.msg_iovlen = count as _;
    message
}

/// Parses a `virtio_net_hdr` in the machine's byte order.
pub(crate) fn read_offload(header: &[u8]) -> Offload {
    const NEEDS_CSUM: u8 = 1;
    let field = |at: usize| u16::from_ne_bytes([header[at], header[at + 1]]);
    Offload {
        checksum: (header[0] & NEEDS_CSUM != 0).then(|| (field(6), field(8))),
        train_kind: header[1],
        segment_len: field(4),
    }
}

/// Reads time stamp and VLAN tag from control messages (cmsg(3)).
pub(crate) fn read_control(
    control: &[u64; CONTROL / 8],
    len: usize,
) -> (Option<Duration>, Option<(u16, u16)>) {
    const HEADER: usize = size_of::<libc::cmsghdr>();
    const ALIGN: usize = size_of::<usize>();
    let mut bytes = [0u8; CONTROL];
    for (bytes, word) in bytes.chunks_exact_mut(8).zip(control) {
        bytes.copy_from_slice(&word.to_ne_bytes());
    }
    let (mut time, mut vlan) = (None, None);
    let mut rest = &bytes[..len];
    while rest.len() >= HEADER {
        let u32_at = |at: usize| {
            rest.get(at..at + 4)
                .and_then(|bytes| bytes.try_into().ok())
                .map_or(0, u32::from_ne_bytes)
        };
        let total = usize::from_ne_bytes(rest[..ALIGN].try_into().unwrap_or_default());
        if total < HEADER || total > rest.len() {
            break;
        }
        let data = &rest[HEADER..total];
        let (level, kind) = (u32_at(HEADER - 8).cast_signed(), u32_at(HEADER - 4).cast_signed());
        if (level, kind) == (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) {
            time = read_timespec(data);
        } else if (level, kind) == (libc::SOL_PACKET, libc::PACKET_AUXDATA) && data.len() >= 20 {
            // struct tpacket_auxdata: the tag follows three u32 and two u16
            let status = u32_at(HEADER);
            let u16_at = |at: usize| u16::from_ne_bytes([data[at], data[at + 1]]);
            if status & TP_STATUS_VLAN_VALID != 0 {
                let has_type = status & TP_STATUS_VLAN_TPID_VALID != 0;
                vlan = Some((if has_type { u16_at(18) } else { 0x8100 }, u16_at(16)));
            }
        }
        rest = &rest[total.next_multiple_of(ALIGN).min(rest.len())..];
    }
    (time, vlan)
}

/// Reads a `timespec` of the kernel: two numbers of type `long`.
fn read_timespec(data: &[u8]) -> Option<Duration> {
    let number = |at| field(data, at).map(libc::c_long::from_ne_bytes);
    let (seconds, nanos) = (number(0)?, number(size_of::<libc::c_long>())?);
    Some(Duration::new(u64::try_from(seconds).ok()?, u32::try_from(nanos).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn control(messages: &[(i32, i32, &[u8])]) -> ([u64; CONTROL / 8], usize) {
        let mut bytes = Vec::new();
        for (level, kind, data) in messages {
            bytes.extend((size_of::<libc::cmsghdr>() + data.len()).to_ne_bytes());
            bytes.extend(level.to_ne_bytes());
            bytes.extend(kind.to_ne_bytes());
            bytes.extend_from_slice(data);
            bytes.resize(bytes.len().next_multiple_of(size_of::<usize>()), 0);
        }
        let len = bytes.len();
        bytes.resize(CONTROL, 0);
        let words = std::array::from_fn(|n| {
            u64::from_ne_bytes(bytes[n * 8..n * 8 + 8].try_into().expect("eight bytes"))
        });
        (words, len)
    }

    #[test]
    fn time_and_tag_are_read_from_control_messages() {
        let mut time = (5 as libc::c_long).to_ne_bytes().to_vec();
        time.extend((6 as libc::c_long).to_ne_bytes());
        let mut auxiliary = [0u8; 20];
        auxiliary[..4]
            .copy_from_slice(&(TP_STATUS_VLAN_VALID | TP_STATUS_VLAN_TPID_VALID).to_ne_bytes());
        auxiliary[16..18].copy_from_slice(&7u16.to_ne_bytes());
        auxiliary[18..20].copy_from_slice(&0x88a8u16.to_ne_bytes());
        let (words, len) = control(&[
            (libc::SOL_PACKET, libc::PACKET_AUXDATA, &auxiliary),
            (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS, &time),
        ]);
        assert_eq!(read_control(&words, len), (Some(Duration::new(5, 6)), Some((0x88a8, 7))));
    }

    #[test]
    fn control_messages_that_lie_about_their_length_are_not_read() {
        let (mut words, len) = control(&[(libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS, &[1; 16])]);
        for lie in [0, 1, 15, 17, 1000, u64::MAX] {
            words[0] = lie;
            let _ = read_control(&words, len);
        }
        assert_eq!(read_control(&words, 3), (None, None));
    }

    #[test]
    fn an_unknown_interface_is_an_error() {
        let error = LinkSocket::open("no-such-if").expect_err("opened a socket on nothing");
        assert!(matches!(error.raw_os_error(), Some(libc::ENODEV | libc::EPERM)), "{error}");
    }
}
