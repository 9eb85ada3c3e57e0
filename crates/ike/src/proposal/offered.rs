//! A peer's proposal, from which transforms are taken into an answer.

use headroom_suite::Suite;

use super::Answer;
use super::transforms::transforms_of;
use crate::crypto::Method;
use crate::wire::{IntegrityId, KeyExchangeMethod, Proposal, Transform, TransformType};

/// A peer's proposal, from which transforms are taken.
pub(super) struct Offered<'a>(pub(super) &'a Proposal<'a>);

impl Offered<'_> {
    pub(super) fn has_only_types_of_ike(&self) -> bool {
        self.all_types(|one| !matches!(one, TransformType::SequenceNumbers))
    }

    pub(super) fn has_only_types_of_esp(&self) -> bool {
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

    pub(super) fn take(&self, transform: Transform, answer: &mut Answer) -> bool {
        let has = self.has(transform);
        if has {
            answer.transforms.push(transform);
        }
        has
    }

    /// Takes nothing of a type: it is absent, or NONE is among it.
    pub(super) fn none(&self, transform_type: TransformType, answer: &mut Answer) -> Option<()> {
        let none = Transform::new(transform_type, 0_u16);
        (!self.has_type(transform_type) || self.take(none, answer)).then_some(())
    }

    pub(super) fn suite(&self, ours: &[Suite], answer: &mut Answer) -> Option<Suite> {
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

    pub(super) fn method(
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

    pub(super) fn additional(
        &self,
        ours: &[Vec<Method>],
        answer: &mut Answer,
    ) -> Option<Vec<Method>> {
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
pub(super) fn is_one_choice(proposal: &Proposal<'_>) -> bool {
    let mut types: Vec<_> = proposal.transforms.iter().map(|one| one.transform_type).collect();
    types.sort_unstable();
    types.windows(2).all(|pair| pair[0] != pair[1])
}

pub(super) fn spi(proposal: &Proposal<'_>) -> Option<u32> {
    // 0 to 255 are reserved (RFC 4303 §2.1)
    proposal.spi.try_into().ok().map(u32::from_be_bytes).filter(|&spi| spi > 255)
}
