//! Hosts and the link between them: two real machines (`ssh`), or one. On one: three network namespaces,
//! client, router and server, joined by veth. The machine's own network, file
//! system and processes are not touched: the lab lives in a mount namespace of
//! its own, with a private `/run`, and what it builds ends with it.

mod clock;
mod emulator;
mod ends;
mod groups;
mod limits;
mod link;
mod mounts;
mod netns;
mod probes;
mod processors;
mod readings;
mod router;
mod rules;
mod selftest;
mod spec;
mod ssh;
mod switch;
mod verdict;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, MutexGuard};

use headroom_lab_results::schema::{EmulatorReport, HostRecord, LinkReport, SshHosts};
use headroom_lab_trace::{ClientSide, Framing};
use headroom_link_spec::LinkSpec;

use crate::agent::Agent;
use crate::capture::{RunningCapture, Sink};
use crate::command::{Command, Executor};
use crate::error::{Error, Result};
use crate::host::Host;
use crate::hosts::RealHost;
use crate::machine;
use crate::namespace;
use crate::privileges::Privileges;
use crate::reaper::Reaper;
use crate::resources::cpu::Meter;
use crate::role::Role;
use crate::scratch::{self, Scratch, run_name};

use groups::Groups;
use mounts::Mount;

pub use clock::{Clock, Taken};
pub use ends::Ends;
pub use limits::{cpu_time, limits};
pub use link::Kernel;
pub use netns::{HOST_INTERFACE, ethernet_address};
pub use processors::Processors;
pub use readings::{Counters, CpuReading};
pub(crate) use router::Router;
pub use rules::needed as needs_rules;
pub use spec::TestbedSpec;
pub use spec::{Family, HOST_DEFAULT, LinkBackend, Offload};

/// The settings of a testbed.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The folder in which the run's own is made.
    pub scratch_parent: PathBuf,
    /// Whether the user chose it: then the files go there, tmpfs or not.
    pub scratch_chosen: bool,
    /// This program's executable.
    pub headroom: PathBuf,
    /// Bytes that test files and their copies will need.
    pub scratch_bytes: u64,
    /// Whether a link that fails its self-test is used.
    pub allow_failed_link_test: bool,
    /// Set when the user asks to stop.
    pub interrupted: Arc<AtomicBool>,
}

/// The name of a dry run, which makes nothing that needs one of its own.
const NO_ID: &str = "00000000";
/// Bytes of an Ethernet header.
const ETHERNET: u32 = 14;

/// A client and a server, what is between them, and everything that they need to
/// be removed.
///
/// Fields are dropped in order: processes first, folders last.
#[derive(Debug)]
pub struct Testbed {
    place: Place,
    /// The host that starts transfers.
    pub client: Host,
    /// The host of the servers.
    pub server: Host,
    /// At the router; none of real machines, and in a dry run.
    pub router_capture: Option<RunningCapture>,
    executor: Arc<Executor>,
    mtu: u32,
    congestion_control: String,
    _root_mount: Option<Mount>,
    scratch: Option<Scratch>,
    /// The kind of file system that has the hosts' files, in words.
    pub root_kind: &'static str,
    /// Last, as a zombie is reaped after everything that waits for it.
    _reaper: Option<Reaper>,
}

/// The kind of hosts.
#[derive(Debug)]
enum Place {
    Here(Box<Namespaces>),
    Machines(ssh::Pair),
}

/// Three namespaces of this machine.
#[derive(Debug)]
struct Namespaces {
    /// Dropped first, so that the emulator ends by itself.
    router: Router,
    /// Dropped next: it ends every process of the run.
    groups: Option<Groups>,
    names: netns::Names,
    meter: Meter,
    /// None: all parts of the run share all processors.
    processors: Option<Processors>,
    allow_failed_link_test: bool,
}

impl Testbed {
    /// Builds hosts and link. Must be called before the process has threads
    /// that need the machine's own mounts.
    pub fn up(spec: &TestbedSpec, settings: &Settings, executor: Arc<Executor>) -> Result<Self> {
        match &spec.hosts {
            None => Self::up_here(spec, settings, executor),
            Some(hosts) => {
                let (client, server, pair) = ssh::up(spec, hosts, settings, &executor)?;
                Ok(Self {
                    place: Place::Machines(pair),
                    client,
                    server,
                    router_capture: None,
                    executor,
                    mtu: spec.mtu,
                    congestion_control: spec.congestion_control.clone(),
                    _root_mount: None,
                    scratch: None,
                    root_kind: "each host",
                    _reaper: None,
                })
            }
        }
    }

