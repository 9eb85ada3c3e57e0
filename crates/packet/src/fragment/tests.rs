use super::*;
use crate::bytes::be16;
use crate::testing::Recipe;
use etherparse::SlicedPacket;
use etherparse::defrag::IpDefragPool;
use proptest::prelude::*;
use std::time::Duration;

const LIMITS: Limits = Limits { datagrams: 4, bytes: 200_000 };
const NOW: Duration = Duration::from_secs(1000);

fn ip(bytes: &[u8]) -> Ip<'_> {
    Ip::parse(bytes).expect("a good packet")
}

/// A UDP packet that may be cut, with an option or extension header that each
/// fragment carries and one that only the first does.
fn packet(v6: bool, options: bool, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Recipe { v6, udp: true, ..Recipe::TCP }.build(payload);
    if options && v6 {
        bytes.splice(40..40, [17, 0, 1, 4, 0, 0, 0, 0]); // destination options
        bytes.splice(40..40, [60, 0, 1, 4, 0, 0, 0, 0]); // hop-by-hop
        bytes[6] = 0;
    } else if options {
        bytes.splice(20..20, [1, 7, 3, 4, 0x94, 4, 0, 0]); // record route; router alert
        bytes[0] = 0x47;
    }
    if !v6 {
        bytes[6] = 0;
        put16(&mut bytes, 4, 77);
    }
    let len = bytes.len();
    header::set_total_len(&mut bytes, len).expect("a header");
    bytes
}

fn cut(bytes: &[u8], mtu: usize) -> Vec<Vec<u8>> {
    let cut = Fragmenter::new(ip(bytes), mtu, 0xdead_beef).expect("it may be cut");
    (0..cut.fragments())
        .map(|index| {
            let mut fragment = vec![7; mtu.max(bytes.len())];
            let len = cut.copy(index, &mut fragment).expect("room");
            fragment.truncate(len);
            fragment
        })
        .collect()
}

/// The fragment of an IPv4 datagram with these bytes of its payload.
fn fragment(offset: usize, payload: &[u8], more: bool) -> Vec<u8> {
    let mut bytes = packet(false, false, &[])[..20].to_vec();
    bytes[9] = 99;
    put16(&mut bytes, 6, (offset / 8) as u16 | if more { MORE } else { 0 });
    bytes.extend_from_slice(payload);
    let len = bytes.len();
    header::set_total_len(&mut bytes, len).expect("a header");
    bytes
}

#[test]
fn a_packet_that_fits_is_unchanged() {
    for v6 in [false, true] {
        let bytes = packet(v6, true, &[5; 100]);
        assert_eq!(cut(&bytes, bytes.len()), std::slice::from_ref(&bytes));
        assert_eq!(cut(&bytes, bytes.len() - 1).len(), 2);
    }
}

#[test]
fn refuses_to_fragment_where_standards_forbid_it() {
    let mut bytes = packet(false, false, &[5; 100]);
    bytes[6] = 0x40;
    assert_eq!(Fragmenter::new(ip(&bytes), 100, 0).err(), Some(FragmentError::DontFragment));
    assert!(Fragmenter::new(ip(&bytes), 128, 0).is_ok());
    let far = fragment(65_000, &[1; 600], true);
    assert_eq!(Fragmenter::new(ip(&far), 500, 0).err(), Some(FragmentError::TooLong));
    for v6 in [false, true] {
        let mut train = packet(v6, false, &[]);
        train.resize(70_000, 1);
        let train = Ip::parse_train(&train).expect("a train");
        assert_eq!(Fragmenter::new(train, 500, 0).err(), Some(FragmentError::TooLong));
    }
    let bytes = packet(true, false, &[5; 100]);
    assert_eq!(Fragmenter::new(ip(&bytes), 55, 0).err(), Some(FragmentError::MtuTooSmall(55)));
    let again = &cut(&bytes, 100)[0];
    assert_eq!(Fragmenter::new(ip(again), 80, 0).err(), Some(FragmentError::HasFragmentHeader));
}

