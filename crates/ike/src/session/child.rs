//! The two sides of an offer of a CHILD SA, in IKE_AUTH and in CREATE_CHILD_SA.

use std::sync::Arc;

use super::responder::Refusal;
use super::{Context, Phase, Session};
use crate::config::{ChildConfig, Mode};
use crate::contents::Contents;
use crate::event::{ChildId, Reason};
use crate::exchange::{ChildDraft, ChildOffer};
use crate::proposal::{ChildChoice, ChildProposal};
use crate::traffic;
use crate::wire::{
    KeyExchangeMethod, Notify, NotifyType, Payload, Proposal, ProtocolId, SecurityAssociation,
    TrafficSelectors,
};

impl Session {
    /// Chooses configuration, algorithms and selectors of a CHILD SA that the peer wants.
    pub(super) fn draft_child(
        &self,
        candidates: &[Arc<ChildConfig>],
        replaces: Option<ChildId>,
        in_auth: bool,
        contents: &Contents<'_>,
        ctx: &mut Context<'_>,
    ) -> Result<ChildDraft, (Refusal, Reason)> {
        let (Some(sa), Some(ts_initiator), Some(ts_responder)) =
            (&contents.sa, &contents.ts_initiator, &contents.ts_responder)
        else {
            let reason = Reason::Protocol("a CHILD SA without SA, TSi or TSr");
            return Err((Refusal::new(NotifyType::InvalidSyntax), reason));
        };
        if self.phase != Phase::Established || self.children.len() >= ctx.config.limits.children {
            let refusal = Refusal::new(NotifyType::NoAdditionalSas);
            return Err((refusal, Reason::Limit("CHILD SAs")));
        }
        let sent = contents.key_exchange.map_or(KeyExchangeMethod::None, |one| one.method);
        let transport = contents.has(NotifyType::UseTransportMode);
        let mut refused = (Refusal::new(NotifyType::TsUnacceptable), Reason::NoTraffic);
        for config in candidates {
            if config.mode == Mode::Transport && !transport {
                continue;
            }
            let local = traffic::narrow(ts_responder, &config.local);
            let remote = traffic::narrow(ts_initiator, &config.remote);
            if local.is_empty() || remote.is_empty() {
                continue;
            }
            let stripped;
            let offers = match in_auth {
                true => {
                    stripped = ChildProposal::without_key_exchange(&config.proposals);
                    &stripped
                }
                false => &config.proposals,
            };
            match ChildProposal::choose(offers, &sa.proposals, sent) {
                None => {
                    refused = (Refusal::new(NotifyType::NoProposalChosen), Reason::NoProposal);
                }
                Some((choice, spi_outbound)) => {
                    let (config, mode) = (config.clone(), config.mode);
                    let spi_inbound = ctx.child_spi();
                    return Ok(ChildDraft {
                        config,
                        replaces,
                        choice,
                        mode,
                        spi_inbound,
                        spi_outbound,
                        local,
                        remote,
                    });
                }
            }
        }
        Err(refused)
    }

    /// Checks a responder's answer to our offer of a CHILD SA.
    pub(super) fn accept_child(
        &self,
        offer: ChildOffer,
        chosen: Option<(ChildChoice, u32)>,
        contents: &Contents<'_>,
    ) -> Result<ChildDraft, (String, Reason, u32)> {
        let failed = |reason| (offer.config.name.clone(), reason, offer.spi);
        let (choice, spi_outbound) = chosen.ok_or_else(|| failed(Reason::NoProposal))?;
        let (Some(remote), Some(local)) = (&contents.ts_responder, &contents.ts_initiator) else {
            return Err(failed(Reason::Protocol("a CHILD SA without TSi or TSr")));
        };
        if !traffic::are_within(local, &offer.local) || !traffic::are_within(remote, &offer.remote)
        {
            return Err(failed(Reason::NoTraffic));
        }
        let transport = contents.has(NotifyType::UseTransportMode);
        if transport != (offer.config.mode == Mode::Transport) {
            return Err(failed(Reason::Protocol("another mode than was asked for")));
        }
        Ok(ChildDraft {
            mode: offer.config.mode,
            config: offer.config,
            replaces: offer.replaces,
            choice,
            spi_inbound: offer.spi,
            spi_outbound,
            local: local.clone(),
            remote: remote.clone(),
        })
    }
}

impl ChildDraft {
    /// Returns SA, TSi, TSr and mode of a response.
    pub(super) fn answer<'a>(&self, spi: &'a [u8]) -> Vec<Payload<'a>> {
        let proposals = vec![self.choice.answer.emit(ProtocolId::Esp, spi)];
        let mut payloads = vec![
            Payload::SecurityAssociation(SecurityAssociation { proposals }),
            Payload::TsInitiator(TrafficSelectors { selectors: self.remote.clone() }),
            Payload::TsResponder(TrafficSelectors { selectors: self.local.clone() }),
        ];
        if self.mode == Mode::Transport {
            payloads.push(Payload::Notify(Notify::new(NotifyType::UseTransportMode, &[])));
        }
        payloads
    }
}

impl ChildOffer {
    /// Returns SA, TSi and TSr of a request.
    pub(super) fn payloads<'a>(&self, proposals: Vec<Proposal<'a>>) -> [Payload<'a>; 3] {
        [
            Payload::SecurityAssociation(SecurityAssociation { proposals }),
            Payload::TsInitiator(TrafficSelectors { selectors: self.local.clone() }),
            Payload::TsResponder(TrafficSelectors { selectors: self.remote.clone() }),
        ]
    }
}