    /// Looks at two real hosts, without measuring anything; for each, why it could not be
    /// reached or used, where it could not.
    pub fn survey(
        spec: &TestbedSpec,
        hosts: &SshHosts,
        settings: &Settings,
        executor: &Arc<Executor>,
    ) -> [Result<RealHost>; 2] {
        ssh::survey(spec, hosts, settings, executor)
    }

    fn up_here(spec: &TestbedSpec, settings: &Settings, executor: Arc<Executor>) -> Result<Self> {
        let privileges = Privileges::of_this_process();
        let kernel = Router::require(spec, &executor)?;
        let family = spec.family.unwrap_or_else(Family::of_this_machine);
        if family == Family::Ipv6 && !machine::has_ipv6() {
            return Err(Error::Missing(
                "the plan says `family = \"ipv6\"` and this kernel has IPv6 switched off (ipv6.disable=1, or built \
                 without): write `family = \"ipv4\"`, or name no family"
                    .into(),
            ));
        }
        scratch::require_plain(&settings.scratch_parent)?;
        let folder_of = |id: &str| settings.scratch_parent.join(run_name(id));
        let scratch = executor.act(
            || format!("mkdir {}", folder_of(NO_ID).display()),
            || Scratch::create(&settings.scratch_parent),
        )?;
        let id = scratch.as_ref().map_or(NO_ID, |scratch| &scratch.id).to_owned();
        mounts::enter_private(&executor)?;
        let (root, root_mount) = mounts::mount_root(&executor, &folder_of(&id), settings)?;
        let root_kind = if root_mount.is_some() { "tmpfs" } else { "disk" };
        let names = netns::Names::new(&id);
        let addresses = netns::addresses(family);
        executor.run_all(&netns::commands(&names, spec, family))?;

        // none in a dry run, which starts nothing
        let processors = executor.really(|| Ok(Processors::of_this_machine()))?.flatten();
        if let Some(processors) = &processors {
            processors.enter_link()?;
        }
        let group = groups::parent(&executor)?.map(|parent| parent.join(run_name(&id)));
        let group = group.as_deref();
        let reaper = executor.really(|| Ok(Reaper::new(run_name(&id))))?;
        let groups = Groups::new(&executor, group)?;
        let host = |role: Role, namespace: &str, address: IpAddr| -> Result<Host> {
            let net = format!("--net={}", namespace::path(namespace));
            let start =
                || groups::start_agent(role, &net, group, groups.as_ref(), settings, &executor);
            let agent = match &processors {
                Some(processors) => processors.start_on(role, start)?,
                None => start()?,
            };
            let (root, headroom) = (root.clone(), settings.headroom.clone());
            let by_hand = format!("nsenter {net}");
            let executor = Arc::clone(&executor);
            let host = Host::new(role, address, root, headroom, by_hand, executor, agent);
            Ok(host.with_privileges(privileges))
        };
        let client = host(Role::Client, &names.client, addresses.client)?;
        let server = host(Role::Server, &names.server, addresses.server)?;
        prepare_folders(&server)?;
        let router =
            Router::new(spec, family, kernel, &names, group, &settings.headroom, &executor)?;
        executor.really(|| {
            client.agent()?.watch(router.alarm());
            server.agent()?.watch(router.alarm());
            Ok(())
        })?;
        let meter = Meter::new(spec.kernel_threads_work);
        let router_capture = executor.really(|| {
            let interface = netns::ROUTER_TO_CLIENT;
            let side = ClientSide::network(addresses.client, netns::network_bits(family));
            let side = side.with_interface(netns::ethernet_address(Role::Client));
            RunningCapture::open(&names.router, interface, Framing::Ethernet, side)
        })?;
        Ok(Self {
            place: Place::Here(Box::new(Namespaces {
                router,
                groups,
                names,
                meter,
                processors,
                allow_failed_link_test: settings.allow_failed_link_test,
            })),
            client,
            server,
            router_capture,
            executor,
            mtu: spec.mtu,
            congestion_control: spec.congestion_control.clone(),
            _root_mount: root_mount,
            scratch,
            root_kind,
            _reaper: reaper,
        })
    }

    /// The run's unique name.
    pub fn id(&self) -> &str {
        match &self.place {
            Place::Here(_) => self.scratch.as_ref().map_or(NO_ID, |scratch| &scratch.id),
            Place::Machines(pair) => &pair.id,
        }
    }

