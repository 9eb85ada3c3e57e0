//! A connection to a server, and the requests that it carries.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use headroom_transfer_proto::message::{Compress, Message, TreeOptions};
use headroom_transfer_proto::path::{PathError, RelPath, shown};
use headroom_transfer_proto::rate::Priority;
use headroom_transfer_proto::span::Verification;
use quinn::{Connection, Endpoint};
use rustls::pki_types::CertificateDer;
use tokio::task::spawn_blocking;

use crate::control::{Greeting, MessageReader, MessageWriter, hello, unexpected};
use crate::delivery::{Event, Observer};
use crate::error::{Closing, Error};
use crate::files::{Keep, Requests, requests};
use crate::identity::Identity;
use crate::key::{Fingerprint, PublicKey};
use crate::lanes::{LaneHandle, LaneOffer, LaneOptions, LaneParams};
use crate::proof;
use crate::quic::{self, ClientProof};
use crate::remote_path::Host;
use crate::ssh::{Ssh, SshServer, from_home};
use crate::streams;
use crate::trust::{Authority, HostKeys, HostStatus, KnownHosts};

/// How long a host has to answer, by default.
pub const TIMEOUT: Duration = Duration::from_secs(10);
/// How long a client waits for its close to be sent.
const CLOSE_DELAY: Duration = Duration::from_millis(5);
/// Additional round trips to wait while the server may not have received the end of the last
/// request.
const CLOSE_ROUND_TRIPS: u32 = 3;

/// Which servers to trust.
#[derive(Debug, Clone, Copy)]
pub struct Trust<'a> {
    /// Known hosts.
    pub hosts: &'a KnownHosts,
    /// An authority whose servers are trusted as well.
    pub authority: Option<&'a Authority>,
    /// The key that an unknown host must have.
    pub fingerprint: Option<Fingerprint>,
}

/// A connection to a server.
#[derive(Debug)]
pub struct Client {
    pub(super) endpoint: Endpoint,
    pub(super) connection: Connection,
    pub(super) next_id: u64,
    pub(super) compress: Compress,
    pub(super) rate_bps: Option<u64>,
    priority: Priority,
    /// The proof of its key, until it is sent.
    pub(super) proof: Option<Message>,
    /// The server that ssh started for it.
    pub(super) ssh_server: Option<SshServer>,
    /// The reply stream of the last request, which the server closes when it has received
    /// everything.
    pub(super) last_reply: Option<MessageReader>,
    pub(super) lanes: bool,
    pub(super) lane_options: LaneOptions,
    pub(super) tree: TreeOptions,
    verification: Verification,
}

impl Client {
    /// Starts a server on a host through ssh, for this client alone, and connects to it. Paths are
    /// then those of the user there: relative to the home, or absolute.
    ///
    /// # Errors
    /// Those of [`Ssh::start`]; or ssh reaches the host, but UDP does not
    /// within `timeout` ([`Error::Unreachable`]).
    pub async fn over_ssh(host: &Host, ssh: &Ssh, timeout: Duration) -> Result<Self, Error> {
        let (ssh, named) = (ssh.clone(), host.clone());
        let started = spawn_blocking(move || ssh.start(&named)).await;
        let ssh_server = started.map_err(|error| Error::task(&error))??;
        let (addresses, host_keys) =
            (ssh_server.addresses().await?, HostKeys::Keys(vec![ssh_server.key()]));
        let port = ssh_server.host().port();
        let (host_there, identity) = (ssh_server.host(), ssh_server.identity());
        let connected =
            quic::connect_to(&host_there, addresses, Some(identity), host_keys, None, timeout)
                .await;
        let (endpoint, connection) = connected.map_err(|error| match error {
            Error::Unreachable { cause, .. } => Error::Unreachable {
                host: host.to_string(),
                cause: format!(
                    "ssh started a server there, but its UDP port {port} cannot be reached ({cause}). Open it in the firewall, or name an open port: HOST:PORT:PATH"
                ),
            },
            error => error,
        })?;
        Ok(Self::new(endpoint, connection, Some(ssh_server)))
    }

    /// Connects, with both sides authenticated.
    ///
    /// # Errors
    /// The host cannot be reached ([`Error::Unreachable`]), is unknown ([`Error::UnknownHost`],
    /// with the key that it presents), or has another key than before ([`Error::ChangedHost`]).
    pub async fn connect(
        host: &Host,
        identity: &Identity,
        trust: Trust<'_>,
    ) -> Result<Self, Error> {
        Self::connect_within(TIMEOUT, host, identity, trust).await
    }

