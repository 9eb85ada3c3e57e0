//! CREATE_CHILD_SA that replaces the IKE SA (RFC 7296 §1.3.2).

use super::create_child::{agreement, answer_key_exchange, first_method};
use super::responder::Refusal;
use super::{Context, Session};
use crate::contents::Contents;
use crate::crypto::Spis;
use crate::exchange::{Draft, IkeDraft, Offer};
use crate::proposal::IkeProposal;
use crate::wire::{
    Header, KeyExchange, Nonce, NotifyType, Payload, ProtocolId, SecurityAssociation,
};

impl Session {
    /// Asks to replace the IKE SA.
    pub(super) fn rekey_ike(&mut self, ctx: &mut Context<'_>) {
        let Some(connection) = &self.connection else { return };
        let method = first_method(connection.ike.first().map(|one| &one.key_exchanges));
        let spi = ctx.ike_spi();
        self.send_create(Offer::Ike(spi), method, Vec::new(), ctx);
    }

    pub(super) fn ike_rekey_request(
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
        let initiator = choice.answer.spi_of(&theirs.proposals);
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
}
