//! One transfer: its files, tasks and command lines, its clients under the clocks, its
//! trace, and whether what should have arrived did.

use std::path::PathBuf;

use headroom_lab_host::agent::{self, Job, Outcome};
use headroom_lab_host::error::{self, Result};
use headroom_lab_host::role::Role;
use headroom_lab_host::testbed::{Clock, Taken};
use headroom_lab_results::analysis::stats;
use headroom_lab_results::schema::{Load, Sessions, StreamStats};
use headroom_lab_trace::{Expectation, Record, TimeHints, Totals};

use super::bench::Bench;
use super::cell::Cell;
use crate::application::{Application, ClientReport, Invocation};
use crate::workload::{Ground, Key, TimeOf, Transfer};

/// A prepared transfer: its client processes, and what to check afterwards.
pub(super) struct Prepared {
    pub(super) invocations: Vec<Invocation>,
    pub(super) transfer: Transfer,
}

/// Observations of one transfer, or of the sessions of a closed loop.
#[derive(Default)]
pub(super) struct Seen {
    pub(super) record: Option<Record>,
    /// Of each client; in a closed loop of its last session.
    pub(super) outcomes: Vec<Outcome>,
    /// Until the last client ended.
    pub(super) took_s: f64,
    pub(super) sessions: Option<Sessions>,
    pub(super) client_s: Option<f64>,
    pub(super) load: Option<Load>,
    pub(super) fairness: Option<f64>,
    pub(super) realtime: Option<StreamStats>,
    pub(super) error: Option<String>,
}

