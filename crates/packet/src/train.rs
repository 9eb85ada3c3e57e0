//! Offloaded trains: one large frame that a sender leaves to its network card
//! to cut into single ones (TCP and UDP segmentation offload, TSO and USO).

use std::ops::Range;

use crate::checksum::{fold, not_zero, sum};
use crate::{Error, be16, be32, ipv4, ipv6, put16, tcp};

const UDP: u8 = 17;
const UDP_HEADER_LEN: usize = 8;
/// Extension headers that may stand before the transport header (RFC 8200).
/// Not the routing header: it changes the address that the checksum covers.
const HOP_BY_HOP: u8 = 0;
const DESTINATION_OPTIONS: u8 = 60;
/// FIN and PSH belong to the last segment, CWR to the first (RFC 3168, 6.1.2).
const FIN_PSH: u8 = 0x01 | 0x08;
const CWR: u8 = 0x80;

/// A train whose headers are known to be whole.
#[derive(Debug, Clone)]
pub struct Train<'a> {
    bytes: &'a [u8],
    network: usize,
    transport: usize,
    payload: Range<usize>,
    protocol: u8,
    v6: bool,
    segment_len: usize,
}

impl<'a> Train<'a> {
    /// Reads a train whose IP header begins at octet `network` of `bytes`
    /// (0 where there is no link header), and which is to be cut into segments
    /// of `segment_len` octets of payload (`gso_size` of a `virtio_net_hdr`).
    /// Its length is that of `bytes`: the length fields are not believed.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for anything but TCP or UDP directly in one IP
    /// packet (not a tunnel's), else what is wrong with a header.
    pub fn new(bytes: &'a [u8], network: usize, segment_len: usize) -> Result<Self, Error> {
        if segment_len == 0 {
            return Err(Error::Malformed("segmentation"));
        }
        let ip = bytes.get(network..).ok_or(Error::Truncated("IP"))?;
        let (v6, protocol, header_len) = match ip.first().map(|octet| octet >> 4) {
            Some(4) => {
                let packet = ipv4::Packet::new(ip)?;
                // a fragment, first or later, is nothing to cut
                if be16(ip, 6) & 0x3fff != 0 {
                    return Err(Error::Unsupported);
                }
                (false, packet.protocol(), packet.header_len())
            }
            Some(6) => {
                let (protocol, len) = behind_extensions(ip)?;
                (true, protocol, len)
            }
            _ => return Err(Error::Unsupported),
        };
        let transport = network + header_len;
        let header_len = match protocol {
            tcp::PROTOCOL => tcp::Packet::new(&bytes[transport..])?.header_len(),
            UDP if bytes.len() >= transport + UDP_HEADER_LEN => UDP_HEADER_LEN,
            UDP => return Err(Error::Truncated("UDP")),
            _ => return Err(Error::Unsupported),
        };
        let payload = transport + header_len..bytes.len();
        Ok(Self { bytes, network, transport, payload, protocol, v6, segment_len })
    }

    /// Single frames in it; one where there is no payload.
    pub fn frames(&self) -> usize {
        self.payload.len().div_ceil(self.segment_len).max(1)
    }

    /// Writes frame `index` into `frame`, replacing what is there: link header
    /// and all, lengths, sequence number, flags and checksums its own.
    ///
    /// # Panics
    /// Where `index` is not below [`frames`](Self::frames).
    pub fn write(&self, index: usize, frame: &mut Vec<u8>) {
        assert!(index < self.frames(), "the train has {} frames", self.frames());
        let start = self.payload.start + index * self.segment_len;
        let end = (start + self.segment_len).min(self.payload.end);
        frame.clear();
        frame.extend_from_slice(&self.bytes[..self.payload.start]);
        frame.extend_from_slice(&self.bytes[start..end]);
        self.fix_ip(index, &mut frame[self.network..]);
        if self.protocol == tcp::PROTOCOL {
            self.fix_tcp(index, &mut frame[self.transport..]);
        } else {
            let len = (frame.len() - self.transport) as u16; // a segment fits IP's length
            put16(frame, self.transport + 4, len);
        }
        self.fix_checksum(frame);
    }

