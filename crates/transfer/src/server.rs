//! The server: who may connect, and what becomes of their requests.

mod names;
mod record;
mod stream;
mod tidy;

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};

use headroom_transfer_proto::message::{
    Compress, Keep, LanesAnswer, LanesOffer, Links, Listed, ListedKind, MOST_LISTED, Message,
    TreeOptions, Wanted,
};
use headroom_transfer_proto::path::RelPath;
use quinn::{Connection, Endpoint, Incoming};
use tokio::task::spawn_blocking;

use self::record::Tally;
use crate::admission::{Admission, Place, Turn, Waiting};
pub use crate::admission::{Limits, Turned};
use crate::claims::All;
use crate::control::{Hearer, Speaker, hello, unexpected};
use crate::delivery::{Mirror, Offering, Receiver, Sender, Summary};
use crate::door::{Door, Guest, Who};
use crate::error::{Closing, Error};
use crate::files::{self, Excludes, Root, Seen, Source, What, settable};
use crate::identity::Identity;
use crate::lanes::{Carrier, Names, Port, Terms};
pub use crate::named::Named;
use crate::proof;
use crate::rate::{OfClient, Rates};
use crate::session::{HANDSHAKE, listen, widen};
use crate::streams::ask_when_silent;
use crate::trust::{Followed, Gate};
use crate::windows::Windows;
pub use record::{Log, Outcome, Record};

/// So long a client may take to say what it wants.
const REQUEST: Duration = Duration::from_secs(10);

/// A message of a list has no more bytes of names and targets than these and one entry's.
const LISTED_BYTES: usize = 512 << 10;

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
    /// UDP ports at which lanes are received, one for each transfer in turn; else they
    /// share the one at which the server listens.
    pub lane_ports: Option<RangeInclusive<u16>>,
    /// What else than content, permissions and times clients may set of files, and whether
    /// they may make symbolic links that lead out of the tree that they send.
    pub allow: Allow,
    /// Whether clients may have lanes that are **not encrypted**, and others that are
    /// for measurement alone, if they allow it, too. Each such transfer is warned about.
    pub insecure_measurement: bool,
    /// Who is told of each request when it has ended.
    pub log: Option<Arc<dyn Log>>,
}

impl Options {
    /// This directory at this address for those whom `gate` lets in, with the bounds
    /// that a server has unless it is told others.
    pub fn new(root: PathBuf, listen: SocketAddr, gate: Gate) -> Self {
        let (limits, named, rate_bps) = (Limits::default(), Named::default(), None);
        let (lane_ports, allow, insecure_measurement) = (None, Allow::default(), false);
        Self {
            root,
            listen,
            gate,
            limits,
            named,
            rate_bps,
            lanes: true,
            lane_ports,
            allow,
            insecure_measurement,
            log: None,
        }
    }
}

/// What clients that may write may do beyond content, permissions and times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allow {
    /// What they may set of files. Owners are set only by root.
    pub keep: Keep,
    /// Whether they may make symbolic links that lead out of the tree that they send.
    pub links: bool,
}

impl Default for Allow {
    /// What changes nothing for other users of the machine: no owners, no groups, and no
    /// links by which a program that reads the tree would leave it.
    fn default() -> Self {
        let keep = Keep::HARD_LINKS.or(Keep::XATTRS).or(Keep::ACLS).or(Keep::NUMERIC_IDS);
        Self { keep, links: false }
    }
}

impl Allow {
    /// All that the user could do who runs the server.
    pub const ALL: Self = Self {
        keep: Keep::HARD_LINKS
            .or(Keep::XATTRS)
            .or(Keep::ACLS)
            .or(Keep::OWNER)
            .or(Keep::GROUP)
            .or(Keep::NUMERIC_IDS),
        links: true,
    };

