//! CREATE_CHILD_SA: what new CHILD SAs and rekeying of both kinds of SA have in common (RFC 7296 §1.3,
//! §2.8, §2.25).

use std::collections::VecDeque;

use headroom_suite::Key;

use super::responder::Refusal;
use super::{Child, ChildStatus, Context, Phase, Session, Task};
use crate::contents::Contents;
use crate::crypto::{Method, Spis};
use crate::event::Reason;
use crate::exchange::{
    Agreement, ChildOffer, Collision, Create, Draft, Exchange, ExpectedFollowup, Group, IkeDraft,
    Offer, Target,
};
use crate::proposal::{ChildProposal, IkeProposal};
use crate::sa::{Opened, Status};
use crate::wire::{
    ExchangeType, Header, KeyExchange, Nonce, Notify, NotifyType, Payload, ProtocolId,
    SecurityAssociation,
};

impl Session {
    /// Sends a request, with a public value of this method if there is one.
    pub(super) fn send_create(
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
                let responder =
                    choice.as_ref().and_then(|one| one.answer.spi_of(&theirs.proposals));
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

    /// Answers, and completes unless key exchanges are left.
    pub(super) fn answer(
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

pub(super) fn first_method(methods: Option<&Vec<Method>>) -> Option<Method> {
    methods.and_then(|methods| methods.first().copied())
}

/// Computes our part of a key exchange, of which there may be none.
pub(super) type Answered = (Option<(Method, Vec<u8>)>, Option<Key>);

pub(super) fn answer_key_exchange(
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

pub(super) fn agreement(
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
pub(super) fn offer_of(draft: &Draft) -> Offer {
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
