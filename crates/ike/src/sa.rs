//! One IKE SA: its keys, its message IDs, one request of each side under way, fragments.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use aws_lc_rs::constant_time::verify_slices_are_equal;
use headroom_suite::Key;

use crate::config::{Config, Timing};
use crate::crypto::{IkeKeys, Protector, Random, Sealer, Spis};
use crate::exchange::{Exchange, ExpectedFollowup};
use crate::proposal::IkeChoice;
use crate::wire::{
    Encrypted, ExchangeType, Fragment, Header, Message, Payload, PayloadType, emit_chain,
};

/// The most fragments of a message (64 KiB in the shortest fragments are 128).
const MAX_FRAGMENTS: u16 = 128;
/// The most bytes of a message made of fragments, and of one whose sender is not authenticated: room
/// for a chain of certificates.
const MAX_REASSEMBLED: usize = 64 * 1024;
const MAX_REASSEMBLED_IN_SETUP: usize = 16 * 1024;

/// Who sent the first message of an IKE SA.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Role {
    Initiator,
    Responder,
}

/// Where an IKE SA is in its life.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Status {
    /// Not authenticated yet.
    Setup,
    /// In use, or about to be.
    Active,
    /// Replaced by another; the peer will delete it.
    Replaced,
    /// We delete it.
    Deleting,
    /// Deleted; answers retransmissions.
    Closed,
}

/// An IKE SA.
#[derive(Debug)]
pub(crate) struct IkeSa {
    pub(crate) role: Role,
    pub(crate) spis: Spis,
    pub(crate) status: Status,
    pub(crate) choice: Option<IkeChoice>,
    pub(crate) pending: Option<Pending>,
    pub(crate) followup: Option<ExpectedFollowup>,
    /// When it is forgotten.
    pub(crate) expires_at: Option<Instant>,
    /// Whether the peer reads fragments.
    pub(crate) fragmentation: bool,
    session: Option<SessionKeys>,
    /// Whether it was asked to be rekeyed because of its many requests.
    pub(crate) is_worn: bool,
    /// Whether the keys were reported.
    exported: bool,
    next_request: u32,
    next_expected: u32,
    last_response: Option<Vec<Vec<u8>>>,
    /// The fragments of a request and of a response: both may be under way at once.
    reassembly: [Option<Reassembly>; 2],
}

/// The keys, and what uses them.
#[derive(Debug)]
struct SessionKeys {
    keys: IkeKeys,
    sealer: Sealer,
    opener: Protector,
    /// Opens retransmissions of the request after which the keys changed (IKE_INTERMEDIATE).
    previous_opener: Option<Protector>,
}

/// A request that was not answered yet.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) message_id: u32,
    pub(crate) datagrams: Vec<Vec<u8>>,
    pub(crate) exchange: Exchange,
    pub(crate) transmissions: u32,
    pub(crate) next_at: Instant,
    interval: Duration,
}

/// What a received message is.
#[derive(Debug)]
pub(crate) enum Received {
    /// A new request, or the response that is waited for.
    Message(Opened),
    /// A request that was answered; these are the datagrams of the answer.
    Retransmission(Vec<Vec<u8>>),
}

/// The decrypted payloads of a message.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) header: Header,
    pub(crate) first: PayloadType,
    pub(crate) inner: Vec<u8>,
}

#[derive(Debug)]
struct Reassembly {
    message_id: u32,
    total: u16,
    first: PayloadType,
    parts: BTreeMap<u16, Vec<u8>>,
}

impl IkeSa {
    pub(crate) fn new(role: Role, spis: Spis, status: Status) -> Self {
        Self {
            role,
            spis,
            status,
            choice: None,
            pending: None,
            followup: None,
            expires_at: None,
            fragmentation: false,
            session: None,
            is_worn: false,
            exported: false,
            next_request: 0,
            next_expected: 0,
            last_response: None,
            reassembly: [None, None],
        }
    }

    /// Returns the SPI that messages to us have.
    pub(crate) fn local_spi(&self) -> u64 {
        match self.role {
            Role::Initiator => self.spis.initiator,
            Role::Responder => self.spis.responder,
        }
    }

    pub(crate) fn keys(&self) -> Option<&IkeKeys> {
        self.session.as_ref().map(|session| &session.keys)
    }

