//! One peer: its IKE SA, those that replace it, and the CHILD SAs of all of them.
//!
//! CHILD SAs belong to the session and not to an IKE SA, so that rekeying the IKE SA moves nothing:
//! it only changes on which IKE SA our next request goes.

mod child;
mod create_child;
mod eap;
mod followup;
mod found_by;
mod ike_rekey;
mod informational;
mod initiator;
mod install;
mod mobility;
mod new_child;
mod ppk;
mod proof;
mod reauth;
mod report;
mod responder;
mod tasks;

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::config::{ChildConfig, Config, Connection};
use crate::crypto::{Random, Spis};
use crate::event::{ChildId, Event, MessageReport, Reason, SessionId, Transmit, UsedPpk};
use crate::exchange::{Agreement, Draft, Exchange, Group, Offer};
use crate::identity::Identity;
use crate::nat::{self, Hashes, Nat};
use crate::path::Path;
use crate::proposal::IkeChoice;
use crate::sa::{IkeSa, Opened, Received, Role, Status};
use crate::virtual_address::Assigned;
use crate::wire::{
    Error as WireError, ExchangeType, HashAlgorithmId, Header, Message, NON_ESP_MARKER, Notify,
    NotifyType, Payload, TrafficSelector, parse_decrypted,
};

use crate::contents::Contents;
use crate::counters::{Counters, Failures};
use crate::ids::Ids;
use crate::leases::Leases;
use crate::peers::Peers;
use mobility::Mobility;
use reauth::Reauthentication;

pub(crate) use found_by::FoundBy;
pub(crate) use ppk::PpkUse;
pub(crate) use reauth::Handover;
pub(crate) use responder::Refusal;
pub(crate) use tasks::Task;

/// What every step gets.
pub(crate) struct Context<'a> {
    pub(crate) config: &'a Config,
    pub(crate) now: Instant,
    /// The time of day since 1970, if the caller told it.
    pub(crate) time: Option<Duration>,
    pub(crate) random: &'a mut dyn Random,
    pub(crate) ids: &'a mut Ids,
    pub(crate) leases: &'a mut Leases,
    pub(crate) peers: &'a mut Peers,
    pub(crate) counters: &'a mut Counters,
    pub(crate) failures: &'a mut Failures,
    pub(crate) transmits: &'a mut VecDeque<Transmit>,
    pub(crate) events: &'a mut VecDeque<Event>,
    /// Where the message came from and to: there its response goes.
    pub(crate) path: Path,
}

/// One peer.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) id: SessionId,
    pub(crate) phase: Phase,
    pub(crate) connection: Option<Arc<Connection>>,
    /// The CHILD SA that IKE_AUTH makes.
    pub(crate) first_child: Option<Arc<ChildConfig>>,
    /// The peer's name, once it is proved.
    pub(crate) remote: Option<Identity>,
    /// The peer said that it has no other IKE SA with us.
    pub(crate) initial_contact: bool,
    /// By what the endpoint finds it.
    pub(crate) found_by: FoundBy,
    /// By which the endpoint finds it while it is half-open.
    pub(crate) half_open: Option<(u64, SocketAddr)>,
    /// Whether the peer set it up.
    responds: bool,
    path: Path,
    nat: Nat,
    mobility: Mobility,
    sas: Vec<IkeSa>,
    /// The SPI of the one in use.
    current: u64,
    setup: Option<Box<Setup>>,
    /// The addresses that the responder assigned to the initiator.
    assigned: Assigned,
    /// What a post-quantum pre-shared key is mixed into, if there is one.
    ppk: Option<UsedPpk>,
    children: Vec<Child>,
    /// The peer's SPIs of CHILD SAs that it deleted before it answered that it made them.
    deleted_early: Vec<u32>,
    tasks: VecDeque<Task>,
    delayed: Vec<(Instant, Task)>,
    heard_at: Instant,
    rekey_at: Option<Instant>,
    reauth: Reauthentication,
    /// Why it is being removed.
    closes_for: Reason,
    /// Why the peer is not who it says. It knows, and may go on or not.
    failed: Option<Reason>,
    /// The requests that were sent again.
    pub(crate) retransmits: u64,
    /// When the first message was sent or came.
    pub(crate) created_at: Instant,
    pub(crate) established_at: Option<Instant>,
}

