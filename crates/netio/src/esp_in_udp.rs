//! Makes the kernel's IPsec take the ESP packets of a UDP port (RFC 3948).

use std::io;
use std::mem::size_of_val;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;

/// `UDP_ENCAP` and its value for ESP (linux/udp.h).
const UDP_ENCAP: libc::c_int = 100;
const UDP_ENCAP_ESPINUDP: libc::c_int = 2;

/// Makes the kernel's IPsec take the ESP packets of this socket; IKE and keepalives remain. Over
/// IPv6 it needs Linux 5.8.
///
/// # Errors
/// The kernel lacks this.
pub fn give_to_kernel(socket: &UdpSocket) -> io::Result<()> {
    let value = UDP_ENCAP_ESPINUDP;
    // SAFETY: pointer and length describe `value`, which lives until the call returns.
    let set = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_UDP,
            UDP_ENCAP,
            (&raw const value).cast(),
            size_of_val(&value) as libc::socklen_t,
        )
    };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
