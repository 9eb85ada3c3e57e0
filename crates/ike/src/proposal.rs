//! What is offered and chosen: lists of algorithms, and their form on the wire (RFC 7296 §2.7, RFC
//! 9370 §2.2.1).

mod offered;
#[cfg(test)]
mod tests;
mod transforms;

use headroom_suite::{Aead, Suite};

use self::offered::{Offered, is_one_choice, spi};
use self::transforms::{method_transforms, sequence_numbers, suite_transforms};
use crate::crypto::{Method, Prf};
use crate::wire::{KeyExchangeMethod, Proposal, ProtocolId, Transform, TransformType};

/// Algorithms for an IKE SA, the most wanted first in each list.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct IkeProposal {
    /// Ciphers.
    pub suites: Vec<Suite>,
    /// Pseudorandom functions.
    pub prfs: Vec<Prf>,
    /// Methods of the key exchange in IKE_SA_INIT.
    pub key_exchanges: Vec<Method>,
    /// Methods of the additional key exchanges, which all take place.
    pub additional: Vec<Vec<Method>>,
}

/// Algorithms for a CHILD SA, the most wanted first in each list.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ChildProposal {
    /// Ciphers.
    pub suites: Vec<Suite>,
    /// Methods of a key exchange of its own (forward secrecy); empty for none. The CHILD SA of
    /// IKE_AUTH has none.
    pub key_exchanges: Vec<Method>,
    /// Methods of additional key exchanges, as for an IKE SA.
    pub additional: Vec<Vec<Method>>,
    /// Whether sequence numbers may have 64 bits, or 32, in order of preference.
    pub extended_sequence: Vec<bool>,
}

/// Whether a key exchange must resist quantum computers.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum PostQuantum {
    /// Without one there is no SA.
    #[default]
    Required,
    /// Without one there is an SA all the same, and an event says so.
    Preferred,
    /// It is not offered.
    Off,
}

/// The algorithms of an IKE SA.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct IkeChoice {
    /// The cipher.
    pub suite: Suite,
    /// The pseudorandom function.
    pub prf: Prf,
    /// The key exchange.
    pub key_exchange: Method,
    /// The additional ones, in order.
    pub additional: Vec<Method>,
    pub(crate) answer: Answer,
}

/// The algorithms of a CHILD SA.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ChildChoice {
    /// The cipher.
    pub suite: Suite,
    /// The key exchange of its own.
    pub key_exchange: Option<Method>,
    /// The additional ones, in order.
    pub additional: Vec<Method>,
    /// Whether sequence numbers have 64 bits.
    pub extended_sequence: bool,
    pub(crate) answer: Answer,
}

/// How the choice is written in a response.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Answer {
    number: u8,
    transforms: Vec<Transform>,
}

/// An offer of either kind.
trait Offer: Clone {
    /// What is chosen of it.
    type Choice;

    fn suites(&self) -> &[Suite];

    fn with_suites(&self, suites: Vec<Suite>) -> Self;

