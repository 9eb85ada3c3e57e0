//! Converts the headers of a train's first packet to those of the train.

use super::simple_packet::SimplePacket;
use crate::bytes::put16;
use crate::checksum::{fold, pseudo_header};
use crate::offload::TrainKind;
use crate::{Offload, header, protocol, tcp, udp};

const PUSH: u8 = 0x08;

impl SimplePacket<'_> {
    /// Changes the headers to those of a train with `data_len` bytes of payload, and leaves the
    /// checksum unfinished. The lengths were checked.
    pub(super) fn make_train(&mut self, data_len: usize, push: bool) -> Offload {
        let upper_len = self.header_len - self.ip_len + data_len;
        let pseudo = fold(pseudo_header(self.addresses(), self.protocol, upper_len));
        let (ip, upper) = self.bytes.split_at_mut(self.ip_len);
        let is_v4 = ip[0] == 0x45;
        if is_v4 {
            put16(ip, 2, (self.ip_len + upper_len) as u16);
            header::write_checksum(ip);
        } else {
            put16(ip, 4, upper_len as u16);
        }
        let (kind, offset) = match (self.protocol, is_v4) {
            (protocol::TCP, true) => (TrainKind::Tcp4, tcp::CHECKSUM_OFFSET),
            (protocol::TCP, false) => (TrainKind::Tcp6, tcp::CHECKSUM_OFFSET),
            _ => (TrainKind::Udp, udp::CHECKSUM_OFFSET),
        };
        put16(upper, offset, pseudo);
        if kind == TrainKind::Udp {
            put16(upper, 4, upper_len as u16);
        } else if push {
            upper[13] |= PUSH;
        }
        Offload {
            checksum: Some((self.ip_len as u16, offset as u16)),
            kind,
            segment_len: self.data.len() as u16,
            header_len: self.header_len as u16,
        }
    }
}
