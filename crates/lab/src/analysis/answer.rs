//! The answer in sentences.

use super::predict;
use crate::results::{Crossover, Portable, Prediction, Summary};
use crate::service::FILM;
use crate::units;

/// One sentence for each stack that has a baseline on what it costs anywhere;
/// where that is not known, on what was measured on `link`.
pub fn sentences(portable: &[Portable], summary: &[Summary], link: &str) -> Vec<String> {
    let costs: Vec<String> = portable.iter().filter_map(|stack| cost(stack, portable)).collect();
    if !costs.is_empty() {
        return costs;
    }
    let of_link: Vec<&Summary> = summary.iter().filter(|row| row.link == link).collect();
    let compared = of_link.iter().any(|row| row.baseline.is_some());
    let is_largest = |row: &Summary| {
        let same =
            |other: &&&Summary| (&other.stack, &other.workload) == (&row.stack, &row.workload);
        of_link.iter().filter(same).all(|other| other.size_bytes <= row.size_bytes)
    };
    of_link
        .iter()
        .filter(|row| is_largest(row) && (row.baseline.is_some() || !compared))
        .filter_map(|row| measured(row))
        .collect()
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
        // a layer around it takes none away: that is a question counted more or less
        _ if stack.stack.starts_with(&format!("{}/", base.stack)) => {
            format!("{name} needs no more round trips than {plain}")
        }
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

/// One sentence for each size on the main link at which one stack overtakes
/// another beyond doubt, session for session.
pub fn crossings(crossovers: &[Crossover], link: &str) -> Vec<String> {
    crossovers
        .iter()
        .filter(|c| c.link == link && c.clock == "session" && c.significant)
        .filter_map(|crossing| {
            let [Some(lo), Some(hi)] = crossing.ci95_bytes else { return None };
            let (below, above) = (crossing.below.to_uppercase(), crossing.above.to_uppercase());
            let (unit, scale) = match crossing.size_bytes {
                size if size >= 1e9 => ("GB", 1e9),
                size if size >= 1e6 => ("MB", 1e6),
                size if size >= 1e3 => ("kB", 1e3),
                _ => ("B", 1.0),
            };
            let [size, lo, hi] = [crossing.size_bytes, lo, hi].map(|s| units::three(s / scale));
            Some(format!(
                "For {}s {below} is cheaper than {above} below {size} {unit} [{lo}, {hi}].",
                crossing.workload
            ))
        })
        .collect()
}

/// One sentence on how far predictions were off, if there were any.
pub fn prediction(predictions: &[Prediction]) -> Option<String> {
    let errors: Vec<String> = predict::errors(predictions)
        .iter()
        .map(|e| format!("{} % on {}", units::three(e.median_pct), e.link))
        .collect();
    (!errors.is_empty()).then(|| {
        format!("Predictions for other links were off by a median of {}.", errors.join(", "))
    })
}

fn measured(row: &Summary) -> Option<String> {
    let time = units::seconds(row.mean_s?);
    let kind = row.workload.split('(').next().unwrap_or_default();
    // where a rate is told, the percentage is still one of time
    let of_time = if matches!(kind, "stream" | "packets") { " in time" } else { "" };
    let against = match (row.overhead_pct, row.overhead_ci95_pct, &row.baseline) {
        (Some(pct), Some([lo, hi]), Some(base)) => {
            format!(", {pct:+.1} % [{lo:+.1}, {hi:+.1}]{of_time} against {}", base.to_uppercase())
        }
        _ => String::new(),
    };
    let (stack, size) = (row.stack.to_uppercase(), units::size(row.size_bytes));
    Some(match (kind, row.size_bytes) {
        ("stream", _) => {
            let rate = units::rate(row.goodput_bps?);
            format!("{stack} carries {rate} in one stream{against}.")
        }
        ("packets", _) => {
            let rate = units::three(1.0 / row.mean_s?);
            format!("{stack} carries {rate} datagrams of {size} a second{against}.")
        }
        ("echo", _) => {
            format!("{stack} takes {time} for a datagram of {size} there and back{against}.")
        }
        ("realtime", _) if is_film(&row.stack) => {
            // nobody knows when its packets were sent, so its time is no delay
            format!("A film through {stack} arrives at {}.", units::rate(row.goodput_bps?))
        }
        ("realtime", _) => {
            let rate = units::rate(row.goodput_bps?);
            format!(
                "A stream through {stack} arrives at {rate}, {time} late in the median{against}."
            )
        }
        (_, 0) => format!("{stack} takes {time} for `{}`{against}.", row.workload),
        (_, _) => format!("{stack} takes {time} for `{} {size}`{against}.", row.workload),
    })
}

fn is_film(stack: &str) -> bool {
    stack.split(['/', '#']).next() == Some(FILM)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_crossings_beyond_doubt_become_sentences() {
        let crossing = |clock: &str, hi: Option<f64>| Crossover {
            link: "unshaped".into(),
            workload: "download".into(),
            clock: clock.into(),
            below: "ftps".into(),
            above: "sftp".into(),
            n: 5,
            size_bytes: 3.1e6,
            ci95_bytes: [Some(2.2e6), hi],
            significant: hi.is_some(),
        };
        let all = [
            crossing("session", Some(4.0e6)),
            crossing("session", None),
            crossing("transfer", Some(4.0e6)),
        ];
        assert_eq!(
            crossings(&all, "unshaped"),
            ["For downloads FTPS is cheaper than SFTP below 3.1 MB [2.2, 4]."]
        );
        assert!(crossings(&all, "100mbit").is_empty());
    }

    #[test]
    fn a_layer_is_not_said_to_take_round_trips_away() {
        let row = |stack: &str, baseline: Option<&str>, round_trips: u32| -> Portable {
            serde_json::from_value(serde_json::json!({
                "stack": stack, "baseline": baseline, "round_trips": round_trips,
                "extra_bytes_per_mb": null, "cpu_seconds_per_gb": null, "fixed_s": null,
                "seconds_per_gb": null, "fill_bps": null
            }))
            .expect("a row")
        };
        let all = [row("sftp", None, 17), row("ftp", None, 20)];
        let told = |stack, baseline, trips| {
            cost(&row(stack, Some(baseline), trips), &all).expect("a sentence")
        };
        let layered = told("sftp/strongswan", "sftp", 16);
        assert!(
            layered.starts_with("SFTP/STRONGSWAN needs no more round trips than SFTP;"),
            "{layered}"
        );
        let another = told("sftp", "ftp", 17);
        assert!(another.starts_with("SFTP needs 3 fewer round trips than FTP;"), "{another}");
    }

    #[test]
    fn a_film_is_not_said_to_be_late() {
        let told = |stack: &str| {
            let row = serde_json::json!({
                "link": "unshaped", "stack": stack, "workload": "realtime", "size_bytes": 1000, "n": 5,
                "failed": 0, "mean_s": 0.002, "stddev_s": null, "ci95_s": null, "baseline": null,
                "overhead_pct": null, "overhead_ci95_pct": null, "session_mean_s": null,
                "session_overhead_pct": null, "session_overhead_ci95_pct": null, "goodput_bps": 2.2e5,
                "cpu_seconds": null, "limited_by": null, "not_shaped": false
            });
            measured(&serde_json::from_value(row).expect("a row")).expect("a sentence")
        };
        assert_eq!(told("film/esp"), "A film through FILM/ESP arrives at 220 kbit/s.");
        assert!(told("rtp").ends_with("2 ms late in the median."), "{}", told("rtp"));
    }

    #[test]
    fn without_portable_costs_the_largest_file_on_the_main_link_is_told() {
        let row = |link: &str, stack: &str, size_bytes: u64, baseline: Option<&str>| -> Summary {
            let overhead = baseline.map(|_| 76.04);
            serde_json::from_value(serde_json::json!({
                "link": link, "stack": stack, "workload": "download", "size_bytes": size_bytes, "n": 5,
                "failed": 0, "mean_s": 0.085, "stddev_s": 0.001, "ci95_s": null, "baseline": baseline,
                "overhead_pct": overhead, "overhead_ci95_pct": overhead.map(|_| [47.0, 110.8]),
                "session_mean_s": null, "session_overhead_pct": null, "session_overhead_ci95_pct": null,
                "goodput_bps": null, "cpu_seconds": null, "limited_by": null, "not_shaped": false
            }))
            .expect("a row")
        };
        let of_links = |stack: &str, baseline: Option<&str>| {
            let sizes = [("unshaped", 1 << 10), ("unshaped", 1 << 20), ("far", 1 << 20)];
            sizes.map(|(link, size)| row(link, stack, size, baseline)).to_vec()
        };
        let (http, https) = (of_links("http", None), of_links("https", Some("http")));
        assert_eq!(
            sentences(&[], &[http.clone(), https].concat(), "unshaped"),
            ["HTTPS takes 85 ms for `download 1 MiB`, +76.0 % [+47.0, +110.8] against HTTP."]
        );
        assert_eq!(sentences(&[], &http, "unshaped"), ["HTTP takes 85 ms for `download 1 MiB`."]);
    }

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
            sentences(&all, &[], "unshaped"),
            ["FTPS adds 5 round trips to every file and 0.283 % more octets; \
              below 4.1 Gbit/s you will not notice the rest."]
        );
    }
}
