use super::*;
use crate::bytes::put16;
use crate::offload::TrainKind;
use crate::testing::{Recipe, assert_checksums};
use crate::{Ip, Segmenter, header, udp};
use proptest::prelude::*;

/// What a sink got: each packet or train, flat.
fn join(packets: &[(Vec<u8>, usize)], joins_udp: bool) -> Vec<(Offload, Vec<u8>)> {
    let mut out = Vec::new();
    let mut coalescer = Coalescer::new(joins_udp, |offload, slices: &[IoSlice<'_>]| {
        out.push((offload, slices.iter().flat_map(|slice| slice.to_vec()).collect()));
    });
    for (packet, head_len) in packets {
        let (head, payload) = packet.split_at(*head_len);
        let short_lived = head.to_vec();
        coalescer.push(&short_lived, payload);
    }
    coalescer.finish();
    out
}

/// Trains cut again, as a kernel would.
fn cut(joined: &[(Offload, Vec<u8>)]) -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    for (offload, bytes) in joined {
        let segmenter = match offload.kind {
            TrainKind::None => {
                out.push(bytes.clone());
                continue;
            }
            _ => Segmenter::new(bytes, *offload).expect("a good train"),
        };
        assert_eq!(Ip::parse(bytes).map(|ip| ip.total_len()), Ok(bytes.len()));
        assert_eq!(segmenter.head_len(), usize::from(offload.header_len));
        for index in 0..segmenter.segments() {
            let mut segment = vec![0; bytes.len()];
            let len = segmenter.copy(index, &mut segment).expect("room");
            segment.truncate(len);
            out.push(segment);
        }
    }
    out
}

/// A stream of segments with 100 bytes each but for the last.
fn stream(recipe: Recipe, segments: usize) -> Vec<(Vec<u8>, usize)> {
    (0..segments)
        .map(|index| {
            let last = index + 1 == segments;
            let sequence = recipe.sequence.wrapping_add(index as u32 * 100);
            let payload = vec![index as u8; if last { 60 } else { 100 }];
            (Recipe { sequence, push: last, ..recipe }.build(&payload), 0)
        })
        .collect()
}

#[test]
fn joins_a_stream_to_one_train_that_a_kernel_can_segment() {
    for v6 in [false, true] {
        for udp in [false, true] {
            for timestamps in [false, true] {
                let recipe = Recipe { v6, udp, timestamps, sequence: u32::MAX - 150, push: false };
                let packets = stream(recipe, 5);
                let joined = join(&packets, true);
                assert_eq!(joined.len(), 1, "{recipe:?}");
                let (offload, train) = &joined[0];
                let ip_len = if v6 { 40 } else { 20 };
                let field = if udp { 6 } else { 16 };
                assert_eq!(offload.checksum, Some((ip_len, field)));
                assert_eq!(offload.segment_len, 100);
                // finishing the checksum makes a good packet of the whole train
                let mut whole = train.clone();
                let at = crate::checksum::Unfinished { start: ip_len.into(), offset: field.into() };
                crate::checksum::finish(&mut whole, at).expect("a field");
                assert_checksums(&whole);
                let mut expected: Vec<Vec<u8>> =
                    packets.into_iter().map(|(bytes, _)| bytes).collect();
                if !v6 {
                    for (index, bytes) in expected.iter_mut().enumerate() {
                        put16(bytes, 4, index as u16); // etherparse writes DF and no number
                        header::refresh_checksum(bytes).expect("a header");
                    }
                }
                assert_eq!(cut(&joined), expected);
            }
        }
    }
}

#[test]
fn udp_is_joined_only_where_asked_for() {
    let packets = stream(Recipe { udp: true, ..Recipe::TCP }, 5);
    let joined = join(&packets, false);
    assert!(joined.iter().zip(&packets).all(|((offload, bytes), (packet, _))| {
        *offload == Offload::default() && bytes == packet
    }));
    assert_eq!(joined.len(), 5);
}

/// Changes the second of three packets and says how many came out.
fn count_with(recipe: Recipe, change: impl FnOnce(&mut Vec<u8>)) -> usize {
    let mut packets = stream(recipe, 4);
    packets.pop();
    let bytes = &mut packets[1].0;
    change(bytes);
    let joined = join(&packets, true);
    assert_eq!(cut(&joined)[1], packets[1].0); // unchanged, and in its place
    joined.len()
}

/// Makes a packet's checksums right again.
fn mend(bytes: &mut [u8]) {
    let v6 = bytes[0] >> 4 == 6;
    let (ip_len, protocol) = if v6 { (40, bytes[6]) } else { (20, bytes[9]) };
    let field = if protocol == 17 { udp::CHECKSUM_OFFSET } else { crate::tcp::CHECKSUM_OFFSET };
    let addresses = if v6 { 8..40 } else { 12..20 };
    let len = bytes.len() - ip_len;
    let pseudo = crate::checksum::pseudo_header(&bytes[addresses], protocol, len);
    put16(bytes, ip_len + field, crate::checksum::fold(pseudo));
    let at = crate::checksum::Unfinished { start: ip_len, offset: field };
    crate::checksum::finish(bytes, at).expect("a field");
    header::refresh_checksum(bytes).expect("a header");
}

