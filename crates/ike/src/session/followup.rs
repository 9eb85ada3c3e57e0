//! IKE_FOLLOWUP_KE: additional key exchanges after CREATE_CHILD_SA (RFC 9370 §2.2.4).

use super::create_child::{answer_key_exchange, offer_of};
use super::{Child, ChildStatus, Context, Phase, Session};
use crate::contents::Contents;
use crate::event::Reason;
use crate::exchange::{Agreement, Collision, Exchange, ExpectedFollowup, Followup, Target};
use crate::sa::{Opened, Status};
use crate::wire::{ExchangeType, KeyExchange, Notify, NotifyType, Payload};

/// The longest name that a responder may give to an exchange that is followed up.
const MAX_LINK: usize = 1024;

impl Session {
    /// Continues with the next additional key exchange, or ends with the new SA.
    pub(super) fn proceed(
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
}
