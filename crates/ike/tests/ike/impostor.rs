//! A peer that is authenticated and hostile, or broken: it has the keys of a host and sends in its
//! name what it likes.

use headroom_ike::Transmit;
use headroom_ike::crypto::{Protector, Sealer, SystemRandom};
use headroom_ike::wire::{
    ExchangeType, Header, Message, NotifyType, Payload, PayloadType, emit_chain, parse_decrypted,
};
use headroom_suite::Key;

use crate::world::{A, World};

pub(crate) struct Impostor {
    host: usize,
    sealer: Sealer,
    opener: Protector,
    header: Header,
    path: Transmit,
}

/// The decrypted payloads of what the other host answered.
#[derive(Debug)]
pub(crate) struct Answer {
    first: PayloadType,
    inner: Vec<u8>,
}

impl Answer {
    pub(crate) fn payloads(&self) -> Vec<Payload<'_>> {
        parse_decrypted(self.first, &self.inner).expect("well-formed payloads")
    }

    pub(crate) fn notifies(&self) -> Vec<NotifyType> {
        let notify = |payload: &Payload<'_>| match payload {
            Payload::Notify(notify) => Some(notify.notify_type),
            _ => None,
        };
        self.payloads().iter().filter_map(notify).collect()
    }
}

impl Impostor {
    /// Takes the place of a host in its newest IKE SA, which A made.
    pub(crate) fn of(world: &World, host: usize) -> Self {
        let (spis, keys) = world.hosts[host].keys.last().expect("an IKE SA");
        let copy = |key: &Key| Key::from_bytes(key.as_bytes());
        let protector = |key: &Key, mac_key: &Key| {
            Protector::new(keys.suite, &copy(key), &copy(mac_key)).expect("keys of the suite")
        };
        let initiator = protector(&keys.sk_ei, &keys.sk_ai);
        let responder = protector(&keys.sk_er, &keys.sk_ar);
        let (own, other) = if host == A { (initiator, responder) } else { (responder, initiator) };
        let header = Header {
            spi_initiator: spis.initiator,
            spi_responder: spis.responder,
            exchange: ExchangeType::Informational,
            from_initiator: host == A,
            response: false,
            message_id: world.hosts[host].next_request,
        };
        let [from, to] = [host, 1 - host].map(|host| world.hosts[host].address);
        let path = Transmit { from, to, datagram: Vec::new() };
        Self { host, sealer: Sealer::new(own), opener: other, header, path }
    }

    /// Changes the ID of the next request.
    pub(crate) fn next_id(&mut self, change: impl Fn(u32) -> u32) {
        self.header.message_id = change(self.header.message_id);
    }

    /// Seals a request, in fragments if it is longer than `max`.
    pub(crate) fn seal(
        &mut self,
        exchange: ExchangeType,
        (first, inner): (PayloadType, &[u8]),
        max: Option<usize>,
    ) -> Vec<Transmit> {
        let header = Header { exchange, ..self.header };
        self.seal_as(&header, (first, inner), max)
    }

    fn seal_as(
        &mut self,
        header: &Header,
        (first, inner): (PayloadType, &[u8]),
        max: Option<usize>,
    ) -> Vec<Transmit> {
        let sealed = self.sealer.seal(header, first, inner, max, &mut SystemRandom);
        let to_transmit = |datagram| Transmit { datagram, ..self.path.clone() };
        sealed.into_iter().map(to_transmit).collect()
    }

    /// Sends a request and returns the other host's answer.
    pub(crate) fn ask(
        &mut self,
        world: &mut World,
        exchange: ExchangeType,
        payloads: &[Payload<'_>],
    ) -> Option<Answer> {
        let mut inner = Vec::new();
        let first = emit_chain(payloads, &mut inner);
        self.ask_raw(world, exchange, first, &inner)
    }

    /// Sends a request of any bytes and returns the other host's answer.
    pub(crate) fn ask_raw(
        &mut self,
        world: &mut World,
        exchange: ExchangeType,
        first: PayloadType,
        inner: &[u8],
    ) -> Option<Answer> {
        let datagrams = self.seal(exchange, (first, inner), None);
        datagrams.iter().for_each(|one| world.hand_over(one));
        self.header.message_id += 1;
        self.answer(world, self.header.message_id - 1)
    }

    /// Takes the answer to a request off the network.
    pub(crate) fn answer(&mut self, world: &mut World, id: u32) -> Option<Answer> {
        let to = world.hosts[self.host].address.ip();
        let at = world.in_flight.iter().position(|one| {
            let message = Message::parse(&one.datagram).expect("a message");
            one.to.ip() == to && message.header.response && message.header.message_id == id
        });
        Some(self.open(&world.in_flight.remove(at?)))
    }

    /// Opens a message that the other host sent.
    pub(crate) fn open(&self, datagram: &Transmit) -> Answer {
        let message = Message::parse(&datagram.datagram).expect("a message");
        let Some(Payload::Encrypted(encrypted)) = message.payloads.last() else {
            panic!("{message:?}")
        };
        let inner = self.opener.open(&datagram.datagram, encrypted).expect("the same keys");
        Answer { first: encrypted.first, inner }
    }

    /// Answers a request of the other host.
    pub(crate) fn respond(
        &mut self,
        world: &mut World,
        request: &Transmit,
        payloads: &[Payload<'_>],
    ) {
        let mut inner = Vec::new();
        let first = emit_chain(payloads, &mut inner);
        for datagram in self.seal_answer(request, (first, &inner), None) {
            world.hand_over(&datagram);
        }
    }

    /// Seals the answer to a request of the other host, in fragments if it is longer than `max`.
    pub(crate) fn seal_answer(
        &mut self,
        request: &Transmit,
        (first, inner): (PayloadType, &[u8]),
        max: Option<usize>,
    ) -> Vec<Transmit> {
        let header = Message::parse(&request.datagram).expect("a message").header.respond();
        self.seal_as(&header, (first, inner), max)
    }
}
