//! What a stack adds to another one, as sections of studies show it (`form = "added"`), of the
//! runs in `data/round-trips.json`.

use std::path::Path;

use headroom_lab::study::measure::{Cell, Form, find};
use headroom_lab_results::analysis::measured::Estimate;
use headroom_lab_results::report;

fn added(measure: &str, stack: &str, against: Option<&str>) -> Option<Estimate> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/round-trips.json");
    let results = report::read_file(&path).expect("the kept results");
    let cell = Cell {
        stack: stack.to_owned(),
        workload: "download".to_owned(),
        size_bytes: Some(1024),
        at_s: None,
    };
    find(measure).expect("a measure").of(&results, &cell, Form::Added, against)
}

#[test]
fn time_is_added_in_milliseconds_block_by_block() {
    let more = added("session", "sftp(sntrup761)", None).expect("it was measured");
    // the mean of the ten blocks without background load
    assert!((more.value - 8.258_030_7).abs() < 1e-6, "{more:?}");
    let [lo, hi] = more.ci95.expect("an interval");
    assert!(lo > 0.0 && lo < more.value && more.value < hi, "{more:?}");
    assert_eq!(more.n, Some(10));
    assert_eq!(find("session").expect("a measure").unit_as(Form::Added), "ms");
}

#[test]
fn what_is_counted_is_added_in_its_own_unit() {
    for (measure, unit, expected) in [("bytes", "B", 2608.0), ("packets", "", 4.0)] {
        let more = added(measure, "sftp(sntrup761)", None);
        let same_in_every_block = Estimate { value: expected, ci95: None, n: Some(10) };
        assert_eq!(more, Some(same_in_every_block), "{measure}");
        assert_eq!(find(measure).expect("a measure").unit_as(Form::Added), unit);
    }
}

#[test]
fn the_difference_has_a_sign_and_needs_another_stack() {
    let fewer = added("bytes", "sftp", Some("sftp(sntrup761)")).expect("it was measured");
    assert!((fewer.value + 2608.0).abs() < 1e-9, "{fewer:?}");
    assert_eq!(added("bytes", "sftp", None), None, "it has no baseline");
    assert_eq!(added("cpu-ms", "sftp(sntrup761)", None), None, "these runs kept no CPU time");
}
