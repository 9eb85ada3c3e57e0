//! The `AF_PACKET` socket (packet(7)) of the capture and the link socket. It receives nothing until
//! it is bound to an interface.

use std::ffi::CString;
use std::io;
use std::mem::{size_of, size_of_val, zeroed};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Opens a socket that receives nothing yet. Needs `CAP_NET_RAW`.
pub(crate) fn open() -> io::Result<OwnedFd> {
    // SAFETY: no pointers; the result is checked below.
    let fd = unsafe {
        libc::socket(
            libc::AF_PACKET,
            libc::SOCK_RAW | libc::SOCK_CLOEXEC,
            0, // no protocol until bound: no frame of another interface arrives
        )
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `fd` was just opened, is valid and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Returns the index of an interface in the network namespace of the calling thread.
pub(crate) fn index_of(interface: &str) -> io::Result<i32> {
    let name = CString::new(interface)?;
    // SAFETY: `name` is a NUL-terminated string that lives until the call returns.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(io::Error::last_os_error()),
        index => Ok(index as i32),
    }
}

/// Binds the socket to all frames of one interface.
pub(crate) fn bind(socket: &OwnedFd, index: i32) -> io::Result<()> {
    // SAFETY: all-zero bytes are a valid `sockaddr_ll`.
    let mut address: libc::sockaddr_ll = unsafe { zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    address.sll_ifindex = index;
    // SAFETY: the address and its true length are passed; both live until the call returns.
    let bound = unsafe {
        libc::bind(
            socket.as_raw_fd(),
            (&raw const address).cast::<libc::sockaddr>(),
            size_of_val(&address) as libc::socklen_t,
        )
    };
    if bound == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Returns the frames that the kernel dropped since the last call because the buffer was full.
pub(crate) fn dropped(socket: &OwnedFd) -> io::Result<u32> {
    // SAFETY: all-zero bytes are a valid `tpacket_stats`.
    let mut stats: libc::tpacket_stats = unsafe { zeroed() };
    let mut len = size_of::<libc::tpacket_stats>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes into `stats`.
    let got = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_STATISTICS,
            (&raw mut stats).cast::<libc::c_void>(),
            &raw mut len,
        )
    };
    if got == 0 { Ok(stats.tp_drops) } else { Err(io::Error::last_os_error()) }
}

/// Attaches a filter that rejects every frame (socket(7), `SO_ATTACH_FILTER`).
pub(crate) fn refuse_all(socket: &OwnedFd) -> io::Result<()> {
    let code = (libc::BPF_RET | libc::BPF_K) as u16;
    let mut program = [libc::sock_filter { code, jt: 0, jf: 0, k: 0 }];
    // The kernel copies the program, which lives until the call returns.
    let program = libc::sock_fprog { len: 1, filter: program.as_mut_ptr() };
    set_option(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)
}

/// Sets an option; its value must have the type that the kernel expects.
pub(crate) fn set_option<T: Copy>(
    socket: &OwnedFd,
    level: libc::c_int,
    option: libc::c_int,
    value: &T,
) -> io::Result<()> {
    // SAFETY: pointer and length describe `value`, which lives until the call returns.
    let set = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            (&raw const *value).cast::<libc::c_void>(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
