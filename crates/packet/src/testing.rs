//! Packets for tests, checked with etherparse.

use crate::checksum::not_zero;
use etherparse::{NetHeaders, PacketBuilder, PacketHeaders, TcpOptionElement, TransportHeader};

/// The settings of a test packet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Recipe {
    pub(crate) v6: bool,
    pub(crate) udp: bool,
    pub(crate) timestamps: bool,
    pub(crate) sequence: u32,
    pub(crate) push: bool,
}

impl Recipe {
    pub(crate) const TCP: Self =
        Self { v6: false, udp: false, timestamps: false, sequence: 7, push: false };

    /// Returns a complete IP packet from 10.0.0.1 (or fdfd:…) port 40000 to port 53.
    pub(crate) fn build(self, payload: &[u8]) -> Vec<u8> {
        let ip = if self.v6 {
            PacketBuilder::ipv6([0xfd; 16], [0xfc; 16], 64)
        } else {
            PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
        };
        let mut bytes = Vec::new();
        if self.udp {
            ip.udp(40000, 53).write(&mut bytes, payload).expect("etherparse writes to a vector");
            return bytes;
        }
        let mut tcp = ip.tcp(40000, 53, self.sequence, 65535).ack(9);
        if self.push {
            tcp = tcp.psh();
        }
        if self.timestamps {
            use TcpOptionElement::{Noop, Timestamp};
            tcp = tcp.options(&[Noop, Noop, Timestamp(11, 12)]).expect("options that fit");
        }
        tcp.write(&mut bytes, payload).expect("etherparse writes to a vector");
        bytes
    }
}

/// Asserts that the checksums of an IP packet are those that etherparse computes, with 0xffff for
/// 0.
pub(crate) fn assert_checksums(packet: &[u8]) {
    let packet = PacketHeaders::from_ip_slice(packet).expect("a whole packet");
    let payload = packet.payload.slice();
    let (written, computed) = match (packet.net.expect("IP"), packet.transport.expect("some")) {
        (NetHeaders::Ipv4(ip, _), transport) => {
            assert_eq!(ip.header_checksum, ip.calc_header_checksum());
            match transport {
                TransportHeader::Tcp(tcp) => (tcp.checksum, tcp.calc_checksum_ipv4(&ip, payload)),
                TransportHeader::Udp(udp) => (udp.checksum, udp.calc_checksum_ipv4(&ip, payload)),
                _ => panic!("neither TCP nor UDP"),
            }
        }
        (NetHeaders::Ipv6(ip, _), transport) => match transport {
            TransportHeader::Tcp(tcp) => (tcp.checksum, tcp.calc_checksum_ipv6(&ip, payload)),
            TransportHeader::Udp(udp) => (udp.checksum, udp.calc_checksum_ipv6(&ip, payload)),
            _ => panic!("neither TCP nor UDP"),
        },
        _ => panic!("not IP"),
    };
    assert_eq!(Ok(written), computed.map(not_zero).map_err(|_| ()));
}
