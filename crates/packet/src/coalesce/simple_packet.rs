//! Packets that may be joined: TCP with ACK and data, or UDP, directly after an IPv4 header without
//! options or an IPv6 header.

use crate::bytes::{be16, be32};
use crate::checksum::{fold, pseudo_header, sum};
use crate::{ipv4, ipv6, protocol, tcp, udp};

/// The longest headers in bytes: IPv6 and TCP with all options.
const MAX_HEADER_LEN: usize = ipv6::HEADER_LEN + 60;
const ACK: u8 = 0x10;
const PUSH: u8 = 0x08;

/// A packet, as far as joining is concerned.
#[derive(Debug)]
pub(super) enum Classified<'a> {
    /// The packet may be joined to others of its flow.
    Joinable(SimplePacket<'a>),
    /// The packet must not be joined; its flow is known.
    Single(SimplePacket<'a>),
    /// Another packet; its flow is unknown.
    Unknown,
}

/// A packet with a copy of its headers.
#[derive(Debug)]
pub(super) struct SimplePacket<'a> {
    pub(super) bytes: [u8; MAX_HEADER_LEN],
    pub(super) header_len: usize,
    pub(super) ip_len: usize,
    pub(super) protocol: u8,
    /// The payload of TCP or UDP.
    pub(super) data: &'a [u8],
    /// The PSH flag.
    pub(super) push: bool,
}

impl<'a> SimplePacket<'a> {
    /// Parses the packet `head ++ payload`.
    pub(super) fn read(head: &[u8], payload: &'a [u8], joins_udp: bool) -> Classified<'a> {
        let mut bytes = [0; MAX_HEADER_LEN];
        let in_head = head.len().min(MAX_HEADER_LEN);
        let in_payload = payload.len().min(MAX_HEADER_LEN - in_head);
        bytes[..in_head].copy_from_slice(&head[..in_head]);
        bytes[in_head..in_head + in_payload].copy_from_slice(&payload[..in_payload]);

        // Zeros replace missing bytes; the length is compared first.
        let len = head.len() + payload.len();
        let (ip_len, declared_len, protocol) = match bytes[0] {
            0x45 => (ipv4::MIN_HEADER_LEN, be16(&bytes, 2).into(), bytes[9]),
            0x60..=0x6f => {
                (ipv6::HEADER_LEN, ipv6::HEADER_LEN + usize::from(be16(&bytes, 4)), bytes[6])
            }
            _ => return Classified::Unknown,
        };
        let is_fragment = ip_len == ipv4::MIN_HEADER_LEN && be16(&bytes, 6) & !0x4000 != 0;
        if declared_len != len || is_fragment {
            return Classified::Unknown;
        }
        let upper = &bytes[ip_len..];
        let (upper_len, min_upper_len, is_joinable) = match protocol {
            protocol::TCP => {
                let only_ack = upper[12] & 0x0f == 0 && upper[13] & !PUSH == ACK;
                (usize::from(upper[12] >> 4) * 4, tcp::MIN_HEADER_LEN, only_ack)
            }
            protocol::UDP => {
                let has_checksum = be16(upper, udp::CHECKSUM_OFFSET) != 0;
                let is_whole = usize::from(be16(upper, 4)) == len - ip_len;
                (udp::HEADER_LEN, udp::HEADER_LEN, joins_udp && has_checksum && is_whole)
            }
            _ => return Classified::Unknown,
        };
        let header_len = ip_len + upper_len;
        if upper_len < min_upper_len || len < header_len || head.len() > header_len {
            return Classified::Unknown;
        }
        let data = &payload[header_len - head.len()..];
        let push = protocol == protocol::TCP && upper[13] & PUSH != 0;
        let packet = Self { bytes, header_len, ip_len, protocol, data, push };
        if is_joinable && !packet.data.is_empty() {
            Classified::Joinable(packet)
        } else {
            Classified::Single(packet)
        }
    }

    /// Returns all headers.
    pub(super) fn header(&self) -> &[u8] {
        &self.bytes[..self.header_len]
    }

    pub(super) fn upper(&self) -> &[u8] {
        &self.bytes[self.ip_len..self.header_len]
    }

    pub(super) fn is_v4(&self) -> bool {
        self.ip_len == ipv4::MIN_HEADER_LEN
    }

    /// Returns the bytes of the source and destination addresses.
    pub(super) fn addresses(&self) -> &[u8] {
        if self.is_v4() { &self.bytes[12..20] } else { &self.bytes[8..40] }
    }

    /// Returns the sequence number of TCP.
    pub(super) fn sequence(&self) -> Option<u32> {
        (self.protocol == protocol::TCP).then(|| be32(self.upper(), 4))
    }

    /// Checks whether addresses, protocol and ports are equal.
    pub(super) fn is_same_flow(&self, other: &Self) -> bool {
        self.ip_len == other.ip_len
            && self.protocol == other.protocol
            && self.upper()[..4] == other.upper()[..4]
            && self.addresses() == other.addresses()
    }

    /// Compares the headers of two packets of one flow: all fields must be equal (TOS, flow label,
    /// TTL, DF; acknowledgement, window and options of TCP) except the position in the stream and
    /// PSH.
    pub(super) fn headers_match(&self, other: &Self) -> bool {
        let (a, b) = (&self.bytes, &other.bytes);
        let ip = if self.is_v4() {
            a[..2] == b[..2] && a[6..9] == b[6..9]
        } else {
            a[..4] == b[..4] && a[7] == b[7]
        };
        let (a, b) = (self.upper(), other.upper());
        let upper = self.protocol == protocol::UDP
            || a.len() == b.len()
                && a[8..13] == b[8..13]
                && a[14..tcp::CHECKSUM_OFFSET] == b[14..tcp::CHECKSUM_OFFSET]
                && a[tcp::CHECKSUM_OFFSET + 2..] == b[tcp::CHECKSUM_OFFSET + 2..];
        ip && upper
    }

    /// Checks whether segmenting the train would give `other`, its packet `index`, the same
    /// identification. With DF the identification has no meaning (RFC 6864).
    pub(super) fn is_followed_by_id(&self, other: &Self, index: usize) -> bool {
        !self.is_v4()
            || self.bytes[6] & 0x40 != 0
            || be16(&other.bytes, 4) == be16(&self.bytes, 4).wrapping_add(index as u16)
    }

    /// Verifies the checksums of IPv4 and of TCP or UDP.
    pub(super) fn is_checksum_right(&self) -> bool {
        let len = self.upper().len() + self.data.len();
        let pseudo = pseudo_header(self.addresses(), self.protocol, len);
        // The headers have an even number of bytes.
        (!self.is_v4() || fold(sum(&self.bytes[..self.ip_len], 0)) == 0xffff)
            && fold(sum(self.data, sum(self.upper(), pseudo))) == 0xffff
    }
}
