//! What is to be asked of the peer, one after the other: an IKE SA has one request under way.

use std::sync::Arc;
use std::time::Instant;

use super::{ChildStatus, Context, Phase, Session};
use crate::config::ChildConfig;
use crate::event::{ChildId, Reason};
use crate::exchange::{Exchange, Group, Offer, Target};
use crate::sa::Status;
use crate::wire::{Delete, ExchangeType, NotifyType, Payload, ProtocolId};

/// Something to be asked of the peer.
#[derive(Clone, Debug)]
pub(crate) enum Task {
    CreateChild(Arc<ChildConfig>),
    /// Makes the CHILD SA of a resource beside the first one of this configuration.
    CreateResource(Arc<ChildConfig>, u32),
    RekeyChild(ChildId),
    DeleteChild(ChildId),
    /// Deletes what the peer made and we did not take, by our SPI.
    DeleteUnused(u32),
    RekeyIke,
    DeleteIke(u64),
    Liveness,
    UpdateAddresses,
    CheckRoutability,
}

impl Session {
    /// Asks for it as soon as nothing else is under way.
    pub(crate) fn queue(&mut self, task: Task) {
        if !self.tasks.iter().any(|queued| queued.is_same(&task)) {
            self.tasks.push_back(task);
        }
    }

    /// Asks for it later, unless the session ends: then nothing would take it from where it waits.
    pub(super) fn delay(&mut self, at: Instant, task: Task) {
        if self.phase != Phase::Established {
            return;
        }
        self.delayed.retain(|(_, queued)| !queued.is_same(&task));
        self.delayed.push((at, task));
    }

    pub(super) fn queue_delayed(&mut self, now: Instant) {
        let due: Vec<_> = self.delayed.extract_if(.., |(at, _)| *at <= now).collect();
        due.into_iter().for_each(|(_, task)| self.queue(task));
    }

    /// Starts what can be started.
    pub(crate) fn run_tasks(&mut self, ctx: &mut Context<'_>) {
        self.limit_requests(ctx.config.limits.requests);
        while let Some(at) = (0..self.tasks.len()).find(|&at| self.can_start(&self.tasks[at])) {
            let Some(task) = self.tasks.remove(at) else { return };
            self.start(task, ctx);
        }
    }

    /// Removes the session: asks the peer, and removes its CHILD SAs when it answers.
    pub(crate) fn request_close(&mut self, ctx: &mut Context<'_>) {
        match self.phase {
            Phase::Connecting => {
                self.close(Reason::Command, ctx);
                self.sas.clear();
            }
            Phase::Established => self.start_closing(Reason::Command),
            Phase::Closing | Phase::Closed => {}
        }
        self.run_tasks(ctx);
    }

    pub(super) fn start_closing(&mut self, reason: Reason) {
        self.phase = Phase::Closing;
        self.closes_for = reason;
        self.tasks.clear();
        self.delayed.clear();
        self.delete_ike(self.current);
    }

    /// Replaces the IKE SA in use long before its message IDs are used up, and removes it if that
    /// does not succeed.
    fn limit_requests(&mut self, limit: u32) {
        let current = self.current;
        let Some(sa) = self.sa(current).filter(|sa| sa.requests() >= limit) else { return };
        let ends = sa.requests() >= limit.saturating_mul(2);
        let is_new = !std::mem::replace(&mut sa.is_worn, true);
        if self.phase != Phase::Established {
            return;
        }
        if ends {
            self.start_closing(Reason::MessageIds);
        } else if is_new {
            self.queue(Task::RekeyIke);
        }
    }

    /// Takes back a request whose IKE SA has gone; the next IKE SA may do it.
    pub(super) fn abandon(&mut self, exchange: Exchange, ctx: &mut Context<'_>) {
        let temporary = Reason::Refused(NotifyType::TemporaryFailure);
        match exchange {
            Exchange::Create(create) => match create.offer {
                Offer::Child(_) => self.create_failed(create.offer, temporary, ctx),
                Offer::Ike(_) => {}
            },
            Exchange::Followup(followup) => ctx.release(&followup.agreement),
            Exchange::DeleteChild(child) => self.queue(Task::DeleteChild(child)),
            Exchange::UpdateAddresses(_) => self.queue(Task::UpdateAddresses),
            Exchange::Routability(..) => self.queue(Task::CheckRoutability),
            _ => {}
        }
    }

