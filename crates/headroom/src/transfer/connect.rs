//! Connects to a host; asks the user about an unknown one.

use std::io::{BufRead, IsTerminal, Write};
use std::net::SocketAddr;
use std::time::Duration;

use headroom_transfer::client::{Client, Trust, addresses};
use headroom_transfer::ssh::Ssh;
use headroom_transfer::trust::{Authority, HostStatus, KnownHosts};
use headroom_transfer::{Error, Fingerprint, Host, Identity, PublicKey};

use super::arguments::{Connect, OverSsh};
use super::exit::Usage;
use super::hosts::Hosts;
use super::settings;

/// Connects to a host.
pub(crate) enum Connector {
    /// To a running server.
    Server(Box<TrustedConnector>),
    /// To a server that is started over SSH.
    Ssh { ssh: Ssh, timeout: Duration },
}

/// Connects to servers whose keys are known or confirmed by the user.
pub(crate) struct TrustedConnector {
    identity: Identity,
    /// Whether `--identity` was given; it overrides hosts.toml.
    is_named: bool,
    names: Hosts,
    authority: Option<Authority>,
    fingerprint: Option<Fingerprint>,
    hosts: KnownHosts,
    timeout: Duration,
    /// Whether to suppress the note about an added host.
    is_quiet: bool,
    /// The server's address of the last connection: a client that connects again has lost it.
    last: Option<SocketAddr>,
    /// The only address to try, if one was chosen.
    at: Option<SocketAddr>,
}

impl Connector {
    pub(crate) fn new(arguments: &Connect, over_ssh: &OverSsh) -> anyhow::Result<Self> {
        if !over_ssh.ssh {
            return TrustedConnector::new(arguments).map(|known| Self::Server(Box::new(known)));
        }
        let environment = std::env::var("HEADROOM_SSH").ok().filter(|command| !command.is_empty());
        let command = over_ssh.ssh_command.clone().or(environment);
        let ssh = command.map_or_else(|| Ok(Ssh::default()), |command| Ssh::new(&command))?;
        Ok(Self::Ssh { ssh, timeout: arguments.timeout })
    }

    /// Connects. On a terminal it asks the user about an unknown host, and remembers the answer.
    pub(crate) async fn connect(&mut self, host: &Host) -> Result<Client, Error> {
        match self {
            Self::Server(known) => known.connect(host).await,
            Self::Ssh { ssh, timeout } => Client::over_ssh(host, ssh, *timeout).await,
        }
    }
}

impl TrustedConnector {
    pub(crate) fn new(arguments: &Connect) -> anyhow::Result<Self> {
        Ok(Self {
            identity: settings::identity(arguments.identity.as_deref())?,
            is_named: arguments.identity.is_some(),
            names: Hosts::read(&settings::file("hosts.toml")?).map_err(Usage)?,
            authority: settings::authority(arguments.ca.as_deref())?,
            fingerprint: arguments.fingerprint,
            hosts: settings::known_hosts()?,
            timeout: arguments.timeout,
            is_quiet: false,
            last: None,
            at: None,
        })
    }

    /// Tries no other address than this one.
    pub(crate) fn at(self, address: SocketAddr) -> Self {
        Self { at: Some(address), ..self }
    }

    /// Tries the address at which a connection was lost after all others.
    pub(crate) fn lost_at(self, last: Option<SocketAddr>) -> Self {
        Self { last, ..self }
    }

    /// Returns the addresses of a host.
    pub(crate) async fn addresses(&self, host: &Host) -> Result<Vec<SocketAddr>, Error> {
        addresses(&self.names.resolve(host).0).await
    }

    /// Asks the user about an unknown host once, before several of its addresses are connected at
    /// the same time. Where nobody can be asked, does nothing.
    pub(crate) async fn introduce(&mut self, host: &Host) -> Result<(), Error> {
        let known_as = self.names.resolve(host).0.known_as();
        if !can_ask() || self.hosts.status(&known_as) != HostStatus::Unknown {
            return Ok(());
        }
        match self.connect(host).await {
            Ok(client) => client.close().await,
            // the connections to its addresses report it
            Err(error) if error.is_temporary() => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Suppresses the note about an added host.
    pub(crate) fn quiet(self) -> Self {
        Self { is_quiet: true, ..self }
    }

    pub(crate) async fn connect(&mut self, host: &Host) -> Result<Client, Error> {
        if let Some(user) = host.user() {
            return Err(Error::Usage(format!(
                "`{user}@` is for --ssh: a `headroom serve` knows you by your key"
            )));
        }
        let (host, identity) = self.names.resolve(host);
        if let Some(identity) = identity.filter(|_| !self.is_named) {
            self.identity = Identity::read_or_create(&identity)?;
        }
        let host = &host;
        match self.attempt(host, self.fingerprint).await {
            Err(Error::UnknownHost { host: known_as, key }) => {
                if !ask_to_trust(&known_as, &key) {
                    return Err(Error::UnknownHost { host: known_as, key });
                }
                // The first handshake was refused before the server proved possession of this
                // key; this one proves it.
                self.attempt(host, Some(key.fingerprint())).await
            }
            outcome => outcome,
        }
    }

    async fn attempt(
        &mut self,
        host: &Host,
        fingerprint: Option<Fingerprint>,
    ) -> Result<Client, Error> {
        let trust = Trust { hosts: &self.hosts, authority: self.authority.as_ref(), fingerprint };
        let (timeout, last, identity) = (self.timeout, self.last, &self.identity);
        let client = match self.at {
            Some(at) => Client::connect_at(timeout, host, at, identity, trust).await?,
            None => Client::connect_elsewhere(timeout, host, last, identity, trust).await?,
        };
        self.last = Some(client.address());
        if let (Some(_), Some(key)) = (fingerprint, client.key()) {
            self.remember(host, key)?;
        }
        Ok(client)
    }

    fn remember(&mut self, host: &Host, key: PublicKey) -> Result<(), Error> {
        let known_as = host.known_as();
        if self.hosts.status(&known_as) == HostStatus::Unknown {
            self.hosts.add(&known_as, key)?;
            if !self.is_quiet {
                let file = self.hosts.path().display();
                eprintln!("headroom: added {known_as} to {file}");
            }
        }
        Ok(())
    }
}

/// Whether somebody at a terminal can be asked.
fn can_ask() -> bool {
    std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

/// Asks the user on a terminal whether to trust a host; without one the answer is no.
fn ask_to_trust(host: &str, key: &PublicKey) -> bool {
    if !can_ask() {
        return false;
    }
    let fingerprint = key.fingerprint().to_string();
    eprint!(
        "{host} is unknown. Its key is\n  {fingerprint}\nCompare that with what `headroom serve` prints there. Trust it from now on? (yes, no, or the fingerprint) "
    );
    let _ = std::io::stderr().flush();
    let mut answer = String::new();
    let read = std::io::stdin().lock().read_line(&mut answer);
    read.is_ok() && matches!(answer.trim(), answer if answer == "yes" || answer == fingerprint)
}

/// Closes the connection after what was to be done over it, unless it is lost: a server that is
/// told nothing keeps the session until it times out.
pub(crate) async fn close_after<T>(client: Client, done: Result<T, Error>) -> Result<T, Error> {
    if !done.as_ref().is_err_and(Error::is_temporary) {
        client.close().await;
    }
    done
}
