//! Requests under way, each with its state.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use headroom_suite::Key;

use crate::config::{ChildConfig, Mode};
use crate::crypto::{KeyExchange, Method, Spis};
use crate::event::ChildId;
use crate::path::Path;
use crate::proposal::{ChildChoice, IkeChoice};
use crate::wire::{ExchangeType, NotifyType, TrafficSelector};

/// A request of ours that was not answered yet.
#[derive(Debug)]
pub(crate) enum Exchange {
    /// IKE_SA_INIT.
    Init(Box<Init>),
    /// IKE_INTERMEDIATE, with an additional key exchange unless it is for a pre-shared key alone.
    Intermediate(Option<Box<KeyExchange>>),
    /// IKE_AUTH, with the first CHILD SA.
    Auth(Option<ChildOffer>),
    /// CREATE_CHILD_SA.
    Create(Box<Create>),
    /// IKE_FOLLOWUP_KE.
    Followup(Box<Followup>),
    /// INFORMATIONAL that deletes a CHILD SA.
    DeleteChild(ChildId),
    /// INFORMATIONAL that deletes the IKE SA.
    DeleteIke,
    /// INFORMATIONAL that deletes what the peer made and we did not take.
    DeleteUnused,
    /// INFORMATIONAL that asks for a sign of life.
    Liveness,
    /// INFORMATIONAL that tells our new address.
    UpdateAddresses(Path),
    /// INFORMATIONAL with a cookie that the peer sends back from its new address.
    Routability(Path, Vec<u8>),
}

/// IKE_SA_INIT.
#[derive(Debug)]
pub(crate) struct Init {
    pub(crate) key_exchange: KeyExchange,
    pub(crate) nonce: Vec<u8>,
    pub(crate) cookie: Vec<u8>,
    /// How often it was started again.
    pub(crate) restarts: u32,
    /// A refusal that anybody could have sent, and when it is believed (RFC 7296 §2.21.1).
    pub(crate) refusal: Option<(NotifyType, Instant)>,
}

/// A CHILD SA that we propose.
#[derive(Clone, Debug)]
pub(crate) struct ChildOffer {
    pub(crate) config: Arc<ChildConfig>,
    pub(crate) replaces: Option<ChildId>,
    /// What we propose: of a rekey, what the replaced one has.
    pub(crate) local: Vec<TrafficSelector>,
    pub(crate) remote: Vec<TrafficSelector>,
    pub(crate) spi: u32,
    pub(crate) group: Group,
}

/// The part of a CHILD SA in a group with the same selectors (RFC 9611).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum Group {
    /// It has no group.
    #[default]
    None,
    /// It is for all packets that no other of the group is for.
    First,
    /// It is for this resource.
    Resource(u32),
}

/// CREATE_CHILD_SA.
#[derive(Debug)]
pub(crate) struct Create {
    pub(crate) offer: Offer,
    pub(crate) nonce: Vec<u8>,
    pub(crate) key_exchange: Option<KeyExchange>,
    /// The methods that were asked with before, and refused for another.
    pub(crate) refused: Vec<Method>,
    pub(crate) collision: Collision,
}

/// What CREATE_CHILD_SA is to make.
#[derive(Debug)]
pub(crate) enum Offer {
    Child(ChildOffer),
    /// An IKE SA, with our new SPI.
    Ike(u64),
}

/// IKE_FOLLOWUP_KE.
#[derive(Debug)]
pub(crate) struct Followup {
    pub(crate) agreement: Agreement,
    pub(crate) key_exchange: KeyExchange,
    pub(crate) collision: Collision,
}

/// The lower nonce of the peer's exchange that rekeys what ours rekeys (RFC 7296 §2.8.1).
pub(crate) type Collision = Option<Vec<u8>>;

/// As responder: a CREATE_CHILD_SA that waits for IKE_FOLLOWUP_KE (RFC 9370 §2.2.4).
#[derive(Debug)]
pub(crate) struct ExpectedFollowup {
    pub(crate) agreement: Agreement,
    /// What the initiator sends back to name it.
    pub(crate) link: Vec<u8>,
    pub(crate) expires_at: Instant,
}

/// What both sides of a CREATE_CHILD_SA agreed on.
#[derive(Debug)]
pub(crate) struct Agreement {
    pub(crate) draft: Draft,
    /// Whether we sent the request.
    pub(crate) initiated: bool,
    pub(crate) nonce_initiator: Vec<u8>,
    pub(crate) nonce_responder: Vec<u8>,
    pub(crate) secrets: Vec<Key>,
    /// The key exchanges that are left.
    pub(crate) remaining: VecDeque<Method>,
}