    fn fix_ip(&self, index: usize, ip: &mut [u8]) {
        let len = ip.len();
        if self.v6 {
            put16(ip, 4, (len - ipv6::HEADER_LEN) as u16);
            return;
        }
        put16(ip, 2, len as u16);
        put16(ip, 4, be16(ip, 4).wrapping_add(index as u16));
        put16(ip, 10, 0);
        let header_len = self.transport - self.network;
        put16(ip, 10, !fold(sum(&ip[..header_len], 0)));
    }

    fn fix_tcp(&self, index: usize, tcp: &mut [u8]) {
        let sequence = be32(tcp, 4).wrapping_add((index * self.segment_len) as u32);
        tcp[4..8].copy_from_slice(&sequence.to_be_bytes());
        if index + 1 < self.frames() {
            tcp[13] &= !FIN_PSH;
        }
        if index > 0 {
            tcp[13] &= !CWR;
        }
    }

    /// The transport checksum over pseudo header, header and payload.
    fn fix_checksum(&self, frame: &mut [u8]) {
        let field = self.transport + if self.protocol == tcp::PROTOCOL { 16 } else { 6 };
        put16(frame, field, 0);
        let addresses = if self.v6 { 8..40 } else { 12..20 };
        let len = frame.len() - self.transport;
        let pseudo = sum(&frame[self.network..][addresses], len as u64 + u64::from(self.protocol));
        put16(frame, field, not_zero(!fold(sum(&frame[self.transport..], pseudo))));
    }
}

