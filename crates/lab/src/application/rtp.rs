//! A real-time stream: RTP packets at a steady rate, sent and received by this very
//! program as processes of its own (`headroom load`).

use std::sync::Arc;

use headroom_lab_host::agent::Outcome;
use headroom_lab_host::error::Result;
use headroom_lab_host::host::ServerSpec;
use headroom_lab_results::schema::StreamStats;

use super::udp::{datagrams, server};
use super::{Application, ClientReport, Invocation, Site};
use crate::catalogue::{Entry, Fact, Make, stated};
use crate::properties::Properties;
use crate::workload::{Task, WorkloadKind};

struct Rtp;

/// The default port of RTP (RFC 3551 §8).
pub(super) const PORT: u16 = 5004;

pub(super) const ENTRY: Entry<dyn Application> = Entry {
    name: "rtp",
    about: "a real-time stream in clear, RTP to port 5004: headroom both sides",
    programs: &[],
    make: Make::Fixed(|| Arc::new(Rtp)),
};

impl Application for Rtp {
    fn properties(&self) -> Option<Properties> {
        Some(Properties { over_udp: true, ..Properties::CLEAR })
    }

    fn secured(&self) -> bool {
        false
    }

    fn port(&self) -> u16 {
        PORT
    }

    fn shares_its_port(&self) -> bool {
        true
    }

    fn accepts(&self, kind: WorkloadKind) -> bool {
        kind == WorkloadKind::Realtime
    }

    fn server(&self, site: &Site<'_>) -> Result<ServerSpec> {
        Ok(server(site))
    }

    fn client(&self, site: &Site<'_>, task: &Task) -> Result<Invocation> {
        datagrams(site, task)
    }

    fn client_report(&self, outcome: &Outcome) -> ClientReport {
        report(&outcome.stdout)
    }

    fn facts(&self) -> Vec<Fact> {
        stated([
            ("encryption", "none"),
            ("stream", "RTP (RFC 3550), each packet at its time, from client to server"),
        ])
    }
}

/// Reads the report of the stream; its time is the median of its delays.
pub(super) fn report(stdout: &str) -> ClientReport {
    match serde_json::from_str::<StreamStats>(stdout.trim()) {
        Ok(stream) => ClientReport {
            seconds: stream.delay.map(|delay| delay.p50_s),
            realtime: Some(stream),
            ..ClientReport::default()
        },
        Err(error) => super::udp::failed(format!(
            "the server of the stream sent no report ({error}): {}",
            stdout.trim()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_load_prints_is_read() {
        let said = r#"{"measured_s":1.98,"sent":100,"arrived":99,"lost":1,"duplicates":0,"reordered":0,
            "mean_bps":1e6,"lowest_bps":null,"highest_bps":1e6,"jitter_s":1e-5,"cross_traffic_bps":null,"bin_s":0.2,
            "delay":{"p50_s":0.001,"p95_s":0.002,"p99_s":0.003,"max_s":0.004},
            "bins":[{"at_s":0.0,"sent":20,"lost":1,"bps":1e6,"delay_s":0.001,"delay_max_s":0.002,
                     "jitter_s":null,"cross_traffic_bps":null}]}"#;
        let report = report(said);
        let stream = report.realtime.expect("a stream");
        assert_eq!((report.seconds, stream.lost, stream.bins.len()), (Some(0.001), 1, 1));
        assert!((stream.loss_pct() - 1.0).abs() < 1e-9);
        assert!(super::report("{}").error.is_some());
    }
}
