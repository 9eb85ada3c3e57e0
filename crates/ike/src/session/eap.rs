//! IKE_AUTH with EAP as responder (RFC 7296 §2.16): our certificate first, then EAP requests and
//! responses, at last AUTH of both with the key that EAP made.

use std::sync::Arc;

use headroom_suite::Key;

use super::proof::Proof;
use super::{Context, PpkUse, Session, Setup};
use crate::config::{Connection, LocalAuth, RemoteAuth};
use crate::contents::Contents;
use crate::eap::{Authenticator, EapError, Step};
use crate::event::Reason;
use crate::identity::Identity;
use crate::proposal::IkeProposal;
use crate::sa::{Opened, Role, same_mac};
use crate::wire::{
    AuthMethod, Authentication, Eap, EapCode, Identification, Payload, PayloadType, parse_decrypted,
};

/// An initiator that is being asked.
#[derive(Debug)]
pub(crate) struct Questioned {
    connection: Arc<Connection>,
    authenticator: Authenticator,
    /// The key that EAP made, and the user's name.
    proved: Option<(Key, Identity)>,
    /// Its first request: its ID, and the CHILD SA and addresses that it wants.
    first: PayloadType,
    inner: Vec<u8>,
    /// Of the first request: IntAuth has it (RFC 9242 §3.3.2).
    message_id: u32,
}

impl Session {
    /// Answers a request without AUTH: it asks for EAP.
    pub(super) fn start_eap(
        &mut self,
        spi: u64,
        opened: &Opened,
        contents: &Contents<'_>,
        mut setup: Box<Setup>,
        ctx: &mut Context<'_>,
    ) {
        let header = &opened.header;
        let us = contents.id_responder.as_ref().and_then(Identity::from_payload);
        let from = ctx.path.remote.ip();
        let fits = |one: &&Arc<Connection>| {
            // who has a shared key of several users could else be us (RFC 7296 §2.16)
            matches!(one.auth.local, LocalAuth::Certificate(_))
                && matches!(one.auth.remote, RemoteAuth::Eap(_))
                && one.ppk.as_ref().is_none_or(|ppk| !ppk.is_required)
                && !matches!(setup.ppk, PpkUse::Mixed(_))
                && one.accepts(from)
                && us.as_ref().is_none_or(|us| one.local.matches(us))
                && IkeProposal::permit(&one.ike, &setup.choice)
        };
        let connection = ctx.config.connections.iter().find(fits).cloned();
        let started = connection.and_then(|connection| match &connection.auth.remote {
            RemoteAuth::Eap(methods) => {
                let (authenticator, data) = Authenticator::start(methods, ctx.random)?;
                Some((connection.clone(), authenticator, data))
            }
            _ => None,
        });
        let Some((connection, authenticator, data)) = started else {
            let reason = Reason::Identity("one that wants EAP".to_owned());
            return self.unproved(spi, header, reason, ctx);
        };
        let Some(keys) = self.sa(spi).and_then(|sa| sa.keys()) else { return };
        let message_id = header.message_id;
        let proof = Proof { setup: &setup, keys, message_id, by: Role::Responder };
        let own = connection.local.body();
        let (method, signature) = match proof.make(&connection.auth.local, &own) {
            Ok(made) => made,
            Err(reason) => return self.unproved(spi, header, reason, ctx),
        };
        let (id_type, id_data) = (own[0].into(), &own[4..]);
        let mut payloads = vec![Payload::IdResponder(Identification { id_type, data: id_data })];
        payloads.extend(connection.auth.local.certificates().map(Payload::Certificate));
        payloads.push(Payload::Authentication(Authentication { method, data: &signature }));
        payloads.push(packet(EapCode::Request, authenticator.identifier(), &data));
        self.respond(spi, header, &payloads, ctx);
        setup.eap = Some(Box::new(Questioned {
            connection: connection.clone(),
            authenticator,
            proved: None,
            first: opened.first,
            inner: opened.inner.clone(),
            message_id,
        }));
        self.setup = Some(setup);
    }

