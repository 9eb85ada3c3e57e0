//! Servers: connecting, and connections that wait for the next request.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use headroom_mutex::lock;
use headroom_transfer::client::{Client, Trust};
use headroom_transfer::ssh::Ssh;
use headroom_transfer::trust::{HostStatus, KnownHosts};
use headroom_transfer::{Error, Fingerprint, Host, Identity};
use serde_json::{Value, json};

use crate::error::ApiError;
use crate::names::{decode_below, encode};

/// The most servers at once.
const MAX_SERVERS: usize = 64;
/// Idle connections that are kept for a server, and for how long.
const MAX_IDLE: usize = 2;
const IDLE: Duration = Duration::from_secs(20);

/// What a name of hosts.toml stands for: a host and the key to show it, or what is wrong.
pub type Resolved = Result<(Host, Option<PathBuf>), String>;

/// How to connect: what the commands use as well.
#[derive(Debug, Clone)]
pub struct ConnectOptions {
    /// The user's key file, made if it is missing.
    pub identity: PathBuf,
    /// The file of known hosts.
    pub known_hosts: PathBuf,
    /// Resolves a name of hosts.toml to a host and the key to show it.
    pub resolve: fn(&Host) -> Resolved,
    /// Names of hosts that the user may mean, for a list of suggestions.
    pub suggest: fn() -> Vec<String>,
    /// The ssh command.
    pub ssh: Ssh,
    /// How long a host has to answer.
    pub timeout: Duration,
}

/// A server that the page shows.
#[derive(Debug)]
pub(crate) struct Server {
    /// What the page calls it in requests.
    pub(crate) id: String,
    pub(crate) host: Host,
    /// Whether it is started through ssh.
    pub(crate) is_ssh: bool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    fingerprint: Option<Fingerprint>,
    home: Option<Vec<u8>>,
    idle: Vec<(Instant, Client)>,
}

/// All servers.
#[derive(Debug)]
pub(crate) struct Servers {
    options: ConnectOptions,
    list: Mutex<Vec<Arc<Server>>>,
}

impl Server {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Reads a path below its root, as the page writes it.
    pub(crate) fn path_of(&self, text: &str) -> Result<Vec<u8>, ApiError> {
        let below = decode_below(text)?;
        Ok(match (self.is_ssh, below.is_empty()) {
            (true, _) => [b"/", &*below].concat(),
            (false, true) => b".".to_vec(),
            // a name that begins with `~` is a name
            (false, false) => [b"./", &*below].concat(),
        })
    }

    pub(crate) fn json(&self) -> Value {
        let state = self.state();
        let home = state.home.as_deref().unwrap_or_default();
        let home = home.strip_prefix(b"/").unwrap_or(home);
        json!({
            "id": self.id, "name": self.host.to_string(), "ssh": self.is_ssh,
            "fingerprint": state.fingerprint.as_ref().map(ToString::to_string), "home": encode(home),
        })
    }

    fn take(&self) -> Option<Client> {
        let mut state = self.state();
        state.idle.retain(|(since, client)| since.elapsed() < IDLE && !client.is_closed());
        state.idle.pop().map(|(_, client)| client)
    }

    /// Keeps a connection for the next request, if it still works and there are not enough.
    pub(crate) fn give(&self, client: Client) {
        let mut state = self.state();
        if !client.is_closed() && state.idle.len() < MAX_IDLE {
            state.idle.push((Instant::now(), client));
        }
    }

    /// Closes the connections that wait.
    async fn close(&self) {
        let idle = std::mem::take(&mut self.state().idle);
        for (_, client) in idle {
            client.close().await;
        }
    }
}

impl Servers {
    pub(crate) fn new(options: ConnectOptions) -> Self {
        Self { options, list: Mutex::default() }
    }

    fn list(&self) -> std::sync::MutexGuard<'_, Vec<Arc<Server>>> {
        lock(&self.list)
    }

    pub(crate) fn json(&self) -> Value {
        self.list().iter().map(|server| server.json()).collect()
    }

    pub(crate) fn suggestions(&self) -> Vec<String> {
        (self.options.suggest)()
    }

    /// Adds a server by its address, or finds it; also returns whether it is new. `user@` means
    /// ssh.
    pub(crate) fn add(&self, address: &str, is_ssh: bool) -> Result<(Arc<Server>, bool), ApiError> {
        let wrong = |error: String| ApiError::new("usage", error);
        let host = Host::parse(address.trim()).map_err(|error| wrong(error.to_string()))?;
        let is_ssh = is_ssh || host.user().is_some();
        let id = format!("{}{host}", if is_ssh { "ssh:" } else { "" });
        let mut list = self.list();
        if let Some(server) = list.iter().find(|server| server.id == id) {
            return Ok((Arc::clone(server), false));
        }
        if list.len() >= MAX_SERVERS {
            return Err(wrong(format!("no more than {MAX_SERVERS} servers at once")));
        }
        let server = Arc::new(Server { id, host, is_ssh, state: Mutex::default() });
        list.push(Arc::clone(&server));
        Ok((server, true))
    }

    pub(crate) fn find(&self, id: &str) -> Result<Arc<Server>, ApiError> {
        let found = self.list().iter().find(|server| server.id == id).cloned();
        found.ok_or_else(|| ApiError::new("not-found", "there is no such server in the list"))
    }

    /// Takes a server off the list.
    pub(crate) async fn forget(&self, id: &str) {
        let gone = {
            let mut list = self.list();
            let at = list.iter().position(|server| server.id == id);
            at.map(|at| list.remove(at))
        };
        if let Some(server) = gone {
            server.close().await;
        }
    }

    /// Connects, with `fingerprint` also to an unknown host that has it, which is then known.
    pub(crate) async fn connect(
        &self,
        server: &Server,
        fingerprint: Option<Fingerprint>,
    ) -> Result<Client, Error> {
        let timeout = self.options.timeout;
        let client = match server.is_ssh {
            true => Client::over_ssh(&server.host, &self.options.ssh, timeout).await?,
            false => {
                let (host, identity) =
                    (self.options.resolve)(&server.host).map_err(Error::Usage)?;
                let identity = identity.as_ref().unwrap_or(&self.options.identity);
                let identity = Identity::read_or_create(identity)?;
                // read each time: the commands add hosts as well
                let mut hosts = KnownHosts::read(&self.options.known_hosts)?;
                let trust = Trust { hosts: &hosts, authority: None, fingerprint };
                let client = Client::connect_within(timeout, &host, &identity, trust).await?;
                let known_as = host.known_as();
                if let (Some(_), Some(key)) = (fingerprint, client.key())
                    && hosts.status(&known_as) == HostStatus::Unknown
                {
                    hosts.add(&known_as, key)?;
                }
                client
            }
        };
        let mut state = server.state();
        state.fingerprint = client.key().map(|key| key.fingerprint());
        state.home = client.home().map(<[u8]>::to_vec);
        drop(state);
        Ok(client)
    }

    /// Returns a connection: one that waits, or another.
    pub(crate) async fn client(&self, server: &Server) -> Result<Client, Error> {
        match server.take() {
            Some(client) => Ok(client),
            None => self.connect(server, None).await,
        }
    }

    /// Closes all connections that wait.
    pub(crate) async fn close(&self) {
        let servers = std::mem::take(&mut *self.list());
        for server in servers {
            server.close().await;
        }
    }
}
