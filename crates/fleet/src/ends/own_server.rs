//! A server of this process, for this process: the code that copies to servers copies to a folder
//! or a store by it.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use headroom_transfer::client::Trust;
use headroom_transfer::files::Root;
use headroom_transfer::server::{Options, Served, Server};
use headroom_transfer::trust::{Access, AccessPolicy, AuthorizedKeys, KnownHosts};
use headroom_transfer::{Client, Error, Fingerprint, Host, Identity};

/// A server on the loopback interface. It accepts one key, which is nowhere but in this process,
/// and ends when this is dropped.
pub(crate) struct OwnServer {
    server: Server,
    host: Host,
    fingerprint: Fingerprint,
    /// The client's.
    identity: Identity,
    /// None: the fingerprint says which server it is.
    hosts: KnownHosts,
}

impl OwnServer {
    /// Serves a root. Must be called within a tokio runtime.
    pub(crate) fn start(root: Root) -> Result<Self, Error> {
        let (servers_identity, identity) = (Identity::ephemeral()?, Identity::ephemeral()?);
        let mut keys = AuthorizedKeys::default();
        keys.insert(identity.public(), Access::default());
        let policy = AccessPolicy { keys, ..AccessPolicy::default() };
        let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let options = Options::new(Served::Opened(root), listen, policy);
        let server = Server::bind(&servers_identity, options)?;
        let address = server.address()?;
        let serving = server.clone();
        tokio::spawn(async move { serving.serve().await });
        Ok(Self {
            server,
            host: Host::new(&address.ip().to_string(), address.port()),
            fingerprint: servers_identity.public().fingerprint(),
            identity,
            hosts: KnownHosts::parse(Path::new("no known_hosts"), String::new())?,
        })
    }

    /// Connects to it.
    pub(crate) async fn connect(&self) -> Result<Client, Error> {
        let fingerprint = Some(self.fingerprint);
        let trust = Trust { hosts: &self.hosts, authority: None, fingerprint };
        Client::connect(&self.host, &self.identity, trust).await
    }
}

impl Drop for OwnServer {
    fn drop(&mut self) {
        self.server.stop();
    }
}
