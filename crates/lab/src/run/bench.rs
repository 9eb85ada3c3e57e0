//! The testbed with a run's servers and layers: brought up, resumed for a cell, asked
//! whether it still runs.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use headroom_lab_host::error::{self, Error, Result};
use headroom_lab_host::host::{Host, last_lines};
use headroom_lab_host::role::Role;
use headroom_lab_host::testbed::Testbed;
use headroom_lab_results::schema::LayerSetup;

use super::cell::Cell;
use super::stack_instance::{Numbers, StackInstance};
use crate::application::{Application, SSH_KEYGEN, Site, write_credentials};
use crate::layer::loopback;
use crate::link::LinkSpec;
use crate::plan::{Plan, Resolver};
use crate::workload::Payloads;

const NAME_SERVER_PORT: u16 = 53;

/// The testbed with its servers, ready to measure.
pub(super) struct Bench<'a> {
    plan: &'a Plan,
    pub(super) testbed: Testbed,
    pub(super) payloads: Payloads,
    pub(super) interrupted: Arc<AtomicBool>,
    stacks: BTreeMap<String, StackInstance>,
    pub(super) serial: u32,
}

impl<'a> Bench<'a> {
    pub(super) fn new(
        plan: &'a Plan,
        testbed: Testbed,
        interrupted: Arc<AtomicBool>,
    ) -> Result<Self> {
        let mut stacks: BTreeMap<String, StackInstance> = BTreeMap::new();
        let mut numbers = Numbers::default();
        let mut taken_ports = BTreeSet::new();
        for (planned, nth) in plan.stacks.iter().zip(0..) {
            let (name, application) = (&planned.stack.name, &planned.stack.application);
            let taken = |port: u16| taken_ports.contains(&port);
            // what is alone at its address has the port that routers know
            let alone = application.shares_its_port()
                && planned.stack.layers.iter().any(|layer| layer.kind().is_network());
            // a second server of an application listens elsewhere
            let copies = (0..6).map(|n| n * 10_000).chain((1..10).map(|n| n * 1000));
            // and many of one that is tried in many ways, beside each of these
            let copies = copies
                .clone()
                .chain((1..20).flat_map(move |by| copies.clone().map(move |copy| copy + by)));
            let free = || match alone {
                true => Some(application.port()),
                false => copies.map(|copy| application.port() + copy).find(|&p| !taken(p)),
            };
            // and on a real host its own ports are taken
            let port =
                plan.hosts.as_ref().map_or_else(free, |hosts| Some(hosts.port(nth))).ok_or_else(
                    || {
                        let name = application.title();
                        Error::Plan(format!("more than 300 stacks with `{name}` in one plan"))
                    },
                )?;
            let congestion = &plan.congestion_control;
            let instance = StackInstance::new(planned, &testbed, port, congestion, &mut numbers)?;
            if !alone {
                taken_ports.insert(port);
            }
            stacks.insert(name.clone(), instance);
        }
        let mut names = vec![testbed.server.address, loopback(testbed.family())];
        names.extend(stacks.values().map(|stack| stack.connects.ip()));
        names.sort();
        names.dedup();
        let keys = plan.programs().contains(&SSH_KEYGEN);
        write_credentials(&testbed.client, &testbed.server, testbed.one_machine(), &names, keys)?;
        let payloads = Payloads::new(plan.seed);
        Ok(Self { plan, testbed, payloads, interrupted, stacks, serial: 0 })
    }

    /// Starts the layers and the server of each stack and waits until all answer.
    pub(super) fn start_servers(&mut self) -> Result<()> {
        if let Some(resolver) = self.resolver() {
            let (server, address) = (&self.testbed.server, (resolver, NAME_SERVER_PORT).into());
            server.really(|| server.agent()?.swallow(address))?;
        }
        // one after the other: some layers need ports that only one at a time can have
        for planned in &self.plan.stacks {
            let (name, application) = (&planned.stack.name, &planned.stack.application);
            if let Some(stack) = self.stacks.get_mut(name) {
                stack.start(&self.testbed)?;
            }
            for host in [&self.testbed.client, &self.testbed.server] {
                host.make_folders(&[folder_of(host, name)])?;
            }
            let spec = application.server(&self.site(name, Role::Server)?)?;
            let address = self.instance(name)?.listens;
            self.testbed.require_free_port(name, address)?;
            self.testbed.server.start(name, &spec)?;
            self.testbed.server.wait_ready(name, address, &spec)?;
            if let Some(stack) = self.stacks.get_mut(name) {
                stack.quiesce(&self.testbed)?;
            }
        }
        Ok(())
    }

