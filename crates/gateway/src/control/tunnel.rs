//! A tunnel from up to down: starts and stops ledger, host setup and datapath in a safe order.

use std::collections::{BTreeSet, HashSet};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use headroom_file_lock::LockedFile;
use headroom_ipsec::spec::Action;
use headroom_ipsec::{Engine, Event, PeerMoved, PolicySpec, SaSpec};
use headroom_netio::Tun;

use super::error::{Doing, Error};
use super::run_folder::{RunFolder, State};
use super::status::{self, Rates, Status};
use crate::config::{Config, IkePeer, Purpose, Source};
use crate::datapath::tracer::Trace;
use crate::datapath::{DEFAULT_MARK, Datapath, Ike, IkeDatagram, Settings};
use crate::host::{self, Host, Setup};
use crate::ike::{IkeService, KeyLog, Report};
use crate::ledger::{LedgerPaths, LedgerWriter};

/// The options of a tunnel.
#[derive(Debug, Clone)]
pub struct Options {
    /// The configuration file.
    pub file: PathBuf,
    /// Accept keys that are missing from the ledger as new.
    pub new_keys: bool,
    /// The folder of a log of the keys that IKE negotiates.
    pub key_log: Option<PathBuf>,
    /// The folder of socket and state file.
    pub run: RunFolder,
}

/// Datagrams of IKE that wait for its thread; more are dropped, and sent again by the peers.
const IKE_INBOX: usize = 1024;

/// What the user of a running tunnel should know.
#[derive(Debug)]
pub(super) enum TunnelEvent {
    Datapath(Event),
    Ike(Report),
}

/// A configuration with its engine and its host setup.
struct Planned {
    config: Config,
    /// The peers of the configuration, with their keys.
    peers: Vec<IkePeer>,
    engine: Engine,
    setup: Setup,
}

impl Planned {
    /// Reads the configuration. `previous` is the engine in force and the time of its clock.
    fn read(options: &Options, previous: Option<(&Engine, Duration)>) -> Result<Self, Error> {
        let source = Source::read(&options.file)?;
        // parsed twice: the engine takes the keys of one, the other is kept
        let config = source.parse(Purpose::Tunnel)?;
        let given = source.parse(Purpose::Tunnel)?;
        let specs = given.associations.into_iter().map(|association| association.spec).collect();
        let now = previous.map_or(Duration::ZERO, |(_, now)| now);
        let engine = Engine::new(specs, given.policies, previous.map(|(engine, _)| engine), now)
            .map_err(|cause| Error::Engine { origin: options.file.clone(), cause })?;
        let path_mtu = |to| {
            config.path_mtu.map_or_else(|| host::path_mtu(to, DEFAULT_MARK), |mtu| mtu as usize)
        };
        let setup = Setup::plan(&config, &engine, Host::probe(DEFAULT_MARK), path_mtu);
        let engine = without_negotiated(&config, engine, now)
            .map_err(|cause| Error::Engine { origin: options.file.clone(), cause })?;
        Ok(Self { config, peers: given.ike, engine, setup })
    }
}

/// Removes the associations with which the host setup was planned: IKE brings those that carry
/// packets, and until then their policies drop.
fn without_negotiated(
    config: &Config,
    engine: Engine,
    now: Duration,
) -> Result<Engine, headroom_ipsec::SpecError> {
    if config.ike.is_empty() {
        return Ok(engine);
    }
    let negotiated: HashSet<&str> = config
        .associations
        .iter()
        .filter(|association| association.negotiated)
        .map(|association| association.spec.name.as_str())
        .collect();
    let mut policies = config.policies.clone();
    for policy in &mut policies {
        if let Action::Protect { out, inbound } = &mut policy.action {
            out.retain(|name| !negotiated.contains(name.as_str()));
            inbound.retain(|name| !negotiated.contains(name.as_str()));
        }
    }
    let is_kept = |spec: &SaSpec| !negotiated.contains(spec.name.as_str());
    let (engine, covered) = engine.update(is_kept, Vec::new(), policies, now)?;
    covered.into_iter().next().map_or(Ok(engine), Err)
}

