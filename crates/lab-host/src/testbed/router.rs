//! Connects the hosts: by a router that the kernel shapes, or by a link that the emulator
//! makes; and changes from one to the other.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use headroom_lab_results::schema::{EmulatorCounters, EmulatorReport};
use headroom_link_spec::LinkSpec;

use super::emulator::{Alarm, Emulator};
use super::link::{self, Backend, Kernel};
use super::netns::{self, Names};
use super::rules;
use super::spec::{Family, LinkBackend, Offload, TestbedSpec};
use super::switch;
use crate::command::{Command, Executor};
use crate::error::{Error, Result};
use crate::namespace;
use crate::programs::NSENTER;
use crate::resources::{Processes, cgroup};

/// The router's namespace with its processes, and what makes the link there.
#[derive(Debug)]
pub(crate) struct Router {
    emulator: Option<InUse>,
    /// Whether rules were made that look at packets' headers.
    ruled: bool,
    /// Of the emulator, so that its CPU time is neither side's, nor background load.
    pub(crate) processes: Option<Processes>,
    backend: Backend,
    wire: bool,
    /// Whether MACsec frames are to be passed on,
    switches_macsec: bool,
    /// and whether they are: the wire of the emulator needs nothing for it.
    is_switch: bool,
    wish: Option<LinkBackend>,
    kernel: Kernel,
    seed: u64,
    headroom: PathBuf,
    group: Option<PathBuf>,
    names: Names,
    family: Family,
    executor: Arc<Executor>,
    alarm: Alarm,
}

/// An emulator, and its counters when its use began.
#[derive(Debug)]
struct InUse {
    process: Emulator,
    since: Instant,
    counters: EmulatorCounters,
    cpu_s: Option<f64>,
}

impl Router {
    /// Refuses a plan with a link that cannot be made as it wishes.
    pub(super) fn require(spec: &TestbedSpec, executor: &Executor) -> Result<Kernel> {
        let kernel = Kernel::probe(executor);
        if !kernel.veth && !executor.is_dry() {
            return Err(Error::Missing(
                "this kernel makes no pairs of interfaces (veth), of which the lab's network is made: load the \
                 module veth, or use a kernel that has it"
                    .into(),
            ));
        }
        for link in &spec.links {
            Backend::choose(link, spec.link_backend, kernel)?;
        }
        Ok(kernel)
    }

    pub(super) fn new(
        spec: &TestbedSpec,
        family: Family,
        kernel: Kernel,
        names: &Names,
        group: Option<&Path>,
        headroom: &Path,
        executor: &Arc<Executor>,
    ) -> Result<Self> {
        let group = group.map(|group| group.join("router"));
        let processes = match &group {
            Some(group) => super::groups::make_group(executor, group)?.map(Processes::Group),
            None => executor.really(|| Ok(Processes::of_child()))?,
        };
        Ok(Self {
            emulator: None,
            ruled: false,
            processes,
            backend: Backend::Veth,
            wire: false,
            switches_macsec: spec.switches_macsec,
            is_switch: false,
            wish: spec.link_backend,
            kernel,
            seed: spec.seed,
            headroom: headroom.to_owned(),
            group,
            names: names.clone(),
            family,
            executor: Arc::clone(executor),
            alarm: Alarm::default(),
        })
    }

    /// Raised when what makes the link has ended by itself.
    pub(super) fn alarm(&self) -> &Alarm {
        &self.alarm
    }

    /// Returns the backend of the present link.
    pub(crate) fn backend(&self) -> Backend {
        self.backend
    }

    /// Whether this kernel has HTB.
    pub(crate) fn has_htb(&self) -> bool {
        self.kernel.htb
    }

    /// Makes the link by what the plan wishes, or by what is best for it; an
    /// unshaped one with `offload`, any other without. Returns the offload used,
    /// and the commands that made the link.
    pub(super) fn make(
        &mut self,
        spec: &LinkSpec,
        offload: Offload,
    ) -> Result<(Offload, Vec<String>)> {
        let backend = Backend::choose(spec, self.wish, self.kernel)?;
        self.make_by(backend, spec, offload)
    }

    /// The same, by the kernel, whatever the plan wishes.
    pub(super) fn make_by_kernel(&mut self, spec: &LinkSpec, offload: Offload) -> Result<()> {
        let backend = Backend::choose(spec, None, self.kernel)?;
        self.make_by(backend, spec, offload).map(drop)
    }

