//! What every step of a session gets, and the random values, SPIs and times that it makes of it.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::config::{ChildConfig, Config};
use crate::counters::{Counters, Failures};
use crate::crypto::{Random, Spis};
use crate::event::{Event, Transmit};
use crate::exchange::{Agreement, Draft, Exchange, Group, Offer};
use crate::ids::Ids;
use crate::leases::Leases;
use crate::nat::{self, Hashes};
use crate::path::Path;
use crate::peers::Peers;
use crate::wire::NON_ESP_MARKER;

/// What every step gets.
pub(crate) struct Context<'a> {
    pub(crate) config: &'a Config,
    pub(crate) now: Instant,
    /// The time of day since 1970, if the caller told it.
    pub(crate) time: Option<Duration>,
    pub(crate) random: &'a mut dyn Random,
    pub(crate) ids: &'a mut Ids,
    pub(crate) leases: &'a mut Leases,
    pub(crate) peers: &'a mut Peers,
    pub(crate) counters: &'a mut Counters,
    pub(crate) failures: &'a mut Failures,
    pub(crate) transmits: &'a mut VecDeque<Transmit>,
    pub(crate) events: &'a mut VecDeque<Event>,
    /// Where the message came from and to: there its response goes.
    pub(crate) path: Path,
}

impl Context<'_> {
    /// Sends messages, with the non-ESP marker on the port that has it.
    pub(crate) fn transmit(&mut self, path: Path, messages: Vec<Vec<u8>>) {
        let marked = path.local.port() == self.config.nat_port;
        self.transmits.extend(messages.into_iter().map(|message| Transmit {
            from: path.local,
            to: path.remote,
            datagram: if marked { [&NON_ESP_MARKER[..], &message].concat() } else { message },
        }));
    }

    /// Makes what NAT detection says of both addresses.
    pub(crate) fn nat_hashes(&mut self, spis: Spis, path: Path) -> Hashes {
        let source = match self.config.force_encapsulation {
            // no address has this hash
            true => self.bytes(),
            false => nat::hash(spis, path.local),
        };
        Hashes { source, destination: nat::hash(spis, path.remote) }
    }

    /// Makes random bytes.
    pub(crate) fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        self.random.fill(&mut bytes);
        bytes
    }

    /// Makes a nonce, as long as the longest key of a PRF needs (RFC 7296 §2.10).
    pub(crate) fn nonce(&mut self) -> Vec<u8> {
        self.bytes::<32>().to_vec()
    }

    /// Makes an SPI of an IKE SA.
    pub(crate) fn ike_spi(&mut self) -> u64 {
        u64::from_be_bytes(self.bytes()).max(1)
    }

    /// Makes an SPI of a CHILD SA.
    pub(crate) fn child_spi(&mut self, config: &ChildConfig, group: Group) -> u32 {
        loop {
            let mut spi = u32::from_be_bytes(self.bytes());
            if let (Some(number), of @ 1..) = (group.resource(), config.per_resource) {
                spi = (spi - spi % of).saturating_add(number % of);
            }
            if spi > 255 && self.ids.reserve(spi) {
                return spi;
            }
        }
    }

    /// Frees the SPI that a request reserved which is given up.
    pub(crate) fn forget(&mut self, exchange: &Exchange) {
        match exchange {
            Exchange::Create(create) => {
                if let Offer::Child(offer) = &create.offer {
                    self.ids.release(offer.spi);
                }
            }
            Exchange::Followup(followup) => self.release(&followup.agreement),
            Exchange::Auth(Some(offer)) => self.ids.release(offer.spi),
            _ => {}
        }
    }

    /// Frees the SPI of a CHILD SA that is not made.
    pub(crate) fn release(&mut self, agreement: &Agreement) {
        if let Draft::Child(draft) = &agreement.draft {
            self.ids.release(draft.spi_inbound);
        }
    }

    /// Returns when to ask again for what was refused: at random, for both ends may have refused
    /// each other's request.
    pub(crate) fn retry_at(&mut self) -> Instant {
        let retry = self.config.timing.retry;
        let part = u32::from_be_bytes(self.bytes()) % 1000;
        self.now + retry + retry * part / 1000
    }

    /// Returns when something of this age is rekeyed: earlier by a random part, so that both ends
    /// and all peers do not rekey at once.
    pub(crate) fn age(&mut self, age: Option<Duration>) -> Option<Instant> {
        let age = age?;
        let part = u32::from_be_bytes(self.bytes()) % (self.config.timing.jitter_percent * 100 + 1);
        Some(self.now + (age - age * part / 10_000))
    }
}
