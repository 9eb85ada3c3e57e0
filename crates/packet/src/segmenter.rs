//! Segments a packet that a sender left to its network card (TCP and UDP segmentation offload, TSO
//! and USO).

use crate::bytes::put16;
use crate::bytes::{be16, be32};
use crate::checksum::{self, Unfinished, copy_and_sum, fold, not_zero, pseudo_header, sum};
use crate::offload::TrainKind;
use crate::{Error, Ip, Offload, Version, ipv4, ipv6, protocol};
use crate::{tcp, udp};

/// FIN and PSH belong to the last segment, CWR to the first (RFC 3168, section 6.1.2).
const FIN_PSH: u8 = 0x01 | 0x08;
const CWR: u8 = 0x80;
/// The longest part of an unknown transport header that is read: the ports, and the bytes that RFC
/// 792 quotes.
const UNKNOWN_HEADER_LEN: usize = 8;

/// A packet and its segmentation. Each segment consists of a new head (all headers) and a payload,
/// which stays in place.
#[derive(Debug, Clone, Copy)]
pub struct Segmenter<'a> {
    ip: Ip<'a>,
    work: Work,
    head_len: usize,
    /// Bytes of payload in each segment but the last.
    segment_len: usize,
    segments: usize,
}

/// The work for each packet.
#[derive(Debug, Clone, Copy)]
enum Work {
    Nothing,
    Checksum(Unfinished),
    /// Each segment gets its own headers.
    Train(Same),
}

/// The sums over the parts that all headers of a train share.
#[derive(Debug, Clone, Copy)]
struct Same {
    /// The IPv4 header without length, identification and checksum.
    ip: u64,
    /// The pseudo header without length, and the transport header without sequence number, flags,
    /// length and checksum.
    upper: u64,
}

impl<'a> Segmenter<'a> {
    /// Parses a packet from a TUN device. The length of a train is that of `packet`; its length
    /// fields are ignored.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a train that is not TCP or UDP as in `offload`, is a fragment or
    /// has a routing header; [`Error::TooLong`] for segments too long for their length fields; or
    /// the error of a header.
    pub fn new(packet: &'a [u8], offload: Offload) -> Result<Self, Error> {
        let segment_len = usize::from(offload.segment_len);
        let expected = match offload.kind {
            TrainKind::None => return Self::whole(Ip::parse(packet)?, offload.checksum),
            TrainKind::Tcp4 => (Some(Version::V4), protocol::TCP),
            TrainKind::Tcp6 => (Some(Version::V6), protocol::TCP),
            TrainKind::Udp => (None, protocol::UDP),
        };
        let segmenter = Self::train(packet, segment_len)?;
        let ip = &segmenter.ip;
        if expected.0.is_some_and(|version| version != ip.version()) || expected.1 != ip.upper() {
            return Err(Error::Unsupported);
        }
        Ok(segmenter)
    }

    fn whole(ip: Ip<'a>, checksum: Option<(u16, u16)>) -> Result<Self, Error> {
        let mut head_len = ip.upper_offset() + upper_header_len(&ip);
        let mut work = Work::Nothing;
        if let Some((start, offset)) = checksum {
            let at = Unfinished { start: start.into(), offset: offset.into() };
            head_len = head_len.max(at.check(ip.total_len())?.end);
            work = Work::Checksum(at);
        }
        Ok(Self { ip, work, head_len, segment_len: ip.total_len(), segments: 1 })
    }

    /// Prepares a train of either kind for segments of `segment_len` bytes of payload.
    pub(crate) fn train(packet: &'a [u8], segment_len: usize) -> Result<Self, Error> {
        if segment_len == 0 {
            return Err(Error::Malformed("segmentation"));
        }
        let ip = Ip::parse_train(packet)?;
        if ip.fragment().is_some() || ip.has_routing_header() {
            return Err(Error::Unsupported);
        }
        let header_len = match ip.upper() {
            protocol::TCP => tcp::Packet::new(ip.payload())?.header_len(),
            protocol::UDP if ip.payload().len() < udp::HEADER_LEN => {
                return Err(Error::Truncated("UDP"));
            }
            protocol::UDP => udp::HEADER_LEN,
            _ => return Err(Error::Unsupported),
        };
        let head_len = ip.upper_offset() + header_len;
        let payload_len = ip.total_len() - head_len;
        if head_len + segment_len.min(payload_len) > usize::from(u16::MAX) {
            return Err(Error::TooLong("IP"));
        }
        let segments = payload_len.div_ceil(segment_len).max(1);
        let work = Work::Train(Same::new(&ip, &packet[ip.upper_offset()..head_len]));
        Ok(Self { ip, work, head_len, segment_len, segments })
    }