    /// Takes new keys; false if the suite is not one for IKE.
    pub(crate) fn set_keys(&mut self, keys: IkeKeys) -> bool {
        let initiator = Protector::new(keys.suite, &keys.sk_ei, &keys.sk_ai);
        let responder = Protector::new(keys.suite, &keys.sk_er, &keys.sk_ar);
        let (Some(initiator), Some(responder)) = (initiator, responder) else { return false };
        let (seal, opener) = match self.role {
            Role::Initiator => (initiator, responder),
            Role::Responder => (responder, initiator),
        };
        let previous_opener = self.session.take().map(|session| session.opener);
        let sealer = Sealer::new(seal);
        self.session = Some(SessionKeys { keys, sealer, opener, previous_opener });
        self.exported = false;
        true
    }

    /// Mixes a post-quantum pre-shared key into what is derived from now on. Messages keep their keys.
    pub(crate) fn mix(&mut self, ppk: &Key) {
        if let Some(session) = &mut self.session {
            session.keys = session.keys.copy().with_ppk(ppk);
        }
    }

    /// Returns a copy of keys that were not reported yet.
    pub(crate) fn export(&mut self) -> Option<IkeKeys> {
        let session = self.session.as_ref().filter(|_| !self.exported)?;
        self.exported = true;
        Some(session.keys.copy())
    }

    /// Counts a request of IKE_SA_INIT that was received in clear.
    pub(crate) fn skip_expected(&mut self) {
        self.next_expected = 1;
    }

    /// Opens a protected message. None if it is not for now, incomplete, or does not verify.
    pub(crate) fn receive(&mut self, raw: &[u8], message: &Message<'_>) -> Option<Received> {
        let header = message.header;
        let Some(Payload::Encrypted(encrypted)) = message.payloads.last() else { return None };
        if header.from_initiator != (self.role == Role::Responder) {
            return None;
        }
        let is_repeated =
            !header.response && header.message_id.checked_add(1)? == self.next_expected;
        let is_expected = match header.response {
            true => self.pending.as_ref().is_some_and(|one| one.message_id == header.message_id),
            false => header.message_id == self.next_expected,
        };
        if !is_expected && !is_repeated {
            return None;
        }
        let session = self.session.as_mut()?;
        let opener = session.previous_opener.as_ref().filter(|_| is_repeated);
        let inner = opener.unwrap_or(&session.opener).open(raw, encrypted).ok()?;
        if !is_repeated {
            session.previous_opener = None;
        }
        if is_repeated {
            // one answer for all fragments (RFC 7383 §2.6.1)
            let answers = encrypted.fragment.is_none_or(|fragment| fragment.number == 1);
            return self.last_response.clone().filter(|_| answers).map(Received::Retransmission);
        }
        let (first, inner) = match encrypted.fragment {
            None => (encrypted.first, inner),
            Some(fragment) => self.reassemble(&header, encrypted, fragment, inner)?,
        };
        self.reassembly[usize::from(header.response)] = None;
        if !header.response {
            self.next_expected = self.next_expected.saturating_add(1);
            self.last_response = None;
        }
        Some(Received::Message(Opened { header, first, inner }))
    }

    /// Keeps a fragment, which was authenticated; returns the message if it is the last.
    fn reassemble(
        &mut self,
        header: &Header,
        encrypted: &Encrypted<'_>,
        fragment: Fragment,
        inner: Vec<u8>,
    ) -> Option<(PayloadType, Vec<u8>)> {
        if fragment.total > MAX_FRAGMENTS {
            return None;
        }
        let fresh = || Reassembly {
            message_id: header.message_id,
            total: fragment.total,
            first: PayloadType::None,
            parts: BTreeMap::new(),
        };
        let kept = self.reassembly[usize::from(header.response)].get_or_insert_with(fresh);
        // RFC 7383 §2.6: a larger total is a new attempt in shorter fragments
        if kept.message_id != header.message_id || fragment.total > kept.total {
            *kept = fresh();
        }
        let len: usize = kept.parts.values().map(Vec::len).sum();
        let max = match self.status {
            Status::Setup => MAX_REASSEMBLED_IN_SETUP,
            _ => MAX_REASSEMBLED,
        };
        if fragment.total < kept.total || len + inner.len() > max {
            return None;
        }
        if fragment.number == 1 {
            kept.first = encrypted.first;
        }
        kept.parts.entry(fragment.number).or_insert(inner);
        let complete = kept.parts.len() == usize::from(kept.total);
        complete.then(|| (kept.first, kept.parts.values().flatten().copied().collect()))
    }

