//! One TCP stream, as fast as it goes: iperf3 both sides.

use std::sync::Arc;

use headroom_lab_host::agent::Outcome;
use headroom_lab_host::command::Command;
use headroom_lab_host::error::{Error, Result};
use headroom_lab_host::host::ServerSpec;
use headroom_lab_host::programs::Program;
use headroom_lab_results::schema::Load;
use serde::Deserialize;

use super::{Application, ClientReport, Invocation, Site};
use crate::catalogue::{Entry, Fact, Make, stated};
use crate::properties::Properties;
use crate::workload::{STREAM_UNIT, Task, WorkloadKind};

const IPERF3: Program = Program::new("iperf3", "iperf3", &["--version"]);

struct Iperf3;

pub(super) const ENTRY: Entry<dyn Application> = Entry {
    name: "iperf3",
    about: "one TCP stream in clear, from memory to memory: iperf3 both sides",
    programs: &[IPERF3],
    make: Make::Fixed(|| Arc::new(Iperf3)),
};

impl Application for Iperf3 {
    fn properties(&self) -> Option<Properties> {
        Some(Properties::CLEAR)
    }

    fn secured(&self) -> bool {
        false
    }

    fn port(&self) -> u16 {
        5201
    }

    fn accepts(&self, kind: WorkloadKind) -> bool {
        kind == WorkloadKind::Stream
    }

    fn server(&self, site: &Site<'_>) -> Result<ServerSpec> {
        let (address, port) = (site.server.ip().to_string(), site.server.port().to_string());
        let command = Command::new(IPERF3, ["--server", "--bind", &address, "--port", &port]);
        let private_files = vec![(site.credential_path("resolv.conf"), "/etc/resolv.conf")];
        Ok(ServerSpec { private_files, ..ServerSpec::new(command) })
    }

    fn client(&self, site: &Site<'_>, task: &Task) -> Result<Invocation> {
        let Task::Stream { seconds, content } = task else {
            return Err(Error::Plan("iperf3 moves no files: its workload is `stream`".into()));
        };
        let (address, port) = (site.server.ip().to_string(), site.server.port().to_string());
        let mut command = Command::new(IPERF3, ["--json", "--client", &address, "--port", &port]);
        match content {
            // a file's end is the end
            Some(file) => command.args(["--file".to_owned(), file.display().to_string()]),
            None => command.args(["--time".to_owned(), seconds.to_string()]),
        };
        Ok(Invocation::new(command))
    }

    fn data_connections(&self) -> bool {
        true
    }

    fn client_report(&self, outcome: &Outcome) -> ClientReport {
        report(&outcome.stdout)
    }

    fn facts(&self) -> Vec<Fact> {
        stated([("encryption", "none"), ("streams", "1, from client to server")])
    }
}

/// The fields of `iperf3 --json` that the lab reads.
#[derive(Debug, Deserialize)]
struct Printed {
    end: Option<End>,
    error: Option<String>,
}

#[derive(Debug, Deserialize)]
struct End {
    sum_sent: Option<Sum>,
    sum_received: Option<Sum>,
}

#[derive(Debug, Deserialize)]
struct Sum {
    seconds: f64,
    bytes: u64,
}

fn report(stdout: &str) -> ClientReport {
    let (end, error) = match serde_json::from_str::<Printed>(stdout) {
        Ok(Printed { error: Some(error), .. }) => (None, Some(error)),
        Ok(Printed { end, .. }) => (end, None),
        Err(error) => (None, Some(format!("iperf3 printed no report ({error})"))),
    };
    let (sent, received) = end.map_or((None, None), |end| (end.sum_sent, end.sum_received));
    let some = |sum: &Sum| sum.bytes > 0;
    // of a short file the server may have read nothing yet when the client is done
    let error = error.or_else(|| {
        let nothing = !sent.is_some_and(|sum| some(&sum));
        nothing.then(|| "iperf3 sent nothing".to_owned())
    });
    let sum = received.filter(some);
    ClientReport {
        seconds: sum.as_ref().map(|sum| sum.seconds * STREAM_UNIT as f64 / sum.bytes as f64),
        load: sum.map(|sum| Load {
            measured_s: Some(sum.seconds),
            bytes: Some(sum.bytes),
            ..Load::default()
        }),
        error,
        ..ClientReport::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_read_and_an_error_is_told() {
        let good = r#"{"start":{},"end":{"sum_sent":{"seconds":5.0,"bytes":6000000000},
            "sum_received":{"start":0,"seconds":5.0,"bytes":5368709120,"bits_per_second":8e9}}}"#;
        let said = report(good);
        assert_eq!((said.error.as_deref(), said.seconds), (None, Some(1.0)));
        let error = report(r#"{"start":{},"end":{},"error":"error - unable to connect"}"#).error;
        assert_eq!(error.as_deref(), Some("error - unable to connect"));
        for nothing in ["", "{", "{}", r#"{"end":{"sum_sent":{"seconds":1.0,"bytes":0}}}"#] {
            assert!(report(nothing).error.is_some(), "{nothing}");
        }
    }
}
