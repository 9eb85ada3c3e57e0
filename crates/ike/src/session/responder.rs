//! Setting up an IKE SA as responder: IKE_SA_INIT, IKE_INTERMEDIATE, IKE_AUTH.

use super::proof::{Claim, Proof, our_hashes, peer_hashes};
use super::{Context, PpkUse, Session, Setup};
use crate::certificate::Authorities;
use crate::config::{Connection, Ppk};
use crate::contents::Contents;
use crate::crypto::{IkeKeys, Nonces, Spis, intermediate_mac};
use crate::event::{MessageReport, Reason};
use crate::exchange::{Agreement, Draft};
use crate::identity::Identity;
use crate::nat::Nat;
use crate::proposal::IkeProposal;
use crate::sa::{IkeSa, Opened, Role, Status};
use crate::virtual_address::{Assigned, VirtualAddresses, configuration, requested};
use crate::wire::{
    Authentication, CertificateEncoding, CertificateRequest, ConfigurationType, ExchangeType,
    Header, Identification, Message, Nonce, Notify, NotifyType, Payload, ProtocolId,
    SecurityAssociation, emit_chain,
};
use std::sync::Arc;

/// Why IKE_SA_INIT is refused: what is sent back. Nothing is kept.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Refusal {
    pub(crate) notify_type: NotifyType,
    pub(crate) data: Vec<u8>,
}

impl Session {
    /// Answers IKE_SA_INIT.
    pub(crate) fn respond_init(
        raw: &[u8],
        message: &Message<'_>,
        contents: &Contents<'_>,
        ctx: &mut Context<'_>,
    ) -> Result<Self, Refusal> {
        let (Some(theirs), Some(key_exchange), Some(nonce)) =
            (&contents.sa, &contents.key_exchange, contents.nonce)
        else {
            return Err(Refusal::new(NotifyType::InvalidSyntax));
        };
        let intermediate = contents.has(NotifyType::IntermediateExchangeSupported);
        let from = ctx.path.remote.ip();
        let possible = ctx.config.connections.iter().filter(|one| one.accepts(from));
        let signs = possible.clone().any(|one| one.auth.signs());
        let authorities: Vec<_> =
            possible.clone().filter_map(|one| one.auth.remote.authorities()).collect();
        let requested = Authorities::request(&authorities);
        let mut choices = possible.filter_map(|connection| {
            let choice =
                IkeProposal::choose(&connection.ike, &theirs.proposals, key_exchange.method)?;
            (choice.additional.is_empty() || intermediate).then_some(choice)
        });
        let choice = choices.next().ok_or(Refusal::new(NotifyType::NoProposalChosen))?;
        if choice.key_exchange.id() != key_exchange.method {
            let wanted = u16::from(choice.key_exchange.id()).to_be_bytes().to_vec();
            return Err(Refusal { notify_type: NotifyType::InvalidKePayload, data: wanted });
        }
        let (public, secret) = choice
            .key_exchange
            .respond(key_exchange.data, ctx.random)
            .map_err(|_| Refusal::new(NotifyType::InvalidSyntax))?;
        let spis = Spis { initiator: message.header.spi_initiator, responder: ctx.ike_spi() };
        let nonce_responder = ctx.nonce();
        let nonces = Nonces { initiator: nonce, responder: &nonce_responder };
        let keys = IkeKeys::initial(choice.suite, choice.prf, &secret, nonces, spis);
        let mut sa = IkeSa::new(Role::Responder, spis, Status::Setup);
        if !sa.set_keys(keys) {
            return Err(Refusal::new(NotifyType::NoProposalChosen));
        }
        sa.skip_expected();
        sa.choice = Some(choice.clone());
        sa.fragmentation = contents.has(NotifyType::FragmentationSupported);
        sa.expires_at = Some(ctx.now + ctx.config.timing.half_open);
        let path = ctx.path;
        // the initiator did not know our SPI yet
        let its_spis = super::first_spis(spis.initiator);
        let pretended = ctx.config.force_encapsulation;
        let nat = Nat::detect(contents, its_spis, path.local, path.remote, pretended);
        let addresses = ctx.nat_hashes(spis, path);
        let mut payloads = vec![
            Payload::SecurityAssociation(SecurityAssociation {
                proposals: vec![choice.answer.emit(ProtocolId::Ike, &[])],
            }),
            Payload::KeyExchange(crate::wire::KeyExchange {
                method: key_exchange.method,
                data: &public,
            }),
            Payload::Nonce(Nonce(&nonce_responder)),
        ];
        if !authorities.is_empty() {
            let encoding = CertificateEncoding::X509Signature;
            let request = CertificateRequest { encoding, authorities: &requested };
            payloads.push(Payload::CertificateRequest(request));
        }
        let possible = ctx.config.connections.iter().filter(|one| one.accepts(from));
        let ppk = PpkUse::choose(possible, contents);
        let hashes = our_hashes();
        if signs {
            let notify = Notify::new(NotifyType::SignatureHashAlgorithms, &hashes);
            payloads.push(Payload::Notify(notify));
        }
        if contents.has(NotifyType::NatDetectionSourceIp) {
            payloads.extend(addresses.payloads());
        }
        let supported = [
            (NotifyType::FragmentationSupported, sa.fragmentation),
            (NotifyType::IntermediateExchangeSupported, intermediate),
            (NotifyType::ChildlessSupported, true),
        ];
        let supported = supported.into_iter().filter(|(_, said)| *said);
        payloads.extend(
            supported
                .map(|(notify_type, _)| notify_type)
                .chain(ppk.notify_type())
                .map(|notify_type| Payload::Notify(Notify::new(notify_type, &[]))),
        );
        let header = sa.header(ExchangeType::IkeSaInit, true, 0);
        let response = Message { header, payloads }.emit();
        ctx.transmit(path, vec![response.clone()]);
        let mut session = Self::new(ctx.ids.session(), path, sa, ctx.now);
        session.report(MessageReport::taken(&message.header), ctx);
        session.report(MessageReport::sent(&header), ctx);
        session.nat = nat;
        session.setup = Some(Box::new(Setup {
            choice,
            request: raw.to_vec(),
            response,
            nonce_initiator: nonce.to_vec(),
            nonce_responder,
            int_auth: Default::default(),
            exchanged: 0,
            hashes: peer_hashes(contents),
            ppk,
            eap: None,
        }));
        Ok(session)
    }