    /// Bytes of the largest Ethernet frame, without its checksum.
    pub fn largest_frame(&self) -> u32 {
        self.mtu + ETHERNET
    }

    /// Bytes of IP packet on the link.
    pub fn mtu(&self) -> u32 {
        self.mtu
    }

    /// Makes the link what `spec` says and tests it; `offload` is what an
    /// unshaped link uses, a shaped one always carries single packets. A real
    /// link is only looked at.
    pub fn set_link(&mut self, spec: &LinkSpec, offload: Offload) -> Result<LinkReport> {
        let here = match &mut self.place {
            Place::Here(here) => here,
            Place::Machines(_) if self.executor.is_dry() => {
                return Ok(LinkReport::new(spec, "not made", Offload::On.name()));
            }
            Place::Machines(pair) => {
                let round_trips = pair.round_trips(&self.client, &self.server)?;
                return Ok(LinkReport::real(spec, &pair.backend(), round_trips));
            }
        };
        let (offload, commands) = here.router.make(spec, offload)?;
        let backend = here.router.backend();
        let allow_failure = here.allow_failed_link_test;
        let self_test = selftest::run(self, spec, backend, allow_failure)?;
        self.router()?.begin_use()?;
        let report = LinkReport::new(spec, backend.words(spec), offload.name());
        Ok(LinkReport { self_test, commands, ..report })
    }

    /// Makes the link what `spec` says, by the kernel and untested: for counting,
    /// not for timing.
    pub fn shape(&mut self, spec: &LinkSpec, offload: Offload) -> Result<()> {
        self.router()?.make_by_kernel(spec, offload)
    }

    /// Returns the router between the hosts of one machine.
    fn router(&mut self) -> Result<&mut Router> {
        match &mut self.place {
            Place::Here(here) => Ok(&mut here.router),
            Place::Machines(_) => Err(no_router()),
        }
    }

    fn names(&self) -> Result<&netns::Names> {
        match &self.place {
            Place::Here(here) => Ok(&here.names),
            Place::Machines(_) => Err(no_router()),
        }
    }

    /// Reports the emulator's work since the link was set; none: there is no emulator.
    pub fn emulator_report(&mut self) -> Result<Option<EmulatorReport>> {
        match &mut self.place {
            Place::Here(here) => here.router.emulator_report(),
            Place::Machines(_) => Ok(None),
        }
    }

    /// # Errors
    /// The emulator has ended, or a real host has vanished.
    pub fn require_link(&self) -> Result<()> {
        match &self.place {
            Place::Here(here) => here.router.require_link(),
            Place::Machines(pair) => pair.require(),
        }
    }

    /// Whether this kernel can shape the link that packets are counted on.
    pub fn has_htb(&self) -> bool {
        matches!(&self.place, Place::Here(here) if here.router.has_htb())
    }

    /// Whether short transfers pass the link no faster than long ones.
    pub fn serialises(&self) -> bool {
        match &self.place {
            Place::Here(here) => here.router.backend().serialises(),
            Place::Machines(_) => true,
        }
    }

