//! Reads one message after the other.

use std::collections::HashMap;

use headroom_ike::wire::{Encrypted, Error, Header, Message, Payload, parse_decrypted};

use super::fragments::Fragments;
use super::message::{Encryption, IkeMessage, IkeTally};
use super::payload::PayloadReport;
use super::repeats::Repeats;
use crate::wireshark::IkeEntry;

/// The most keys of one IKE SA that are tried. RFC 9370 replaces them 8 times.
const MAX_KEYS: usize = 16;

/// The keys of IKE SAs, and what was seen of them.
#[derive(Debug, Default)]
pub(in crate::decode) struct IkeDecoder {
    /// By the SPIs of initiator and responder; the oldest first.
    keys: HashMap<(u64, u64), Vec<IkeEntry>>,
    has_log: bool,
    fragments: Fragments,
    repeats: Repeats,
    tally: IkeTally,
}

impl IkeDecoder {
    /// Takes the keys of a log. Without one, encrypted messages are no failures.
    pub(in crate::decode) fn new(entries: Vec<IkeEntry>, has_log: bool) -> Self {
        let mut keys: HashMap<_, Vec<IkeEntry>> = HashMap::new();
        for entry in entries {
            keys.entry((entry.spis.initiator, entry.spis.responder)).or_default().push(entry);
        }
        Self { keys, has_log, ..Self::default() }
    }

    /// Reads a message, without the non-ESP marker.
    ///
    /// # Errors
    /// It does not begin with a header of IKEv2.
    pub(in crate::decode) fn read(
        &mut self,
        message: &[u8],
        udp: (u16, u16),
        frame: u64,
    ) -> Result<IkeMessage, Error> {
        let (header, _) = Header::parse(message)?;
        let mut report = IkeMessage::new(&header, udp);
        report.repeats = self.repeats.find(message, frame);
        match Message::parse(message) {
            Ok(parsed) => self.payloads(message, &parsed, &mut report),
            Err(error) => report.problem = Some(error.to_string()),
        }
        self.count(&report);
        Ok(report)
    }

    /// Returns the counts.
    pub(in crate::decode) fn finish(&self) -> IkeTally {
        IkeTally { incomplete: self.fragments.incomplete(), ..self.tally }
    }

    fn payloads(&mut self, raw: &[u8], message: &Message<'_>, report: &mut IkeMessage) {
        report.payloads.extend(message.payloads.iter().map(PayloadReport::of));
        let Some(Payload::Encrypted(encrypted)) = message.payloads.last() else { return };
        report.fragment = encrypted.fragment.map(|one| (one.number, one.total));
        let text = match self.open(raw, &message.header, encrypted) {
            Ok(text) => text,
            Err(encryption) => return report.encryption = encryption,
        };
        let whole = match encrypted.fragment {
            None => Some((encrypted.first, text)),
            // a fragment that came again is in its message already
            Some(_) if report.repeats.is_some() => None,
            Some(fragment) => self.fragments.add(&message.header, fragment, encrypted.first, text),
        };
        let Some((first, text)) = whole else {
            return report.encryption = Encryption::Incomplete;
        };
        report.encryption = Encryption::Opened;
        match parse_decrypted(first, &text) {
            Ok(inner) => report.payloads.extend(inner.iter().map(PayloadReport::of)),
            Err(error) => report.problem = Some(error.to_string()),
        }
    }

    /// Decrypts SK or SKF with the newest keys that fit.
    fn open(
        &self,
        raw: &[u8],
        header: &Header,
        encrypted: &Encrypted<'_>,
    ) -> Result<Vec<u8>, Encryption> {
        let spis = (header.spi_initiator, header.spi_responder);
        let without = if self.has_log { Encryption::NoKeys } else { Encryption::NoLog };
        let keys = self.keys.get(&spis).ok_or(without)?;
        let protectors = keys.iter().rev().take(MAX_KEYS).map(|one| match header.from_initiator {
            true => &one.initiator,
            false => &one.responder,
        });
        let mut opened = protectors.filter_map(|protector| protector.open(raw, encrypted).ok());
        opened.next().ok_or(Encryption::Forged)
    }

    fn count(&mut self, report: &IkeMessage) {
        let tally = &mut self.tally;
        tally.messages += 1;
        tally.repeated += u64::from(report.repeats.is_some());
        tally.failed += u64::from(report.is_failure());
        tally.sealed += u64::from(report.encryption == Encryption::NoLog);
        let opened = report.encryption == Encryption::Opened && !report.is_failure();
        tally.opened += u64::from(opened);
    }
}