/// Where a session is in its life.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Phase {
    /// Not authenticated yet.
    Connecting,
    Established,
    /// We delete it.
    Closing,
    /// Gone, but for answers to retransmissions.
    Closed,
}

/// What is kept until IKE_AUTH is done.
#[derive(Debug)]
pub(crate) struct Setup {
    pub(crate) choice: IkeChoice,
    pub(crate) request: Vec<u8>,
    pub(crate) response: Vec<u8>,
    pub(crate) nonce_initiator: Vec<u8>,
    pub(crate) nonce_responder: Vec<u8>,
    /// IntAuth of both sides so far (RFC 9242 §3.3.2).
    pub(crate) int_auth: [Vec<u8>; 2],
    /// How many additional key exchanges are done.
    pub(crate) exchanged: usize,
    /// The hash functions of signatures that the peer accepts; none if it knows no RFC 7427.
    pub(crate) hashes: Option<Vec<HashAlgorithmId>>,
    pub(crate) ppk: PpkUse,
    /// As responder, if the initiator proves who it is by EAP.
    pub(crate) eap: Option<Box<eap::Questioned>>,
}

/// A CHILD SA.
#[derive(Debug)]
pub(crate) struct Child {
    pub(crate) id: ChildId,
    pub(crate) config: Arc<ChildConfig>,
    pub(crate) status: ChildStatus,
    pub(crate) spi_inbound: u32,
    pub(crate) spi_outbound: u32,
    pub(crate) local: Vec<TrafficSelector>,
    pub(crate) remote: Vec<TrafficSelector>,
    /// Whether packets are sent on it.
    pub(crate) sends: bool,
    /// Whether the caller has removed it: what replaces it is removed, too.
    pub(crate) unwanted: bool,
    pub(crate) replaces: Option<ChildId>,
    pub(crate) rekey_at: Option<Instant>,
    pub(crate) group: Group,
}

/// Where a CHILD SA is in its life.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum ChildStatus {
    Installed,
    /// The peer replaced it and will delete it; if not by then, we do.
    Replaced(Instant),
    /// We delete it.
    Deleting,
    /// Deleted; late packets are accepted until then.
    Lingering(Instant),
}

impl Session {
    fn new(id: SessionId, path: Path, sa: IkeSa, now: Instant) -> Self {
        Self {
            id,
            phase: Phase::Connecting,
            connection: None,
            first_child: None,
            remote: None,
            initial_contact: false,
            responds: sa.role == Role::Responder,
            found_by: FoundBy::default(),
            half_open: None,
            path,
            nat: Nat::default(),
            mobility: Mobility::default(),
            current: sa.local_spi(),
            sas: vec![sa],
            setup: None,
            assigned: Assigned::default(),
            ppk: None,
            children: Vec::new(),
            deleted_early: Vec::new(),
            tasks: VecDeque::new(),
            delayed: Vec::new(),
            heard_at: now,
            rekey_at: None,
            reauth: Reauthentication::default(),
            closes_for: Reason::Command,
            failed: None,
            retransmits: 0,
            created_at: now,
            established_at: None,
        }
    }

    /// Reports keys that are new.
    pub(crate) fn export_keys(&mut self, events: &mut VecDeque<Event>) {
        for sa in &mut self.sas {
            let (session, spis) = (self.id, sa.spis);
            let keys = sa.export().map(Box::new);
            events.extend(keys.map(|keys| Event::Keys { session, spis, keys }));
        }
    }

    fn child(&self, id: ChildId) -> Option<&Child> {
        self.children.iter().find(|child| child.id == id)
    }

    fn child_mut(&mut self, id: ChildId) -> Option<&mut Child> {
        self.children.iter_mut().find(|child| child.id == id)
    }

    fn sa(&mut self, spi: u64) -> Option<&mut IkeSa> {
        self.sas.iter_mut().find(|sa| sa.local_spi() == spi)
    }

    /// Returns the algorithms of the IKE SA in use.
    pub(crate) fn algorithms(&self) -> Option<&IkeChoice> {
        self.sas.iter().find(|sa| sa.local_spi() == self.current)?.choice.as_ref()
    }

    /// Returns the addresses of both ends.
    pub(crate) fn path(&self) -> Path {
        self.path
    }

