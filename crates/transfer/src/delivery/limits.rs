//! Bounds that both ends of a delivery keep.

/// Bytes of the names of files that have others. Further ones are sent as files of their
/// own.
pub(super) const MOST_LINKED_BYTES: usize = 16 << 20;
