//! Peers that change their address: an initiator that says so (MOBIKE, RFC 4555), and one behind a NAT
//! that gives it another mapping.

use std::net::SocketAddr;

use super::{Context, Path, Phase, Session, Task};
use crate::contents::Contents;
use crate::event::{Event, Reason};
use crate::exchange::Exchange;
use crate::nat::{Hashes, Nat};
use crate::wire::{ExchangeType, Notify, NotifyType, Payload};

/// What MOBIKE keeps of a session.
#[derive(Debug, Default)]
pub(super) struct Mobility {
    /// Both ends support it.
    pub(super) is_on: bool,
    /// The address at which the responder saw us last, as it says it.
    seen_at: Option<Vec<u8>>,
    /// The addresses that the caller was told.
    pub(super) told: Option<Path>,
    /// Where the peer's ESP arrives from, if that is another address than it has told us.
    pub(super) esp_from: Option<SocketAddr>,
}

impl Mobility {
    /// Forgets how the responder saw us: another IKE SA says it with other SPIs.
    pub(super) fn forget(&mut self) {
        self.seen_at = None;
    }
}

impl Session {
    /// Checks whether we may go on from another address. It is the initiator that decides.
    pub(crate) fn can_move(&self) -> bool {
        self.mobility.is_on && !self.responds
    }

    /// Goes on between other addresses. What waits for an answer is sent again at once.
    pub(crate) fn move_to(&mut self, path: Path, ctx: &mut Context<'_>) {
        self.path = path;
        self.send_again(ctx);
        self.moved(ctx);
        self.queue(Task::UpdateAddresses);
    }

    fn send_again(&mut self, ctx: &mut Context<'_>) {
        for pending in self.sas.iter_mut().filter_map(|sa| sa.pending.as_mut()) {
            pending.start_again(&ctx.config.timing, ctx.now);
        }
    }

    /// Follows a peer behind a NAT to its new mapping (RFC 7296 §2.23). One that has MOBIKE says so
    /// itself.
    pub(super) fn follow(&mut self, path: Path, ctx: &mut Context<'_>) {
        if path == self.path || !self.is_behind_nat() || self.mobility.is_on {
            return;
        }
        self.path = path;
        if self.phase == Phase::Established {
            self.moved(ctx);
        }
    }

    /// ESP arrives from another address of a peer behind a NAT. One that has MOBIKE may not know of its
    /// new mapping: until it says another address, what it does not answer is sent to the mapping, too,
    /// which changes nothing for it (RFC 4555 §3.8).
    pub(crate) fn esp_moved(&mut self, remote: SocketAddr, ctx: &mut Context<'_>) {
        if !self.is_behind_nat() {
            return;
        }
        self.send_again(ctx);
        self.follow(Path { remote, ..self.path }, ctx);
        self.mobility.esp_from = Some(remote).filter(|at| *at != self.path.remote);
    }

    /// Checks whether the peer is behind a NAT, and we are not.
    fn is_behind_nat(&self) -> bool {
        self.nat.remote && !self.nat.local
    }

    pub(super) fn send_update(&mut self, ctx: &mut Context<'_>) {
        let Some(hashes) = self.nat_hashes(self.current, self.path, ctx) else { return };
        let [source, destination] = hashes.payloads();
        let update = Payload::Notify(Notify::new(NotifyType::UpdateSaAddresses, &[]));
        let payloads = [update, source, destination];
        let exchange = Exchange::UpdateAddresses(self.path);
        self.send(self.current, ExchangeType::Informational, &payloads, exchange, ctx);
    }

    /// Takes the answer to our new address, on the IKE SA that has this SPI.
    pub(super) fn update_response(
        &mut self,
        spi: u64,
        sent_from: Path,
        contents: &Contents<'_>,
        ctx: &mut Context<'_>,
    ) {
        // we have moved on meanwhile, and ask again
        if sent_from != self.path {
            return;
        }
        if let Some(error) = contents.error() {
            return self.close(Reason::Refused(error.notify_type), ctx);
        }
        // of an IKE SA that was replaced they say nothing to the next signs of life
        self.mobility.seen_at = seen_at(contents).filter(|_| spi == self.current);
        self.detect_nat(spi, contents, self.path, ctx);
    }

    /// Asks for a sign of life, and how the responder sees us.
    pub(super) fn send_liveness(&mut self, ctx: &mut Context<'_>) {
        let hashes =
            if self.can_move() { self.nat_hashes(self.current, self.path, ctx) } else { None };
        let payloads = hashes.as_ref().map(Hashes::payloads);
        let payloads = payloads.as_ref().map_or(&[][..], |payloads| &payloads[..]);
        let exchange = Exchange::Liveness;
        self.send(self.current, ExchangeType::Informational, payloads, exchange, ctx);
    }

