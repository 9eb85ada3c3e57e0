//! What share a sender takes beside others.

use minicbor::{Decode, Encode};

/// A sender's share of a link that others use, too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum Priority {
    /// What others leave, as LEDBAT does (RFC 6817).
    #[n(0)]
    Scavenger,
    /// About as much as one TCP connection; less where the queue is long.
    #[default]
    #[n(1)]
    Normal,
    /// Up to as much as two.
    #[n(2)]
    High,
}

impl Priority {
    /// All, each at the place of its number.
    pub const ALL: [Self; 3] = [Self::Scavenger, Self::Normal, Self::High];

    /// Returns how many TCP connections its window is worth.
    pub(super) fn flows(self) -> f64 {
        if self == Self::High { 2.0 } else { 1.0 }
    }
}
