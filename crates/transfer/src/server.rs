//! The server: accepts connections and answers requests.

mod cleanup;
mod counters;
mod drain;
mod join;
mod join_table;
mod listing;
mod names;
mod record;
mod request;
mod served;
mod shares;
mod sharing;
mod status;
mod stream;
mod tally;
mod web;

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use headroom_transfer_proto::message::{ErrorCode, Keep, Links, Message, TreeOptions};
use quinn::{Endpoint, Incoming};
use tokio::task::spawn_blocking;

use self::counters::{Counters, Held};
use self::drain::Drain;
use self::join_table::JoinTable;
use self::record::Operation;
use self::request::Request;
use self::sharing::{Expiry, Sharing};
use self::tally::Tally;
use crate::access::{AccessControl, Grant, Principal};
use crate::admission::{Admission, ConnectionSlot, HandshakePermit, PendingHandshake};
pub use crate::admission::{Limits, RejectionCounts};
use crate::claims::ClaimTable;
use crate::connection::Connection;
use crate::control::{ClosedStream, Greeting, MessageReader, MessageWriter, hello};
use crate::error::{Closing, Error, SHUTTING_DOWN};
use crate::files::Root;
pub use crate::files::{Requests, StoreOptions};
use crate::flow_control::FlowControlBudget;
use crate::identity::Identity;
use crate::key::PublicKey;
pub use crate::lanes::DropCounts;
use crate::lanes::{Port, UsedLanes};
pub use crate::path_policy::PathPolicy;
use crate::proof::{self, BrowserBinding};
use crate::quic::{HANDSHAKE, listen, open_request_window};
use crate::rate::{ClientRates, Rates};
use crate::streams;
use crate::trust::{AccessPolicy, Followed, Invitations};
pub use counters::{RequestCount, Traffic};
pub use record::{Log, Outcome, Record};
pub use served::{Served, roots_below};
pub use status::Status;
pub use web::{Admits, PATH as WEB_PATH, TcpSlot, WebCertificate, WebEndpoint};

/// How long a client may take to send a request.
const REQUEST: Duration = Duration::from_secs(10);

/// How often to check whether a followed file changed.
const LOOK: Duration = Duration::from_secs(1);

/// What is served, and to whom.
#[derive(Debug)]
pub struct Options {
    /// What clients see.
    pub root: Served,
    /// The address to listen on; port 0 chooses a free one.
    pub listen: SocketAddr,
    /// Which clients are accepted.
    pub policy: AccessPolicy,
    /// How many are accepted.
    pub limits: Limits,
    /// How paths are resolved.
    pub paths: PathPolicy,
    /// The limit for all connections together, each way, in bits per second.
    pub rate_bps: Option<u64>,
    /// Whether big files may use lanes; otherwise they use streams.
    pub lanes: bool,
    /// UDP ports for lanes, one for each transfer in turn; otherwise lanes share the server's port.
    pub lane_ports: Option<RangeInclusive<u16>>,
    /// Which attributes clients may set beside content, permissions and times, and whether they may
    /// make symbolic links that lead out of the tree that they send.
    pub allow: Allow,
    /// Whether clients may request lanes that are **not encrypted**, and others for measurement.
    /// Each such transfer logs a warning.
    pub insecure_measurement: bool,
    /// Receives a record of each request when it has ended.
    pub log: Option<Arc<dyn Log>>,
}

