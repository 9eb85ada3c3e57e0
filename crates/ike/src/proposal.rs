//! What is offered and chosen: lists of algorithms, and their form on the wire (RFC 7296 §2.7, RFC
//! 9370 §2.2.1).

use headroom_suite::{Aead, Cipher, Mac, Suite};

use crate::crypto::{Method, Prf};
use crate::wire::{
    EncryptionId, IntegrityId, KeyExchangeMethod, Proposal, ProtocolId, SequenceNumbersId,
    Transform, TransformType,
};

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
}

/// A peer's proposal, from which transforms are taken.
struct Offered<'a>(&'a Proposal<'a>);

impl Offered<'_> {
    fn has_only_types_of_ike(&self) -> bool {
        self.all_types(|one| !matches!(one, TransformType::SequenceNumbers))
    }

    fn has_only_types_of_esp(&self) -> bool {
        self.all_types(|one| !matches!(one, TransformType::PseudorandomFunction))
    }

    /// A proposal with a type that is not known must not be chosen (RFC 7296 §3.3.6).
    fn all_types(&self, may: impl Fn(TransformType) -> bool) -> bool {
        let types = self.0.transforms.iter().map(|one| one.transform_type);
        types.into_iter().all(|one| !matches!(one, TransformType::Unknown(_)) && may(one))
    }

    fn has(&self, transform: Transform) -> bool {
        self.0.transforms.contains(&transform)
    }

    fn has_type(&self, transform_type: TransformType) -> bool {
        self.0.transforms.iter().any(|one| one.transform_type == transform_type)
    }

    fn take(&self, transform: Transform, answer: &mut Answer) -> bool {
        let has = self.has(transform);
        if has {
            answer.transforms.push(transform);
        }
        has
    }

    /// Takes nothing of a type: it is absent, or NONE is among it.
    fn none(&self, transform_type: TransformType, answer: &mut Answer) -> Option<()> {
        let none = Transform::new(transform_type, 0_u16);
        (!self.has_type(transform_type) || self.take(none, answer)).then_some(())
    }

    fn suite(&self, ours: &[Suite], answer: &mut Answer) -> Option<Suite> {
        let suite = ours.iter().copied().find(|&suite| {
            let (encryption, integrity) = transforms_of(suite);
            let integrity = match integrity {
                Some(integrity) => self.has(integrity),
                None => {
                    let none = Transform::new(TransformType::Integrity, IntegrityId::None);
                    !self.has_type(TransformType::Integrity) || self.has(none)
                }
            };
            self.has(encryption) && integrity
        })?;
        let (encryption, integrity) = transforms_of(suite);
        self.take(encryption, answer);
        match integrity {
            Some(integrity) => {
                self.take(integrity, answer);
            }
            None => self.none(TransformType::Integrity, answer)?,
        }
        Some(suite)
    }

    fn method(
        &self,
        ours: &[Method],
        sent: KeyExchangeMethod,
        answer: &mut Answer,
    ) -> Option<Method> {
        let transform = |method: Method| Transform::new(TransformType::KeyExchange, method.id());
        let common = ours.iter().copied().filter(|&method| self.has(transform(method)));
        let chosen = common.clone().find(|method| method.id() == sent).or(common.clone().next())?;
        self.take(transform(chosen), answer).then_some(chosen)
    }

    fn additional(&self, ours: &[Vec<Method>], answer: &mut Answer) -> Option<Vec<Method>> {
        let mut chosen = Vec::new();
        for (at, transform_type) in TransformType::ADDITIONAL_KEY_EXCHANGES.into_iter().enumerate()
        {
            match ours.get(at) {
                None => self.none(transform_type, answer)?,
                Some(methods) => chosen.push(methods.iter().copied().find(|method| {
                    self.take(Transform::new(transform_type, method.id()), answer)
                })?),
            }
        }
        Some(chosen)
    }
}

/// A choice has at most one transform of each type.
fn is_one_choice(proposal: &Proposal<'_>) -> bool {
    let mut types: Vec<_> = proposal.transforms.iter().map(|one| one.transform_type).collect();
    types.sort_unstable();
    types.windows(2).all(|pair| pair[0] != pair[1])
}