    /// Chooses from one of a peer's proposals.
    fn pick(&self, their: &Proposal<'_>, sent: KeyExchangeMethod) -> Option<Self::Choice>;
}

/// Returns the proposals as they are numbered on the wire: AEADs and ciphers with a separate integrity
/// algorithm are not mixed (RFC 5282 §8).
fn numbered<T: Offer>(offers: &[T]) -> Vec<T> {
    let split = |offer: &T| {
        let groups = group(offer.suites());
        groups.into_iter().map(|suites| offer.with_suites(suites)).collect::<Vec<_>>()
    };
    offers.iter().flat_map(split).collect()
}

fn choose<T: Offer>(
    offers: &[T],
    theirs: &[Proposal<'_>],
    sent: KeyExchangeMethod,
) -> Option<T::Choice> {
    let offers = numbered(offers);
    offers.iter().find_map(|ours| theirs.iter().find_map(|their| ours.pick(their, sent)))
}

fn accept<T: Offer>(offers: &[T], theirs: &[Proposal<'_>]) -> Option<T::Choice> {
    let [their] = theirs else { return None };
    let offers = numbered(offers);
    let ours = offers.get(usize::from(their.number).checked_sub(1)?)?;
    is_one_choice(their).then(|| ours.pick(their, KeyExchangeMethod::None)).flatten()
}

impl IkeProposal {
    /// Returns the default offer: AES-256-GCM, AES-128-GCM or ChaCha20-Poly1305, and X25519, P-256
    /// or P-384 with ML-KEM-768 or ML-KEM-1024 as policy says.
    #[must_use]
    pub fn default_offer(policy: PostQuantum) -> Vec<Self> {
        let offer = |additional| Self {
            suites: default_suites(),
            prfs: vec![Prf::HmacSha384, Prf::HmacSha256, Prf::HmacSha512],
            key_exchanges: vec![Method::Curve25519, Method::Ecp256, Method::Ecp384],
            additional,
        };
        policy.offers(offer)
    }

    /// Writes the proposals, numbered from 1.
    pub(crate) fn emit<'a>(offers: &[Self], spi: &'a [u8]) -> Vec<Proposal<'a>> {
        let transforms = |offer: &Self| {
            let mut transforms = suite_transforms(&offer.suites);
            let prf = TransformType::PseudorandomFunction;
            transforms.extend(offer.prfs.iter().map(|one| Transform::new(prf, one.id())));
            let methods = method_transforms(&offer.key_exchanges, &offer.additional);
            transforms.extend(methods);
            transforms
        };
        proposals(&numbered(offers), ProtocolId::Ike, spi, transforms)
    }

    /// Chooses from what a peer offers, by the order of our offers. Of several acceptable key
    /// exchanges the one whose public value the peer sent is best: others cost a round trip.
    pub(crate) fn choose(
        offers: &[Self],
        theirs: &[Proposal<'_>],
        sent: KeyExchangeMethod,
    ) -> Option<IkeChoice> {
        choose(offers, theirs, sent)
    }

    /// Checks a responder's choice against what was offered.
    pub(crate) fn accept(offers: &[Self], theirs: &[Proposal<'_>]) -> Option<IkeChoice> {
        accept(offers, theirs)
    }

    /// Checks whether a choice is one of these offers.
    pub(crate) fn permit(offers: &[Self], choice: &IkeChoice) -> bool {
        offers.iter().any(|offer| {
            offer.suites.contains(&choice.suite)
                && offer.prfs.contains(&choice.prf)
                && offer.key_exchanges.contains(&choice.key_exchange)
                && offer.additional.len() == choice.additional.len()
                && offer
                    .additional
                    .iter()
                    .zip(&choice.additional)
                    .all(|(any, one)| any.contains(one))
        })
    }
}

impl Offer for IkeProposal {
    type Choice = IkeChoice;

    fn suites(&self) -> &[Suite] {
        &self.suites
    }

    fn with_suites(&self, suites: Vec<Suite>) -> Self {
        Self { suites, ..self.clone() }
    }

    fn pick(&self, their: &Proposal<'_>, sent: KeyExchangeMethod) -> Option<IkeChoice> {
        let offered = Offered(their);
        if their.protocol != ProtocolId::Ike || !offered.has_only_types_of_ike() {
            return None;
        }
        let mut answer = Answer { number: their.number, transforms: Vec::new() };
        let suite = offered.suite(&self.suites, &mut answer)?;
        let prf = self.prfs.iter().copied().find(|prf| {
            offered.take(Transform::new(TransformType::PseudorandomFunction, prf.id()), &mut answer)
        })?;
        let key_exchange = offered.method(&self.key_exchanges, sent, &mut answer)?;
        let additional = offered.additional(&self.additional, &mut answer)?;
        Some(IkeChoice { suite, prf, key_exchange, additional, answer })
    }
}

impl ChildProposal {
    /// Returns the default offer: the ciphers of an IKE SA, forward secrecy, 64-bit sequence
    /// numbers if the peer has them.
    #[must_use]
    pub fn default_offer(policy: PostQuantum) -> Vec<Self> {
        let offer = |additional| Self {
            suites: default_suites(),
            key_exchanges: vec![Method::Curve25519, Method::Ecp256, Method::Ecp384],
            additional,
            extended_sequence: vec![true, false],
        };
        policy.offers(offer)
    }

    /// Returns the offers for IKE_AUTH, where the keys are derived from those of the IKE SA alone
    /// (RFC 7296 §1.2).
    pub(crate) fn without_key_exchange(offers: &[Self]) -> Vec<Self> {
        let mut stripped: Vec<Self> = Vec::new();
        for offer in offers {
            let (key_exchanges, additional) = (Vec::new(), Vec::new());
            let offer = Self { key_exchanges, additional, ..offer.clone() };
            if !stripped.contains(&offer) {
                stripped.push(offer);
            }
        }
        stripped
    }

    pub(crate) fn emit<'a>(offers: &[Self], spi: &'a [u8]) -> Vec<Proposal<'a>> {
        let transforms = |offer: &Self| {
            let mut transforms = suite_transforms(&offer.suites);
            transforms.extend(method_transforms(&offer.key_exchanges, &offer.additional));
            transforms.extend(offer.extended_sequence.iter().map(|&on| sequence_numbers(on)));
            transforms
        };
        proposals(&numbered(offers), ProtocolId::Esp, spi, transforms)
    }

    pub(crate) fn choose(
        offers: &[Self],
        theirs: &[Proposal<'_>],
        sent: KeyExchangeMethod,
    ) -> Option<(ChildChoice, u32)> {
        choose(offers, theirs, sent)
    }

    pub(crate) fn accept(offers: &[Self], theirs: &[Proposal<'_>]) -> Option<(ChildChoice, u32)> {
        accept(offers, theirs)
    }
}

impl Offer for ChildProposal {
    /// With the SPI that the peer receives on.
    type Choice = (ChildChoice, u32);

    fn suites(&self) -> &[Suite] {
        &self.suites
    }

    fn with_suites(&self, suites: Vec<Suite>) -> Self {
        Self { suites, ..self.clone() }
    }

    fn pick(&self, their: &Proposal<'_>, sent: KeyExchangeMethod) -> Option<Self::Choice> {
        let offered = Offered(their);
        if their.protocol != ProtocolId::Esp || !offered.has_only_types_of_esp() {
            return None;
        }
        let mut answer = Answer { number: their.number, transforms: Vec::new() };
        let suite = offered.suite(&self.suites, &mut answer)?;
        let key_exchange = if self.key_exchanges.is_empty() {
            offered.none(TransformType::KeyExchange, &mut answer)?;
            None
        } else {
            Some(offered.method(&self.key_exchanges, sent, &mut answer)?)
        };
        let additional = offered.additional(&self.additional, &mut answer)?;
        let extended_sequence = self
            .extended_sequence
            .iter()
            .copied()
            .find(|&extended| offered.take(sequence_numbers(extended), &mut answer))?;
        let choice = ChildChoice { suite, key_exchange, additional, extended_sequence, answer };
        Some((choice, spi(their)?))
    }
}

impl PostQuantum {
    fn offers<T>(self, offer: impl Fn(Vec<Vec<Method>>) -> T) -> Vec<T> {
        let hybrid = || offer(vec![vec![Method::MlKem768, Method::MlKem1024]]);
        let classic = || offer(Vec::new());
        match self {
            Self::Required => vec![hybrid()],
            Self::Preferred => vec![hybrid(), classic()],
            Self::Off => vec![classic()],
        }
    }
}

impl IkeChoice {
    /// Checks whether a key exchange resists quantum computers.
    #[must_use]
    pub fn is_post_quantum(&self) -> bool {
        self.additional.iter().chain([&self.key_exchange]).any(|method| method.is_post_quantum())
    }
}

impl Answer {
    /// Writes the chosen proposal.
    pub(crate) fn emit<'a>(&self, protocol: ProtocolId, spi: &'a [u8]) -> Proposal<'a> {
        Proposal { number: self.number, protocol, spi, transforms: self.transforms.clone() }
    }

    /// Returns the SPI of an IKE SA that its sender gave the chosen proposal; each may have another.
    pub(crate) fn spi_of(&self, proposals: &[Proposal<'_>]) -> Option<u64> {
        let chosen = proposals.iter().find(|one| one.number == self.number)?;
        chosen.spi.try_into().ok().map(u64::from_be_bytes).filter(|&spi| spi != 0)
    }
}

fn proposals<'a, T>(
    offers: &[T],
    protocol: ProtocolId,
    spi: &'a [u8],
    transforms: impl Fn(&T) -> Vec<Transform>,
) -> Vec<Proposal<'a>> {
    let numbered = offers.iter().zip(1..);
    let proposals = numbered.map(|(offer, number)| Proposal {
        number,
        protocol,
        spi,
        transforms: transforms(offer),
    });
    proposals.collect()
}

/// All AEADs together, each other suite alone: integrity algorithms and ciphers would combine to
/// suites that are not wanted.
fn group(suites: &[Suite]) -> Vec<Vec<Suite>> {
    let mut groups: Vec<Vec<Suite>> = Vec::new();
    for &suite in suites {
        match groups.last_mut() {
            Some(last) if is_aead(suite) && last.iter().copied().all(is_aead) => last.push(suite),
            _ => groups.push(vec![suite]),
        }
    }
    groups
}

fn is_aead(suite: Suite) -> bool {
    matches!(suite, Suite::Aead(_))
}

fn default_suites() -> Vec<Suite> {
    [Aead::Aes256Gcm, Aead::Aes128Gcm, Aead::ChaCha20Poly1305].map(Suite::Aead).to_vec()
}