/// The transport protocol of an IPv6 packet, and the octets before it.
fn behind_extensions(ip: &[u8]) -> Result<(u8, usize), Error> {
    let mut next = ipv6::Packet::new(ip)?.next_header();
    let mut at = ipv6::HEADER_LEN;
    while next == HOP_BY_HOP || next == DESTINATION_OPTIONS {
        let header = ip.get(at..at + 2).ok_or(Error::Truncated("IPv6"))?;
        next = header[0];
        at += (usize::from(header[1]) + 1) * 8;
        if at > ip.len() {
            return Err(Error::Truncated("IPv6"));
        }
    }
    Ok((next, at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::{PacketBuilder, PacketHeaders, TcpOptionElement, TransportHeader};
    use proptest::prelude::*;

    fn build(v6: bool, udp: bool, payload: &[u8]) -> Vec<u8> {
        let ethernet = PacketBuilder::ethernet2([2; 6], [4; 6]);
        let ip = if v6 {
            ethernet.ipv6([0xfd; 16], [0xfc; 16], 64)
        } else {
            ethernet.ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
        };
        let mut bytes = Vec::new();
        if udp {
            ip.udp(40000, 53).write(&mut bytes, payload)
        } else {
            let options = [
                TcpOptionElement::Noop,
                TcpOptionElement::Noop,
                TcpOptionElement::Timestamp(11, 12),
            ];
            ip.tcp(40000, 21, u32::MAX - 1000, 65535)
                .ack(9)
                .psh()
                .fin()
                .cwr()
                .options(&options)
                .expect("options that fit")
                .write(&mut bytes, payload)
        }
        .expect("etherparse writes to a vector");
        bytes
    }

    fn cut(bytes: &[u8], segment_len: usize) -> Vec<Vec<u8>> {
        let train = Train::new(bytes, 14, segment_len).expect("a good train");
        (0..train.frames())
            .map(|index| {
                let mut frame = vec![7; 3]; // what was there is replaced
                train.write(index, &mut frame);
                frame
            })
            .collect()
    }

    /// The transport checksum of a whole frame, as etherparse computes it.
    fn assert_checksums(frame: &[u8]) {
        let packet = PacketHeaders::from_ethernet_slice(frame).expect("a whole frame");
        let payload = packet.payload.slice();
        let (written, computed) = match (packet.net.expect("IP"), packet.transport.expect("some")) {
            (etherparse::NetHeaders::Ipv4(ip, _), transport) => {
                assert_eq!(ip.header_checksum, ip.calc_header_checksum());
                match transport {
                    TransportHeader::Tcp(tcp) => {
                        (tcp.checksum, tcp.calc_checksum_ipv4(&ip, payload))
                    }
                    TransportHeader::Udp(udp) => {
                        (udp.checksum, udp.calc_checksum_ipv4(&ip, payload))
                    }
                    _ => panic!("neither TCP nor UDP"),
                }
            }
            (etherparse::NetHeaders::Ipv6(ip, _), transport) => match transport {
                TransportHeader::Tcp(tcp) => (tcp.checksum, tcp.calc_checksum_ipv6(&ip, payload)),
                TransportHeader::Udp(udp) => (udp.checksum, udp.calc_checksum_ipv6(&ip, payload)),
                _ => panic!("neither TCP nor UDP"),
            },
            _ => panic!("not IP"),
        };
        assert_eq!(Ok(written), computed.map_err(|_| ()));
    }

    #[test]
    fn flags_sequence_and_identification_are_each_frames_own() {
        let frames = cut(&build(false, false, &[5; 2500]), 1000);
        let flags: Vec<u8> = frames.iter().map(|frame| frame[14 + 20 + 13]).collect();
        assert_eq!(flags, [0x90, 0x10, 0x19]); // CWR ACK; ACK; ACK PSH FIN
        let sequence: Vec<u32> = frames.iter().map(|frame| be32(frame, 38)).collect();
        assert_eq!(sequence, [u32::MAX - 1000, u32::MAX, 999]); // wraps around
        let id: Vec<u16> = frames.iter().map(|frame| be16(frame, 18)).collect();
        assert_eq!(id, [id[0], id[0].wrapping_add(1), id[0].wrapping_add(2)]);
        let lens: Vec<usize> = frames.iter().map(Vec::len).collect();
        assert_eq!(lens, [1066, 1066, 566]);
    }

    #[test]
    fn what_cannot_be_cut_is_refused() {
        let good = build(false, false, &[5; 100]);
        assert_eq!(Train::new(&good, 14, 0).err(), Some(Error::Malformed("segmentation")));
        assert_eq!(Train::new(&good, 999, 10).err(), Some(Error::Truncated("IP")));
        let mut fragment = good.clone();
        fragment[20] = 0x20; // more fragments
        assert_eq!(Train::new(&fragment, 14, 10).err(), Some(Error::Unsupported));
        let mut tunnel = good;
        tunnel[23] = 47; // GRE
        assert_eq!(Train::new(&tunnel, 14, 10).err(), Some(Error::Unsupported));
    }

    #[test]
    fn an_extension_header_is_carried_in_each_frame() {
        let mut bytes = build(true, true, &[5; 100]);
        bytes[20] = DESTINATION_OPTIONS;
        bytes.splice(54..54, [UDP, 0, 1, 4, 0, 0, 0, 0]); // one PadN option
        let frames = cut(&bytes, 60);
        assert_eq!(frames.iter().map(Vec::len).collect::<Vec<_>>(), [130, 110]);
        for frame in &frames {
            assert_eq!(usize::from(be16(frame, 18)), frame.len() - 54);
            assert_checksums(frame);
        }
    }

    proptest! {
        #[test]
        fn cut_frames_are_good_and_carry_the_payload(payload in proptest::collection::vec(any::<u8>(), 0..3000), v6: bool, udp: bool, segment_len in 1usize..1500) {
            let bytes = build(v6, udp, &payload);
            let header = bytes.len() - payload.len();
            let frames = cut(&bytes, segment_len);
            let mut carried = Vec::new();
            for frame in &frames {
                prop_assert!(frame.len() - header <= segment_len);
                assert_checksums(frame);
                carried.extend_from_slice(&frame[header..]);
            }
            prop_assert_eq!(carried, payload);
        }

        #[test]
        fn no_bytes_make_it_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..150), network in 0usize..40, segment_len in 0usize..100, first in proptest::sample::select(vec![0x45u8, 0x46, 0x60]), protocol in proptest::sample::select(vec![6u8, 17, 0, 60])) {
            if bytes.len() > network + 9 {
                bytes[network] = first;
                bytes[network + 9] = protocol;
                bytes[network + 6] = if first == 0x60 { protocol } else { 0 };
                bytes[network + 7] = 0;
            }
            if let Ok(train) = Train::new(&bytes, network, segment_len) {
                let mut frame = Vec::new();
                for index in 0..train.frames() {
                    train.write(index, &mut frame);
                }
            }
        }
    }
}
