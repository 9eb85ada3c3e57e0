//! One transfer: its files, tasks and command lines, its clients under the clocks, its
//! trace, and whether what should have arrived did.

use std::path::PathBuf;

use headroom_lab_host::agent::{self, Job, Outcome};
use headroom_lab_host::content::{Content, ContentKind, tree_name};
use headroom_lab_host::error::{self, Error, Result};
use headroom_lab_host::role::Role;
use headroom_lab_host::testbed::{Clock, Taken};
use headroom_lab_results::analysis::stats;
use headroom_lab_results::schema::{Load, StreamStats};
use headroom_lab_trace::{Expectation, Record, TimeHints, Totals};

use super::bench::Bench;
use super::cell::Cell;
use crate::service::{ClientReport, Invocation, Service};
use crate::workload::{Kind, Task};

/// What commands may say in place of small files' paths.
const SMALL_FILES: [&str; 3] = [LOCAL, REMOTE, NEW];
/// A file of the client, one of the server, and the name of one that is to be the
/// server's copy at the client.
const LOCAL: &str = "{local}";
const REMOTE: &str = "{remote}";
const NEW: &str = "{new}";
/// Octets of such a file: a line that somebody typed.
const SMALL_FILE: u64 = 100;

/// A prepared transfer: its client processes, and what to check afterwards.
pub(super) struct Prepared {
    pub(super) invocations: Vec<Invocation>,
    /// Where the files end up.
    on: Role,
    /// Files that must then be there; removed after verification.
    expected: Vec<(PathBuf, Content)>,
    folders: Vec<PathBuf>,
}

