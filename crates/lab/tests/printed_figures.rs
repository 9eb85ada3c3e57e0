//! What the figures say, when checked, that Shaikh and Al-Khayatt (*A Performance Study
//! of IPSec Protocol*) and Tornai, Kiss-Imre and Gál (*Encryption in a High-Speed
//! Connectionless File Transfer System*) printed: the notes of their studies here.

use std::collections::BTreeMap;

const THROUGHPUT: &str =
    include_str!("../../../plans/studies/published/ipsec-study-throughput.csv");
const OFFLOAD: &str = include_str!("../../../plans/studies/published/ipsec-study-offload.csv");
const UTILISATION: &str =
    include_str!("../../../plans/studies/published/ipsec-study-utilisation.csv");
const REKEY: &str = include_str!("../../../plans/studies/published/ipsec-study-rekey.csv");
const FIGURE_2: &str = include_str!("../../../plans/studies/published/fmft-figure2-points.csv");

type Row = BTreeMap<String, String>;

fn rows(text: &str) -> Vec<Row> {
    let mut lines = text.lines();
    let names: Vec<&str> = lines.next().expect("a header").split(',').collect();
    let row = |line: &str| {
        let fields = line.splitn(names.len(), ',').map(str::to_owned);
        names.iter().map(|name| (*name).to_owned()).zip(fields).collect()
    };
    lines.map(row).collect()
}

fn number(row: &Row, name: &str) -> f64 {
    row[name].parse().unwrap_or_else(|_| panic!("{name} of {row:?} is a number"))
}

/// The rate without a tunnel, as in Tables 1 and 2.
const CLEAR_KBYTES: f64 = 3317.16;

#[test]
fn the_losses_of_tables_1_and_3_follow_from_their_throughput() {
    let mut lost = Vec::new();
    for row in rows(THROUGHPUT).iter().filter(|row| row["offload"] == "cpu") {
        let computed = 100.0 * (1.0 - number(row, "throughput_kbytes_per_s") / CLEAR_KBYTES);
        assert!((computed - number(row, "loss_pct")).abs() < 0.005, "{row:?}: {computed}");
        lost.push(computed);
    }
    let [none, des_sha1, des_md5, triple_sha1, triple_md5] = lost[..] else { panic!("{lost:?}") };
    assert_eq!(none, 0.0);
    // MD5 takes more than SHA-1 with one cipher and less with the other
    assert!(des_md5 > 4.0 * des_sha1 && triple_md5 < triple_sha1);
}

#[test]
fn the_improvements_of_table_5_follow_and_one_gain_was_cut_not_rounded() {
    let rows = rows(OFFLOAD);
    let (average, pairs) = rows.split_last().expect("five rows");
    let improvement = |row: &Row| {
        100.0 * (number(row, "offload_kbytes_per_s") / number(row, "cpu_kbytes_per_s") - 1.0)
    };
    for row in pairs {
        let error = improvement(row) - number(row, "improvement_pct");
        assert!(error.abs() < 0.006, "{row:?}: {error}");
    }
    let mean = pairs.iter().map(improvement).sum::<f64>() / pairs.len() as f64;
    assert!((mean - number(average, "improvement_pct")).abs() < 0.005, "{mean}");
    let gain = 100.0 * (number(&pairs[0], "offload_kbytes_per_s") / CLEAR_KBYTES - 1.0);
    assert!((gain - 7.587).abs() < 0.0005, "printed 7.58: {gain}");
}

#[test]
fn no_usual_link_has_the_printed_utilisation_at_the_printed_rate() {
    let mean_mbit = CLEAR_KBYTES * 8.0 / 1e3;
    assert!((mean_mbit - 26.5).abs() < 0.05);
    let rows = rows(UTILISATION);
    // the mean lies within the range, whatever the link
    let highest = rows.iter().map(|row| number(row, "channel_pct_high")).fold(0.0, f64::max);
    let lowest = rows.iter().map(|row| number(row, "channel_pct_low")).fold(100.0, f64::min);
    let of_link = |mbit: f64| 100.0 * mean_mbit / mbit;
    assert!(of_link(100.0) > highest && of_link(1000.0) < lowest);
    assert!((mean_mbit / highest * 100.0 - 178.0).abs() < 1.0, "{}", mean_mbit / highest);
}

#[test]
fn fewer_key_updates_gain_a_hundredth_and_a_half() {
    let rates: Vec<f64> =
        rows(REKEY).iter().map(|row| number(row, "throughput_kbytes_per_s")).collect();
    assert!(rates.is_sorted());
    let gain = 100.0 * (rates[2] / rates[0] - 1.0);
    assert!((gain - 1.53).abs() < 0.005, "{gain}");
}

#[test]
fn of_figure_2_the_curve_below_is_once_above_by_an_eighth_of_a_hundredth() {
    let rows = rows(FIGURE_2);
    let at = |chunk: f64, mode: &str| {
        let row =
            rows.iter().find(|row| number(row, "chunk_bytes") == chunk && row["mode"] == mode);
        number(row.expect("a point"), "mbit_per_s")
    };
    let over = 100.0 * (at(2200.0, "encrypted") / at(2200.0, "raw") - 1.0);
    assert!((over - 0.12).abs() < 0.005, "{over}");
}