    /// Connects with this timeout for each of the host's addresses. After 30 s QUIC gives up in any
    /// case. An address that does not answer within 250 ms is not waited for: the next one is
    /// tried, too, and the first that answers counts (RFC 8305).
    ///
    /// # Errors
    /// As those of [`Self::connect`].
    pub async fn connect_within(
        timeout: Duration,
        host: &Host,
        identity: &Identity,
        trust: Trust<'_>,
    ) -> Result<Self, Error> {
        Self::connect_elsewhere(timeout, host, None, identity, trust).await
    }

    /// Connects as [`Self::connect_within`] does, and tries the address at which a connection was
    /// lost after all others of the host. So a client of a name that several servers have goes on
    /// with another one.
    ///
    /// # Errors
    /// As those of [`Self::connect`].
    pub async fn connect_elsewhere(
        timeout: Duration,
        host: &Host,
        lost: Option<SocketAddr>,
        identity: &Identity,
        trust: Trust<'_>,
    ) -> Result<Self, Error> {
        let addresses = quic::with_last(quic::addresses(host).await?, lost);
        Self::connect_by(ClientProof::Certificate, timeout, (host, addresses), identity, trust)
            .await
    }

    /// Connects as [`Self::connect_within`] does, at this address of the host alone.
    ///
    /// # Errors
    /// As those of [`Self::connect`].
    pub async fn connect_at(
        timeout: Duration,
        host: &Host,
        address: SocketAddr,
        identity: &Identity,
        trust: Trust<'_>,
    ) -> Result<Self, Error> {
        let to = (host, vec![address]);
        Self::connect_by(ClientProof::Certificate, timeout, to, identity, trust).await
    }

    /// Connects without a certificate, as clients in browsers must: the first request is preceded
    /// by a message that proves the key.
    ///
    /// # Errors
    /// As those of [`Self::connect`].
    pub async fn connect_by_message(
        host: &Host,
        identity: &Identity,
        trust: Trust<'_>,
    ) -> Result<Self, Error> {
        let to = (host, quic::addresses(host).await?);
        let mut client =
            Self::connect_by(ClientProof::Message, TIMEOUT, to, identity, trust).await?;
        client.proof = Some(proof::make(identity, &client.connection)?);
        Ok(client)
    }

    /// Connects to a host at one of these addresses.
    pub(crate) async fn connect_by(
        proof_by: ClientProof,
        timeout: Duration,
        (host, addresses): (&Host, Vec<SocketAddr>),
        identity: &Identity,
        trust: Trust<'_>,
    ) -> Result<Self, Error> {
        let status = trust.hosts.status(&host.known_as());
        let host_keys = match (&status, trust.fingerprint) {
            (HostStatus::Known { keys, .. }, _) => HostKeys::Keys(keys.clone()),
            (HostStatus::Unknown, Some(fingerprint)) => HostKeys::Fingerprint(fingerprint),
            (HostStatus::Unknown, None) => HostKeys::none(),
        };
        let shown = (proof_by == ClientProof::Certificate).then_some(identity);
        let authority = trust.authority.cloned();
        let connected =
            quic::connect_to(host, addresses, shown, host_keys, authority, timeout).await;
        let (endpoint, connection) = connected.map_err(|error| match (error, &status) {
            (Error::UnknownHost { host, key }, HostStatus::Known { line, .. }) => {
                let path = trust.hosts.path().to_owned();
                Error::ChangedHost { host, shown: Some(key), path, line: *line }
            }
            (Error::NotTrusted { host, .. }, HostStatus::Known { line, .. })
                if trust.authority.is_none() =>
            {
                let path = trust.hosts.path().to_owned();
                Error::ChangedHost { host, shown: None, path, line: *line }
            }
            (Error::UnknownHost { host, key }, HostStatus::Unknown)
                if trust.fingerprint.is_some() =>
            {
                Error::NotTrusted {
                    host,
                    cause: format!(
                        "its key is {}, not the one with the given fingerprint",
                        key.fingerprint()
                    ),
                }
            }
            (error, _) => error,
        })?;
        let client = Self::new(endpoint, connection, None);
        match (trust.fingerprint, client.key()) {
            (Some(wanted), key) if key.is_none_or(|key| key.fingerprint() != wanted) => {
                client.close().await;
                Err(Error::NotTrusted {
                    host: host.known_as(),
                    cause: "its key is not the one with the given fingerprint".to_owned(),
                })
            }
            _ => Ok(client),
        }
    }

