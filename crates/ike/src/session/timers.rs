//! What a session does by the clock: it sends requests again, forgets what has expired, and asks for
//! rekeying and signs of life.

use std::time::{Duration, Instant};

use super::{Child, ChildStatus, Context, Phase, Session, Task};
use crate::config::Config;
use crate::event::{Event, MessageReport, Reason};
use crate::exchange::Exchange;
use crate::path::Path;
use crate::sa::Status;

impl Session {
    /// Does what is due.
    pub(crate) fn poll(&mut self, ctx: &mut Context<'_>) {
        self.retransmit(ctx);
        self.expire(ctx);
        self.schedule(ctx);
        self.run_tasks(ctx);
    }

    /// Returns when something is due.
    pub(crate) fn next_deadline(&self, config: &Config) -> Option<Instant> {
        let established = self.phase == Phase::Established;
        let sas = self.sas.iter().flat_map(|sa| {
            let refused = sa.pending.as_ref().and_then(|pending| match &pending.exchange {
                Exchange::Init(init) => init.refusal.map(|(_, at)| at),
                _ => None,
            });
            let followup = sa.followup.as_ref().map(|followup| followup.expires_at);
            [sa.pending.as_ref().map(|one| one.next_at), refused, sa.expires_at, followup]
        });
        let children = self.children.iter().map(|child| match child.status {
            ChildStatus::Lingering(at) => Some(at),
            ChildStatus::Replaced(at) => Some(at).filter(|_| established),
            ChildStatus::Installed => child.rekey_at.filter(|_| established),
            _ => None,
        });
        let liveness = self.liveness(config).map(|after| self.heard_at + after);
        let delayed = self.delayed.iter().map(|(at, _)| Some(*at));
        let own = [self.rekey_at, liveness, self.reauth.at, self.reauth.ends_at];
        let own = own.map(|at| at.filter(|_| established));
        sas.chain(children).chain(delayed).chain(own).flatten().min()
    }

    fn liveness(&self, config: &Config) -> Option<Duration> {
        let own = self.connection.as_ref().and_then(|one| one.liveness);
        own.or(config.timing.liveness)
    }

    fn retransmit(&mut self, ctx: &mut Context<'_>) {
        let (mut dead, mut repeated) = (Vec::new(), Vec::new());
        for sa in &mut self.sas {
            let spi = sa.local_spi();
            let Some(pending) = &mut sa.pending else { continue };
            if let Exchange::Init(init) = &pending.exchange
                && let Some((notify_type, _)) = init.refusal.filter(|(_, at)| *at <= ctx.now)
            {
                dead.push((spi, Reason::Unauthenticated(notify_type)));
                continue;
            }
            match pending.retransmit(&ctx.config.timing, ctx.now) {
                Ok(datagrams) => {
                    let again = u64::from(datagrams.is_some());
                    self.retransmits += again;
                    if datagrams.is_some() {
                        repeated.push((spi, pending.exchange.exchange_type(), pending.message_id));
                    }
                    ctx.counters.retransmits += again;
                    let datagrams = datagrams.unwrap_or_default();
                    // who answers a cookie must be at the address that it was sent to (RFC 4555 §3.7)
                    let is_check = matches!(pending.exchange, Exchange::Routability(..));
                    if let Some(remote) = self.mobility.esp_from.filter(|_| !is_check) {
                        ctx.transmit(Path { remote, ..self.path }, datagrams.clone());
                    }
                    ctx.transmit(self.path, datagrams);
                }
                Err(transmissions) => dead.push((spi, Reason::Timeout(transmissions))),
            }
        }
        for (spi, exchange, message_id) in repeated {
            if let Some(header) = self.sa(spi).map(|sa| sa.header(exchange, false, message_id)) {
                self.report(MessageReport::sent(&header).again(), ctx);
            }
        }
        for (spi, reason) in dead {
            // nobody answers the deletion of an IKE SA that was replaced: the other one lives
            let replaced = spi != self.current && self.phase != Phase::Connecting;
            match self.sa(spi) {
                Some(sa) if replaced => {
                    sa.forget_exchanges(ctx);
                    sa.status = Status::Closed;
                    sa.expires_at = Some(ctx.now);
                    self.finish_closing(ctx);
                }
                _ => {
                    let closing = self.phase == Phase::Closing;
                    let reason = if closing { self.closes_for.clone() } else { reason };
                    self.close(reason, ctx);
                }
            }
        }
    }

    fn expire(&mut self, ctx: &mut Context<'_>) {
        let now = ctx.now;
        let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if self.phase == Phase::Connecting && self.sas.iter().any(|sa| is_due(sa.expires_at)) {
            self.phase = Phase::Closed;
            self.sas.clear();
            // of another nobody was told
            if let Some(reason) = self.failed.take() {
                let (session, remote_address) = (self.id, self.path.remote);
                ctx.events.push_back(Event::Closed { session, remote_address, reason });
            }
        }
        for mut sa in self.sas.extract_if(.., |sa| is_due(sa.expires_at)) {
            sa.forget_exchanges(ctx);
        }
        for sa in &mut self.sas {
            if let Some(given_up) = sa.followup.take_if(|followup| followup.expires_at <= now) {
                ctx.release(&given_up.agreement);
            }
        }
        let over = |child: &Child| matches!(child.status, ChildStatus::Lingering(at) if at <= now);
        for child in self.children.extract_if(.., |child| over(child)) {
            ctx.ids.release(child.spi_inbound);
            ctx.events.push_back(Event::Remove(child.id));
        }
    }

    /// Asks for what has become due: rekeying, a sign of life.
    fn schedule(&mut self, ctx: &mut Context<'_>) {
        if self.phase != Phase::Established {
            return;
        }
        self.schedule_reauthentication(ctx.now);
        if self.phase != Phase::Established {
            return;
        }
        let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= ctx.now);
        if is_due(self.rekey_at) {
            self.rekey_at = None;
            self.queue(Task::RekeyIke);
        }
        let (mut rekey, mut delete) = (Vec::new(), Vec::new());
        for child in &mut self.children {
            match child.status {
                ChildStatus::Installed if is_due(child.rekey_at) => {
                    child.rekey_at = None;
                    rekey.push(Task::RekeyChild(child.id));
                }
                // the peer does not have the new one yet: it is neither heard nor the old deleted
                ChildStatus::Replaced(at) if at <= ctx.now && child.sends => {
                    child.status = ChildStatus::Replaced(ctx.now + ctx.config.timing.half_open);
                }
                ChildStatus::Replaced(at) if at <= ctx.now => delete.push(child.id),
                _ => {}
            }
        }
        rekey.into_iter().for_each(|task| self.queue(task));
        delete.into_iter().for_each(|child| self.delete_child(child, ctx));
        self.queue_delayed(ctx.now);
        let liveness = self.liveness(ctx.config);
        if liveness.is_some_and(|after| self.heard_at + after <= ctx.now) {
            // asked again only after another silence
            self.heard_at = ctx.now;
            self.queue(Task::Liveness);
        }
    }
}