    /// Returns the packet.
    pub fn ip(&self) -> &Ip<'a> {
        &self.ip
    }

    /// Returns the number of segments; 1 without payload.
    pub fn segments(&self) -> usize {
        self.segments
    }

    /// Returns the length of the head of each segment: all its headers.
    pub fn head_len(&self) -> usize {
        self.head_len
    }

    /// Returns the payload of segment `index`.
    ///
    /// # Panics
    /// `index` is not below [`segments`](Self::segments).
    pub fn payload(&self, index: usize) -> &'a [u8] {
        assert!(index < self.segments, "the packet has {} segments", self.segments);
        let payload = &self.ip.bytes()[self.head_len..];
        let start = index * self.segment_len;
        &payload[start..payload.len().min(start + self.segment_len)]
    }

    /// Writes the head of segment `index` with its own lengths, sequence number, flags and
    /// checksums to the start of `out`, and returns its length.
    ///
    /// # Errors
    /// [`Error::Truncated`] if `out` is shorter than [`head_len`](Self::head_len).
    ///
    /// # Panics
    /// `index` is not below [`segments`](Self::segments).
    pub fn write_head(&self, index: usize, out: &mut [u8]) -> Result<usize, Error> {
        let payload = self.payload(index);
        let head = self.raw_head(out)?;
        match self.work {
            Work::Nothing => {}
            Work::Checksum(at) => {
                put16(head, at.start + at.offset, checksum::finished(self.ip.bytes(), at));
            }
            Work::Train(same) => self.renew(same, index, head, payload.len(), sum(payload, 0)),
        }
        Ok(self.head_len)
    }

    /// Writes the whole segment `index` to the start of `out`, reading its payload once, and
    /// returns its length.
    ///
    /// # Errors
    /// [`Error::Truncated`] if `out` is too short.
    ///
    /// # Panics
    /// `index` is not below [`segments`](Self::segments).
    pub fn copy(&self, index: usize, out: &mut [u8]) -> Result<usize, Error> {
        let payload = self.payload(index);
        let len = self.head_len + payload.len();
        let out = out.get_mut(..len).ok_or(Error::Truncated("segment"))?;
        self.raw_head(out)?;
        let (head, body) = out.split_at_mut(self.head_len);
        if let Work::Train(same) = self.work {
            let sum = copy_and_sum(payload, body, 0);
            self.renew(same, index, head, payload.len(), sum);
        } else {
            body.copy_from_slice(payload);
            if let Work::Checksum(at) = self.work {
                checksum::finish(out, at)?;
            }
        }
        Ok(len)
    }

    /// Returns the head as it is in the packet.
    fn raw_head<'o>(&self, out: &'o mut [u8]) -> Result<&'o mut [u8], Error> {
        let head = out.get_mut(..self.head_len).ok_or(Error::Truncated("segment"))?;
        head.copy_from_slice(&self.ip.bytes()[..self.head_len]);
        Ok(head)
    }

    /// Changes the head of a train to that of one segment with `payload_len` bytes, whose sum is
    /// `sum`. The lengths fit: the train was checked.
    fn renew(&self, same: Same, index: usize, head: &mut [u8], payload_len: usize, sum: u64) {
        let total_len = (head.len() + payload_len) as u16;
        match self.ip.version() {
            Version::V4 => {
                let id = be16(head, 4).wrapping_add(index as u16);
                put16(head, 2, total_len);
                put16(head, 4, id);
                put16(head, 10, !fold(same.ip + u64::from(total_len) + u64::from(id)));
            }
            Version::V6 => put16(head, 4, total_len - ipv6::HEADER_LEN as u16),
        }
        let upper = &mut head[self.ip.upper_offset()..];
        let upper_len = (upper.len() + payload_len) as u16;
        let sum = same.upper + sum + u64::from(upper_len);
        if self.ip.upper() == protocol::TCP {
            let own = self.renew_tcp(index, upper);
            put16(upper, tcp::CHECKSUM_OFFSET, not_zero(!fold(sum + own)));
        } else {
            put16(upper, 4, upper_len);
            put16(upper, udp::CHECKSUM_OFFSET, not_zero(!fold(sum + u64::from(upper_len))));
        }
    }

    /// Returns the sum of the written bytes.
    fn renew_tcp(&self, index: usize, tcp: &mut [u8]) -> u64 {
        let sequence = be32(tcp, 4).wrapping_add((index * self.segment_len) as u32);
        tcp[4..8].copy_from_slice(&sequence.to_be_bytes());
        if index + 1 < self.segments {
            tcp[13] &= !FIN_PSH;
        }
        if index > 0 {
            tcp[13] &= !CWR;
        }
        u64::from(sequence) + u64::from(be16(tcp, 12))
    }
}

impl Same {
    fn new(ip: &Ip<'_>, transport_header: &[u8]) -> Self {
        // A word is subtracted by adding its complement (RFC 1624).
        let without = |bytes: &[u8], initial: u64, fields: &[usize]| {
            let out: u64 = fields.iter().map(|at| u64::from(!be16(bytes, *at))).sum();
            sum(bytes, initial + out)
        };
        let ip_sum = match ip.version() {
            Version::V4 => {
                let header_len = ipv4::Packet::trusted(ip.bytes()).header_len();
                without(&ip.bytes()[..header_len], 0, &[2, 4, 10])
            }
            Version::V6 => 0,
        };
        let fields: &[usize] = match ip.upper() {
            protocol::TCP => &[4, 6, 12, tcp::CHECKSUM_OFFSET],
            _ => &[4, udp::CHECKSUM_OFFSET],
        };
        let pseudo = pseudo_header(ip.addresses(), ip.upper(), 0);
        Self { ip: ip_sum, upper: without(transport_header, pseudo, fields) }
    }
}

/// Returns the length of the transport header, or of its part in the packet.
fn upper_header_len(ip: &Ip<'_>) -> usize {
    if ip.ports().is_none() {
        return 0;
    }
    let whole = match ip.upper() {
        protocol::TCP => tcp::Packet::new(ip.payload()).map_or(0, |tcp| tcp.header_len()),
        _ => UNKNOWN_HEADER_LEN,
    };
    whole.max(UNKNOWN_HEADER_LEN).min(ip.payload().len())
}

#[cfg(test)]
mod tests;
