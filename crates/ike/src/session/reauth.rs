//! Reauthentication (RFC 7296 §2.8.3): an initiator sets up a new IKE SA with the same CHILD SAs, and
//! removes the old ones when the new ones stand. A responder asks it to (RFC 4478).
//!
//! The old CHILD SAs are deleted before their IKE SA, so that both ends accept late packets as after
//! any other deletion.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Child, ChildStatus, Context, Phase, Session, Task};
use crate::config::ChildConfig;
use crate::contents::Contents;
use crate::event::{Event, Reason, SessionId};
use crate::wire::NotifyType;

/// The pause after a new IKE SA that was not made.
const RETRY: Duration = Duration::from_secs(30);
/// The shortest lifetime that a responder can ask for.
const SHORTEST: Duration = Duration::from_secs(60);

/// What a session has to do with the one that it replaces, or that replaces it.
#[derive(Debug, Default)]
pub(crate) struct Reauthentication {
    /// When an initiator begins with it.
    pub(super) at: Option<Instant>,
    /// When the session ends if it was not replaced.
    pub(super) ends_at: Option<Instant>,
    /// Whether the time has come.
    is_due: bool,
    /// Whether a session is being set up that replaces it. Until then no CHILD SA is made, so that those
    /// of the other session are the newest: a responder may use them before we have them.
    pub(super) is_under_way: bool,
    /// Whether another session has its CHILD SAs.
    pub(super) is_replaced: bool,
    /// The session that it replaces, until its CHILD SAs stand.
    predecessor: Option<SessionId>,
    /// The CHILD SAs that it makes besides the first.
    rest: Vec<Arc<ChildConfig>>,
    /// The addresses that the other one had.
    pub(super) had: Vec<IpAddr>,
}

/// What sessions have to tell each other.
#[derive(Debug)]
pub(crate) enum Handover {
    /// This one is to be replaced.
    Begin(SessionId),
    /// The CHILD SAs of the one that replaces this one stand.
    Complete(SessionId),
    /// The one that was to replace this one was not made, or is gone.
    Fail(SessionId),
}

impl Session {
    /// Checks whether it can be replaced: by the end that began.
    pub(crate) fn can_reauthenticate(&self) -> bool {
        let reauth = &self.reauth;
        self.phase == Phase::Established
            && !self.is_responder()
            && !reauth.is_replaced
            && !reauth.is_under_way
    }

    /// Begins with it as soon as nothing else is under way.
    pub(crate) fn request_reauthentication(&mut self) {
        self.reauth.is_due = true;
    }

    /// Checks whether nothing is under way, and packets are sent on all CHILD SAs.
    fn is_settled(&self) -> bool {
        let is_quiet = self.sas.iter().all(|sa| sa.pending.is_none() && sa.followup.is_none());
        let stands = |child: &Child| match child.status {
            ChildStatus::Installed => child.sends,
            ChildStatus::Lingering(_) => true,
            ChildStatus::Replaced(_) | ChildStatus::Deleting => false,
        };
        is_quiet && self.tasks.is_empty() && self.children.iter().all(stands)
    }

    /// Begins the session that replaces this one.
    pub(crate) fn begin_successor(&mut self, ctx: &mut Context<'_>) -> Option<Self> {
        let connection = self.connection.clone().filter(|_| self.can_reauthenticate())?;
        let used = self.children.iter().filter(|child| {
            // the first of a group brings the others
            child.status == ChildStatus::Installed && child.group.resource().is_none()
        });
        let configured = |name: &str| connection.children.iter().find(|one| one.name == name);
        let mut children: Vec<_> =
            used.filter_map(|child| configured(&child.config.name).cloned()).collect();
        let mut successor = Self::initiate(connection.clone(), self.path(), false, ctx)?;
        let first = (!children.is_empty()).then(|| children.remove(0));
        successor.first_child = first;
        successor.reauth.rest = children;
        successor.reauth.predecessor = Some(self.id);
        successor.reauth.had = self.assigned.addresses.clone();
        self.reauth.is_under_way = true;
        self.reauth.at = None;
        ctx.events.push_back(Event::Reauthenticating {
            session: self.id,
            successor: successor.id,
            local_address: self.path().local,
            remote_address: self.path().remote,
        });
        Some(successor)
    }