    /// Checks whether the peer set it up.
    pub(crate) fn is_responder(&self) -> bool {
        self.responds
    }

    /// A packet arrived on a CHILD SA: the peer uses it, so we do.
    pub(crate) fn heard(&mut self, id: ChildId, ctx: &mut Context<'_>) {
        let Some(child) = self.child(id) else { return };
        if child.status != ChildStatus::Installed || child.sends {
            return;
        }
        let replaces = child.replaces;
        self.switch(id, ctx);
        if let Some(old) = replaces {
            self.stop_sending(old, ctx);
        }
    }

    /// Checks whether it counts against the limit of half-open IKE SAs.
    pub(crate) fn is_half_open(&self) -> bool {
        self.phase == Phase::Connecting && self.responds
    }

    /// Takes a message for one of its IKE SAs.
    pub(crate) fn handle(
        &mut self,
        spi: u64,
        raw: &[u8],
        message: &Message<'_>,
        ctx: &mut Context<'_>,
    ) {
        let Some(sa) = self.sa(spi) else { return };
        if message.header.exchange == ExchangeType::IkeSaInit {
            if message.header.response {
                self.init_response(raw, message, ctx);
            }
            return;
        }
        // the responder has us in already: it asks again, and then the answer to IKE_AUTH is here
        let is_early = sa.status == Status::Setup && sa.role == Role::Initiator;
        if is_early && !message.header.response {
            return;
        }
        match sa.receive(raw, message) {
            None => {}
            Some(Received::Retransmission(datagrams)) => {
                let request = MessageReport::taken(&message.header).again();
                self.report(request, ctx);
                self.report(MessageReport { is_sent: true, response: true, ..request }, ctx);
                ctx.transmit(ctx.path, datagrams);
            }
            Some(Received::Message(opened)) => {
                self.heard_at = ctx.now;
                self.follow(&opened.header, ctx);
                match opened.header.response {
                    true => self.response(spi, &opened, ctx),
                    false => self.request(spi, &opened, ctx),
                }
            }
        }
        self.close_successor();
        self.run_tasks(ctx);
    }

    /// Removes the IKE SA, too, that replaced the one that is being removed.
    fn close_successor(&mut self) {
        let active = self.sas.iter().filter(|sa| sa.status == Status::Active);
        let active: Vec<_> = active.map(IkeSa::local_spi).collect();
        if self.phase == Phase::Closing {
            active.into_iter().for_each(|spi| self.delete_ike(spi));
        }
    }

    /// Does what is due.
    pub(crate) fn poll(&mut self, ctx: &mut Context<'_>) {
        self.retransmit(ctx);
        self.expire(ctx);
        self.schedule(ctx);
        self.run_tasks(ctx);
    }

    /// Returns when something is due.
    pub(crate) fn next_deadline(&self, config: &Config) -> Option<Instant> {
        let established = self.phase == Phase::Established;
        let sas = self.sas.iter().flat_map(|sa| {
            let refused = sa.pending.as_ref().and_then(|pending| match &pending.exchange {
                Exchange::Init(init) => init.refusal.map(|(_, at)| at),
                _ => None,
            });
            let followup = sa.followup.as_ref().map(|followup| followup.expires_at);
            [sa.pending.as_ref().map(|one| one.next_at), refused, sa.expires_at, followup]
        });
        let children = self.children.iter().map(|child| match child.status {
            ChildStatus::Lingering(at) => Some(at),
            ChildStatus::Replaced(at) => Some(at).filter(|_| established),
            ChildStatus::Installed => child.rekey_at.filter(|_| established),
            _ => None,
        });
        let liveness = self.liveness(config).map(|after| self.heard_at + after);
        let delayed = self.delayed.iter().map(|(at, _)| Some(*at));
        let own = [self.rekey_at, liveness, self.reauth.at, self.reauth.ends_at];
        let own = own.map(|at| at.filter(|_| established));
        sas.chain(children).chain(delayed).chain(own).flatten().min()
    }

    fn liveness(&self, config: &Config) -> Option<Duration> {
        let own = self.connection.as_ref().and_then(|one| one.liveness);
        own.or(config.timing.liveness)
    }

    /// Checks whether nothing of it is left.
    pub(crate) fn is_over(&self) -> bool {
        self.phase == Phase::Closed && self.sas.is_empty() && self.children.is_empty()
    }

