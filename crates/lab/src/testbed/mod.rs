//! Hosts and the link between them. On one machine: three network namespaces,
//! client, router and server, joined by veth. The machine's own network, file
//! system and processes are not touched: the lab lives in a mount namespace of
//! its own, with a private `/run`, and what it builds ends with it.

mod link;
mod netns;
mod selftest;
mod tap;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command as Process;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use crate::agent::Agent;
use crate::command::{Command, Executor, quote};
use crate::error::{Doing, Error, Result};
use crate::link::LinkSpec;
use crate::measure::cgroup::{self, Cgroup};
use crate::plan::{Offload, Plan};
use crate::scratch::{Scratch, run_name};
use crate::service::ServerSpec;

pub(crate) use link::features;
pub use selftest::{LinkReport, SelfTest};
pub(crate) use tap::Tap;

/// What a testbed is built from.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) scratch_parent: PathBuf,
    /// Whether the user chose it: then the files go there, tmpfs or not.
    pub(crate) scratch_chosen: bool,
    /// This program's executable.
    pub(crate) headroom: PathBuf,
    /// Octets that test files and their copies will need.
    pub(crate) scratch_bytes: u64,
    pub(crate) interrupted: Arc<AtomicBool>,
}

/// One end of the link: a namespace, a control group, and the agent in them.
#[derive(Debug)]
pub(crate) struct Host {
    /// Kills everything on the host when dropped; so it goes before the agent.
    pub(crate) cgroup: Option<Cgroup>,
    agent: Option<Agent>,
}

/// A client, a router and a server, and everything they need to be removed.
///
/// Fields are dropped in order: processes first, folders last.
#[derive(Debug)]
pub(crate) struct Testbed {
    pub(crate) client: Host,
    pub(crate) server: Host,
    /// The group of both hosts' groups.
    _cgroup: Option<Cgroup>,
    pub(crate) tap: Option<Tap>,
    pub(crate) client_address: IpAddr,
    pub(crate) server_address: IpAddr,
    executor: Arc<Executor>,
    names: netns::Names,
    mtu: u32,
    congestion_control: String,
    _root_mount: Option<Mount>,
    scratch: Option<Scratch>,
    /// The folder on tmpfs, or on disk, that holds everything of the run.
    pub(crate) root: PathBuf,
    /// Where `root` is, in words.
    pub(crate) root_kind: &'static str,
}

impl Testbed {
    /// Builds hosts and link. Must be called before the process has threads
    /// that need the machine's own mounts.
    pub(crate) fn up(plan: &Plan, settings: &Settings, executor: Arc<Executor>) -> Result<Self> {
        link::require(&plan.link, &executor)?;
        for link in &plan.check_links {
            link::require(link, &executor)?;
        }
        require_plain(&settings.scratch_parent)?;
        let (scratch, id, folder) = if executor.is_dry() {
            let id = "00000000".to_owned();
            let folder = settings.scratch_parent.join(run_name(&id));
            executor.note(|| format!("mkdir {}", folder.display()));
            (None, id, folder)
        } else {
            let scratch = Scratch::create(&settings.scratch_parent)?;
            let (id, folder) = (scratch.id.clone(), scratch.path().to_owned());
            (Some(scratch), id, folder)
        };
        enter_private_mounts(&executor)?;
        let (root, root_mount) = mount_root(&executor, &folder, settings)?;
        let root_kind = if root_mount.is_some() { "tmpfs" } else { "disk" };
        for name in ["files/incoming", "downloads", "home", "credentials", "services"] {
            make_folder(&executor, &root.join(name))?;
        }
        // Pure-FTPd and nginx write uploads as nobody
        executor.run(&Command::new(
            "chown",
            ["65534:65534", &root.join("files/incoming").display().to_string()],
        ))?;

        let names = netns::Names::new(&id);
        let addresses = netns::addresses(plan.family);
        executor.run_all(&netns::commands(&names, plan))?;

        let group_root = cgroup::mounted().unwrap_or_else(|| PathBuf::from("/run/cgroup"));
        if cgroup::mounted().is_none() {
            make_folder(&executor, &group_root)?;
            let target = group_root.display().to_string();
            executor.run(&Command::new("mount", ["-t", "cgroup2", "none", &target]))?;
        }
        let group = group_root.join(run_name(&id));
        let cgroup = make_group(&executor, &group)?;
        let client = Host::new("client", &names.client, &group, settings, &executor)?;
        let server = Host::new("server", &names.server, &group, settings, &executor)?;
        let tap = if executor.is_dry() {
            None
        } else {
            Some(Tap::open(&names.router, netns::ROUTER_TO_CLIENT, addresses.client)?)
        };
        let testbed = Self {
            client,
            server,
            _cgroup: cgroup,
            tap,
            client_address: addresses.client,
            server_address: addresses.server,
            executor,
            names,
            mtu: plan.mtu,
            congestion_control: plan.congestion_control.clone(),
            _root_mount: root_mount,
            scratch,
            root,
            root_kind,
        };
        Ok(testbed)
    }

