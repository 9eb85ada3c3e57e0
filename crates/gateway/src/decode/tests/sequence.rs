//! Sequence numbers: replays, gaps and high halves.

use super::{CBC, GCM, decode, decode_with, packet, sa, seal, sender};
use crate::decode::Search;

#[test]
fn counts_replays_reordering_and_gaps() {
    let sas = sa("a", "esp", "tunnel", GCM, "window = 64\n");
    let engine = sender(&sas);
    let sealed: Vec<_> = (0..200).map(|_| seal(&engine, &packet(false, 10))).collect();
    let order = [0, 1, 3, 2, 2, 10, 199, 50];
    let packets: Vec<_> = order.map(|at| sealed[at].clone()).into();
    let (report, _, summary) = decode(&sas, &packets);
    let tally = &summary.associations[0];
    assert_eq!((tally.opened, tally.reordered, tally.replayed, tally.stale), (8, 1, 1, 1));
    assert_eq!((tally.first, tally.last), (Some(1), Some(200)));
    assert_eq!((tally.missing, tally.furthest_behind), (200 - 6, 1));
    assert!(report[3].notes[0].starts_with("reordered: 1 behind"));
    assert!(report[4].notes[0].starts_with("replayed"));
    assert!(report[7].notes[0].starts_with("stale: 149 behind"), "{:?}", report[7].notes);
    assert!(summary.all_opened());
}

#[test]
fn a_sequence_number_before_the_first_is_stale() {
    let sas = sa("a", "esp", "tunnel", GCM, "");
    let engine = sender(&sas);
    let sequence = engine.associations().next().expect("one").sequence();
    let [first, second] = [0; 2].map(|_| seal(&engine, &packet(false, 10)));
    sequence.skip_to(0xffff_fff0);
    let high = seal(&engine, &packet(false, 10));
    let (report, _, summary) = decode(&sas, &[first, high.clone(), second]);
    assert!(report[1].notes[0].contains("before the first number"), "{:?}", report[1].notes);
    assert!(report[2].notes.is_empty(), "{:?}", report[2].notes);
    let tally = &summary.associations[0];
    assert_eq!((tally.stale, tally.last, tally.missing), (1, Some(2), 0));
    // where nothing came before, the capture begins there
    let (report, _, _) = decode(&sas, &[high]);
    assert!(report[0].notes.is_empty(), "{:?}", report[0].notes);
}

#[test]
fn follows_extended_sequence_numbers() {
    let sas = sa("a", "esp", "tunnel", GCM, "");
    let engine = sender(&sas);
    let sequence = engine.associations().next().expect("one").sequence();
    sequence.skip_to((5 << 32) - 3);
    let sealed: Vec<_> = (0..6).map(|_| seal(&engine, &packet(false, 10))).collect();
    let (report, _, summary) = decode(&sas, &sealed);
    let numbers: Vec<_> = report.iter().map(|packet| packet.layers[0].sequence).collect();
    assert_eq!(numbers, ((5 << 32) - 3..(5 << 32) + 3).collect::<Vec<_>>());
    assert!(
        report[0].notes[0].contains("the high half of the sequence number is 4"),
        "{:?}",
        report[0].notes
    );
    assert!(report[1..].iter().all(|packet| packet.notes.is_empty()));
    assert_eq!(summary.associations[0].missing, 0);
}

#[test]
fn finds_a_large_high_half_or_takes_it_as_an_argument() {
    for suite in [GCM, CBC] {
        let sas = sa("a", "esp", "tunnel", suite, "");
        let at = |high: u64| {
            let engine = sender(&sas);
            engine.associations().next().expect("one").sequence().skip_to(high << 32 | 9);
            [seal(&engine, &packet(false, 10)), seal(&engine, &packet(false, 10))]
        };
        for high in if suite == GCM { &[63, 64, 1000, 65_535][..] } else { &[63, 64] } {
            let high = *high;
            let (report, _, summary) = decode(&sas, &at(high));
            assert!(summary.all_opened(), "{high}: {}", report[0]);
            assert_eq!(report[1].layers[0].sequence, high << 32 | 10);
        }
        // packets that anybody can send ahead of the others
        let [mut forged, _] = at(900);
        *forged.last_mut().expect("an ICV") ^= 1;
        let [sound, next] = at(900);
        let sent = [&forged, &forged, &forged, &sound, &next, &sound, &sound].map(Clone::clone);
        let (_, _, summary) = decode(&sas, &sent);
        assert_eq!(summary.opened, 3, "all behind the first that is searched for again");
        let far = at(0x1010_1010);
        let (report, _, summary) = decode(&sas, &far);
        assert_eq!(summary.opened, 0);
        assert!(report[0].to_string().contains("is 65536 or more"), "{}", report[0]);
        for given in [0x1010_1010, 0x1010_100f, 0x1010_1011] {
            let search = Search { likely: vec![5, given], thorough: 0 };
            assert!(decode_with(&sas, &far, search).2.all_opened(), "{given:#x}");
        }
    }
}