/// What was seen of one transfer.
pub(super) struct Seen {
    pub(super) record: Option<Record>,
    pub(super) outcomes: Vec<Outcome>,
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
        let serial = self.serial;
        let service = self.service(&cell.stack)?;
        let (client, server) = (&self.testbed.client, &self.testbed.server);
        let downloads = client.root.join("downloads");
        let (payloads, kind) = (&mut self.payloads, cell.workload.content);
        let mut expected = Vec::new();
        let mut folders = Vec::new();
        let tasks: Vec<Task> = match cell.workload.kind {
            Kind::Download | Kind::Page => {
                let (remote, content) = payloads.file(server, cell.size, kind)?;
                let local = downloads.join(format!("d{serial}"));
                expected.push((local.clone(), content));
                vec![Task::Download { remote, local }]
            }
            Kind::Parallel => {
                let (remote, content) = payloads.file(server, cell.size, kind)?;
                let local = |client: u32| downloads.join(format!("d{serial}-{client}"));
                expected.extend((0..cell.workload.clients).map(|client| (local(client), content)));
                (0..cell.workload.clients)
                    .map(|client| Task::Download { remote: remote.clone(), local: local(client) })
                    .collect()
            }
            Kind::Upload => {
                let (name, content) = payloads.file(client, cell.size, kind)?;
                let remote = format!("incoming/u{serial}");
                expected.push((server.root.join("files").join(&remote), content));
                vec![Task::Upload { local: client.root.join("files").join(name), remote }]
            }
            Kind::Many => {
                let count = cell.workload.files;
                let local = downloads.join(format!("t{serial}"));
                let (remote, contents) = payloads.tree(server, cell.size, count)?;
                client.make_folders(std::slice::from_ref(&local))?;
                let names: Vec<String> = (0..count).map(tree_name).collect();
                expected.extend(names.iter().map(|name| local.join(name)).zip(contents));
                folders.push(local.clone());
                vec![Task::DownloadTree { remote, names, local }]
            }
            Kind::Commands => {
                let own = || service.default_commands().iter().map(|c| (*c).to_owned()).collect();
                let mut commands = cell.workload.commands.clone().unwrap_or_else(own);
                let local = downloads.join(format!("d{serial}"));
                for word in SMALL_FILES {
                    if !commands.iter().any(|command| command.contains(word)) {
                        continue;
                    }
                    let host = if word == REMOTE { server } else { client };
                    let path = match word {
                        NEW => local.clone(),
                        _ => host
                            .root
                            .join("files")
                            .join(payloads.file(host, SMALL_FILE, ContentKind::default())?.0),
                    };
                    if word == NEW {
                        expected.push((
                            path.clone(),
                            payloads.file(server, SMALL_FILE, ContentKind::default())?.1,
                        ));
                    }
                    let path = path.display().to_string();
                    commands.iter_mut().for_each(|command| *command = command.replace(word, &path));
                }
                vec![Task::Commands(commands)]
            }
            Kind::Setup => Vec::new(),
            Kind::Stream => vec![Task::Stream { seconds: cell.workload.seconds, content: None }],
            Kind::Packets | Kind::Echo | Kind::Realtime => {
                let sending = cell.workload.sending(cell.size);
                let sending = sending.ok_or_else(|| Error::Plan(format!("{cell} has no rate")))?;
                let (size, seconds) = (cell.size, cell.workload.seconds);
                vec![Task::Datagrams { sending, size, seconds, content: None }]
            }
        };
        let upload = cell.workload.kind == Kind::Upload;
        let on = if upload { Role::Server } else { Role::Client };
        Ok(Prepared { folders, ..self.invoke(cell, &tasks, on, expected)? })
    }

    /// The command lines of a cell's tasks, whose files end up on `on`.
    pub(super) fn invoke(
        &self,
        cell: &Cell,
        tasks: &[Task],
        on: Role,
        expected: Vec<(PathBuf, Content)>,
    ) -> Result<Prepared> {
        let (site, service) = (self.site(&cell.stack, Role::Client)?, self.service(&cell.stack)?);
        let invocations =
            tasks.iter().map(|task| service.client(&site, task)).collect::<Result<_>>()?;
        Ok(Prepared { invocations, on, expected, folders: Vec::new() })
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

    /// Checks every transferred file; what is wrong with the first bad one.
    pub(super) fn verify(&self, prepared: &Prepared) -> Result<Option<String>> {
        if prepared.expected.is_empty() {
            return Ok(None);
        }
        self.testbed.host(prepared.on).verify(prepared.expected.clone())
    }

    pub(super) fn remove(&self, prepared: &Prepared) -> Result<()> {
        let files = prepared.expected.iter().map(|(path, _)| path);
        let paths: Vec<PathBuf> = files.chain(&prepared.folders).cloned().collect();
        if paths.is_empty() { Ok(()) } else { self.testbed.host(prepared.on).remove(paths) }
    }

    /// Runs one prepared transfer and reads its trace.
    pub(super) fn transfer(&mut self, cell: &Cell, prepared: &Prepared) -> Result<Seen> {
        self.observe(cell, prepared, false).map(|(seen, _)| seen)
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
        let service = self.service(&cell.stack)?;
        let jobs: Vec<Job> = prepared
            .invocations
            .iter()
            .map(|invocation| {
                let mut command = self.testbed.client.resolve(&invocation.command)?;
                command.environment.extend(invocation.environment.clone());
                Ok(Job { command, dialogue: invocation.dialogue.clone() })
            })
            .collect::<Result<_>>()?;
        let stack = self.instance(&cell.stack)?;
        let (clock, router) = (stack.clock(&self.testbed), self.testbed.clock());
        // under a tunnel the clock's trace is not what passes the link
        let outside = router.filter(|_| stack.is_tunnelled());
        clock.into_iter().chain(outside).try_for_each(Clock::forget)?;
        let kind = cell.workload.kind;
        // a capture's work would be a part of what is measured, and its clock is not needed
        let unneeded: Vec<Clock<'_>> = match kind {
            Kind::Packets | Kind::Echo | Kind::Realtime => {
                clock.into_iter().chain(outside).collect()
            }
            Kind::Stream => outside.into_iter().collect(),
            _ => Vec::new(),
        };
        let (clock, outside) =
            (clock.filter(|_| !kind.is_datagrams()), outside.filter(|_| !kind.is_timed()));
        unneeded.iter().try_for_each(|clock| clock.pause(true))?;
        let started = agent::now_ns();
        let watch = || {
            self.testbed.require_link()?;
            stack.require_server(&self.testbed)?;
            self.require_application(&cell.stack)
        };
        let client = &self.testbed.client;
        let outcomes = client.run_jobs(jobs, cell.timeout(), cell.patience(), &watch);
        unneeded.iter().try_for_each(|clock| clock.pause(false))?;
        let outcomes = outcomes?;
        if let Some(tap) = self.testbed.tap.as_ref().filter(|_| whole) {
            tap.settle();
        }
        let taken = clock.map(Clock::take).transpose()?;
        let outside = outside.map(Clock::take).transpose()?;
        let port = stack.wire_port;

        let reports: Vec<_> =
            outcomes.iter().map(|outcome| service.client_report(outcome)).collect();
        // only on one machine does the server's log have the packets' clock
        let (login_ns, login) = if self.testbed.one_machine() {
            (service.login_ns(&self.testbed.server.server(&cell.stack, started)?.log), None)
        } else {
            (None, service.login().map(|login| login.inside(stack.streams())))
        };
        let expectation = Expectation {
            port,
            data_connections: service.data_connections() && !kind.is_timed(),
            over_datagrams: service.over_datagrams(),
            upload: matches!(kind, Kind::Upload | Kind::Stream),
            size: cell.size,
            frame_s: cell.link.slowest_bps().map_or(0.0, |bps| 1538.0 * 8.0 / bps as f64),
            has_close_exchange: service.has_close_exchange(),
            login,
            hints: TimeHints {
                request_ns: reports.iter().filter_map(|r| r.hints.request_ns).min(),
                done_ns: done_ns(service, &reports, &outcomes),
                login_ns,
            },
        };
        let totals = outside.as_ref().or(taken.as_ref()).and_then(Taken::totals);
        let record = taken.map(|taken| taken.record(&expectation)).transpose()?.flatten();
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
        let fairness = (kind == Kind::Parallel)
            .then(|| fairness(clocks.as_deref().unwrap_or(&processes)))
            .flatten();
        let client_s = clocks.map(|all| all.into_iter().fold(0.0, f64::max));
        let said = reports.first().and_then(|report| report.load);
        let load = match (kind, record.as_ref().and_then(|record| record.flow)) {
            (Kind::Stream, Some(flow)) => Some(Load {
                measured_s: Some(flow.seconds),
                bytes: Some(flow.octets),
                ..Load::default()
            }),
            (Kind::Stream, None) => None,
            _ => said,
        };
        let realtime = reports.into_iter().find_map(|report| report.realtime);
        Ok((Seen { record, outcomes, client_s, load, fairness, realtime, error }, totals))
    }
}

/// How evenly clients shared the way that fetched as much in these times.
fn fairness(seconds: &[f64]) -> Option<f64> {
    let rates: Vec<f64> = seconds.iter().map(|seconds| 1.0 / seconds.max(1e-9)).collect();
    stats::jain(&rates)
}

/// When the last client was done. Where a trace does not tell, the end of a process that
/// does not say it is the best there is.
fn done_ns(service: &dyn Service, reports: &[ClientReport], outcomes: &[Outcome]) -> Option<u64> {
    let said = reports.iter().zip(outcomes).filter_map(|(report, outcome)| {
        report.hints.done_ns.or(service.over_datagrams().then_some(outcome.ended_ns))
    });
    said.max()
}

/// What a client's end says went wrong.
fn failure(cell: &Cell, outcome: &Outcome, reported: Option<&str>) -> Option<String> {
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
    let missing = cell.workload.kind == Kind::Commands && outcome.stdout.trim().is_empty();
    match (failed, missing) {
        (Some(line), _) => {
            Some(format!("a command of {cell} failed ({line}): {}", words(&outcome.stderr)))
        }
        (None, true) => Some(format!("the commands of {cell} answered nothing")),
        (None, false) => None,
    }
}
