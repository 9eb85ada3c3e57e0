//! Predicts session times on another link: the session time of a download, from
//! the portable costs. It can be wrong, and its error is published.
//!
//! session = round trips × RTT + work + body. The body's bytes pass at the rate
//! of the narrowest of: the link (framing and headers counted), this machine's
//! work on each byte, the stack's window per round trip, and what random loss
//! leaves. Beside that the sender waits while its window is small
//! ([`super::slow_start`]).
//!
//! Loss: before the first loss a transfer of d segments sends
//! (1 − (1 − p)^d)(1 − p)/p + 1 of them in slow start (Cardwell, Savage and
//! Anderson 2000, equation 5). The rest goes at the average window of RFC 9438
//! (CUBIC), section 5.1: 1.054 · RTT^¾ / p^¾ segments, or where that is larger
//! the window of a Reno flow, √(3/(2p)) (Mathis et al. 1997), which CUBIC does
//! not fall below (section 4.3).

use super::slow_start::{Path, Segment};
use super::stats;
use crate::schema::{LinkReport, Portable, Prediction, Summary};

/// Costs of a stack that hold on any link.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Costs {
    /// Before the file's first byte and after its last.
    pub round_trips: f64,
    /// Seconds that neither size nor distance change.
    pub work_s: f64,
    /// Bytes on the link for each byte of file, framing counted.
    pub line_bytes_per_byte: f64,
    /// Of this machine's work; none: unknown, and taken to be hidden by the link.
    pub seconds_per_byte: Option<f64>,
    /// Bytes that the application may have in flight.
    pub window_bytes: Option<f64>,
}

/// A link to predict times on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Link {
    /// Framing counted; none: as fast as the machine.
    pub rate_bps: Option<f64>,
    /// Round-trip time without load.
    pub rtt_s: f64,
    /// Share of packets lost at random, each way.
    pub loss: f64,
    /// A full packet.
    pub segment: Segment,
}

impl Costs {
    /// Of a stack whose downloads were measured at two sizes or more.
    pub fn of(portable: &Portable) -> Option<Self> {
        Some(Self {
            round_trips: f64::from(portable.round_trips? + portable.round_trips_after.unwrap_or(0)),
            work_s: portable.work_s?,
            line_bytes_per_byte: portable.line_bytes_per_byte?,
            seconds_per_byte: portable.seconds_per_gb.map(|s| s / 1e9),
            window_bytes: portable.window_bytes.map(|bytes| bytes as f64),
        })
    }
}

/// Seconds of a session that downloads one file.
pub fn session_s(costs: &Costs, link: &Link, bytes: f64) -> f64 {
    let body = body_s(costs, link, bytes);
    costs.round_trips * link.rtt_s + costs.work_s + body + setup_timeouts_s(costs, link)
}

fn body_s(costs: &Costs, link: &Link, bytes: f64) -> f64 {
    let on_link = link.rate_bps.map(|bps| bps / 8.0 / costs.line_bytes_per_byte);
    let worked = costs.seconds_per_byte.filter(|s| *s > 0.0).map(|s| 1.0 / s);
    let windowed = costs.window_bytes.filter(|_| link.rtt_s > 0.0).map(|w| w / link.rtt_s);
    let bytes_per_s = [on_link, worked, windowed].into_iter().flatten().reduce(f64::min);
    let segment_bytes = link.segment.payload_bytes;
    let path = Path { bytes_per_s, rtt_s: link.rtt_s, segment_bytes };
    let unhindered =
        |bytes: f64| bytes_per_s.map_or(0.0, |rate| bytes / rate) + path.waits_s(bytes);
    if link.loss <= 0.0 {
        return unhindered(bytes);
    }
    let segments = (bytes / segment_bytes).ceil();
    let any_lost = 1.0 - (1.0 - link.loss).powf(segments);
    let first = (any_lost * (1.0 - link.loss) / link.loss + 1.0).min(segments);
    let first_bytes = (first * segment_bytes).min(bytes);
    let lossy = cubic_window(link.rtt_s, link.loss) * segment_bytes / link.rtt_s;
    let rest_rate = bytes_per_s.map_or(lossy, |rate| rate.min(lossy));
    let recovery = any_lost * link.rtt_s;
    unhindered(first_bytes) + recovery + (bytes - first_bytes) / rest_rate
}

/// Average congestion window in segments under random loss.
fn cubic_window(rtt_s: f64, loss: f64) -> f64 {
    let cubic = 1.054 * (rtt_s / loss).powf(0.75);
    let reno = (1.5 / loss).sqrt();
    cubic.max(reno)
}