    fn make_by(
        &mut self,
        backend: Backend,
        spec: &LinkSpec,
        offload: Offload,
    ) -> Result<(Offload, Vec<String>)> {
        let offload = if backend == Backend::Veth { offload } else { Offload::Off };
        self.emulator = None; // ends it
        self.backend = backend;
        self.executor.run_all(&link::remove(&self.names))?;
        if std::mem::take(&mut self.ruled) {
            self.executor.run(&rules::remove(&self.names))?;
        }
        self.executor.run_all(&netns::offload_commands(&self.names, offload))?;
        let wire = backend == Backend::Emulator;
        if wire != self.wire {
            self.executor.run_all(&netns::wire_commands(&self.names, self.family, wire))?;
            self.wire = wire;
        }
        let switches = self.switches_macsec && !wire;
        if switches != self.is_switch {
            let change = if switches { switch::make } else { switch::remove };
            self.executor.run_all(&change(&self.names))?;
            self.is_switch = switches;
        }
        if wire {
            return Ok((offload, vec![self.start_emulator(spec)?]));
        }
        let mut commands = link::commands(&self.names, spec);
        self.ruled = rules::needed(spec);
        commands.extend(rules::make(&self.names, spec));
        self.executor.run_all(&commands)?;
        Ok((offload, commands.iter().map(ToString::to_string).collect()))
    }

    /// Starts the emulator, or starts it anew; the hosts must be on a wire.
    /// Returns its command.
    pub(super) fn start_emulator(&mut self, spec: &LinkSpec) -> Result<String> {
        self.emulator = None; // two of them would double every frame
        let folder = spec.traces().next().map(|trace| trace.folder().display().to_string());
        let folder = folder.map(|folder| ["--trace-folder".to_owned(), folder]);
        let link = Command::new(
            self.headroom.display().to_string(),
            ["link", "--json", "--a", netns::ROUTER_TO_CLIENT, "--b", netns::ROUTER_TO_SERVER]
                .map(String::from)
                .into_iter()
                .chain(["--spec".into(), spec.to_string()])
                .chain(["--seed".into(), self.seed.to_string()])
                .chain(folder.into_iter().flatten()),
        );
        let net = format!("--net={}", namespace::path(&self.names.router));
        let mut command = Command::new(NSENTER, [&net]);
        if let Some(group) = &self.group {
            let procs = group.join("cgroup.procs").display().to_string();
            command.args(["sh", "-c", cgroup::JOIN, &procs]);
        }
        let command = command.running(link.clone());
        let line = || format!("{command} &  # makes the link for as long as it runs");
        self.emulator = self.executor.act(line, || {
            let process = self.executor.process(&command)?;
            let process = Emulator::start(process, &spec.to_string(), &self.alarm)?;
            if let Some(processes) = &self.processes {
                processes.descend_from(process.pid());
            }
            Ok(InUse {
                process,
                since: Instant::now(),
                counters: EmulatorCounters::default(),
                cpu_s: self.cpu_seconds(),
            })
        })?;
        Ok(link.to_string())
    }

    /// Begins to count the emulator's packets and CPU time as use.
    pub(super) fn begin_use(&mut self) -> Result<()> {
        let cpu_s = self.cpu_seconds();
        if let Some(emulator) = &mut self.emulator {
            emulator.counters = emulator.process.counters()?;
            emulator.since = Instant::now();
            emulator.cpu_s = cpu_s;
        }
        Ok(())
    }

    /// Reports the emulator's work since its use began; none: there is no emulator.
    pub(crate) fn emulator_report(&mut self) -> Result<Option<EmulatorReport>> {
        let (now_s, seed) = (self.cpu_seconds(), self.seed);
        let Some(emulator) = &mut self.emulator else { return Ok(None) };
        let now = emulator.process.counters()?;
        Ok(Some(EmulatorReport {
            counters: EmulatorCounters {
                down: now.down.since(&emulator.counters.down),
                up: now.up.since(&emulator.counters.up),
            },
            cpu_seconds: now_s.zip(emulator.cpu_s).map(|(now, then)| now - then),
            seconds: emulator.since.elapsed().as_secs_f64(),
            seed,
        }))
    }

    /// # Errors
    /// The emulator has ended by itself.
    pub(crate) fn require_link(&self) -> Result<()> {
        self.alarm.get().map_or(Ok(()), |why| Err(Error::Ended(why.clone())))
    }

    fn cpu_seconds(&self) -> Option<f64> {
        self.processes.as_ref()?.cpu_seconds(None).ok()
    }
}