/// Returns the commands that `up` would run, and warnings.
///
/// # Errors
/// The configuration is refused.
pub fn dry_run(options: &Options) -> Result<(String, Vec<String>), Error> {
    let Planned { config, setup, .. } = Planned::read(options, None)?;
    let mut warnings = config.warnings;
    warnings.extend(host::missing_addresses(config.associations.iter().map(|one| &one.spec)));
    Ok((setup.printed(&config.name, config.queues), warnings))
}

/// A tunnel that is up. Dropped without [`Tunnel::down`], it stops passing packets, and the traffic
/// that it protects is blocked.
pub(super) struct Tunnel {
    options: Options,
    name: String,
    queues: usize,
    addresses: Vec<(IpAddr, u8)>,
    ledger: LedgerPaths,
    policies: Vec<PolicySpec>,
    warnings: Vec<String>,
    setup: Setup,
    settings: Settings,
    /// Stopped before the datapath, through which it says goodbye.
    ike: Option<IkeService>,
    datapath: Arc<Datapath>,
    /// None without keys from a file: those that IKE negotiates were never used before.
    ledger_writer: Option<LedgerWriter>,
    rates: Rates,
    started: Instant,
    /// The addresses of the interface that peers have assigned.
    assigned: BTreeSet<IpAddr>,
    /// Released last, so that no other gateway starts before.
    _lock: LockedFile,
}

