//! Setting up an IKE SA as initiator: IKE_SA_INIT, IKE_INTERMEDIATE, IKE_AUTH.

use std::sync::Arc;
use std::time::Duration;

use super::proof::{Claim, Proof, our_hashes, peer_hashes};
use super::{Context, Path, Phase, PpkUse, Session, Setup, first_spis};
use crate::certificate::Authorities;
use crate::config::{Connection, PpkExchange};
use crate::contents::Contents;
use crate::crypto::{IkeKeys, KeyExchange, Method, Nonces, Spis, intermediate_mac};
use crate::event::{Event, MessageReport, Reason};
use crate::exchange::{ChildOffer, Exchange, Init};
use crate::identity::Identity;
use crate::nat::Nat;
use crate::proposal::{ChildProposal, IkeProposal};
use crate::sa::{IkeSa, Opened, Role, Status};
use crate::virtual_address::{Assigned, VirtualAddresses, configuration};
use crate::wire::{
    Authentication, CertificateEncoding, CertificateRequest, ConfigurationType, ExchangeType,
    Message, Nonce, Notify, NotifyType, Payload, SecurityAssociation,
};

/// How long a refusal that anybody could have sent is not believed.
const DOUBT: Duration = Duration::from_secs(3);
/// How often IKE_SA_INIT is started again: for a cookie, another key exchange, a new cookie.
const MAX_RESTARTS: u32 = 4;

impl Session {
    /// Starts to set up an IKE SA and sends the first message.
    pub(crate) fn initiate(
        connection: Arc<Connection>,
        path: Path,
        initial_contact: bool,
        ctx: &mut Context<'_>,
    ) -> Option<Self> {
        let method = *connection.ike.first()?.key_exchanges.first()?;
        let spis = first_spis(ctx.ike_spi());
        let sa = IkeSa::new(Role::Initiator, spis, Status::Setup);
        let mut session = Self::new(ctx.ids.session(), path, sa, ctx.now);
        session.connection = Some(connection);
        session.initial_contact = initial_contact;
        let nonce = ctx.nonce();
        session.send_init(method, nonce, Vec::new(), 0, ctx);
        Some(session)
    }

    fn send_init(
        &mut self,
        method: Method,
        nonce: Vec<u8>,
        cookie: Vec<u8>,
        restarts: u32,
        ctx: &mut Context<'_>,
    ) {
        let Some(connection) = self.connection.clone() else { return };
        let key_exchange = method.generate(ctx.random);
        let path = self.path;
        let [sa] = &mut self.sas[..] else { return };
        let addresses = ctx.nat_hashes(sa.spis, path);
        let mut payloads = Vec::new();
        if !cookie.is_empty() {
            // first, so that a responder under load finds it (RFC 7296 §2.6)
            payloads.push(Payload::Notify(Notify::new(NotifyType::Cookie, &cookie)));
        }
        payloads.extend([
            Payload::SecurityAssociation(SecurityAssociation {
                proposals: IkeProposal::emit(&connection.ike, &[]),
            }),
            Payload::KeyExchange(crate::wire::KeyExchange {
                method: method.id(),
                data: key_exchange.public(),
            }),
            Payload::Nonce(Nonce(&nonce)),
        ]);
        payloads.extend(addresses.payloads());
        payloads.push(Payload::Notify(Notify::new(NotifyType::FragmentationSupported, &[])));
        let hashes = our_hashes();
        if connection.auth.signs() {
            let notify = Notify::new(NotifyType::SignatureHashAlgorithms, &hashes);
            payloads.push(Payload::Notify(notify));
        }
        let ppk = connection.ppk.as_ref().map(|ppk| ppk.exchange);
        let ppk_in_intermediate = ppk.is_some_and(PpkExchange::permits_intermediate);
        let additional = connection.ike.iter().any(|offer| !offer.additional.is_empty());
        let supported = [
            (NotifyType::UsePpkInt, ppk_in_intermediate),
            (NotifyType::UsePpk, ppk.is_some_and(PpkExchange::permits_auth)),
            (NotifyType::IntermediateExchangeSupported, additional || ppk_in_intermediate),
        ];
        let supported = supported.into_iter().filter(|(_, said)| *said);
        payloads.extend(
            supported.map(|(notify_type, _)| Payload::Notify(Notify::new(notify_type, &[]))),
        );
        sa.restart();
        let header = sa.header(ExchangeType::IkeSaInit, false, 0);
        let message = Message { header, payloads }.emit();
        let init = Init { key_exchange, nonce, cookie, restarts, refusal: None };
        sa.wait(vec![message.clone()], Exchange::Init(Box::new(init)), &ctx.config.timing, ctx.now);
        self.report(MessageReport::sent(&header), ctx);
        ctx.transmit(path, vec![message]);
    }

