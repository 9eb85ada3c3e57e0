//! The server: who may connect, and what becomes of their requests.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use headroom_transfer_proto::message::{Listed, ListedKind, MOST_LISTED, Message, Wanted};
use headroom_transfer_proto::path::RelPath;
use quinn::{Connection, Endpoint, Incoming};
use rustls::pki_types::CertificateDer;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::spawn_blocking;

use crate::claims::All;
use crate::control::{Hearer, Speaker, hello, unexpected};
use crate::delivery::{Receiver, Sender, Summary};
use crate::error::{Closing, Error};
use crate::files::{self, Root, Seen, What};
use crate::identity::Identity;
use crate::key::PublicKey;
pub use crate::named::Named;
use crate::rate::{OfClient, Rates};
use crate::session::{HANDSHAKE, listen};
use crate::trust::{Access, Gate};

/// So long a client may take to say what it wants.
const REQUEST: Duration = Duration::from_secs(10);

/// What is served, and to whom.
#[derive(Debug)]
pub struct Options {
    /// The directory that clients see.
    pub root: PathBuf,
    /// Where to listen; port 0 is one that is free.
    pub listen: SocketAddr,
    /// Who comes in.
    pub gate: Gate,
    /// How many.
    pub limits: Limits,
    /// What the paths mean that they name.
    pub named: Named,
    /// What all connections together may move each way, in bits per second.
    pub rate_bps: Option<u64>,
}

/// Bounds of what strangers can take.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Connections at once.
    pub connections: usize,
    /// Of these, from one IPv4 address or one IPv6 /64.
    pub of_address: usize,
    /// Handshakes at once: those beyond are refused.
    pub handshakes: usize,
    /// Handshakes from which on an address must first show that it is real, for
    /// which it needs one more round trip (RFC 9000, section 8.1.2).
    pub unvalidated: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { connections: 4096, of_address: 1024, handshakes: 256, unvalidated: 32 }
    }
}

/// A server. Cheap to copy: all copies are the same one.
#[derive(Debug, Clone)]
pub struct Server {
    endpoint: Endpoint,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    gate: Arc<Gate>,
    root: Root,
    limits: Limits,
    named: Named,
    rates: Rates,
    handshakes: Arc<Semaphore>,
    addresses: Arc<Mutex<HashMap<IpAddr, usize>>>,
    claims: All,
}

