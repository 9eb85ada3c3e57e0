//! What was measured on the main link, a sentence a row: said where no stack's costs are
//! known.

use headroom_units as units;

use crate::analysis::stats::MIN_RUNS;
use crate::schema::{Results, Summary, VIDEO};

/// A sentence for each largest size of the main link.
pub(in crate::analysis) fn sentences(results: &Results) -> Vec<String> {
    let of_link: Vec<&Summary> =
        results.summary.iter().filter(|row| row.link == results.link.name).collect();
    let compared = of_link.iter().any(|row| row.baseline.is_some());
    let is_largest = |row: &Summary| {
        let same =
            |other: &&&Summary| (&other.stack, &other.workload) == (&row.stack, &row.workload);
        of_link.iter().filter(same).all(|other| other.size_bytes <= row.size_bytes)
    };
    // of closed loops, that with the most clients
    let clients = |row: &Summary| row.sessions.map(|sessions| sessions.clients);
    let is_busiest = |row: &Summary| {
        let of_stack = of_link.iter().filter(|other| other.stack == row.stack);
        row.sessions.is_none() || of_stack.map(|other| clients(other)).max() == Some(clients(row))
    };
    of_link
        .iter()
        .filter(|row| is_largest(row) && is_busiest(row) && (row.baseline.is_some() || !compared))
        .filter_map(|row| measured(row))
        .collect()
}

/// Holds a printed sentence against the rows: one of them must say just that.
pub(super) fn contradictions(sentence: &str, results: &Results) -> Vec<String> {
    let said = sentences(results);
    if said.iter().any(|of_row| of_row == sentence) {
        return Vec::new();
    }
    let start = |sentence: &str| sentence.split(' ').take(2).collect::<Vec<_>>().join(" ");
    let alike: Vec<String> =
        said.into_iter().filter(|of_row| start(of_row) == start(sentence)).collect();
    vec![match alike.is_empty() {
        true => "no row of the main link says so".to_owned(),
        false => format!("rows of the main link say \"{}\"", alike.join(" ")),
    }]
}