    /// Answers a retransmission of IKE_SA_INIT, if it is one.
    pub(crate) fn repeat_init(&self, raw: &[u8], ctx: &mut Context<'_>) {
        if let Some(setup) = self.setup.as_ref().filter(|setup| setup.request == raw) {
            ctx.transmit(ctx.path, vec![setup.response.clone()]);
        }
    }

    pub(super) fn intermediate_request(
        &mut self,
        spi: u64,
        opened: &Opened,
        contents: &Contents<'_>,
        ctx: &mut Context<'_>,
    ) {
        let Some(setup) = &mut self.setup else { return };
        let [sa] = &self.sas[..] else { return };
        let Some(keys) = sa.keys() else { return };
        let method = setup.choice.additional.get(setup.exchanged).copied();
        let is_last = setup.exchanged + 1 >= setup.choice.additional.len();
        let mut may_mix = matches!(setup.ppk, PpkUse::InIntermediate);
        if may_mix && !is_last && contents.has(NotifyType::PpkIdentityKey) {
            let what = "a PPK_IDENTITY_KEY before the last key exchange";
            return self.violated(spi, &opened.header, what, ctx);
        }
        may_mix &= is_last;
        let answer = match (method, contents.key_exchange) {
            (Some(method), Some(theirs)) if theirs.method == method.id() => {
                method.respond(theirs.data, ctx.random).ok().map(|answer| Some((method, answer)))
            }
            // after the last of them, for a pre-shared key alone
            (None, None) if may_mix => Some(None),
            _ => None,
        };
        let Some(answer) = answer else {
            let what = "an unexpected or invalid additional key exchange";
            return self.violated(spi, &opened.header, what, ctx);
        };
        let mut mixed = None;
        // with a last key exchange, or in an exchange of its own
        if may_mix && (method.is_none() || contents.has(NotifyType::PpkIdentityKey)) {
            let from = ctx.path.remote.ip();
            let fresh = (setup.nonces(), sa.spis);
            match PpkUse::find(ctx.config, from, &setup.choice, contents, fresh) {
                Ok(found) => mixed = found,
                Err(reason) => return self.unproved(spi, &opened.header, reason, ctx),
            }
            if mixed.is_none() {
                setup.ppk = PpkUse::None;
            }
        }
        let inner = (opened.first, &opened.inner[..]);
        let (prf, [initiator, responder]) = (keys.prf, &mut setup.int_auth);
        let mac = intermediate_mac(prf, &keys.sk_pi, initiator, &opened.header, inner);
        *initiator = mac.as_bytes().to_vec();
        let identity = mixed.as_ref().and_then(|one| one.ppk.as_ref()).map(Ppk::identity);
        let (key_exchange, secret) = match answer {
            Some((method, (public, secret))) => (Some((method, public)), Some(secret)),
            None => (None, None),
        };
        let mut payloads = Vec::new();
        payloads.extend(key_exchange.as_ref().map(|(method, data)| {
            Payload::KeyExchange(crate::wire::KeyExchange { method: method.id(), data })
        }));
        payloads.extend(
            identity
                .as_ref()
                .map(|data| Payload::Notify(Notify::new(NotifyType::PpkIdentity, data))),
        );
        let mut inner = Vec::new();
        let first = emit_chain(&payloads, &mut inner);
        let header = sa.header(ExchangeType::IkeIntermediate, true, opened.header.message_id);
        let mac = intermediate_mac(prf, &keys.sk_pr, responder, &header, (first, &inner));
        *responder = mac.as_bytes().to_vec();
        // the response still has the keys of the request (RFC 9370 §2.2.2)
        self.respond(spi, &opened.header, &payloads, ctx);
        self.renew_keys(secret.as_ref(), mixed, ctx);
    }