    fn can_start(&self, task: &Task) -> bool {
        let spi = match task {
            Task::DeleteIke(spi) => *spi,
            _ => self.current,
        };
        let sa = self.sas.iter().find(|sa| sa.local_spi() == spi);
        // what is gone is started and does nothing
        let Some(sa) = sa else { return true };
        let status = match task {
            Task::DeleteIke(_) => true,
            _ => sa.status == Status::Active,
        };
        // the peer is about to replace it
        let replaced =
            sa.followup.as_ref().is_some_and(|one| one.agreement.target() == Some(Target::Ike));
        let free = !replaced || matches!(task, Task::DeleteIke(_));
        sa.pending.is_none() && status && free
    }

    fn start(&mut self, task: Task, ctx: &mut Context<'_>) {
        match task {
            Task::CreateChild(config) => self.create_child(&config, None, Group::None, ctx),
            Task::CreateResource(config, number) => {
                // an earlier one may have been refused, or the first is gone
                if self.first_of_group(&config).is_some() {
                    self.create_child(&config, None, Group::Resource(number), ctx);
                }
            }
            Task::RekeyChild(id) => {
                let by_peer = self.sas.iter().filter_map(|sa| sa.followup.as_ref());
                let later = ctx.retry_at();
                if by_peer
                    .map(|one| one.agreement.target())
                    .any(|one| one == Some(Target::Child(id)))
                    || self.reauth.is_under_way
                {
                    // the peer is about to replace it
                    return self.delay(later, Task::RekeyChild(id));
                }
                let old = self.child(id).filter(|old| old.status == ChildStatus::Installed);
                if let Some((config, group)) = old.map(|old| (old.config.clone(), old.group)) {
                    self.create_child(&config, Some(id), group, ctx);
                }
            }
            Task::DeleteChild(id) => {
                let child = self.child(id).filter(|child| child.status == ChildStatus::Deleting);
                if let Some(inbound) = child.map(|child| child.spi_inbound) {
                    self.send_delete(inbound, Exchange::DeleteChild(id), ctx);
                }
            }
            Task::DeleteUnused(inbound) => self.send_delete(inbound, Exchange::DeleteUnused, ctx),
            Task::RekeyIke => self.rekey_ike(ctx),
            Task::DeleteIke(spi) => {
                let payloads = [Payload::Delete(Delete::Ike)];
                let exchange_type = ExchangeType::Informational;
                self.send(spi, exchange_type, &payloads, Exchange::DeleteIke, ctx);
            }
            Task::Liveness => self.send_liveness(ctx),
            Task::UpdateAddresses => self.send_update(ctx),
            Task::CheckRoutability => self.send_routability_check(ctx),
        }
    }

    fn send_delete(&mut self, inbound: u32, exchange: Exchange, ctx: &mut Context<'_>) {
        let (protocol, spis) = (ProtocolId::Esp, vec![inbound]);
        let payloads = [Payload::Delete(Delete::Children { protocol, spis })];
        self.send(self.current, ExchangeType::Informational, &payloads, exchange, ctx);
    }
}

impl Task {
    /// Checks whether it makes a CHILD SA of a resource.
    pub(super) fn is_of_resource(&self, config: &Arc<ChildConfig>) -> bool {
        matches!(self, Self::CreateResource(one, _) if Arc::ptr_eq(one, config))
    }

    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::CreateChild(one), Self::CreateChild(other)) => Arc::ptr_eq(one, other),
            (Self::CreateResource(one, number), Self::CreateResource(other, its)) => {
                Arc::ptr_eq(one, other) && number == its
            }
            (Self::RekeyChild(one), Self::RekeyChild(other))
            | (Self::DeleteChild(one), Self::DeleteChild(other)) => one == other,
            (Self::DeleteUnused(one), Self::DeleteUnused(other)) => one == other,
            (Self::DeleteIke(one), Self::DeleteIke(other)) => one == other,
            (Self::RekeyIke, Self::RekeyIke)
            | (Self::Liveness, Self::Liveness)
            | (Self::UpdateAddresses, Self::UpdateAddresses)
            | (Self::CheckRoutability, Self::CheckRoutability) => true,
            _ => false,
        }
    }
}
