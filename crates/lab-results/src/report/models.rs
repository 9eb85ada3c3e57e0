//! Tables of models, bytes on the wire, layer set-up and prediction errors.

use headroom_units as units;

use super::table::Table;
use crate::analysis::cost::Possible;
use crate::analysis::{predict, stats};
use crate::schema::{Model, Portable, Results, Summary};

/// Returns the tables that have rows.
pub(super) fn tables(results: &Results) -> Vec<Table> {
    [costs(results), wire(results), set_ups(results), predictions(results)]
        .into_iter()
        .filter(|table| !table.rows.is_empty())
        .collect()
}

fn costs(results: &Results) -> Table {
    let rows = results
        .models
        .iter()
        .filter(|model| model.link == results.link.name && model.clock == "session")
        .map(|model| {
            vec![
                model.stack.clone(),
                model.workload.clone(),
                model.n.to_string(),
                cost(
                    model.fixed_s * 1e3,
                    model.fixed_ci95_s.map(|ci| ci.map(|s| s * 1e3)),
                    shortest_s(model) * 1e3,
                ),
                cost(model.seconds_per_gb, model.seconds_per_gb_ci95, f64::INFINITY),
                worst_point_pct(model).map_or_else(dash, fit),
                model.preferred.clone().unwrap_or_else(dash),
            ]
        });
    Table {
        header: words(&[
            "fixed + size × cost/GB",
            "",
            "n",
            "fixed cost, ms",
            "cost/GB, s",
            "largest error, %",
            "AICc prefers",
        ]),
        rows: rows.collect(),
    }
}

/// Returns the shortest time that a model's files took, without what slow start is known to
/// take: what each of them takes, whatever its size, is no longer than all of it.
fn shortest_s(model: &Model) -> f64 {
    let times = model.points.iter().map(|point| point.measured_s - point.slow_start_s);
    times.fold(f64::INFINITY, f64::min)
}

/// Formats what a session takes beyond its round trips and bytes, in milliseconds; none: nobody
/// knows.
pub(super) fn work_ms(results: &Results, stack: &Portable) -> Option<String> {
    let work_s = stack.work_s?;
    let is_of_stack = |model: &&Model| {
        model.link == results.link.name
            && model.stack == stack.stack
            && (model.workload.as_str(), model.clock.as_str()) == ("download", "session")
    };
    let shown = || units::three(work_s * 1e3);
    let Some(model) = results.models.iter().find(is_of_stack) else { return Some(shown()) };
    let trips = stack.round_trips.unwrap_or(0) + stack.round_trips_after.unwrap_or(0);
    let waits_s = f64::from(trips) * results.link.rtt_us.unwrap_or(0.0) / 1e6;
    let ci95_s = model.fixed_ci95_s.map(|ci| ci.map(|end| end - waits_s));
    match Possible::of(model.fixed_s - waits_s, ci95_s, shortest_s(model) - waits_s) {
        Possible::All => Some(shown()),
        Possible::Between(ends) => Some(range(ends.map(|end| end * 1e3))),
        Possible::Nothing => None,
    }
}

/// Formats a cost that is not below 0 and not above `most`: with half of its interval, or only
/// the part of that which is possible.
fn cost(value: f64, interval: Option<[f64; 2]>, most: f64) -> String {
    match (Possible::of(value, interval, most), interval) {
        (Possible::All, Some(ends)) => with_half(value, ends),
        (Possible::All, None) => units::three(value),
        (Possible::Between(ends), _) => range(ends),
        (Possible::Nothing, _) => dash(),
    }
}

/// Formats a value ± half of its interval, both rounded to the half's second digit.
fn with_half(value: f64, interval: [f64; 2]) -> String {
    let (half, decimals) = half_and_decimals(interval);
    format!("{} ± {}", units::rounded(value, decimals), units::rounded(half, decimals))
}

/// Formats the ends of an interval, `0 to 32`, rounded to the second digit of its half.
fn range([lo, hi]: [f64; 2]) -> String {
    let (_, decimals) = half_and_decimals([lo, hi]);
    let end = |value: f64| {
        if value == 0.0 { "0".to_owned() } else { units::rounded(value, decimals) }
    };
    format!("{} to {}", end(lo), end(hi))
}

