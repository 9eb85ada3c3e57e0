//! One sample: the clients of a cell run, once or in a batch, under all clocks,
//! and what they transferred is verified when the clocks have stopped.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::wrapped::{Numbers, Wrapped};
use crate::agent::{self, Job, Outcome};
use crate::analysis::stats;
use crate::error::{Error, Result};
use crate::host::{Host, Role, last_lines};
use crate::layer::loopback;
use crate::link::LinkSpec;
use crate::measure::wire::{self, Expectation, Marks, SetUp, Totals};
use crate::plan::{Plan, Resolver};
use crate::results::{Cpu, LayerSetup, Load, Phases, Realtime, Sample, Tcp};
use crate::service::{ClientReport, Invocation, Service, Site, write_credentials};
use crate::testbed::{Clock, Taken, Testbed};
use crate::units;
use crate::workload::{Content, Filling, Kind, Payloads, STREAM_UNIT, Task, Workload, tree_name};

/// What commands may say in place of small files' paths.
const SMALL_FILES: [&str; 3] = [LOCAL, REMOTE, NEW];
/// A file of the client, one of the server, and the name of one that is to be the
/// server's copy at the client.
const LOCAL: &str = "{local}";
const REMOTE: &str = "{remote}";
const NEW: &str = "{new}";
/// Octets of such a file: a line that somebody typed.
const SMALL_FILE: u64 = 100;

/// METHOD 11: clock ticks are 10 ms, so less than this is measured in batches.
const LEAST_SAMPLE_S: f64 = 0.3;
const LARGEST_BATCH: u32 = 100;
const NAME_SERVER_PORT: u16 = 53;
/// A batch keeps its files until the clocks have stopped; no more than this.
pub(super) const BATCH_BYTES: u64 = 256 << 20;

/// One stack doing one workload at one size on one link.
#[derive(Debug, Clone)]
pub(super) struct Cell {
    pub(super) link: LinkSpec,
    pub(super) stack: String,
    pub(super) workload: Workload,
    pub(super) size: u64,
    /// Transfers in a sample; set by the warm-up.
    batch: u32,
    /// Of one transfer, process start and all; set by the warm-up.
    transfer_s: f64,
    /// What an unlimited link may be expected to pass at least.
    least_bps: u64,
}

impl Cell {
    pub(super) fn new(link: &LinkSpec, stack: &str, workload: &Workload, size: u64) -> Self {
        let (link, stack, workload) = (link.clone(), stack.to_owned(), workload.clone());
        Self { link, stack, workload, size, batch: 1, transfer_s: 0.0, least_bps: 50_000_000 }
    }

    /// The same between real machines, whose link nobody knows.
    pub(super) fn on_real_link(self) -> Self {
        Self { least_bps: 1_000_000, ..self }
    }

    /// Octets of file that one transfer moves.
    pub(super) fn octets(&self) -> u64 {
        self.workload.octets(self.size)
    }

    pub(super) fn batch(&self) -> u32 {
        self.batch
    }

    /// Makes a sample the mean of as many transfers as it was in the blocks that
    /// were measured before.
    pub(super) fn set_batch(&mut self, batch: u32) {
        let asked = self.workload.in_a_row;
        self.batch = asked.unwrap_or(batch.clamp(1, self.largest_batch()));
    }

    /// Makes what goes on for a time as short as it can be; by how many seconds.
    fn be_brief(&mut self) -> f64 {
        if !self.workload.kind.is_timed() {
            return 0.0;
        }
        f64::from(std::mem::replace(&mut self.workload.seconds, 1) - 1)
    }

    /// Transfers whose files can be kept until the clocks have stopped.
    fn largest_batch(&self) -> u32 {
        // each file of a folder is a file to verify
        let files = if self.workload.kind == Kind::Many { self.workload.files } else { 1 };
        let fits =
            (BATCH_BYTES / self.octets().max(1)).min(u64::from(LARGEST_BATCH.min(10_000 / files)));
        fits.max(1) as u32
    }

    /// Expected time of a sample.
    pub(super) fn expected_s(&self) -> f64 {
        self.transfer_s * f64::from(self.batch)
    }

    /// After so long without an answer one looks whether the servers still run: never
    /// in a transfer as expected, so that looking costs none of them anything.
    fn patience(&self) -> Duration {
        Duration::from_secs_f64(2.0 + 3.0 * self.transfer_s)
    }

