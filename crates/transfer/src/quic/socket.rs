//! UDP sockets for QUIC.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;

use quinn::{Endpoint, EndpointConfig, TokioRuntime};
use socket2::{Domain, Protocol, Socket, Type};

/// The requested size of socket buffers in bytes.
const SOCKET_BUFFER: usize = 4 << 20;

/// Returns the unspecified address of the same family.
pub(super) fn any_address(towards: SocketAddr) -> IpAddr {
    match towards {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    }
}

pub(super) fn client_endpoint(towards: SocketAddr) -> io::Result<Endpoint> {
    let socket = socket(SocketAddr::new(any_address(towards), 0), false)?;
    let mut config = EndpointConfig::default();
    config.grease_quic_bit(false);
    Endpoint::new(config, None, socket, Arc::new(TokioRuntime))
}

/// Opens a socket with large buffers; on `[::]` it also receives IPv4. If it is `shared`, other
/// sockets of this user may be bound to its port.
pub(super) fn socket(address: SocketAddr, shared: bool) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    if address.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED) {
        let _ = socket.set_only_v6(false);
    }
    // the kernel grants as much as it allows
    let _ = socket.set_recv_buffer_size(SOCKET_BUFFER);
    let _ = socket.set_send_buffer_size(SOCKET_BUFFER);
    socket.bind(&address.into())?;
    if shared {
        // before binding, it would join the port of another server of this user
        socket.set_reuse_port(true)?;
    }
    Ok(socket.into())
}