    fn request(&mut self, spi: u64, opened: &Opened, ctx: &mut Context<'_>) {
        self.report(MessageReport::taken(&opened.header), ctx);
        let contents = match parse_decrypted(opened.first, &opened.inner) {
            Ok(payloads) => Contents::gather(payloads).ok(),
            // RFC 7296 §2.5: the message is rejected, the IKE SA is unharmed
            Err(WireError::UnknownCritical(payload_type)) => {
                let data = [payload_type];
                let notify = Notify::new(NotifyType::UnsupportedCriticalPayload, &data);
                return self.respond(spi, &opened.header, &[Payload::Notify(notify)], ctx);
            }
            Err(_) => None,
        };
        let Some(contents) = contents else {
            return self.violated(spi, &opened.header, "a malformed request", ctx);
        };
        let Some(status) = self.sa(spi).map(|sa| sa.status) else { return };
        match (opened.header.exchange, status) {
            (ExchangeType::IkeIntermediate, Status::Setup) => {
                self.intermediate_request(spi, opened, &contents, ctx);
            }
            (ExchangeType::IkeAuth, Status::Setup) => {
                self.auth_request(spi, opened, &contents, ctx);
            }
            // both ends delete it, or one of several: it is gone
            (ExchangeType::Informational, Status::Closed) => {
                self.respond(spi, &opened.header, &[], ctx);
            }
            (_, Status::Setup | Status::Closed) => {}
            (ExchangeType::CreateChildSa, _) => self.create_request(spi, opened, &contents, ctx),
            (ExchangeType::IkeFollowupKe, _) => self.followup_request(spi, opened, &contents, ctx),
            (ExchangeType::Informational, _) => {
                self.informational_request(spi, opened, &contents, ctx);
            }
            // an exchange that is over, or unknown
            _ => self.refuse(spi, &opened.header, NotifyType::InvalidSyntax, ctx),
        }
    }

    fn response(&mut self, spi: u64, opened: &Opened, ctx: &mut Context<'_>) {
        let Some(pending) = self.sa(spi).and_then(|sa| sa.pending.take()) else { return };
        let payloads = parse_decrypted(opened.first, &opened.inner).ok();
        let report = MessageReport::taken(&opened.header);
        self.report(report.with_error_of(payloads.as_deref().unwrap_or_default()), ctx);
        let Some(contents) = payloads.and_then(|all| Contents::gather(all).ok()) else {
            ctx.forget(&pending.exchange);
            return self.close(Reason::Protocol("a malformed response"), ctx);
        };
        match pending.exchange {
            Exchange::Init(_) => {}
            Exchange::Intermediate(key_exchange) => {
                self.intermediate_response(key_exchange, opened, &contents, ctx);
            }
            Exchange::Auth(offer) => self.auth_response(spi, offer, &contents, ctx),
            Exchange::Create(create) => self.create_response(spi, *create, &contents, ctx),
            Exchange::Followup(followup) => {
                self.followup_response(spi, *followup, &contents, ctx);
            }
            Exchange::DeleteChild(child) => self.child_deleted(child, ctx),
            Exchange::DeleteIke => self.ike_deleted(spi, ctx),
            Exchange::Liveness => self.liveness_response(&contents),
            Exchange::DeleteUnused => {}
            Exchange::UpdateAddresses(path) => self.update_response(path, &contents, ctx),
            Exchange::Routability(path, cookie) => {
                self.routability_response((path, &cookie), &contents, ctx);
            }
        }
    }

