//! A TUN interface (Linux Documentation/networking/tuntap.rst) whose packets
//! come and go with a `virtio_net_hdr`: unfinished checksums and whole trains
//! of segments cross in one system call.

use std::ffi::c_char;
use std::fs::OpenOptions;
use std::io::{self, IoSlice};
use std::mem::zeroed;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

/// Octets of the `virtio_net_hdr` before each packet (linux/virtio_net.h), its
/// fields in the machine's byte order.
pub const VNET_HEADER_LEN: usize = 10;
/// Octets that hold any packet with its header.
pub const MAX_READ: usize = VNET_HEADER_LEN + 65_535;
/// The parts of one write: the header, then what the packet is made of.
pub const MAX_PARTS: usize = 1024; // UIO_MAXIOV

const DEVICE: &str = "/dev/net/tun";

/// One queue of a TUN interface. The interface lives as long as one of its
/// queues.
#[derive(Debug)]
pub struct Tun {
    file: OwnedFd,
    name: String,
    udp_trains: bool,
}

impl Tun {
    /// Makes the interface `name`, which must not exist, with so many queues,
    /// in the network namespace of the calling thread. Needs `CAP_NET_ADMIN`.
    ///
    /// # Errors
    /// What the kernel answered: `EBUSY` where the interface exists, `EPERM`,
    /// `ENOENT` where there is no `/dev/net/tun`.
    pub fn create(name: &str, queues: usize) -> io::Result<Vec<Self>> {
        let kind = libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
        let several = if queues > 1 { libc::IFF_MULTI_QUEUE } else { 0 };
        let mut tuns = Vec::with_capacity(queues);
        for queue in 0..queues.max(1) {
            // the first makes the interface, and finds out if it is somebody else's
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
        // SAFETY: all-zero octets are a valid `ifreq`.
        let mut request: libc::ifreq = unsafe { zeroed() };
        if name.is_empty() || name.len() >= request.ifr_name.len() || name.contains('\0') {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("`{name}` cannot be an interface's name: it must have 1 to 15 octets"),
            ));
        }
        for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
            *to = from as c_char;
        }
        request.ifr_ifru.ifru_flags = flags as libc::c_short;
        // SAFETY: TUNSETIFF reads and writes one `ifreq`, which lives over the call.
        check(unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF as _, &raw mut request) })?;
        let len = VNET_HEADER_LEN as libc::c_int;
        // SAFETY: TUNSETVNETHDRSZ reads one int, which lives over the call.
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

    /// The interface's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether the kernel also hands over, and takes, trains of UDP datagrams.
    #[must_use]
    pub fn has_udp_trains(&self) -> bool {
        self.udp_trains
    }

    /// Reads one `virtio_net_hdr` with its packet into `buffer`, of [`MAX_READ`]
    /// octets, and returns how many octets they have. Does not wait: 0 where
    /// there is none.
    ///
    /// # Errors
    /// What the kernel answered: `EBADFD` where the interface is gone, `EIO`
    /// where it is down.
    pub fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        // SAFETY: pointer and length describe `buffer`, which lives over the call.
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

    /// Writes one packet: a `virtio_net_hdr` of [`VNET_HEADER_LEN`] octets and
    /// what the packet is made of, at most [`MAX_PARTS`] slices in all. Small
    /// slices cost less at the head: the kernel copies each.
    ///
    /// # Errors
    /// What the kernel answered: `EINVAL` for a header that does not fit its
    /// packet, `EIO` where the interface is down, `ENOMEM`.
    pub fn write(&self, parts: &[IoSlice<'_>]) -> io::Result<()> {
        // SAFETY: `IoSlice` has the layout of `iovec`; the slices live over the
        // call, which only reads them.
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
    fn a_datagram_goes_out_by_the_interface_and_one_comes_in() {
        let Some(_namespace) = own_namespace() else { return };
        let tun = Tun::create("hr-test", 1).expect("a TUN").remove(0);
        run("ip addr add 10.99.0.1/24 dev hr-test");
        run("ip link set hr-test up");
        let socket = UdpSocket::bind("10.99.0.1:7000").expect("a socket");
        socket.send_to(b"there", "10.99.0.2:7001").expect("a datagram sent");
        let mut buffer = vec![0; MAX_READ];
        let packet = loop {
            let len = tun.read(&mut buffer).expect("a packet");
            // router solicitations are the interface's own
            if buffer[..len].ends_with(b"there") {
                break buffer[VNET_HEADER_LEN..len].to_vec();
            }
        };
        assert_eq!((packet[0], packet.len()), (0x45, 20 + 8 + 5));
        // the same datagram on its way back, without a UDP checksum
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
    fn an_interface_that_exists_is_not_taken_over() {
        let Some(_namespace) = own_namespace() else { return };
        let tuns = Tun::create("hr-test", 2).expect("a TUN of two queues");
        assert_eq!(tuns.len(), 2);
        let error = Tun::create("hr-test", 2).expect_err("took somebody's interface");
        assert_eq!(error.raw_os_error(), Some(libc::EBUSY));
    }

    #[test]
    fn a_name_that_is_too_long_is_refused_in_words() {
        let error = Tun::create("sixteen-octets-x", 1).expect_err("a name of 16 octets");
        assert!(error.to_string().contains("1 to 15 octets"), "{error}");
    }
}