    /// Sets whether later requests compress data, in both directions.
    pub const fn compress(&mut self, how: Compress) {
        self.compress = how;
    }

    fn new(endpoint: Endpoint, connection: Connection, ssh_server: Option<SshServer>) -> Self {
        Self {
            endpoint,
            connection,
            next_id: 0,
            compress: Compress::Never,
            rate_bps: None,
            priority: Priority::default(),
            lanes: true,
            lane_options: LaneOptions::default(),
            tree: TreeOptions::default(),
            verification: Verification::Blake3,
            proof: None,
            ssh_server,
            last_reply: None,
        }
    }

    /// Returns the server's key.
    pub fn key(&self) -> Option<PublicKey> {
        let identity = self.connection.peer_identity()?;
        let certificates = identity.downcast::<Vec<CertificateDer<'static>>>().ok()?;
        PublicKey::of_certificate(certificates.first()?)
    }

    /// Returns the server's address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.connection.remote_address()
    }

    /// Whether the connection has ended, so that no request can use it.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.connection.close_reason().is_some()
    }

    /// Returns the user's home on a server that ssh started.
    #[must_use]
    pub fn home(&self) -> Option<&[u8]> {
        self.ssh_server.as_ref().map(SshServer::home)
    }

    /// Limits later requests to this many bits of file content per second.
    pub const fn limit(&mut self, rate_bps: Option<u64>) {
        self.rate_bps = rate_bps;
    }

    /// Sets the share that later requests take beside other traffic, both ways.
    pub const fn prioritize(&mut self, priority: Priority) {
        self.priority = priority;
    }

    /// Returns how this client wants to be sent files.
    pub(super) const fn greeting(&self) -> Greeting {
        Greeting { rate_bps: self.rate_bps, priority: self.priority, counts: true }
    }

    /// Sets how later requests send and store trees, but not how they verify files:
    /// [`Self::set_verification`] does that.
    pub const fn set_tree(&mut self, tree: TreeOptions) {
        // a sync would announce a CRC and use BLAKE3
        self.tree = TreeOptions { verification: None, ..tree };
    }

    /// Sets how later requests to put and get files verify those that are too big for their entry.
    /// By CRC-64/NVME are then verified those of which the receiver has nothing yet, if the server
    /// can do that; all others are verified by BLAKE3, and so is everything else that this client
    /// does.
    pub const fn set_verification(&mut self, verification: Verification) {
        self.verification = verification;
    }

    /// Returns how a request to put or get files sends and stores trees.
    ///
    /// # Errors
    /// Files would be verified by a CRC and not encrypted ([`Error::Usage`]).
    pub(super) fn tree_of_copy(&self) -> Result<TreeOptions, Error> {
        let verification = Some(self.verification).filter(|by| *by != Verification::Blake3);
        if verification.is_some() && self.lane_options.cipher.is_some_and(|it| !it.is_secure()) {
            return Err(Error::Usage(
                "--verify fast needs encryption: without it only BLAKE3 finds what somebody on the path has changed"
                    .to_owned(),
            ));
        }
        Ok(TreeOptions { verification, ..self.tree })
    }

    /// Sets whether big files may use lanes, which is the default; otherwise they use streams.
    pub const fn set_lanes(&mut self, allowed: bool) {
        self.lanes = allowed;
    }

    /// Sets options of lanes for later requests. What cannot use such lanes, because one side does
    /// not offer them, is refused: it would be measured as something else.
    ///
    /// # Errors
    /// It is for measurement alone, and the options do not allow that
    /// ([`Error::Usage`]).
    pub fn set_lane_options(&mut self, lane_options: LaneOptions) -> Result<(), Error> {
        lane_options.check()?;
        self.lane_options = lane_options;
        Ok(())
    }

    /// Closes the connection, and tells the server.
    pub async fn close(mut self) {
        if let Some(reader) = self.last_reply.take() {
            // this side is done: the server should know it, but is not waited for long
            let long = CLOSE_DELAY + CLOSE_ROUND_TRIPS * self.connection.rtt();
            let _ = tokio::time::timeout(long, reader.drain()).await;
        }
        self.connection.close(Closing::Done.into(), b"");
        // sent at once; a server that does not receive it notices by its timeout
        let _ = tokio::time::timeout(CLOSE_DELAY, self.endpoint.wait_idle()).await;
        if let Some(ssh_server) = self.ssh_server {
            let _ = spawn_blocking(move || ssh_server.close()).await;
        }
    }

    /// Ends a request that is done on this side. Whether and when the server knows it changes
    /// nothing.
    pub(super) async fn finish_request(&mut self, writer: MessageWriter, reader: MessageReader) {
        let _ = writer.close().await;
        self.last_reply = Some(reader);
    }

    /// Parses a path as it was typed; `None` is the root.
    pub(super) fn below(&self, path: &[u8]) -> Result<Option<RelPath>, Error> {
        let read = match &self.ssh_server {
            Some(ssh_server) => from_home(ssh_server.home(), path),
            None => return below_root(path),
        };
        read.map_err(|error| no_path(path, error))
    }

    #[cfg(test)]
    pub(crate) const fn connection(&self) -> &Connection {
        &self.connection
    }

    pub(super) fn offer(&self) -> Option<LaneOffer> {
        // a lane reads lost data again: a file that changes meanwhile would be inconsistent
        let lanes = self.lanes && !self.tree.changing;
        let offer = lanes.then(|| LaneOffer::new(&self.connection)).flatten();
        offer.map(|offer| offer.with_options(self.lane_options))
    }

    /// Sends a request and receives the server's acceptance.
    pub(super) async fn request(
        &mut self,
        request: &Message,
        offer: Option<LaneOffer>,
    ) -> Result<(MessageWriter, MessageReader, Accepted), Error> {
        let (writer, mut reader, answer) = self.begin(request, offer).await?;
        let accepted = answer.receive(&mut reader).await?;
        Ok((writer, reader, accepted))
    }

    /// Sends a request.
    pub(super) async fn begin(
        &mut self,
        request: &Message,
        offer: Option<LaneOffer>,
    ) -> Result<(MessageWriter, MessageReader, Answer), Error> {
        let moves = matches!(
            request,
            Message::Put { .. }
                | Message::Get { .. }
                | Message::Sync { .. }
                | Message::PutStream { .. }
                | Message::GetStream { .. }
        );
        let is_chosen = self.lane_options.is_any() && moves;
        if is_chosen && (offer.is_none() || self.compress != Compress::Never) {
            return Err(Error::Usage(
                "--cipher and --chunk apply to lanes only. `-`, sync, get with --rate, and compressed data use streams"
                    .to_owned(),
            ));
        }
        let (send, receive) = self.connection.open_bi().await?;
        let (mut writer, reader) = (MessageWriter::new(send), MessageReader::new(receive));
        writer.queue(&hello(self.greeting())).await?;
        streams::prioritize(&self.connection, self.priority);
        if let Some(proof) = self.proof.take() {
            writer.queue(&proof).await?;
        }
        writer.send(request).await?;
        Ok((writer, reader, Answer::Awaited { offer, is_chosen, priority: self.priority }))
    }
}

