//! A server's status in Prometheus' text format (exposition format 0.0.4).

use std::fmt::{Display, Write};

use headroom_transfer::server::{RequestCount, Status, Traffic};

/// The content type of the text.
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Writes the status of a server, and which answers were given to how many requests for metrics.
/// Names and labels are words of this program, nothing that a client chooses, so that their number
/// is fixed and none needs escaping.
pub(crate) fn exposition(status: &Status, answers: &[(u16, u64)]) -> String {
    let mut text = Exposition::default();
    text.family("build_info", "gauge", "Always 1; the label is the program's version.");
    text.sample(&[("version", env!("CARGO_PKG_VERSION"))], 1);
    let uptime = status.uptime.as_secs_f64();
    text.gauge("uptime_seconds", "Time since the server started.", format_args!("{uptime:.3}"));
    let draining = u8::from(status.is_draining);
    text.gauge("draining", "1 while the server shuts down and takes no sessions.", draining);
    text.gauge("connections", "QUIC connections, handshakes included.", status.connections);
    text.gauge("tcp_connections", "TCP connections of browsers.", status.tcp_connections);
    let help = "Handshakes, and sessions of clients that are not authenticated.";
    text.gauge("handshakes", help, status.handshakes);
    text.gauge("sessions", "Sessions of authenticated clients.", status.sessions);
    let help = "Sessions of authenticated clients that have begun.";
    text.family("sessions_started_total", "counter", help);
    text.sample(&[], status.sessions_started);

    let directions = [("received", &status.received), ("sent", &status.sent)];
    let values: [(&str, &str, &str, Value); 4] = [
        ("transfers", "gauge", "Transfers that run, from clients and to them.", |it| it.running),
        (
            "transferred_bytes_total",
            "counter",
            "File content that was received or sent, before compression.",
            |it| it.bytes,
        ),
        (
            "stored_files_total",
            "counter",
            "Files, directories and links that were stored and verified.",
            |it| it.stored,
        ),
        (
            "failed_files_total",
            "counter",
            "Files, directories and links that failed, in transfers that ended regularly.",
            |it| it.failed,
        ),
    ];
    for (name, kind, help, value) in values {
        text.family(name, kind, help);
        for (direction, traffic) in directions {
            text.sample(&[("direction", direction)], value(traffic));
        }
    }
    text.family("requests_total", "counter", "Requests that have ended, by how they ended.");
    for RequestCount { operation, outcome, count } in &status.requests {
        text.sample(&[("operation", *operation), ("outcome", outcome.name())], count);
    }
    text.family("rejections_total", "counter", "What was rejected before any request, by reason.");
    for (reason, count) in status.rejections.named() {
        text.sample(&[("reason", reason)], count);
    }
    let dropped = &status.dropped;
    let packets = [
        ("unknown_lane", dropped.unknown_lane),
        ("unopened", dropped.unopened),
        ("no_buffer", dropped.no_buffer),
    ];
    text.family("lane_dropped_packets_total", "counter", "Packets of lanes that were dropped.");
    for (reason, count) in packets {
        text.sample(&[("reason", reason)], count);
    }
    let bytes =
        [("unknown_file", dropped.unknown_file_bytes), ("beyond_end", dropped.beyond_end_bytes)];
    text.family("lane_dropped_bytes_total", "counter", "Content on lanes that was dropped.");
    for (reason, count) in bytes {
        text.sample(&[("reason", reason)], count);
    }
    if let Some(store) = &status.store {
        let help = "Requests to the object store, repeated ones included, by kind.";
        text.family("store_requests_total", "counter", help);
        for (kind, count) in store.kinds() {
            text.sample(&[("kind", kind)], count);
        }
        let help = "Requests to the object store that repeated one that had failed.";
        text.family("store_retries_total", "counter", help);
        text.sample(&[], store.retried);
        let help = "How often the object store asked for fewer requests.";
        text.family("store_slowdowns_total", "counter", help);
        text.sample(&[], store.slowed);
    }
    text.family("metrics_requests_total", "counter", "Requests to this server of metrics.");
    for (code, count) in answers {
        let code = code.to_string();
        text.sample(&[("code", code.as_str())], count);
    }
    text.text
}

/// Reads a value of a direction.
type Value = fn(&Traffic) -> u64;

#[derive(Default)]
struct Exposition {
    text: String,
    /// The family that is being written.
    name: &'static str,
}

