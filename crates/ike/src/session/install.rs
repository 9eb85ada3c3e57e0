//! Putting into force what an exchange made: a CHILD SA, or an IKE SA, in place of another.

use super::{Child, ChildStatus, Context, Session};
use crate::crypto::{ChildKeys, Nonces};
use crate::event::{ChildId, ChildSa, Event, HalfSa, PacketFormat, Reason};
use crate::exchange::{Agreement, ChildDraft, Collision, Draft, Group, Target};
use crate::proposal::IkeChoice;
use crate::sa::{IkeSa, Role, Status};

impl Session {
    /// Makes the SA that both sides agreed on, with the keys of the IKE SA of the exchange.
    pub(super) fn complete(
        &mut self,
        spi: u64,
        agreement: Agreement,
        collision: &Collision,
        ctx: &mut Context<'_>,
    ) {
        let loses = agreement.loses(collision);
        let Agreement { draft, initiated, secrets, nonce_initiator, nonce_responder, .. } =
            agreement;
        let nonces = Nonces { initiator: &nonce_initiator, responder: &nonce_responder };
        match draft {
            Draft::Child(draft) => {
                let Some(keys) = self.sa(spi).and_then(|sa| sa.keys()) else { return };
                let keys = keys.child(draft.choice.suite, &secrets, nonces);
                let replaces = draft.replaces;
                if initiated && self.deleted_early.contains(&draft.spi_outbound) {
                    ctx.ids.release(draft.spi_inbound);
                    return match replaces {
                        Some(_) if loses => {}
                        Some(old) => self.delete_child(old, ctx),
                        None => {
                            self.child_failed(Some(draft.config.name.clone()), Reason::Peer, ctx);
                        }
                    };
                }
                let unwanted =
                    replaces.and_then(|old| self.child(old)).is_some_and(|old| old.unwanted);
                let (config, group) = (draft.config.clone(), draft.group);
                let child = self.install(draft, keys, initiated, ctx);
                if (initiated, group, replaces) == (true, Group::First, None) {
                    self.complete_group(&config);
                }
                match (initiated, replaces) {
                    (_, None) => self.switch(child, ctx),
                    (true, Some(_)) if loses || unwanted => self.delete_child(child, ctx),
                    (true, Some(old)) => {
                        self.switch(child, ctx);
                        self.delete_child(old, ctx);
                    }
                    (false, Some(old)) => self.replaced_by_peer(old, child, ctx),
                }
            }
            Draft::Ike(draft) => {
                let Some(old) = self.sa(spi) else { return };
                let Some(keys) = old.keys() else { return };
                let IkeChoice { suite, prf, .. } = draft.choice;
                let keys = keys.rekeyed(suite, prf, &secrets, nonces, draft.spis);
                let role = if initiated { Role::Initiator } else { Role::Responder };
                let mut sa = IkeSa::new(role, draft.spis, Status::Active);
                sa.choice = Some(draft.choice);
                sa.fragmentation = old.fragmentation;
                let undecided = old.pending.as_ref().and_then(|one| one.exchange.target());
                let undecided = undecided == Some(Target::Ike);
                let new = sa.local_spi();
                if !sa.set_keys(keys) {
                    return;
                }
                self.sas.push(sa);
                match (initiated, loses) {
                    (true, true) => {
                        self.delete_ike(new);
                        self.adopt_rival(ctx);
                    }
                    (true, false) => {
                        // the peer removes what it made in vain
                        let rivals = self.sas.iter_mut().filter(|sa| {
                            sa.status == Status::Active && ![new, spi].contains(&sa.local_spi())
                        });
                        rivals.for_each(|rival| rival.replaced(ctx));
                        self.use_sa(new, ctx);
                        self.delete_ike(spi);
                    }
                    (false, _) if undecided => {}
                    (false, _) => {
                        if let Some(old) = self.sa(spi) {
                            old.replaced(ctx);
                        }
                        self.use_sa(new, ctx);
                    }
                }
            }
        }
    }

    /// Goes over to the IKE SA that the peer made while we tried to, if there is one.
    pub(super) fn adopt_rival(&mut self, ctx: &mut Context<'_>) -> bool {
        let current = self.current;
        let rival =
            self.sas.iter().find(|sa| sa.status == Status::Active && sa.local_spi() != current);
        let Some(rival) = rival.map(IkeSa::local_spi) else { return false };
        if let Some(old) = self.sa(current).filter(|old| old.status == Status::Active) {
            old.replaced(ctx);
        }
        self.use_sa(rival, ctx);
        true
    }

    fn install(
        &mut self,
        draft: ChildDraft,
        keys: ChildKeys,
        initiated: bool,
        ctx: &mut Context<'_>,
    ) -> ChildId {
        let id = ctx.ids.child();
        let (inbound, outbound) = match initiated {
            true => (keys.responder, keys.initiator),
            false => (keys.initiator, keys.responder),
        };
        let rekey_at = ctx.age(draft.config.rekey);
        self.children.push(Child {
            id,
            config: draft.config.clone(),
            status: ChildStatus::Installed,
            spi_inbound: draft.spi_inbound,
            spi_outbound: draft.spi_outbound,
            local: draft.local.clone(),
            remote: draft.remote.clone(),
            sends: false,
            unwanted: false,
            replaces: draft.replaces,
            rekey_at,
            group: draft.group,
        });
        ctx.events.push_back(Event::Install(Box::new(ChildSa {
            child: id,
            session: self.id,
            config: draft.config,
            replaces: draft.replaces,
            suite: keys.suite,
            extended_sequence: draft.choice.extended_sequence,
            mode: draft.mode,
            format: match draft.qesp {
                Some(protocol) => PacketFormat::QEsp(protocol),
                None if self.nat.is_there() => PacketFormat::EspInUdp,
                None => PacketFormat::Esp,
            },
            local: draft.local,
            remote: draft.remote,
            resource: draft.group.resource(),
            inbound: HalfSa { spi: draft.spi_inbound, secrets: inbound },
            outbound: HalfSa { spi: draft.spi_outbound, secrets: outbound },
        })));
        id
    }

    /// Sends on a CHILD SA from now on.
    pub(super) fn switch(&mut self, id: ChildId, ctx: &mut Context<'_>) {
        let Some(child) = self.child_mut(id).filter(|child| !child.sends) else { return };
        child.sends = true;
        ctx.events.push_back(Event::Switch(id));
    }

    /// The peer replaced a CHILD SA: we send on the new one when it was heard on, or the old one is
    /// deleted, so that no packet is sent that the peer cannot open yet.
    fn replaced_by_peer(&mut self, old: ChildId, new: ChildId, ctx: &mut Context<'_>) {
        let patience = ctx.now + ctx.config.timing.half_open;
        let another_sends = self.children.iter().any(|child| child.sends);
        match self.child_mut(old) {
            Some(old) if old.status == ChildStatus::Installed => {
                old.status = ChildStatus::Replaced(patience);
            }
            Some(old) if matches!(old.status, ChildStatus::Deleting | ChildStatus::Replaced(_)) => {
            }
            // the peer may have made it in vain: it is heard on, or removed
            _ if another_sends => {}
            _ => self.switch(new, ctx),
        }
    }
}

impl IkeSa {
    /// The peer deletes it; if not, it is forgotten.
    fn replaced(&mut self, ctx: &Context<'_>) {
        self.status = Status::Replaced;
        self.expires_at = Some(ctx.now + ctx.config.timing.exchange());
    }
}