    pub(super) fn auth_request(
        &mut self,
        spi: u64,
        opened: &Opened,
        contents: &Contents<'_>,
        ctx: &mut Context<'_>,
    ) {
        let Some(mut setup) = self.setup.take() else { return };
        // it may have begun often before it failed often
        if ctx.failures.refuses(self.source(), ctx.now) {
            let reason = Reason::Limit("failures to authenticate");
            return self.unproved(spi, &opened.header, reason, ctx);
        }
        // the NAT may have given port 4500 another mapping than port 500 (RFC 7296 §2.23)
        self.path = ctx.path;
        if let Some(questioned) = setup.eap.take() {
            return self.eap_request(spi, opened, contents, (setup, questioned), ctx);
        }
        let Some(id) = &contents.id_initiator else {
            return self.violated(spi, &opened.header, "IKE_AUTH without IDi", ctx);
        };
        if setup.exchanged < setup.choice.additional.len() {
            return self.violated(spi, &opened.header, "IKE_AUTH before all key exchanges", ctx);
        }
        let Some(auth) = &contents.authentication else {
            return self.start_eap(spi, opened, contents, setup, ctx);
        };
        let name = Identity::from_payload(id);
        let shown = name.as_ref().map_or_else(|| "?".to_owned(), Identity::to_string);
        let us = contents.id_responder.as_ref().and_then(Identity::from_payload);
        let from = ctx.path.remote.ip();
        let fits = |one: &&Arc<Connection>| {
            let remote = |name| one.remote.as_ref().is_none_or(|remote| remote.matches(name));
            let local = |us: &Identity| one.local.matches(us);
            one.accepts(from)
                && name.as_ref().is_some_and(remote)
                && us.as_ref().is_none_or(local)
                && one.auth.remote.fits(auth.method)
                && IkeProposal::permit(&one.ike, &setup.choice)
        };
        let connection = ctx.config.connections.iter().find(fits).cloned();
        let Some(sa) = self.sa(spi) else { return };
        let Some(keys) = sa.keys() else { return };
        let message_id = opened.header.message_id;
        let proved = connection.as_ref().ok_or(Reason::Identity(shown)).and_then(|connection| {
            let mixed = connection.mixed_keys(keys, contents, &setup.ppk, true)?;
            let without = contents.notify(NotifyType::NoPpkAuth).filter(|_| mixed.is_none());
            let data = without.map_or(auth.data, |notify| notify.data);
            let auth = Authentication { data, ..*auth };
            let claim = Claim { id, auth: &auth, certificates: &contents.certificates };
            let keys = mixed.as_ref().map_or(keys, |(_, keys)| keys);
            let proof = |by| Proof { setup: &setup, keys, message_id, by };
            let name = proof(Role::Initiator).check(&connection.auth.remote, &claim, ctx.time)?;
            let own = connection.local.body();
            let ours = proof(Role::Responder).make(&connection.auth.local, &own)?;
            Ok((connection.clone(), name, own, ours, mixed.is_some()))
        });
        let (connection, name, own, (method, proof), has_ppk) = match proved {
            Ok(proved) => proved,
            Err(reason) => {
                return self.unproved(spi, &opened.header, reason, ctx);
            }
        };
        let (id_type, data) = (own[0].into(), &own[4..]);
        let mut payloads = vec![Payload::IdResponder(Identification { id_type, data })];
        payloads.extend(connection.auth.local.certificates().map(Payload::Certificate));
        payloads.push(Payload::Authentication(Authentication { method, data: &proof }));
        if let Some(ppk) = connection.ppk.as_ref().filter(|_| has_ppk) {
            self.mix(spi, ppk);
            payloads.push(Payload::Notify(Notify::new(NotifyType::PpkIdentity, &[])));
        }
        self.admit((spi, &opened.header), (&connection, name), *setup, contents, payloads, ctx);
    }

