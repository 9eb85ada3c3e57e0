//! The two sides of an offer of a CHILD SA, in IKE_AUTH and in CREATE_CHILD_SA.

use std::sync::Arc;

use super::responder::Refusal;
use super::{Child, ChildStatus, Context, Phase, Session, Task};
use crate::config::{ChildConfig, Mode};
use crate::contents::Contents;
use crate::event::{ChildId, Reason};
use crate::exchange::{ChildDraft, ChildOffer, Group};
use crate::proposal::{ChildChoice, ChildProposal};
use crate::traffic;
use crate::virtual_address::VirtualAddresses;
use crate::wire::{
    KeyExchangeMethod, Notify, NotifyType, Payload, Proposal, ProtocolId, SecurityAssociation,
    TrafficSelector, TrafficSelectors,
};

/// Says whose the private number of USE_QESP is (docs/qesp.md).
const QESP_VENDOR_ID: &[u8] = b"Headroom Q-ESP 1";

/// The most pairs of selectors that a peer makes of fewer that are configured: each is a policy, and
/// all peers' packets are compared with it. More are narrowed (RFC 7296 §2.9).
const MAX_PAIRS: usize = 64;
/// The most CHILD SAs of a peer that has an address of ours, but for those that replace others.
const MAX_ASSIGNED_CHILDREN: usize = 8;
const SPI_TWICE: &str = "an SPI that another CHILD SA has";

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
        let assigns = matches!(
            self.connection.as_ref().map(|one| &one.virtual_addresses),
            Some(VirtualAddresses::Assign(_))
        );
        let limit = ctx.config.limits.children.saturating_add(self.resources());
        let most = match (assigns, replaces) {
            // it is there beside the one that it replaces
            (_, Some(_)) => limit.saturating_mul(2),
            (true, None) => MAX_ASSIGNED_CHILDREN.min(limit),
            (false, None) => limit,
        };
        let is_over = self.phase != Phase::Established || self.reauth.is_replaced;
        if is_over || self.children.len() >= most {
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
            let (ours, theirs) = self.selectors(config);
            let local = traffic::narrow(ts_responder, &ours);
            let mut remote = traffic::narrow(ts_initiator, &theirs);
            if local.is_empty() || remote.is_empty() {
                continue;
            }
            let pairs = MAX_PAIRS.max(ours.len() * theirs.len());
            remote.truncate((pairs / local.len()).max(1));
            let offered = qesp_of(contents);
            let qesp = self.qesp(config).filter(|protocol| offered == Some(*protocol));
            if qesp.is_none() && config.qesp.is_some_and(|qesp| qesp.is_required) {
                refused = (Refusal::new(NotifyType::NoProposalChosen), Reason::NoQEsp);
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
                Some((_, spi)) if self.has_outbound(spi) => {
                    let refusal = Refusal::new(NotifyType::NoProposalChosen);
                    return Err((refusal, Reason::Protocol(SPI_TWICE)));
                }
                Some((choice, spi_outbound)) => {
                    let ends = (&local, &remote);
                    let Some(group) = self.answered_group(config, replaces, ends, contents) else {
                        let refusal = Refusal::new(NotifyType::TsMaxQueue);
                        return Err((refusal, Reason::Limit("CHILD SAs of one resource each")));
                    };
                    let (config, mode) = (config.clone(), config.mode);
                    let spi_inbound = ctx.child_spi(&config, group);
                    return Ok(ChildDraft {
                        config,
                        replaces,
                        choice,
                        mode,
                        qesp,
                        spi_inbound,
                        spi_outbound,
                        local,
                        remote,
                        group,
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
        if self.has_outbound(spi_outbound) {
            return Err(failed(Reason::Protocol(SPI_TWICE)));
        }
        let (Some(remote), Some(local)) = (&contents.ts_responder, &contents.ts_initiator) else {
            return Err(failed(Reason::Protocol("a CHILD SA without TSi or TSr")));
        };
        let ours = self.selectors(&offer.config).0;
        if ours.is_empty() {
            return Err(failed(Reason::NoAddress));
        }
        let local_is_ours = traffic::are_within(local, &ours);
        if !local_is_ours
            || !traffic::are_within(local, &offer.local)
            || !traffic::are_within(remote, &offer.remote)
        {
            return Err(failed(Reason::NoTraffic));
        }
        let transport = contents.has(NotifyType::UseTransportMode);
        if transport != (offer.config.mode == Mode::Transport) {
            return Err(failed(Reason::Protocol("another mode than was asked for")));
        }
        let qesp = match (self.qesp(&offer.config), qesp_of(contents)) {
            (ours, theirs) if theirs.is_none() || theirs == ours => theirs,
            _ => return Err(failed(Reason::Protocol("a Q-ESP that was not asked for"))),
        };
        if qesp.is_none() && offer.config.qesp.is_some_and(|qesp| qesp.is_required) {
            return Err(failed(Reason::NoQEsp));
        }
        // a group has the same selectors
        let is_of_resource = offer.group.resource().is_some();
        if is_of_resource && (*local != offer.local || *remote != offer.remote) {
            return Err(failed(Reason::NoTraffic));
        }
        let is_known = contents.has(NotifyType::SaResourceInfo);
        Ok(ChildDraft {
            group: if is_known || is_of_resource { offer.group } else { Group::None },
            mode: offer.config.mode,
            qesp,
            config: offer.config,
            replaces: offer.replaces,
            choice,
            spi_inbound: offer.spi,
            spi_outbound,
            local: local.clone(),
            remote: remote.clone(),
        })
    }

    /// Checks whether the peer has named a CHILD SA so that is not forgotten yet: an SPI is unique at
    /// its receiver (RFC 4301 §4.1), and what is deleted or rekeyed is found by it.
    fn has_outbound(&self, spi: u32) -> bool {
        self.children.iter().any(|child| child.spi_outbound == spi)
    }

    /// Returns what both ends may send: of an end that uses virtual addresses, those that it has.
    pub(super) fn selectors(
        &self,
        config: &ChildConfig,
    ) -> (Vec<TrafficSelector>, Vec<TrafficSelector>) {
        let (mut local, mut remote) = (config.local.clone(), config.remote.clone());
        match self.connection.as_ref().map(|connection| &connection.virtual_addresses) {
            Some(VirtualAddresses::Request { .. }) => {
                local = traffic::narrow(&self.assigned.selectors(), &local);
            }
            Some(VirtualAddresses::Assign(_)) => {
                remote = traffic::narrow(&self.assigned.selectors(), &remote);
            }
            Some(VirtualAddresses::None) | None => {}
        }
        (local, remote)
    }

    /// Returns what a new CHILD SA of a configuration is for: the first of a group, or no group.
    pub(super) fn group_of(&self, config: &Arc<ChildConfig>) -> Group {
        match config.per_resource > 0 && self.first_of_group(config).is_none() {
            true => Group::First,
            false => Group::None,
        }
    }

    /// Returns the CHILD SA beside which those of resources are.
    pub(super) fn first_of_group(&self, config: &Arc<ChildConfig>) -> Option<&Child> {
        self.children.iter().find(|child| {
            child.group == Group::First
                && child.status == ChildStatus::Installed
                && Arc::ptr_eq(&child.config, config)
        })
    }

    /// Returns how many CHILD SAs there may be for single resources.
    fn resources(&self) -> usize {
        let children = self.connection.iter().flat_map(|connection| &connection.children);
        children.map(|child| child.per_resource as usize).sum()
    }

    /// Returns what the CHILD SA is for that a peer asks for; none: there are enough of them.
    fn answered_group(
        &self,
        config: &Arc<ChildConfig>,
        replaces: Option<ChildId>,
        (local, remote): (&Vec<TrafficSelector>, &Vec<TrafficSelector>),
        contents: &Contents<'_>,
    ) -> Option<Group> {
        if !contents.has(NotifyType::SaResourceInfo) || config.per_resource == 0 {
            return Some(Group::None);
        }
        if let Some(old) = replaces.and_then(|old| self.child(old)) {
            return Some(old.group);
        }
        let of_group = |child: &&Child| {
            Arc::ptr_eq(&child.config, config)
                && (&child.local, &child.remote) == (local, remote)
                && matches!(child.status, ChildStatus::Installed | ChildStatus::Replaced(_))
        };
        let group: Vec<Group> =
            self.children.iter().filter(of_group).map(|one| one.group).collect();
        if !group.contains(&Group::First) {
            return Some(Group::First);
        }
        let free = |number: &u32| !group.contains(&Group::Resource(*number));
        (0..config.per_resource).find(free).map(Group::Resource)
    }

    /// Makes those of the other resources, after the first of a group was made by us.
    pub(super) fn complete_group(&mut self, config: &Arc<ChildConfig>) {
        for number in 0..config.per_resource {
            self.queue(Task::CreateResource(config.clone(), number));
        }
    }

    /// Returns the protocol number of the Q-ESP that we offer or agree to. Each end knows only of
    /// itself whether it is behind a NAT; if neither is, there is none.
    pub(super) fn qesp(&self, config: &ChildConfig) -> Option<u8> {
        config.qesp.filter(|_| !self.nat.local).map(|qesp| qesp.protocol)
    }
}

impl ChildDraft {
    /// Returns SA, TSi, TSr, mode, format and group of a response; `spi`, `qesp` and `info` are the
    /// draft's own.
    pub(super) fn answer<'a>(
        &self,
        spi: &'a [u8],
        qesp: Option<&'a u8>,
        info: Option<&'a [u8]>,
    ) -> Vec<Payload<'a>> {
        let proposals = vec![self.choice.answer.emit(ProtocolId::Esp, spi)];
        let mut payloads = vec![
            Payload::SecurityAssociation(SecurityAssociation { proposals }),
            Payload::TsInitiator(TrafficSelectors { selectors: self.remote.clone() }),
            Payload::TsResponder(TrafficSelectors { selectors: self.local.clone() }),
        ];
        payloads.extend(notifies(self.mode, qesp, info));
        payloads
    }
}

impl ChildOffer {
    /// Returns mode, format and group of a request.
    pub(super) fn notifies<'a>(
        &self,
        qesp: Option<&'a u8>,
        info: Option<&'a [u8]>,
    ) -> impl Iterator<Item = Payload<'a>> {
        notifies(self.config.mode, qesp, info)
    }

    /// Returns SA, TSi and TSr of a request.
    pub(super) fn payloads<'a>(&self, proposals: Vec<Proposal<'a>>) -> [Payload<'a>; 3] {
        [
            Payload::SecurityAssociation(SecurityAssociation { proposals }),
            Payload::TsInitiator(TrafficSelectors { selectors: self.local.clone() }),
            Payload::TsResponder(TrafficSelectors { selectors: self.remote.clone() }),
        ]
    }
}

