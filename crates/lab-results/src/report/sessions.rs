//! The table of the sessions of closed loops.

use headroom_units as units;

use super::table::Table;
use crate::analysis::measured::Estimate;
use crate::schema::{Results, Summary};

/// Explains the table.
const LEGEND: &str = "Sessions: each of so many clients starts its next session when the one before has ended. Times \
                      are from start to end of the client's process; median and 99th percentile are those of each \
                      sample's sessions, averaged over n samples (geometric mean), and a cell whose samples have \
                      fewer than 100 sessions has no 99th percentile. CPU: per session. A core of the server alone \
                      has time for 1 / server CPU sessions a second.";

/// Returns the table, by clients, size and stack; none without sessions.
pub(super) fn table(results: &Results) -> Option<Table> {
    let of_link = |row: &&Summary| row.link == results.link.name && row.sessions.is_some();
    let mut cells: Vec<&Summary> = results.summary.iter().filter(of_link).collect();
    cells.sort_by_key(|row| (row.sessions.map(|sessions| sessions.clients), row.size_bytes));
    let header = [
        "sessions",
        "clients",
        "size",
        "n",
        "sessions/s",
        "median, ms",
        "99 %, ms",
        "longest, ms",
        "client CPU, ms",
        "server CPU, ms",
        "failed",
    ];
    let rows: Vec<Vec<String>> = cells.into_iter().filter_map(row).collect();
    (!rows.is_empty()).then(|| Table { header: header.map(str::to_owned).to_vec(), rows })
}

/// Returns the sentences that explain the table; none without it.
pub(super) fn legend(results: &Results) -> Option<&'static str> {
    table(results).map(|_| LEGEND)
}

fn row(cell: &Summary) -> Option<Vec<String>> {
    let sessions = cell.sessions?;
    let shown = |value: Option<f64>, ci95, scale: f64| {
        let estimate = value.map(|value| Estimate { value, ci95, n: Some(cell.n) });
        estimate.map_or_else(dash, |estimate| estimate.map(|value| scale * value).rounded())
    };
    let ms = |value, ci95| shown(value, ci95, 1e3);
    Some(vec![
        cell.stack.clone(),
        sessions.clients.to_string(),
        units::chosen_size(cell.size_bytes),
        cell.n.to_string(),
        shown(Some(sessions.per_s_mean), sessions.per_s_ci95, 1.0),
        ms(cell.mean_s, cell.ci95_s),
        ms(sessions.p99_mean_s, sessions.p99_ci95_s),
        units::three(sessions.max_s * 1e3),
        ms(sessions.client_cpu_mean_s, sessions.client_cpu_ci95_s),
        ms(sessions.server_cpu_mean_s, sessions.server_cpu_ci95_s),
        sessions.failed.to_string(),
    ])
}

fn dash() -> String {
    "–".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(p99: bool) -> Summary {
        let row = serde_json::json!({
            "link": "unshaped", "stack": "https", "workload": "sessions(clients=8)",
            "size_bytes": 1024, "n": 5, "failed": 0, "mean_s": 0.0251, "stddev_s": null,
            "ci95_s": [0.0243, 0.0259], "baseline": null, "overhead_pct": null,
            "overhead_ci95_pct": null, "session_mean_s": null, "session_overhead_pct": null,
            "session_overhead_ci95_pct": null, "goodput_bps": null, "cpu_seconds": null,
            "limited_by": null, "not_shaped": false,
            "sessions": {
                "clients": 8, "count": 7800, "failed": 3, "per_s_mean": 312.4,
                "per_s_ci95": [300.2, 325.0], "p99_mean_s": p99.then_some(0.0712),
                "p99_ci95_s": null, "max_s": 0.3101, "client_cpu_mean_s": 0.0041,
                "client_cpu_ci95_s": null, "server_cpu_mean_s": null, "server_cpu_ci95_s": null
            }
        });
        serde_json::from_value(row).expect("a row")
    }

    #[test]
    fn a_row_has_rate_times_and_cpu_of_a_session() {
        let found = row(&cell(true)).expect("sessions");
        assert_eq!(
            found,
            [
                "https",
                "8",
                "1 KiB",
                "5",
                "312 [300, 325]",
                "25.1 [24.3, 25.9]",
                "71.2",
                "310",
                "4.1",
                "–",
                "3",
            ]
        );
        assert_eq!(row(&cell(false)).expect("sessions")[6], "–");
        assert_eq!(row(&Summary { sessions: None, ..cell(true) }), None);
    }
}