/// In a dialogue nothing follows that would tell of a loss: a time-out does, after
/// Linux's least of 200 ms and a round trip. One packet each way for a round trip.
fn setup_timeouts_s(costs: &Costs, link: &Link) -> f64 {
    const MIN_TIMEOUT_S: f64 = 0.2;
    costs.round_trips * 2.0 * link.loss * (MIN_TIMEOUT_S + link.rtt_s)
}

/// Foretells the downloads that were measured on `checks` from the main link's
/// costs. Nothing where the main link itself loses packets, or a validation link does
/// and that is not modelled: the answer of another congestion control than CUBIC, losses in
/// bursts, or more of them one way than the other; and nothing from or for a link that follows a
/// trace, which has no single rate.
pub fn predictions(
    portable: &[Portable],
    summary: &[Summary],
    main: &LinkReport,
    checks: &[LinkReport],
    segment: Segment,
    congestion_control: &str,
) -> Vec<Prediction> {
    let carries_over = !main.is_lossy() && !main.follows_trace();
    let Some(main_rtt_s) = main.rtt_us.map(|us| us / 1e6).filter(|_| carries_over) else {
        return Vec::new();
    };
    // what client, server and router take, wherever they are
    let near_s = (main_rtt_s - 2.0 * main.delay_ms / 1e3).max(0.0);
    let mut all = Vec::new();
    for check in checks {
        let is_modelled = congestion_control == "cubic" && check.loses_as_modelled();
        if check.follows_trace() || (check.is_lossy() && !is_modelled) {
            continue;
        }
        let link = Link {
            rate_bps: check.rate_bps.map(|bps| bps as f64),
            rtt_s: near_s + 2.0 * check.delay_ms / 1e3,
            loss: check.loss_pct / 100.0,
            segment,
        };
        for row in summary.iter().filter(|row| row.link == check.name && row.workload == "download")
        {
            let costs = portable.iter().find(|p| p.stack == row.stack).and_then(Costs::of);
            let (Some(costs), Some(measured_s)) = (costs, row.session_mean_s) else { continue };
            let predicted_s = session_s(&costs, &link, row.size_bytes as f64);
            all.push(Prediction {
                link: row.link.clone(),
                stack: row.stack.clone(),
                workload: row.workload.clone(),
                size_bytes: row.size_bytes,
                predicted_s,
                measured_s,
                error_pct: 100.0 * (predicted_s / measured_s - 1.0),
            });
        }
    }
    all
}

/// Errors of the predictions for one link.
#[derive(Debug, Clone, PartialEq)]
pub struct LinkError {
    /// The link.
    pub link: String,
    /// Predictions.
    pub cells: usize,
    /// Median of the absolute errors, per cent.
    pub median_pct: f64,
    /// The largest absolute error, per cent.
    pub largest_pct: f64,
}

