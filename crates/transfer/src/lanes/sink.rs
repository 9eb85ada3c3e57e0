//! Where files that come on lanes go.

use std::sync::Arc;

/// Receives files on a lane.
pub(crate) trait Sink: Send + Sync {
    /// Returns where bytes of a file go; `None` if it is not being received.
    fn target(&self, file: u32) -> Option<Arc<dyn Target>>;
}

/// A file that is being received. It handles its errors itself.
pub(crate) trait Target: Send + Sync {
    /// Returns the file's size in bytes.
    fn size(&self) -> u64;
    /// Writes bytes, in any order; some may arrive twice.
    fn write(&self, offset: u64, bytes: &[u8]);
}