    /// Takes the response to IKE_SA_INIT. Anybody can send one: what does not fit is ignored.
    pub(super) fn init_response(
        &mut self,
        raw: &[u8],
        message: &Message<'_>,
        ctx: &mut Context<'_>,
    ) {
        let Some(connection) = self.connection.clone() else { return };
        if self.phase == Phase::Connecting {
            let report = MessageReport::taken(&message.header);
            self.report(report.with_error_of(&message.payloads), ctx);
        }
        let [sa] = &mut self.sas[..] else { return };
        let Some(pending) = &mut sa.pending else { return };
        let request = pending.datagrams.first().cloned().unwrap_or_default();
        let Exchange::Init(init) = &mut pending.exchange else { return };
        if message.header.message_id != 0 || message.header.from_initiator {
            return;
        }
        let Ok(contents) = Contents::gather(message.payloads.clone()) else { return };
        if let Some(cookie) = contents.notify(NotifyType::Cookie) {
            let again = init.cookie != cookie.data && (1..=64).contains(&cookie.data.len());
            if again && init.restarts < MAX_RESTARTS {
                // the same nonce: the cookie is made of it
                let (nonce, cookie) = (init.nonce.clone(), cookie.data.to_vec());
                let (method, restarts) = (init.key_exchange.method(), init.restarts + 1);
                self.send_init(method, nonce, cookie, restarts, ctx);
            }
            return;
        }
        if let Some(notify) = contents.notify(NotifyType::InvalidKePayload) {
            let wanted = <[u8; 2]>::try_from(notify.data).ok();
            let wanted = wanted.and_then(|id| Method::from_id(u16::from_be_bytes(id).into()));
            let offered = |method: &Method| {
                connection.ike.iter().any(|offer| offer.key_exchanges.contains(method))
            };
            // one that we offered, and not the one that we sent
            let wanted =
                wanted.filter(|method| offered(method) && *method != init.key_exchange.method());
            if let Some(method) = wanted.filter(|_| init.restarts < MAX_RESTARTS) {
                let (nonce, cookie) = (init.nonce.clone(), init.cookie.clone());
                let restarts = init.restarts + 1;
                self.send_init(method, nonce, cookie, restarts, ctx);
            }
            return;
        }
        if let Some(error) = contents.error() {
            // a forged one must not end what would succeed (RFC 7296 §2.21.1)
            init.refusal.get_or_insert((error.notify_type, ctx.now + DOUBT));
            return;
        }
        let (Some(theirs), Some(key_exchange), Some(nonce)) =
            (&contents.sa, &contents.key_exchange, contents.nonce)
        else {
            return;
        };
        let Some(choice) = IkeProposal::accept(&connection.ike, &theirs.proposals) else { return };
        let spis = Spis { responder: message.header.spi_responder, ..sa.spis };
        let fits = choice.key_exchange == init.key_exchange.method()
            && key_exchange.method == choice.key_exchange.id()
            && spis.responder != 0
            && (choice.additional.is_empty()
                || contents.has(NotifyType::IntermediateExchangeSupported));
        if !fits {
            return;
        }
        let Some(Exchange::Init(init)) = sa.pending.take().map(|pending| pending.exchange) else {
            return;
        };
        let Ok(secret) = init.key_exchange.finish(key_exchange.data) else {
            return self.close(Reason::Protocol("an invalid public value"), ctx);
        };
        let nonces = Nonces { initiator: &init.nonce, responder: nonce };
        let keys = IkeKeys::initial(choice.suite, choice.prf, &secret, nonces, spis);
        sa.spis = spis;
        sa.choice = Some(choice.clone());
        sa.fragmentation = contents.has(NotifyType::FragmentationSupported);
        if !sa.set_keys(keys) {
            return self.close(Reason::NoProposal, ctx);
        }
        let pretended = ctx.config.force_encapsulation;
        self.nat = Nat::detect(&contents, spis, self.path.local, self.path.remote, pretended);
        // one that may move later may move behind a NAT (RFC 4555 §3.3)
        if self.nat.is_there() || connection.mobike {
            self.path.local.set_port(ctx.config.nat_port);
            // a peer on a port of its own choice stays there
            if self.path.remote.port() == 500 {
                self.path.remote.set_port(4500);
            }
        }
        // RFC 6023 §3: others take IKE_AUTH without a CHILD SA for malformed
        if self.first_child.is_none() && !contents.has(NotifyType::ChildlessSupported) {
            return self.close(Reason::NotChildless, ctx);
        }
        self.setup = Some(Box::new(Setup {
            choice,
            request,
            response: raw.to_vec(),
            nonce_initiator: init.nonce,
            nonce_responder: nonce.to_vec(),
            int_auth: Default::default(),
            exchanged: 0,
            hashes: peer_hashes(&contents),
            ppk: PpkUse::agreed(&connection, &contents),
            eap: None,
        }));
        self.heard_at = ctx.now;
        self.next_setup_request(ctx);
    }