fn half_and_decimals([lo, hi]: [f64; 2]) -> (f64, usize) {
    let half = (hi - lo) / 2.0;
    let decimals = if half > 0.0 { (1 - half.log10().floor() as i32).clamp(0, 6) } else { 3 };
    (half, decimals as usize)
}

/// A model with a larger error at a size does not describe it, however narrow the intervals
/// of its coefficients.
const UNUSABLE_PCT: f64 = 33.0;

fn fit(worst_pct: f64) -> String {
    let verdict = if worst_pct > UNUSABLE_PCT { ": unusable" } else { "" };
    format!("{}{verdict}", units::three(worst_pct))
}

/// Returns the largest distance of a size's mean from the model, per cent; `None` for two
/// sizes, which a line always fits.
fn worst_point_pct(model: &Model) -> Option<f64> {
    if model.points.len() < 3 {
        return None;
    }
    let off = |point: &crate::schema::ModelPoint| {
        100.0 * (point.measured_s / point.modelled_s - 1.0).abs()
    };
    model.points.iter().map(off).reduce(f64::max)
}

/// The packets of one transfer of the largest size of each stack and direction.
fn wire(results: &Results) -> Table {
    let of_link = |row: &&Summary| row.link == results.link.name && row.size_bytes > 0;
    let largest = |row: &&Summary| {
        let same =
            |other: &&Summary| (&other.stack, &other.workload) == (&row.stack, &row.workload);
        let sizes = results.summary.iter().filter(of_link).filter(same).map(|r| r.size_bytes);
        sizes.max() == Some(row.size_bytes)
    };
    let rows = results.summary.iter().filter(of_link).filter(largest).filter_map(|row| {
        let sample = results.samples.iter().find(|s| {
            s.link == row.link
                && (&s.stack, &s.workload, s.size_bytes)
                    == (&row.stack, &row.workload, row.size_bytes)
                && s.wire.is_some()
        })?;
        let wire = sample.wire?;
        Some(vec![
            row.stack.clone(),
            format!("{} {}", row.workload, units::chosen_size(row.size_bytes)),
            wire.packets.to_string(),
            wire.bytes.to_string(),
            wire.payload_efficiency_pct.map_or_else(dash, |pct| format!("{pct:.2}")),
            wire.header_bytes_per_packet.map_or_else(dash, |bytes| format!("{bytes:.1}")),
            content(results, &row.stack),
        ])
    });
    Table {
        header: words(&[
            "on the wire",
            "",
            "packets",
            "bytes",
            "payload efficiency, %",
            "headers/packet",
            "content",
        ]),
        rows: rows.collect(),
    }
}

fn set_ups(results: &Results) -> Table {
    let rows = results.layer_setups.iter().map(|row| {
        let median = stats::median(&row.seconds);
        vec![
            row.stack.clone(),
            row.layer.clone(),
            row.round_trips.to_string(),
            row.packets.to_string(),
            row.bytes.to_string(),
            median.map_or_else(dash, |seconds| units::three(seconds * 1e3)),
        ]
    });
    Table {
        header: words(&[
            "set-up of a layer",
            "layer",
            "round trips",
            "packets",
            "bytes",
            "time, ms",
        ]),
        rows: rows.collect(),
    }
}

/// Returns whether files of a stack could be read on the wire.
fn content(results: &Results, stack: &str) -> String {
    let found = results.clear_text.iter().find(|row| row.stack == stack);
    found.map_or_else(dash, |row| {
        match (row.marker_seen, row.secured) {
            (true, _) => "readable",
            (false, true) => "nothing in clear",
            (false, false) => "obfuscated",
        }
        .to_owned()
    })
}

fn predictions(results: &Results) -> Table {
    let rows = predict::errors(&results.predictions).into_iter().map(|error| {
        vec![
            error.link,
            error.cells.to_string(),
            units::three(error.median_pct),
            units::three(error.largest_pct),
        ]
    });
    Table {
        header: words(&["predicted for", "cells", "median error, %", "largest error, %"]),
        rows: rows.collect(),
    }
}

