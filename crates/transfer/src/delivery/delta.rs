//! Whether a sync searches changed files for content that the receiver has.

/// The least size in bytes of files that [`Delta::Auto`] searches. A search costs a round trip or
/// two, and in that time a shorter file is sent.
const WORTH_A_ROUND_TRIP: u64 = 1 << 20;

/// Whether a sync searches within the spans of a file that changed: for blocks that did not, and
/// for content that moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Delta {
    /// In files of 1 MiB and more.
    #[default]
    Auto,
    /// In all files of more than 64 KiB.
    On,
    /// Never: spans of 1 MiB that changed are sent as a whole.
    Off,
}

impl Delta {
    /// Whether files of this size in bytes are searched.
    pub(super) fn covers(self, size: u64) -> bool {
        match self {
            Self::Auto => size >= WORTH_A_ROUND_TRIP,
            Self::On => true,
            Self::Off => false,
        }
    }
}