/// A server's answer to a request.
pub(super) enum Answer {
    Received(Accepted),
    Awaited {
        offer: Option<LaneOffer>,
        /// Whether the user has chosen something of lanes, which must then be used.
        is_chosen: bool,
        priority: Priority,
    },
}

impl Answer {
    /// Receives it, if that has not happened yet.
    ///
    /// # Errors
    /// The server refuses the request, or its answer does not match.
    pub(super) async fn receive(self, reader: &mut MessageReader) -> Result<Accepted, Error> {
        let (offer, is_chosen, priority) = match self {
            Self::Received(accepted) => return Ok(accepted),
            Self::Awaited { offer, is_chosen, priority } => (offer, is_chosen, priority),
        };
        let Greeting { rate_bps: peer_limit_bps, counts, .. } = reader.recv_hello().await?;
        match reader.expect().await? {
            Message::Accepted { lanes, keep, ticket: _, verification, ranges, parts } => {
                let lanes = lanes.map(|answer| match offer {
                    Some(offer) => offer.accepted(&answer),
                    None => {
                        Err(Error::Protocol("it accepts lanes that were not offered".to_owned()))
                    }
                });
                let lanes = lanes.transpose()?;
                lanes.iter().for_each(|lane| lane.prioritize(priority));
                if is_chosen && lanes.is_none() {
                    let reason = "it does not use lanes, to which alone --cipher and --chunk apply";
                    return Err(Error::Refused(reason.to_owned()));
                }
                Ok(Accepted {
                    peer_limit_bps,
                    lanes,
                    keep,
                    verification: verification.unwrap_or_default(),
                    counts,
                    ranges: ranges == Some(true),
                    parts: parts == Some(true),
                })
            }
            Message::Refused { reason, about_files, code } => {
                Err(Error::refused(reason, about_files, code))
            }
            other => Err(unexpected(&other)),
        }
    }
}

