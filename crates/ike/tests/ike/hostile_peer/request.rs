//! The CREATE_CHILD_SA request of a hostile peer.

use headroom_ike::crypto::{Method, SystemRandom};
use headroom_ike::wire::{
    EncryptionId, ExchangeType, KeyExchange, KeyExchangeMethod, Nonce, Notify, NotifyType, Payload,
    PayloadType, Proposal, ProtocolId, SecurityAssociation, SequenceNumbersId, TrafficSelector,
    TrafficSelectors, Transform, TransformType, emit_chain,
};

use crate::impostor::{Answer, Impostor};
use crate::world::{A, B, World};

/// A CREATE_CHILD_SA request whose parts a test changes.
pub(super) struct Request {
    pub(super) rekeys: Option<(ProtocolId, Vec<u8>)>,
    pub(super) proposals: Vec<(u8, ProtocolId, Vec<u8>)>,
    pub(super) nonce: Vec<u8>,
    pub(super) key_exchange: Option<(KeyExchangeMethod, Vec<u8>)>,
    pub(super) ts: [Vec<TrafficSelector>; 2],
}

impl Request {
    /// One that is right.
    pub(super) fn new(spi: u32) -> Self {
        let key_exchange = Method::Curve25519.generate(&mut SystemRandom);
        Self {
            rekeys: None,
            proposals: vec![(1, ProtocolId::Esp, spi.to_be_bytes().to_vec())],
            nonce: vec![7; 32],
            key_exchange: Some((KeyExchangeMethod::Curve25519, key_exchange.public().to_vec())),
            ts: [network(1, 24), network(2, 24)],
        }
    }

    /// One that rekeys what the other host has.
    pub(super) fn rekey(world: &World, spi: u32) -> Self {
        let old = world.hosts[B].children.values().next().expect("a CHILD SA");
        let rekeys = (ProtocolId::Esp, old.outbound.spi.to_be_bytes().to_vec());
        Self { rekeys: Some(rekeys), ..Self::new(spi) }
    }

    pub(super) fn emit(&self) -> (PayloadType, Vec<u8>) {
        self.emit_after(Vec::new())
    }

    /// Writes it with a notification more.
    pub(super) fn emit_with(&self, notify_type: NotifyType, data: &[u8]) -> (PayloadType, Vec<u8>) {
        self.emit_after(vec![Payload::Notify(Notify::new(notify_type, data))])
    }

    fn emit_after(&self, before: Vec<Payload<'_>>) -> (PayloadType, Vec<u8>) {
        let mut payloads: Vec<Payload<'_>> = before;
        if let Some((protocol, spi)) = &self.rekeys {
            let (protocol, notify_type) = (*protocol, NotifyType::RekeySa);
            payloads.push(Payload::Notify(Notify { protocol, spi, notify_type, data: &[] }));
        }
        let proposals = self.proposals.iter().map(|(number, protocol, spi)| Proposal {
            number: *number,
            protocol: *protocol,
            spi,
            transforms: transforms(),
        });
        let proposals = proposals.collect();
        payloads.push(Payload::SecurityAssociation(SecurityAssociation { proposals }));
        payloads.push(Payload::Nonce(Nonce(&self.nonce)));
        payloads.extend(
            self.key_exchange
                .as_ref()
                .map(|(method, data)| Payload::KeyExchange(KeyExchange { method: *method, data })),
        );
        let [initiator, responder] =
            self.ts.clone().map(|selectors| TrafficSelectors { selectors });
        payloads.extend([Payload::TsInitiator(initiator), Payload::TsResponder(responder)]);
        let mut inner = Vec::new();
        (emit_chain(&payloads, &mut inner), inner)
    }

    pub(super) fn ask(&self, world: &mut World) -> Option<Answer> {
        let mut impostor = Impostor::of(world, A);
        self.ask_as(&mut impostor, world)
    }

    pub(super) fn ask_as(&self, impostor: &mut Impostor, world: &mut World) -> Option<Answer> {
        let (first, inner) = self.emit();
        world.closing = true;
        impostor.ask_raw(world, ExchangeType::CreateChildSa, first, &inner)
    }
}

pub(super) fn transforms() -> Vec<Transform> {
    vec![
        Transform::with_key_length(TransformType::Encryption, EncryptionId::AesGcm16, 256),
        Transform::new(TransformType::KeyExchange, KeyExchangeMethod::Curve25519),
        Transform::new(TransformType::SequenceNumbers, SequenceNumbersId::from(1)),
    ]
}

pub(super) fn network(last: u8, prefix: u8) -> Vec<TrafficSelector> {
    vec![TrafficSelector::network([10, 0, last, 0].into(), prefix)]
}