impl Server {
    /// Listens. It must be called within a tokio runtime.
    ///
    /// # Errors
    /// The directory is none, or the address cannot be listened at.
    pub fn bind(identity: &Identity, options: Options) -> Result<Self, Error> {
        let Options { root, listen: address, gate, limits, named, rate_bps } = options;
        let gate = Arc::new(gate);
        let root = Root::open(&root)?;
        let endpoint = listen(address, identity, Arc::clone(&gate))?;
        let shared = Shared {
            gate,
            root,
            limits,
            named,
            rates: Rates::new(rate_bps),
            handshakes: Arc::new(Semaphore::new(limits.handshakes)),
            addresses: Arc::default(),
            claims: All::default(),
        };
        Ok(Self { endpoint, shared: Arc::new(shared) })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// The system does not say.
    pub fn address(&self) -> Result<SocketAddr, Error> {
        self.endpoint.local_addr().map_err(|cause| Error::System {
            doing: "ask where the server listens".to_owned(),
            cause,
        })
    }

    /// Serves until [`Self::stop`] is called.
    pub async fn serve(&self) {
        while let Some(incoming) = self.endpoint.accept().await {
            self.accept(incoming);
        }
    }

    /// How many connections there are, handshakes included.
    pub fn connections(&self) -> usize {
        self.endpoint.open_connections()
    }

    /// Ends all connections.
    pub fn stop(&self) {
        self.endpoint.close(Closing::Leaving.into(), b"");
    }

    /// Ends all connections, and waits until the clients know.
    pub async fn close(&self) {
        self.stop();
        // a client that does not answer is not waited for
        let _ = tokio::time::timeout(Duration::from_secs(1), self.endpoint.wait_idle()).await;
    }

    fn accept(&self, incoming: Incoming) {
        let Shared { limits, handshakes, addresses, .. } = &*self.shared;
        let Some(place) = Place::take(addresses, incoming.remote_address().ip(), limits.of_address)
        else {
            return incoming.refuse();
        };
        if self.endpoint.open_connections() >= limits.connections {
            return incoming.refuse();
        }
        let Ok(handshake) = Arc::clone(handshakes).try_acquire_owned() else {
            return incoming.refuse();
        };
        let going_on = limits.handshakes - handshakes.available_permits();
        if going_on > limits.unvalidated && !incoming.remote_address_validated() {
            // it is not refused for having been validated meanwhile
            let _ = incoming.retry();
            return;
        }
        let shared = Arc::clone(&self.shared);
        tokio::spawn(async move {
            let client = incoming.remote_address();
            match shared.serve(incoming, handshake).await {
                Ok(()) => tracing::debug!("{client} has ended its connection"),
                Err(error) => tracing::debug!("{client}: {error}"),
            }
            drop(place);
        });
    }
}

impl Shared {
    async fn serve(
        &self,
        incoming: Incoming,
        handshake: OwnedSemaphorePermit,
    ) -> Result<(), Error> {
        let shaken = tokio::time::timeout(HANDSHAKE, incoming.accept()?).await;
        let connection =
            shaken.map_err(|_| Error::Lost("its handshake takes too long".to_owned()))??;
        drop(handshake);
        let client = Client::of(&connection, &self.gate)?;
        tracing::debug!("{} is {}", connection.remote_address(), client.name());
        let root = match &client.access.root {
            Some(root) => Root::open(root)?,
            None => self.root.clone(),
        };
        let rates = self.rates.of(client.key, client.access.rate_bps);
        let mut next_id = 0;
        loop {
            let (send, receive) = match connection.accept_bi().await {
                Ok(streams) => streams,
                Err(quinn::ConnectionError::ApplicationClosed(_)) => return Ok(()),
                Err(error) => return Err(error.into()),
            };
            let mut request = Request {
                connection: &connection,
                root: &root,
                named: self.named,
                rates: &rates,
                told_bps: None,
                client: &client,
                claims: &self.claims,
                speaker: Speaker::new(send),
                hearer: Hearer::new(receive),
            };
            let outcome = request.answer(&mut next_id).await;
            if let Err(error) = &outcome {
                let reason = error.to_string();
                if matches!(error, Error::Protocol(_)) {
                    connection.close(Closing::Rules.into(), reason.as_bytes());
                } else {
                    // the client hears it where it still hears anything
                    let _ = request.speaker.say(&Message::Refused { reason }).await;
                }
            }
            // what was said arrives also if the client goes then
            let _ = tokio::time::timeout(REQUEST, request.speaker.finish()).await;
            if let Err(error) = outcome {
                if !matches!(error, Error::Refused(_) | Error::Files(_)) {
                    return Err(error);
                }
                tracing::debug!("{} is refused: {error}", client.name());
            }
        }
    }
}

/// Who has connected.
struct Client {
    key: Option<PublicKey>,
    access: Access,
}

impl Client {
    fn of(connection: &Connection, gate: &Gate) -> Result<Self, Error> {
        let certificates = connection
            .peer_identity()
            .and_then(|identity| identity.downcast::<Vec<CertificateDer<'static>>>().ok());
        let certificates = certificates.as_deref().map_or(&[][..], Vec::as_slice);
        // it was let in by the same gate a moment ago
        let access = gate
            .access(certificates)
            .ok_or_else(|| Error::Refused("this identity is not let in".to_owned()))?;
        Ok(Self { key: certificates.first().and_then(PublicKey::of_certificate), access })
    }

    fn name(&self) -> String {
        self.key.map_or_else(|| "nobody".to_owned(), |key| key.fingerprint().to_string())
    }
}

/// A request and its answer.
struct Request<'a> {
    connection: &'a Connection,
    root: &'a Root,
    named: Named,
    rates: &'a OfClient,
    /// What the client takes at most, as it says.
    told_bps: Option<u64>,
    client: &'a Client,
    claims: &'a All,
    speaker: Speaker,
    hearer: Hearer,
}

impl Request<'_> {
    async fn answer(&mut self, next_id: &mut u64) -> Result<(), Error> {
        self.speaker.add(&hello(self.rates.incoming().rate_bps())).await?;
        let heard = async {
            self.told_bps = self.hearer.greeting().await?;
            self.hearer.expect().await
        };
        let request = tokio::time::timeout(REQUEST, heard)
            .await
            .map_err(|_| Error::Protocol("it does not say what it wants".to_owned()))?;
        self.speaker.flush().await?;
        let summary = match request? {
            Message::Put { to, rename, fsync } => self.put(to, rename, fsync).await?,
            Message::Get { from } => self.get(from, next_id).await?,
            Message::List { path } => return self.list(path).await,
            other => return Err(unexpected(&other)),
        };
        tracing::debug!(
            "{}: {} stored, {} failed, {} octets moved, {} kept",
            self.client.name(),
            summary.stored,
            summary.failed,
            summary.moved,
            summary.kept
        );
        Ok(())
    }

