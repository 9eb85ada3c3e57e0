//! A TUN interface (Linux Documentation/networking/tuntap.rst) with a `virtio_net_hdr` before each
//! packet: one system call transfers a whole segment train, with an unfinished checksum.

use std::ffi::c_char;
use std::fs::OpenOptions;
use std::io::{self, IoSlice};
use std::mem::zeroed;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

/// Bytes of the `virtio_net_hdr` before each packet (linux/virtio_net.h), in the machine's byte
/// order.
pub const VNET_HEADER_LEN: usize = 10;
/// Bytes that hold any packet with its header.
pub const MAX_READ: usize = VNET_HEADER_LEN + 65_535;
/// The most slices of one write: the header, then the packet.
pub const MAX_PARTS: usize = 1024; // UIO_MAXIOV

const DEVICE: &str = "/dev/net/tun";

/// One queue of a TUN interface. The interface exists as long as one of its queues.
#[derive(Debug)]
pub struct Tun {
    file: OwnedFd,
    name: String,
    udp_trains: bool,
}

impl Tun {
    /// Creates the interface `name`, which must not exist, with this number of queues, in the
    /// network namespace of the calling thread. Needs `CAP_NET_ADMIN`.
    ///
    /// # Errors
    /// The error of the kernel: `EBUSY` if the interface exists, `EPERM`, `ENOENT` without
    /// `/dev/net/tun`.
    pub fn create(name: &str, queues: usize) -> io::Result<Vec<Self>> {
        let kind = libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
        let several = if queues > 1 { libc::IFF_MULTI_QUEUE } else { 0 };
        let mut tuns = Vec::with_capacity(queues);
        for queue in 0..queues.max(1) {
            // The first open creates the interface, and fails if it exists.
            let exclusive = if queue == 0 { libc::IFF_TUN_EXCL } else { 0 };
            tuns.push(Self::attach(name, kind | several | exclusive)?);
        }
        Ok(tuns)
    }

    fn attach(name: &str, flags: libc::c_int) -> io::Result<Self> {
        let file: OwnedFd = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(DEVICE)?
            .into();
        // SAFETY: all-zero bytes are a valid `ifreq`.
        let mut request: libc::ifreq = unsafe { zeroed() };
        if name.is_empty() || name.len() >= request.ifr_name.len() || name.contains('\0') {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("`{name}` cannot be an interface's name: it must have 1 to 15 bytes"),
            ));
        }
        for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
            *to = from as c_char;
        }
        request.ifr_ifru.ifru_flags = flags as libc::c_short;
        // SAFETY: TUNSETIFF reads and writes one `ifreq`, which lives until the call returns.
        check(unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF as _, &raw mut request) })?;
        let len = VNET_HEADER_LEN as libc::c_int;
        // SAFETY: TUNSETVNETHDRSZ reads one int, which lives until the call returns.
        check(unsafe {
            libc::ioctl(file.as_raw_fd(), libc::TUNSETVNETHDRSZ as _, &raw const len)
        })?;
        let tcp = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;
        let udp = libc::TUN_F_USO4 | libc::TUN_F_USO6; // since Linux 6.2
        let udp_trains = match set_offload(&file, tcp | udp) {
            Ok(()) => true,
            Err(_) => {
                set_offload(&file, tcp)?;
                false
            }
        };
        Ok(Self { file, name: name.to_owned(), udp_trains })
    }

    /// Returns the interface's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Checks whether the kernel also passes trains of UDP datagrams.
    #[must_use]
    pub fn has_udp_trains(&self) -> bool {
        self.udp_trains
    }

    /// Reads one `virtio_net_hdr` with its packet into `buffer` of [`MAX_READ`] bytes and returns
    /// their length. Does not wait: 0 without a packet.
    ///
    /// # Errors
    /// The error of the kernel: `EBADFD` if the interface is gone, `EIO` if it is down.
    pub fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        // SAFETY: pointer and length describe `buffer`, which lives until the call returns.
        let got =
            unsafe { libc::read(self.file.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len()) };
        if got >= 0 {
            return Ok(got as usize);
        }
        let error = io::Error::last_os_error();
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(0),
            _ => Err(error),
        }
    }

    /// Writes one packet: a `virtio_net_hdr` of [`VNET_HEADER_LEN`] bytes and the slices of the
    /// packet, at most [`MAX_PARTS`] in all. Small slices are cheaper at the start, which the
    /// kernel copies.
    ///
    /// # Errors
    /// The error of the kernel: `EINVAL` for a header that does not match its packet, `EIO` if the
    /// interface is down, `ENOMEM`.
    pub fn write(&self, parts: &[IoSlice<'_>]) -> io::Result<()> {
        // SAFETY: `IoSlice` has the layout of `iovec`; the slices live until the call returns,
        // which only reads them.
        let wrote = unsafe {
            libc::writev(
                self.file.as_raw_fd(),
                parts.as_ptr().cast::<libc::iovec>(),
                parts.len() as libc::c_int,
            )
        };
        if wrote >= 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

fn set_offload(file: &OwnedFd, features: libc::c_uint) -> io::Result<()> {
    let features = features as libc::c_ulong;
    // SAFETY: TUNSETOFFLOAD takes a number, no pointer.
    check(unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETOFFLOAD as _, features) })
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{own_namespace, run};
    use std::net::UdpSocket;

    #[test]
    fn reads_and_writes_datagrams() {
        let Some(_namespace) = own_namespace() else { return };
        let tun = Tun::create("hr-test", 1).expect("a TUN").remove(0);
        run("ip addr add 10.99.0.1/24 dev hr-test");
        run("ip link set hr-test up");
        let socket = UdpSocket::bind("10.99.0.1:7000").expect("a socket");
        socket.send_to(b"there", "10.99.0.2:7001").expect("a datagram sent");
        let mut buffer = vec![0; MAX_READ];
        let packet = loop {
            let len = tun.read(&mut buffer).expect("a packet");
            // The interface sends router solicitations itself.
            if buffer[..len].ends_with(b"there") {
                break buffer[VNET_HEADER_LEN..len].to_vec();
            }
        };
        assert_eq!((packet[0], packet.len()), (0x45, 20 + 8 + 5));
        // The same datagram in the other direction, without a UDP checksum.
        let mut back = packet;
        back[12..20].copy_from_slice(&[10, 99, 0, 2, 10, 99, 0, 1]);
        back[20..24].copy_from_slice(&[0x1b, 0x59, 0x1b, 0x58]); // 7001 to 7000
        back[26..28].fill(0);
        let (head, payload) = back.split_at(28);
        tun.write(&[
            IoSlice::new(&[0; VNET_HEADER_LEN]),
            IoSlice::new(head),
            IoSlice::new(payload),
        ])
        .expect("a packet written");
        let mut received = [0; 16];
        let (len, from) = socket.recv_from(&mut received).expect("the datagram");
        assert_eq!((&received[..len], from.port()), (&b"there"[..], 7001));
    }

    #[test]
    fn refuses_an_existing_interface() {
        let Some(_namespace) = own_namespace() else { return };
        let tuns = Tun::create("hr-test", 2).expect("a TUN of two queues");
        assert_eq!(tuns.len(), 2);
        let error = Tun::create("hr-test", 2).expect_err("took somebody's interface");
        assert_eq!(error.raw_os_error(), Some(libc::EBUSY));
    }

    #[test]
    fn a_name_that_is_too_long_is_refused_in_words() {
        let error = Tun::create("sixteen-bytes-xx", 1).expect_err("a name of 16 bytes");
        assert!(error.to_string().contains("1 to 15 bytes"), "{error}");
    }
}