    /// Long enough for anything that is not stuck: a fifth of the link's rate, or
    /// a quarter of what loss (Mathis et al. 1997) and an SSH window leave of it.
    fn timeout(&self) -> Duration {
        if self.workload.kind.is_timed() {
            return Duration::from_secs(30 + 2 * u64::from(self.workload.seconds));
        }
        const SEGMENT_BITS: f64 = 1448.0 * 8.0;
        const SSH_WINDOW_BITS: f64 = 2_097_152.0 * 8.0;
        let rtt_s = self.link.longest_round_trip().as_secs_f64();
        let mut slowest_bps = self.link.slowest_bps().unwrap_or(self.least_bps) as f64 / 5.0;
        if rtt_s > 0.0 {
            slowest_bps = slowest_bps.min(SSH_WINDOW_BITS / rtt_s / 4.0);
        }
        let loss_pct = self.link.down.loss.average_pct().max(self.link.up.loss.average_pct());
        if loss_pct > 0.0 {
            let mathis = SEGMENT_BITS / rtt_s.max(0.001) / (loss_pct / 100.0).sqrt();
            slowest_bps = slowest_bps.min(mathis / 4.0);
        }
        let files =
            if self.workload.kind == Kind::Many { f64::from(self.workload.files) } else { 1.0 };
        let seconds = 60.0 + files * 20.0 * rtt_s + self.octets() as f64 * 8.0 / slowest_bps;
        Duration::from_secs_f64(seconds)
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.stack, self.workload.name())?;
        if self.size > 0 && self.workload.kind != Kind::Stream {
            write!(f, " {}", units::size(self.size))
        } else {
            Ok(())
        }
    }
}

/// A sample, and what of it the results do not keep.
#[derive(Debug)]
pub(super) struct Measured {
    pub(super) sample: Sample,
    pub(super) rtts_s: Vec<f64>,
    /// The fewest that any transfer took.
    pub(super) round_trips: Option<u32>,
    /// The last transfer's record.
    pub(super) last: Option<wire::Record>,
}

/// The testbed with its servers, ready to measure.
pub(super) struct Bench<'a> {
    plan: &'a Plan,
    pub(super) testbed: Testbed,
    payloads: Payloads,
    interrupted: Arc<AtomicBool>,
    stacks: BTreeMap<String, Wrapped>,
    serial: u32,
}

/// A prepared transfer: its client processes, and what to check afterwards.
pub(super) struct Prepared {
    invocations: Vec<Invocation>,
    /// Where the files end up.
    on: Role,
    /// Files that must then be there; removed after verification.
    expected: Vec<(PathBuf, Content)>,
    folders: Vec<PathBuf>,
}

/// What was seen of one transfer.
pub(super) struct Seen {
    pub(super) record: Option<wire::Record>,
    outcomes: Vec<Outcome>,
    client_s: Option<f64>,
    load: Option<Load>,
    fairness: Option<f64>,
    realtime: Option<Realtime>,
    pub(super) error: Option<String>,
}

impl<'a> Bench<'a> {
    pub(super) fn new(
        plan: &'a Plan,
        testbed: Testbed,
        interrupted: Arc<AtomicBool>,
    ) -> Result<Self> {
        let mut stacks: BTreeMap<String, Wrapped> = BTreeMap::new();
        let mut numbers = Numbers::default();
        let mut taken_ports = BTreeSet::new();
        for (planned, nth) in plan.stacks.iter().zip(0..) {
            let (name, service) = (&planned.stack.name, planned.stack.service);
            let taken = |port: u16| taken_ports.contains(&port);
            // what is alone at its address has the port that routers know
            let alone = service.shares_its_port()
                && planned.stack.layers.iter().any(|layer| layer.kind().is_network());
            // a second server of an application listens elsewhere
            let copies = (0..6).map(|n| n * 10_000).chain((1..10).map(|n| n * 1000));
            // and many of one that is tried in many ways, beside each of these
            let copies = copies
                .clone()
                .chain((1..20).flat_map(move |by| copies.clone().map(move |copy| copy + by)));
            let free = || match alone {
                true => Some(service.port()),
                false => copies.map(|copy| service.port() + copy).find(|&p| !taken(p)),
            };
            // and on a real host its own ports are taken
            let port =
                plan.hosts.as_ref().map_or_else(free, |hosts| Some(hosts.port(nth))).ok_or_else(
                    || {
                        let name = service.name();
                        Error::Plan(format!("more than 300 stacks with `{name}` in one plan"))
                    },
                )?;
            let congestion = &plan.congestion_control;
            let wrapped = Wrapped::new(&planned.stack, &testbed, port, congestion, &mut numbers)?;
            if !alone {
                taken_ports.insert(port);
            }
            stacks.insert(name.clone(), wrapped);
        }
        let mut names = vec![testbed.server.address, loopback(plan.family)];
        names.extend(stacks.values().map(|stack| stack.connects.ip()));
        names.sort();
        names.dedup();
        write_credentials(&testbed.client, &testbed.server, testbed.one_machine(), &names)?;
        let payloads = Payloads::new(plan.seed);
        Ok(Self { plan, testbed, payloads, interrupted, stacks, serial: 0 })
    }