    /// Sets up the layers of all stacks, apart from any transfer.
    pub(super) fn set_ups(&mut self, link: &LinkSpec) -> Result<Vec<LayerSetup>> {
        let quiet = quiet(link.longest_round_trip());
        let mut rows = Vec::new();
        for planned in self.plan.stacks.iter().filter(|p| !p.stack.layers.is_empty()) {
            error::check(&self.interrupted)?;
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

    /// Re-seeds the random login delay of a cell's server, before each sample.
    pub(super) fn reseed_login_delay(&mut self, cell: &Cell) -> Result<()> {
        self.serial += 1;
        let application = self.application(&cell.stack)?;
        let says =
            application.reseed_login_delay(&self.site(&cell.stack, Role::Server)?, self.serial)?;
        says.map_or(Ok(()), |says| self.testbed.server.reload(&cell.stack, says))
    }

    /// Resumes the layers of a cell, before its transfers.
    pub(super) fn resume(&mut self, cell: &Cell) -> Result<()> {
        self.stacks.get_mut(&cell.stack).map_or(Ok(()), |stack| stack.resume(&self.testbed))
    }

    /// Quiesces the layers of a cell, after its transfers: they send nothing.
    pub(super) fn quiesce(&mut self, cell: &Cell) -> Result<()> {
        self.stacks.get_mut(&cell.stack).map_or(Ok(()), |stack| stack.quiesce(&self.testbed))
    }

    pub(super) fn instance(&self, stack: &str) -> Result<&StackInstance> {
        self.stacks.get(stack).ok_or_else(|| Error::Failed(format!("no server for {stack}")))
    }

    /// A stack's layers, and the testbed that they are in.
    pub(super) fn instance_mut(&mut self, stack: &str) -> Result<(&mut StackInstance, &Testbed)> {
        let found = self.stacks.get_mut(stack);
        let found = found.ok_or_else(|| Error::Failed(format!("no server for {stack}")))?;
        Ok((found, &self.testbed))
    }

    pub(super) fn interrupted(&self) -> &AtomicBool {
        &self.interrupted
    }

    /// Returns the error, or names a server of this run that has ended as its cause.
    pub(super) fn attribute_failure(&mut self, error: Error) -> Error {
        if matches!(error, Error::Interrupted | Error::Ended(_)) {
            return error;
        }
        match self.require_servers() {
            Err(Error::Ended(died)) => Error::Ended(format!("{died}. First seen as: {error}")),
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

    /// Whether all runs that a transfer of a cell needs.
    pub(super) fn require_running(&self, cell: &Cell) -> Result<()> {
        self.testbed.require_link()?;
        self.instance(&cell.stack)?.require_server(&self.testbed)?;
        self.require_application(&cell.stack)
    }

    /// Whether the application's server of a stack still runs.
    pub(super) fn require_application(&self, stack: &str) -> Result<()> {
        let state = self.testbed.server.server(stack, 0)?;
        state.ended.map_or(Ok(()), |ended| {
            Err(Error::Ended(format!(
                "the {stack} server ended in the middle of the run ({ended}). It last said: {}",
                last_lines(&state.log)
            )))
        })
    }

    /// The place of a stack's application on one of the hosts.
    pub(super) fn site(&self, stack: &str, role: Role) -> Result<Site<'_>> {
        let (client, server) = (&self.testbed.client, &self.testbed.server);
        let (host, peer) = if role == Role::Client { (client, server) } else { (server, client) };
        let instance = self.instance(stack)?;
        let address = if role == Role::Client { instance.connects } else { instance.listens };
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

    pub(super) fn application(&self, stack: &str) -> Result<&'a dyn Application> {
        let planned =
            self.plan.stack(stack).ok_or_else(|| Error::Plan(format!("no stack {stack}")))?;
        Ok(&*planned.stack.application)
    }
}

/// An application's own folder on a host. Its name stands in the configuration of servers
/// and in shell lines.
fn folder_of(host: &Host, stack: &str) -> PathBuf {
    let plain = |c| match c {
        '/' => '-',
        '#' => '.',
        c if c.is_ascii_alphanumeric() || "+-".contains(c) => c,
        _ => '_',
    };
    host.root.join("applications").join(stack.chars().map(plain).collect::<String>())
}

/// Returns the time after which packets in flight have arrived.
pub(super) fn quiet(round_trip: Duration) -> Duration {
    Duration::from_millis(20) + 2 * round_trip
}
