//! Our IKEv2 against strongSwan's daemon, in both roles: set-up, rekeying of both kinds of SA,
//! deletion. The keys of every CHILD SA must be those in strongSwan's log.

use std::net::{SocketAddr, UdpSocket};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Result, ensure};
use headroom_ike::crypto::{Method, SystemRandom};
use headroom_ike::wire::TrafficSelector;
use headroom_ike::{
    Auth, ChildConfig, ChildId, ChildProposal, Command, Config, Connection, Endpoint, Event,
    Identity, IkeProposal, Mode, PostQuantum, SessionId, VirtualAddresses,
};
use headroom_mutex::lock;
use headroom_suite::Key;

use super::{Host, hosts, start};
use crate::folder::Folder;
use crate::peer::Peers;

/// The port of both ends.
const PORT: u16 = 4500;
/// Timeout of each step.
const STEP: Duration = Duration::from_secs(20);

/// Who starts, and with it every step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Starter {
    /// Our endpoint.
    Ours,
    /// strongSwan.
    Theirs,
}

/// What strongSwan offers for a CHILD SA.
pub const ESP_PROPOSALS: [&str; 3] = ["aes128gcm16-x25519", "aes256gcm16", "aes128-sha256-x25519"];

/// Sets up an IKE SA with a CHILD SA, rekeys both, and deletes them.
///
/// # Errors
/// Describes the step that failed.
pub fn negotiate(peers: &Peers, starter: Starter, esp_proposals: &str) -> Result<()> {
    let folder = Folder::new()?;
    let [a, b] = hosts()?;
    let charon = start(peers, &folder.0, &a, &b, esp_proposals)?;
    let ours = Ours::start(&b, &a, config(&b, &a));
    match starter {
        Starter::Ours => ours.send(Ask::Connect),
        Starter::Theirs => charon.initiate()?,
    }
    ours.wait("a CHILD SA", |state| state.installed.len() == 1 && state.sends_on.is_some())?;
    match starter {
        Starter::Ours => ours.send(Ask::RekeyChild),
        Starter::Theirs => drop(charon.swanctl(&["--rekey", "--child", "join"])?),
    }
    ours.wait("a second CHILD SA in place of the first", |state| {
        state.installed.len() == 2 && state.removed == 1
    })?;
    match starter {
        Starter::Ours => ours.send(Ask::RekeyIke),
        Starter::Theirs => drop(charon.swanctl(&["--rekey", "--ike", "join"])?),
    }
    ours.wait("another IKE SA", |state| state.rekeyed == 1)?;
    // the new IKE SA works: the CHILD SA is rekeyed on it
    match starter {
        Starter::Ours => ours.send(Ask::RekeyChild),
        Starter::Theirs => drop(charon.swanctl(&["--rekey", "--child", "join"])?),
    }
    ours.wait("a third CHILD SA", |state| state.installed.len() == 3 && state.removed == 2)?;
    match starter {
        Starter::Ours => ours.send(Ask::Close),
        Starter::Theirs => drop(charon.swanctl(&["--terminate", "--ike", "join"])?),
    }
    ours.wait("nothing", |state| state.closed)?;
    let log = charon.log()?;
    for key in &ours.state().installed {
        ensure!(log.contains(key), "strongSwan's log has no key {key}");
    }
    ensure!(!log.contains("retransmit"), "strongSwan asked twice: {log}");
    Ok(())
}

/// What our endpoint is asked to do.
enum Ask {
    Connect,
    RekeyChild,
    RekeyIke,
    Close,
}

/// Our endpoint on a thread in its namespace. Dropping it ends the thread.
struct Ours {
    asks: Sender<Ask>,
    state: Arc<Mutex<State>>,
}

/// What became of it.
#[derive(Clone, Debug, Default)]
struct State {
    session: Option<SessionId>,
    /// The first bytes of the keys of each CHILD SA, as strongSwan's log shows them.
    installed: Vec<String>,
    sends_on: Option<ChildId>,
    removed: usize,
    rekeyed: usize,
    closed: bool,
    failed: Option<String>,
}

impl Ours {
    fn start(host: &Host, peer: &Host, config: Config) -> Self {
        let (asks, asked) = mpsc::channel();
        let state = Arc::new(Mutex::new(State::default()));
        let shared = state.clone();
        let [local, remote] = [host, peer].map(|host| SocketAddr::new(host.outer, PORT));
        host.namespace.spawn(move || {
            let ran = run(config, local, remote, &asked, &shared);
            if let Err(why) = &ran {
                lock(&shared).failed = Some(format!("{why:#}"));
            }
            ran
        });
        Self { asks, state }
    }

    fn send(&self, ask: Ask) {
        // the thread ends only with an error, which `wait` reports
        let _ = self.asks.send(ask);
    }

    fn state(&self) -> State {
        lock(&self.state).clone()
    }

