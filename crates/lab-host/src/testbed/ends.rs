//! The two addresses of packets, on the link or inside a layer.

use std::net::IpAddr;

/// Addresses of client and server, and the largest packet between them.
#[derive(Debug, Clone, Copy)]
pub struct Ends {
    /// Address of the client.
    pub client: IpAddr,
    /// Address of the server.
    pub server: IpAddr,
    /// Bytes of the largest IP packet.
    pub mtu: u32,
    /// The ports of layers begin behind this one.
    pub ports: u16,
}

impl Ends {
    /// The ports of layers where nothing else listens; those of applications end
    /// with other digits.
    pub const PORTS: u16 = 14_400;

    /// The port of the instance with this number.
    pub fn port(&self, number: u16) -> u16 {
        self.ports + number
    }
}