    /// Sends a request on one of the IKE SAs.
    fn send(
        &mut self,
        spi: u64,
        exchange_type: ExchangeType,
        payloads: &[Payload<'_>],
        exchange: Exchange,
        ctx: &mut Context<'_>,
    ) {
        let path = self.path;
        let Some(sa) = self.sa(spi) else { return };
        let datagrams = sa
            .request(exchange_type, payloads, exchange, ctx.config, ctx.now, ctx.random)
            .map(|pending| (pending.message_id, pending.datagrams.clone()));
        if let Some((message_id, datagrams)) = datagrams {
            let header = sa.header(exchange_type, false, message_id);
            self.report(MessageReport::sent(&header), ctx);
            ctx.transmit(path, datagrams);
        }
    }

    fn respond(
        &mut self,
        spi: u64,
        request: &Header,
        payloads: &[Payload<'_>],
        ctx: &mut Context<'_>,
    ) {
        let Some(sa) = self.sa(spi) else { return };
        if let Some((header, datagrams)) = sa.respond(request, payloads, ctx.config, ctx.random) {
            self.report(MessageReport::sent(&header).with_error_of(payloads), ctx);
            ctx.transmit(ctx.path, datagrams);
        }
    }

    /// Answers with an error alone.
    fn refuse(
        &mut self,
        spi: u64,
        request: &Header,
        notify_type: NotifyType,
        ctx: &mut Context<'_>,
    ) {
        let notify = Payload::Notify(Notify::new(notify_type, &[]));
        self.respond(spi, request, &[notify], ctx);
    }

    /// Answers a malformed request; the IKE SA ends (RFC 7296 §2.21.3).
    fn violated(&mut self, spi: u64, request: &Header, what: &'static str, ctx: &mut Context<'_>) {
        self.refuse(spi, request, NotifyType::InvalidSyntax, ctx);
        // it ends before the proof, and is kept for a while to answer retransmissions
        if self.is_half_open() {
            self.fail(Reason::Protocol(what), ctx);
        }
        self.close(Reason::Protocol(what), ctx);
    }

    /// Follows a peer behind a NAT to its new mapping (RFC 7296 §2.23). One that has MOBIKE says so
    /// itself.
    fn follow(&mut self, header: &Header, ctx: &mut Context<'_>) {
        let path = ctx.path;
        let may = self.nat.remote && !self.nat.local && !self.mobility.is_on;
        if header.response || path == self.path || !may {
            return;
        }
        self.path = path;
        if self.phase == Phase::Established {
            self.moved(ctx);
        }
    }

    /// Counts that the peer did not prove who it is: once, and when it knows, for it may be silent
    /// from then on.
    fn fail(&mut self, reason: Reason, ctx: &mut Context<'_>) {
        if self.failed.is_none() {
            ctx.counters.authentication_failures += 1;
            ctx.failures.note(self.source(), ctx.now);
            self.failed = Some(reason);
        }
    }

    /// Returns where failures count: where an initiator has had the answer to its first message, for
    /// it may write any address on the next.
    fn source(&self) -> IpAddr {
        self.half_open.map_or(self.path.remote, |(_, from)| from).ip()
    }

    /// Ends the session at once. Its IKE SAs answer retransmissions for a while.
    pub(crate) fn close(&mut self, reason: Reason, ctx: &mut Context<'_>) {
        if self.phase == Phase::Closed {
            return;
        }
        let connecting = self.phase == Phase::Connecting;
        if reason.is_failed_authentication() {
            self.fail(reason.clone(), ctx);
        }
        let reason = self.failed.take().unwrap_or(reason);
        self.phase = Phase::Closed;
        self.setup = None;
        self.tasks.clear();
        self.delayed.clear();
        for child in self.children.drain(..) {
            if child.sends {
                ctx.events.push_back(Event::StopSending(child.id));
            }
            ctx.ids.release(child.spi_inbound);
            ctx.events.push_back(Event::Remove(child.id));
        }
        ctx.leases.release(self.id);
        ctx.peers.remove(self.id);
        for sa in &mut self.sas {
            sa.end(ctx);
        }
        // an initiator that gives up has answered nothing
        if connecting && !self.responds {
            self.sas.clear();
        }
        let remote_address = self.path.remote;
        ctx.events.push_back(Event::Closed { session: self.id, remote_address, reason });
    }

    fn retransmit(&mut self, ctx: &mut Context<'_>) {
        let (mut dead, mut repeated) = (Vec::new(), Vec::new());
        for sa in &mut self.sas {
            let spi = sa.local_spi();
            let Some(pending) = &mut sa.pending else { continue };
            if let Exchange::Init(init) = &pending.exchange
                && let Some((notify_type, _)) = init.refusal.filter(|(_, at)| *at <= ctx.now)
            {
                dead.push((spi, Reason::Unauthenticated(notify_type)));
                continue;
            }
            match pending.retransmit(&ctx.config.timing, ctx.now) {
                Ok(datagrams) => {
                    let again = u64::from(datagrams.is_some());
                    self.retransmits += again;
                    if datagrams.is_some() {
                        repeated.push((spi, pending.exchange.exchange_type(), pending.message_id));
                    }
                    ctx.counters.retransmits += again;
                    ctx.transmit(self.path, datagrams.unwrap_or_default());
                }
                Err(transmissions) => dead.push((spi, Reason::Timeout(transmissions))),
            }
        }
        for (spi, exchange, message_id) in repeated {
            if let Some(header) = self.sa(spi).map(|sa| sa.header(exchange, false, message_id)) {
                self.report(MessageReport::sent(&header).again(), ctx);
            }
        }
        for (spi, reason) in dead {
            // nobody answers the deletion of an IKE SA that was replaced: the other one lives
            let replaced = spi != self.current && self.phase != Phase::Connecting;
            match self.sa(spi) {
                Some(sa) if replaced => {
                    sa.forget_exchanges(ctx);
                    sa.status = Status::Closed;
                    sa.expires_at = Some(ctx.now);
                    self.finish_closing(ctx);
                }
                _ => {
                    let closing = self.phase == Phase::Closing;
                    let reason = if closing { self.closes_for.clone() } else { reason };
                    self.close(reason, ctx);
                }
            }
        }
    }

    fn expire(&mut self, ctx: &mut Context<'_>) {
        let now = ctx.now;
        let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if self.phase == Phase::Connecting && self.sas.iter().any(|sa| is_due(sa.expires_at)) {
            self.phase = Phase::Closed;
            self.sas.clear();
            // of another nobody was told
            if let Some(reason) = self.failed.take() {
                let (session, remote_address) = (self.id, self.path.remote);
                ctx.events.push_back(Event::Closed { session, remote_address, reason });
            }
        }
        for mut sa in self.sas.extract_if(.., |sa| is_due(sa.expires_at)) {
            sa.forget_exchanges(ctx);
        }
        for sa in &mut self.sas {
            if let Some(given_up) = sa.followup.take_if(|followup| followup.expires_at <= now) {
                ctx.release(&given_up.agreement);
            }
        }
        let over = |child: &Child| matches!(child.status, ChildStatus::Lingering(at) if at <= now);
        for child in self.children.extract_if(.., |child| over(child)) {
            ctx.ids.release(child.spi_inbound);
            ctx.events.push_back(Event::Remove(child.id));
        }
    }

    /// Asks for what has become due: rekeying, a sign of life.
    fn schedule(&mut self, ctx: &mut Context<'_>) {
        if self.phase != Phase::Established {
            return;
        }
        self.schedule_reauthentication(ctx.now);
        if self.phase != Phase::Established {
            return;
        }
        let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= ctx.now);
        if is_due(self.rekey_at) {
            self.rekey_at = None;
            self.queue(Task::RekeyIke);
        }
        let (mut rekey, mut delete) = (Vec::new(), Vec::new());
        for child in &mut self.children {
            match child.status {
                ChildStatus::Installed if is_due(child.rekey_at) => {
                    child.rekey_at = None;
                    rekey.push(Task::RekeyChild(child.id));
                }
                // the peer does not have the new one yet: it is neither heard nor the old deleted
                ChildStatus::Replaced(at) if at <= ctx.now && child.sends => {
                    child.status = ChildStatus::Replaced(ctx.now + ctx.config.timing.half_open);
                }
                ChildStatus::Replaced(at) if at <= ctx.now => delete.push(child.id),
                _ => {}
            }
        }
        rekey.into_iter().for_each(|task| self.queue(task));
        delete.into_iter().for_each(|child| self.delete_child(child, ctx));
        self.queue_delayed(ctx.now);
        let liveness = self.liveness(ctx.config);
        if liveness.is_some_and(|after| self.heard_at + after <= ctx.now) {
            // asked again only after another silence
            self.heard_at = ctx.now;
            self.queue(Task::Liveness);
        }
    }

    /// Makes the IKE SA with this SPI the one that our requests go on.
    fn use_sa(&mut self, spi: u64, ctx: &mut Context<'_>) {
        self.current = spi;
        self.mobility.forget();
        self.rekey_at = ctx.age(self.connection.as_ref().and_then(|one| one.rekey));
        let post_quantum =
            self.sa(spi).and_then(|sa| sa.choice.as_ref()).is_some_and(IkeChoice::is_post_quantum);
        ctx.events.push_back(Event::Rekeyed { session: self.id, post_quantum });
    }
}

impl IkeSa {
    /// Ends it: it only answers retransmissions, for a while.
    fn end(&mut self, ctx: &mut Context<'_>) {
        self.status = Status::Closed;
        self.forget_exchanges(ctx);
        self.expires_at = Some(ctx.now + ctx.config.timing.exchange());
    }