    async fn put(
        &mut self,
        to: Option<RelPath>,
        rename: bool,
        fsync: bool,
    ) -> Result<Summary, Error> {
        if self.client.access.read_only {
            return Err(Error::Refused("this identity may only read".to_owned()));
        }
        let (root, named) = (self.root.clone(), self.named);
        let resolved = spawn_blocking(move || named.destination(&root, to.as_ref(), rename));
        let destination = resolved.await.map_err(|error| Error::task(&error))??;
        self.speaker.say(&Message::Accepted {}).await?;
        let receiver = Receiver {
            connection: self.connection.clone(),
            destination,
            fsync,
            observer: Arc::new(()),
            claims: self.client.key.map(|key| self.claims.of(key)),
            pace: self.rates.incoming(),
        };
        receiver.receive(&mut self.speaker, &mut self.hearer).await
    }

    async fn get(&mut self, from: Vec<Wanted>, next_id: &mut u64) -> Result<Summary, Error> {
        let wanted = from.into_iter().map(|wanted| (wanted.path, wanted.contents));
        let source = self.named.source(self.root, wanted.collect());
        self.speaker.say(&Message::Accepted {}).await?;
        let pace = self.rates.outgoing().and(self.told_bps);
        let sender = Sender::new(self.connection.clone(), Arc::new(()), pace);
        sender.send(source, next_id, &mut self.speaker, &mut self.hearer).await
    }

    async fn list(&mut self, path: Option<RelPath>) -> Result<(), Error> {
        let (root, named) = (self.root.clone(), self.named);
        let (say, mut said) = tokio::sync::mpsc::channel(2);
        let lister = spawn_blocking(move || {
            let (root, path) = named.listed(&root, path)?;
            list(&root, path.as_ref(), &say)
        });
        self.speaker.say(&Message::Accepted {}).await?;
        while let Some(entries) = said.recv().await {
            self.speaker.say(&Message::Listing { entries, last: false }).await?;
        }
        lister.await.map_err(|error| Error::task(&error))??;
        self.speaker.say(&Message::Listing { entries: Vec::new(), last: true }).await
    }
}

/// Lists a directory, or the one thing that is no directory, part by part.
fn list(
    root: &Root,
    path: Option<&RelPath>,
    say: &tokio::sync::mpsc::Sender<Vec<Listed>>,
) -> Result<(), files::Error> {
    let seen = path.map(|path| root.look(path)).transpose()?.flatten();
    if let Some((path, seen)) = path.zip(seen).filter(|(_, seen)| seen.what != What::Directory) {
        if let Ok(name) = RelPath::single(path.name()) {
            let _ = say.blocking_send(vec![listed(name, &seen)]);
        }
        return Ok(());
    }
    let mut entries = Vec::new();
    for found in root.list(path)? {
        let (name, seen) = found?;
        entries.push(listed(name, &seen));
        if entries.len() == MOST_LISTED && say.blocking_send(std::mem::take(&mut entries)).is_err()
        {
            return Ok(());
        }
    }
    let _ = say.blocking_send(entries);
    Ok(())
}

fn listed(path: RelPath, seen: &Seen) -> Listed {
    let kind = match seen.what {
        What::File => ListedKind::File,
        What::Directory => ListedKind::Directory,
        What::Symlink => ListedKind::Symlink,
        What::Pipe | What::Socket | What::Device => ListedKind::Other,
    };
    Listed { path, kind, size: seen.size, mode: seen.mode, mtime: seen.mtime }
}

/// A place among the connections of an address, until it is dropped.
struct Place {
    addresses: Arc<Mutex<HashMap<IpAddr, usize>>>,
    address: IpAddr,
}

impl Place {
    fn take(
        addresses: &Arc<Mutex<HashMap<IpAddr, usize>>>,
        address: IpAddr,
        most: usize,
    ) -> Option<Self> {
        let address = network(address);
        let mut counts = addresses.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(address).or_default();
        if *count >= most {
            return None;
        }
        *count += 1;
        drop(counts);
        Some(Self { addresses: Arc::clone(addresses), address })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut counts = self.addresses.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.address);
            }
        }
    }
}

/// What one customer of a provider has: an address of IPv4, a /64 of IPv6.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let octets = address.octets();
            let mut network = [0; 16];
            network[..8].copy_from_slice(&octets[..8]);
            Ipv6Addr::from(network).into()
        }
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_so_many_places_and_gives_them_back() {
        let addresses = Arc::default();
        let take = |address: &str| Place::take(&addresses, address.parse().expect(address), 2);
        let one = take("192.0.2.1").expect("a place");
        let two = take("::ffff:192.0.2.1").expect("the same address, written for IPv6");
        assert!(take("192.0.2.1").is_none());
        let other = take("2001:db8::1:2").expect("another address");
        let sister = take("2001:db8::9").expect("of the same /64");
        assert!(take("2001:db8::").is_none());
        drop(one);
        let again = take("192.0.2.1").expect("it was given back");
        drop((two, other, sister, again));
        assert!(addresses.lock().expect("nobody panicked").is_empty());
    }
}
