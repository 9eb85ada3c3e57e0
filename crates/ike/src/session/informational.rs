//! INFORMATIONAL: deletions and signs of life (RFC 7296 §1.4, §2.25).

use super::{ChildStatus, Context, Phase, Session, Task};
use crate::contents::Contents;
use crate::event::{ChildId, Event, Reason};
use crate::exchange::{ExpectedFollowup, Target};
use crate::nat::Hashes;
use crate::sa::{Opened, Status};
use crate::wire::{Delete, NotifyType, Payload, ProtocolId};

/// The most deletions that are remembered for CHILD SAs whose making is under way.
const MAX_DELETED_EARLY: usize = 16;
/// The longest COOKIE2 (RFC 4555 §4.2.5), in bytes.
const MAX_COOKIE: usize = 64;

impl Session {
    pub(super) fn informational_request(
        &mut self,
        spi: u64,
        opened: &Opened,
        contents: &Contents<'_>,
        ctx: &mut Context<'_>,
    ) {
        if contents.deletes.contains(&Delete::Ike) {
            self.respond(spi, &opened.header, &[], ctx);
            return self.ike_deleted_by_peer(spi, ctx);
        }
        let mut answer = Vec::new();
        for delete in &contents.deletes {
            let Delete::Children { protocol: ProtocolId::Esp, spis } = delete else { continue };
            for &outbound in spis {
                let child = self.children.iter().find(|child| {
                    child.spi_outbound == outbound
                        && !matches!(child.status, ChildStatus::Lingering(_))
                });
                let Some((id, status, inbound)) =
                    child.map(|child| (child.id, child.status, child.spi_inbound))
                else {
                    self.deleted_early(outbound);
                    continue;
                };
                // our own request says the same (RFC 7296 §1.4.1)
                if status != ChildStatus::Deleting {
                    answer.push(inbound);
                }
                self.peer_deleted(id, ctx);
            }
        }
        let deleted = Payload::Delete(Delete::Children { protocol: ProtocolId::Esp, spis: answer });
        let mut payloads = match &deleted {
            Payload::Delete(Delete::Children { spis, .. }) if spis.is_empty() => Vec::new(),
            _ => vec![deleted],
        };
        let cookie =
            contents.notify(NotifyType::Cookie2).filter(|one| one.data.len() <= MAX_COOKIE);
        payloads.extend(cookie.map(|cookie| Payload::Notify(*cookie)));
        let hashes = match self.update_request(spi, contents, ctx) {
            Some(Err(refusal)) => return self.refuse(spi, &opened.header, refusal, ctx),
            Some(Ok(hashes)) => Some(hashes),
            None => None,
        };
        payloads.extend(hashes.iter().flat_map(Hashes::payloads));
        self.limit_authentication(contents, ctx);
        self.respond(spi, &opened.header, &payloads, ctx);
        if contents.has(NotifyType::AuthenticationFailed) {
            self.close(Reason::Refused(NotifyType::AuthenticationFailed), ctx);
        }
    }

    /// The peer removed a CHILD SA, or does not know it.
    pub(super) fn peer_deleted(&mut self, id: ChildId, ctx: &mut Context<'_>) {
        let successor = self.children.iter().find(|child| {
            child.replaces == Some(id) && child.status == ChildStatus::Installed && !child.sends
        });
        if let Some(successor) = successor.map(|child| child.id) {
            self.switch(successor, ctx);
        }
        self.stop_sending(id, ctx);
        self.linger(id, ctx);
    }

    /// The peer deletes a CHILD SA that we do not have: perhaps the one that our request made, whose
    /// answer is late.
    fn deleted_early(&mut self, outbound: u32) {
        if self.is_making_child() && self.deleted_early.len() < MAX_DELETED_EARLY {
            self.deleted_early.push(outbound);
        }
    }

    /// Checks whether a request of ours is under way that makes a CHILD SA: the peer may have it
    /// already.
    pub(super) fn is_making_child(&self) -> bool {
        let mut pending = self.sas.iter().filter_map(|sa| sa.pending.as_ref());
        pending.any(|one| one.exchange.is_making_child())
    }

