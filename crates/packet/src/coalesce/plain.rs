//! The packets that may be joined: TCP with ACK and data, or UDP, directly
//! behind an IPv4 header without options or an IPv6 header.

use crate::bytes::{be16, be32};
use crate::checksum::{fold, pseudo_header, sum};
use crate::{ipv4, ipv6, protocol, tcp, udp};

/// Octets of the longest headers: IPv6 and TCP with all options.
const MAX_HEADER_LEN: usize = ipv6::HEADER_LEN + 60;
const ACK: u8 = 0x10;
const PUSH: u8 = 0x08;

/// What is in a packet, as far as joining goes.
#[derive(Debug)]
pub(super) enum Seen<'a> {
    /// It may be joined to others of its flow.
    Joinable(Plain<'a>),
    /// It may not, and its flow is known.
    Single(Plain<'a>),
    /// Something else, of whatever flow.
    Unknown,
}

/// A packet with a copy of its headers.
#[derive(Debug)]
pub(super) struct Plain<'a> {
    pub(super) bytes: [u8; MAX_HEADER_LEN],
    pub(super) header_len: usize,
    pub(super) ip_len: usize,
    pub(super) protocol: u8,
    /// What TCP or UDP carries.
    pub(super) data: &'a [u8],
    /// The PSH flag.
    pub(super) push: bool,
}

impl<'a> Plain<'a> {
    /// Reads the packet `head ++ payload`.
    pub(super) fn read(head: &[u8], payload: &'a [u8], joins_udp: bool) -> Seen<'a> {
        let mut bytes = [0; MAX_HEADER_LEN];
        let in_head = head.len().min(MAX_HEADER_LEN);
        let in_payload = payload.len().min(MAX_HEADER_LEN - in_head);
        bytes[..in_head].copy_from_slice(&head[..in_head]);
        bytes[in_head..in_head + in_payload].copy_from_slice(&payload[..in_payload]);

        // zeros stand for what is missing; the length is compared first
        let len = head.len() + payload.len();
        let (ip_len, said_len, protocol) = match bytes[0] {
            0x45 => (ipv4::MIN_HEADER_LEN, be16(&bytes, 2).into(), bytes[9]),
            0x60..=0x6f => {
                (ipv6::HEADER_LEN, ipv6::HEADER_LEN + usize::from(be16(&bytes, 4)), bytes[6])
            }
            _ => return Seen::Unknown,
        };
        let is_fragment = ip_len == ipv4::MIN_HEADER_LEN && be16(&bytes, 6) & !0x4000 != 0;
        if said_len != len || is_fragment {
            return Seen::Unknown;
        }
        let upper = &bytes[ip_len..];
        let (upper_len, least, is_joinable) = match protocol {
            protocol::TCP => {
                let only_ack = upper[12] & 0x0f == 0 && upper[13] & !PUSH == ACK;
                (usize::from(upper[12] >> 4) * 4, tcp::MIN_HEADER_LEN, only_ack)
            }
            protocol::UDP => {
                let has_checksum = be16(upper, udp::CHECKSUM_OFFSET) != 0;
                let is_whole = usize::from(be16(upper, 4)) == len - ip_len;
                (udp::HEADER_LEN, udp::HEADER_LEN, joins_udp && has_checksum && is_whole)
            }
            _ => return Seen::Unknown,
        };
        let header_len = ip_len + upper_len;
        if upper_len < least || len < header_len || head.len() > header_len {
            return Seen::Unknown;
        }
        let data = &payload[header_len - head.len()..];
        let push = protocol == protocol::TCP && upper[13] & PUSH != 0;
        let packet = Self { bytes, header_len, ip_len, protocol, data, push };
        if is_joinable && !packet.data.is_empty() {
            Seen::Joinable(packet)
        } else {
            Seen::Single(packet)
        }
    }

    /// All headers.
    pub(super) fn header(&self) -> &[u8] {
        &self.bytes[..self.header_len]
    }

    pub(super) fn upper(&self) -> &[u8] {
        &self.bytes[self.ip_len..self.header_len]
    }

    pub(super) fn is_v4(&self) -> bool {
        self.ip_len == ipv4::MIN_HEADER_LEN
    }

    /// Source and destination as they stand in the packet.
    pub(super) fn addresses(&self) -> &[u8] {
        if self.is_v4() { &self.bytes[12..20] } else { &self.bytes[8..40] }
    }

    /// The sequence number of TCP.
    pub(super) fn sequence(&self) -> Option<u32> {
        (self.protocol == protocol::TCP).then(|| be32(self.upper(), 4))
    }

    /// Addresses, protocol and ports.
    pub(super) fn is_same_flow(&self, other: &Self) -> bool {
        self.ip_len == other.ip_len
            && self.protocol == other.protocol
            && self.upper()[..4] == other.upper()[..4]
            && self.addresses() == other.addresses()
    }

    /// Of two packets of one flow: whether their headers differ only in what
    /// says which part of the stream each is, and in PSH. TOS, flow label, TTL
    /// and DF are the same, acknowledgement, window and options of TCP.
    pub(super) fn is_same_but_position(&self, other: &Self) -> bool {
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

    /// Whether cutting the train would give `other`, number `index` of it, the
    /// identification that it has. With DF it means nothing (RFC 6864).
    pub(super) fn is_followed_by_id(&self, other: &Self, index: usize) -> bool {
        !self.is_v4()
            || self.bytes[6] & 0x40 != 0
            || be16(&other.bytes, 4) == be16(&self.bytes, 4).wrapping_add(index as u16)
    }

    /// Whether the checksums of IPv4 and of TCP or UDP are right.
    pub(super) fn is_checksum_right(&self) -> bool {
        let len = self.upper().len() + self.data.len();
        let pseudo = pseudo_header(self.addresses(), self.protocol, len);
        // the headers are an even number of octets
        (!self.is_v4() || fold(sum(&self.bytes[..self.ip_len], 0)) == 0xffff)
            && fold(sum(self.data, sum(self.upper(), pseudo))) == 0xffff
    }
}
