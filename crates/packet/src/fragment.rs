//! Fragments a packet (RFC 791, section 3.2; RFC 8200, section 4.5). The [`Reassembler`] does the
//! reverse.

use crate::bytes::put16;
use crate::ipv4::MAX_OPTIONS_LEN;
use crate::{Error, Ip, Version, header, ip, ipv4, ipv6, protocol};

mod reassembler;

pub use reassembler::{Limits, Reassembler, Rejected};

const MORE: u16 = 0x2000;

/// Why a packet cannot be fragmented.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FragmentError {
    /// The DF bit of IPv4 is set.
    #[error("the packet is longer than the MTU and says that it must not be cut")]
    DontFragment,
    /// The MTU is too small for the headers and 8 bytes.
    #[error("an MTU of {0} bytes is too small for a fragment of this packet")]
    MtuTooSmall(usize),
    /// The offset field cannot hold the end: a train, or a fragment beyond the longest datagram.
    #[error("the packet reaches beyond the longest datagram")]
    TooLong,
    /// Only the source fragments an IPv6 packet, once.
    #[error("the packet has a fragment header already")]
    HasFragmentHeader,
}

/// A packet and its fragmentation. Each fragment consists of a new head and a payload, which stays
/// in place.
#[derive(Debug, Clone, Copy)]
pub struct Fragmenter<'a> {
    ip: Ip<'a>,
    /// Bytes of the packet before the fragmented part.
    first_len: usize,
    /// Bytes of payload in each fragment but the last, a multiple of 8.
    piece_len: usize,
    /// Whether the packet is fragmented; otherwise its head is copied unchanged.
    is_fragmented: bool,
    /// The identification of IPv6 fragments.
    id: u32,
    /// The IPv4 options of later fragments.
    options: ([u8; MAX_OPTIONS_LEN], usize),
}

impl<'a> Fragmenter<'a> {
    /// Fragments `ip` for an MTU of `mtu` bytes; a packet that fits stays unchanged. IPv6 needs
    /// `id`, which the source must not use again soon; IPv4 has it in the packet. An IPv4 fragment
    /// can be fragmented further.
    ///
    /// # Errors
    /// The packet cannot be fragmented.
    pub fn new(ip: Ip<'a>, mtu: usize, id: u32) -> Result<Self, FragmentError> {
        let first_len = ip.security_offset();
        let mut cut = Self {
            ip,
            first_len,
            piece_len: ip.total_len(),
            is_fragmented: false,
            id,
            options: ([0; MAX_OPTIONS_LEN], 0),
        };
        if ip.total_len() <= mtu {
            return Ok(cut);
        }
        cut.is_fragmented = true;
        let head_len = match ip.version() {
            Version::V4 if ip.dont_fragment() => return Err(FragmentError::DontFragment),
            Version::V4 => {
                cut.options.1 =
                    ipv4::Packet::trusted(ip.bytes()).copied_options(&mut cut.options.0);
                first_len
            }
            Version::V6 if ip.fragment_header().is_some() => {
                return Err(FragmentError::HasFragmentHeader);
            }
            Version::V6 => first_len + ipv6::FRAGMENT_HEADER_LEN,
        };
        let before = ip.fragment().map_or(0, |before| before.offset);
        if before + ip.total_len() - first_len > ip::MAX_PAYLOAD_LEN {
            return Err(FragmentError::TooLong);
        }
        cut.piece_len = mtu.saturating_sub(head_len) & !7;
        if cut.piece_len == 0 { Err(FragmentError::MtuTooSmall(mtu)) } else { Ok(cut) }
    }

    /// Returns the number of fragments; 1 if the packet fits.
    pub fn fragments(&self) -> usize {
        (self.ip.total_len() - self.first_len).div_ceil(self.piece_len).max(1)
    }

    /// Returns the length of the head of fragment `index`.
    pub fn head_len(&self, index: usize) -> usize {
        match self.ip.version() {
            _ if !self.is_fragmented => self.first_len,
            Version::V4 if index > 0 => ipv4::MIN_HEADER_LEN + self.options.1,
            Version::V4 => self.first_len,
            Version::V6 => self.first_len + ipv6::FRAGMENT_HEADER_LEN,
        }
    }

    /// Returns the payload of fragment `index`.
    ///
    /// # Panics
    /// `index` is not below [`fragments`](Self::fragments).
    pub fn payload(&self, index: usize) -> &'a [u8] {
        assert!(index < self.fragments(), "the packet has {} fragments", self.fragments());
        let payload = &self.ip.bytes()[self.first_len..];
        let start = index * self.piece_len;
        &payload[start..payload.len().min(start + self.piece_len)]
    }

    /// Writes the head of fragment `index` to the start of `out` and returns its length.
    ///
    /// # Errors
    /// [`Error::Truncated`] if `out` is shorter than [`head_len`](Self::head_len).
    ///
    /// # Panics
    /// `index` is not below [`fragments`](Self::fragments).
    pub fn write_head(&self, index: usize, out: &mut [u8]) -> Result<usize, Error> {
        let head_len = self.head_len(index);
        let payload_len = self.payload(index).len();
        let head = out.get_mut(..head_len).ok_or(Error::Truncated("fragment"))?;
        let bytes = self.ip.bytes();
        if !self.is_fragmented {
            head.copy_from_slice(&bytes[..head_len]);
            return Ok(head_len);
        }
        let is_last = index + 1 == self.fragments();
        match self.ip.version() {
            Version::V4 => {
                let (options, options_len) = &self.options;
                let before = self.ip.fragment();
                let offset = before.map_or(0, |before| before.offset) + index * self.piece_len;
                let more = !is_last || before.is_some_and(|before| before.more);
                if index == 0 {
                    head.copy_from_slice(&bytes[..head_len]);
                } else {
                    head[..ipv4::MIN_HEADER_LEN].copy_from_slice(&bytes[..ipv4::MIN_HEADER_LEN]);
                    head[ipv4::MIN_HEADER_LEN..].copy_from_slice(&options[..*options_len]);
                    head[0] = 0x40 | (head_len / 4) as u8;
                }
                put16(head, 2, (head_len + payload_len) as u16);
                put16(head, 6, (offset / 8) as u16 | if more { MORE } else { 0 });
                header::write_checksum(head);
            }
            Version::V6 => {
                let (front, fragment) = head.split_at_mut(self.first_len);
                front.copy_from_slice(&bytes[..self.first_len]);
                let field = self.ip.next_header_offset();
                fragment[0] = front[field];
                fragment[1] = 0;
                put16(fragment, 2, (index * self.piece_len) as u16 | u16::from(!is_last));
                fragment[4..].copy_from_slice(&self.id.to_be_bytes());
                front[field] = protocol::FRAGMENT;
                put16(front, 4, (head_len - ipv6::HEADER_LEN + payload_len) as u16);
            }
        }
        Ok(head_len)
    }

    /// Writes the whole fragment `index` to the start of `out` and returns its length.
    ///
    /// # Errors
    /// [`Error::Truncated`] if `out` is too short.
    ///
    /// # Panics
    /// `index` is not below [`fragments`](Self::fragments).
    pub fn copy(&self, index: usize, out: &mut [u8]) -> Result<usize, Error> {
        let head_len = self.write_head(index, out)?;
        let payload = self.payload(index);
        let body = out[head_len..].get_mut(..payload.len()).ok_or(Error::Truncated("fragment"))?;
        body.copy_from_slice(payload);
        Ok(head_len + payload.len())
    }
}

#[cfg(test)]
mod tests;
