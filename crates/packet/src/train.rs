//! Offloaded trains in link frames: one large frame that a sender leaves to its network card to
//! segment.

use crate::{Error, Segmenter};

/// A train whose headers are complete.
#[derive(Debug, Clone)]
pub struct Train<'a> {
    link_header: &'a [u8],
    segmenter: Segmenter<'a>,
}

impl<'a> Train<'a> {
    /// Parses a train whose IP header begins at byte `network` of `bytes` (0 without a link
    /// header), for segments of `segment_len` bytes of payload (`gso_size` of a `virtio_net_hdr`).
    /// Its length is that of `bytes`; the length fields are ignored.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for anything but TCP or UDP directly in one IP packet (not in a
    /// tunnel), or the error of a header.
    pub fn new(bytes: &'a [u8], network: usize, segment_len: usize) -> Result<Self, Error> {
        let (link_header, packet) =
            bytes.split_at_checked(network).ok_or(Error::Truncated("IP"))?;
        Ok(Self { link_header, segmenter: Segmenter::train(packet, segment_len)? })
    }

    /// Returns the number of single frames; 1 without payload.
    pub fn frames(&self) -> usize {
        self.segmenter.segments()
    }

    /// Writes frame `index` with its link header and its own lengths, sequence number, flags and
    /// checksums to `frame`, whose content is replaced.
    ///
    /// # Panics
    /// `index` is not below [`frames`](Self::frames).
    pub fn write(&self, index: usize, frame: &mut Vec<u8>) {
        let link_len = self.link_header.len();
        let payload_len = self.segmenter.payload(index).len();
        frame.resize(link_len + self.segmenter.head_len() + payload_len, 0);
        frame[..link_len].copy_from_slice(self.link_header);
        let written = self.segmenter.copy(index, &mut frame[link_len..]);
        debug_assert!(written.is_ok(), "the frame has room for its segment");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::{be16, be32};
    use crate::protocol::{DESTINATION_OPTIONS, UDP};
    use crate::testing::assert_checksums;
    use etherparse::{PacketBuilder, TcpOptionElement};
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
                let mut frame = vec![7; 3]; // earlier content is replaced
                train.write(index, &mut frame);
                frame
            })
            .collect()
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
    fn a_checksum_of_tcp_that_is_zero_is_written_as_ones() {
        let field = 14 + 20 + 16;
        let missing = be16(&build(false, false, &[0; 2]), field);
        let bytes = build(false, false, &missing.to_be_bytes());
        assert_eq!(be16(&bytes, field), 0);
        let frames = cut(&bytes, 1000);
        assert_eq!(be16(&frames[0], field), 0xffff);
        assert_checksums(&frames[0][14..]);
    }

    #[test]
    fn refuses_trains_it_cannot_segment() {
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
            assert_checksums(&frame[14..]);
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
                assert_checksums(&frame[14..]);
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
