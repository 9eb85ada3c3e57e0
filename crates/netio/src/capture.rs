//! Headers-only packet capture through a memory-mapped ring (`AF_PACKET`,
//! `TPACKET_V2`, Linux Documentation/networking/packet_mmap.rst).
//!
//! The kernel copies the first bytes of each frame into the ring and wakes no thread; the reader
//! empties it later. A measured transfer therefore pays one short copy per frame.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::packet_socket;

/// The bytes before an Ethernet frame in its slot: `tpacket2_hdr` and `sockaddr_ll`, aligned so
/// that the bytes after the Ethernet header are.
const BEFORE_FRAME: usize = 66;
/// Bytes of one block, the unit in which the kernel allocates the ring. Slots are powers of two, so
/// blocks leave no gaps.
const BLOCK: usize = 256 * 1024;

/// Bytes of each frame that fit in the smallest slot: all headers and the start of the payload.
pub const HEAD: usize = 256 - BEFORE_FRAME;

/// A captured frame; `bytes` are its first bytes.
#[derive(Debug, Clone, Copy)]
pub struct Frame<'a> {
    /// The time (`CLOCK_REALTIME`, since the epoch) at which the kernel captured the frame.
    pub time: Duration,
    /// Length of the whole frame with Ethernet header, without FCS. Above the MTU for an offloaded
    /// train.
    pub wire_len: u32,
    /// The first bytes of the frame, from the Ethernet header on.
    pub bytes: &'a [u8],
}

/// Captures all frames that enter or leave one interface.
#[derive(Debug)]
pub struct Capture {
    socket: OwnedFd,
    ring: NonNull<u8>,
    slots: usize,
    /// Bytes of one slot; a divisor of [`BLOCK`].
    slot: usize,
    snaplen: usize,
    next: usize,
}

// SAFETY: this value alone owns the ring, which is reached only through `&mut self`; the mapping
// belongs to the process, not to a thread.
unsafe impl Send for Capture {}

/// Returns the bytes that a frame of which `snaplen` bytes are captured takes in the ring.
#[must_use]
pub fn slot_len(snaplen: usize) -> usize {
    (snaplen + BEFORE_FRAME).next_power_of_two().max(256)
}