/// Both sides say the mode that is not the usual one, that they use Q-ESP, and that the CHILD SA has a
/// group.
fn notifies<'a>(
    mode: Mode,
    qesp: Option<&'a u8>,
    info: Option<&'a [u8]>,
) -> impl Iterator<Item = Payload<'a>> {
    let transport = (mode == Mode::Transport)
        .then(|| Payload::Notify(Notify::new(NotifyType::UseTransportMode, &[])));
    let qesp = qesp.into_iter().flat_map(|protocol| {
        let notify = Notify::new(NotifyType::UseQEsp, std::slice::from_ref(protocol));
        [Payload::VendorId(QESP_VENDOR_ID), Payload::Notify(notify)]
    });
    let group = info.map(|data| Payload::Notify(Notify::new(NotifyType::SaResourceInfo, data)));
    transport.into_iter().chain(qesp).chain(group)
}

/// Returns the protocol number of the Q-ESP that the peer offers or agrees to.
fn qesp_of(contents: &Contents<'_>) -> Option<u8> {
    let notify = contents.notify(NotifyType::UseQEsp)?;
    let is_known = contents.vendor_ids.contains(&QESP_VENDOR_ID);
    match notify.data {
        &[protocol] if is_known => Some(protocol),
        _ => None,
    }
}