    /// The run's unique name.
    pub(crate) fn id(&self) -> &str {
        self.scratch.as_ref().map_or("00000000", |scratch| &scratch.id)
    }

    pub(crate) fn executor(&self) -> &Arc<Executor> {
        &self.executor
    }

    /// Octets of IP packet on the link.
    pub(crate) fn mtu(&self) -> u32 {
        self.mtu
    }

    /// Makes the link what `spec` says and tests it; `offload` is what an
    /// unshaped link uses, a shaped one always carries single packets.
    pub(crate) fn set_link(&mut self, spec: &LinkSpec, offload: Offload) -> Result<LinkReport> {
        let offload = if spec.is_unshaped() { offload } else { Offload::PerPacket };
        self.shape(spec, offload)?;
        selftest::run(self, spec, offload)
    }

    /// Makes the link what `spec` says, untested: for counting, not for timing.
    pub(crate) fn shape(&self, spec: &LinkSpec, offload: Offload) -> Result<()> {
        self.executor.run_all(&link::remove(&self.names))?;
        self.executor.run_all(&netns::offload_commands(&self.names, offload))?;
        self.executor.run_all(&link::commands(&self.names, spec))
    }

    /// Frames that the router's interface towards the client has counted, both
    /// ways.
    pub(crate) fn router_frames(&self) -> Result<u64> {
        let command = netns::counters_command(&self.names);
        let said = self.executor.run(&command)?;
        let links: serde_json::Value =
            serde_json::from_str(&said).doing(|| format!("read what `{command}` printed"))?;
        let packets = |way: &str| links[0]["stats64"][way]["packets"].as_u64();
        packets("rx")
            .zip(packets("tx"))
            .map(|(rx, tx)| rx + tx)
            .ok_or_else(|| Error::Failed(format!("`{command}` printed no packet counters")))
    }

    /// Forgets what TCP remembers of the other end.
    pub(crate) fn forget_metrics(&self) -> Result<()> {
        self.executor.run_all(&netns::forget_commands(&self.names))
    }

    /// Starts a server on the server host, in a mount namespace of its own.
    pub(crate) fn start_server(&mut self, name: &str, spec: &ServerSpec) -> Result<()> {
        let environment = self.environment(&spec.argv[0]);
        let argv = isolated(spec);
        let namespace = netns::path(&self.names.server);
        self.executor.note(|| {
            let inside = Command { argv: argv.clone() };
            format!("nsenter --net={namespace} {inside} &")
        });
        let argv = self.resolve(argv)?;
        let Some(agent) = &mut self.server.agent else { return Ok(()) };
        agent.start_server(name, argv, environment)
    }