    /// Refuses a peer that did not prove who it is. It is not told why (RFC 7296 §2.21.2).
    pub(super) fn unproved(
        &mut self,
        spi: u64,
        request: &Header,
        reason: Reason,
        ctx: &mut Context<'_>,
    ) {
        self.refuse(spi, request, NotifyType::AuthenticationFailed, ctx);
        self.close(reason, ctx);
    }

    /// Turns to normal work with an initiator that proved who it is: makes the CHILD SA that it asks
    /// for in `contents`, and answers with our own proof and what it gets.
    pub(super) fn admit(
        &mut self,
        (spi, request): (u64, &Header),
        (connection, name): (&Arc<Connection>, Identity),
        setup: Setup,
        contents: &Contents<'_>,
        proof: Vec<Payload<'_>>,
        ctx: &mut Context<'_>,
    ) {
        // may hold what lives shorter, too
        let mut payloads: Vec<Payload<'_>> = proof;
        self.connection = Some(connection.clone());
        self.initial_contact = contents.has(NotifyType::InitialContact);
        for ousted in ctx.peers.admit(self.id, &connection.name, &name, self.initial_contact) {
            ctx.leases.release(ousted);
        }
        let assigned = self.assign(connection, &name, contents, ctx);
        self.assigned = assigned.clone().unwrap_or_default();
        self.mobility.is_on = connection.mobike && contents.has(NotifyType::MobikeSupported);
        self.establish(name, &setup, ctx);
        if self.mobility.is_on {
            payloads.push(Payload::Notify(Notify::new(NotifyType::MobikeSupported, &[])));
        }
        let lifetime = connection.reauthenticate.map_or(0, |age| age.as_secs());
        let lifetime = u32::try_from(lifetime).unwrap_or(u32::MAX).to_be_bytes();
        if connection.reauthenticate.is_some() {
            payloads.push(Payload::Notify(Notify::new(NotifyType::AuthLifetime, &lifetime)));
        }
        let attributes = self.assigned.reply();
        if !attributes.is_empty() {
            let reply = configuration(ConfigurationType::Reply, &attributes);
            payloads.push(Payload::Configuration(reply));
        }
        if contents.sa.is_none() {
            // childless (RFC 6023)
            return self.respond(spi, request, &payloads, ctx);
        }
        let draft = assigned
            .map_err(|refused| {
                let reason = match refused {
                    NotifyType::FailedCpRequired => Reason::AddressNotRequested,
                    _ => Reason::PoolExhausted,
                };
                (Refusal::new(refused), reason)
            })
            .and_then(|_| self.draft_child(&connection.children, None, true, contents, ctx));
        match draft {
            Ok(draft) => {
                let spi_bytes = draft.spi_inbound.to_be_bytes();
                let (qesp, info) = (draft.qesp, draft.group.info());
                payloads.extend(draft.answer(&spi_bytes, qesp.as_ref(), info.as_deref()));
                self.respond(spi, request, &payloads, ctx);
                let agreement = Agreement {
                    draft: Draft::Child(draft),
                    initiated: false,
                    nonce_initiator: setup.nonce_initiator,
                    nonce_responder: setup.nonce_responder,
                    secrets: Vec::new(),
                    remaining: Default::default(),
                };
                self.complete(spi, agreement, &None, ctx);
            }
            Err((refusal, reason)) => {
                payloads.push(Payload::Notify(Notify::new(refusal.notify_type, &refusal.data)));
                self.respond(spi, request, &payloads, ctx);
                self.child_failed(None, reason, ctx);
            }
        }
    }
}

impl Session {
    /// Assigns addresses to the initiator where the connection does so, or says why there are none.
    fn assign(
        &self,
        connection: &Connection,
        name: &Identity,
        contents: &Contents<'_>,
        ctx: &mut Context<'_>,
    ) -> Result<Assigned, NotifyType> {
        let VirtualAddresses::Assign(pool) = &connection.virtual_addresses else {
            return Ok(Assigned::default());
        };
        let request = contents.configuration.as_ref();
        let request = request.filter(|one| one.configuration_type == ConfigurationType::Request);
        let wanted = request.map(requested).ok_or(NotifyType::FailedCpRequired)?;
        let owner = (&connection.name[..], name);
        ctx.leases.assign(pool, &wanted, self.id, owner).ok_or(NotifyType::InternalAddressFailure)
    }
}

impl Refusal {
    pub(crate) fn new(notify_type: NotifyType) -> Self {
        Self { notify_type, data: Vec::new() }
    }
}
