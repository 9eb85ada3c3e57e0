//! CREATE_CHILD_SA and IKE_FOLLOWUP_KE: new CHILD SAs, and rekeying of both kinds of SA with its
//! collisions (RFC 7296 §1.3, §2.8, §2.25; RFC 9370 §2.2.4).

use std::collections::VecDeque;
use std::sync::Arc;

use headroom_suite::Key;

use super::responder::Refusal;
use super::{Child, ChildStatus, Context, Phase, Session, Task};
use crate::config::ChildConfig;
use crate::contents::Contents;
use crate::crypto::{Method, Spis};
use crate::event::{ChildId, Reason};
use crate::exchange::{
    Agreement, ChildOffer, Collision, Create, Draft, Exchange, ExpectedFollowup, Followup, Group,
    IkeDraft, Offer, Target,
};
use crate::proposal::{ChildProposal, IkeProposal};
use crate::sa::{Opened, Status};
use crate::wire::{
    ExchangeType, Header, KeyExchange, Nonce, Notify, NotifyType, Payload, ProtocolId,
    SecurityAssociation,
};

/// The longest name that a responder may give to an exchange that is followed up.
const MAX_LINK: usize = 1024;

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

    /// Asks to replace the IKE SA.
    pub(super) fn rekey_ike(&mut self, ctx: &mut Context<'_>) {
        let Some(connection) = &self.connection else { return };
        let method = first_method(connection.ike.first().map(|one| &one.key_exchanges));
        let spi = ctx.ike_spi();
        self.send_create(Offer::Ike(spi), method, Vec::new(), ctx);
    }

    fn send_create(
        &mut self,
        offer: Offer,
        method: Option<Method>,
        refused: Vec<Method>,
        ctx: &mut Context<'_>,
    ) {
        let Some(connection) = self.connection.clone() else { return };
        self.deleted_early.clear();
        let nonce = ctx.nonce();
        let key_exchange = method.map(|method| method.generate(ctx.random));
        let public = key_exchange.as_ref().map_or_else(Vec::new, |one| one.public().to_vec());
        let (child_spi, ike_spi, old_spi, qesp, info);
        let mut payloads = Vec::new();
        let nonce_payload = Payload::Nonce(Nonce(&nonce));
        let key_exchange_payload = method
            .map(|method| Payload::KeyExchange(KeyExchange { method: method.id(), data: &public }));
        match &offer {
            Offer::Child(offer) => {
                if let Some(old) = offer.replaces.and_then(|old| self.child(old)) {
                    old_spi = old.spi_inbound.to_be_bytes();
                    let (protocol, notify_type) = (ProtocolId::Esp, NotifyType::RekeySa);
                    let notify = Notify { protocol, spi: &old_spi, notify_type, data: &[] };
                    payloads.push(Payload::Notify(notify));
                }
                qesp = self.qesp(&offer.config);
                info = offer.group.info();
                payloads.extend(offer.notifies(qesp.as_ref(), info.as_deref()));
                child_spi = offer.spi.to_be_bytes();
                let proposals = ChildProposal::emit(&offer.config.proposals, &child_spi);
                let [sa, initiator, responder] = offer.payloads(proposals);
                payloads.extend([sa, nonce_payload]);
                payloads.extend(key_exchange_payload);
                payloads.extend([initiator, responder]);
            }
            Offer::Ike(spi) => {
                ike_spi = spi.to_be_bytes();
                let proposals = IkeProposal::emit(&connection.ike, &ike_spi);
                let sa = Payload::SecurityAssociation(SecurityAssociation { proposals });
                payloads.extend([sa, nonce_payload]);
                payloads.extend(key_exchange_payload);
            }
        }
        let nonce = nonce.clone();
        let create = Create { offer, nonce, key_exchange, refused, collision: None };
        let exchange = Exchange::Create(Box::new(create));
        self.send(self.current, ExchangeType::CreateChildSa, &payloads, exchange, ctx);
    }

    pub(super) fn create_response(
        &mut self,
        spi: u64,
        mut create: Create,
        contents: &Contents<'_>,
        ctx: &mut Context<'_>,
    ) {
        let sent = create.key_exchange.as_ref().map(crate::crypto::KeyExchange::method);
        if let Some(error) = contents.error() {
            let data = <[u8; 2]>::try_from(error.data).ok();
            let wanted = data.and_then(|id| Method::from_id(u16::from_be_bytes(id).into()));
            let offered = wanted.filter(|method| self.offers(&create.offer, *method));
            return match (error.notify_type, offered) {
                (NotifyType::InvalidKePayload, Some(method)) if sent != Some(method) => {
                    create.refused.extend(sent);
                    if create.refused.contains(&method) {
                        return self.create_failed(create.offer, Reason::KeyExchange, ctx);
                    }
                    self.send_create(create.offer, Some(method), create.refused, ctx);
                    let again = self.sa(spi).and_then(|sa| sa.pending.as_mut());
                    let collision = again.and_then(|one| one.exchange.collision());
                    if let Some(collision) = collision {
                        *collision = create.collision;
                    }
                }
                (notify_type, _) => {
                    self.create_failed(create.offer, Reason::Refused(notify_type), ctx);
                }
            };
        }
        match self.agree(create, contents) {
            Ok((agreement, collision)) => self.proceed(spi, agreement, collision, contents, ctx),
            Err(refused) => {
                let (offer, reason) = *refused;
                // the peer made a CHILD SA that we do not want
                if let (Offer::Child(offer), true) = (&offer, contents.sa.is_some()) {
                    self.queue(Task::DeleteUnused(offer.spi));
                }
                self.create_failed(offer, reason, ctx);
            }
        }
    }

    /// Checks a response to CREATE_CHILD_SA.
    fn agree(
        &self,
        create: Create,
        contents: &Contents<'_>,
    ) -> Result<(Agreement, Collision), Box<(Offer, Reason)>> {
        let Create { offer, nonce, key_exchange, collision, .. } = create;
        let (Some(theirs), Some(nonce_responder)) = (&contents.sa, contents.nonce) else {
            let reason = Reason::Protocol("CREATE_CHILD_SA without SA or nonce");
            return Err(Box::new((offer, reason)));
        };
        let (chosen, additional, draft) = match offer {
            Offer::Child(child) => {
                let chosen = ChildProposal::accept(&child.config.proposals, &theirs.proposals);
                let methods = chosen
                    .as_ref()
                    .map(|(choice, _)| (choice.key_exchange, choice.additional.clone()));
                let again = Offer::Child(child.clone());
                let draft = self
                    .accept_child(child, chosen, contents)
                    .map_err(|(_, reason, _)| Box::new((again, reason)))?;
                let (method, additional) = methods.unwrap_or_default();
                (method, additional, Draft::Child(draft))
            }
            Offer::Ike(spi) => {
                let offers = self.connection.as_ref().map_or(&[][..], |one| &one.ike);
                let choice = IkeProposal::accept(offers, &theirs.proposals);
                let responder = theirs.proposals.first().and_then(|one| one.spi.try_into().ok());
                let responder = responder.map(u64::from_be_bytes).filter(|&spi| spi != 0);
                let (Some(choice), Some(responder)) = (choice, responder) else {
                    return Err(Box::new((Offer::Ike(spi), Reason::NoProposal)));
                };
                let spis = Spis { initiator: spi, responder };
                let (method, additional) = (choice.key_exchange, choice.additional.clone());
                (Some(method), additional, Draft::Ike(IkeDraft { choice, spis }))
            }
        };
        let secret = match (chosen, key_exchange, contents.key_exchange) {
            (None, _, _) => Ok(None),
            (Some(method), Some(ours), Some(theirs))
                if ours.method() == method && theirs.method == method.id() =>
            {
                ours.finish(theirs.data).map(Some).map_err(|_| "an invalid public value")
            }
            _ => Err("a key exchange that was not chosen"),
        };
        let secret = secret.map_err(|what| Box::new((offer_of(&draft), Reason::Protocol(what))))?;
        let agreement = Agreement {
            draft,
            initiated: true,
            nonce_initiator: nonce,
            nonce_responder: nonce_responder.to_vec(),
            secrets: secret.into_iter().collect(),
            remaining: additional.into(),
        };
        Ok((agreement, collision))
    }

    /// Continues with the next additional key exchange, or ends with the new SA.
    fn proceed(
        &mut self,
        spi: u64,
        mut agreement: Agreement,
        collision: Collision,
        contents: &Contents<'_>,
        ctx: &mut Context<'_>,
    ) {
        let Some(method) = agreement.remaining.pop_front() else {
            return self.complete(spi, agreement, &collision, ctx);
        };
        let link = contents.notify(NotifyType::AdditionalKeyExchange);
        // it is sent back, and must leave room for a public value
        let Some(link) = link.filter(|link| link.data.len() <= MAX_LINK) else {
            let reason = Reason::Protocol("no ADDITIONAL_KEY_EXCHANGE");
            return self.create_failed(offer_of(&agreement.draft), reason, ctx);
        };
        if agreement.loses(&collision) {
            // what it would make is redundant: the responder forgets it after a while
            let reason = Reason::Refused(NotifyType::TemporaryFailure);
            return self.create_failed(offer_of(&agreement.draft), reason, ctx);
        }
        let key_exchange = method.generate(ctx.random);
        let public = key_exchange.public().to_vec();
        let link = link.data.to_vec();
        let payloads = [
            Payload::KeyExchange(KeyExchange { method: method.id(), data: &public }),
            Payload::Notify(Notify::new(NotifyType::AdditionalKeyExchange, &link)),
        ];
        let followup = Followup { agreement, key_exchange, collision };
        let exchange = Exchange::Followup(Box::new(followup));
        self.send(spi, ExchangeType::IkeFollowupKe, &payloads, exchange, ctx);
    }

    pub(super) fn followup_response(
        &mut self,
        spi: u64,
        followup: Followup,
        contents: &Contents<'_>,
        ctx: &mut Context<'_>,
    ) {
        let Followup { mut agreement, key_exchange, collision } = followup;
        if let Some(error) = contents.error() {
            let reason = Reason::Refused(error.notify_type);
            return self.create_failed(offer_of(&agreement.draft), reason, ctx);
        }
        let theirs = contents.key_exchange.filter(|one| one.method == key_exchange.method().id());
        match theirs.and_then(|theirs| key_exchange.finish(theirs.data).ok()) {
            Some(secret) => {
                agreement.secrets.push(secret);
                self.proceed(spi, agreement, collision, contents, ctx);
            }
            None => {
                let reason = Reason::Protocol("an invalid public value");
                self.create_failed(offer_of(&agreement.draft), reason, ctx);
            }
        }
    }

    /// Takes back what was asked for.
    pub(super) fn create_failed(&mut self, offer: Offer, reason: Reason, ctx: &mut Context<'_>) {
        let later = ctx.retry_at();
        let temporary = reason == Reason::Refused(NotifyType::TemporaryFailure);
        match offer {
            Offer::Ike(_) => {
                // the peer's own rekeying wins if it came that far
                if !self.adopt_rival(ctx) {
                    self.rekey_at = Some(later);
                }
            }
            Offer::Child(offer) => {
                ctx.ids.release(offer.spi);
                let name = offer.config.name.clone();
                let installed = |child: &&mut Child| child.status == ChildStatus::Installed;
                match offer.replaces.map(|old| self.child_mut(old).filter(installed)) {
                    // it was deleted or replaced meanwhile
                    Some(None) => return,
                    Some(Some(old)) => {
                        let id = old.id;
                        old.rekey_at = Some(later);
                        if reason == Reason::Refused(NotifyType::ChildSaNotFound) {
                            self.peer_deleted(id, ctx);
                        }
                    }
                    None if temporary => {
                        let task = match offer.group {
                            Group::Resource(number) => Task::CreateResource(offer.config, number),
                            Group::None | Group::First => Task::CreateChild(offer.config),
                        };
                        self.delay(later, task);
                    }
                    // it makes no more of them (RFC 9611)
                    None if offer.group.resource().is_some() => {
                        self.tasks.retain(|task| !task.is_of_resource(&offer.config));
                        self.delayed.retain(|(_, task)| !task.is_of_resource(&offer.config));
                    }
                    None => {}
                }
                if !temporary {
                    self.child_failed(Some(name), reason, ctx);
                }
            }
        }
    }

    /// Answers CREATE_CHILD_SA.
    pub(super) fn create_request(
        &mut self,
        spi: u64,
        opened: &Opened,
        contents: &Contents<'_>,
        ctx: &mut Context<'_>,
    ) {
        let header = &opened.header;
        let (Some(sa), Some(_)) = (&contents.sa, contents.nonce) else {
            return self.violated(spi, header, "CREATE_CHILD_SA without SA or nonce", ctx);
        };
        let ours = self.sa(spi).map(|sa| (sa.status, sa.pending.as_ref().map(|one| &one.exchange)));
        let Some((status, pending)) = ours else { return };
        let rekeys_ike = sa.proposals.iter().any(|one| one.protocol == ProtocolId::Ike);
        // RFC 7296 §2.25.2
        let busy = match rekeys_ike {
            true => pending.is_some_and(Exchange::is_about_child),
            false => {
                pending.and_then(Exchange::target) == Some(Target::Ike) || self.reauth.is_under_way
            }
        };
        if busy || status != Status::Active || self.phase != Phase::Established {
            return self.refuse(spi, header, NotifyType::TemporaryFailure, ctx);
        }
        let answered = match rekeys_ike {
            true => self.ike_rekey_request(spi, header, contents, ctx),
            false => self.child_request(spi, header, contents, ctx),
        };
        if let Err(refusal) = answered {
            let Refusal { notify_type, data } = refusal;
            let notify = match (notify_type, contents.notify(NotifyType::RekeySa)) {
                (NotifyType::ChildSaNotFound, Some(rekey)) => Notify { notify_type, ..*rekey },
                _ => Notify::new(notify_type, &data),
            };
            self.respond(spi, header, &[Payload::Notify(notify)], ctx);
        }
    }

    fn child_request(
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

    fn ike_rekey_request(
        &mut self,
        spi: u64,
        header: &Header,
        contents: &Contents<'_>,
        ctx: &mut Context<'_>,
    ) -> Result<(), Refusal> {
        let (Some(theirs), Some(connection)) = (&contents.sa, self.connection.clone()) else {
            return Err(Refusal::new(NotifyType::NoProposalChosen));
        };
        if spi != self.current {
            // its own collision is not decided yet
            return Err(Refusal::new(NotifyType::TemporaryFailure));
        }
        let sent = contents.key_exchange.map(|one| one.method);
        let sent = sent.ok_or(Refusal::new(NotifyType::InvalidSyntax))?;
        let choice = IkeProposal::choose(&connection.ike, &theirs.proposals, sent);
        let choice = choice.ok_or(Refusal::new(NotifyType::NoProposalChosen))?;
        let initiator = theirs.proposals.first().and_then(|one| one.spi.try_into().ok());
        let initiator = initiator.map(u64::from_be_bytes).filter(|&spi| spi != 0);
        let initiator = initiator.ok_or(Refusal::new(NotifyType::InvalidSyntax))?;
        let (public, secret) = answer_key_exchange(Some(choice.key_exchange), contents, ctx)?;
        let spis = Spis { initiator, responder: ctx.ike_spi() };
        let spi_bytes = spis.responder.to_be_bytes();
        let proposals = vec![choice.answer.emit(ProtocolId::Ike, &spi_bytes)];
        let additional = choice.additional.clone();
        let draft = Draft::Ike(IkeDraft { choice, spis });
        let agreement = agreement(draft, contents, secret, additional, ctx);
        let nonce = agreement.nonce_responder.clone();
        let mut payloads = vec![
            Payload::SecurityAssociation(SecurityAssociation { proposals }),
            Payload::Nonce(Nonce(&nonce)),
        ];
        payloads.extend(
            public.as_ref().map(|(method, data)| {
                Payload::KeyExchange(KeyExchange { method: method.id(), data })
            }),
        );
        self.answer(spi, header, payloads, agreement, ctx);
        Ok(())
    }

    /// Answers, and completes unless key exchanges are left.
    fn answer(
        &mut self,
        spi: u64,
        header: &Header,
        payloads: Vec<Payload<'_>>,
        agreement: Agreement,
        ctx: &mut Context<'_>,
    ) {
        // both rekey the same: who lost is known by the nonces (RFC 7296 §2.8.1)
        let target = agreement.target();
        let pending = self.sa(spi).and_then(|sa| sa.pending.as_mut());
        let rival = pending.map(|one| &mut one.exchange).filter(|one| one.target() == target);
        if let (Some(collision), Some(_)) = (rival.and_then(Exchange::collision), target) {
            *collision = Some(agreement.lowest().to_vec());
        }
        let link = ctx.bytes::<16>().to_vec();
        let more = !agreement.remaining.is_empty();
        let mut payloads: Vec<Payload<'_>> = payloads;
        if more {
            payloads.push(Payload::Notify(Notify::new(NotifyType::AdditionalKeyExchange, &link)));
        }
        self.respond(spi, header, &payloads, ctx);
        match self.sa(spi) {
            Some(sa) if more => {
                let expires_at = ctx.now + ctx.config.timing.exchange();
                let expected = ExpectedFollowup { agreement, link: link.clone(), expires_at };
                // of an exchange that its initiator gave up
                if let Some(given_up) = sa.followup.replace(expected) {
                    ctx.release(&given_up.agreement);
                }
            }
            _ => self.complete(spi, agreement, &None, ctx),
        }
    }

    pub(super) fn followup_request(
        &mut self,
        spi: u64,
        opened: &Opened,
        contents: &Contents<'_>,
        ctx: &mut Context<'_>,
    ) {
        let header = &opened.header;
        let link = contents.notify(NotifyType::AdditionalKeyExchange).map(|notify| notify.data);
        let Some(sa) = self.sa(spi) else { return };
        let expected = sa.followup.take_if(|expected| Some(&expected.link[..]) == link);
        let status = sa.status;
        let Some(ExpectedFollowup { mut agreement, .. }) = expected else {
            return self.refuse(spi, header, NotifyType::StateNotFound, ctx);
        };
        // our own rekeying won meanwhile
        if self.phase != Phase::Established || status != Status::Active {
            ctx.release(&agreement);
            return self.refuse(spi, header, NotifyType::TemporaryFailure, ctx);
        }
        let is_gone = |child: &Child| matches!(child.status, ChildStatus::Lingering(_));
        if let Some(Target::Child(old)) = agreement.target()
            && self.child(old).is_none_or(is_gone)
        {
            // our own rekeying won, or it was closed with what had replaced it
            ctx.release(&agreement);
            return self.refuse(spi, header, NotifyType::ChildSaNotFound, ctx);
        }
        let method = agreement.remaining.pop_front();
        let answered = answer_key_exchange(method, contents, ctx);
        let Ok((Some((method, public)), Some(secret))) = answered else {
            ctx.release(&agreement);
            return self.refuse(spi, header, NotifyType::InvalidSyntax, ctx);
        };
        agreement.secrets.push(secret);
        let payload = Payload::KeyExchange(KeyExchange { method: method.id(), data: &public });
        self.answer(spi, header, vec![payload], agreement, ctx);
    }

    /// Checks whether a key exchange method is one that we offered.
    fn offers(&self, offer: &Offer, method: Method) -> bool {
        match offer {
            Offer::Child(child) => {
                child.config.proposals.iter().any(|one| one.key_exchanges.contains(&method))
            }
            Offer::Ike(_) => self.connection.as_ref().is_some_and(|connection| {
                connection.ike.iter().any(|one| one.key_exchanges.contains(&method))
            }),
        }
    }
}