    /// Sends the next IKE_INTERMEDIATE, or IKE_AUTH after the last.
    fn next_setup_request(&mut self, ctx: &mut Context<'_>) {
        let (Some(setup), Some(connection)) = (&self.setup, self.connection.clone()) else {
            return;
        };
        let [sa] = &self.sas[..] else { return };
        let method = setup.choice.additional.get(setup.exchanged).copied();
        let is_last = setup.exchanged + 1 >= setup.choice.additional.len();
        let ppk = connection.ppk.as_ref();
        let ppk = ppk.filter(|_| is_last && matches!(setup.ppk, PpkUse::InIntermediate));
        if method.is_none() && ppk.is_none() {
            return self.send_auth(ctx);
        }
        let key_exchange = method.map(|method| method.generate(ctx.random));
        let public = key_exchange.as_ref().map_or_else(Vec::new, |one| one.public().to_vec());
        let ppk = ppk.map(|ppk| ppk.identity_key(setup.choice.prf, setup.nonces(), sa.spis));
        let mut payloads = Vec::new();
        payloads.extend(method.map(|method| {
            Payload::KeyExchange(crate::wire::KeyExchange { method: method.id(), data: &public })
        }));
        payloads.extend(
            ppk.as_ref().map(|data| Payload::Notify(Notify::new(NotifyType::PpkIdentityKey, data))),
        );
        self.add_int_auth(0, &payloads);
        let exchange = Exchange::Intermediate(key_exchange.map(Box::new));
        self.send(self.current, ExchangeType::IkeIntermediate, &payloads, exchange, ctx);
    }