    /// Seals a request and starts to wait for its response.
    pub(crate) fn request(
        &mut self,
        exchange_type: ExchangeType,
        payloads: &[Payload<'_>],
        exchange: Exchange,
        config: &Config,
        now: Instant,
        random: &mut dyn Random,
    ) -> Option<&Pending> {
        let header = self.header(exchange_type, false, self.next_request);
        let datagrams = self.seal(&header, payloads, config, random)?;
        Some(self.wait(datagrams, exchange, &config.timing, now))
    }

    /// Starts to wait for the response to a request that was written elsewhere.
    pub(crate) fn wait(
        &mut self,
        datagrams: Vec<Vec<u8>>,
        exchange: Exchange,
        timing: &Timing,
        now: Instant,
    ) -> &Pending {
        let message_id = self.next_request;
        self.next_request = self.next_request.saturating_add(1);
        self.pending.insert(Pending {
            message_id,
            datagrams,
            exchange,
            transmissions: 1,
            next_at: now + timing.retransmit,
            interval: timing.retransmit,
        })
    }

    /// Starts IKE_SA_INIT again, with the message ID 0 (RFC 7296 §2.6, §1.3).
    pub(crate) fn restart(&mut self) {
        self.pending = None;
        self.next_request = 0;
    }

    /// Seals the response to a request and keeps it for retransmissions.
    pub(crate) fn respond(
        &mut self,
        request: &Header,
        payloads: &[Payload<'_>],
        config: &Config,
        random: &mut dyn Random,
    ) -> Option<(Header, Vec<Vec<u8>>)> {
        let header = self.header(request.exchange, true, request.message_id);
        let datagrams = self.seal(&header, payloads, config, random)?;
        self.last_response = Some(datagrams.clone());
        Some((header, datagrams))
    }

    pub(crate) fn header(&self, exchange: ExchangeType, response: bool, message_id: u32) -> Header {
        Header {
            spi_initiator: self.spis.initiator,
            spi_responder: self.spis.responder,
            exchange,
            from_initiator: self.role == Role::Initiator,
            response,
            message_id,
        }
    }

    /// Returns how many requests the busier end has sent.
    pub(crate) fn requests(&self) -> u32 {
        self.next_request.max(self.next_expected)
    }

    /// Returns the ID that the next request will have.
    pub(crate) fn next_request(&self) -> u32 {
        self.next_request
    }

    fn seal(
        &mut self,
        header: &Header,
        payloads: &[Payload<'_>],
        config: &Config,
        random: &mut dyn Random,
    ) -> Option<Vec<Vec<u8>>> {
        let mut inner = Vec::new();
        let first = emit_chain(payloads, &mut inner);
        let max = self.fragmentation.then_some(config.max_message_len);
        Some(self.session.as_mut()?.sealer.seal(header, first, &inner, max, random))
    }
}

impl Pending {
    /// Is sent at once, and then as often as a new request: it goes between other addresses.
    pub(crate) fn start_again(&mut self, timing: &Timing, now: Instant) {
        self.transmissions = 0;
        self.interval = timing.retransmit / 2;
        self.next_at = now;
    }

    /// Returns the datagrams again if it is time; an error with the number of transmissions if the
    /// peer is dead.
    pub(crate) fn retransmit(
        &mut self,
        timing: &Timing,
        now: Instant,
    ) -> Result<Option<Vec<Vec<u8>>>, u32> {
        if now < self.next_at {
            return Ok(None);
        }
        if self.transmissions > timing.retransmissions {
            return Err(self.transmissions);
        }
        self.transmissions += 1;
        self.interval = (2 * self.interval).min(timing.retransmit_max);
        self.next_at = now + self.interval;
        Ok(Some(self.datagrams.clone()))
    }
}

/// Compares MACs in constant time.
pub(crate) fn same_mac(one: &[u8], other: &[u8]) -> bool {
    verify_slices_are_equal(one, other).is_ok()
}