fn first_method(methods: Option<&Vec<Method>>) -> Option<Method> {
    methods.and_then(|methods| methods.first().copied())
}

/// Computes our part of a key exchange, of which there may be none.
type Answered = (Option<(Method, Vec<u8>)>, Option<Key>);

fn answer_key_exchange(
    method: Option<Method>,
    contents: &Contents<'_>,
    ctx: &mut Context<'_>,
) -> Result<Answered, Refusal> {
    let Some(method) = method else { return Ok((None, None)) };
    let invalid = || Refusal {
        notify_type: NotifyType::InvalidKePayload,
        data: u16::from(method.id()).to_be_bytes().to_vec(),
    };
    let theirs = contents.key_exchange.filter(|one| one.method == method.id());
    let theirs = theirs.ok_or_else(invalid)?;
    let (public, secret) = method
        .respond(theirs.data, ctx.random)
        .map_err(|_| Refusal::new(NotifyType::InvalidSyntax))?;
    Ok((Some((method, public)), Some(secret)))
}

fn agreement(
    draft: Draft,
    contents: &Contents<'_>,
    secret: Option<Key>,
    additional: Vec<Method>,
    ctx: &mut Context<'_>,
) -> Agreement {
    Agreement {
        draft,
        initiated: false,
        nonce_initiator: contents.nonce.unwrap_or_default().to_vec(),
        nonce_responder: ctx.nonce(),
        secrets: secret.into_iter().collect(),
        remaining: VecDeque::from(additional),
    }
}

/// Returns what was asked for, to take it back.
fn offer_of(draft: &Draft) -> Offer {
    match draft {
        Draft::Child(draft) => Offer::Child(ChildOffer {
            config: draft.config.clone(),
            replaces: draft.replaces,
            local: draft.local.clone(),
            remote: draft.remote.clone(),
            spi: draft.spi_inbound,
            group: draft.group,
        }),
        Draft::Ike(draft) => Offer::Ike(draft.spis.initiator),
    }
}
