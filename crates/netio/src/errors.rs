//! Errors that routers and peers reported for earlier packets (`IP_RECVERR`, ip(7)), above all the
//! path MTU.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};

use crate::control::{Control, field};
use crate::socket;

/// An error report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SocketError {
    /// The destination of the packet.
    pub destination: SocketAddr,
    /// The error number: `EMSGSIZE`, `ECONNREFUSED`, `EHOSTUNREACH`.
    pub errno: i32,
    /// With `EMSGSIZE`: the path MTU in bytes.
    pub mtu: Option<u32>,
    /// Whether the report came by ICMP, which any host that guesses the packet can send; otherwise
    /// it is of this host's kernel.
    pub by_icmp: bool,
}

/// Removes one report from a socket's error queue; None if it is empty. A socket that is readable
/// because of a report stays readable until all are removed.
///
/// # Errors
/// The error of the kernel.
pub fn read(from: &impl AsFd) -> io::Result<Option<SocketError>> {
    // SAFETY: all-zero bytes are a valid `sockaddr_storage`.
    let mut name: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    let mut control = Control::<64>::new();
    let mut head = [0u8; 64];
    let mut vector = libc::iovec { iov_base: head.as_mut_ptr().cast(), iov_len: head.len() };
    let mut message = socket::empty_message().msg_hdr;
    message.msg_name = (&raw mut name).cast();
    message.msg_namelen = size_of_val(&name) as libc::socklen_t;
    message.msg_iov = &raw mut vector;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr();
    message.msg_controllen = Control::<64>::CAPACITY as _;
    // SAFETY: name, vector and control buffer have the given sizes and live until the call returns,
    // and nothing else refers to them meanwhile.
    let got = unsafe {
        libc::recvmsg(
            from.as_fd().as_raw_fd(),
            &raw mut message,
            libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT,
        )
    };
    if got < 0 {
        let error = io::Error::last_os_error();
        return match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(None),
            _ => Err(error),
        };
    }
    control.set_len(message.msg_controllen as _);
    let Some(destination) = socket::from_storage(&name) else { return Ok(None) };
    let answer = control.messages().find_map(|(level, kind, data)| {
        let ours = [(libc::IPPROTO_IP, libc::IP_RECVERR), (libc::IPPROTO_IPV6, libc::IPV6_RECVERR)];
        ours.contains(&(level, kind)).then(|| read_extended_error(destination, data))?
    });
    Ok(answer)
}

/// Reads a `sock_extended_err` (linux/errqueue.h).
pub(crate) fn read_extended_error(destination: SocketAddr, data: &[u8]) -> Option<SocketError> {
    let errno = u32::from_ne_bytes(field(data, 0)?).cast_signed();
    let [origin] = field(data, 4)?;
    let info = u32::from_ne_bytes(field(data, 8)?);
    let mtu = (errno == libc::EMSGSIZE).then_some(info);
    let by_icmp = origin == libc::SO_EE_ORIGIN_ICMP || origin == libc::SO_EE_ORIGIN_ICMP6;
    Some(SocketError { destination, errno, mtu, by_icmp })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::udp::{Options, Train, UdpSocket};
    use std::io::IoSlice;

    #[test]
    fn reports_a_closed_port_with_its_address() {
        let any = ([127, 0, 0, 1], 0).into();
        let socket = UdpSocket::bind(any, &Options::default()).expect("a socket");
        // a port that nobody gets by chance, as one that was just closed might be
        let closed = ([127, 0, 0, 1], 9).into();
        let datagrams = [IoSlice::new(b"anyone?")];
        let train = Train {
            destination: closed,
            source: None,
            tos: 0,
            dont_fragment: false,
            datagrams: &datagrams,
        };
        socket.send(&train).expect("a datagram");
        let answer = loop {
            socket::wait_readable(&[&socket], None).expect("a wait");
            if let Some(answer) = read(&socket).expect("an error queue") {
                break answer;
            }
        };
        assert_eq!((answer.destination, answer.mtu), (closed, None));
        assert_eq!((answer.errno, answer.by_icmp), (libc::ECONNREFUSED, true));
        assert_eq!(read(&socket).expect("an error queue"), None);
    }
}