    /// Starts the layers and the server of each stack and waits until all answer.
    pub(super) fn start_servers(&mut self) -> Result<()> {
        if let Some(resolver) = self.resolver()
            && !self.testbed.server.is_dry()
        {
            self.testbed.server.agent()?.swallow((resolver, NAME_SERVER_PORT).into())?;
        }
        let mut says = BTreeMap::new();
        for planned in &self.plan.stacks {
            let (name, service) = (&planned.stack.name, planned.stack.service);
            if let Some(stack) = self.stacks.get_mut(name) {
                stack.start(&self.testbed)?;
            }
            for host in [&self.testbed.client, &self.testbed.server] {
                host.make_folders(&[folder_of(host, name)])?;
            }
            let spec = service.server(&self.site(name, Role::Server)?)?;
            let address = self.wrapped(name)?.listens;
            self.testbed.require_free_port(name, address)?;
            self.testbed.server.start(name, &spec)?;
            says.insert(name, spec.ready);
        }
        for (name, stack) in &mut self.stacks {
            let says = says.get(name).copied().flatten();
            self.testbed.server.wait_ready(name, stack.listens, says)?;
            stack.rest(&self.testbed)?;
        }
        Ok(())
    }

    /// Sets up the layers of all stacks, apart from any transfer.
    pub(super) fn set_ups(&mut self, link: &LinkSpec) -> Result<Vec<LayerSetup>> {
        let quiet = super::set_up::quiet(link.longest_round_trip());
        let mut rows = Vec::new();
        for planned in self.plan.stacks.iter().filter(|p| !p.stack.layers.is_empty()) {
            super::check(&self.interrupted)?;
            if let Some(stack) = self.stacks.get_mut(&planned.stack.name) {
                rows.extend(stack.measure_set_ups(&self.testbed, quiet)?);
            }
        }
        Ok(rows)
    }

    /// The MTU of a stack's inner interfaces, as facts.
    pub(super) fn inner_mtus(&self, stack: &str) -> Vec<(String, String)> {
        self.stacks.get(stack).map(|stack| stack.inner_mtus().collect()).unwrap_or_default()
    }

    /// Before transfers of a cell: its layers are up.
    pub(super) fn wake(&mut self, cell: &Cell) -> Result<()> {
        self.stacks.get_mut(&cell.stack).map_or(Ok(()), |stack| stack.wake(&self.testbed))
    }

    /// After them: its layers send nothing.
    pub(super) fn rest(&mut self, cell: &Cell) -> Result<()> {
        self.stacks.get_mut(&cell.stack).map_or(Ok(()), |stack| stack.rest(&self.testbed))
    }

    fn wrapped(&self, stack: &str) -> Result<&Wrapped> {
        self.stacks.get(stack).ok_or_else(|| Error::Failed(format!("no server for {stack}")))
    }

    /// A stack's layers, and the testbed that they are in.
    pub(super) fn wrapped_mut(&mut self, stack: &str) -> Result<(&mut Wrapped, &Testbed)> {
        let found = self.stacks.get_mut(stack);
        let found = found.ok_or_else(|| Error::Failed(format!("no server for {stack}")))?;
        Ok((found, &self.testbed))
    }

    pub(super) fn interrupted(&self) -> &AtomicBool {
        &self.interrupted
    }

