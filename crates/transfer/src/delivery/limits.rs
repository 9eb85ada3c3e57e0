//! Bounds that both ends of a delivery keep.

/// The most bytes of names of files with hard links. Further ones are sent as separate files.
pub(super) const MAX_LINKED_BYTES: usize = 16 << 20;
