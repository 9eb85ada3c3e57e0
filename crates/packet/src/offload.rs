//! Work that a sender leaves to its network card, as a `virtio_net_hdr` describes it
//! (linux/virtio_net.h; OASIS virtio 1.2, section 5.1.6).

use crate::Error;

/// Bytes that [`Offload::decode`] reads: a header without the number of buffers.
pub const SHORT_LEN: usize = 10;
/// Bytes that [`Offload::encode`] writes: with the number of buffers.
pub const LEN: usize = 12;

/// Flag: the checksum is unfinished.
const NEEDS_CHECKSUM: u8 = 1;
/// Kinds of trains; the flag says that the train contains a CWR.
const NONE: u8 = 0;
const TCP_V4: u8 = 1;
const TCP_V6: u8 = 4;
const UDP: u8 = 5;
const ECN_FLAG: u8 = 0x80;

/// The kind of a train.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TrainKind {
    /// A single packet.
    #[default]
    None,
    /// TCP segments over IPv4 (TSO).
    Tcp4,
    /// TCP segments over IPv6 (TSO).
    Tcp6,
    /// UDP datagrams over either (USO).
    Udp,
}

/// The unfinished work of a packet: before it is sent, or what a receiving kernel may skip.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Offload {
    /// The position of an unfinished checksum: the offset in the packet where the sum begins, and
    /// the offset of the field from there. The field contains the sum of the pseudo header.
    pub checksum: Option<(u16, u16)>,
    /// The kind of train.
    pub kind: TrainKind,
    /// Bytes of payload in each segment of a train but the last.
    pub segment_len: u16,
    /// Bytes of all headers of a train: a hint.
    pub header_len: u16,
}

impl Offload {
    /// Parses the header at the start of `bytes`.
    ///
    /// # Errors
    /// [`Error::Truncated`] below 10 bytes, [`Error::Unsupported`] for an unknown kind of train.
    pub fn decode(bytes: &[u8]) -> Result<Self, Error> {
        let header = bytes.first_chunk::<SHORT_LEN>().ok_or(Error::Truncated("offload"))?;
        let word = |at: usize| u16::from_ne_bytes([header[at], header[at + 1]]);
        let kind = match header[1] & !ECN_FLAG {
            NONE => TrainKind::None,
            TCP_V4 => TrainKind::Tcp4,
            TCP_V6 => TrainKind::Tcp6,
            UDP => TrainKind::Udp,
            _ => return Err(Error::Unsupported),
        };
        let unfinished = header[0] & NEEDS_CHECKSUM != 0;
        Ok(Self {
            checksum: unfinished.then(|| (word(6), word(8))),
            kind,
            segment_len: word(4),
            header_len: word(2),
        })
    }

    /// Returns the header for one buffer; its first 10 bytes are the short form.
    pub fn encode(&self) -> [u8; LEN] {
        let (start, offset) = self.checksum.unwrap_or_default();
        let mut header = [0; LEN];
        header[0] = if self.checksum.is_some() { NEEDS_CHECKSUM } else { 0 };
        header[1] = match self.kind {
            TrainKind::None => NONE,
            TrainKind::Tcp4 => TCP_V4,
            TrainKind::Tcp6 => TCP_V6,
            TrainKind::Udp => UDP,
        };
        for (at, word) in [self.header_len, self.segment_len, start, offset].iter().enumerate() {
            header[2 + at * 2..][..2].copy_from_slice(&word.to_ne_bytes());
        }
        header
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_fields_stand_where_linux_has_them() {
        let offload = Offload {
            checksum: Some((20, 16)),
            kind: TrainKind::Tcp6,
            segment_len: 0x0573,
            header_len: 0x0234,
        };
        let mut expected = vec![1, 4];
        for word in [0x0234_u16, 0x0573, 20, 16, 0] {
            expected.extend(word.to_ne_bytes());
        }
        assert_eq!(offload.encode(), *expected);
        assert_eq!(Offload::default().encode(), [0; 12]);
    }

    #[test]
    fn a_kind_that_is_not_known_is_refused() {
        assert_eq!(Offload::decode(&[0; 9]), Err(Error::Truncated("offload")));
        for kind in [2, 3, 6, 0x7f] {
            assert_eq!(
                Offload::decode(&[0, kind, 0, 0, 0, 0, 0, 0, 0, 0]),
                Err(Error::Unsupported)
            );
        }
        let with_cwr = Offload::decode(&[0, 0x81, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(with_cwr.map(|offload| offload.kind), Ok(TrainKind::Tcp4));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(checksum: Option<(u16, u16)>, kind in proptest::sample::select(vec![TrainKind::None, TrainKind::Tcp4, TrainKind::Tcp6, TrainKind::Udp]), segment_len: u16, header_len: u16) {
            let offload = Offload { checksum, kind, segment_len, header_len };
            prop_assert_eq!(Offload::decode(&offload.encode()), Ok(offload));
            prop_assert_eq!(Offload::decode(&offload.encode()[..SHORT_LEN]), Ok(offload));
        }
    }
}