    /// Removes a CHILD SA by command, and what replaces it or would replace it.
    pub(crate) fn close_child(&mut self, id: ChildId, ctx: &mut Context<'_>) {
        let successors = self.children.iter().filter(|child| child.replaces == Some(id));
        for successor in successors.map(|child| child.id).collect::<Vec<_>>() {
            self.close_child(successor, ctx);
        }
        for sa in &mut self.sas {
            let replaces =
                |one: &mut ExpectedFollowup| one.agreement.target() == Some(Target::Child(id));
            if let Some(given_up) = sa.followup.take_if(replaces) {
                ctx.release(&given_up.agreement);
            }
        }
        if let Some(child) = self.child_mut(id) {
            child.unwanted = true;
        }
        self.delete_child(id, ctx);
    }

    /// Removes a CHILD SA: nothing is sent on it any more, and the peer is told.
    pub(crate) fn delete_child(&mut self, id: ChildId, ctx: &mut Context<'_>) {
        let Some(child) = self.child_mut(id) else { return };
        if matches!(child.status, ChildStatus::Deleting | ChildStatus::Lingering(_)) {
            return;
        }
        child.status = ChildStatus::Deleting;
        self.stop_sending(id, ctx);
        self.queue(Task::DeleteChild(id));
    }

    /// The peer answered our deletion.
    pub(super) fn child_deleted(&mut self, id: ChildId, ctx: &mut Context<'_>) {
        self.linger(id, ctx);
    }

    pub(super) fn stop_sending(&mut self, id: ChildId, ctx: &mut Context<'_>) {
        let Some(child) = self.child_mut(id).filter(|child| child.sends) else { return };
        child.sends = false;
        ctx.events.push_back(Event::StopSending(id));
    }

    fn linger(&mut self, id: ChildId, ctx: &mut Context<'_>) {
        let until = ctx.now + ctx.config.timing.reorder;
        let Some(child) = self.child_mut(id) else { return };
        if !matches!(child.status, ChildStatus::Lingering(_)) {
            child.status = ChildStatus::Lingering(until);
        }
    }

    /// Removes one of the IKE SAs; the peer is told.
    pub(super) fn delete_ike(&mut self, spi: u64) {
        let Some(sa) = self.sa(spi) else { return };
        sa.status = Status::Deleting;
        self.queue(Task::DeleteIke(spi));
    }

    /// The peer answered our deletion.
    pub(super) fn ike_deleted(&mut self, spi: u64, ctx: &mut Context<'_>) {
        if let Some(sa) = self.sa(spi) {
            sa.end(ctx);
        }
        self.finish_closing(ctx);
    }

    /// Ends the session when the peer knows that all its IKE SAs are gone.
    pub(super) fn finish_closing(&mut self, ctx: &mut Context<'_>) {
        let open = |status| matches!(status, Status::Active | Status::Deleting);
        if self.phase == Phase::Closing && !self.sas.iter().any(|sa| open(sa.status)) {
            self.close(self.closes_for.clone(), ctx);
        }
    }

    fn ike_deleted_by_peer(&mut self, spi: u64, ctx: &mut Context<'_>) {
        // an exchange of ours on it is forgotten (RFC 7296 §2.25.2)
        let pending = self.sa(spi).and_then(|sa| {
            let pending = sa.pending.take();
            sa.end(ctx);
            pending
        });
        let ends = self.phase == Phase::Closing || spi == self.current && !self.adopt_rival(ctx);
        if let Some(pending) = pending.as_ref().filter(|_| ends) {
            ctx.forget(&pending.exchange);
        }
        if self.phase == Phase::Closing {
            return self.finish_closing(ctx);
        }
        if ends {
            return self.close(Reason::Peer, ctx);
        }
        if let Some(pending) = pending {
            self.abandon(pending.exchange, ctx);
        }
    }
}
