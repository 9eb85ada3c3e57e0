//! What all sockets share: opening, options, address conversion, waiting.

use std::io;
use std::mem::{size_of, size_of_val, zeroed};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// Bytes that the kernel may queue in each direction for a datapath socket: some milliseconds at 10
/// Gbit/s.
const BUFFER: libc::c_int = 8 << 20;

/// Opens a socket with close-on-exec.
pub(crate) fn open(
    family: libc::c_int,
    kind: libc::c_int,
    protocol: libc::c_int,
) -> io::Result<OwnedFd> {
    // SAFETY: no pointers; the result is checked below.
    let fd = unsafe { libc::socket(family, kind | libc::SOCK_CLOEXEC, protocol) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `fd` was just opened, is valid and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Sets an option; its value must have the type that the kernel expects.
pub(crate) fn set_option<T: Copy>(
    socket: &impl AsFd,
    level: libc::c_int,
    option: libc::c_int,
    value: &T,
) -> io::Result<()> {
    // SAFETY: pointer and length describe `value`, which lives until the call returns.
    let set = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            option,
            (&raw const *value).cast::<libc::c_void>(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Sets a numeric option.
pub(crate) fn set_number(
    socket: &impl AsFd,
    level: libc::c_int,
    option: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    set_option(socket, level, option, &value)
}

/// Returns a numeric option.
pub(crate) fn get_number(
    socket: &impl AsFd,
    level: libc::c_int,
    option: libc::c_int,
) -> io::Result<libc::c_int> {
    let mut value: libc::c_int = 0;
    let mut len = size_of_val(&value) as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes into `value`, which lives until the call
    // returns.
    let got = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            option,
            (&raw mut value).cast::<libc::c_void>(),
            &raw mut len,
        )
    };
    if got == 0 { Ok(value) } else { Err(io::Error::last_os_error()) }
}

/// Enlarges both buffers: beyond the system limit with `CAP_NET_ADMIN`, otherwise up to it.
pub(crate) fn enlarge_buffers(socket: &impl AsFd) -> io::Result<()> {
    for (force, plain) in
        [(libc::SO_RCVBUFFORCE, libc::SO_RCVBUF), (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF)]
    {
        set_option(socket, libc::SOL_SOCKET, force, &BUFFER)
            .or_else(|_| set_option(socket, libc::SOL_SOCKET, plain, &BUFFER))?;
    }
    Ok(())
}

/// Makes a send wait if the buffer is full, with a time limit: a dead link would block the thread.
pub(crate) fn limit_wait(socket: &impl AsFd) -> io::Result<()> {
    let quarter = libc::timeval { tv_sec: 0, tv_usec: 250_000 };
    set_option(socket, libc::SOL_SOCKET, libc::SO_SNDTIMEO, &quarter)
}

/// Marks the packets of this socket, for `ip rule fwmark`.
pub(crate) fn set_mark(socket: &impl AsFd, mark: u32) -> io::Result<()> {
    set_option(socket, libc::SOL_SOCKET, libc::SO_MARK, &mark)
}

/// Binds a socket to an address.
pub(crate) fn bind(socket: &impl AsFd, address: &SocketAddr) -> io::Result<()> {
    let (storage, len) = to_storage(address);
    // SAFETY: `storage` contains an address of `len` bytes and lives until the call returns.
    let bound = unsafe { libc::bind(socket.as_fd().as_raw_fd(), (&raw const storage).cast(), len) };
    if bound == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Returns the address of a socket.
pub(crate) fn local_address(socket: &impl AsFd) -> io::Result<SocketAddr> {
    // SAFETY: all-zero bytes are a valid `sockaddr_storage`.
    let mut storage: libc::sockaddr_storage = unsafe { zeroed() };
    let mut len = size_of_val(&storage) as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes into `storage`.
    let got = unsafe {
        libc::getsockname(
            socket.as_fd().as_raw_fd(),
            (&raw mut storage).cast::<libc::sockaddr>(),
            &raw mut len,
        )
    };
    if got != 0 {
        return Err(io::Error::last_os_error());
    }
    from_storage(&storage).ok_or_else(|| io::Error::from(io::ErrorKind::Unsupported))
}

/// Converts an address to the kernel's format, and returns it with its length.
pub(crate) fn to_storage(address: &SocketAddr) -> (libc::sockaddr_storage, libc::socklen_t) {
    // SAFETY: all-zero bytes are a valid `sockaddr_storage`.
    let mut storage: libc::sockaddr_storage = unsafe { zeroed() };
    let len = match address {
        SocketAddr::V4(v4) => {
            let name = libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(v4.ip().octets()) },
                sin_zero: [0; 8],
            };
            // SAFETY: `sockaddr_storage` is as large and as aligned as any address.
            unsafe { (&raw mut storage).cast::<libc::sockaddr_in>().write(name) };
            size_of::<libc::sockaddr_in>()
        }
        SocketAddr::V6(v6) => {
            let name = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: v6.flowinfo(),
                sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
                sin6_scope_id: v6.scope_id(),
            };
            // SAFETY: as above.
            unsafe { (&raw mut storage).cast::<libc::sockaddr_in6>().write(name) };
            size_of::<libc::sockaddr_in6>()
        }
    };
    (storage, len as libc::socklen_t)
}

