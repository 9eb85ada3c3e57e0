//! CREATE_CHILD_SA for a CHILD SA, a new one or one that replaces another (RFC 7296 §1.3.1, §1.3.3).

use std::sync::Arc;

use super::create_child::{agreement, answer_key_exchange, first_method};
use super::responder::Refusal;
use super::{ChildStatus, Context, Session};
use crate::config::ChildConfig;
use crate::contents::Contents;
use crate::event::ChildId;
use crate::exchange::{ChildOffer, Draft, Group, Offer};
use crate::wire::{Header, KeyExchange, Nonce, NotifyType, Payload};

impl Session {
    /// Asks for a CHILD SA, a new one or one that replaces another.
    pub(super) fn create_child(
        &mut self,
        config: &Arc<ChildConfig>,
        replaces: Option<ChildId>,
        group: Group,
        ctx: &mut Context<'_>,
    ) {
        let old = replaces.and_then(|old| self.child(old));
        // all of a group have the same (RFC 9611)
        let first = group.resource().and_then(|_| self.first_of_group(config));
        let (local, remote) = match old.or(first) {
            // not less than what it replaces (RFC 7296 §2.9.2)
            Some(old) => (old.local.clone(), old.remote.clone()),
            None => self.selectors(config),
        };
        let is_new = group == Group::None && replaces.is_none();
        let group = if is_new { self.group_of(config) } else { group };
        let spi = ctx.child_spi(config, group);
        let offer = ChildOffer { config: config.clone(), replaces, local, remote, spi, group };
        let method = first_method(config.proposals.first().map(|one| &one.key_exchanges));
        self.send_create(Offer::Child(offer), method, Vec::new(), ctx);
    }

    pub(super) fn child_request(
        &mut self,
        spi: u64,
        header: &Header,
        contents: &Contents<'_>,
        ctx: &mut Context<'_>,
    ) -> Result<(), Refusal> {
        let mut replaces = None;
        let mut candidates =
            self.connection.as_ref().map_or_else(Vec::new, |one| one.children.clone());
        if let Some(rekey) = contents.notify(NotifyType::RekeySa) {
            // RFC 7296 §2.25.1
            let old = rekey.spi.try_into().ok().map(u32::from_be_bytes);
            let old = self.children.iter().find(|child| {
                Some(child.spi_outbound) == old
                    && !matches!(child.status, ChildStatus::Lingering(_))
            });
            let old = old.ok_or_else(|| {
                // perhaps it is the one that our request made, whose answer is late
                Refusal::new(match self.is_making_child() {
                    true => NotifyType::TemporaryFailure,
                    false => NotifyType::ChildSaNotFound,
                })
            })?;
            if old.status != ChildStatus::Installed {
                return Err(Refusal::new(NotifyType::TemporaryFailure));
            }
            replaces = Some(old.id);
            candidates = vec![old.config.clone()];
        }
        let drafted = self.draft_child(&candidates, replaces, false, contents, ctx);
        let draft = drafted.map_err(|(refusal, reason)| {
            self.child_failed(None, reason, ctx);
            refusal
        })?;
        let spi_bytes = draft.spi_inbound.to_be_bytes();
        let method = draft.choice.key_exchange;
        let answered = answer_key_exchange(method, contents, ctx);
        let (public, secret) = answered.inspect_err(|_| ctx.ids.release(draft.spi_inbound))?;
        let (qesp, info) = (draft.qesp, draft.group.info());
        let answer = draft.answer(&spi_bytes, qesp.as_ref(), info.as_deref());
        let mut sa_and_selectors = answer.into_iter();
        let additional = draft.choice.additional.clone();
        let mut payloads: Vec<_> = sa_and_selectors.by_ref().take(1).collect();
        let agreement = agreement(Draft::Child(draft), contents, secret, additional, ctx);
        let nonce = agreement.nonce_responder.clone();
        payloads.push(Payload::Nonce(Nonce(&nonce)));
        payloads.extend(
            public.as_ref().map(|(method, data)| {
                Payload::KeyExchange(KeyExchange { method: method.id(), data })
            }),
        );
        payloads.extend(sa_and_selectors);
        self.answer(spi, header, payloads, agreement, ctx);
        Ok(())
    }
}
