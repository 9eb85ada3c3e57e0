use super::*;
use crate::testing::{Recipe, assert_checksums};
use proptest::prelude::*;

fn train(kind: TrainKind, segment_len: u16) -> Offload {
    Offload { checksum: Some((20, 16)), kind, segment_len, header_len: 40 }
}

fn recipe() -> impl Strategy<Value = Recipe> {
    any::<(bool, bool, bool, u32, bool)>().prop_map(|(v6, udp, timestamps, sequence, push)| {
        Recipe { v6, udp, timestamps, sequence, push }
    })
}

fn kind(recipe: Recipe) -> TrainKind {
    match recipe {
        Recipe { udp: true, .. } => TrainKind::Udp,
        Recipe { v6: true, .. } => TrainKind::Tcp6,
        _ => TrainKind::Tcp4,
    }
}

#[test]
fn a_kind_that_is_not_the_packets_is_refused() {
    for v6 in [false, true] {
        for udp in [false, true] {
            let recipe = Recipe { v6, udp, ..Recipe::TCP };
            let packet = recipe.build(&[5; 100]);
            for other in [TrainKind::Tcp4, TrainKind::Tcp6, TrainKind::Udp] {
                let made = Segmenter::new(&packet, train(other, 60));
                assert_eq!(made.is_ok(), other == kind(recipe));
            }
        }
    }
}

#[test]
fn a_train_longer_than_its_length_field_is_cut_whole() {
    for v6 in [false, true] {
        let recipe = Recipe { v6, ..Recipe::TCP };
        let mut packet = recipe.build(&[]);
        packet.resize(packet.len() + 100_000, 5);
        put16(&mut packet, if v6 { 4 } else { 2 }, 0);
        let segmenter = Segmenter::new(&packet, train(kind(recipe), 1400)).expect("a train");
        let carried: usize =
            (0..segmenter.segments()).map(|index| segmenter.payload(index).len()).sum();
        assert_eq!((carried, segmenter.segments()), (100_000, 72));
        let too_long = Segmenter::new(&packet, train(kind(recipe), 65_535));
        assert_eq!(too_long.err(), Some(Error::TooLong("IP")));
    }
}

#[test]
fn a_packet_without_work_passes_as_it_is() {
    let mut packet = Recipe { udp: true, ..Recipe::TCP }.build(b"hello");
    packet[26] ^= 1; // a wrong checksum stays wrong
    let len = packet.len();
    packet.resize(len + 6, 7); // what is behind the packet does not pass
    let segmenter = Segmenter::new(&packet, Offload::default()).expect("a packet");
    assert_eq!((segmenter.segments(), segmenter.head_len()), (1, 28));
    let mut out = [0; 100];
    assert_eq!(segmenter.copy(0, &mut out), Ok(len));
    assert_eq!(out[..len], packet[..len]);
    assert_eq!(segmenter.copy(0, &mut out[..len - 1]), Err(Error::Truncated("segment")));
    assert_eq!(segmenter.write_head(0, &mut out[..27]), Err(Error::Truncated("segment")));
}

proptest! {
    #[test]
    fn head_and_payload_equal_the_copy_and_etherparse_accepts_it(recipe in recipe(), payload in proptest::collection::vec(any::<u8>(), 0..3000), segment_len in 1u16..1500) {
        let packet = recipe.build(&payload);
        let segmenter = Segmenter::new(&packet, train(kind(recipe), segment_len)).expect("a train");
        let mut carried = Vec::new();
        for index in 0..segmenter.segments() {
            let mut copied = vec![7; packet.len()];
            let len = segmenter.copy(index, &mut copied).expect("room");
            copied.truncate(len);
            let mut joined = vec![7; segmenter.head_len()];
            prop_assert_eq!(segmenter.write_head(index, &mut joined), Ok(joined.len()));
            joined.extend_from_slice(segmenter.payload(index));
            prop_assert_eq!(&joined, &copied);
            prop_assert_eq!(Ip::parse(&joined).map(|ip| ip.total_len()), Ok(joined.len()));
            assert_checksums(&joined);
            carried.extend_from_slice(segmenter.payload(index));
        }
        prop_assert_eq!(carried, payload);
    }

    #[test]
    fn an_unfinished_checksum_is_finished(recipe in recipe(), payload in proptest::collection::vec(any::<u8>(), 0..300)) {
        let mut good = recipe.build(&payload);
        let start = if recipe.v6 { 40 } else { 20 };
        let offset = if recipe.udp { 6 } else { 16 };
        let written = not_zero(be16(&good, start + offset));
        put16(&mut good, start + offset, written);
        let ip = Ip::parse(&good).expect("a packet");
        let pseudo = pseudo_header(ip.addresses(), ip.upper(), good.len() - start);
        let mut packet = good.clone();
        put16(&mut packet, start + offset, fold(pseudo));
        let unfinished = Offload { checksum: Some((start as u16, offset as u16)), ..Offload::default() };
        let segmenter = Segmenter::new(&packet, unfinished).expect("a packet");
        let mut out = vec![0; good.len()];
        prop_assert_eq!(segmenter.copy(0, &mut out), Ok(good.len()));
        prop_assert_eq!(&out, &good);
        out.fill(0);
        let head_len = segmenter.write_head(0, &mut out).expect("room");
        out.truncate(head_len);
        out.extend_from_slice(segmenter.payload(0));
        prop_assert_eq!(&out, &good);
    }

    #[test]
    fn no_bytes_make_it_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..150), first in proptest::sample::select(vec![0x45u8, 0x46, 0x60]), protocol in proptest::sample::select(vec![6u8, 17, 0, 60, 132]), checksum: Option<(u8, u8)>, segment_len in 0u16..100, kind in proptest::sample::select(vec![TrainKind::None, TrainKind::Tcp4, TrainKind::Tcp6, TrainKind::Udp])) {
        if bytes.len() > 40 {
            let v6 = first == 0x60;
            let len = bytes.len() - if v6 { 40 } else { 0 };
            (bytes[0], bytes[9]) = (first, protocol);
            (bytes[6], bytes[7]) = (if v6 { protocol } else { 0 }, 0);
            put16(&mut bytes, if v6 { 4 } else { 2 }, len as u16);
        }
        let checksum = checksum.map(|(start, offset)| (start.into(), offset.into()));
        if let Ok(segmenter) = Segmenter::new(&bytes, Offload { checksum, kind, segment_len, header_len: 0 }) {
            let mut out = vec![0; bytes.len()];
            for index in 0..segmenter.segments() {
                prop_assert!(segmenter.write_head(index, &mut out).is_ok());
                prop_assert!(segmenter.copy(index, &mut out).is_ok());
            }
        }
    }
}
