//! Two ends of a lane, and peers that hold the keys and say anything.

use proptest::prelude::*;

use super::super::header::{Header, Number};
use super::super::keys::Direction;
use super::super::measurement::Chunk;
use super::super::testing::{Aes, Cheap, Exporter, context};
use super::*;
use crate::rate::RateConfig;

fn lane(peer: Option<SocketAddr>) -> Lane<Exporter<Cheap>> {
    let sends = if peer.is_some() { Direction::ToServer } else { Direction::ToClient };
    Lane::new(&lane_config(sends, peer), Exporter::default()).expect("a key")
}

fn lane_config(sends: Direction, peer: Option<SocketAddr>) -> LaneConfig {
    LaneConfig {
        transfer: context().transfer,
        lane: context().lane,
        sends,
        peer,
        is_known: false,
        awaits_data: false,
        max_packet: 1472,
        chunk: None,
        rtt: None,
        rate: RateConfig::default(),
        seed: [1; 32],
    }
}

#[test]
fn each_packet_carries_the_chunk_that_was_agreed_on() {
    let (there, here) = (([192, 0, 2, 2], 7777).into(), ([192, 0, 2, 1], 9).into());
    for chunk in [200, 1000, 4000] {
        let end = |sends, peer| {
            let (chunk, base) = (Chunk::new(chunk), lane_config(sends, peer));
            Lane::new(&LaneConfig { chunk, ..base }, Exporter::<Cheap>::default()).expect("a key")
        };
        let mut sender = end(Direction::ToServer, Some(there));
        let mut receiver = end(Direction::ToClient, None);
        let (whole, rest) = (300, 7);
        let len = u64::from(chunk * whole + rest);
        sender.send(Piece { file: 1, offset: 0, len });
        let (mut buffer, mut came, mut now) = (vec![0; 1 << 16], Vec::new(), Duration::ZERO);
        while came.iter().sum::<usize>() < len as usize {
            now += Duration::from_millis(1);
            assert!(now < Duration::from_secs(60), "it does not come");
            sender.handle_timeout(now);
            while let Some(transmit) = sender.transmit(now, &mut buffer, |_, _| {}) {
                assert!(transmit.len.div_ceil(transmit.segment) <= TRAIN_PACKETS);
                for packet in buffer[..transmit.len].chunks_mut(transmit.segment) {
                    let received = receiver.handle(now, here, false, packet).expect("opened");
                    if let Received::Data { bytes, .. } = received {
                        came.push(bytes.len());
                    }
                }
            }
            receiver.handle_timeout(now);
            while let Some(transmit) = receiver.transmit(now, &mut buffer, |_, _| {}) {
                let packet = &mut buffer[..transmit.len];
                sender.handle(now, there, false, packet).expect("opened");
            }
        }
        assert_eq!(came.pop(), Some(rest as usize));
        assert_eq!(came, vec![chunk as usize; whole as usize]);
    }
}

#[test]
fn packets_are_the_same_whether_their_bytes_are_in_memory_or_written() {
    struct Memory(Vec<u8>);
    impl PayloadSource for Memory {
        fn in_memory(&mut self, piece: Piece) -> Option<&[u8]> {
            // of the second half not all that is asked for
            let from = piece.offset as usize;
            let len = piece.len as usize - usize::from(from > self.0.len() / 2);
            self.0.get(from..from + len)
        }
        fn write(&mut self, piece: Piece, body: &mut [u8]) {
            body.copy_from_slice(&self.0[piece.offset as usize..][..piece.len as usize]);
        }
    }
    let at = |port| SocketAddr::from(([192, 0, 2, 1], port));
    let mut memory = Memory((0..20_000_u32).map(|at| (at >> 4) as u8).collect());
    let sent = [false, true].map(|in_memory| {
        let end = |sends, peer| {
            Lane::new(&lane_config(sends, peer), Exporter::<Aes>::default()).expect("a key")
        };
        let mut sender = end(Direction::ToServer, Some(at(2)));
        let mut receiver = end(Direction::ToClient, None);
        sender.send(Piece { file: 1, offset: 0, len: 20_000 });
        let (mut buffer, mut sent, mut came) = (vec![0; 1 << 16], Vec::new(), vec![0; 20_000]);
        for now in (0..500).map(Duration::from_millis) {
            sender.handle_timeout(now);
            while let Some(train) = match in_memory {
                true => sender.transmit_from(now, &mut buffer, &mut memory),
                false => sender.transmit(now, &mut buffer, |piece, body| memory.write(piece, body)),
            } {
                sent.extend_from_slice(&buffer[..train.len]);
                for packet in buffer[..train.len].chunks_mut(train.segment) {
                    if let Ok(Received::Data { offset, bytes, .. }) =
                        receiver.handle(now, at(1), false, packet)
                    {
                        came[offset as usize..][..bytes.len()].copy_from_slice(bytes);
                    }
                }
            }
            receiver.handle_timeout(now);
            while let Some(train) = receiver.transmit(now, &mut buffer, |_, _| {}) {
                let packet = &mut buffer[..train.len];
                sender.handle(now, at(2), false, packet).expect("opened");
            }
        }
        assert!(came == memory.0, "not all came");
        sent
    });
    assert!(sent[0] == sent[1], "other packets");
}