    /// Plans the end of the authentication that was just done, and makes the other CHILD SAs of the
    /// session that this one replaces.
    pub(super) fn plan_reauthentication(&mut self, ctx: &mut Context<'_>) {
        if let Some(age) = self.connection.as_ref().and_then(|one| one.reauthenticate) {
            self.reauth.at = ctx.age(Some(age)).filter(|_| !self.is_responder());
            self.reauth.ends_at = Some(ctx.now + age + (age / 10).max(SHORTEST));
        }
        for config in std::mem::take(&mut self.reauth.rest) {
            // one that exists may be of the same configuration
            self.tasks.push_back(Task::CreateChild(config));
        }
    }

    /// Takes the lifetime of the authentication that a responder tells (RFC 4478).
    pub(super) fn limit_authentication(&mut self, contents: &Contents<'_>, ctx: &mut Context<'_>) {
        let seconds = contents.notify(NotifyType::AuthLifetime);
        let seconds = seconds.and_then(|one| <[u8; 4]>::try_from(one.data).ok());
        let Some(seconds) = seconds.filter(|_| !self.is_responder()) else { return };
        let lifetime = Duration::from_secs(u32::from_be_bytes(seconds).into()).max(SHORTEST);
        let at = ctx.age(Some(lifetime - lifetime / 10));
        self.reauth.at = [self.reauth.at, at].into_iter().flatten().min();
    }

    /// Does what is due.
    pub(super) fn schedule_reauthentication(&mut self, now: Instant) {
        if self.reauth.at.take_if(|at| *at <= now).is_some() {
            self.reauth.is_due = true;
        }
        if self.reauth.ends_at.take_if(|at| *at <= now).is_some() {
            return self.start_closing(Reason::NotReauthenticated);
        }
        if self.reauth.is_replaced && self.children.is_empty() {
            self.start_closing(Reason::Reauthenticated);
        }
    }

    /// Returns what it has to tell another session now.
    pub(crate) fn hand_over(&mut self) -> Option<Handover> {
        if self.reauth.is_due && self.is_settled() {
            self.reauth.is_due = false;
            return Some(Handover::Begin(self.id));
        }
        let idle = self.delayed.is_empty() && self.is_settled();
        match self.phase {
            Phase::Established if idle => self.reauth.predecessor.take().map(Handover::Complete),
            Phase::Closing | Phase::Closed => self.reauth.predecessor.take().map(Handover::Fail),
            _ => None,
        }
    }

    /// Another session has taken its place: removes its CHILD SAs and then itself.
    pub(crate) fn replaced_by_successor(&mut self, ctx: &mut Context<'_>) {
        if self.phase != Phase::Established {
            return;
        }
        self.reauth = Reauthentication {
            is_replaced: true,
            ends_at: self.reauth.ends_at,
            ..Default::default()
        };
        self.rekey_at = None;
        self.tasks.retain(|task| !matches!(task, Task::CreateChild(_) | Task::RekeyIke));
        self.delayed.clear();
        for child in self.children.iter().map(|child| child.id).collect::<Vec<_>>() {
            self.close_child(child, ctx);
        }
        self.schedule_reauthentication(ctx.now);
        self.run_tasks(ctx);
    }

    /// The session that was to replace it is not there: it tries again later.
    pub(crate) fn successor_failed(&mut self, ctx: &Context<'_>) {
        if self.phase == Phase::Established && !self.reauth.is_replaced {
            self.reauth.is_under_way = false;
            self.reauth.at = Some(ctx.now + RETRY);
        }
    }
}