    /// How a tree is stored that a client would have stored so.
    fn limit(self, tree: Option<TreeOptions>) -> TreeOptions {
        let keep = tree.unwrap_or_default().keep.and(self.keep).and(settable());
        let links = if self.links { Links::Keep } else { Links::Refuse };
        TreeOptions { keep, links, changing: false }
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
    admission: Arc<Admission>,
    windows: Windows,
    named: Named,
    allow: Allow,
    rates: Rates,
    lanes: Option<Port>,
    claims: All,
    log: Option<Arc<dyn Log>>,
}

impl Server {
    /// Listens. It must be called within a tokio runtime.
    ///
    /// # Errors
    /// The directory is none, or the address cannot be listened at.
    pub fn bind(identity: &Identity, options: Options) -> Result<Self, Error> {
        let Options { root, listen: address, gate, limits, named, rate_bps, .. } = options;
        let Options { lanes, lane_ports, allow, insecure_measurement, log, .. } = options;
        let door = Door::new(gate);
        let root = Root::open(&root)?;
        let windows = Windows::default();
        let moves = windows.moves().clone();
        let (endpoint, port) = listen(address, identity, Arc::clone(&door), lane_ports, moves)?;
        let shared = Shared {
            door,
            root,
            admission: Admission::new(limits),
            windows,
            named,
            allow,
            rates: Rates::new(rate_bps),
            lanes: port.filter(|_| lanes).map(|port| port.measuring(insecure_measurement)),
            claims: All::default(),
            log,
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
                    let (keys, nowhere) = keys.with_roots_below(&self.shared.root, file.path());
                    for error in wrong.into_iter().chain(nowhere) {
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

    /// What was turned away since the start.
    pub fn turned(&self) -> Turned {
        self.shared.admission.turned()
    }

    fn accept(&self, incoming: Incoming) {
        let connections = self.endpoint.open_connections();
        let knocked = self.shared.admission.knock(incoming, connections);
        let Some((incoming, waiting)) = knocked else { return };
        let shared = Arc::clone(&self.shared);
        tokio::spawn(async move {
            let client = incoming.remote_address();
            match shared.serve(incoming, waiting).await {
                Ok(()) => tracing::debug!("{client} has ended its connection"),
                Err(error) => tracing::debug!("{client}: {error}"),
            }
        });
    }
}

impl Shared {
    async fn serve(&self, incoming: Incoming, waiting: Waiting) -> Result<(), Error> {
        let (_place, handshake, connection) = self.shake(incoming, waiting).await?;
        let mut visit = None;
        if let Some(who) = Who::certified(&connection) {
            // the key may have been removed since the handshake
            let welcomed = self.welcome(&connection, who).inspect_err(|error| {
                connection.close(Closing::Refused.into(), error.reason().as_bytes());
            });
            visit = Some(welcomed?);
        }
        // who has not said yet who they are is counted with those who do that now
        let mut handshake = visit.is_none().then_some(handshake);
        let (mut next_id, mut names) = (0, Names::default());
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
                        allow: self.allow,
                        rates: &visit.rates,
                        told_bps,
                        client: &visit.guest,
                        claims: &self.claims,
                        lanes: self.lanes.as_ref(),
                        names: &mut names,
                        windows: &self.windows,
                        log: self.log.as_deref(),
                        tally: Arc::default(),
                        speaker: &mut speaker,
                        hearer: &mut hearer,
                    };
                    // of which there is nothing while the client asks for nothing
                    Box::pin(request.answer(message, &mut next_id)).await
                }
                (_, Err(error)) => Err(error),
                (None, Ok(_)) => Err(Error::not_let_in()),
            };
            if let Err(error) = &outcome {
                let reason = error.reason();
                if matches!(error, Error::Protocol(_)) {
                    self.admission.turn(|turned| turned.rules += 1);
                    connection.close(Closing::Rules.into(), reason.as_bytes());
                } else {
                    // the client hears it where it still hears anything
                    let about_files = matches!(error, Error::Files(_)).then_some(true);
                    let _ = speaker.say(&Message::Refused { reason, about_files }).await;
                }
            }
            let goes_on = visit
                .as_ref()
                .filter(|_| matches!(outcome, Ok(()) | Err(Error::Refused(_) | Error::Files(_))));
            let Some(visit) = goes_on else {
                // what was said arrives before the connection ends
                let _ = tokio::time::timeout(REQUEST, speaker.finish()).await;
                return outcome;
            };
            speaker.end().await?;
            if let Err(error) = outcome {
                tracing::debug!("{} is refused: {error}", visit.guest.name());
            }
        }
    }