impl Tunnel {
    /// Brings the tunnel up. Sends ended lifetimes and moved peers to `events`.
    pub(super) fn up(options: Options, events: Sender<TunnelEvent>) -> Result<Self, Error> {
        let Planned { config, peers, engine, setup } = Planned::read(&options, None)?;
        options.run.make()?;
        let name = config.name.clone();
        let lock = options.run.lock(&name)?;
        let left = options.run.read_state(&name)?;
        // before any route blocks traffic
        if let Some(words) = host::name_conflict(&name) {
            return Err(Error::Refused(words));
        }
        let needs_ledger = config.ike.is_empty() || engine.associations().next().is_some();
        let ledger_writer = needs_ledger
            .then(|| LedgerWriter::start(&config.ledger, &engine, options.new_keys))
            .transpose()?;
        let inbox = sync_channel(IKE_INBOX);
        let settings = Settings { ike: ike_of(&peers, &inbox.0), ..settings_of(&config) };
        let key_log = options.key_log.as_deref().map(|folder| {
            let shown = || format!("open the log of keys in {}", folder.display());
            KeyLog::open(folder).doing(shown)
        });
        let key_log = key_log.transpose()?;
        let negotiation = (!peers.is_empty()).then(|| (peers, fixed_policies(&config), inbox));
        let started = prepare(&options, &config, &setup, left).and_then(|tuns| {
            let datapath = Arc::new(start(&name, tuns, engine, settings.clone(), events.clone())?);
            let ike =
                negotiation.map(|found| start_ike(found, Arc::clone(&datapath), key_log, events));
            Ok((datapath, ike.transpose()?))
        });
        let (datapath, ike) = match started {
            Ok(started) => started,
            Err(error) => {
                // nothing was sent: releases the reserved numbers
                let _ = ledger_writer.map(LedgerWriter::stop);
                return Err(Error::HalfUp { name, cause: Box::new(error) });
            }
        };
        Ok(Self {
            options,
            name,
            queues: config.queues,
            addresses: config.addresses,
            ledger: config.ledger,
            policies: config.policies,
            warnings: config.warnings,
            setup,
            settings,
            ike,
            datapath,
            ledger_writer,
            rates: Rates::default(),
            started: Instant::now(),
            assigned: BTreeSet::new(),
            _lock: lock,
        })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the warnings about the configuration in force, on this host now.
    pub(super) fn warnings(&self) -> Vec<String> {
        let engine = self.datapath.engine();
        let absent = host::missing_addresses(engine.associations().map(|sa| sa.spec()));
        self.warnings.iter().cloned().chain(absent).collect()
    }

    /// Puts the current configuration file in force. What stays the same loses no packet. After an
    /// error the former configuration stays in force.
    pub(super) fn reload(&mut self, new_keys: bool) -> Result<Vec<String>, Error> {
        let present = self.datapath.engine();
        let previous = Some((present.as_ref(), self.datapath.now()));
        let Planned { config, peers, engine, setup } = Planned::read(&self.options, previous)?;
        self.require_same(&config)?;
        self.adopt(&engine, new_keys)?;
        let state = state_of(&self.options, &[&setup, &self.setup]);
        let made = self.options.run.write_state(&self.name, &state);
        let made = made.and_then(|()| Ok(setup.replace(&self.setup)?));
        let reloaded = made.and_then(|()| {
            let reloaded = match &self.ike {
                Some(ike) => ike.reload(peers, fixed_policies(&config), &engine),
                None => self.datapath.reload(engine),
            };
            reloaded.doing(|| "open the sockets of the new associations".into())
        });
        if let Err(error) = reloaded {
            // the present engine continues: the ledger must track it again
            let ledger = self.adopt(&present, false);
            let host = self.setup.replace(&setup).map_err(Error::from);
            return Err(error.after_undoing([ledger, host]));
        }
        self.setup = setup;
        self.policies = config.policies.clone();
        let mut said = config.warnings.clone();
        // it is in force; the file that was written first has its changes, and former ones
        let state = state_of(&self.options, &[&self.setup]);
        let written = self.options.run.write_state(&self.name, &state);
        said.extend(written.err().map(|error| error.to_string()));
        let specs = config.associations.iter().map(|association| &association.spec);
        said.extend(host::missing_addresses(specs));
        let settings = Settings { ike: self.settings.ike.clone(), ..settings_of(&config) };
        if format!("{settings:?}") != format!("{:?}", self.settings) {
            said.push(
                "`keepalive`, `path_mtu`, `clamp_mss` (with the `mtu` it uses) and `dummy` take effect only after `down` \
                 and `up`"
                    .into(),
            );
        }
        self.warnings = config.warnings;
        Ok(said)
    }

    fn adopt(&self, engine: &Engine, new_keys: bool) -> Result<(), Error> {
        Ok(self.ledger_writer.as_ref().map_or(Ok(()), |writer| writer.adopt(engine, new_keys))?)
    }

    /// Refuses changes that a reload cannot make without losing packets or numbers.
    fn require_same(&self, config: &Config) -> Result<(), Error> {
        let changed = [
            ("name", config.name != self.name),
            ("queues", config.queues != self.queues),
            ("address", config.addresses != self.addresses),
            ("ledger or ledger_copy", config.ledger != self.ledger),
            ("the first or the last [ike]", config.ike.is_empty() == self.ike.is_some()),
            ("the first peer of an IP version", self.lacks_family(config)),
            ("the first [[sa]]", self.ledger_writer.is_none() && !config.key_ids().is_empty()),
        ];
        match changed.iter().find(|(_, changed)| *changed) {
            Some((what, _)) => Err(Error::Fixed(what)),
            None => Ok(()),
        }
    }

    /// Tells whether the ports of IKE are not open for a peer's IP version.
    fn lacks_family(&self, config: &Config) -> bool {
        let open = self.settings.ike.as_ref().map_or([false; 2], |ike| ike.families);
        config.ike.iter().any(|peer| !open[usize::from(peer.local.is_ipv6())])
    }

    pub(super) fn status(&mut self) -> Status {
        let engine = self.datapath.engine();
        let now = self.datapath.now();
        self.rates.update(&engine, now);
        let mut warnings = self.warnings();
        warnings.extend(self.ledger_writer.as_ref().and_then(LedgerWriter::last_error));
        Status {
            name: self.name.clone(),
            version: env!("CARGO_PKG_VERSION").into(),
            pid: std::process::id(),
            config: self.options.file.clone(),
            uptime_seconds: self.started.elapsed().as_secs(),
            queues: self.queues,
            ike: self.ike.as_ref().map(IkeService::sessions).unwrap_or_default(),
            ike_counters: self.ike.as_ref().map(IkeService::counters),
            associations: status::associations(&engine, &self.rates, now),
            policies: match &self.ike {
                Some(ike) => status::policies(&engine, &ike.policies()),
                None => status::policies(&engine, &self.policies),
            },
            drops: status::counted(engine.counters()),
            warnings,
        }
    }

    /// Gives the interface the addresses that peers have assigned, all of them, and takes those away
    /// that they have assigned no more. Returns what failed.
    pub(super) fn assign(&mut self, assigned: BTreeSet<IpAddr>) -> Vec<Error> {
        let gone = self.assigned.difference(&assigned).map(|one| host::remove(&self.name, *one));
        let new = assigned.difference(&self.assigned).map(|one| host::assign(&self.name, *one));
        let failures = gone.chain(new).filter_map(Result::err).map(Error::from).collect();
        self.assigned = assigned;
        failures
    }

    /// An association has reached a hard limit: IKE makes another, if it has negotiated it.
    pub(super) fn expired(&self, association: &str) {
        if let Some(ike) = &self.ike {
            ike.expired(association);
        }
    }

    /// A peer's packets arrive from another address: its IKE SA follows them there.
    pub(super) fn moved(&self, moved: &PeerMoved) {
        if let Some(ike) = &self.ike {
            ike.moved(moved);
        }
    }

    /// To be called about once per second. Fails if a thread of the datapath has ended.
    pub(super) fn tick(&mut self) -> Result<(), Error> {
        self.rates.update(&self.datapath.engine(), self.datapath.now());
        let ike_ended = || {
            let has_failed = self.ike.as_ref().is_some_and(IkeService::has_failed);
            has_failed.then(|| std::io::Error::other("the thread of IKE has ended"))
        };
        match self.datapath.failure().or_else(ike_ended) {
            None => Ok(()),
            Some(cause) => Err(Error::System {
                doing: format!(
                    "pass packets any more; the traffic of `{0}` is blocked until `headroom tunnel up` or `headroom \
                     tunnel down {0}`",
                    self.name
                ),
                cause,
            }),
        }
    }

    pub(super) fn trace(&self) -> Trace {
        self.datapath.trace()
    }

    /// Takes the tunnel down, and undoes all changes to the host.
    pub(super) fn down(self) -> Result<(), Error> {
        let Self { options, name, setup, ike, datapath, ledger_writer, .. } = self;
        drop(ike);
        // threads end and the interface vanishes; the `prohibit` routes remain
        drop(datapath);
        let settled = ledger_writer.map_or(Ok(()), LedgerWriter::stop);
        host::undo_all(&setup.undo())?;
        options.run.forget(&name);
        Ok(settled?)
    }
}

/// Changes the host, in an order in which nothing leaves in clear. From here on
/// somebody else can undo what is half done, and what an earlier gateway left.
fn prepare(
    options: &Options,
    config: &Config,
    setup: &Setup,
    left: Option<State>,
) -> Result<Vec<Tun>, Error> {
    let name = &config.name;
    let before = left.map_or(Vec::new(), |state| state.before);
    let left = Setup { before, after: setup.after.clone() };
    options.run.write_state(name, &state_of(options, &[setup, &left]))?;
    host::apply(&setup.before)?;
    setup.replace(&left)?;
    options.run.write_state(name, &state_of(options, &[setup]))?;
    let tuns = Tun::create(name, config.queues)
        .doing(|| format!("make the interface {name} (it needs root, and /dev/net/tun)"))?;
    host::apply(&setup.after)?;
    Ok(tuns)
}

fn start(
    name: &str,
    tuns: Vec<Tun>,
    engine: Engine,
    settings: Settings,
    events: Sender<TunnelEvent>,
) -> Result<Datapath, Error> {
    let datapath = Datapath::start(tuns, engine, settings, move |event| {
        // fails only while the tunnel goes down
        let _ = events.send(TunnelEvent::Datapath(event));
    });
    datapath.doing(|| format!("start the threads and sockets of {name}"))
}

/// Peers with their keys, the policies that need none, and the inbox of IKE.
type Negotiation =
    (Vec<IkePeer>, Vec<PolicySpec>, (SyncSender<IkeDatagram>, Receiver<IkeDatagram>));

fn start_ike(
    (peers, fixed, inbox): Negotiation,
    datapath: Arc<Datapath>,
    key_log: Option<KeyLog>,
    events: Sender<TunnelEvent>,
) -> Result<IkeService, Error> {
    let service = IkeService::start(peers, fixed, datapath, inbox, key_log, move |report| {
        // fails only while the tunnel goes down
        let _ = events.send(TunnelEvent::Ike(report));
    });
    service.doing(|| "start the thread of IKE".into())
}

fn ike_of(peers: &[IkePeer], inbox: &SyncSender<IkeDatagram>) -> Option<Ike> {
    let family = |v6: bool| peers.iter().any(|peer| peer.local.is_ipv6() == v6);
    let families = [family(false), family(true)];
    (!peers.is_empty()).then(|| Ike { inbox: inbox.clone(), families })
}

/// Returns the policies that name no child.
fn fixed_policies(config: &Config) -> Vec<PolicySpec> {
    let children: HashSet<&str> = config
        .ike
        .iter()
        .flat_map(|peer| &peer.children)
        .map(|child| child.name.as_str())
        .collect();
    // no name in a file has a slash
    let child = |policy: &PolicySpec| {
        policy.name.split('/').next().is_some_and(|name| children.contains(name))
    };
    config.policies.iter().filter(|policy| !child(policy)).cloned().collect()
}

/// How long a killed process may take to end.
const DYING: Duration = Duration::from_secs(5);

/// Undoes what a dead gateway left on the host.
///
/// # Errors
/// It left nothing, it is alive, or a command failed.
pub(super) fn clean_up(run: &RunFolder, name: &str) -> Result<(), Error> {
    let Some(state) = run.read_state(name)? else {
        return Err(Error::NotRunning(format!(
            "the tunnel `{name}` is not up, and nothing is left of it"
        )));
    };
    // a process that was just killed may still close its sockets
    let end = Instant::now() + DYING;
    let _lock = loop {
        match run.lock(name) {
            Err(Error::Refused(_)) if Instant::now() < end => {
                std::thread::sleep(Duration::from_millis(50));
            }
            Err(Error::Refused(_)) => {
                let pid = state.pid;
                return Err(Error::Refused(format!(
                    "the gateway of `{name}` (process {pid}) is alive but does not respond: stop it with `kill {pid}`, then \
                     repeat `down`"
                )));
            }
            held => break held?,
        }
    };
    host::undo_all(&Setup { before: state.before, after: state.after }.undo())?;
    run.forget(name);
    Ok(())
}

fn settings_of(config: &Config) -> Settings {
    let named = |one: &crate::config::Association| (one.spec.name.clone(), one.dummies_per_second);
    Settings {
        path_mtu: config.path_mtu.map(|mtu| mtu as usize),
        keepalive: Duration::from_secs(config.keepalive_seconds),
        // the interface carries no packet longer than `mtu`, if that is given
        clamp_mss: config.clamp_mss.then(|| config.mtu.map_or(usize::MAX, |mtu| mtu as usize)),
        dummies_per_second: config
            .associations
            .iter()
            .map(named)
            .filter(|(_, rate)| *rate > 0)
            .collect(),
        ..Settings::default()
    }
}

/// Returns the state file's content, with everything that must be undone.
fn state_of(options: &Options, setups: &[&Setup]) -> State {
    let mut before = Vec::new();
    for step in setups.iter().flat_map(|setup| &setup.before) {
        if !before.contains(step) {
            before.push(step.clone());
        }
    }
    let after = setups.first().map_or(Vec::new(), |setup| setup.after.clone());
    State { pid: std::process::id(), config: options.file.clone(), before, after }
}
