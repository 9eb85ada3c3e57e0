//! IKEv2 (RFC 7296) without sockets, files and clocks.

pub mod crypto;
pub mod wire;