    /// Adds the MAC of an IKE_INTERMEDIATE request that we are about to send.
    fn add_int_auth(&mut self, side: usize, payloads: &[Payload<'_>]) {
        let (Some(setup), [sa]) = (&mut self.setup, &self.sas[..]) else { return };
        let Some(keys) = sa.keys() else { return };
        let mut inner = Vec::new();
        let first = crate::wire::emit_chain(payloads, &mut inner);
        let header = sa.header(ExchangeType::IkeIntermediate, false, sa.next_request());
        let previous = &setup.int_auth[side];
        let mac = intermediate_mac(keys.prf, &keys.sk_pi, previous, &header, (first, &inner));
        setup.int_auth[side] = mac.as_bytes().to_vec();
    }

    pub(super) fn intermediate_response(
        &mut self,
        key_exchange: Option<Box<KeyExchange>>,
        opened: &Opened,
        contents: &Contents<'_>,
        ctx: &mut Context<'_>,
    ) {
        if let Some(error) = contents.error() {
            return self.close(Reason::Refused(error.notify_type), ctx);
        }
        let (Some(setup), Some(connection)) = (&mut self.setup, self.connection.clone()) else {
            return;
        };
        let [sa] = &self.sas[..] else { return };
        let Some(keys) = sa.keys() else { return };
        let secret = key_exchange.map(|key_exchange| {
            let method = key_exchange.method().id();
            let theirs = contents.key_exchange.filter(|one| one.method == method);
            theirs.and_then(|one| key_exchange.finish(one.data).ok()).ok_or(())
        });
        let Ok(secret) = secret.transpose() else {
            return self.close(Reason::Protocol("an invalid public value"), ctx);
        };
        let inner = (opened.first, &opened.inner[..]);
        let previous = &setup.int_auth[1];
        let mac = intermediate_mac(keys.prf, &keys.sk_pr, previous, &opened.header, inner);
        setup.int_auth[1] = mac.as_bytes().to_vec();
        let done = setup.exchanged + usize::from(secret.is_some());
        let mut mixed = None;
        if matches!(setup.ppk, PpkUse::InIntermediate) && done == setup.choice.additional.len() {
            let is_taken = connection.ppk.as_ref().is_some_and(|ppk| ppk.is_named(contents));
            mixed = is_taken.then(|| connection.clone());
            if mixed.is_none() {
                // the responder does not have it; where it is required IKE_AUTH is not sent
                setup.ppk = PpkUse::None;
            }
        }
        self.renew_keys(secret.as_ref(), mixed, ctx);
        if self.phase == Phase::Connecting {
            self.next_setup_request(ctx);
        }
    }

    fn send_auth(&mut self, ctx: &mut Context<'_>) {
        let Some(connection) = self.connection.clone() else { return };
        let [sa] = &self.sas[..] else { return };
        let (Some(setup), Some(keys)) = (&self.setup, sa.keys()) else { return };
        let ppk = connection.ppk.as_ref().filter(|_| matches!(setup.ppk, PpkUse::InAuth));
        let has_ppk = ppk.is_some() || matches!(setup.ppk, PpkUse::Mixed(_));
        if !has_ppk && connection.ppk.as_ref().is_some_and(|ppk| ppk.is_required) {
            return self.close(Reason::NoPpk, ctx);
        }
        let mixed = ppk.map(|ppk| (ppk, keys.copy().with_ppk(&ppk.key)));
        let id = connection.local.body();
        let prove = |keys| {
            let message_id = sa.next_request();
            let proof = Proof { setup, keys, message_id, by: Role::Initiator };
            proof.make(&connection.auth.local, &id)
        };
        // for a responder that does not have the key (RFC 8784 §3)
        let without = mixed.as_ref().filter(|(ppk, _)| !ppk.is_required).map(|_| prove(keys));
        let made = prove(mixed.as_ref().map_or(keys, |(_, mixed)| mixed));
        let ((method, data), without) = match (made, without.transpose()) {
            (Ok(made), Ok(without)) => (made, without),
            (Err(reason), _) | (_, Err(reason)) => return self.close(reason, ctx),
        };
        let ppk_identity = mixed.as_ref().map(|(ppk, _)| ppk.identity());
        let remote = connection.remote.as_ref().map(Identity::body);
        let offer = self.first_child.take().map(|config| {
            let group = self.group_of(&config);
            ChildOffer {
                replaces: None,
                local: config.local.clone(),
                remote: config.remote.clone(),
                spi: ctx.child_spi(&config, group),
                config,
                group,
            }
        });
        let spi = offer.as_ref().map_or(0, |offer| offer.spi).to_be_bytes();
        let qesp = offer.as_ref().and_then(|offer| self.qesp(&offer.config));
        let info = offer.as_ref().and_then(|offer| offer.group.info());
        let proposals = offer.as_ref().map_or_else(Vec::new, |offer| {
            ChildProposal::without_key_exchange(&offer.config.proposals)
        });
        let (id_type, id_data) = (id[0].into(), &id[4..]);
        let mut payloads =
            vec![Payload::IdInitiator(crate::wire::Identification { id_type, data: id_data })];
        payloads.extend(connection.auth.local.certificates().map(Payload::Certificate));
        let requested = Authorities::request(connection.auth.remote.authorities().as_slice());
        if connection.auth.remote.authorities().is_some() {
            let encoding = CertificateEncoding::X509Signature;
            let request = CertificateRequest { encoding, authorities: &requested };
            payloads.push(Payload::CertificateRequest(request));
        }
        if self.initial_contact {
            payloads.push(Payload::Notify(Notify::new(NotifyType::InitialContact, &[])));
        }
        payloads.extend(remote.as_ref().map(|body| {
            let (id_type, data) = (body[0].into(), &body[4..]);
            Payload::IdResponder(crate::wire::Identification { id_type, data })
        }));
        payloads.push(Payload::Authentication(Authentication { method, data: &data }));
        let notify = |notify_type, data| Payload::Notify(Notify::new(notify_type, data));
        payloads.extend(ppk_identity.as_ref().map(|id| notify(NotifyType::PpkIdentity, id)));
        payloads.extend(without.as_ref().map(|(_, data)| notify(NotifyType::NoPpkAuth, data)));
        let asked = connection.virtual_addresses.request(&self.reauth.had);
        payloads.extend(asked.as_ref().map(|attributes| {
            Payload::Configuration(configuration(ConfigurationType::Request, attributes))
        }));
        if connection.mobike {
            payloads.push(Payload::Notify(Notify::new(NotifyType::MobikeSupported, &[])));
        }
        if let Some(offer) = &offer {
            payloads.extend(offer.notifies(qesp.as_ref(), info.as_deref()));
            payloads.extend(offer.payloads(ChildProposal::emit(&proposals, &spi)));
        }
        self.send(self.current, ExchangeType::IkeAuth, &payloads, Exchange::Auth(offer), ctx);
    }

    pub(super) fn auth_response(
        &mut self,
        spi: u64,
        offer: Option<ChildOffer>,
        contents: &Contents<'_>,
        ctx: &mut Context<'_>,
    ) {
        let reserved = offer.as_ref().map(|offer| offer.spi);
        self.authenticate(spi, offer, contents, ctx);
        if let (Phase::Closed, Some(reserved)) = (self.phase, reserved) {
            ctx.ids.release(reserved);
        }
    }

    /// Checks the proof of the responder, and takes the CHILD SA that it made.
    fn authenticate(
        &mut self,
        spi: u64,
        offer: Option<ChildOffer>,
        contents: &Contents<'_>,
        ctx: &mut Context<'_>,
    ) {
        let Some(connection) = self.connection.clone() else { return };
        let Some(setup) = self.setup.take() else { return };
        let (Some(id), Some(auth)) = (&contents.id_responder, &contents.authentication) else {
            let error = contents.error().map(|error| Reason::Refused(error.notify_type));
            return self
                .close(error.unwrap_or(Reason::Protocol("IKE_AUTH without IDr or AUTH")), ctx);
        };
        let name = Identity::from_payload(id);
        let expected =
            |name: &Identity| connection.remote.as_ref().is_none_or(|remote| remote.matches(name));
        let Some(name) = name.filter(expected) else {
            let shown = Identity::from_payload(id).map_or_else(String::new, |id| id.to_string());
            return self.close(Reason::Identity(shown), ctx);
        };
        let Some(sa) = self.sa(spi) else { return };
        let Some(keys) = sa.keys() else { return };
        let message_id = sa.next_request().saturating_sub(1);
        let claim = Claim { id, auth, certificates: &contents.certificates };
        let proved = connection.mixed_keys(keys, contents, &setup.ppk, false).and_then(|mixed| {
            let keys = mixed.as_ref().map_or(keys, |(_, keys)| keys);
            let proof = Proof { setup: &setup, keys, message_id, by: Role::Responder };
            proof.check(&connection.auth.remote, &claim, ctx.time)?;
            Ok(mixed.map(|(ppk, _)| ppk))
        });
        match proved {
            Ok(None) => {}
            Ok(Some(ppk)) => self.mix(spi, ppk),
            Err(reason) => return self.close(reason, ctx),
        }
        let reply = contents.configuration.as_ref();
        let reply = reply.filter(|one| one.configuration_type == ConfigurationType::Reply);
        let asked = matches!(connection.virtual_addresses, VirtualAddresses::Request { .. });
        if let Some(reply) = reply.filter(|_| asked) {
            self.assigned = Assigned::from_reply(reply);
        }
        self.mobility.is_on = connection.mobike && contents.has(NotifyType::MobikeSupported);
        self.establish(name, &setup, ctx);
        self.limit_authentication(contents, ctx);
        let Some(offer) = offer else { return };
        let Some(theirs) = &contents.sa else {
            ctx.ids.release(offer.spi);
            let reason =
                contents.error().map_or(Reason::Protocol("IKE_AUTH without an SA"), |error| {
                    Reason::Refused(error.notify_type)
                });
            return self.child_failed(Some(offer.config.name.clone()), reason, ctx);
        };
        let offers = ChildProposal::without_key_exchange(&offer.config.proposals);
        let chosen = ChildProposal::accept(&offers, &theirs.proposals);
        match self.accept_child(offer, chosen, contents) {
            Ok(draft) => {
                let agreement = crate::exchange::Agreement {
                    draft: crate::exchange::Draft::Child(draft),
                    initiated: true,
                    nonce_initiator: setup.nonce_initiator,
                    nonce_responder: setup.nonce_responder,
                    secrets: Vec::new(),
                    remaining: Default::default(),
                };
                self.complete(spi, agreement, &None, ctx);
            }
            // the peer has it: it must be deleted
            Err((name, reason, spi)) => {
                ctx.ids.release(spi);
                self.queue(super::Task::DeleteUnused(spi));
                self.child_failed(Some(name), reason, ctx);
            }
        }
    }

    /// Turns to normal work after IKE_AUTH.
    pub(super) fn establish(&mut self, remote: Identity, setup: &Setup, ctx: &mut Context<'_>) {
        self.phase = Phase::Established;
        self.mobility.told = Some(self.path);
        self.established_at = Some(ctx.now);
        self.remote = Some(remote.clone());
        self.rekey_at = ctx.age(self.connection.as_ref().and_then(|one| one.rekey));
        for sa in &mut self.sas {
            sa.status = Status::Active;
            sa.expires_at = None;
        }
        self.plan_reauthentication(ctx);
        let connection = self.connection.as_ref().map_or_else(String::new, |one| one.name.clone());
        ctx.events.push_back(Event::Established {
            session: self.id,
            connection,
            remote,
            local_address: self.path.local,
            remote_address: self.path.remote,
            post_quantum: setup.choice.is_post_quantum(),
            ppk: self.ppk,
            assigned: self.assigned.clone(),
        });
    }

    pub(super) fn child_failed(&self, name: Option<String>, reason: Reason, ctx: &mut Context<'_>) {
        ctx.events.push_back(Event::ChildFailed { session: self.id, name, reason });
    }
}

impl Setup {
    pub(super) fn nonces(&self) -> Nonces<'_> {
        Nonces { initiator: &self.nonce_initiator, responder: &self.nonce_responder }
    }
}
