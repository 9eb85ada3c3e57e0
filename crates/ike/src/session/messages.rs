//! Takes the messages of a session's IKE SAs, each to what answers it, and sends requests and
//! responses.

use super::{Context, Phase, Session};
use crate::contents::Contents;
use crate::event::{MessageReport, Reason};
use crate::exchange::Exchange;
use crate::sa::{IkeSa, Opened, Received, Role, Status};
use crate::wire::{
    Error as WireError, ExchangeType, Header, Message, Notify, NotifyType, Payload, parse_decrypted,
};

impl Session {
    /// Takes a message for one of its IKE SAs.
    pub(crate) fn handle(
        &mut self,
        spi: u64,
        raw: &[u8],
        message: &Message<'_>,
        ctx: &mut Context<'_>,
    ) {
        let Some(sa) = self.sa(spi) else { return };
        if message.header.exchange == ExchangeType::IkeSaInit {
            if message.header.response {
                self.init_response(raw, message, ctx);
            }
            return;
        }
        // the responder has us in already: it asks again, and then the answer to IKE_AUTH is here
        let is_early = sa.status == Status::Setup && sa.role == Role::Initiator;
        if is_early && !message.header.response {
            return;
        }
        match sa.receive(raw, message) {
            None => {}
            Some(Received::Retransmission(datagrams)) => {
                let request = MessageReport::taken(&message.header).again();
                self.report(request, ctx);
                self.report(MessageReport { is_sent: true, response: true, ..request }, ctx);
                ctx.transmit(ctx.path, datagrams);
            }
            Some(Received::Message(opened)) => {
                self.heard_at = ctx.now;
                if !opened.header.response {
                    self.follow(ctx.path, ctx);
                }
                match opened.header.response {
                    true => self.response(spi, &opened, ctx),
                    false => self.request(spi, &opened, ctx),
                }
            }
        }
        self.close_successor();
        self.run_tasks(ctx);
    }

    /// Removes the IKE SA, too, that replaced the one that is being removed.
    fn close_successor(&mut self) {
        let active = self.sas.iter().filter(|sa| sa.status == Status::Active);
        let active: Vec<_> = active.map(IkeSa::local_spi).collect();
        if self.phase == Phase::Closing {
            active.into_iter().for_each(|spi| self.delete_ike(spi));
        }
    }

    fn request(&mut self, spi: u64, opened: &Opened, ctx: &mut Context<'_>) {
        self.report(MessageReport::taken(&opened.header), ctx);
        let contents = match parse_decrypted(opened.first, &opened.inner) {
            Ok(payloads) => Contents::gather(payloads).ok(),
            // RFC 7296 §2.5: the message is rejected, the IKE SA is unharmed
            Err(WireError::UnknownCritical(payload_type)) => {
                let data = [payload_type];
                let notify = Notify::new(NotifyType::UnsupportedCriticalPayload, &data);
                return self.respond(spi, &opened.header, &[Payload::Notify(notify)], ctx);
            }
            Err(_) => None,
        };
        let Some(contents) = contents else {
            return self.violated(spi, &opened.header, "a malformed request", ctx);
        };
        let Some(status) = self.sa(spi).map(|sa| sa.status) else { return };
        match (opened.header.exchange, status) {
            (ExchangeType::IkeIntermediate, Status::Setup) => {
                self.intermediate_request(spi, opened, &contents, ctx);
            }
            (ExchangeType::IkeAuth, Status::Setup) => {
                self.auth_request(spi, opened, &contents, ctx);
            }
            // both ends delete it, or one of several: it is gone
            (ExchangeType::Informational, Status::Closed) => {
                self.respond(spi, &opened.header, &[], ctx);
            }
            (_, Status::Setup | Status::Closed) => {}
            (ExchangeType::CreateChildSa, _) => self.create_request(spi, opened, &contents, ctx),
            (ExchangeType::IkeFollowupKe, _) => self.followup_request(spi, opened, &contents, ctx),
            (ExchangeType::Informational, _) => {
                self.informational_request(spi, opened, &contents, ctx);
            }
            // an exchange that is over, or unknown
            _ => self.refuse(spi, &opened.header, NotifyType::InvalidSyntax, ctx),
        }
    }

