//! The result of deleting partial files that were not resumed.

/// The result of a cleanup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CleanupStats {
    /// Deleted files.
    pub removed: u64,
    /// Bytes that they used.
    pub bytes: u64,
    /// Files that stay: younger ones, open ones, and those of other users.
    pub left: u64,
}