fn words(header: &[&str]) -> Vec<String> {
    header.iter().map(|&word| word.to_owned()).collect()
}

fn dash() -> String {
    "–".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::ModelPoint;

    #[test]
    fn marks_a_model_as_unusable_when_a_size_is_more_than_a_third_off() {
        assert_eq!((fit(54.8).as_str(), fit(4.2).as_str()), ("54.8: unusable", "4.2"));
    }

    #[test]
    fn digits_follow_the_interval() {
        let of = |value, interval| cost(value, interval, f64::INFINITY);
        assert_eq!(of(12.3456, Some([12.1, 12.6])), "12.35 ± 0.25");
        assert_eq!(of(1234.5, Some([1200.0, 1269.0])), "1234 ± 34");
        assert_eq!(of(5.0, None), "5");
        assert_eq!(of(5.0, Some([5.0, 5.0])), "5.000 ± 0.000");
    }

    #[test]
    fn a_cost_that_cannot_be_is_not_printed() {
        assert_eq!(cost(14.0, Some([0.0, 31.6]), 40.0), "0 to 32");
        assert_eq!(cost(-0.004, Some([0.0, 0.013]), 40.0), "0 to 0.0130");
        assert_eq!(cost(41.2, Some([10.8, 71.6]), 40.6), "11 to 41");
        assert_eq!(cost(-9.0, Some([0.0, 0.0]), 40.0), "–");
        assert_eq!(cost(-9.0, None, 40.0), "–");
    }

    #[test]
    fn what_a_session_takes_beyond_round_trips_is_held_against_its_model() {
        let kept = concat!(env!("CARGO_MANIFEST_DIR"), "/../lab/tests/data/round-trips.json");
        let mut results = super::super::read_file(kept.as_ref()).expect("the kept results");
        results.link.rtt_us = Some(10_000.0);
        let mut model = model();
        model.link = results.link.name.clone();
        let mut stack = Portable {
            stack: "ftp".into(),
            baseline: None,
            round_trips: Some(3),
            round_trips_after: Some(1),
            extra_bytes_per_mb: None,
            line_bytes_per_byte: None,
            cpu_seconds_per_gb: None,
            fixed_s: Some(1.0),
            seconds_per_gb: None,
            fill_bps: None,
            work_s: Some(0.96),
            window_bytes: None,
        };
        let mut told = |fixed_ci95_s| {
            model.fixed_ci95_s = fixed_ci95_s;
            results.models = vec![model.clone()];
            work_ms(&results, &stack)
        };
        assert_eq!(told(Some([0.9, 1.1])).as_deref(), Some("960"));
        // of a second, of which 40 ms are round trips, nobody knows that it is more than those
        assert_eq!(told(Some([0.03, 1.97])).as_deref(), Some("0 to 960"));
        stack.work_s = None;
        assert_eq!(work_ms(&results, &stack), None);
    }

    fn point(size_bytes: u64, measured_s: f64) -> ModelPoint {
        ModelPoint { size_bytes, measured_s, modelled_s: 1.0, slow_start_s: 0.0 }
    }

    fn model() -> Model {
        Model {
            link: "unshaped".into(),
            stack: "ftp".into(),
            workload: "download".into(),
            clock: "session".into(),
            n: 5,
            fixed_s: 1.0,
            fixed_ci95_s: None,
            seconds_per_gb: 0.0,
            seconds_per_gb_ci95: None,
            points: vec![point(1, 1.0), point(2, 1.1)],
            residuals: Vec::new(),
            aic_cost: None,
            aic_log_line: None,
            log_line: None,
            preferred: None,
        }
    }

    #[test]
    fn two_sizes_do_not_test_the_fit() {
        let mut model = model();
        assert_eq!(worst_point_pct(&model), None);
        model.points.push(point(3, 0.8));
        assert!(worst_point_pct(&model).is_some_and(|pct| (pct - 20.0).abs() < 1e-9));
    }
}
