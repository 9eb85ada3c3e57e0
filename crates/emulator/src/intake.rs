//! Turns what the kernel delivers into single, complete frames: restores a stripped VLAN
//! tag, completes checksums, splits trains.

use headroom_link_spec::Counters;
use headroom_netio::link_socket::Received;
use headroom_packet::checksum::{self, Unfinished};
use headroom_packet::{Train, ethernet};

/// Kinds of train (linux/virtio_net.h); the flag marks a train that contains a CWR.
const TCP_V4: u8 = 1;
const TCP_V6: u8 = 4;
const UDP: u8 = 5;
const ECN_FLAG: u8 = 0x80;

/// Turns received frames into single, complete ones; keeps its buffers.
#[derive(Debug, Default)]
pub(crate) struct Intake {
    tagged: Vec<u8>,
    segment: Vec<u8>,
}

impl Intake {
    /// Passes each single frame in `received` to `take`.
    pub(crate) fn frames(
        &mut self,
        received: Received<'_>,
        counters: &mut Counters,
        mut take: impl FnMut(&[u8], &mut Counters),
    ) {
        let Received { mut bytes, offload, vlan, truncated, .. } = received;
        if truncated || bytes.len() < ethernet::HEADER_LEN {
            counters.malformed += 1;
            return;
        }
        let mut shift = 0;
        if let Some((kind, tag)) = vlan {
            self.tagged.clear();
            self.tagged.extend_from_slice(&bytes[..12]);
            self.tagged.extend_from_slice(&kind.to_be_bytes());
            self.tagged.extend_from_slice(&tag.to_be_bytes());
            self.tagged.extend_from_slice(&bytes[12..]);
            shift = ethernet::TAG_LEN;
            bytes = &mut self.tagged;
        }
        match offload.train_kind & !ECN_FLAG {
            0 => {
                if let Some((start, offset)) = offload.checksum {
                    let at =
                        Unfinished { start: usize::from(start) + shift, offset: offset.into() };
                    if checksum::finish(bytes, at).is_err() {
                        counters.malformed += 1;
                        return;
                    }
                    counters.checksums_finished += 1;
                }
                take(bytes, counters);
            }
            TCP_V4 | TCP_V6 | UDP => {
                let network = ethernet::network_offset(bytes);
                let Ok(train) = Train::new(bytes, network, offload.segment_len.into()) else {
                    counters.malformed += 1;
                    return;
                };
                counters.trains_split += 1;
                for index in 0..train.frames() {
                    train.write(index, &mut self.segment);
                    take(&self.segment, counters);
                }
            }
            // A train of an unsupported kind counts as malformed, although it may be well-formed.
            _ => counters.malformed += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_netio::link_socket::Offload;

    fn frames(
        bytes: &mut [u8],
        offload: Offload,
        vlan: Option<(u16, u16)>,
    ) -> (Vec<Vec<u8>>, Counters) {
        let (mut out, mut counters) = (Vec::new(), Counters::default());
        let received = Received { time: None, bytes, offload, vlan, truncated: false };
        Intake::default().frames(received, &mut counters, |frame, _| out.push(frame.to_vec()));
        (out, counters)
    }

    #[test]
    fn restores_a_stripped_vlan_tag() {
        let mut bytes: Vec<u8> = (0..30).collect();
        let (out, counters) = frames(&mut bytes, Offload::default(), Some((0x8100, 0x2003)));
        let mut expected: Vec<u8> = (0..12).collect();
        expected.extend([0x81, 0x00, 0x20, 0x03]);
        expected.extend(12..30);
        assert_eq!(out, [expected]);
        assert_eq!(counters, Counters::default());
    }

    #[test]
    fn counts_unreadable_frames_and_drops_them() {
        for train_kind in [1, 3, 4, 5, 77] {
            let offload = Offload { train_kind, segment_len: 100, checksum: None };
            let (out, counters) = frames(&mut [0; 100], offload, None);
            assert!(out.is_empty() && counters.malformed == 1, "{train_kind}");
        }
        let offload = Offload { checksum: Some((99, 16)), ..Offload::default() };
        assert_eq!(frames(&mut [0; 100], offload, None).1.malformed, 1);
        assert_eq!(frames(&mut [0; 13], Offload::default(), None).1.malformed, 1);
    }
}