#[test]
fn a_server_that_sent_only_feedback_gets_more_until_it_validates() {
    let at = |port| SocketAddr::from(([192, 0, 2, 1], port));
    let mut ends = [lane(Some(at(2))), lane(None)];
    let piece = Piece { file: 1, offset: 0, len: 100 };
    ends.iter_mut().for_each(|end| end.send(piece));
    let (mut now, mut buffer) = (Duration::ZERO, vec![0; 1 << 16]);
    let mut came = [0, 0];
    // no answer of the client's to a challenge arrives in the first half minute
    while came != [100, 100] {
        for (n, from) in [(0, at(1)), (1, at(2))] {
            ends[n].handle_timeout(now);
            while let Some(train) = ends[n].transmit(now, &mut buffer, |_, _| {}) {
                let packet = &mut buffer[..train.len];
                let answers = packet[HEADER_LEN] == 3 && packet[HEADER_LEN + 1] & 2 > 0;
                if n == 0 && answers && now < Duration::from_secs(30) {
                    continue;
                }
                let heard = ends[1 - n].handle(now, from, false, packet);
                if let Ok(Received::Data { bytes, .. }) = heard {
                    came[1 - n] += bytes.len();
                }
            }
        }
        let next = ends.iter().filter_map(|end| end.timeout(now)).min();
        now = now.max(next.expect("somebody has something to do")) + Duration::from_millis(1);
        assert!(now < Duration::from_secs(300), "{came:?} bytes came");
    }
}

/// RFC 9000, section 21.4: who acknowledges what did not come yet makes the sender
/// hurry. What it may send at most it does not exceed.
#[test]
fn acknowledging_unreceived_packets_does_not_exceed_the_rate_limit() {
    let peer = SocketAddr::from(([192, 0, 2, 1], 2));
    let mut config = lane_config(Direction::ToServer, Some(peer));
    config.rate.limit = Some(1e6);
    let mut sender: Lane<Exporter<Cheap>> = Lane::new(&config, Exporter::default()).expect("a key");
    sender.send(Piece { file: 1, offset: 0, len: 1 << 40 });
    let (mut now, mut buffer) = (Duration::ZERO, vec![0; 1 << 16]);
    let (mut sent, mut answers) = (0, 0);
    while now < Duration::from_secs(20) {
        now += Duration::from_millis(1);
        sender.handle_timeout(now);
        for _ in 0..10_000 {
            let Some(train) = sender.transmit(now, &mut buffer, |_, _| {}) else { break };
            sent += train.len;
            let last = buffer[..train.len].chunks(train.segment).next_back().expect("one");
            let number = Header::parse(last).expect("a packet").number.get();
            let text = match &last[HEADER_LEN..] {
                [3, 1, token @ ..] => {
                    let mut text = vec![3, 2];
                    text.extend([0; 8]);
                    text.extend(&token[..8]);
                    text
                }
                // all that was ever sent, and it came a moment after the last
                _ => {
                    let mut text = vec![4];
                    text.extend(number.to_be_bytes());
                    text.extend((1_000_000 + number).to_be_bytes());
                    text.extend([0; 16]);
                    text.extend([0, 1]);
                    text.extend((number | 3 << 62).to_be_bytes());
                    text
                }
            };
            let mut packet = sealed(answers, &text);
            answers += 1;
            sender.handle(now, peer, false, &mut packet).expect("it is well made");
        }
    }
    assert!((18_000_000..21_000_000).contains(&sent), "{sent} bytes in 20 s");
}

fn sealed(number: u64, text: &[u8]) -> Vec<u8> {
    let number = Number::new(number).expect("48 bits");
    let header = Header { lane: context().lane, number }.bytes();
    [&header[..], text, &header[..]].concat()
}

/// A peer that holds the keys and says anything, at any time, from anywhere.
fn hostile() -> impl Strategy<Value = Vec<(u8, u16, u32, Vec<u8>)>> {
    let payload = prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..60),
        // a feedback about few or many packets, the first of them sent
        (0_u64..40, any::<u64>(), any::<u32>(), proptest::collection::vec(0_u8..9, 2..20))
            .prop_map(|(largest, arrived, age, ranges)| {
                let mut text = vec![4];
                text.extend(largest.to_be_bytes());
                text.extend(arrived.to_be_bytes());
                text.extend(age.to_be_bytes());
                text.extend([0xff; 12]);
                text.extend((ranges.len() as u16 / 2).to_be_bytes());
                text.extend(ranges);
                text
            }),
    ];
    proptest::collection::vec((any::<u8>(), 0_u16..500, 0_u32..100_000, payload), 1..80)
}

proptest! {
    #[test]
    fn a_hostile_peer_gets_no_panic_no_memory_and_no_flood(steps in hostile(), opener: bool) {
        let address = |port| SocketAddr::from(([192, 0, 2, 1], port));
        let mut lane = lane(opener.then(|| address(1)));
        lane.send(Piece { file: 1, offset: u64::MAX - 5_000_000, len: 5_000_000 });
        let (mut now, mut buffer) = (Duration::ZERO, vec![0; 1 << 16]);
        let (mut number, mut received, mut sent) = (0, 0, 0);
        for (kind, step, micros, mut text) in steps {
            if let Some(first) = text.first_mut().filter(|_| kind & 1 == 0) {
                *first = *first & 0x80 | kind >> 1 & 7;
            }
            now += Duration::from_micros(micros.into());
            number += u64::from(step);
            let mut packet = sealed(number, &text);
            received += packet.len();
            let _ = lane.handle(now, address(u16::from(kind >> 6)), kind & 32 > 0, &mut packet);
            lane.handle_timeout(now);
            let mut turns = 0;
            while let Some(transmit) = lane.transmit(now, &mut buffer, |_, _| {}) {
                sent += transmit.len;
                turns += 1;
                prop_assert!(turns < 100, "it never ends");
            }
            if let Some(at) = lane.timeout(now) {
                prop_assert!(at > now, "{at:?} at {now:?}: time stands still");
            }
            while lane.poll_event().is_some() {}
        }
        // challenges of the opener come beside what others are allowed
        if lane.paths.validated().is_none() && !opener {
            prop_assert!(sent <= 3 * received, "{sent} for {received}");
        }
    }
}