fn measured(row: &Summary) -> Option<String> {
    // of sessions, as the tables have it, where there are any
    let session = row
        .session_mean_s
        .map(|mean| (mean, row.session_overhead_pct, row.session_overhead_ci95_pct));
    let transfer = || Some((row.mean_s?, row.overhead_pct, row.overhead_ci95_pct));
    let (mean_s, overhead_pct, overhead_ci95_pct) = session.or_else(transfer)?;
    let time = units::seconds(mean_s);
    let kind = row.workload.split('(').next().unwrap_or_default();
    // where a rate is told, the percentage is still one of time
    let of_time = if matches!(kind, "stream" | "packets" | "sessions") { " in time" } else { "" };
    // a comparison has the blocks of both; rows of an earlier version do not say how many
    let n = match (overhead_pct, row.overhead_n) {
        (Some(_), pairs @ 1..) => pairs,
        _ => row.n,
    };
    let shaped = if row.not_shaped { ", not shaped" } else { "" };
    let against = match (overhead_pct, overhead_ci95_pct, &row.baseline) {
        (Some(_), _, Some(base)) if n < MIN_RUNS => {
            let base = base.to_uppercase();
            format!("; {n} runs support no comparison with {base}, {MIN_RUNS} are needed{shaped}")
        }
        (Some(pct), Some([lo, hi]), Some(base)) => {
            let base = base.to_uppercase();
            let [pct, lo, hi] = [pct, lo, hi].map(|pct| units::signed(pct, 1));
            format!(", {pct} % [{lo}, {hi}]{of_time} against {base} (n = {n}{shaped})")
        }
        _ => format!(" (n = {n}{shaped})"),
    };
    let (stack, size) = (row.stack.to_uppercase(), units::chosen_size(row.size_bytes));
    Some(match (kind, row.size_bytes) {
        ("stream", _) => {
            let rate = units::rate(row.goodput_bps?);
            format!("{stack} carries {rate} in one stream{against}.")
        }
        ("packets", _) => {
            let rate = units::three(1.0 / row.mean_s?);
            format!("{stack} carries {rate} datagrams of {size} a second{against}.")
        }
        ("sessions", _) => {
            let sessions = row.sessions?;
            let rate = units::three(sessions.per_s_mean);
            let get = match sessions.clients {
                1 => "1 client gets".to_owned(),
                clients => format!("{clients} clients at once get"),
            };
            format!(
                "{stack} takes {time} in the median for a session of {size}, and {get} {rate} a second{against}."
            )
        }
        ("echo", _) => {
            format!("{stack} takes {time} for a datagram of {size} there and back{against}.")
        }
        ("realtime", _) if is_video(&row.stack) => {
            // nobody knows when its packets were sent, so its time is no delay
            let rate = units::rate(row.goodput_bps?);
            format!("A video through {stack} arrives at {rate} (n = {n}).")
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

fn is_video(stack: &str) -> bool {
    stack.split(['/', '#']).next() == Some(VIDEO)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_video_is_not_said_to_be_late() {
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
        assert_eq!(told("video/esp"), "A video through VIDEO/ESP arrives at 220 kbit/s (n = 5).");
        assert!(told("rtp").ends_with("2 ms late in the median (n = 5)."), "{}", told("rtp"));
    }

    #[test]
    fn a_closed_loop_is_told_by_its_rate_and_its_median() {
        let row = serde_json::json!({
            "link": "unshaped", "stack": "https", "workload": "sessions(clients=8)", "size_bytes": 1024,
            "n": 5, "failed": 0, "mean_s": 0.0251, "stddev_s": null, "ci95_s": null,
            "baseline": "http", "overhead_pct": 20.0, "overhead_ci95_pct": [15.0, 25.0],
            "session_mean_s": null, "session_overhead_pct": null,
            "session_overhead_ci95_pct": null, "goodput_bps": null, "cpu_seconds": null,
            "limited_by": null, "not_shaped": false,
            "sessions": {
                "clients": 8, "count": 1560, "failed": 0, "per_s_mean": 312.0, "per_s_ci95": null,
                "p99_mean_s": null, "p99_ci95_s": null, "max_s": 0.1, "client_cpu_mean_s": null,
                "client_cpu_ci95_s": null, "server_cpu_mean_s": null, "server_cpu_ci95_s": null
            }
        });
        assert_eq!(
            measured(&serde_json::from_value(row).expect("a row")).expect("a sentence"),
            "HTTPS takes 25.1 ms in the median for a session of 1 KiB, and 8 clients at once get 312 a \
             second, +20.0 % [+15.0, +25.0] in time against HTTP (n = 5)."
        );
    }

    #[test]
    fn a_comparison_counts_the_blocks_in_which_the_baseline_succeeded_too() {
        let told = |pairs: usize| {
            let row = serde_json::json!({
                "link": "unshaped", "stack": "https", "workload": "download", "size_bytes": 1 << 20,
                "n": 9, "failed": 0, "mean_s": 0.085, "stddev_s": 0.001, "ci95_s": null,
                "baseline": "http", "overhead_n": pairs, "overhead_pct": 76.0,
                "overhead_ci95_pct": [47.0, 111.0], "session_mean_s": null,
                "session_overhead_pct": null, "session_overhead_ci95_pct": null,
                "goodput_bps": null, "cpu_seconds": null, "limited_by": null, "not_shaped": false
            });
            measured(&serde_json::from_value(row).expect("a row")).expect("a sentence")
        };
        assert!(
            told(6).ends_with(", +76.0 % [+47.0, +111.0] against HTTP (n = 6)."),
            "{}",
            told(6)
        );
        let few = told(2);
        assert!(few.ends_with("; 2 runs support no comparison with HTTP, 5 are needed."), "{few}");
    }

    #[test]
    fn compares_no_fewer_than_five_runs() {
        let told = |n: usize, not_shaped: bool| {
            let row = serde_json::json!({
                "link": "unshaped", "stack": "https", "workload": "download", "size_bytes": 1 << 20,
                "n": n, "failed": 0, "mean_s": 0.085, "stddev_s": 0.001, "ci95_s": null,
                "baseline": "http", "overhead_pct": 76.04, "overhead_ci95_pct": [47.0, 110.8],
                "session_mean_s": null, "session_overhead_pct": null,
                "session_overhead_ci95_pct": null, "goodput_bps": null, "cpu_seconds": null,
                "limited_by": null, "not_shaped": not_shaped
            });
            measured(&serde_json::from_value(row).expect("a row")).expect("a sentence")
        };
        assert_eq!(
            told(5, false),
            "HTTPS takes 85 ms for `download 1 MiB`, +76.0 % [+47.0, +110.8] against HTTP (n = 5)."
        );
        let row = serde_json::json!({
            "link": "unshaped", "stack": "https", "workload": "echo", "size_bytes": 100, "n": 5,
            "failed": 0, "mean_s": 0.002, "stddev_s": null, "ci95_s": null, "baseline": "http",
            "overhead_pct": -0.02, "overhead_ci95_pct": [-0.04, 0.01], "session_mean_s": null,
            "session_overhead_pct": null, "session_overhead_ci95_pct": null, "goodput_bps": null,
            "cpu_seconds": null, "limited_by": null, "not_shaped": false
        });
        let nothing = measured(&serde_json::from_value(row).expect("a row")).expect("a sentence");
        assert!(nothing.contains(", +0.0 % [+0.0, +0.0] against HTTP"), "{nothing}");
        assert_eq!(
            told(3, true),
            "HTTPS takes 85 ms for `download 1 MiB`; 3 runs support no comparison with HTTP, 5 are \
             needed, not shaped."
        );
    }
}