/// The errors link by link, in order of appearance.
pub fn errors(predictions: &[Prediction]) -> Vec<LinkError> {
    let mut links: Vec<&str> = Vec::new();
    for prediction in predictions {
        if !links.contains(&prediction.link.as_str()) {
            links.push(&prediction.link);
        }
    }
    links
        .into_iter()
        .filter_map(|link| {
            let of_link = predictions.iter().filter(|p| p.link == link);
            let errors: Vec<f64> = of_link.map(|p| p.error_pct.abs()).collect();
            Some(LinkError {
                link: link.to_owned(),
                cells: errors.len(),
                median_pct: stats::median(&errors)?,
                largest_pct: errors.iter().copied().fold(0.0, f64::max),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEGMENT: Segment = Segment { payload_bytes: 1448.0, line_bytes: 1538.0 };
    const COSTS: Costs = Costs {
        round_trips: 10.0,
        work_s: 0.005,
        line_bytes_per_byte: 1538.0 / 1448.0,
        seconds_per_byte: None,
        window_bytes: None,
    };

    fn link(rate_bps: f64, rtt_s: f64, loss: f64) -> Link {
        Link { rate_bps: Some(rate_bps), rtt_s, loss, segment: SEGMENT }
    }

    #[test]
    fn a_small_file_takes_its_round_trips_and_a_large_one_the_link() {
        let small = session_s(&COSTS, &link(100e6, 0.02, 0.0), 1024.0);
        assert!((small - (0.2 + 0.005 + 1024.0 * 1538.0 / 1448.0 * 8.0 / 100e6)).abs() < 1e-9);
        let large = session_s(&COSTS, &link(100e6, 0.0, 0.0), 100e6);
        assert!((large - (0.005 + 8.0 * 1538.0 / 1448.0)).abs() < 1e-9, "{large}");
    }

    #[test]
    fn the_narrowest_place_decides() {
        let fast = link(10e9, 0.05, 0.0);
        let slow = Costs { seconds_per_byte: Some(1e-8), ..COSTS };
        assert!((body_s(&slow, &fast, 1e9) - 10.0).abs() < 0.5);
        let windowed = Costs { window_bytes: Some(2e6), ..slow };
        // 2 MB in 50 ms: 40 MB/s
        assert!((body_s(&windowed, &fast, 1e9) - 25.0).abs() < 0.5);
        let nothing_known = Link { rate_bps: None, ..fast };
        assert!(body_s(&COSTS, &nothing_known, 1e9) < 1.0, "slow start alone");
    }

    #[test]
    fn loss_leaves_what_method_5_saw() {
        // CUBIC at 1 % loss and 50 ms: 2.8 Mbit/s, whatever the link
        let bps = cubic_window(0.05, 0.01) * 1448.0 * 8.0 / 0.05;
        assert!((bps - 2.84e6).abs() < 0.01e6, "{bps}");
        let seconds = body_s(&COSTS, &link(1e9, 0.05, 0.01), 100e6);
        assert!((seconds / (100e6 * 8.0 / 2.84e6) - 1.0).abs() < 0.01, "{seconds}");
        // where losses are rare and far apart CUBIC's own window is the larger
        assert!(cubic_window(0.1, 1e-5) > (1.5e5f64).sqrt());
    }

    #[test]
    fn a_file_of_one_segment_hardly_meets_loss() {
        let clear = body_s(&COSTS, &link(1e9, 0.05, 0.0), 1000.0);
        let lossy = body_s(&COSTS, &link(1e9, 0.05, 0.01), 1000.0);
        assert!(lossy - clear < 0.001, "{lossy} {clear}");
        let limited = body_s(&COSTS, &link(1e6, 0.05, 0.001), 1e7);
        let unlimited = body_s(&COSTS, &link(1e6, 0.05, 0.0), 1e7);
        assert!((limited / unlimited - 1.0).abs() < 0.01, "a slow link hides loss");
    }

    #[test]
    fn a_link_with_losses_that_are_not_modelled_is_not_predicted() {
        let of = |spec: &str| {
            let spec: headroom_link_spec::LinkSpec = spec.parse().expect("a link");
            LinkReport::new(&spec, "emulator", "on")
        };
        let main = LinkReport { rtt_us: Some(50.0), ..of("unshaped") };
        let portable = serde_json::json!({
            "stack": "ftp", "round_trips": 10, "work_s": 0.005, "line_bytes_per_byte": 1.06
        });
        let portable: Portable = serde_json::from_value(portable).expect("costs");
        let predicted = |spec: &str, congestion_control: &str| {
            let check = of(spec);
            let row = serde_json::json!({
                "link": check.name, "stack": "ftp", "workload": "download", "size_bytes": 1024,
                "n": 5, "failed": 0, "mean_s": 1.0, "stddev_s": null, "ci95_s": null,
                "baseline": null, "overhead_pct": null, "overhead_ci95_pct": null,
                "session_mean_s": 1.0, "session_overhead_pct": null,
                "session_overhead_ci95_pct": null, "goodput_bps": null, "cpu_seconds": null,
                "limited_by": null, "not_shaped": false
            });
            let row: Summary = serde_json::from_value(row).expect("a row");
            let (portable, summary) = (std::slice::from_ref(&portable), [row]);
            predictions(portable, &summary, &main, &[check], SEGMENT, congestion_control).len()
        };
        for (spec, congestion_control, expected) in [
            ("10mbit", "reno", 1),
            ("10mbit,loss=1%", "cubic", 1),
            ("10mbit,loss=20%", "cubic", 1),
            ("10mbit,loss=1%", "reno", 0),
            ("10mbit,loss=0%,up-loss=1%", "cubic", 0),
            ("10mbit,loss=1%,up-loss=2%", "cubic", 0),
            ("10mbit,loss=1%,burst=3", "cubic", 0),
        ] {
            assert_eq!(
                predicted(spec, congestion_control),
                expected,
                "{spec} {congestion_control}"
            );
        }
    }

    #[test]
    fn errors_are_summed_up_by_link() {
        let prediction = |link: &str, error_pct| Prediction {
            link: link.into(),
            stack: "ftp".into(),
            workload: "download".into(),
            size_bytes: 1,
            predicted_s: 1.0,
            measured_s: 1.0,
            error_pct,
        };
        let all = [prediction("b", -3.0), prediction("a", 9.0), prediction("b", 1.0)];
        let found = errors(&all);
        assert_eq!((found[0].link.as_str(), found[0].median_pct, found[0].cells), ("b", 2.0, 2));
        assert_eq!((found[1].largest_pct, found.len()), (9.0, 2));
        assert_eq!(errors(&[]), []);
    }
}