impl Bench<'_> {
    /// Makes the files, the tasks and the command lines of one transfer.
    pub(super) fn prepare(&mut self, cell: &Cell) -> Result<Prepared> {
        self.serial += 1;
        let mut ground = Ground {
            default_commands: self.application(&cell.stack)?.default_commands(),
            client: &self.testbed.client,
            server: &self.testbed.server,
            payloads: &mut self.payloads,
            serial: self.serial,
        };
        let workload = &cell.workload;
        let transfer = (workload.work().prepare)(workload, cell.size, &mut ground)?;
        self.invoke(cell, transfer)
    }

    /// The command lines of a cell's transfer.
    pub(super) fn invoke(&self, cell: &Cell, transfer: Transfer) -> Result<Prepared> {
        let (site, application) =
            (self.site(&cell.stack, Role::Client)?, self.application(&cell.stack)?);
        let tasks = transfer.tasks.iter();
        let invocations =
            tasks.map(|task| application.client(&site, task)).collect::<Result<_>>()?;
        Ok(Prepared { invocations, transfer })
    }

    /// Notes the commands of a cell's client.
    pub(super) fn rehearse(&mut self, cell: &Cell) -> Result<()> {
        let prepared = self.prepare(cell)?;
        self.note(&prepared);
        Ok(())
    }

    pub(super) fn note(&self, prepared: &Prepared) {
        for invocation in &prepared.invocations {
            let client = &self.testbed.client;
            client.note(|| client.as_typed(&invocation.command));
        }
    }

    /// Checks every transferred file, but for those of a closed loop, which were checked one
    /// after the other; what is wrong with the first bad one.
    pub(super) fn verify(&self, prepared: &Prepared) -> Result<Option<String>> {
        let Transfer { on: Some(role), expected, repeated_for: None, .. } = &prepared.transfer
        else {
            return Ok(None);
        };
        match expected[..] {
            [] => Ok(None),
            _ => self.testbed.host(*role).verify(expected.clone()),
        }
    }

    pub(super) fn remove(&self, prepared: &Prepared) -> Result<()> {
        let Transfer { on: Some(role), expected, folders, .. } = &prepared.transfer else {
            return Ok(());
        };
        let files = expected.iter().map(|(path, _)| path);
        let paths: Vec<PathBuf> = files.chain(folders).cloned().collect();
        if paths.is_empty() { Ok(()) } else { self.testbed.host(*role).remove(paths) }
    }

    /// Starts the clients of transfers that have a prelude, until it is over. What it takes is
    /// in no clock, no CPU time and no count.
    pub(super) fn prepare_clients(&self, cell: &Cell, prepared: &[Prepared]) -> Result<()> {
        let mut jobs = Vec::new();
        for one in prepared {
            jobs.extend(self.jobs(one)?.into_iter().filter(|job| job.has_prelude));
        }
        if jobs.is_empty() {
            return Ok(());
        }
        self.testbed.client.prepare_jobs(jobs, cell.timeout())
    }

    /// Runs one prepared transfer and reads its trace.
    pub(super) fn transfer(&mut self, cell: &Cell, prepared: &Prepared) -> Result<Seen> {
        match prepared.transfer.repeated_for {
            Some(time) => self.closed_loop(cell, prepared, time),
            None => self.observe(cell, prepared, false).map(|(seen, _)| seen),
        }
    }

    /// The same, waiting for the connections' last packets.
    pub(super) fn transfer_whole(
        &mut self,
        cell: &Cell,
        prepared: &Prepared,
    ) -> Result<(Seen, Option<Totals>)> {
        self.observe(cell, prepared, true)
    }

    fn observe(
        &mut self,
        cell: &Cell,
        prepared: &Prepared,
        whole: bool,
    ) -> Result<(Seen, Option<Totals>)> {
        error::check(&self.interrupted)?;
        let application = self.application(&cell.stack)?;
        let jobs = self.jobs(prepared)?;
        let stack = self.instance(&cell.stack)?;
        let (clock, router) = (stack.clock(&self.testbed), self.testbed.clock());
        // under a tunnel the clock's trace is not what passes the link
        let outside = router.filter(|_| stack.is_tunnelled());
        clock.into_iter().chain(outside).try_for_each(Clock::forget)?;
        let kind = cell.workload.kind;
        // a capture's work would be a part of what is measured, and its clock is not needed
        let unneeded: Vec<Clock<'_>> = match kind.time() {
            TimeOf::Client | TimeOf::Process => clock.into_iter().chain(outside).collect(),
            TimeOf::Flow => outside.into_iter().collect(),
            TimeOf::Session | TimeOf::LayerSetup => Vec::new(),
        };
        let (clock, outside) =
            (clock.filter(|_| !kind.is_datagrams()), outside.filter(|_| !kind.is_timed()));
        unneeded.iter().try_for_each(|clock| clock.pause(true))?;
        let started = agent::now_ns();
        let watch = || self.require_running(cell);
        let client = &self.testbed.client;
        let outcomes = client.run_jobs(jobs, cell.timeout(), cell.patience(), &watch);
        unneeded.iter().try_for_each(|clock| clock.pause(false))?;
        let outcomes = outcomes?;
        if let Some(capture) = self.testbed.router_capture.as_ref().filter(|_| whole) {
            capture.settle();
        }
        let taken = clock.map(Clock::take).transpose()?;
        let outside = outside.map(Clock::take).transpose()?;

        let reports: Vec<_> =
            outcomes.iter().map(|outcome| application.client_report(outcome)).collect();
        // only on one machine does the server's log have the packets' clock
        let login_ns = match self.testbed.one_machine() {
            true => application.login_ns(&self.testbed.server.server(&cell.stack, started)?.log),
            false => None,
        };
        let expectation = Expectation {
            port: stack.wire_port,
            data_connections: application.data_connections() && !kind.is_timed(),
            over_datagrams: application.over_datagrams(),
            upload: kind.goes_up(),
            size: cell.size,
            frame_s: cell.link.longest_frame_gap().as_secs_f64(),
            has_close_exchange: application.has_close_exchange(),
            login: application.login().map(|login| login.inside(stack.streams())),
            hints: TimeHints {
                start_ns: reports.iter().filter_map(|r| r.hints.start_ns).min(),
                request_ns: reports.iter().filter_map(|r| r.hints.request_ns).min(),
                done_ns: done_ns(application, &reports, &outcomes),
                login_ns,
            },
        };
        let totals = outside.as_ref().or(taken.as_ref()).and_then(Taken::totals);
        let record = taken.map(|taken| taken.record(&expectation)).transpose()?.flatten();
        Ok((Seen::of(cell, outcomes, reports, record), totals))
    }

    /// The client processes of a transfer.
    pub(super) fn jobs(&self, prepared: &Prepared) -> Result<Vec<Job>> {
        let job = |invocation: &Invocation| {
            let mut command = self.testbed.client.resolve(&invocation.command)?;
            command.environment.extend(invocation.environment.clone());
            let dialogue = invocation.dialogue.clone();
            Ok(Job { command, dialogue, has_prelude: invocation.has_prelude })
        };
        prepared.invocations.iter().map(job).collect()
    }
}