fn spi(proposal: &Proposal<'_>) -> Option<u32> {
    // 0 to 255 are reserved (RFC 4303 §2.1)
    proposal.spi.try_into().ok().map(u32::from_be_bytes).filter(|&spi| spi > 255)
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

fn suite_transforms(suites: &[Suite]) -> Vec<Transform> {
    suites
        .iter()
        .flat_map(|&suite| {
            let (encryption, integrity) = transforms_of(suite);
            [encryption].into_iter().chain(integrity)
        })
        .collect()
}

fn transforms_of(suite: Suite) -> (Transform, Option<Transform>) {
    let kind = TransformType::Encryption;
    let keyed = |id, bits| Transform::with_key_length(kind, id, bits);
    match suite {
        Suite::Aead(aead) => {
            let gcm = EncryptionId::AesGcm16;
            let encryption = match aead {
                Aead::Aes128Gcm => keyed(gcm, 128),
                Aead::Aes192Gcm => keyed(gcm, 192),
                Aead::Aes256Gcm => keyed(gcm, 256),
                Aead::ChaCha20Poly1305 => Transform::new(kind, EncryptionId::ChaCha20Poly1305),
            };
            (encryption, None)
        }
        Suite::Separate(cipher, mac) => {
            let cbc = EncryptionId::AesCbc;
            let encryption = match cipher {
                Cipher::Aes128Cbc => keyed(cbc, 128),
                Cipher::Aes192Cbc => keyed(cbc, 192),
                Cipher::Aes256Cbc => keyed(cbc, 256),
                Cipher::TripleDesCbc => Transform::new(kind, EncryptionId::TripleDes),
                Cipher::DesCbc => Transform::new(kind, 2_u16),
                Cipher::Null => Transform::new(kind, EncryptionId::Null),
            };
            let integrity = match mac {
                Mac::HmacMd5 => IntegrityId::HmacMd5,
                Mac::HmacSha1 => IntegrityId::HmacSha1,
                Mac::HmacSha256 => IntegrityId::HmacSha256,
                Mac::HmacSha384 => IntegrityId::HmacSha384,
                Mac::HmacSha512 => IntegrityId::HmacSha512,
            };
            (encryption, Some(Transform::new(TransformType::Integrity, integrity)))
        }
    }
}

fn method_transforms(key_exchanges: &[Method], additional: &[Vec<Method>]) -> Vec<Transform> {
    let types =
        [TransformType::KeyExchange].into_iter().chain(TransformType::ADDITIONAL_KEY_EXCHANGES);
    let lists = [key_exchanges].into_iter().chain(additional.iter().map(Vec::as_slice));
    let transforms = types.zip(lists).flat_map(|(kind, methods)| {
        methods.iter().map(move |method| Transform::new(kind, method.id()))
    });
    transforms.collect()
}

fn sequence_numbers(extended: bool) -> Transform {
    let id = match extended {
        true => SequenceNumbersId::Sequential64,
        false => SequenceNumbersId::Sequential32,
    };
    Transform::new(TransformType::SequenceNumbers, id)
}

fn default_suites() -> Vec<Suite> {
    [Aead::Aes256Gcm, Aead::Aes128Gcm, Aead::ChaCha20Poly1305].map(Suite::Aead).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: KeyExchangeMethod = KeyExchangeMethod::None;

    fn offer(policy: PostQuantum) -> Vec<IkeProposal> {
        IkeProposal::default_offer(policy)
    }

    fn choose(ours: PostQuantum, theirs: PostQuantum) -> Option<IkeChoice> {
        IkeProposal::choose(&offer(ours), &IkeProposal::emit(&offer(theirs), &[]), NONE)
    }

    #[test]
    fn both_policies_decide_on_ml_kem() {
        use PostQuantum::{Off, Preferred, Required};
        for (ours, theirs, expected) in [
            (Required, Required, Some(true)),
            (Required, Preferred, Some(true)),
            (Preferred, Required, Some(true)),
            (Preferred, Preferred, Some(true)),
            (Preferred, Off, Some(false)),
            (Off, Preferred, Some(false)),
            (Off, Off, Some(false)),
            (Required, Off, None),
            (Off, Required, None),
        ] {
            let chosen = choose(ours, theirs);
            let is_post_quantum = chosen.as_ref().map(IkeChoice::is_post_quantum);
            assert_eq!(is_post_quantum, expected, "{ours:?} {theirs:?}");
            // what was chosen is accepted by who offered it, and by nobody else
            let Some(chosen) = chosen else { continue };
            let answer = [chosen.answer.emit(ProtocolId::Ike, &[])];
            assert_eq!(IkeProposal::accept(&offer(theirs), &answer), Some(chosen.clone()));
            if expected == Some(false) {
                assert_eq!(IkeProposal::accept(&offer(Required), &answer), None);
            }
        }
    }

    #[test]
    fn the_key_exchange_that_was_sent_is_taken() {
        let theirs = offer(PostQuantum::Off);
        let theirs = IkeProposal::emit(&theirs, &[]);
        let chosen = |sent: Method| {
            let chosen = IkeProposal::choose(&offer(PostQuantum::Off), &theirs, sent.id());
            chosen.map(|choice| choice.key_exchange)
        };
        assert_eq!(chosen(Method::Ecp384), Some(Method::Ecp384));
        assert_eq!(chosen(Method::MlKem512), Some(Method::Curve25519));
    }

    #[test]
    fn the_modp_group_is_for_who_asks_for_it() {
        let modp = |policy| {
            let mut offers = offer(policy);
            offers.iter_mut().for_each(|one| one.key_exchanges = vec![Method::Modp2048]);
            IkeProposal::emit(&offers, &[])
        };
        let sent = Method::Modp2048.id();
        for policy in [PostQuantum::Required, PostQuantum::Off] {
            assert_eq!(IkeProposal::choose(&offer(policy), &modp(policy), sent), None);
            let mut ours = offer(policy);
            ours.iter_mut().for_each(|one| one.key_exchanges.push(Method::Modp2048));
            let chosen = IkeProposal::choose(&ours, &modp(policy), sent).expect("it is offered");
            assert_eq!(chosen.key_exchange, Method::Modp2048);
            assert!(!Method::Modp2048.is_post_quantum());
            // a curve is taken where there is one
            let theirs = IkeProposal::emit(&ours, &[]);
            let curve = IkeProposal::choose(&ours, &theirs, NONE).expect("common ones");
            assert_eq!(curve.key_exchange, Method::Curve25519);
        }
    }

    #[test]
    fn refuses_choices_that_were_not_offered() {
        let ours = offer(PostQuantum::Required);
        let chosen = choose(PostQuantum::Required, PostQuantum::Required).expect("the same");
        let good = chosen.answer.emit(ProtocolId::Ike, &[]);
        let accept = |change: fn(&mut Proposal<'_>)| {
            let mut changed = good.clone();
            change(&mut changed);
            IkeProposal::accept(&ours, &[changed]).is_some()
        };
        assert!(accept(|_| ()));
        assert!(!accept(|one| one.number = 2));
        assert!(!accept(|one| one.number = 0));
        assert!(!accept(|one| one.transforms[0].key_length = Some(192)));
        assert!(!accept(|one| one.transforms[0].key_length = None));
        assert!(!accept(|one| one.transforms.truncate(3)), "without ML-KEM");
        assert!(!accept(|one| one.transforms.push(Transform::new(99.into(), 1_u16))));
        assert!(!accept(|one| {
            let prf = TransformType::PseudorandomFunction;
            one.transforms.push(Transform::new(prf, Prf::HmacSha256.id()));
        }));
        assert_eq!(IkeProposal::accept(&ours, &[]), None);
        assert_eq!(IkeProposal::accept(&ours, &[good.clone(), good.clone()]), None);
    }

    #[test]
    fn none_is_understood_in_what_a_peer_offers() {
        let mut theirs = IkeProposal::emit(&offer(PostQuantum::Required), &[]);
        let addke = TransformType::AdditionalKeyExchange1;
        theirs[0].transforms.push(Transform::new(addke, KeyExchangeMethod::None));
        let chosen = IkeProposal::choose(&offer(PostQuantum::Off), &theirs, NONE);
        let chosen = chosen.expect("NONE is offered");
        assert!(chosen.additional.is_empty());
        assert!(chosen.answer.transforms.contains(&Transform::new(addke, 0_u16)));
    }

    #[test]
    fn separate_suites_do_not_combine() {
        let suites = ["aes-128-cbc+hmac-sha256", "aes-256-cbc+hmac-sha512", "aes-128-gcm"];
        let suites = suites.map(|suite| suite.parse::<Suite>().expect("a suite"));
        let ours = [ChildProposal {
            suites: suites.to_vec(),
            key_exchanges: vec![],
            additional: vec![],
            extended_sequence: vec![false],
        }];
        let wire = ChildProposal::emit(&ours, &[0, 0, 1, 0]);
        assert_eq!(wire.len(), 3);
        for (at, suite) in suites.into_iter().enumerate() {
            let chosen =
                ChildProposal::choose(&ours, &wire[at..=at], NONE).map(|(one, _)| one.suite);
            assert_eq!(chosen, Some(suite));
        }
        let mut mixed = wire[0].clone();
        mixed.transforms[1] = wire[1].transforms[1];
        assert_eq!(ChildProposal::choose(&ours, &[mixed], NONE), None);
    }
}