#[test]
fn later_fragments_carry_the_options_that_are_copied() {
    let fragments = cut(&packet(false, true, &[5; 100]), 60);
    assert_eq!(fragments[0][20..28], [1, 7, 3, 4, 0x94, 4, 0, 0]);
    assert_eq!(fragments[1][0], 0x46);
    assert_eq!(fragments[1][20..24], [0x94, 4, 0, 0]);
}

#[test]
fn ecn_of_the_fragments_is_not_lost() {
    for (marks, expected) in [
        ([2_u8, 2, 3], Ok(3)),
        ([2, 3, 1], Ok(3)),
        ([2, 1, 2], Ok(2)),
        ([2, 0, 2], Ok(2)),
        ([0, 2, 3], Err(Rejected::Ecn)),
    ] {
        let mut fragments = cut(&packet(false, false, &[5; 100]), 64);
        assert_eq!(fragments.len(), 3);
        let mut reassembler = Reassembler::new(LIMITS);
        let mut last = Ok(None);
        for (bytes, mark) in fragments.iter_mut().zip(marks) {
            header::set_tos(bytes, 0xb8 | mark).expect("a header");
            last = reassembler.push(&ip(bytes), NOW);
        }
        let tos = last.map(|whole| ip(&whole.expect("the last one")).tos());
        assert_eq!(tos, expected.map(|ecn| 0xb8 | ecn), "{marks:?}");
    }
}

#[test]
fn an_overlap_drops_the_datagram_and_later_fragments() {
    for (second, more) in [((0, 24), true), ((8, 8), true), ((16, 8), true), ((8, 24), false)] {
        let mut reassembler = Reassembler::new(LIMITS);
        let mut push = |bytes: Vec<u8>| reassembler.push(&ip(&bytes), NOW);
        assert_eq!(push(fragment(0, &[1; 16], true)), Ok(None));
        assert_eq!(push(fragment(24, &[1; 16], true)), Ok(None));
        let (offset, len) = second;
        let overlap = push(fragment(offset, &vec![2; len], more));
        let expected = if second == (16, 8) { Ok(None) } else { Err(Rejected::Overlap) };
        assert_eq!(overlap, expected, "{second:?}");
        if expected.is_err() {
            assert_eq!(push(fragment(16, &[1; 8], true)), Err(Rejected::Overlap));
            assert_eq!(push(fragment(40, &[1; 8], false)), Err(Rejected::Overlap));
            // the same number is free again when its time is over
            let later = NOW + Duration::from_secs(30);
            assert_eq!(reassembler.push(&ip(&fragment(0, &[1; 8], true)), later), Ok(None));
        }
    }
}

#[test]
fn fragments_must_agree_where_the_datagram_ends() {
    for (first, second) in [
        (fragment(16, &[1; 8], false), fragment(32, &[1; 8], false)),
        (fragment(16, &[1; 8], false), fragment(24, &[1; 8], true)),
        (fragment(32, &[1; 8], true), fragment(16, &[1; 8], false)),
        (fragment(32, &[1; 8], false), fragment(16, &[1; 8], false)),
    ] {
        let mut reassembler = Reassembler::new(LIMITS);
        assert_eq!(reassembler.push(&ip(&first), NOW), Ok(None));
        assert_eq!(reassembler.push(&ip(&second), NOW), Err(Rejected::Overlap));
    }
}

#[test]
fn a_fragment_that_came_before_does_no_harm() {
    let mut reassembler = Reassembler::new(LIMITS);
    for (bytes, is_whole) in [
        (fragment(8, &[2; 4], false), false),
        (fragment(8, &[2; 4], false), false),
        (fragment(0, &[1; 8], true), true),
    ] {
        let whole = reassembler.push(&ip(&bytes), NOW).expect("it is taken");
        assert_eq!(whole.is_some(), is_whole);
    }
}