/// What is made when all key exchanges are done.
#[derive(Debug)]
pub(crate) enum Draft {
    Child(ChildDraft),
    Ike(IkeDraft),
}

/// A CHILD SA without keys.
#[derive(Debug)]
pub(crate) struct ChildDraft {
    pub(crate) config: Arc<ChildConfig>,
    pub(crate) replaces: Option<ChildId>,
    pub(crate) choice: ChildChoice,
    pub(crate) mode: Mode,
    /// Q-ESP's IP protocol number, if it is used.
    pub(crate) qesp: Option<u8>,
    pub(crate) spi_inbound: u32,
    pub(crate) spi_outbound: u32,
    pub(crate) local: Vec<TrafficSelector>,
    pub(crate) remote: Vec<TrafficSelector>,
    pub(crate) group: Group,
}

/// An IKE SA without keys.
#[derive(Debug)]
pub(crate) struct IkeDraft {
    pub(crate) choice: IkeChoice,
    pub(crate) spis: Spis,
}

/// What an exchange replaces.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Target {
    Child(ChildId),
    Ike,
}

impl Group {
    pub(crate) fn resource(self) -> Option<u32> {
        match self {
            Self::Resource(number) => Some(number),
            Self::None | Self::First => None,
        }
    }

    /// Returns the data of SA_RESOURCE_INFO, if it is sent. To the peer they mean nothing.
    pub(crate) fn info(self) -> Option<Vec<u8>> {
        match self {
            Self::None => None,
            Self::First => Some(Vec::new()),
            Self::Resource(number) => Some(number.to_be_bytes().to_vec()),
        }
    }
}

impl Exchange {
    /// Returns what it is for.
    pub(crate) fn exchange_type(&self) -> ExchangeType {
        match self {
            Self::Init(_) => ExchangeType::IkeSaInit,
            Self::Intermediate(_) => ExchangeType::IkeIntermediate,
            Self::Auth(_) => ExchangeType::IkeAuth,
            Self::Create(_) => ExchangeType::CreateChildSa,
            Self::Followup(_) => ExchangeType::IkeFollowupKe,
            Self::DeleteChild(_)
            | Self::DeleteIke
            | Self::DeleteUnused
            | Self::Liveness
            | Self::UpdateAddresses(_)
            | Self::Routability(..) => ExchangeType::Informational,
        }
    }

    /// Returns what it replaces.
    pub(crate) fn target(&self) -> Option<Target> {
        match self {
            Self::Create(create) => match &create.offer {
                Offer::Child(offer) => offer.replaces.map(Target::Child),
                Offer::Ike(_) => Some(Target::Ike),
            },
            Self::Followup(followup) => followup.agreement.target(),
            _ => None,
        }
    }

    /// Checks whether it makes or removes a CHILD SA, so that the IKE SA must not be rekeyed (RFC
    /// 7296 §2.25.2).
    pub(crate) fn is_about_child(&self) -> bool {
        self.is_making_child() || matches!(self, Self::DeleteChild(_) | Self::DeleteUnused)
    }

    /// Checks whether it makes a CHILD SA.
    pub(crate) fn is_making_child(&self) -> bool {
        match self {
            Self::Create(create) => matches!(create.offer, Offer::Child(_)),
            Self::Followup(followup) => matches!(followup.agreement.draft, Draft::Child(_)),
            _ => false,
        }
    }

    pub(crate) fn collision(&mut self) -> Option<&mut Collision> {
        match self {
            Self::Create(create) => Some(&mut create.collision),
            Self::Followup(followup) => Some(&mut followup.collision),
            _ => None,
        }
    }
}

impl Agreement {
    /// Returns the lower nonce.
    pub(crate) fn lowest(&self) -> &[u8] {
        self.nonce_initiator.as_slice().min(&self.nonce_responder)
    }

    pub(crate) fn target(&self) -> Option<Target> {
        match &self.draft {
            Draft::Child(draft) => draft.replaces.map(Target::Child),
            Draft::Ike(_) => Some(Target::Ike),
        }
    }

    /// Checks whether the exchange with the lowest of the four nonces is ours: then what it makes is
    /// redundant, and we remove it (RFC 7296 §2.8.1).
    pub(crate) fn loses(&self, collision: &Collision) -> bool {
        collision.as_ref().is_some_and(|theirs| self.lowest() < theirs.as_slice())
    }
}
