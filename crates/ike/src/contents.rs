//! The payloads of one message, by name.

use crate::wire::{
    Authentication, Certificate, Configuration, Delete, Eap, Identification, KeyExchange, Nonce,
    Notify, NotifyType, Payload, SecurityAssociation, TrafficSelector,
};

/// The payloads of one message. None is there twice that may be there once.
#[derive(Debug, Default)]
pub(crate) struct Contents<'a> {
    pub(crate) sa: Option<SecurityAssociation<'a>>,
    pub(crate) key_exchange: Option<KeyExchange<'a>>,
    pub(crate) nonce: Option<&'a [u8]>,
    pub(crate) id_initiator: Option<Identification<'a>>,
    pub(crate) id_responder: Option<Identification<'a>>,
    /// In order.
    pub(crate) certificates: Vec<Certificate<'a>>,
    pub(crate) authentication: Option<Authentication<'a>>,
    pub(crate) eap: Option<Eap<'a>>,
    pub(crate) ts_initiator: Option<Vec<TrafficSelector>>,
    pub(crate) ts_responder: Option<Vec<TrafficSelector>>,
    pub(crate) configuration: Option<Configuration<'a>>,
    pub(crate) notifies: Vec<Notify<'a>>,
    pub(crate) deletes: Vec<Delete>,
    pub(crate) vendor_ids: Vec<&'a [u8]>,
}

/// A payload is there twice.
pub(crate) struct Duplicate;

impl<'a> Contents<'a> {
    pub(crate) fn gather(payloads: Vec<Payload<'a>>) -> Result<Self, Duplicate> {
        let mut all = Self::default();
        for payload in payloads {
            match payload {
                Payload::SecurityAssociation(one) => once(&mut all.sa, one)?,
                Payload::KeyExchange(one) => once(&mut all.key_exchange, one)?,
                Payload::Nonce(Nonce(one)) => once(&mut all.nonce, one)?,
                Payload::IdInitiator(one) => once(&mut all.id_initiator, one)?,
                Payload::IdResponder(one) => once(&mut all.id_responder, one)?,
                Payload::Authentication(one) => once(&mut all.authentication, one)?,
                Payload::TsInitiator(one) => once(&mut all.ts_initiator, one.selectors)?,
                Payload::TsResponder(one) => once(&mut all.ts_responder, one.selectors)?,
                Payload::Configuration(one) => once(&mut all.configuration, one)?,
                Payload::Eap(one) => once(&mut all.eap, one)?,
                Payload::Notify(one) => all.notifies.push(one),
                Payload::Delete(one) => all.deletes.push(one),
                Payload::VendorId(one) => all.vendor_ids.push(one),
                Payload::Certificate(one) => all.certificates.push(one),
                Payload::CertificateRequest(_)
                | Payload::Encrypted(_)
                | Payload::Unknown { .. } => {}
            }
        }
        Ok(all)
    }

    pub(crate) fn notify(&self, notify_type: NotifyType) -> Option<&Notify<'a>> {
        self.notifies.iter().find(|notify| notify.notify_type == notify_type)
    }

    pub(crate) fn has(&self, notify_type: NotifyType) -> bool {
        self.notify(notify_type).is_some()
    }

    /// Returns the first error.
    pub(crate) fn error(&self) -> Option<&Notify<'a>> {
        self.notifies.iter().find(|notify| notify.notify_type.is_error())
    }
}

fn once<T>(slot: &mut Option<T>, value: T) -> Result<(), Duplicate> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(Duplicate),
    }
}