#[test]
fn rejects_malformed_fragments() {
    let tcp = |len: usize| {
        let mut bytes = fragment(0, &vec![1; len], true);
        bytes[9] = 6;
        bytes
    };
    for (bytes, expected) in [
        (fragment(0, &[1; 12], true), Err(Rejected::Unaligned)),
        (fragment(8, &[], false), Err(Rejected::Tiny)),
        (fragment(0, &[], true), Err(Rejected::Tiny)),
        (tcp(16), Err(Rejected::Tiny)),
        (tcp(24), Ok(None)),
        (fragment(65_512, &[1; 4], false), Err(Rejected::TooLong)),
        (fragment(65_512, &[1; 3], false), Ok(None)),
    ] {
        assert_eq!(Reassembler::new(LIMITS).push(&ip(&bytes), NOW), expected);
    }
    // options of the first fragment that make the whole too long
    let mut reassembler = Reassembler::new(Limits { datagrams: 1, bytes: 1_000_000 });
    let fragments = cut(&packet(false, false, &vec![1; 65_507]), 1500);
    let mut first = fragments[0].clone();
    first[0] = 0x46;
    first.splice(20..20, [1; 4]);
    let len = first.len();
    header::set_total_len(&mut first, len).expect("a header");
    for bytes in &fragments[1..] {
        assert_eq!(reassembler.push(&ip(bytes), NOW), Ok(None));
    }
    assert_eq!(reassembler.push(&ip(&first), NOW), Err(Rejected::TooLong));
    assert_eq!(reassembler.bytes(), 0);
}

#[test]
fn time_and_room_are_bounded() {
    let with_id = |id: u16, bytes: &mut Vec<u8>| put16(bytes, 4, id);
    // by time
    let mut reassembler = Reassembler::new(LIMITS);
    let first = fragment(0, &[1; 8], true);
    let last = fragment(8, &[1; 8], false);
    assert_eq!(reassembler.push(&ip(&first), NOW), Ok(None));
    assert_eq!(reassembler.push(&ip(&last), NOW + Duration::from_secs(30)), Ok(None));
    assert_eq!(reassembler.given_up(), 1);
    // by number: the oldest makes way
    let mut reassembler = Reassembler::new(LIMITS);
    for id in 0..5 {
        let mut bytes = first.clone();
        with_id(id, &mut bytes);
        assert_eq!(reassembler.push(&ip(&bytes), NOW), Ok(None));
    }
    assert_eq!((reassembler.given_up(), reassembler.datagrams()), (1, 4));
    let mut bytes = last;
    with_id(1, &mut bytes);
    assert!(reassembler.push(&ip(&bytes), NOW).is_ok_and(|whole| whole.is_some()));
    // by bytes
    let mut reassembler = Reassembler::new(Limits { datagrams: 100, bytes: 5000 });
    for id in 0..100 {
        for offset in (0..8).map(|index| index * 1000) {
            let mut bytes = fragment(offset, &[1; 1000], true);
            with_id(id, &mut bytes);
            let _ = reassembler.push(&ip(&bytes), NOW);
            reassembler.assert_counts();
        }
    }
    assert!(reassembler.given_up() >= 99);
    let huge = fragment(0, &[1; 6000], true);
    assert_eq!(reassembler.push(&ip(&huge), NOW), Err(Rejected::LimitExceeded));
}

#[test]
fn ipv6_waits_a_minute() {
    let fragments = cut(&packet(true, false, &[5; 100]), 100);
    for (seconds, is_whole) in [(59, true), (60, false)] {
        let mut reassembler = Reassembler::new(LIMITS);
        for bytes in &fragments[1..] {
            assert_eq!(reassembler.push(&ip(bytes), NOW), Ok(None));
        }
        let then = NOW + Duration::from_secs(seconds);
        let whole = reassembler.push(&ip(&fragments[0]), then).expect("it is taken");
        assert_eq!(whole.is_some(), is_whole);
    }
}

