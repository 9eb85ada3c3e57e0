//! Where files that come on lanes go.

use std::sync::Arc;

/// Who takes in files that come on a lane.
pub(crate) trait Sink: Send + Sync {
    /// Where octets of a file go; none where it is not taken in.
    fn target(&self, file: u32) -> Option<Arc<dyn Target>>;
}

/// A file that is taken in. It deals with its errors itself.
pub(crate) trait Target: Send + Sync {
    /// Octets of the whole file.
    fn size(&self) -> u64;
    /// Writes octets, in whatever order they come; some may come again.
    fn write(&self, offset: u64, octets: &[u8]);
}