    fn wait(&self, what: &str, is_there: impl Fn(&State) -> bool) -> Result<()> {
        let deadline = Instant::now() + STEP;
        loop {
            let state = self.state();
            if is_there(&state) {
                return Ok(());
            }
            let late = Instant::now() > deadline;
            ensure!(state.failed.is_none() && !late, "waiting for {what}: {state:?}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Runs the endpoint over a socket until nobody asks any more.
fn run(
    config: Config,
    local: SocketAddr,
    remote: SocketAddr,
    asked: &Receiver<Ask>,
    state: &Mutex<State>,
) -> Result<()> {
    let socket = UdpSocket::bind(local)?;
    let mut endpoint = Endpoint::new(config, Box::new(SystemRandom), Instant::now());
    let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
    endpoint.set_time(time);
    let mut buffer = vec![0; 65536];
    loop {
        let now = Instant::now();
        match asked.try_recv() {
            Ok(ask) => act(&mut endpoint, &ask, local, remote, state)?,
            Err(mpsc::TryRecvError::Empty) => {}
            Err(mpsc::TryRecvError::Disconnected) => return Ok(()),
        }
        endpoint.poll(now);
        while let Some(event) = endpoint.event() {
            lock(state).apply(event);
        }
        while let Some(transmit) = endpoint.transmit() {
            socket.send_to(&transmit.datagram, transmit.to)?;
        }
        socket.set_read_timeout(Some(Duration::from_millis(10)))?;
        if let Ok((len, from)) = socket.recv_from(&mut buffer) {
            endpoint.handle(&buffer[..len], from, local, Instant::now());
        }
    }
}

fn act(
    endpoint: &mut Endpoint,
    ask: &Ask,
    local: SocketAddr,
    remote: SocketAddr,
    state: &Mutex<State>,
) -> Result<()> {
    let now = Instant::now();
    let State { session, sends_on, .. } = lock(state).clone();
    let command = match (ask, session, sends_on) {
        (Ask::Connect, ..) => {
            endpoint.connect("charon", local, remote, now)?;
            return Ok(());
        }
        (Ask::RekeyChild, _, Some(child)) => Command::RekeyChild(child),
        (Ask::RekeyIke, Some(session), _) => Command::Rekey(session),
        (Ask::Close, Some(session), _) => Command::Close(session),
        _ => return Ok(()),
    };
    Ok(endpoint.command(&command, now)?)
}

impl State {
    fn apply(&mut self, event: Event) {
        match event {
            Event::Established { session, .. } => self.session = Some(session),
            Event::Rekeyed { .. } => self.rekeyed += 1,
            Event::Install(child) => {
                let keys = [&child.inbound, &child.outbound].map(|half| &half.secrets.key);
                self.installed.push(dump(keys[0]));
                debug_assert!(keys[0].as_bytes() != keys[1].as_bytes());
            }
            Event::Switch(child) => self.sends_on = Some(child),
            Event::StopSending(child) => {
                self.sends_on.take_if(|sends_on| *sends_on == child);
            }
            Event::Remove(_) => self.removed += 1,
            Event::ChildFailed { reason, .. } => self.failed = Some(reason.to_string()),
            Event::Closed { reason, .. } => {
                self.closed = true;
                if self.session.is_none() {
                    self.failed = Some(reason.to_string());
                }
            }
            Event::Moved { .. }
            | Event::Keys { .. }
            | Event::Message { .. }
            | Event::Reauthenticating { .. } => {}
        }
    }
}

/// The first 16 bytes, as in strongSwan's log.
fn dump(key: &Key) -> String {
    let bytes = key.as_bytes().iter().take(16).map(|byte| format!("{byte:02X}"));
    bytes.collect::<Vec<_>>().join(" ")
}

fn config(host: &Host, peer: &Host) -> Config {
    let key_exchanges = vec![Method::Curve25519];
    let suites = ["aes-128-gcm", "aes-256-gcm", "aes-128-cbc+hmac-sha256"];
    let suites: Vec<_> = suites.iter().filter_map(|name| name.parse().ok()).collect();
    let forward_secret = ChildProposal {
        suites,
        key_exchanges,
        additional: Vec::new(),
        extended_sequence: vec![true, false],
    };
    let without = ChildProposal { key_exchanges: Vec::new(), ..forward_secret.clone() };
    let child = ChildConfig {
        name: "join".to_owned(),
        local: vec![TrafficSelector::host(host.inner)],
        remote: vec![TrafficSelector::host(peer.inner)],
        mode: Mode::Tunnel,
        proposals: vec![forward_secret, without],
        qesp: None,
        rekey: None,
        per_resource: 0,
    };
    let connection = Connection {
        name: "charon".to_owned(),
        local: Identity::from_text(&format!("{}.test", host.name)),
        remote: Some(Identity::from_text(&format!("{}.test", peer.name))),
        remote_address: Some(peer.outer),
        auth: Auth::shared_key(&Key::from_bytes(b"known to two namespaces only")),
        ike: IkeProposal::default_offer(PostQuantum::Preferred),
        ppk: None,
        mobike: false,
        virtual_addresses: VirtualAddresses::None,
        children: vec![Arc::new(child)],
        rekey: None,
        reauthenticate: None,
        liveness: None,
    };
    let mut config = Config::new(vec![connection]);
    config.force_encapsulation = true;
    config.timing.reorder = Duration::from_millis(50);
    config
}