    /// Waits for the turn of a handshake, then for its end.
    async fn shake(
        &self,
        incoming: Incoming,
        waiting: Waiting,
    ) -> Result<(Place, Turn, Connection), Error> {
        let late = |_| {
            self.admission.turn(|turned| turned.slow += 1);
            Error::Lost("its handshake takes too long".to_owned())
        };
        let turn = match tokio::time::timeout(HANDSHAKE, waiting.turn()).await {
            Ok(turn) => turn,
            Err(elapsed) => {
                incoming.refuse();
                return Err(late(elapsed));
            }
        };
        let Some((place, turn)) = turn else {
            incoming.refuse();
            return Err(Error::Lost("the server ends".to_owned()));
        };
        let shaken = match incoming.accept() {
            Ok(shaking) => tokio::time::timeout(HANDSHAKE, shaking).await,
            Err(error) => Ok(Err(error)),
        };
        match shaken {
            Ok(Ok(connection)) => Ok((place, turn, connection)),
            Ok(Err(error)) => {
                self.admission.turn(|turned| turned.failed += 1);
                turn.fail(place);
                Err(error.into())
            }
            Err(elapsed) => {
                turn.fail(place);
                Err(late(elapsed))
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
            // not what the client named: it is not let in
            Some(root) => {
                self.root.below(root).map_err(|error| Error::Refused(error.to_string()))?
            }
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
    allow: Allow,
    rates: &'a OfClient,
    /// What the client takes at most, as it says.
    told_bps: Option<u64>,
    client: &'a Guest,
    claims: &'a All,
    lanes: Option<&'a Port>,
    names: &'a mut Names,
    windows: &'a Windows,
    log: Option<&'a dyn Log>,
    /// What it moves.
    tally: Arc<Tally>,
    speaker: &'a mut Speaker,
    hearer: &'a mut Hearer,
}

impl Request<'_> {
    /// Does what the client asks for, and notes in the log how that ended.
    async fn answer(&mut self, request: Message, next_id: &mut u64) -> Result<(), Error> {
        let (began, clock) = (SystemTime::now(), Instant::now());
        let (operation, paths) = record::named(&request);
        let outcome = self.perform(request, next_id).await;
        if let Some(log) = self.log {
            let count = |of: &std::sync::atomic::AtomicU64| of.load(Ordering::Relaxed);
            let failed = count(&self.tally.failed);
            let reason = outcome.as_ref().err().map(Error::reason);
            log.ended(&Record {
                began,
                took: clock.elapsed(),
                client: self.client.called.as_deref(),
                key: self.client.key.map(|key| key.fingerprint()),
                address: self.connection.remote_address(),
                operation,
                paths: &paths,
                bytes: count(&self.tally.bytes),
                stored: count(&self.tally.stored),
                failed,
                outcome: Outcome::of(&outcome, failed),
                reason: reason.as_deref(),
            });
        }
        outcome
    }

    async fn perform(&mut self, request: Message, next_id: &mut u64) -> Result<(), Error> {
        self.speaker.flush().await?;
        let moves = !matches!(
            request,
            Message::List { .. }
                | Message::MakeDirectory { .. }
                | Message::Rename { .. }
                | Message::Remove { .. }
        );
        let open = moves.then(|| self.windows.open(self.connection));
        let connection = self.connection.clone();
        let asking = async {
            if let Some(open) = &open {
                ask_when_silent(&connection, || open.octets()).await;
            }
            std::future::pending().await
        };
        tokio::select! {
            answered = self.answer_to(request, next_id) => answered,
            never = asking => never,
        }
    }

    async fn answer_to(&mut self, request: Message, next_id: &mut u64) -> Result<(), Error> {
        let summary = match request {
            Message::Put { to, rename, fsync, lanes, tree } => {
                self.put(to, rename, fsync, lanes.as_ref(), tree).await?
            }
            Message::Get { from, compress, lanes, tree } => {
                let compress = compress.unwrap_or_default();
                self.get(from, compress, lanes.as_ref(), tree, next_id).await?
            }
            sync @ Message::Sync { .. } => self.sync(sync, next_id).await?,
            Message::PutStream { to, fsync } => self.put_stream(to, fsync).await?,
            Message::GetStream { from, tree } => self.get_stream(from, tree).await?,
            Message::List { path } => return self.list(path).await,
            Message::MakeDirectory { path, parents } => self.make_directory(path, parents).await?,
            Message::Rename { from, to, replace } => self.rename(from, to, replace).await?,
            Message::Remove { path, recursive } => self.remove(path, recursive).await?,
            other => return Err(unexpected(&other)),
        };
        self.tally.failed.store(summary.failed, Ordering::Relaxed);
        Ok(())
    }

    /// Fails where the client's key may only read.
    fn may_write(&self) -> Result<(), Error> {
        match self.client.access.read_only {
            true => Err(Error::Refused("this identity may only read".to_owned())),
            false => Ok(()),
        }
    }

    async fn put(
        &mut self,
        to: Option<RelPath>,
        rename: bool,
        fsync: bool,
        lanes: Option<&LanesOffer>,
        tree: Option<TreeOptions>,
    ) -> Result<Summary, Error> {
        self.may_write()?;
        let (root, named) = (self.root.clone(), self.named);
        let resolved = spawn_blocking(move || named.destination(&root, to.as_ref(), rename));
        let destination = resolved.await.map_err(|error| Error::task(&error))??;
        // what comes on a lane is not held back here
        let pace = self.rates.incoming();
        let (lanes, carrier) = self.accept(lanes.filter(|_| pace.rate_bps().is_none()))?;
        let stored_as = self.allow.limit(tree);
        let keep = tree.map(|_| stored_as.keep);
        let receiver = Receiver {
            connection: self.connection.clone(),
            destination,
            fsync,
            observer: self.tally.clone(),
            claims: self.client.key.map(|key| self.claims.of(key)),
            pace,
            sync: None,
            tree: stored_as,
            lanes: carrier,
            acceptance: Some(Message::Accepted { lanes, keep }),
        };
        receiver.receive(self.speaker, self.hearer).await
    }

    async fn sync(&mut self, request: Message, next_id: &mut u64) -> Result<Summary, Error> {
        let Message::Sync {
            path,
            upload,
            delete,
            dry_run,
            checksum,
            fsync,
            exclude,
            compress,
            tree,
        } = request
        else {
            return Err(unexpected(&request));
        };
        let excludes = Excludes::new(exclude).map_err(|bad| Error::Refused(bad.to_string()))?;
        let excludes = Arc::new(excludes);
        if !upload {
            let source = self.source(vec![(path, true)], tree)?.without(excludes);
            self.speaker.say(&Message::Accepted { lanes: None, keep: None }).await?;
            let offering = if checksum { Offering::Hash } else { Offering::Name };
            let pace = self.rates.outgoing().and(self.told_bps);
            let sender =
                Sender::new(self.connection.clone(), offering, self.tally.clone(), pace, None);
            let sender = sender.compressing(compress.unwrap_or_default());
            let sender = sender.of_tree(tree.unwrap_or_default(), tree.is_some());
            return sender.send(source, next_id, self.speaker, self.hearer).await;
        }
        self.may_write()?;
        let (root, named) = (self.root.clone(), self.named);
        let resolve = move || named.directory(&root, path.as_ref(), !dry_run);
        let resolved = spawn_blocking(resolve).await.map_err(|error| Error::task(&error))??;
        let (destination, is_missing) = resolved;
        let stored_as = self.allow.limit(tree);
        let keep = tree.map(|_| stored_as.keep);
        self.speaker.say(&Message::Accepted { lanes: None, keep }).await?;
        let receiver = Receiver {
            connection: self.connection.clone(),
            destination,
            fsync,
            observer: self.tally.clone(),
            claims: self.client.key.map(|key| self.claims.of(key)),
            pace: self.rates.incoming(),
            sync: Some(Mirror::new(delete, dry_run, is_missing, excludes)),
            tree: stored_as,
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
        tree: Option<TreeOptions>,
        next_id: &mut u64,
    ) -> Result<Summary, Error> {
        let wanted = from.into_iter().map(|wanted| (wanted.path, wanted.contents));
        let source = self.source(wanted.collect(), tree)?;
        let (lanes, carrier) = self.accept(lanes)?;
        let pace = self.rates.outgoing().and(self.told_bps);
        // before the client knows of it: its first packet must find the lane open
        if let Some(lane) = &carrier {
            lane.limit(pace.rate_bps());
            lane.start(None);
        }
        self.speaker.say(&Message::Accepted { lanes, keep: None }).await?;
        let (connection, offering) = (self.connection.clone(), Offering::Content);
        let sender = Sender::new(connection, offering, self.tally.clone(), pace, carrier);
        let sender = sender.compressing(compress);
        let sender = sender.of_tree(tree.unwrap_or_default(), tree.is_some());
        sender.send(source, next_id, self.speaker, self.hearer).await
    }

    /// What a client gets, as it would have it sent.
    fn source(
        &self,
        wanted: Vec<(Option<RelPath>, bool)>,
        tree: Option<TreeOptions>,
    ) -> Result<Source, Error> {
        // a client of an older version has a policy of its own
        let links = tree.map_or(Links::Keep, |tree| tree.links);
        if links == Links::Follow && self.named == Named::Below {
            return Err(Error::Refused(
                "it follows no symbolic link below its root: --links=follow is for put, and for --ssh".to_owned(),
            ));
        }
        let keep = tree.unwrap_or_default().keep;
        Ok(self.named.source(self.root, wanted, links).keeping(keep))
    }

    /// Takes lanes, if the client offers some and they are allowed here.
    fn accept(
        &mut self,
        offer: Option<&LanesOffer>,
    ) -> Result<(Option<LanesAnswer>, Option<Carrier>), Error> {
        let Some((offer, port)) = offer.zip(self.lanes) else { return Ok((None, None)) };
        let accepted = port.accept(offer, self.connection, self.names)?;
        let terms = accepted.as_ref().map(|(_, carrier)| carrier.terms());
        if let Some(terms) = terms.filter(Terms::is_measurement) {
            let Terms { cipher, chunk, .. } = terms;
            let not = if cipher.is_secure() { "" } else { "NOT " };
            let chunks = chunk.map(|chunk| format!(", chunks of {} octets", chunk.octets()));
            tracing::warn!(
                "{}: its files are {not}ENCRYPTED on lanes (cipher {cipher}{}), as --insecure-measurement allows",
                self.client.name(),
                chunks.unwrap_or_default()
            );
        }
        Ok(accepted.unzip())
    }

    async fn list(&mut self, path: Option<RelPath>) -> Result<(), Error> {
        let (root, named) = (self.root.clone(), self.named);
        let (say, mut said) = tokio::sync::mpsc::channel(2);
        let lister = spawn_blocking(move || {
            let (there, path) = named.listed(&root, path)?;
            list(&there, path.as_ref(), &say).map_err(|error| match named {
                Named::Below => error,
                Named::AsByUser => error.below(there.path()),
            })
        });
        self.speaker.say(&Message::Accepted { lanes: None, keep: None }).await?;
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
            let target = root.target(path).ok().filter(|_| seen.what == What::Symlink);
            let _ = say.blocking_send(vec![listed(name, &seen, target)]);
        }
        return Ok(());
    }
    let (mut entries, mut bytes) = (Vec::new(), 0);
    let mut listing = root.list(path)?;
    while let Some(found) = listing.next() {
        let (name, seen) = found?;
        let target = (seen.what == What::Symlink).then(|| listing.target(&name)).flatten();
        bytes += name.as_bytes().len() + target.as_ref().map_or(0, Vec::len);
        entries.push(listed(name, &seen, target));
        if entries.len() == MOST_LISTED || bytes > LISTED_BYTES {
            bytes = 0;
            if say.blocking_send(std::mem::take(&mut entries)).is_err() {
                return Ok(());
            }
        }
    }
    let _ = say.blocking_send(entries);
    Ok(())
}

fn listed(path: RelPath, seen: &Seen, target: Option<Vec<u8>>) -> Listed {
    let kind = match seen.what {
        What::File => ListedKind::File,
        What::Directory => ListedKind::Directory,
        What::Symlink => ListedKind::Symlink,
        What::Pipe | What::Socket | What::Device => ListedKind::Other,
    };
    Listed { path, kind, size: seen.size, mode: seen.mode, mtime: seen.mtime, target }
}