#[test]
fn does_not_join_packets_with_different_headers() {
    // byte, the bits to change in it; each ends the train before and after it
    for (what, at, bits) in [
        ("TOS", 1, 0x02),
        ("DF", 6, 0x40),
        ("reserved bit", 6, 0x80),
        ("TTL", 8, 0x01),
        ("sequence", 24, 0x01),
        ("acknowledgement", 31, 0x01),
        ("reserved TCP bit", 32, 0x01),
        ("FIN", 33, 0x01),
        ("SYN", 33, 0x02),
        ("RST", 33, 0x04),
        ("no ACK", 33, 0x10),
        ("URG", 33, 0x20),
        ("ECE", 33, 0x40),
        ("CWR", 33, 0x80),
        ("window", 35, 0x01),
        ("urgent pointer", 39, 0x01),
        ("timestamp", 47, 0x01),
    ] {
        let recipe = Recipe { timestamps: true, ..Recipe::TCP };
        let count = count_with(recipe, |bytes| {
            bytes[at] ^= bits;
            mend(bytes);
        });
        assert_eq!(count, 3, "{what}");
    }
    let shorter = |bytes: &mut Vec<u8>| {
        bytes.truncate(bytes.len() - 1);
        header::set_total_len(bytes, 139).expect("a header");
        mend(bytes);
    };
    // the first two are a train, which a shorter segment ends
    let mut packets = stream(Recipe::TCP, 4);
    packets.pop();
    shorter(&mut packets[1].0);
    assert_eq!(join(&packets, true).len(), 2);
}

#[test]
fn a_wrong_checksum_is_never_made_right() {
    for v6 in [false, true] {
        for udp in [false, true] {
            let recipe = Recipe { v6, udp, ..Recipe::TCP };
            assert_eq!(count_with(recipe, |bytes| *bytes.last_mut().expect("octets") ^= 1), 3);
        }
    }
    // of the header of IPv4, and of the first packet, which is looked at late
    assert_eq!(count_with(Recipe::TCP, |bytes| bytes[10] ^= 1), 3);
    let mut packets = stream(Recipe::TCP, 4);
    packets[0].0[10] ^= 1;
    let joined = join(&packets, true);
    assert_eq!((joined.len(), &joined[0].1), (2, &packets[0].0));
    assert_eq!(joined[0].0, Offload::default());
}

#[test]
fn the_number_of_a_datagram_that_may_be_cut_must_go_up() {
    for (numbers, expected) in [([7_u16, 8, 9], 1), ([7, 7, 8], 2), ([u16::MAX, 0, 1], 1)] {
        let mut packets = stream(Recipe::TCP, 4);
        packets.pop();
        for ((bytes, _), number) in packets.iter_mut().zip(numbers) {
            bytes[6] = 0;
            put16(bytes, 4, number);
            header::refresh_checksum(bytes).expect("a header");
        }
        assert_eq!(join(&packets, true).len(), expected, "{numbers:?}");
    }
}

#[test]
fn limits_a_train_to_its_length_field() {
    for v6 in [false, true] {
        let payload = [1; 1400];
        let packets: Vec<_> = (0..100)
            .map(|index| {
                let recipe = Recipe { v6, sequence: index * 1400, ..Recipe::TCP };
                (recipe.build(&payload), 0)
            })
            .collect();
        let lens: Vec<usize> =
            join(&packets, true).iter().map(|(_, bytes)| (bytes.len() - 40) / 1400).collect();
        assert_eq!(lens, [46, 46, 8]);
    }
    let packets: Vec<_> = (0..100)
        .map(|index| (Recipe { sequence: index * 8, ..Recipe::TCP }.build(&[1; 8]), 0))
        .collect();
    assert_eq!(join(&packets, true).len(), 2); // 64 packets, and the rest
}

#[test]
fn more_flows_than_there_is_room_for_still_pass_in_order() {
    let mut packets = Vec::new();
    for round in 0..3 {
        for port in 0..40_u16 {
            let mut bytes = Recipe { sequence: round * 10, ..Recipe::TCP }.build(&[3; 10]);
            put16(&mut bytes, 20, port);
            mend(&mut bytes);
            packets.push((bytes, 0));
        }
    }
    let out = cut(&join(&packets, true));
    for port in 0..40_u16 {
        let of = |bytes: &&Vec<u8>| crate::bytes::be16(bytes, 20) == port;
        let sent: Vec<&Vec<u8>> = packets.iter().map(|(bytes, _)| bytes).filter(of).collect();
        assert_eq!(out.iter().filter(of).collect::<Vec<_>>(), sent);
    }
}

