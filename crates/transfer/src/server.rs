//! The server: who may connect, and what becomes of their requests.

mod stream;
mod tidy;

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use headroom_transfer_proto::message::{
    Compress, LanesAnswer, LanesOffer, Listed, ListedKind, MOST_LISTED, Message, Wanted,
};
use headroom_transfer_proto::path::RelPath;
use quinn::{Connection, Endpoint, Incoming};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::spawn_blocking;

use crate::claims::All;
use crate::control::{Hearer, Speaker, hello, unexpected};
use crate::delivery::{Mirror, Offering, Receiver, Sender, Summary};
use crate::door::{Door, Guest, Who};
use crate::error::{Closing, Error};
use crate::files::{self, Excludes, Root, Seen, What};
use crate::identity::Identity;
use crate::lanes::{Carrier, Port};
pub use crate::named::Named;
use crate::proof;
use crate::rate::{OfClient, Rates};
use crate::session::{HANDSHAKE, listen, widen};
use crate::trust::{Followed, Gate};

/// So long a client may take to say what it wants.
const REQUEST: Duration = Duration::from_secs(10);

/// How often a file that is followed is looked at.
const LOOK: Duration = Duration::from_secs(1);

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
    /// Whether big files may go on lanes; else they go on streams.
    pub lanes: bool,
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
    door: Arc<Door>,
    root: Root,
    limits: Limits,
    named: Named,
    rates: Rates,
    lanes: Option<Port>,
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
        let Options { root, listen: address, gate, limits, named, rate_bps, lanes } = options;
        let door = Door::new(gate);
        let root = Root::open(&root)?;
        let (endpoint, port) = listen(address, identity, Arc::clone(&door))?;
        let shared = Shared {
            door,
            root,
            limits,
            named,
            rates: Rates::new(rate_bps),
            lanes: port.filter(|_| lanes),
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

    /// From now on this gate says who comes in. Connections of those who may not any
    /// longer, or may do something else than before, end.
    pub fn change_gate(&self, gate: Gate) {
        self.shared.door.change(gate);
    }

    /// Serves until [`Self::stop`] is called, and reads a file of authorized keys
    /// whenever it changes; of `gate` all but the keys stays.
    ///
    /// Lines that are wrong let nobody in, and the others count: a key that was
    /// removed is out, whatever else is wrong in the file, and nobody else is locked
    /// out by a slip. A file that cannot be read says nothing about anybody, so what
    /// it said before holds. Both are told as a warning.
    pub async fn serve_following(&self, file: Followed, gate: Gate) {
        tokio::select! {
            () = self.serve() => {}
            () = self.follow(file, gate) => {}
        }
    }

    async fn follow(&self, mut file: Followed, gate: Gate) {
        loop {
            tokio::time::sleep(LOOK).await;
            let looked = spawn_blocking(move || (file.look(), file)).await;
            // it ends so only with all of this
            let Ok((change, same)) = looked else { return std::future::pending().await };
            file = same;
            match change {
                None => {}
                Some(Err(error)) => {
                    tracing::warn!("{error}. Who was let in by it before still is");
                }
                Some(Ok((keys, wrong))) => {
                    for error in wrong {
                        tracing::warn!("{error}. Nobody is let in by this line");
                    }
                    self.change_gate(Gate { keys, ..gate.clone() });
                }
            }
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

    /// Lets no packet of a lane through, as a firewall might.
    #[cfg(test)]
    pub(crate) fn block_lanes(&self) {
        self.shared.lanes.iter().flat_map(Port::engines).for_each(|engine| engine.block());
    }

    /// The sum of what the engines have dropped.
    #[cfg(test)]
    pub(crate) fn dropped_on_lanes(&self, of: impl Fn(&crate::lanes::Dropped) -> u64) -> u64 {
        let engines = self.shared.lanes.iter().flat_map(Port::engines);
        engines.map(|engine| of(engine.dropped())).sum()
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
        let mut visit = None;
        if let Some(who) = Who::certified(&connection) {
            visit = Some(self.welcome(&connection, who)?);
        }
        // who has not said yet who they are is counted with those who do that now
        let mut handshake = visit.is_none().then_some(handshake);
        let mut next_id = 0;
        loop {
            let accepted = match &visit {
                Some(_) => connection.accept_bi().await,
                None => tokio::time::timeout(REQUEST, connection.accept_bi())
                    .await
                    .map_err(|_| Error::Lost("it does not say who it is".to_owned()))?,
            };
            let (send, receive) = match accepted {
                Ok(streams) => streams,
                Err(quinn::ConnectionError::ApplicationClosed(_)) => return Ok(()),
                Err(error) => return Err(error.into()),
            };
            let (mut speaker, mut hearer) = (Speaker::new(send), Hearer::new(receive));
            let hearing = self.hear(&connection, &mut visit, &mut hearer);
            let heard = tokio::time::timeout(REQUEST, hearing)
                .await
                .map_err(|_| Error::Protocol("it does not say what it wants".to_owned()))
                .flatten();
            handshake = handshake.filter(|_| visit.is_none());
            let takes_bps = visit.as_ref().and_then(|visit| visit.rates.incoming().rate_bps());
            speaker.add(&hello(takes_bps)).await?;
            let outcome = match (&visit, heard) {
                (Some(visit), Ok((told_bps, message))) => {
                    let mut request = Request {
                        connection: &connection,
                        root: &visit.root,
                        named: self.named,
                        rates: &visit.rates,
                        told_bps,
                        client: &visit.guest,
                        claims: &self.claims,
                        lanes: self.lanes.as_ref(),
                        speaker: &mut speaker,
                        hearer: &mut hearer,
                    };
                    request.answer(message, &mut next_id).await
                }
                (_, Err(error)) => Err(error),
                (None, Ok(_)) => Err(Error::not_let_in()),
            };
            if let Err(error) = &outcome {
                let reason = match error {
                    Error::Refused(reason) => reason.clone(),
                    error => error.to_string(),
                };
                if matches!(error, Error::Protocol(_)) {
                    connection.close(Closing::Rules.into(), reason.as_bytes());
                } else {
                    // the client hears it where it still hears anything
                    let _ = speaker.say(&Message::Refused { reason }).await;
                }
            }
            // what was said arrives also if the client goes then
            let _ = tokio::time::timeout(REQUEST, speaker.finish()).await;
            if let Err(error) = outcome {
                let goes_on = matches!(error, Error::Refused(_) | Error::Files(_));
                let Some(visit) = visit.as_ref().filter(|_| goes_on) else { return Err(error) };
                tracing::debug!("{} is refused: {error}", visit.guest.name());
            }
        }
    }

    /// The first messages of a request: how much the client takes, and what it wants.
    /// With its first request on a connection, one without a certificate says who it is,
    /// or is taken for anybody from then on.
    async fn hear(
        &self,
        connection: &Connection,
        visit: &mut Option<Visit>,
        hearer: &mut Hearer,
    ) -> Result<(Option<u64>, Message), Error> {
        let told_bps = hearer.greeting().await?;
        let mut message = hearer.expect().await?;
        if visit.is_none() {
            let who = match message {
                Message::Proof { key, signature } => {
                    let key = proof::check(key, &signature, connection)?;
                    message = hearer.expect().await?;
                    Who::Signed(key)
                }
                _ => Who::Anybody,
            };
            *visit = Some(self.welcome(connection, who)?);
        }
        Ok((told_bps, message))
    }

    /// Lets a client in, if it may come.
    fn welcome(&self, connection: &Connection, who: Who) -> Result<Visit, Error> {
        let guest = self.door.admit(connection, who)?;
        tracing::debug!("{} is {}", connection.remote_address(), guest.name());
        let root = match &guest.access.root {
            Some(root) => Root::open(root)?,
            None => self.root.clone(),
        };
        widen(connection);
        let rates = self.rates.of(guest.key, guest.access.rate_bps);
        Ok(Visit { guest, root, rates })
    }
}

/// Somebody who was let in, and what they get to see.
struct Visit {
    guest: Guest,
    root: Root,
    rates: OfClient,
}

/// A request and its answer.
struct Request<'a> {
    connection: &'a Connection,
    root: &'a Root,
    named: Named,
    rates: &'a OfClient,
    /// What the client takes at most, as it says.
    told_bps: Option<u64>,
    client: &'a Guest,
    claims: &'a All,
    lanes: Option<&'a Port>,
    speaker: &'a mut Speaker,
    hearer: &'a mut Hearer,
}

impl Request<'_> {
    async fn answer(&mut self, request: Message, next_id: &mut u64) -> Result<(), Error> {
        self.speaker.flush().await?;
        let summary = match request {
            Message::Put { to, rename, fsync, lanes } => {
                self.put(to, rename, fsync, lanes.as_ref()).await?
            }
            Message::Get { from, compress, lanes } => {
                self.get(from, compress.unwrap_or_default(), lanes.as_ref(), next_id).await?
            }
            sync @ Message::Sync { .. } => self.sync(sync, next_id).await?,
            Message::PutStream { to, fsync } => self.put_stream(to, fsync).await?,
            Message::GetStream { from } => self.get_stream(from).await?,
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
        lanes: Option<&LanesOffer>,
    ) -> Result<Summary, Error> {
        if self.client.access.read_only {
            return Err(Error::Refused("this identity may only read".to_owned()));
        }
        let (root, named) = (self.root.clone(), self.named);
        let resolved = spawn_blocking(move || named.destination(&root, to.as_ref(), rename));
        let destination = resolved.await.map_err(|error| Error::task(&error))??;
        // what comes on a lane is not held back here
        let pace = self.rates.incoming();
        let (lanes, carrier) = self.accept(lanes.filter(|_| pace.rate_bps().is_none()));
        let receiver = Receiver {
            connection: self.connection.clone(),
            destination,
            fsync,
            observer: Arc::new(()),
            claims: self.client.key.map(|key| self.claims.of(key)),
            pace,
            sync: None,
            lanes: carrier,
            acceptance: Some(Message::Accepted { lanes }),
        };
        receiver.receive(self.speaker, self.hearer).await
    }

    async fn sync(&mut self, request: Message, next_id: &mut u64) -> Result<Summary, Error> {
        let Message::Sync { path, upload, delete, dry_run, checksum, fsync, exclude, compress } =
            request
        else {
            return Err(unexpected(&request));
        };
        let excludes = Excludes::new(exclude).map_err(|bad| Error::Refused(bad.to_string()))?;
        let excludes = Arc::new(excludes);
        if !upload {
            let source = self.named.source(self.root, vec![(path, true)]).without(excludes);
            self.speaker.say(&Message::Accepted { lanes: None }).await?;
            let offering = if checksum { Offering::Hash } else { Offering::Name };
            let pace = self.rates.outgoing().and(self.told_bps);
            let sender = Sender::new(self.connection.clone(), offering, Arc::new(()), pace, None);
            let sender = sender.compressing(compress.unwrap_or_default());
            return sender.send(source, next_id, self.speaker, self.hearer).await;
        }
        if self.client.access.read_only {
            return Err(Error::Refused("this identity may only read".to_owned()));
        }
        let (root, named) = (self.root.clone(), self.named);
        let resolve = move || named.directory(&root, path.as_ref(), !dry_run);
        let resolved = spawn_blocking(resolve).await.map_err(|error| Error::task(&error))??;
        let (destination, is_missing) = resolved;
        self.speaker.say(&Message::Accepted { lanes: None }).await?;
        let receiver = Receiver {
            connection: self.connection.clone(),
            destination,
            fsync,
            observer: Arc::new(()),
            claims: self.client.key.map(|key| self.claims.of(key)),
            pace: self.rates.incoming(),
            sync: Some(Mirror::new(delete, dry_run, is_missing, excludes)),
            lanes: None,
            acceptance: None,
        };
        receiver.receive(self.speaker, self.hearer).await
    }

    async fn get(
        &mut self,
        from: Vec<Wanted>,
        compress: Compress,
        lanes: Option<&LanesOffer>,
        next_id: &mut u64,
    ) -> Result<Summary, Error> {
        let wanted = from.into_iter().map(|wanted| (wanted.path, wanted.contents));
        let source = self.named.source(self.root, wanted.collect());
        let (lanes, carrier) = self.accept(lanes);
        let pace = self.rates.outgoing().and(self.told_bps);
        // before the client knows of it: its first packet must find the lane open
        if let Some(lane) = &carrier {
            lane.limit(pace.rate_bps());
            lane.start(None);
        }
        self.speaker.say(&Message::Accepted { lanes }).await?;
        let (connection, offering) = (self.connection.clone(), Offering::Content);
        let sender = Sender::new(connection, offering, Arc::new(()), pace, carrier);
        let sender = sender.compressing(compress);
        sender.send(source, next_id, self.speaker, self.hearer).await
    }

    /// Takes lanes, if the client offers some and they are allowed here.
    fn accept(&self, offer: Option<&LanesOffer>) -> (Option<LanesAnswer>, Option<Carrier>) {
        let accepted = offer.zip(self.lanes);
        accepted.and_then(|(offer, port)| port.accept(offer, self.connection)).unzip()
    }

    async fn list(&mut self, path: Option<RelPath>) -> Result<(), Error> {
        let (root, named) = (self.root.clone(), self.named);
        let (say, mut said) = tokio::sync::mpsc::channel(2);
        let lister = spawn_blocking(move || {
            let (root, path) = named.listed(&root, path)?;
            list(&root, path.as_ref(), &say)
        });
        self.speaker.say(&Message::Accepted { lanes: None }).await?;
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