    fn response(&mut self, spi: u64, opened: &Opened, ctx: &mut Context<'_>) {
        let Some(pending) = self.sa(spi).and_then(|sa| sa.pending.take()) else { return };
        let payloads = parse_decrypted(opened.first, &opened.inner).ok();
        let report = MessageReport::taken(&opened.header);
        self.report(report.with_error_of(payloads.as_deref().unwrap_or_default()), ctx);
        let Some(contents) = payloads.and_then(|all| Contents::gather(all).ok()) else {
            ctx.forget(&pending.exchange);
            return self.close(Reason::Protocol("a malformed response"), ctx);
        };
        match pending.exchange {
            Exchange::Init(_) => {}
            Exchange::Intermediate(key_exchange) => {
                self.intermediate_response(key_exchange, opened, &contents, ctx);
            }
            Exchange::Auth(offer) => self.auth_response(spi, offer, &contents, ctx),
            Exchange::Create(create) => self.create_response(spi, *create, &contents, ctx),
            Exchange::Followup(followup) => {
                self.followup_response(spi, *followup, &contents, ctx);
            }
            Exchange::DeleteChild(child) => self.child_deleted(child, ctx),
            Exchange::DeleteIke => self.ike_deleted(spi, ctx),
            Exchange::Liveness => self.liveness_response(spi, &contents),
            Exchange::DeleteUnused => {}
            Exchange::UpdateAddresses(path) => self.update_response(spi, path, &contents, ctx),
            Exchange::Routability(path, cookie) => {
                self.routability_response((path, &cookie), &contents, ctx);
            }
        }
    }

    /// Sends a request on one of the IKE SAs.
    pub(super) fn send(
        &mut self,
        spi: u64,
        exchange_type: ExchangeType,
        payloads: &[Payload<'_>],
        exchange: Exchange,
        ctx: &mut Context<'_>,
    ) {
        let path = self.path;
        let Some(sa) = self.sa(spi) else { return };
        let datagrams = sa
            .request(exchange_type, payloads, exchange, ctx.config, ctx.now, ctx.random)
            .map(|pending| (pending.message_id, pending.datagrams.clone()));
        if let Some((message_id, datagrams)) = datagrams {
            let header = sa.header(exchange_type, false, message_id);
            self.report(MessageReport::sent(&header), ctx);
            ctx.transmit(path, datagrams);
        }
    }

    pub(super) fn respond(
        &mut self,
        spi: u64,
        request: &Header,
        payloads: &[Payload<'_>],
        ctx: &mut Context<'_>,
    ) {
        let Some(sa) = self.sa(spi) else { return };
        if let Some((header, datagrams)) = sa.respond(request, payloads, ctx.config, ctx.random) {
            self.report(MessageReport::sent(&header).with_error_of(payloads), ctx);
            ctx.transmit(ctx.path, datagrams);
        }
    }

    /// Answers with an error alone.
    pub(super) fn refuse(
        &mut self,
        spi: u64,
        request: &Header,
        notify_type: NotifyType,
        ctx: &mut Context<'_>,
    ) {
        let notify = Payload::Notify(Notify::new(notify_type, &[]));
        self.respond(spi, request, &[notify], ctx);
    }

    /// Answers a malformed request; the IKE SA ends (RFC 7296 §2.21.3).
    pub(super) fn violated(
        &mut self,
        spi: u64,
        request: &Header,
        what: &'static str,
        ctx: &mut Context<'_>,
    ) {
        self.refuse(spi, request, NotifyType::InvalidSyntax, ctx);
        // it ends before the proof, and is kept for a while to answer retransmissions
        if self.is_half_open() {
            self.fail(Reason::Protocol(what), ctx);
        }
        self.close(Reason::Protocol(what), ctx);
    }
}
