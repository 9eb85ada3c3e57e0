//! Between which addresses messages go.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// The addresses of both ends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Path {
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
}

/// Returns what one peer can have many addresses of: an IPv6 network of 64 bits.
pub(crate) fn site(source: IpAddr) -> IpAddr {
    match source {
        IpAddr::V4(_) => source,
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
    }
}