    /// Gives up what is under way, of both ends.
    fn forget_exchanges(&mut self, ctx: &mut Context<'_>) {
        if let Some(pending) = self.pending.take() {
            ctx.forget(&pending.exchange);
        }
        if let Some(followup) = self.followup.take() {
            ctx.release(&followup.agreement);
        }
    }
}

impl Context<'_> {
    /// Sends messages, with the non-ESP marker on the port that has it.
    pub(crate) fn transmit(&mut self, path: Path, messages: Vec<Vec<u8>>) {
        let marked = path.local.port() == self.config.nat_port;
        self.transmits.extend(messages.into_iter().map(|message| Transmit {
            from: path.local,
            to: path.remote,
            datagram: if marked { [&NON_ESP_MARKER[..], &message].concat() } else { message },
        }));
    }

    /// Makes what NAT detection says of both addresses.
    pub(crate) fn nat_hashes(&mut self, spis: Spis, path: Path) -> Hashes {
        let source = match self.config.force_encapsulation {
            // no address has this hash
            true => self.bytes(),
            false => nat::hash(spis, path.local),
        };
        Hashes { source, destination: nat::hash(spis, path.remote) }
    }

    /// Makes random bytes.
    pub(crate) fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        self.random.fill(&mut bytes);
        bytes
    }

    /// Makes a nonce, as long as the longest key of a PRF needs (RFC 7296 §2.10).
    pub(crate) fn nonce(&mut self) -> Vec<u8> {
        self.bytes::<32>().to_vec()
    }

    /// Makes an SPI of an IKE SA.
    pub(crate) fn ike_spi(&mut self) -> u64 {
        u64::from_be_bytes(self.bytes()).max(1)
    }

    /// Makes an SPI of a CHILD SA.
    pub(crate) fn child_spi(&mut self, config: &ChildConfig, group: Group) -> u32 {
        loop {
            let mut spi = u32::from_be_bytes(self.bytes());
            if let (Some(number), of @ 1..) = (group.resource(), config.per_resource) {
                spi = (spi - spi % of).saturating_add(number % of);
            }
            if spi > 255 && self.ids.reserve(spi) {
                return spi;
            }
        }
    }

    /// Frees the SPI that a request reserved which is given up.
    pub(crate) fn forget(&mut self, exchange: &Exchange) {
        match exchange {
            Exchange::Create(create) => {
                if let Offer::Child(offer) = &create.offer {
                    self.ids.release(offer.spi);
                }
            }
            Exchange::Followup(followup) => self.release(&followup.agreement),
            Exchange::Auth(Some(offer)) => self.ids.release(offer.spi),
            _ => {}
        }
    }

    /// Frees the SPI of a CHILD SA that is not made.
    pub(crate) fn release(&mut self, agreement: &Agreement) {
        if let Draft::Child(draft) = &agreement.draft {
            self.ids.release(draft.spi_inbound);
        }
    }

    /// Returns when to ask again for what was refused: at random, for both ends may have refused
    /// each other's request.
    pub(crate) fn retry_at(&mut self) -> Instant {
        let retry = self.config.timing.retry;
        let part = u32::from_be_bytes(self.bytes()) % 1000;
        self.now + retry + retry * part / 1000
    }

    /// Returns when something of this age is rekeyed: earlier by a random part, so that both ends
    /// and all peers do not rekey at once.
    pub(crate) fn age(&mut self, age: Option<Duration>) -> Option<Instant> {
        let age = age?;
        let part = u32::from_be_bytes(self.bytes()) % (self.config.timing.jitter_percent * 100 + 1);
        Some(self.now + (age - age * part / 10_000))
    }
}

/// Returns the SPIs of an IKE SA whose responder is not known yet.
pub(crate) fn first_spis(initiator: u64) -> Spis {
    Spis { initiator, responder: 0 }
}