/// Returns the addresses of a host, in the order in which they are tried.
///
/// # Errors
/// Its name has no address ([`Error::Unreachable`]).
pub async fn addresses(host: &Host) -> Result<Vec<SocketAddr>, Error> {
    quic::addresses(host).await
}

/// Reads a path as it is written behind `HOST:`, below a server's root; `None` is the root.
///
/// # Errors
/// It has a component `..` or a NUL, is too long, or begins with `~`, because a server's root
/// has no home ([`Error::Usage`]).
pub fn below_root(path: &[u8]) -> Result<Option<RelPath>, Error> {
    if matches!(path, b"~" | [b'~', b'/', ..]) {
        return Err(Error::Usage(format!(
            "`{}`: paths of a `headroom serve` begin at its root, and there is no home. With --ssh `~` is your home there; write a file called `~` as ./~",
            shown(path)
        )));
    }
    RelPath::typed(path).map_err(|error| no_path(path, error))
}

fn no_path(path: &[u8], error: PathError) -> Error {
    Error::Usage(format!("`{}` is not a path on a server: {error}", shown(path)))
}

/// A server's acceptance of a request.
pub(super) struct Accepted {
    /// The most bits of file content per second that the server accepts.
    pub(super) peer_limit_bps: Option<u64>,
    pub(super) lanes: Option<LaneHandle>,
    /// Which of the requested attributes it keeps.
    pub(super) keep: Option<Keep>,
    verification: Verification,
    /// Whether it will say how many requests to its object store that took.
    pub(super) counts: bool,
    /// Whether it sends ranges of files.
    pub(super) ranges: bool,
    /// Whether it stores parts of a file of which other servers store others.
    pub(super) parts: bool,
}

impl Accepted {
    /// Drops the attributes that the server does not keep, with a warning.
    pub(super) fn limit(&self, tree: TreeOptions, observer: &Arc<dyn Observer>) -> TreeOptions {
        limited(tree, self.keep.unwrap_or_default(), "the server does not keep", observer)
    }

    /// Returns how files are verified of which the receiver has nothing. Warns if that is not as
    /// requested.
    ///
    /// # Errors
    /// The server wants what was not requested.
    pub(super) fn verification(
        &self,
        requested: Option<Verification>,
        observer: &Arc<dyn Observer>,
    ) -> Result<Verification, Error> {
        match (requested.unwrap_or_default(), self.verification) {
            (Verification::Blake3, Verification::Crc64) => {
                let what = "it verifies by CRC-64/NVME, which was not requested";
                Err(Error::Protocol(what.to_owned()))
            }
            (Verification::Crc64, Verification::Blake3) => {
                let reason = "the server does not verify by CRC-64/NVME: BLAKE3 verifies all files";
                observer.event(Event::Warning { reason });
                Ok(Verification::Blake3)
            }
            (_, agreed) => Ok(agreed),
        }
    }

    /// Reports the lanes' parameters, if there are any.
    pub(super) fn report_params(&self, observer: &Arc<dyn Observer>) -> Option<LaneParams> {
        let params = self.lanes.as_ref().map(LaneHandle::params)?;
        let LaneParams { cipher, chunk, port } = params;
        observer.event(Event::Lanes { cipher, chunk, port });
        Some(params)
    }
}

/// Receives the requests to the server's object store, if it has announced them. The transfer is
/// complete: whether they come changes nothing.
pub(super) async fn receive_counts(counts: bool, reader: &mut MessageReader) -> Option<Requests> {
    if !counts {
        return None;
    }
    match tokio::time::timeout(TIMEOUT, reader.recv()).await {
        Ok(Ok(Some(Message::StoreRequests { requests }))) => Some(requests::of_message(&requests)),
        _ => None,
    }
}

/// Drops the attributes that cannot be kept, with a warning.
pub(super) fn limited(
    tree: TreeOptions,
    keeps: Keep,
    why: &str,
    observer: &Arc<dyn Observer>,
) -> TreeOptions {
    let missing: Vec<_> = tree.keep.without(keeps).names().collect();
    if !missing.is_empty() {
        let reason = format!("{why} {}: they are not kept", missing.join(", "));
        observer.event(Event::Warning { reason: &reason });
    }
    TreeOptions { keep: tree.keep.and(keeps), ..tree }
}