    /// Runs a cell before it counts, and finds out how long it takes.
    pub(super) fn warm_up(&mut self, cell: &mut Cell, times: u32) -> Result<()> {
        if cell.workload.kind == Kind::Setup {
            cell.transfer_s = self.warm_up_set_up(cell, times)?.clamp(0.0, 1e6);
            return Ok(());
        }
        let mut shortest = f64::INFINITY;
        // what goes on for a time is as warm after one second of it
        let mut brief = cell.clone();
        let more_s = brief.be_brief();
        self.wake(cell)?;
        for _ in 0..times.max(1) {
            let prepared = self.prepare(&brief)?;
            let seen = self.transfer(&brief, &prepared)?;
            if let Some(error) =
                seen.error.map_or_else(|| self.verify(&prepared), |e| Ok(Some(e)))?
            {
                self.remove(&prepared)?;
                let sentence = format!("{cell} does not work on this testbed: {error}");
                return Err(self.blame_a_server(Error::Failed(sentence)));
            }
            self.remove(&prepared)?;
            shortest = seen.outcomes.iter().map(|o| o.process_s).fold(0.0, f64::max).min(shortest);
        }
        self.rest(cell)?;
        cell.set_batch((LEAST_SAMPLE_S / shortest.max(1e-4)).ceil() as u32);
        // an agent's word, perhaps of another machine
        cell.transfer_s = more_s + shortest.clamp(0.0, 1e6);
        Ok(())
    }