proptest! {
    #[test]
    fn cut_and_joined_in_any_order_it_is_the_same(v6: bool, options: bool, payload in proptest::collection::vec(any::<u8>(), 0..3000), mtu in 96usize..1600, order in any::<u64>()) {
        let bytes = packet(v6, options, &payload);
        let mut fragments = cut(&bytes, mtu);
        for fragment in &fragments {
            prop_assert!(fragment.len() <= mtu);
            prop_assert_eq!(ip(fragment).total_len(), fragment.len());
        }
        shuffle(&mut fragments, order);

        // etherparse 0.21 reads extension headers in later fragments, which have none
        if fragments.len() > 1 && !(v6 && options) {
            let at = ip(&bytes).security_offset();
            prop_assert_eq!(joined_by_etherparse(&fragments), Some(bytes[at..].to_vec()));
        }

        let mut reassembler = Reassembler::new(LIMITS);
        let last = fragments.pop().expect("at least one");
        for fragment in &fragments {
            prop_assert_eq!(reassembler.push(&ip(fragment), NOW), Ok(None));
        }
        prop_assert_eq!(reassembler.push(&ip(&last), NOW), Ok(Some(bytes)));
        prop_assert_eq!(reassembler.bytes(), 0);
        reassembler.assert_counts();
    }

    #[test]
    fn a_fragment_of_ipv4_can_be_cut_further(options: bool, payload in proptest::collection::vec(any::<u8>(), 0..1500), mtu in 200usize..600, smaller in 60usize..200, order in any::<u64>()) {
        let bytes = packet(false, options, &payload);
        let mut fragments: Vec<Vec<u8>> = cut(&bytes, mtu).iter().flat_map(|part| cut(part, smaller)).collect();
        for fragment in &fragments {
            let (header, _) = etherparse::Ipv4Header::from_slice(fragment).expect("a header");
            prop_assert_eq!(header.header_checksum, header.calc_header_checksum());
            prop_assert_eq!(be16(fragment, 2), fragment.len() as u16);
        }
        shuffle(&mut fragments, order);
        let mut reassembler = Reassembler::new(LIMITS);
        let last = fragments.pop().expect("at least one");
        for fragment in &fragments {
            prop_assert_eq!(reassembler.push(&ip(fragment), NOW), Ok(None));
        }
        prop_assert_eq!(reassembler.push(&ip(&last), NOW), Ok(Some(bytes)));
    }

    #[test]
    fn no_fragments_make_it_panic_or_grow(batch in proptest::collection::vec((0usize..12, 0usize..40, any::<bool>(), 0u16..3, 0u64..20, any::<bool>()), 0..60)) {
        let limits = Limits { datagrams: 3, bytes: 3200 };
        let mut reassembler = Reassembler::new(limits);
        let mut now = NOW;
        for (offset, len, more, id, seconds, v6) in batch {
            now += Duration::from_secs(seconds);
            let bytes = if v6 {
                let mut bytes = packet(true, true, &[])[..48].to_vec();
                bytes[40] = 44;
                bytes.extend([99, 0, 0, (offset * 8) as u8 | u8::from(more), 0, 0, 0, id as u8]);
                bytes.resize(bytes.len() + len, 3);
                let total = bytes.len();
                header::set_total_len(&mut bytes, total).expect("a header");
                bytes
            } else {
                let mut bytes = fragment(offset * 8, &vec![3; len], more);
                put16(&mut bytes, 4, id);
                bytes
            };
            if let Ok(Some(whole)) = reassembler.push(&ip(&bytes), now) {
                prop_assert!(Ip::parse(&whole).is_ok_and(|ip| ip.fragment().is_none()));
            }
            reassembler.assert_counts();
        }
    }
}

/// Some order of `items` for each number.
fn shuffle<T>(items: &mut [T], mut order: u64) {
    for last in (1..items.len()).rev() {
        order = order.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        items.swap(last, (order >> 33) as usize % (last + 1));
    }
}

fn joined_by_etherparse(fragments: &[Vec<u8>]) -> Option<Vec<u8>> {
    let mut pool = IpDefragPool::<(), ()>::new();
    let mut joined = fragments.iter().map(|fragment| {
        let sliced = SlicedPacket::from_ip(fragment).expect("a good packet");
        pool.process_sliced_packet(&sliced, (), ()).expect("a good fragment")
    });
    joined.find_map(|whole| whole.map(|whole| whole.payload))
}