impl Capture {
    /// Captures the first `snaplen` bytes of each frame on `interface`, in the network namespace of
    /// the calling thread, with space for at least `frames` unread frames. Needs `CAP_NET_RAW`.
    ///
    /// # Errors
    /// The error of the kernel: no such interface, no privilege, no memory; `InvalidInput` for a
    /// `snaplen` longer than any frame.
    pub fn open(interface: &str, frames: usize, snaplen: usize) -> io::Result<Self> {
        let slot = slot_len(snaplen);
        if slot > BLOCK {
            let sentence = format!("no frame has {snaplen} bytes");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, sentence));
        }
        let slots_per_block = BLOCK / slot;
        let blocks = frames.div_ceil(slots_per_block).max(1);
        let socket = packet_socket::open()?;
        let version = libc::tpacket_versions::TPACKET_V2 as libc::c_int;
        packet_socket::set_option(&socket, libc::SOL_PACKET, libc::PACKET_VERSION, &version)?;
        let request = libc::tpacket_req {
            tp_block_size: BLOCK as u32,
            tp_block_nr: blocks as u32,
            tp_frame_size: slot as u32,
            tp_frame_nr: (blocks * slots_per_block) as u32,
        };
        packet_socket::set_option(&socket, libc::SOL_PACKET, libc::PACKET_RX_RING, &request)?;

        // SAFETY: a fresh shared mapping of a length the kernel has just
        // agreed to; the address is chosen by the kernel and checked.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                blocks * BLOCK,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                socket.as_raw_fd(),
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let ring = NonNull::new(address.cast::<u8>())
            .ok_or_else(|| io::Error::other("the ring was mapped at address zero"))?;
        let slots = blocks * slots_per_block;
        let capture = Self { socket, ring, slots, slot, snaplen, next: 0 };

        packet_socket::bind(&capture.socket, packet_socket::index_of(interface)?)?;
        Ok(capture)
    }

    /// Makes the kernel ignore all frames, or capture them again: at some hundred thousand small
    /// packets per second even a short copy is noticeable.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn pause(&self, paused: bool) -> io::Result<()> {
        if paused {
            packet_socket::refuse_all(&self.socket)
        } else {
            packet_socket::set_option(&self.socket, libc::SOL_SOCKET, libc::SO_DETACH_FILTER, &0)
        }
    }

    /// Passes every captured frame to `take`, the oldest first, returns the slots to the kernel,
    /// and returns the number of frames.
    pub fn drain(&mut self, mut take: impl FnMut(Frame<'_>)) -> usize {
        let mut taken = 0;
        // At most one round, so that a flood cannot keep the caller here.
        while taken < self.slots {
            // SAFETY: `next < slots`, so the slot lies inside the mapping,
            // which lives as long as `self`.
            let slot = unsafe { self.ring.add(self.next * self.slot) };
            // SAFETY: `tp_status` is the first field of `tpacket2_hdr`: a u32
            // at a multiple of at least 256, shared with the kernel, hence atomic.
            let status = unsafe { AtomicU32::from_ptr(slot.as_ptr().cast::<u32>()) };
            if status.load(Ordering::Acquire) & libc::TP_STATUS_USER == 0 {
                break;
            }
            // SAFETY: the status says that the slot belongs to this process; the kernel has written
            // the header and does not change it until the slot is returned.
            let header = unsafe { slot.cast::<libc::tpacket2_hdr>().as_ptr().read() };
            let start = usize::from(header.tp_mac).min(self.slot);
            let len = (header.tp_snaplen as usize).min(self.slot - start).min(self.snaplen);
            // SAFETY: start + len <= slot by the two lines above, so the slice
            // lies in this slot; it ends before the slot is given back.
            let bytes = unsafe { std::slice::from_raw_parts(slot.as_ptr().add(start), len) };
            take(Frame {
                time: Duration::new(u64::from(header.tp_sec), header.tp_nsec),
                wire_len: header.tp_len,
                bytes,
            });
            status.store(libc::TP_STATUS_KERNEL, Ordering::Release);
            self.next = (self.next + 1) % self.slots;
            taken += 1;
        }
        taken
    }

    /// Returns the frames that the kernel dropped without a free slot since the last call.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn dropped(&self) -> io::Result<u32> {
        packet_socket::dropped(&self.socket)
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping made in `open`; no reference to it outlives `drain`.
        unsafe { libc::munmap(self.ring.as_ptr().cast(), self.slots * self.slot) };
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;
    use crate::testing::own_namespace;

    /// A socket that sends datagrams to itself.
    struct Sender(UdpSocket);

    impl Sender {
        fn new() -> Self {
            let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
            socket.connect(socket.local_addr().expect("its address")).expect("a peer");
            socket.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
            Self(socket)
        }

        /// Sends a datagram, which has passed the interface when this returns.
        fn send(&self, bytes: &[u8]) {
            self.0.send(bytes).expect("sent");
            let mut came = vec![0; bytes.len()];
            let octets = crate::retried(|| self.0.recv(&mut came)).expect("it comes");
            assert_eq!(octets, bytes.len());
        }
    }

    #[test]
    fn unknown_interface_is_an_error_not_a_deaf_capture() {
        let error = Capture::open("no-such-if", 1, HEAD).expect_err("opened a capture on nothing");
        assert!(matches!(error.raw_os_error(), Some(libc::ENODEV | libc::EPERM)), "{error}");
    }

    #[test]
    fn refuses_a_snaplen_longer_than_any_frame() {
        let error = Capture::open("lo", 1, 1 << 20).expect_err("opened");
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn a_paused_capture_sees_nothing_and_goes_on() {
        let Some(_namespace) = own_namespace() else { return };
        let mut capture = Capture::open("lo", 64, HEAD).expect("a capture");
        let sender = Sender::new();
        let mut seen = |paused: bool| {
            capture.pause(paused).expect("a filter");
            capture.drain(|_| {});
            sender.send(&[0x5a; 777]);
            let mut ours = 0;
            capture.drain(|frame| ours += usize::from(frame.wire_len == 14 + 20 + 8 + 777));
            ours
        };
        // The loopback interface shows a frame twice, when it leaves and when it arrives.
        assert_eq!([seen(true), seen(false), seen(true)], [0, 2, 0]);
    }

    #[test]
    fn the_loopback_interface_in_slots_of_any_size() {
        let Some(_namespace) = own_namespace() else { return };
        for snaplen in [0, 60, HEAD, HEAD + 1, 2000, 9014, 65_600] {
            let mut capture = Capture::open("lo", 64, snaplen).expect("a capture");
            let sender = Sender::new();
            let marker = [snaplen as u8 ^ 0x5a; 1234];
            // More frames than the ring has slots.
            let (mut seen, mut whole) = (0, 0);
            for _ in 0..20 {
                for _ in 0..10 {
                    sender.send(&marker);
                }
                capture.drain(|frame| {
                    assert!(frame.bytes.len() <= snaplen.min(frame.wire_len as usize));
                    let ours = frame.wire_len as usize == 14 + 20 + 8 + marker.len();
                    seen += usize::from(ours);
                    whole += usize::from(ours && frame.bytes.ends_with(&marker));
                });
            }
            assert!(seen >= 200, "{seen} with {snaplen}");
            assert!(snaplen < 2000 || whole >= 200, "{whole} with {snaplen}");
        }
    }
}