    /// Waits until a server accepts connections.
    ///
    /// # Errors
    /// It ended before, or did not answer within ten seconds; with its words.
    pub(crate) fn wait_ready(&mut self, name: &str, address: SocketAddr) -> Result<()> {
        let Some(agent) = &mut self.server.agent else { return Ok(()) };
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            let state = agent.server(name, 0)?;
            if let Some(ended) = state.ended {
                return Err(Error::Failed(format!(
                    "the {name} server ended at once ({ended}). It said: {}",
                    last_lines(&state.log)
                )));
            }
            if agent.connects(address)? {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(Error::Failed(format!(
                    "the {name} server does not answer at {address} after 10 s. It said: {}",
                    last_lines(&state.log)
                )));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Refuses a port on which something listens already.
    pub(crate) fn require_free_port(&mut self, name: &str, address: SocketAddr) -> Result<()> {
        let Some(agent) = &mut self.server.agent else { return Ok(()) };
        if agent.connects(address)? {
            return Err(Error::Failed(format!(
                "port {} of the server host is taken before the {name} server has started; \
                 another server of this plan listens there",
                address.port()
            )));
        }
        Ok(())
    }

    pub(crate) fn client_agent(&mut self) -> Result<&mut Agent> {
        self.client.agent.as_mut().ok_or_else(|| Error::Failed("a dry run has no hosts".into()))
    }

    pub(crate) fn server_agent(&mut self) -> Result<&mut Agent> {
        self.server.agent.as_mut().ok_or_else(|| Error::Failed("a dry run has no hosts".into()))
    }

    /// The command line that starts a client, as a person would type it.
    pub(crate) fn as_typed(&self, argv: &[String]) -> String {
        let environment = self.environment(&argv[0]);
        let variables = environment.iter().map(|(name, value)| format!("{name}={}", quote(value)));
        let variables = variables.collect::<Vec<_>>().join(" ");
        let client = Command { argv: argv.to_vec() };
        format!("nsenter --net={} env -i {variables} {client}", netns::path(&self.names.client))
    }

    /// The whole environment of a program under test: nothing of the user's.
    pub(crate) fn environment(&self, program: &str) -> BTreeMap<String, String> {
        let home = self.root.join("home").display().to_string();
        let mut environment: BTreeMap<String, String> = [
            ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
            ("HOME", home.as_str()),
            ("TMPDIR", home.as_str()),
            ("LANG", "C"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into();
        let name = Path::new(program).file_name().map(|name| name.to_string_lossy().into_owned());
        if let Some(program) = name.as_deref().and_then(crate::service::program)
            && let Ok(located) = self.executor.parts().locate(program)
        {
            environment.extend(self.executor.parts().environment(&located));
        }
        environment
    }

    /// Absolute paths in place of the names of known programs.
    fn resolve(&self, mut argv: Vec<String>) -> Result<Vec<String>> {
        if let Some(program) = crate::service::program(&argv[0]) {
            argv[0] = self.executor.parts().locate(program)?.path.display().to_string();
        }
        Ok(argv)
    }
}

impl Host {
    fn new(
        name: &str,
        namespace: &str,
        group: &Path,
        settings: &Settings,
        executor: &Executor,
    ) -> Result<Self> {
        let group = group.join(name);
        let cgroup = make_group(executor, &group)?;
        // The agent joins its group before it becomes itself, so that nothing
        // it ever does is charged to somebody else.
        let script = r#"echo $$ > "$0" && exec "$@""#;
        let headroom = settings.headroom.display().to_string();
        let procs = group.join("cgroup.procs").display().to_string();
        let net = format!("--net={}", netns::path(namespace));
        let command =
            Command::new("nsenter", [&net, "sh", "-c", script, &procs, &headroom, "lab-agent"]);
        executor.note(|| {
            format!("{command}  # starts what follows on the {name}, as `nsenter` would by hand")
        });
        let agent = if executor.is_dry() {
            None
        } else {
            let process: Process = executor.process(&command)?;
            Some(Agent::start(name, process, Arc::clone(&settings.interrupted))?)
        };
        Ok(Self { cgroup, agent })
    }
}

/// The folder's path ends up in configurations of several programs, each with
/// its own idea of quoting.
fn require_plain(folder: &Path) -> Result<()> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    if folder.to_string_lossy().chars().all(plain) {
        return Ok(());
    }
    Err(Error::Plan(format!(
        "the scratch folder {} has a character other than letters, digits, `.`, `_` and `-`, which the servers' \
         configurations cannot hold; choose another with --scratch",
        folder.display()
    )))
}

fn make_group(executor: &Executor, path: &Path) -> Result<Option<Cgroup>> {
    executor.note(|| format!("mkdir {}", path.display()));
    if executor.is_dry() { Ok(None) } else { Cgroup::create(path.to_owned()).map(Some) }
}

fn make_folder(executor: &Executor, path: &Path) -> Result<()> {
    executor.note(|| format!("mkdir -p {}", path.display()));
    if executor.is_dry() {
        return Ok(());
    }
    std::fs::create_dir_all(path).doing(|| format!("create {}", path.display()))
}

/// Leaves the machine's mount namespace and covers `/run`, so that namespaces,
/// sockets and pid files end with this process, however it ends.
fn enter_private_mounts(executor: &Executor) -> Result<()> {
    executor.note(|| "unshare --mount --propagation private sh  # the rest happens inside".into());
    if !executor.is_dry() {
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNS).map_err(|error| {
            Error::Missing(format!(
                "cannot leave the machine's mount namespace ({error}): run as root"
            ))
        })?;
        executor.run(&Command::new("mount", ["--make-rprivate", "/"]))?;
    }
    executor.run(&Command::new("mount", ["-t", "tmpfs", "-o", "mode=755", "none", "/run"]))?;
    Ok(())
}

/// A mount that ends with this value; without it the folder below could not be
/// removed.
#[derive(Debug)]
struct Mount(PathBuf);

impl Drop for Mount {
    fn drop(&mut self) {
        // Fails only where nothing is mounted: in a dry run.
        let _ = nix::mount::umount2(&self.0, nix::mount::MntFlags::MNT_DETACH);
    }
}

/// A tmpfs where the files fit into half of the free memory, else the disk, as
/// where the user chose the folder.
fn mount_root(
    executor: &Executor,
    folder: &Path,
    settings: &Settings,
) -> Result<(PathBuf, Option<Mount>)> {
    let root = folder.join("root");
    make_folder(executor, &root)?;
    let bytes = settings.scratch_bytes;
    if !settings.scratch_chosen && bytes <= available_memory() / 2 {
        let options = format!("mode=755,size={bytes}");
        let target = root.display().to_string();
        executor.run(&Command::new("mount", ["-t", "tmpfs", "-o", &options, "none", &target]))?;
        let mount = Mount(root.clone());
        return Ok((root, Some(mount)));
    }
    if !executor.is_dry() {
        let space = nix::sys::statvfs::statvfs(folder)
            .doing(|| format!("ask {} for its free space", folder.display()))?;
        let free = space.blocks_available() * space.fragment_size();
        if free < bytes {
            return Err(Error::Failed(format!(
                "the scratch folder {} has {} free and this plan needs {} for its files; choose another with --scratch",
                folder.display(),
                crate::units::size(free),
                crate::units::size(bytes)
            )));
        }
    }
    Ok((root, None))
}

fn available_memory() -> u64 {
    std::fs::read_to_string("/proc/meminfo")
        .ok()
        .and_then(|text| {
            let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
            line.split_whitespace().next()?.parse::<u64>().ok()
        })
        .map_or(0, |kib| kib * 1024)
}

/// The command that starts a server in a mount namespace with a private `/run`
/// and its own account files.
fn isolated(spec: &ServerSpec) -> Vec<String> {
    let mut script = vec!["mount -t tmpfs -o mode=755 none /run".to_owned()];
    script.extend(spec.run_folders.iter().map(|folder| format!("mkdir -p {folder}")));
    script.extend(spec.private_files.iter().map(|(from, to)| {
        // a system without the file has nothing to hide
        format!("{{ [ ! -e {to} ] || mount --bind {} {to}; }}", quote(&from.display().to_string()))
    }));
    script.push(r#"exec "$0" "$@""#.to_owned());
    let mut argv: Vec<String> =
        ["unshare", "--mount", "--propagation", "private", "sh", "-c"].map(String::from).to_vec();
    argv.push(script.join(" && "));
    argv.extend(spec.argv.iter().cloned());
    argv
}

pub(crate) fn last_lines(log: &[(u64, String)]) -> String {
    let from = log.len().saturating_sub(5);
    let lines: Vec<&str> = log[from..].iter().map(|(_, line)| line.as_str()).collect();
    if lines.is_empty() { "(nothing)".to_owned() } else { lines.join(" | ") }
}
