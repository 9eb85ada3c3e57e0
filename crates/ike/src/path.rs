//! Between which addresses messages go.

use std::net::SocketAddr;

/// The addresses of both ends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Path {
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
}
