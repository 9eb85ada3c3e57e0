//! Answers one request of a client, and logs how it ended.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime};

use headroom_transfer_proto::message::{
    ErrorCode, LanesAnswer, LanesOffer, Links, Message, PartsRequest, TreeOptions,
};
use headroom_transfer_proto::path::RelPath;
use headroom_transfer_proto::span::Verification;
use tokio::task::spawn_blocking;

use super::Allow;
use super::counters::Counters;
use super::join_table::JoinTable;
use super::record::{self, Log, Operation, Outcome, Record};
use super::sharing::{self, Sharing};
use super::tally::Tally;
use crate::access::{AccessControl, Grant};
use crate::claims::ClaimTable;
use crate::connection::Connection;
use crate::control::{Greeting, MessageReader, MessageWriter, unexpected};
use crate::delivery::{Offering, Receiver, Sender, Summary, SyncMode, Terms};
use crate::error::Error;
use crate::files::{Excludes, Root, Source, requests};
use crate::flow_control::FlowControlBudget;
use crate::lanes::{LaneHandle, LaneParams, Port, UsedLanes};
use crate::path_policy::PathPolicy;
use crate::rate::ClientRates;

/// A request and its answer.
pub(super) struct Request<'a> {
    pub(super) connection: &'a Connection,
    pub(super) root: Root,
    pub(super) access_control: &'a AccessControl,
    pub(super) sharing: Option<&'a Arc<Sharing>>,
    /// The ID of a share that the request has made or revoked.
    pub(super) share_id: Option<String>,
    pub(super) paths: PathPolicy,
    pub(super) allow: Allow,
    pub(super) rates: &'a ClientRates,
    /// How the client wants to be sent files.
    pub(super) greeting: Greeting,
    pub(super) client: &'a Grant,
    pub(super) claims: &'a ClaimTable,
    pub(super) joins: &'a JoinTable,
    pub(super) lanes: Option<&'a Port>,
    pub(super) used_lanes: &'a mut UsedLanes,
    pub(super) flow_control: &'a FlowControlBudget,
    pub(super) log: Option<&'a dyn Log>,
    pub(super) counters: &'a Arc<Counters>,
    /// Counts what the request moves.
    pub(super) tally: Arc<Tally>,
    pub(super) writer: &'a mut MessageWriter,
    pub(super) reader: &'a mut MessageReader,
}