/// Converts an address from the kernel; None if it wrote none.
pub(crate) fn from_storage(storage: &libc::sockaddr_storage) -> Option<SocketAddr> {
    match libc::c_int::from(storage.ss_family) {
        libc::AF_INET => {
            // SAFETY: the family determines the type, and `sockaddr_storage` is as large and as
            // aligned as any address.
            let v4 = unsafe { (&raw const *storage).cast::<libc::sockaddr_in>().read() };
            let ip = Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes());
            Some(SocketAddr::V4(SocketAddrV4::new(ip, u16::from_be(v4.sin_port))))
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let v6 = unsafe { (&raw const *storage).cast::<libc::sockaddr_in6>().read() };
            let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
            let port = u16::from_be(v6.sin6_port);
            Some(SocketAddr::V6(SocketAddrV6::new(ip, port, v6.sin6_flowinfo, v6.sin6_scope_id)))
        }
        _ => None,
    }
}

/// Returns the number of the address family.
pub(crate) fn family_of(address: &IpAddr) -> libc::c_int {
    if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 }
}

/// Returns an empty message: no address, no data, no control messages.
pub(crate) fn empty_message() -> libc::mmsghdr {
    // SAFETY: all-zero bytes are a valid `mmsghdr`: null pointers, lengths 0.
    unsafe { zeroed() }
}

/// Sends `count` messages in one system call and returns the number of sent ones. The C library is
/// not asked: musl's `sendmmsg` makes one call for each message, as its lengths have half the bytes
/// of the kernel's. The other half is padding, which is zero in an [`empty_message`].
///
/// # Safety
/// The messages were made by [`empty_message`], and what they point to lives until the call returns,
/// which writes the bytes sent into the messages and only reads the rest.
pub(crate) unsafe fn send_messages(
    socket: &OwnedFd,
    first: *mut libc::mmsghdr,
    count: usize,
    flags: libc::c_int,
) -> io::Result<usize> {
    // SAFETY: the caller's messages have the kernel's layout, which is that of every C library here.
    let sent =
        unsafe { libc::syscall(libc::SYS_sendmmsg, socket.as_raw_fd(), first, count, flags) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// The most sockets of one wait.
pub const MAX_WAIT: usize = 64;

/// Waits until one of `sockets`, at most [`MAX_WAIT`], is readable or has an error, or until
/// `timeout` passes (None: no limit). Bit `n` of the result stands for socket `n`.
///
/// # Errors
/// The error of the kernel; a signal is no error.
pub fn wait_readable(sockets: &[&dyn AsFd], timeout: Option<Duration>) -> io::Result<u64> {
    let mut fds = [libc::pollfd { fd: -1, events: 0, revents: 0 }; MAX_WAIT];
    let count = sockets.len();
    if count > fds.len() {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    for (fd, socket) in fds.iter_mut().zip(sockets) {
        *fd = libc::pollfd { fd: socket.as_fd().as_raw_fd(), events: libc::POLLIN, revents: 0 };
    }
    let timeout = timeout.map(|timeout| libc::timespec {
        tv_sec: timeout.as_secs().try_into().unwrap_or(libc::c_long::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    });
    let timeout = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: `count` entries of `fds` are valid, of descriptors that live until the call returns;
    // so does the timeout.
    let ready =
        unsafe { libc::ppoll(fds.as_mut_ptr(), count as libc::nfds_t, timeout, std::ptr::null()) };
    if ready < 0 {
        let error = io::Error::last_os_error();
        return if error.kind() == io::ErrorKind::Interrupted { Ok(0) } else { Err(error) };
    }
    let bits = fds[..count].iter().enumerate();
    Ok(bits.fold(0, |bits, (n, fd)| bits | u64::from(fd.revents != 0) << n))
}

/// Repeats a call while it is interrupted. A call with a time limit is interrupted when a machine
/// was suspended, even without a signal handler (`SO_RCVTIMEO` in signal(7)); its limit then starts
/// again.
///
/// # Errors
/// Any other error of the call.
pub fn retried<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            outcome => return outcome,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_interrupted_call_is_made_again() {
        let mut outcomes = [
            Err(io::Error::from(io::ErrorKind::Interrupted)),
            Err(io::Error::from(io::ErrorKind::Interrupted)),
            Ok(3),
            Err(io::Error::from(io::ErrorKind::WouldBlock)),
        ]
        .into_iter();
        let mut call = || outcomes.next().expect("no call too many");
        assert_eq!(retried(&mut call).expect("it succeeds"), 3);
        assert_eq!(retried(&mut call).expect_err("it fails").kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn addresses_survive_the_kernels_form() {
        for text in ["192.0.2.1:4500", "[2001:db8::1]:4500", "[fe80::1%3]:0"] {
            let address: SocketAddr = text.parse().expect("an address");
            assert_eq!(from_storage(&to_storage(&address).0), Some(address));
        }
    }
}