    /// Takes a sign of life on the IKE SA that has this SPI. A NAT that gave us another mapping shows in
    /// it (RFC 4555 §3.8).
    pub(super) fn liveness_response(&mut self, spi: u64, contents: &Contents<'_>) {
        let seen = seen_at(contents);
        if !self.can_move() || spi != self.current || seen.is_none() {
            return;
        }
        let before = std::mem::replace(&mut self.mobility.seen_at, seen);
        if before.is_some() && before != self.mobility.seen_at {
            self.queue(Task::UpdateAddresses);
        }
    }

    /// Returns what a response to INFORMATIONAL says of addresses, and follows the initiator to new
    /// ones.
    pub(super) fn update_request(
        &mut self,
        spi: u64,
        contents: &Contents<'_>,
        ctx: &mut Context<'_>,
    ) -> Option<Result<Hashes, NotifyType>> {
        if !self.mobility.is_on || !self.responds {
            return None;
        }
        if contents.has(NotifyType::UpdateSaAddresses) {
            if let Some(expected) = contents.notify(NotifyType::NoNatsAllowed)
                && expected.data != no_nats_data(ctx.path)
            {
                return Some(Err(NotifyType::UnexpectedNatDetected));
            }
            self.path = ctx.path;
            self.mobility.esp_from = None;
            self.detect_nat(spi, contents, ctx.path, ctx);
            match self.mobility.told {
                Some(told) if told == ctx.path => {}
                Some(told) if told.remote.ip() == ctx.path.remote.ip() => self.moved(ctx),
                // packets go there when it has answered from there (RFC 4555 §3.7)
                _ => self.queue(Task::CheckRoutability),
            }
        }
        // who forbids NATs, or does not know of them, does not ask (RFC 4555 §3.9)
        let asks = contents.has(NotifyType::NatDetectionDestinationIp);
        if asks { self.nat_hashes(spi, ctx.path, ctx).map(Ok) } else { None }
    }

    pub(super) fn send_routability_check(&mut self, ctx: &mut Context<'_>) {
        let cookie = ctx.bytes::<16>().to_vec();
        let check = Payload::Notify(Notify::new(NotifyType::Cookie2, &cookie));
        let exchange = Exchange::Routability(self.path, cookie.clone());
        self.send(self.current, ExchangeType::Informational, &[check], exchange, ctx);
    }

    pub(super) fn routability_response(
        &mut self,
        (checked, cookie): (Path, &[u8]),
        contents: &Contents<'_>,
        ctx: &mut Context<'_>,
    ) {
        match contents.notify(NotifyType::Cookie2) {
            Some(theirs) if theirs.data == cookie => match checked == self.path {
                true => self.moved(ctx),
                false => self.queue(Task::CheckRoutability),
            },
            _ => self.close(Reason::Protocol("another COOKIE2 than was sent"), ctx),
        }
    }

    /// Tells the caller between which addresses packets go now.
    pub(super) fn moved(&mut self, ctx: &mut Context<'_>) {
        self.mobility.told = Some(self.path);
        self.mobility.esp_from = None;
        ctx.events.push_back(Event::Moved {
            session: self.id,
            local_address: self.path.local,
            remote_address: self.path.remote,
            in_udp: self.nat.is_there(),
        });
    }

    /// Finds out whether there is a NAT on the new path; then ESP goes in UDP. The hashes are of the
    /// SPIs of the message, on the IKE SA that has `spi`: it may have been rekeyed meanwhile.
    fn detect_nat(&mut self, spi: u64, contents: &Contents<'_>, path: Path, ctx: &mut Context<'_>) {
        let Some(spis) = self.sa(spi).map(|sa| sa.spis) else { return };
        let pretended = ctx.config.force_encapsulation;
        let nat = Nat::detect(contents, spis, path.local, path.remote, pretended);
        let was_there = std::mem::replace(&mut self.nat, nat).is_there();
        if was_there != nat.is_there() && !self.responds {
            self.moved(ctx);
        }
    }

    fn nat_hashes(&self, spi: u64, path: Path, ctx: &mut Context<'_>) -> Option<Hashes> {
        let sa = self.sas.iter().find(|sa| sa.local_spi() == spi)?;
        Some(ctx.nat_hashes(sa.spis, path))
    }
}

/// Returns the address at which the sender saw us.
fn seen_at(contents: &Contents<'_>) -> Option<Vec<u8>> {
    contents.notify(NotifyType::NatDetectionDestinationIp).map(|notify| notify.data.to_vec())
}

/// Returns the data of NO_NATS_ALLOWED for these addresses, as their sender sees them (RFC 4555
/// §4.2.6).
fn no_nats_data(path: Path) -> Vec<u8> {
    use std::net::IpAddr;
    let octets = |address: IpAddr| match address {
        IpAddr::V4(one) => one.octets().to_vec(),
        IpAddr::V6(one) => one.octets().to_vec(),
    };
    let (from, to) = (path.remote, path.local);
    [
        octets(from.ip()),
        octets(to.ip()),
        from.port().to_be_bytes().to_vec(),
        to.port().to_be_bytes().to_vec(),
    ]
    .concat()
}
