//! The answer in sentences.

use crate::results::{Portable, Summary};
use crate::units;

/// One sentence for each stack that has a baseline, then one on what was moved.
pub fn sentences(portable: &[Portable], summary: &[Summary]) -> Vec<String> {
    let costs: Vec<String> = portable.iter().filter_map(|stack| cost(stack, portable)).collect();
    if !costs.is_empty() {
        return costs;
    }
    // no downloads to carry anywhere: say what was measured
    summary.iter().filter_map(measured).collect()
}

fn cost(stack: &Portable, all: &[Portable]) -> Option<String> {
    let base = all.iter().find(|other| Some(&other.stack) == stack.baseline.as_ref())?;
    let (name, plain) = (stack.stack.to_uppercase(), base.stack.to_uppercase());
    let trips = i64::from(stack.round_trips?) - i64::from(base.round_trips?);
    let trips = match trips {
        0 => format!("{name} needs as many round trips as {plain}"),
        1.. => format!(
            "{name} adds {trips} round {} to every file",
            if trips == 1 { "trip" } else { "trips" }
        ),
        _ => format!("{name} needs {} fewer round trips than {plain}", -trips),
    };
    let bytes = stack
        .extra_bytes_per_mb
        .zip(base.extra_bytes_per_mb)
        .map(|(s, b)| (1.0 + s / 1e6) / (1.0 + b / 1e6) - 1.0);
    let bytes = match bytes {
        Some(share) if share.abs() >= 0.0005 => {
            format!(
                " and {} % {} octets",
                units::three(share.abs() * 100.0),
                if share > 0.0 { "more" } else { "fewer" }
            )
        }
        _ => String::new(),
    };
    let rest = match stack.fill_bps {
        Some(fill) => format!("below {} you will not notice the rest", units::rate(fill)),
        None => "the rest takes large files on an unshaped link to tell".to_owned(),
    };
    Some(format!("{trips}{bytes}; {rest}."))
}

fn measured(row: &Summary) -> Option<String> {
    let time = units::seconds(row.mean_s?);
    let against = match (row.overhead_pct, row.overhead_ci95_pct, &row.baseline) {
        (Some(pct), Some([lo, hi]), Some(base)) => {
            format!(", {pct:+.1} % [{lo:+.1}, {hi:+.1}] against {base}")
        }
        _ => String::new(),
    };
    Some(format!("{} takes {time} for `{}`{against}.", row.stack, row.workload))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sentence_names_round_trips_and_the_knee() {
        let stack = |name: &str, baseline: Option<&str>, trips, extra, fill| Portable {
            stack: name.into(),
            baseline: baseline.map(str::to_owned),
            round_trips: Some(trips),
            extra_bytes_per_mb: Some(extra),
            cpu_seconds_per_gb: None,
            fixed_s: None,
            seconds_per_gb: None,
            fill_bps: Some(fill),
            line_bytes_per_byte: None,
            work_s: None,
            window_bytes: None,
        };
        let all =
            [stack("ftp", None, 9, 60_000.0, 9e9), stack("ftps", Some("ftp"), 14, 63_000.0, 4.1e9)];
        assert_eq!(
            sentences(&all, &[]),
            ["FTPS adds 5 round trips to every file and 0.283 % more octets; \
              below 4.1 Gbit/s you will not notice the rest."]
        );
    }
}