impl Seen {
    /// Adds the clients' reports to the trace's record.
    fn of(
        cell: &Cell,
        outcomes: Vec<Outcome>,
        reports: Vec<ClientReport>,
        record: Option<Record>,
    ) -> Self {
        let kind = cell.workload.kind;
        let error = outcomes
            .iter()
            .zip(&reports)
            .find_map(|(outcome, report)| failure(cell, outcome, report.error.as_deref()))
            .or_else(|| {
                (record.is_none() && !kind.is_datagrams())
                    .then(|| "no packet of this transfer was seen between the hosts".to_owned())
            });
        let clocks: Option<Vec<f64>> = reports.iter().map(|report| report.seconds).collect();
        let processes: Vec<f64> = outcomes.iter().map(|outcome| outcome.process_s).collect();
        let took_s = processes.iter().copied().fold(0.0, f64::max);
        let fairness = cell
            .workload
            .takes(Key::Clients)
            .then(|| fairness(clocks.as_deref().unwrap_or(&processes)))
            .flatten();
        let client_s = clocks.map(|all| all.into_iter().fold(0.0, f64::max));
        let said = reports.first().and_then(|report| report.load);
        let load = match (kind.time(), record.as_ref().and_then(|record| record.flow)) {
            (TimeOf::Flow, Some(flow)) => Some(Load {
                measured_s: Some(flow.seconds),
                bytes: Some(flow.bytes),
                ..Load::default()
            }),
            (TimeOf::Flow, None) => None,
            _ => said,
        };
        let realtime = reports.into_iter().find_map(|report| report.realtime);
        let sessions = None;
        Self { record, outcomes, took_s, sessions, client_s, load, fairness, realtime, error }
    }

    /// The sessions of a closed loop that succeeded; else 1.
    pub(super) fn transfers(&self) -> usize {
        self.sessions.as_ref().map_or(1, |sessions| sessions.count as usize)
    }
}

/// Computes how evenly clients shared the link, from their times for equal files.
fn fairness(seconds: &[f64]) -> Option<f64> {
    let rates: Vec<f64> = seconds.iter().map(|seconds| 1.0 / seconds.max(1e-9)).collect();
    stats::jain(&rates)
}

/// Returns the time at which the last client was done: as it reports, or, over UDP, the end
/// of its process.
fn done_ns(
    application: &dyn Application,
    reports: &[ClientReport],
    outcomes: &[Outcome],
) -> Option<u64> {
    let said = reports.iter().zip(outcomes).filter_map(|(report, outcome)| {
        report.hints.done_ns.or(application.over_datagrams().then_some(outcome.ended_ns))
    });
    said.max()
}

/// Explains the failure of a client's process.
pub(super) fn failure(cell: &Cell, outcome: &Outcome, reported: Option<&str>) -> Option<String> {
    let words = |text: &str| {
        let from = text.len().saturating_sub(400);
        let from = (from..=text.len()).find(|&i| text.is_char_boundary(i)).unwrap_or(text.len());
        text[from..].trim().replace('\n', " | ")
    };
    if let Some(error) = reported {
        return Some(format!("the client of {cell} failed: {error}"));
    }
    match outcome.code {
        Some(0) => {}
        Some(code) => {
            return Some(format!(
                "the client of {cell} ended with exit code {code}: {}",
                words(&outcome.stderr)
            ));
        }
        None => {
            return Some(format!(
                "the client of {cell} was killed; it took longer than {:?}",
                cell.timeout()
            ));
        }
    }
    // a dialogue prints a marker with the status of each command
    let failed = outcome
        .stdout
        .lines()
        .find(|line| line.strip_prefix("headroom-done-").is_some_and(|rest| !rest.ends_with(" 0")));
    match failed {
        Some(line) => {
            Some(format!("a command of {cell} failed ({line}): {}", words(&outcome.stderr)))
        }
        None => (cell.workload.work().objection)(outcome).map(|what| format!("{cell} {what}")),
    }
}
