//! Datagrams: this very program as processes of its own (`headroom load`).

use std::sync::Arc;

use headroom_lab_host::agent::Outcome;
use headroom_lab_host::command::Command;
use headroom_lab_host::error::{Error, Result};
use headroom_lab_host::host::ServerSpec;
use headroom_lab_results::schema::Load;
use headroom_load::stats::{EchoStats, PacketStats};
use serde::Deserialize;

use super::{Application, ClientReport, Invocation, Site};
use crate::catalogue::{Entry, Fact, Make, stated};
use crate::properties::Properties;
use crate::workload::{Sending, Task, WorkloadKind};

struct Udp;

pub(super) const ENTRY: Entry<dyn Application> = Entry {
    name: "udp",
    about: "datagrams in clear, flood or echo: headroom both sides",
    programs: &[],
    make: Make::Fixed(|| Arc::new(Udp)),
};

impl Application for Udp {
    fn properties(&self) -> Option<Properties> {
        Some(Properties { over_udp: true, ..Properties::CLEAR })
    }

    fn secured(&self) -> bool {
        false
    }

    fn port(&self) -> u16 {
        7007
    }

    fn accepts(&self, kind: WorkloadKind) -> bool {
        matches!(kind, WorkloadKind::Packets | WorkloadKind::Echo)
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
            (
                "packets",
                "at most 256 on their way; sent and received in trains where the kernel can; at a given rate each by itself, as RTP",
            ),
        ])
    }
}

/// The server of any load.
pub(super) fn server(site: &Site<'_>) -> ServerSpec {
    let headroom = site.host.headroom.display().to_string();
    ServerSpec::new(Command::new(headroom, ["load", "serve", &site.server.to_string()]))
}

/// The client that sends datagrams.
pub(super) fn datagrams(site: &Site<'_>, task: &Task) -> Result<Invocation> {
    let Task::Datagrams { sending, size, seconds, content } = task else {
        let sentence =
            "datagrams are no files: their workloads are `packets`, `echo` and `realtime`";
        return Err(Error::Plan(sentence.to_owned()));
    };
    let what = match sending {
        Sending::AsArrives | Sending::Paced(_) => "packets",
        Sending::Echo => "echo",
        Sending::Realtime { .. } => "realtime",
    };
    let headroom = site.host.headroom.display().to_string();
    let (size, seconds) = (size.to_string(), seconds.to_string());
    let mut command =
        Command::new(headroom, ["load", what, &site.server.to_string(), "--size", &size]);
    let mut add = |option: &str, value: String| {
        command.args([option, &value]);
    };
    add("--seconds", seconds);
    match sending {
        Sending::Paced(per_second) | Sending::Realtime { per_second, .. } => {
            add("--per-second", per_second.to_string());
        }
        Sending::AsArrives | Sending::Echo => {}
    }
    if let Sending::Realtime { cross_traffic: Some((from, to)), .. } = sending {
        add("--cross-traffic", format!("{from}-{to}"));
    }
    if let Some(file) = content {
        add("--content", file.display().to_string());
    }
    Ok(Invocation::new(command))
}

/// A line that `headroom load` prints.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Printed {
    Packets(PacketStats),
    Echo(EchoStats),
}

/// The time of one datagram: one after the other, or there and back.
fn report(stdout: &str) -> ClientReport {
    let (seconds, load) = match serde_json::from_str(stdout.trim()) {
        Ok(Printed::Packets(PacketStats { seconds, packets, lost })) if packets > 0 => {
            let load = Load {
                measured_s: Some(seconds),
                packets: Some(packets),
                lost: Some(lost),
                ..Load::default()
            };
            (seconds / packets as f64, load)
        }
        Ok(Printed::Echo(EchoStats { round_trips, lost, median_s, p99_s })) => {
            let load = Load {
                packets: Some(round_trips),
                lost: Some(lost),
                p99_s: Some(p99_s),
                ..Load::default()
            };
            (median_s, load)
        }
        Ok(Printed::Packets(_)) => return failed("no datagram arrived".to_owned()),
        Err(error) => {
            return failed(format!("the load printed no report ({error}): {}", stdout.trim()));
        }
    };
    ClientReport { seconds: Some(seconds), load: Some(load), ..ClientReport::default() }
}

pub(super) fn failed(error: String) -> ClientReport {
    ClientReport { error: Some(error), ..ClientReport::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_one_datagram_is_told() {
        let said = report("{\"seconds\":2.0,\"packets\":1000000,\"lost\":3}\n");
        assert_eq!((said.seconds, said.load.and_then(|load| load.lost)), (Some(2e-6), Some(3)));
        let echo = r#"{"round_trips":100,"lost":0,"median_s":5e-5,"p99_s":9e-5}"#;
        let said = report(echo);
        assert_eq!((said.seconds, said.load.and_then(|l| l.p99_s)), (Some(5e-5), Some(9e-5)));
        for nothing in ["", "{}", r#"{"seconds":2.0,"packets":0,"lost":9}"#] {
            assert!(report(nothing).error.is_some(), "{nothing}");
        }
    }
}
