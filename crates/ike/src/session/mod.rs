//! One peer: its IKE SA, those that replace it, and the CHILD SAs of all of them.
//!
//! CHILD SAs belong to the session and not to an IKE SA, so that rekeying the IKE SA moves nothing:
//! it only changes on which IKE SA our next request goes.

mod child;
mod context;
mod create_child;
mod eap;
mod followup;
mod found_by;
mod ike_rekey;
mod informational;
mod initiator;
mod install;
mod messages;
mod mobility;
mod new_child;
mod ppk;
mod proof;
mod reauth;
mod report;
mod responder;
mod tasks;
mod timers;

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use crate::config::{ChildConfig, Connection};
use crate::crypto::Spis;
use crate::event::{ChildId, Event, Reason, SessionId, UsedPpk};
use crate::exchange::Group;
use crate::identity::Identity;
use crate::nat::Nat;
use crate::path::Path;
use crate::proposal::IkeChoice;
use crate::sa::{IkeSa, Role, Status};
use crate::virtual_address::Assigned;
use crate::wire::{HashAlgorithmId, TrafficSelector};

use mobility::Mobility;
use reauth::Reauthentication;

pub(crate) use context::Context;
pub(crate) use found_by::FoundBy;
pub(crate) use ppk::PpkUse;
pub(crate) use reauth::Handover;
pub(crate) use responder::Refusal;
pub(crate) use tasks::Task;

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

    /// Checks whether nothing of it is left.
    pub(crate) fn is_over(&self) -> bool {
        self.phase == Phase::Closed && self.sas.is_empty() && self.children.is_empty()
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

/// Returns the SPIs of an IKE SA whose responder is not known yet.
pub(crate) fn first_spis(initiator: u64) -> Spis {
    Spis { initiator, responder: 0 }
}