impl Options {
    /// Serves this directory or store at this address to clients that `policy` accepts, with
    /// default limits.
    pub fn new(root: impl Into<Served>, listen: SocketAddr, policy: AccessPolicy) -> Self {
        let root = root.into();
        let (limits, paths, rate_bps) = (Limits::default(), PathPolicy::default(), None);
        let (lane_ports, allow, insecure_measurement) = (None, Allow::default(), false);
        Self {
            root,
            listen,
            policy,
            limits,
            paths,
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
    /// Which attributes they may set. Only root sets owners.
    pub keep: Keep,
    /// Whether they may make symbolic links that lead out of the tree that they send.
    pub links: bool,
}

impl Default for Allow {
    /// What affects no other user of the machine: no owners, no groups, and no links by which a
    /// program that reads the tree would leave it.
    fn default() -> Self {
        let keep = Keep::HARD_LINKS.or(Keep::XATTRS).or(Keep::ACLS).or(Keep::NUMERIC_IDS);
        Self { keep, links: false }
    }
}

impl Allow {
    /// Everything that the user who runs the server could do.
    pub const ALL: Self = Self {
        keep: Keep::HARD_LINKS
            .or(Keep::XATTRS)
            .or(Keep::ACLS)
            .or(Keep::OWNER)
            .or(Keep::GROUP)
            .or(Keep::NUMERIC_IDS),
        links: true,
    };

    /// Restricts how a client wants a tree to be stored.
    fn limit(self, tree: Option<TreeOptions>, root: &Root) -> TreeOptions {
        let keep = tree.unwrap_or_default().keep.and(self.keep).and(root.settable());
        let links = if self.links { Links::Keep } else { Links::Refuse };
        TreeOptions { keep, links, ..TreeOptions::default() }
    }
}

/// A server. Clones are cheap and share everything.
#[derive(Debug, Clone)]
pub struct Server {
    endpoint: Endpoint,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    access_control: Arc<AccessControl>,
    root: Root,
    admission: Arc<Admission>,
    flow_control: FlowControlBudget,
    paths: PathPolicy,
    allow: Allow,
    rates: Rates,
    lanes: Option<Port>,
    claims: ClaimTable,
    joins: JoinTable,
    log: Option<Arc<dyn Log>>,
    started: Instant,
    counters: Arc<Counters>,
    drain: Drain,
    invitations: OnceLock<Invitations>,
    sharing: OnceLock<Arc<Sharing>>,
    /// Listens for browsers.
    web: OnceLock<Endpoint>,
}

impl Server {
    /// Starts listening. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// The directory cannot be opened, or the address cannot be used.
    pub fn bind(identity: &Identity, options: Options) -> Result<Self, Error> {
        let Options { root, listen: address, policy, limits, paths, rate_bps, .. } = options;
        let Options { lanes, lane_ports, allow, insecure_measurement, log, .. } = options;
        let access_control = AccessControl::new(policy);
        let root = root.open()?;
        let flow_control = FlowControlBudget::default();
        let activity = flow_control.activity().clone();
        let (endpoint, port) =
            listen(address, identity, Arc::clone(&access_control), lane_ports, activity)?;
        let shared = Shared {
            access_control,
            root,
            admission: Admission::new(limits),
            flow_control,
            paths,
            allow,
            rates: Rates::new(rate_bps),
            lanes: port.filter(|_| lanes).map(|port| port.allow_measurement(insecure_measurement)),
            claims: ClaimTable::default(),
            joins: JoinTable::default(),
            log,
            started: Instant::now(),
            counters: Arc::default(),
            drain: Drain::new(),
            invitations: OnceLock::new(),
            sharing: OnceLock::new(),
            web: OnceLock::new(),
        };
        Ok(Self { endpoint, shared: Arc::new(shared) })
    }

    /// Returns the address on which it listens.
    ///
    /// # Errors
    /// The system does not say.
    pub fn address(&self) -> Result<SocketAddr, Error> {
        self.endpoint.local_addr().map_err(|cause| Error::System {
            doing: "ask where the server listens".to_owned(),
            cause,
        })
    }

    /// Serves until [`Self::stop`] is called, or a drain ([`Self::drain`]) has come to its end.
    pub async fn serve(&self) {
        let accepting = async {
            while let Some(incoming) = self.endpoint.accept().await {
                self.accept(incoming);
            }
        };
        tokio::select! {
            () = accepting => {}
            () = self.drained() => self.stop(),
        }
    }

    /// From now on this gate says who comes in. Connections of those who may not any
    /// longer, or may do something else than before, end.
    pub fn set_policy(&self, policy: AccessPolicy) {
        self.shared.access_control.set_policy(policy);
    }

    /// Serves as [`Self::serve`] does, and reads a file of authorized keys again whenever it
    /// changes; the rest of `policy` stays.
    ///
    /// Wrong lines are ignored with a warning, and the others count: a removed key is out, whatever
    /// else is wrong in the file, and a slip locks nobody else out. If the file cannot be read, its
    /// former content holds, with a warning.
    pub async fn serve_following(&self, file: Followed, policy: AccessPolicy) {
        tokio::select! {
            () = self.serve() => {}
            () = self.follow(file, policy) => {}
        }
    }

    async fn follow(&self, mut file: Followed, policy: AccessPolicy) {
        loop {
            tokio::time::sleep(LOOK).await;
            let root = self.shared.root.clone();
            let look = move || {
                let change = file.look().map(|read| {
                    read.map(|(keys, mut wrong)| {
                        let (keys, nowhere) = keys.with_roots_below(&root, file.path());
                        wrong.extend(nowhere);
                        (keys, wrong)
                    })
                });
                (change, file)
            };
            let looked = spawn_blocking(look).await;
            // only when the runtime shuts down
            let Ok((change, same)) = looked else { return std::future::pending().await };
            file = same;
            match change {
                None => {}
                Some(Err(error)) => {
                    tracing::warn!("{error}. The former keys stay valid");
                }
                Some(Ok((keys, wrong))) => {
                    for error in wrong {
                        tracing::warn!("{error}. This line is ignored");
                    }
                    self.set_policy(AccessPolicy { keys, ..policy.clone() });
                }
            }
        }
    }

    /// Accepts these invitations. They can be set once.
    pub fn set_invitations(&self, invitations: Invitations) {
        let _ = self.shared.invitations.set(invitations);
    }

    /// Returns the number of connections, handshakes included.
    pub fn connections(&self) -> usize {
        let web = self.shared.web.get().map_or(0, Endpoint::open_connections);
        self.endpoint.open_connections() + web
    }

    /// Closes all connections.
    pub fn stop(&self) {
        self.endpoint.close(Closing::Leaving.into(), b"");
        if let Some(web) = self.shared.web.get() {
            web.close(Closing::Leaving.into(), b"");
        }
    }

    /// Closes all connections, and waits until the clients know.
    pub async fn close(&self) {
        self.stop();
        // clients that do not answer are not waited for
        let _ = tokio::time::timeout(Duration::from_secs(1), self.endpoint.wait_idle()).await;
    }

    /// Drops all packets of lanes, as a firewall might.
    #[cfg(test)]
    pub(crate) fn block_lanes(&self) {
        self.shared.lanes.iter().flat_map(Port::engines).for_each(|engine| engine.block());
    }

    /// Sums what the engines have dropped.
    #[cfg(test)]
    pub(crate) fn dropped_on_lanes(&self, of: impl Fn(&crate::lanes::Dropped) -> u64) -> u64 {
        let engines = self.shared.lanes.iter().flat_map(Port::engines);
        engines.map(|engine| of(engine.dropped())).sum()
    }

    /// Returns what was rejected since the start.
    pub fn rejections(&self) -> RejectionCounts {
        self.shared.admission.rejections()
    }

    fn accept(&self, incoming: Incoming) {
        let accepted = self.shared.admission.accept(incoming, self.connections());
        let Some((incoming, waiting)) = accepted else { return };
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
    async fn serve(&self, incoming: Incoming, waiting: PendingHandshake) -> Result<(), Error> {
        let connect = async |incoming: Incoming| Ok(incoming.accept()?.await?);
        let (slot, handshake, connection) = self.handshake(incoming, waiting, connect).await?;
        self.serve_session(connection.into(), slot, handshake, None).await
    }

    /// Answers the requests of a session, until it ends.
    async fn serve_session(
        &self,
        connection: Connection,
        _slot: impl Send,
        handshake: HandshakePermit,
        browser: Option<BrowserBinding>,
    ) -> Result<(), Error> {
        let _open = self.drain.open_session();
        let _uploads = self.claims.open_session(&connection);
        if self.drain.has_begun() {
            self.admission.reject(|rejected| rejected.draining += 1);
            connection.close(Closing::Leaving, SHUTTING_DOWN);
            return Err(Error::Lost("it came while this server shuts down".to_owned()));
        }
        let mut session = None;
        if let Some(principal) = Principal::certified(&connection) {
            // the key may have been removed since the handshake
            let started = self.start_session(&connection, principal).await.inspect_err(|error| {
                self.admission.count(|rejected| rejected.unauthorized += 1);
                connection.close(Closing::Refused, &error.reason());
            });
            session = Some(started?);
        }
        // an unauthenticated connection counts as a handshake
        let mut handshake = session.is_none().then_some(handshake);
        let (mut next_id, mut used_lanes) = (0, UsedLanes::default());
        let mut last_reply: Option<ClosedStream> = None;
        loop {
            let next_request = async {
                match &session {
                    Some(_) => Ok(connection.accept_bi().await),
                    None => tokio::time::timeout(REQUEST, connection.accept_bi())
                        .await
                        .map_err(|_| Error::Lost("it does not authenticate".to_owned())),
                }
            };
            let accepted = tokio::select! {
                biased;
                _ = self.drain.begun() => {
                    if let Some(reply) = last_reply {
                        let _ = tokio::time::timeout(REQUEST, reply.acknowledged()).await;
                    }
                    connection.close(Closing::Leaving, SHUTTING_DOWN);
                    return Ok(());
                }
                accepted = next_request => accepted?,
            };
            let (send, receive) = match accepted {
                Ok(streams) => streams,
                Err(quinn::ConnectionError::ApplicationClosed(_)) => return Ok(()),
                Err(error) => return Err(error.into()),
            };
            let (mut writer, mut reader) = (MessageWriter::new(send), MessageReader::new(receive));
            if let (Some(browser), None) = (&browser, &session) {
                writer.send(&Message::Challenge { nonce: browser.nonce }).await?;
            }
            let reading =
                self.read_request(&connection, browser.as_ref(), &mut session, &mut reader);
            let request = tokio::time::timeout(REQUEST, reading)
                .await
                .map_err(|_| Error::Protocol("it does not say what it wants".to_owned()))
                .flatten();
            handshake = handshake.filter(|_| session.is_none());
            // late data of one upload must not be taken for that of another
            let is_last = matches!(request, Ok((_, Message::Join { .. })));
            let takes_bps =
                session.as_ref().and_then(|session| session.rates.incoming().rate_bps());
            let counts = session.as_ref().is_some_and(|session| session.root.is_remote());
            let greeting = Greeting { rate_bps: takes_bps, counts, ..Greeting::default() };
            writer.queue(&hello(greeting)).await?;
            let outcome = match (&session, request) {
                (Some(session), Ok((greeting, message))) => {
                    if let Some(connection) = connection.native() {
                        streams::prioritize(connection, greeting.priority);
                    }
                    let direction = Operation::of(&message).direction();
                    let mut request = Request {
                        connection: &connection,
                        root: session.root.for_transfer(),
                        access_control: &self.access_control,
                        sharing: self.sharing.get(),
                        share_id: None,
                        paths: self.paths,
                        allow: self.allow,
                        rates: &session.rates,
                        greeting,
                        client: &session.grant,
                        claims: &self.claims,
                        joins: &self.joins,
                        lanes: self.lanes.as_ref(),
                        used_lanes: &mut used_lanes,
                        flow_control: &self.flow_control,
                        log: self.log.as_deref(),
                        counters: &self.counters,
                        tally: Tally::new(&self.counters, direction),
                        writer: &mut writer,
                        reader: &mut reader,
                    };
                    // boxed, so that an idle connection does not hold its memory
                    Box::pin(request.answer(message, &mut next_id)).await
                }
                (_, Err(error)) => Err(error),
                (None, Ok(_)) => Err(Error::not_let_in()),
            };
            if let Err(error) = &outcome {
                let reason = error.reason();
                if matches!(error, Error::Protocol(_)) {
                    self.admission.reject(|rejected| rejected.protocol += 1);
                    connection.close(Closing::Rules, &reason);
                } else {
                    let is_refused = matches!(error, Error::Refused(_) | Error::Denied { .. });
                    if session.is_none() && is_refused {
                        self.admission.count(|rejected| rejected.unauthorized += 1);
                    }
                    // received if the client still reads
                    let about_files = matches!(error, Error::Files(_)).then_some(true);
                    let stranger = session.is_none().then_some(ErrorCode::UNAUTHORIZED);
                    let code = error.code().or(stranger);
                    let _ = writer.send(&Message::Refused { reason, about_files, code }).await;
                }
            }
            let refused =
                matches!(outcome, Err(Error::Refused(_) | Error::Denied { .. } | Error::Files(_)));
            let goes_on = session.as_ref().filter(|_| !is_last && (outcome.is_ok() || refused));
            let Some(session) = goes_on else {
                // lets the message arrive before the connection is closed
                let _ = tokio::time::timeout(REQUEST, writer.close_and_wait()).await;
                // an upload in which other sessions take part may hold it
                if connection.native().is_some() {
                    connection.close(Closing::Done, "");
                }
                return outcome;
            };
            last_reply = Some(writer.close().await?);
            if let Err(error) = outcome {
                tracing::debug!("{} is refused: {error}", session.grant.name());
            }
        }
    }

    /// Waits for permission for a handshake, then completes it.
    async fn handshake<T>(
        &self,
        incoming: Incoming,
        waiting: PendingHandshake,
        connect: impl AsyncFnOnce(Incoming) -> Result<T, Error>,
    ) -> Result<(ConnectionSlot, HandshakePermit, T), Error> {
        let late = |_| {
            self.admission.reject(|rejected| rejected.slow += 1);
            Error::Lost("its handshake takes too long".to_owned())
        };
        let permit = match tokio::time::timeout(HANDSHAKE, waiting.permit()).await {
            Ok(permit) => permit,
            Err(elapsed) => {
                incoming.refuse();
                return Err(late(elapsed));
            }
        };
        let Some((slot, permit)) = permit else {
            incoming.refuse();
            return Err(Error::Lost("the server is stopping".to_owned()));
        };
        match tokio::time::timeout(HANDSHAKE, connect(incoming)).await {
            Ok(Ok(connection)) => Ok((slot, permit, connection)),
            Ok(Err(error)) => {
                self.admission.reject(|rejected| rejected.failed += 1);
                permit.fail(slot);
                Err(error)
            }
            Err(elapsed) => {
                permit.fail(slot);
                Err(late(elapsed))
            }
        }
    }

    /// Reads the first messages of a request: the client's greeting, and the request. With the
    /// first request on a connection, a client without a certificate proves its key, or stays
    /// anonymous.
    async fn read_request(
        &self,
        connection: &Connection,
        browser: Option<&BrowserBinding>,
        session: &mut Option<Session>,
        reader: &mut MessageReader,
    ) -> Result<(Greeting, Message), Error> {
        let greeting = reader.recv_hello().await?;
        let mut message = reader.expect().await?;
        if session.is_none() {
            let principal = match message {
                Message::Proof { key, signature, binding, nonce } => {
                    let key = match (browser, connection.native()) {
                        (Some(browser), _) => browser.check(key, &signature, binding, nonce)?,
                        (None, Some(connection)) if binding.is_none() => {
                            proof::check(key, &signature, connection)?
                        }
                        _ => return Err(Error::Refused("its proof is a browser's".to_owned())),
                    };
                    message = reader.expect().await?;
                    match message {
                        Message::Invited { secret, name } => {
                            self.invite(key, &secret, name).await?;
                            message = reader.expect().await?;
                            Principal::Signed(key)
                        }
                        Message::ShareSecret { secret } => {
                            let sharing = self.sharing.get().ok_or_else(Error::share_ended)?;
                            let share = sharing.shares.find(&secret, &key);
                            let share = share.map_err(sharing::unusable)?;
                            message = reader.expect().await?;
                            Principal::Shared(key, share)
                        }
                        _ => Principal::Signed(key),
                    }
                }
                _ => Principal::Anonymous,
            };
            *session = Some(self.start_session(connection, principal).await?);
        }
        Ok((greeting, message))
    }

    /// Adds a key to the accepted ones, if the secret is that of an open invitation. A key that is
    /// accepted already needs none.
    async fn invite(&self, key: PublicKey, secret: &[u8; 32], name: String) -> Result<(), Error> {
        if self.access_control.knows(&key) {
            return Ok(());
        }
        let invited = self.invitations.get().and_then(|all| all.take(secret));
        let Some(invitation) = invited else {
            let reason = "this invitation was used already, or has expired: ask for another one";
            let reason = reason.to_owned();
            return Err(Error::Denied { code: ErrorCode::INVITATION, reason });
        };
        let access = invitation.access().clone();
        let added = spawn_blocking(move || invitation.add(key, &name)).await;
        added.map_err(|error| Error::task(&error))??;
        tracing::info!("an invitation added the key {}", key.fingerprint());
        self.access_control.enroll(key, access);
        Ok(())
    }

    /// Starts the session of a client, if the policy accepts it.
    async fn start_session(
        &self,
        connection: &Connection,
        principal: Principal,
    ) -> Result<Session, Error> {
        let grant = self.access_control.admit(connection, principal)?;
        tracing::debug!("{} is {}", connection.remote_address(), grant.name());
        let root = match &grant.access.root {
            // this is not about a path of the request: the client is refused
            Some(root) => {
                let (outer, inner) = (self.root.clone(), root.clone());
                let below = spawn_blocking(move || outer.below(&inner)).await;
                let below = below.map_err(|error| Error::task(&error))?;
                below.map_err(|error| match grant.share {
                    Some(_) => {
                        let reason = "what this link shares is not there any longer".to_owned();
                        Error::Denied { code: ErrorCode::NOT_FOUND, reason }
                    }
                    None => Error::Refused(error.to_string()),
                })?
            }
            None => self.root.clone(),
        };
        open_request_window(connection);
        // the limit of a key holds for its share links, too
        let limited = grant.share.as_ref().map_or(grant.key, |share| Some(share.by));
        let rates = self.rates.of(limited, grant.access.rate_bps);
        let expiry =
            grant.share.as_ref().map(|share| Expiry::watch(connection.clone(), Arc::clone(share)));
        Ok(Session { grant, root, rates, _expiry: expiry, _counted: self.counters.session() })
    }
}

/// The session of an accepted client.
struct Session {
    grant: Grant,
    root: Root,
    rates: ClientRates,
    _expiry: Option<Expiry>,
    _counted: Held,
}