    /// Takes the next request: an EAP response, or AUTH at the end.
    pub(super) fn eap_request(
        &mut self,
        spi: u64,
        opened: &Opened,
        contents: &Contents<'_>,
        (mut setup, mut questioned): (Box<Setup>, Box<Questioned>),
        ctx: &mut Context<'_>,
    ) {
        let header = &opened.header;
        if questioned.proved.is_some() {
            return self.finish_eap(spi, opened, contents, (setup, &questioned), ctx);
        }
        let Some(response) = &contents.eap else {
            return self.violated(spi, header, "IKE_AUTH without an EAP response", ctx);
        };
        let authenticator = &mut questioned.authenticator;
        let step = match authenticator.handle(response, ctx.random, ctx.time) {
            Step::Success { msk, names } => {
                let remote = questioned.connection.remote.as_ref();
                let expected = |one: &&Identity| remote.is_none_or(|remote| remote.matches(one));
                match names.iter().find(expected) {
                    Some(name) => {
                        questioned.proved = Some((msk, name.clone()));
                        Ok((EapCode::Success, Vec::new()))
                    }
                    None => {
                        let name = names.first().map_or_else(String::new, Identity::to_string);
                        Err(EapError::Name(name))
                    }
                }
            }
            Step::Request(data) => Ok((EapCode::Request, data)),
            Step::Failure(error) => Err(error),
        };
        let identifier = questioned.authenticator.identifier();
        if let Some(error) = questioned.authenticator.refusal() {
            self.fail(Reason::Eap(error), ctx);
        }
        match step {
            Ok((code, data)) => {
                self.respond(spi, header, &[packet(code, identifier, &data)], ctx);
                setup.eap = Some(questioned);
                self.setup = Some(setup);
            }
            Err(error) => {
                self.respond(spi, header, &[packet(EapCode::Failure, identifier, &[])], ctx);
                self.close(Reason::Eap(error), ctx);
            }
        }
    }

    /// Checks AUTH with the key that EAP made, and answers with ours.
    fn finish_eap(
        &mut self,
        spi: u64,
        opened: &Opened,
        contents: &Contents<'_>,
        (setup, questioned): (Box<Setup>, &Questioned),
        ctx: &mut Context<'_>,
    ) {
        let header = &opened.header;
        let first = parse_decrypted(questioned.first, &questioned.inner).ok();
        let first = first.and_then(|payloads| Contents::gather(payloads).ok());
        let Some(keys) = self.sa(spi).and_then(|sa| sa.keys()) else { return };
        let (Some(first), Some((msk, name))) = (first, &questioned.proved) else { return };
        let (Some(id), Some(auth)) = (&first.id_initiator, &contents.authentication) else {
            return self.violated(spi, header, "IKE_AUTH without AUTH after EAP", ctx);
        };
        let proof = |by| Proof { setup: &setup, keys, message_id: questioned.message_id, by };
        let expected = proof(Role::Initiator).mac(msk, &id.body());
        let fits = auth.method == AuthMethod::SharedKey && same_mac(expected.as_bytes(), auth.data);
        let connection = &questioned.connection;
        let ours = proof(Role::Responder).mac(msk, &connection.local.body());
        if !fits {
            return self.unproved(spi, header, Reason::Authentication(name.to_string()), ctx);
        }
        let (method, data) = (AuthMethod::SharedKey, ours.as_bytes());
        let payloads = vec![Payload::Authentication(Authentication { method, data })];
        let who = (connection, name.clone());
        self.admit((spi, header), who, *setup, &first, payloads, ctx);
    }
}

fn packet(code: EapCode, identifier: u8, data: &[u8]) -> Payload<'_> {
    Payload::Eap(Eap { code, identifier, data })
}