impl Exposition {
    /// Begins a metric.
    fn family(&mut self, name: &'static str, kind: &str, help: &str) {
        self.name = name;
        // writing to a string cannot fail
        let _ = write!(
            self.text,
            "# HELP headroom_serve_{name} {help}\n# TYPE headroom_serve_{name} {kind}\n"
        );
    }

    fn sample(&mut self, labels: &[(&str, &str)], value: impl Display) {
        let _ = write!(self.text, "headroom_serve_{}", self.name);
        for (nth, (label, word)) in labels.iter().enumerate() {
            let before = if nth == 0 { '{' } else { ',' };
            let _ = write!(self.text, "{before}{label}=\"{word}\"");
        }
        let end = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.text, "{end} {value}");
    }

    /// Writes a metric that has one value.
    fn gauge(&mut self, name: &'static str, help: &str, value: impl Display) {
        self.family(name, "gauge", help);
        self.sample(&[], value);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use headroom_testing::exposition::{metrics, value};
    use headroom_transfer::server::{DropCounts, Outcome, RejectionCounts, Requests};

    use super::*;

    fn example() -> Status {
        let count = |operation, outcome, count| RequestCount { operation, outcome, count };
        Status {
            uptime: Duration::from_micros(90_061_500_400),
            is_draining: true,
            connections: 3,
            tcp_connections: 4,
            handshakes: 1,
            sessions: 2,
            sessions_started: 12,
            received: Traffic { running: 1, bytes: u64::MAX, stored: 70_000, failed: 5 },
            sent: Traffic { running: 2, bytes: 9, stored: 8, failed: 0 },
            requests: vec![
                count("put", Outcome::Done, 6),
                count("put", Outcome::Lost, 0),
                count("sync-to", Outcome::Done, 7),
            ],
            rejections: RejectionCounts { full: 1, draining: 2, ..RejectionCounts::default() },
            dropped: DropCounts { unopened: 3, beyond_end_bytes: 4, ..DropCounts::default() },
            store: Some(Requests { put: 17, retried: 2, slowed: 1, ..Requests::default() }),
        }
    }

    #[test]
    fn every_count_is_a_metric_with_help_type_and_fixed_labels() {
        let text = exposition(&example(), &[(200, 13), (404, 0)]);
        let metrics = metrics(&text);
        assert!(metrics.iter().all(|sample| sample.name.starts_with("headroom_serve_")), "{text}");
        for (name, labels, expected) in [
            ("build_info", &[("version", env!("CARGO_PKG_VERSION"))][..], 1.0),
            ("uptime_seconds", &[], 90_061.5),
            ("draining", &[], 1.0),
            ("connections", &[], 3.0),
            ("tcp_connections", &[], 4.0),
            ("handshakes", &[], 1.0),
            ("sessions", &[], 2.0),
            ("sessions_started_total", &[], 12.0),
            ("transfers", &[("direction", "received")], 1.0),
            ("transfers", &[("direction", "sent")], 2.0),
            ("transferred_bytes_total", &[("direction", "received")], u64::MAX as f64),
            ("stored_files_total", &[("direction", "received")], 70_000.0),
            ("failed_files_total", &[("direction", "received")], 5.0),
            ("failed_files_total", &[("direction", "sent")], 0.0),
            ("requests_total", &[("operation", "put"), ("outcome", "done")], 6.0),
            ("requests_total", &[("operation", "put"), ("outcome", "lost")], 0.0),
            ("requests_total", &[("operation", "sync-to"), ("outcome", "done")], 7.0),
            ("rejections_total", &[("reason", "full")], 1.0),
            ("rejections_total", &[("reason", "draining")], 2.0),
            ("rejections_total", &[("reason", "unauthorized")], 0.0),
            ("lane_dropped_packets_total", &[("reason", "unopened")], 3.0),
            ("lane_dropped_bytes_total", &[("reason", "beyond_end")], 4.0),
            ("store_requests_total", &[("kind", "put")], 17.0),
            ("store_requests_total", &[("kind", "list")], 0.0),
            ("store_retries_total", &[], 2.0),
            ("store_slowdowns_total", &[], 1.0),
            ("metrics_requests_total", &[("code", "200")], 13.0),
            ("metrics_requests_total", &[("code", "404")], 0.0),
        ] {
            let found = value(&metrics, &format!("headroom_serve_{name}"), labels);
            assert_eq!(found, expected, "{name} {labels:?}");
        }
    }
}