impl Request<'_> {
    /// Handles a request, and logs how it ended.
    pub(super) async fn answer(
        &mut self,
        request: Message,
        next_id: &mut u64,
    ) -> Result<(), Error> {
        let (began, clock) = (SystemTime::now(), Instant::now());
        let (operation, mut paths) = (Operation::of(&request), record::paths(&request));
        if let Some(root) = sharing::root_of(self.client) {
            paths.iter_mut().for_each(|path| {
                let below = std::mem::take(path);
                *path = [&root, below.strip_suffix(b"/").unwrap_or(&below)].concat();
            });
        }
        let running = operation.direction().map(|direction| self.counters.transfer(direction));
        let outcome = self.perform(request, next_id).await;
        drop(running);
        let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
        let failed = count(&self.tally.failed);
        let ended = Outcome::of(&outcome, failed);
        self.counters.ended(operation, ended, failed);
        let store = self.root.own_requests();
        if let Some(counted) = store
            && self.greeting.counts
            && outcome.is_ok()
            && operation.direction().is_some()
        {
            let requests = Box::new(requests::to_message(&counted));
            // the transfer is complete, whether the client learns this or not
            let _ = self.writer.send(&Message::StoreRequests { requests }).await;
        }
        if let Some(log) = self.log {
            let reason = outcome.as_ref().err().map(Error::reason);
            let share = self.client.share.as_ref().map(|share| share.id.as_str());
            log.ended(&Record {
                began,
                took: clock.elapsed(),
                client: self.client.comment.as_deref(),
                key: self.client.key.map(|key| key.fingerprint()),
                share: share.or(self.share_id.as_deref()),
                address: self.connection.remote_address(),
                operation: operation.name(),
                paths: &paths,
                bytes: count(&self.tally.bytes),
                by_crc: count(&self.tally.by_crc),
                stored: count(&self.tally.stored),
                failed,
                store,
                outcome: ended,
                reason: reason.as_deref(),
            });
        }
        outcome
    }

    async fn perform(&mut self, request: Message, next_id: &mut u64) -> Result<(), Error> {
        self.writer.flush().await?;
        let moves = !matches!(
            request,
            Message::List { .. }
                | Message::Rights
                | Message::Share { .. }
                | Message::Shares
                | Message::Revoke { .. }
                | Message::MakeDirectory { .. }
                | Message::Rename { .. }
                | Message::Remove { .. }
        );
        let open = moves.then(|| self.flow_control.open(self.connection));
        let connection = self.connection.clone();
        let asking = async {
            if let Some(open) = &open {
                connection.ping_when_silent(|| open.bytes()).await;
            }
            std::future::pending().await
        };
        tokio::select! {
            answered = self.answer_to(request, next_id) => answered,
            never = asking => never,
        }
    }

    async fn answer_to(&mut self, request: Message, next_id: &mut u64) -> Result<(), Error> {
        self.check_share(&request).await?;
        let summary = match request {
            Message::Put { to, rename, fsync, lanes, tree, parts } => {
                self.put((to, rename), fsync, lanes.as_ref(), tree, parts).await?
            }
            get @ Message::Get { .. } => self.get(get, next_id).await?,
            sync @ Message::Sync { .. } => self.sync(sync, next_id).await?,
            Message::PutStream { to, fsync } => {
                let summary = self.put_stream(to, fsync).await?;
                self.tally.add_stored(summary.stored);
                summary
            }
            Message::GetStream { from, tree } => {
                let summary = self.get_stream(from, tree).await?;
                self.tally.add_stored(summary.stored);
                summary
            }
            Message::List { path } => return self.list(path).await,
            Message::Rights => return self.rights().await,
            Message::Share { path, write, seconds, uses, name } => {
                return self.share(path, write, seconds, uses, name).await;
            }
            Message::Shares => return self.shares().await,
            Message::Revoke { id } => self.revoke(id).await?,
            Message::Join { ticket } => return self.join(&ticket).await,
            Message::MakeDirectory { path, parents } => self.make_directory(path, parents).await?,
            Message::Rename { from, to, replace } => self.rename(from, to, replace).await?,
            Message::Remove { path, recursive } => self.remove(path, recursive).await?,
            other => return Err(unexpected(&other)),
        };
        self.tally.failed.store(summary.failed, Ordering::Relaxed);
        Ok(())
    }

    /// Fails if the client's key may only read.
    pub(super) fn may_write(&self) -> Result<(), Error> {
        match self.client.access.read_only {
            true => {
                let reason = "this identity may only read".to_owned();
                Err(Error::Denied { code: ErrorCode::READ_ONLY, reason })
            }
            false => Ok(()),
        }
    }

    async fn put(
        &mut self,
        (to, rename): (Option<RelPath>, bool),
        fsync: bool,
        lanes: Option<&LanesOffer>,
        tree: Option<TreeOptions>,
        parts: Option<PartsRequest>,
    ) -> Result<Summary, Error> {
        self.may_write()?;
        // several servers of one directory would write one partial file
        let is_own = |parts: &PartsRequest| parts.one_server == Some(true);
        let is_divided = |parts: &PartsRequest| {
            self.root.is_remote() || is_own(parts) && self.client.key.is_some()
        };
        let parts = parts.filter(is_divided);
        let (root, paths) = (self.root.clone(), self.paths);
        let resolved = spawn_blocking(move || paths.destination(&root, to.as_ref(), rename));
        let destination = resolved.await.map_err(|error| Error::task(&error))??;
        // the rate of a lane cannot be limited at the receiver
        let limits = self.rates.incoming();
        let (lanes, handle) = self.accept(lanes.filter(|_| limits.rate_bps().is_none()))?;
        // the values of spans are BLAKE3's
        let verification = self.verification(tree, handle.as_ref()).filter(|_| parts.is_none());
        let stored_as = TreeOptions { verification, ..self.allow.limit(tree, &self.root) };
        let keep = tree.map(|_| stored_as.keep);
        // a browser's sessions share what it may do, and no congestion control
        let joinable = match self.connection.native() {
            Some(_) => None,
            None => self.joins.open(self.client)?,
        };
        let (ticket, joining) = joinable.unzip();
        let receiver = Receiver {
            connection: self.connection.clone(),
            joining,
            destination,
            fsync,
            observer: self.tally.clone(),
            claims: self.client.key.map(|key| self.claims.of(key)),
            limits,
            sync: None,
            tree: stored_as,
            lanes: handle,
            acceptance: Some(Message::Accepted {
                lanes,
                keep,
                ticket: ticket.as_ref().map(|open| open.ticket),
                verification,
                ranges: None,
                parts: parts.map(|_| true),
            }),
            part: None,
            parts,
        };
        receiver.receive(self.writer, self.reader).await
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
            self.writer.send(&Message::ACCEPTED).await?;
            let offering = if checksum { Offering::Hash } else { Offering::Name };
            let limits = self.rates.outgoing().and(self.greeting.rate_bps);
            let terms = Terms { limits, lane: None, verification: Verification::Blake3 };
            let sender = Sender::new(self.connection.clone(), offering, self.tally.clone(), terms);
            let sender = sender.compressing(compress.unwrap_or_default());
            let sender = sender.of_tree(tree.unwrap_or_default(), tree.is_some());
            return sender.send(source, next_id, self.writer, self.reader).await;
        }
        self.may_write()?;
        let (root, paths) = (self.root.clone(), self.paths);
        let resolve = move || paths.directory(&root, path.as_ref(), !dry_run);
        let resolved = spawn_blocking(resolve).await.map_err(|error| Error::task(&error))??;
        let (destination, is_missing) = resolved;
        let stored_as = self.allow.limit(tree, &self.root);
        let keep = tree.map(|_| stored_as.keep);
        let accepted = Message::Accepted {
            lanes: None,
            keep,
            ticket: None,
            verification: None,
            ranges: None,
            parts: None,
        };
        self.writer.send(&accepted).await?;
        let receiver = Receiver {
            connection: self.connection.clone(),
            joining: None,
            destination,
            fsync,
            observer: self.tally.clone(),
            claims: self.client.key.map(|key| self.claims.of(key)),
            limits: self.rates.incoming(),
            sync: Some(SyncMode::new(delete, dry_run, is_missing, excludes)),
            tree: stored_as,
            lanes: None,
            acceptance: None,
            part: None,
            parts: None,
        };
        receiver.receive(self.writer, self.reader).await
    }

    async fn get(&mut self, request: Message, next_id: &mut u64) -> Result<Summary, Error> {
        let Message::Get { from, compress, lanes, tree, ranges } = request else {
            return Err(unexpected(&request));
        };
        let wanted = from.into_iter().map(|wanted| (wanted.path, wanted.contents));
        let source = self.source(wanted.collect(), tree)?;
        let (lanes, handle) = self.accept(lanes.as_ref())?;
        let limits = self.rates.outgoing().and(self.greeting.rate_bps);
        // before the client knows of the lane: its first packet must find it open
        if let Some(lane) = &handle {
            lane.limit(limits.rate_bps());
            lane.prioritize(self.greeting.priority);
            lane.start(None);
        }
        // ranges of a file that changes meanwhile would be those of several versions
        let by_ranges = ranges == Some(true) && !tree.is_some_and(|tree| tree.changing);
        // the values of ranges are those of BLAKE3
        let verification = self.verification(tree, handle.as_ref()).filter(|_| !by_ranges);
        let accepted = Message::Accepted {
            lanes,
            keep: None,
            ticket: None,
            verification,
            ranges: by_ranges.then_some(true),
            parts: None,
        };
        self.writer.send(&accepted).await?;
        let (connection, offering) = (self.connection.clone(), Offering::Content);
        let verification = verification.unwrap_or_default();
        let terms = Terms { limits, lane: handle, verification };
        let sender = Sender::new(connection, offering, self.tally.clone(), terms);
        let sender = sender.compressing(compress.unwrap_or_default()).by_ranges(by_ranges);
        let sender = sender.of_tree(tree.unwrap_or_default(), tree.is_some());
        sender.send(source, next_id, self.writer, self.reader).await
    }

    /// Returns how files are verified of which the receiver has nothing, if that is as requested. A
    /// store knows what it has by BLAKE3, and without encryption a CRC would protect from nobody.
    fn verification(
        &self,
        tree: Option<TreeOptions>,
        lane: Option<&LaneHandle>,
    ) -> Option<Verification> {
        let is_encrypted = lane.is_none_or(|lane| lane.params().cipher.is_secure());
        tree?.verification.filter(|_| is_encrypted && !self.root.is_remote())
    }

    /// Makes the source of what a client requested.
    fn source(
        &self,
        wanted: Vec<(Option<RelPath>, bool)>,
        tree: Option<TreeOptions>,
    ) -> Result<Source, Error> {
        // an older client applies its own policy
        let links = tree.map_or(Links::Keep, |tree| tree.links);
        if links == Links::Follow && self.paths == PathPolicy::BeneathRoot {
            return Err(Error::Refused(
                "it follows no symbolic links: --links=follow is for put, and for --ssh".to_owned(),
            ));
        }
        let keep = tree.unwrap_or_default().keep;
        let is_file = self.client.share.as_ref().is_some_and(|share| share.is_file);
        Ok(self.paths.source(&self.root, wanted, links).keeping(keep).only_files(is_file))
    }

    /// Accepts lanes, if the client offers some and they are allowed here.
    fn accept(
        &mut self,
        offer: Option<&LanesOffer>,
    ) -> Result<(Option<LanesAnswer>, Option<LaneHandle>), Error> {
        let (Some((offer, port)), Some(connection)) =
            (offer.zip(self.lanes), self.connection.native())
        else {
            return Ok((None, None));
        };
        let accepted = port.accept(offer, connection, self.used_lanes)?;
        let params = accepted.as_ref().map(|(_, handle)| handle.params());
        if let Some(params) = params.filter(LaneParams::is_measurement) {
            let LaneParams { cipher, chunk, .. } = params;
            let not = if cipher.is_secure() { "" } else { "NOT " };
            let chunks = chunk.map(|chunk| format!(", chunks of {} bytes", chunk.bytes()));
            tracing::warn!(
                "{}: its files are {not}ENCRYPTED on lanes (cipher {cipher}{}), as --insecure-measurement allows",
                self.client.name(),
                chunks.unwrap_or_default()
            );
        }
        Ok(accepted.unzip())
    }

    async fn rights(&mut self) -> Result<(), Error> {
        let Grant { is_known, access, .. } = self.client;
        let (read_only, rate_bps) = (access.read_only, access.rate_bps);
        let (known, may_share, share) = (*is_known, Some(self.may_share()), self.shared_terms());
        let granted = Message::Granted { known, read_only, rate_bps, may_share, share };
        self.writer.send(&granted).await
    }
}