    /// Measures one sample of a cell.
    ///
    /// # Errors
    /// Only what ends the run; a failed transfer is a sample with its error.
    pub(super) fn measure(&mut self, cell: &Cell, block: u32) -> Result<Measured> {
        if cell.workload.kind == Kind::Setup {
            return self.measure_set_up(cell, block);
        }
        let prepared = (0..cell.batch).map(|_| self.prepare(cell)).collect::<Result<Vec<_>>>()?;
        self.wake(cell)?;
        let (before, watch) = (self.testbed.read_cpu()?, self.testbed.watch()?);
        let mut seen = Vec::with_capacity(prepared.len());
        for one in &prepared {
            seen.push(self.transfer(cell, one)?);
            if seen.iter().any(|one| one.error.is_some()) {
                break;
            }
        }
        // the bottleneck of the file's direction
        let upload = cell.workload.kind == Kind::Upload;
        let way = if upload { &cell.link.up } else { &cell.link.down };
        let usage = watch.map(|watch| watch.usage(seen.len(), way.rate_bps, upload)).transpose()?;
        let after = self.testbed.read_cpu()?;
        let drops = self.wrapped(&cell.stack)?.drops(&self.testbed)?;
        self.rest(cell)?;
        let spent = after.zip(before).and_then(|(after, before)| after.since(&before));

        let mut errors: Vec<String> = seen.iter().filter_map(|s| s.error.clone()).collect();
        for one in &prepared {
            errors.extend(self.verify(one)?);
            self.remove(one)?;
        }
        if !errors.is_empty() {
            self.require_servers()?;
        }
        let n = seen.len() as f64;
        let records: Vec<&wire::Record> = seen.iter().filter_map(|s| s.record.as_ref()).collect();
        let mean = |value: fn(&wire::Record) -> f64| {
            (!records.is_empty())
                .then(|| records.iter().map(|r| value(r)).sum::<f64>() / records.len() as f64)
        };
        let mean_of = |handshake: fn(&wire::Record) -> Option<SetUp>| {
            let seconds: Vec<f64> =
                records.iter().filter_map(|r| Some(handshake(r)?.seconds)).collect();
            (!seconds.is_empty()).then(|| seconds.iter().sum::<f64>() / seconds.len() as f64)
        };
        let kind = cell.workload.kind;
        let over_datagrams = self.service(&cell.stack)?.over_datagrams();
        let load = seen.first().and_then(|one| one.load);
        let seconds = match kind {
            Kind::Packets | Kind::Echo | Kind::Realtime => {
                seen.first().and_then(|one| one.client_s)
            }
            Kind::Stream => load
                .and_then(|load| Some(load.measured_s? * STREAM_UNIT as f64 / load.bytes? as f64)),
            _ => mean(|r| r.transfer_s),
        };
        // what goes on for a time has no session that takes one
        let sessions: &[&wire::Record] = if kind.is_timed() { &[] } else { &records };
        let processes = |s: &Seen| s.outcomes.iter().map(|o| o.process_s).fold(0.0, f64::max);
        let client_clocks: Option<Vec<f64>> = seen.iter().map(|s| s.client_s).collect();
        let token_bucket = way.rate_bps.is_some() && !self.testbed.serialises();
        let sample = Sample {
            link: cell.link.to_string(),
            stack: cell.stack.clone(),
            workload: cell.workload.name(),
            size_bytes: cell.size,
            files: match cell.workload.kind {
                Kind::Many => cell.workload.files,
                Kind::Parallel => cell.workload.clients,
                _ => 1,
            },
            block,
            ok: errors.is_empty(),
            seconds,
            session_seconds: mean(|r| r.session_s).filter(|_| !sessions.is_empty()),
            client_seconds: client_clocks.map(|all| all.iter().sum::<f64>() / n),
            process_seconds: Some(seen.iter().map(processes).sum::<f64>() / n),
            transfers: cell.batch,
            phases: (!sessions.is_empty())
                .then(|| Phases::mean(sessions.iter().map(|r| &r.phases))),
            first_handshake_seconds: mean_of(|r| r.handshake),
            data_handshake_seconds: mean_of(|r| r.data_handshake),
            cpu_seconds: spent.map(|s| Cpu {
                client: s.client / n,
                server: s.server / n,
                router: s.router / n,
                kernel: s.kernel / n,
                machine: s.machine / n,
                foreign: s.foreign / n,
            }),
            cpu_idle_pct: spent.map(|s| s.idle_pct),
            steal_pct: spent.map(|s| s.steal_pct),
            foreign_pct: spent.map(|s| s.foreign_pct),
            wire: None,
            tcp: (!records.is_empty() && !over_datagrams)
                .then(|| Tcp::mean(&records.iter().map(|r| r.tcp).collect::<Vec<_>>())),
            load,
            fairness: stats::mean(&seen.iter().filter_map(|s| s.fairness).collect::<Vec<_>>())
                .map(|mean| mean.mean),
            usage,
            realtime: seen.first().and_then(|one| one.realtime.clone()),
            drops,
            outlier: false,
            peak_memory_bytes: seen
                .iter()
                .flat_map(|s| &s.outcomes)
                .map(|o| o.peak_memory_bytes)
                .max(),
            marked: None,
            not_shaped: token_bucket && !kind.is_timed() && seconds.is_some_and(|s| s < 0.1),
            error: errors.into_iter().next(),
        };
        let round_trips = records.iter().filter_map(|r| r.round_trips).min();
        let rtts_s = records.iter().filter_map(|r| r.rtt_s).collect();
        let last = seen.pop().and_then(|s| s.record);
        Ok(Measured { sample, rtts_s, round_trips, last })
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
            client.note(|| client.as_typed(&invocation.argv));
        }
    }

    /// The error, or a better one if a server of this run has ended.
    pub(super) fn blame_a_server(&mut self, error: Error) -> Error {
        if matches!(error, Error::Interrupted) {
            return error;
        }
        match self.require_servers() {
            // a host that vanished is both
            Err(died) if died.to_string() == error.to_string() => error,
            Err(died @ Error::Failed(_)) if died.to_string() != error.to_string() => {
                Error::Failed(format!("{died}. First seen as: {error}"))
            }
            _ => error,
        }
    }

    pub(super) fn require_servers(&mut self) -> Result<()> {
        self.testbed.require_link()?;
        self.stacks.iter().try_for_each(|(name, stack)| {
            stack.require_alive(&self.testbed)?;
            self.require_application(name)
        })
    }

    /// Whether the application's server of a stack still runs.
    fn require_application(&self, stack: &str) -> Result<()> {
        let state = self.testbed.server.server(stack, 0)?;
        state.ended.map_or(Ok(()), |ended| {
            Err(Error::Failed(format!(
                "the {stack} server ended in the middle of the run ({ended}). It last said: {}",
                last_lines(&state.log)
            )))
        })
    }

    /// The place of a stack's service on one of the hosts.
    fn site(&self, stack: &str, role: Role) -> Result<Site<'_>> {
        let (client, server) = (&self.testbed.client, &self.testbed.server);
        let (host, peer) = if role == Role::Client { (client, server) } else { (server, client) };
        let wrapped = self.wrapped(stack)?;
        let address = if role == Role::Client { wrapped.connects } else { wrapped.listens };
        Ok(Site {
            host,
            peer,
            dir: folder_of(host, stack),
            files: server.root.join("files"),
            server: address,
            resolver: self.resolver(),
            passive_ports: self.passive_ports(stack),
        })
    }

    /// The address of the server's name server: the one that glibc asks where it is told
    /// of none.
    fn resolver(&self) -> Option<IpAddr> {
        self.plan.resolver.map(|Resolver::Silent| Ipv4Addr::LOCALHOST.into())
    }

    /// On a real host, which may have a firewall, FTP's data connections go to
    /// ports that are known.
    fn passive_ports(&self, stack: &str) -> Option<std::ops::RangeInclusive<u16>> {
        let hosts = self.plan.hosts.as_ref()?;
        let nth = self.plan.stacks.iter().position(|planned| planned.stack.name == stack)?;
        Some(hosts.passive(u16::try_from(nth).ok()?))
    }

    fn service(&self, stack: &str) -> Result<&'static dyn Service> {
        let planned =
            self.plan.stack(stack).ok_or_else(|| Error::Plan(format!("no stack {stack}")))?;
        Ok(planned.stack.service)
    }

    /// Makes the files, the tasks and the command lines of one transfer.
    pub(super) fn prepare(&mut self, cell: &Cell) -> Result<Prepared> {
        self.serial += 1;
        let serial = self.serial;
        let service = self.service(&cell.stack)?;
        let (client, server) = (&self.testbed.client, &self.testbed.server);
        let downloads = client.root.join("downloads");
        let (payloads, filling) = (&mut self.payloads, cell.workload.content);
        let mut expected = Vec::new();
        let mut folders = Vec::new();
        let tasks: Vec<Task> = match cell.workload.kind {
            Kind::Download | Kind::Page => {
                let (remote, content) = payloads.file(server, cell.size, filling)?;
                let local = downloads.join(format!("d{serial}"));
                expected.push((local.clone(), content));
                vec![Task::Download { remote, local }]
            }
            Kind::Parallel => {
                let (remote, content) = payloads.file(server, cell.size, filling)?;
                let local = |client: u32| downloads.join(format!("d{serial}-{client}"));
                expected.extend((0..cell.workload.clients).map(|client| (local(client), content)));
                (0..cell.workload.clients)
                    .map(|client| Task::Download { remote: remote.clone(), local: local(client) })
                    .collect()
            }
            Kind::Upload => {
                let (name, content) = payloads.file(client, cell.size, filling)?;
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
                            .join(payloads.file(host, SMALL_FILE, Filling::default())?.0),
                    };
                    if word == NEW {
                        expected.push((
                            path.clone(),
                            payloads.file(server, SMALL_FILE, Filling::default())?.1,
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
    fn transfer(&mut self, cell: &Cell, prepared: &Prepared) -> Result<Seen> {
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
        super::check(&self.interrupted)?;
        let service = self.service(&cell.stack)?;
        let jobs: Vec<Job> = prepared
            .invocations
            .iter()
            .map(|invocation| {
                let mut environment = self.testbed.client.environment(&invocation.argv[0]);
                environment.extend(invocation.environment.clone());
                Job {
                    argv: invocation.argv.clone(),
                    environment,
                    dialogue: invocation.dialogue.clone(),
                }
            })
            .collect();
        let stack = self.wrapped(&cell.stack)?;
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
            parting: service.parting(),
            login,
            marks: Marks {
                request_ns: reports.iter().filter_map(|r| r.marks.request_ns).min(),
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
        report.marks.done_ns.or(service.over_datagrams().then_some(outcome.ended_ns))
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

/// A service's own folder on a host. Its name stands in the configuration of servers
/// and in shell lines.
fn folder_of(host: &Host, stack: &str) -> PathBuf {
    let plain = |c| match c {
        '/' => '-',
        '#' => '.',
        c if c.is_ascii_alphanumeric() || "+-".contains(c) => c,
        _ => '_',
    };
    host.root.join("services").join(stack.chars().map(plain).collect::<String>())
}