    /// Returns the clock that sees packets between the hosts; none in a dry run.
    pub fn clock(&self) -> Option<Clock<'_>> {
        match &self.place {
            Place::Machines(_) if !self.executor.is_dry() => Some(Clock::AtClient(&self.client)),
            _ => self.router_capture.as_ref().map(Clock::Here),
        }
    }

    /// A second capture where the first one is, of whole frames.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn capture_whole<S: Sink>(&self, sink: S) -> Result<RunningCapture<S>> {
        self.capture(self.largest_frame() as usize, sink)
    }

    /// The same, of the first `snaplen` bytes of each frame.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn capture<S: Sink>(&self, snaplen: usize, sink: S) -> Result<RunningCapture<S>> {
        let (router, interface) = (&self.names()?.router, netns::ROUTER_TO_CLIENT);
        RunningCapture::start(router, interface, Framing::Ethernet, snaplen, sink)
    }

    /// A capture on a tunnel's interface on the client, where `client` is its
    /// address and frames begin as `framing` says; none in a dry run.
    pub fn capture_client(
        &self,
        interface: &str,
        framing: Framing,
        client: IpAddr,
    ) -> Result<Option<RunningCapture>> {
        self.executor
            .really(|| RunningCapture::open(&self.names()?.client, interface, framing, client))
    }

    /// The two ends of an instance of a layer that has addresses of its own on the
    /// link; they are there after [`Testbed::add_own_ends`].
    pub fn own_ends(&self, number: u16) -> Ends {
        let netns::Addresses { client, server } = netns::own_addresses(self.family(), number);
        Ends { client, server, mtu: self.mtu, ports: self.layer_ports() }
    }

    /// Gives both hosts these addresses, between which TCP has that congestion control.
    ///
    /// # Errors
    /// A command failed, or the hosts are real.
    pub fn add_own_ends(&self, ends: &Ends, congestion_control: &str) -> Result<()> {
        let own = netns::Addresses { client: ends.client, server: ends.server };
        let commands = netns::own_commands(self.names()?, &own, congestion_control);
        self.executor.run_all(&commands)
    }

    /// Asks both hosts which congestion control TCP has between these addresses.
    ///
    /// # Errors
    /// It is another one than `wanted`.
    pub fn verify_congestion_control(&self, ends: &Ends, wanted: &str) -> Result<()> {
        let verify =
            || selftest::verify_congestion_control(self, [ends.client, ends.server], wanted);
        self.executor.really(verify)?;
        Ok(())
    }

    /// The address family between the hosts.
    pub fn family(&self) -> Family {
        Family::of(self.client.address)
    }

    /// Forgets what TCP remembers of the other end.
    pub fn forget_metrics(&self) -> Result<()> {
        match &self.place {
            // the kernel lets only root of the machine do it, and none are kept
            Place::Here(_) if !Privileges::of_this_process().is_root() => Ok(()),
            Place::Here(here) => self.executor.run_all(&netns::forget_commands(&here.names)),
            Place::Machines(pair) => pair.forget_metrics(&self.client, &self.server),
        }
    }

    /// The ports of layers begin behind this one.
    pub fn layer_ports(&self) -> u16 {
        match &self.place {
            Place::Here(_) => Ends::PORTS,
            Place::Machines(pair) => pair.hosts().layers(),
        }
    }

    /// Returns the records of real machines; none of one machine.
    pub fn host_records(&self) -> &[HostRecord] {
        match &self.place {
            Place::Here(_) => &[],
            Place::Machines(pair) => &pair.records,
        }
    }

    /// Returns the processors of client, server and link; none: they share all, or are on
    /// machines of their own.
    pub fn processors(&self) -> Option<&Processors> {
        match &self.place {
            Place::Here(here) => here.processors.as_ref(),
            Place::Machines(_) => None,
        }
    }

    /// Names the congestion control of TCP on both hosts.
    pub fn congestion_control(&self) -> String {
        match &self.place {
            Place::Here(_) => format!("{} (by route, verified)", self.congestion_control),
            Place::Machines(pair) => pair.congestion_control.clone(),
        }
    }

    /// Refuses a port on which something listens already.
    pub fn require_free_port(&self, name: &str, address: SocketAddr) -> Result<()> {
        if self.server.really(|| self.server.connects(address))? == Some(true) {
            return Err(Error::Failed(format!(
                "port {} of the server host is taken before the {name} server has started; \
                 something else listens there",
                address.port()
            )));
        }
        Ok(())
    }

    /// The host of this role.
    pub fn host(&self, role: Role) -> &Host {
        if role == Role::Client { &self.client } else { &self.server }
    }

    /// Whether both hosts are namespaces of this machine: they see the same files
    /// and the same clock.
    pub fn one_machine(&self) -> bool {
        matches!(self.place, Place::Here(_))
    }

    pub(crate) fn client_agent(&self) -> Result<MutexGuard<'_, Agent>> {
        self.client.agent()
    }

    pub(crate) fn server_agent(&self) -> Result<MutexGuard<'_, Agent>> {
        self.server.agent()
    }
}

fn no_router() -> Error {
    Error::Failed("there is no router between two real machines".into())
}

/// The folders of a run.
fn prepare_folders(host: &Host) -> Result<()> {
    let folders = ["files/incoming", "downloads", "home", "credentials", "applications"];
    host.make_folders(&folders.map(|name| host.root.join(name)))?;
    if host.has_one_user_id() {
        return Ok(());
    }
    // Pure-FTPd and nginx write uploads as nobody
    let incoming = host.root.join("files/incoming").display().to_string();
    host.run(&Command::new("chown", ["65534:65534", &incoming])).map(drop)
}