/// One packet of a random batch: its flow, payload, and what is odd about it.
#[derive(Debug, Clone, Copy)]
struct Event {
    flow: usize,
    payload_len: usize,
    push: bool,
    split: usize,
    odd: u8,
}

fn event() -> impl Strategy<Value = Event> {
    let len = proptest::sample::select(vec![100usize, 100, 100, 100, 60, 120, 0]);
    let split = proptest::sample::select(vec![0usize, 20, 40, 28, 52, 10, 90]);
    (0usize..6, len, 0u8..8, split, 0u8..40).prop_map(|(flow, payload_len, push, split, odd)| {
        Event { flow, payload_len, push: push == 0, split, odd }
    })
}

/// The packets of a batch, each with its flow and where its head ends.
fn batch(events: &[Event]) -> Vec<(usize, Vec<u8>, usize)> {
    let mut sequences = [u32::MAX - 300; 6];
    let mut numbers = [u16::MAX - 3; 6];
    let mut packets = Vec::new();
    for (count, event) in events.iter().enumerate() {
        let (v6, udp) = (event.flow % 2 == 1, event.flow >= 4);
        let sequence = &mut sequences[event.flow];
        let recipe =
            Recipe { v6, udp, timestamps: event.flow > 1, sequence: *sequence, push: event.push };
        *sequence = sequence.wrapping_add(event.payload_len as u32);
        let mut bytes = recipe.build(&vec![count as u8; event.payload_len]);
        let ip_len = if v6 { 40 } else { 20 };
        put16(&mut bytes, ip_len, event.flow as u16);
        if !v6 {
            bytes[6] = 0;
            put16(&mut bytes, 4, numbers[event.flow]);
            numbers[event.flow] = numbers[event.flow].wrapping_add(1);
        }
        mend(&mut bytes);
        match event.odd {
            0 => *bytes.last_mut().expect("octets") ^= 1,
            1 => bytes[if v6 { 7 } else { 8 }] -= 1, // TTL, IPv4's checksum wrong with it
            2 => bytes.push(7),                      // longer than its length field
            3 => bytes.truncate(bytes.len() - 1),
            4 if !v6 => bytes[6] = 0x20,
            5 if !udp => bytes[ip_len + 13] |= 0x01,
            6 => bytes[0] ^= 0x01,
            7 if !udp => bytes[ip_len + 12] ^= 0xf0,
            _ => {}
        }
        let split = event.split.min(bytes.len());
        packets.push((event.flow, bytes, split));
    }
    packets
}

proptest! {
    #[test]
    fn segmenting_joined_trains_restores_every_flow(events in proptest::collection::vec(event(), 0..60), joins_udp: bool) {
        let packets = batch(&events);
        let input: Vec<(Vec<u8>, usize)> = packets.iter().map(|(_, bytes, split)| (bytes.clone(), *split)).collect();
        let out = cut(&join(&input, joins_udp));
        prop_assert_eq!(out.len(), packets.len());
        // the ports tell the flow, in whatever state the packet is
        for flow in 0..6 {
            let port = |bytes: &[u8]| crate::bytes::be16(bytes, if bytes[0] >> 4 == 6 { 40 } else { 20 });
            let sent: Vec<&Vec<u8>> = packets.iter().filter(|(of, ..)| *of == flow).map(|(_, bytes, _)| bytes).collect();
            let got: Vec<&Vec<u8>> = out.iter().filter(|bytes| usize::from(port(bytes)) == flow).collect();
            prop_assert_eq!(got, sent);
        }
    }

    #[test]
    fn arbitrary_bytes_neither_panic_nor_get_lost(batch in proptest::collection::vec((proptest::collection::vec(any::<u8>(), 0..130), 0usize..130, proptest::sample::select(vec![0x45u8, 0x60, 0x46]), proptest::sample::select(vec![6u8, 17])), 0..20)) {
        let packets: Vec<(Vec<u8>, usize)> = batch.into_iter().map(|(mut bytes, split, first, protocol)| {
            if bytes.len() > 40 {
                let v6 = first == 0x60;
                let len = bytes.len() - if v6 { 40 } else { 0 };
                (bytes[0], bytes[9]) = (first, protocol);
                (bytes[6], bytes[7]) = (if v6 { protocol } else { 0 }, 0);
                put16(&mut bytes, if v6 { 4 } else { 2 }, len as u16);
            }
            let split = split.min(bytes.len());
            (bytes, split)
        }).collect();
        let mut sent: Vec<Vec<u8>> = packets.iter().map(|(bytes, _)| bytes.clone()).collect();
        let mut got: Vec<Vec<u8>> = join(&packets, true).into_iter().map(|(_, bytes)| bytes).collect();
        // random bytes have wrong checksums: all pass as they are
        sent.sort();
        got.sort();
        prop_assert_eq!(got, sent);
    }
}
