//! Directories of the servers, as listings have them.

use std::sync::Arc;

use headroom_transfer_proto::path::RelPath;

use crate::delivery::make_directories_as;
use crate::files::{self, Root};

/// A directory below one that was named.
#[derive(Debug, Clone)]
pub(super) struct ListedDirectory {
    /// Its path below the one that was named.
    pub(super) path: RelPath,
    /// The permissions of each component of the path.
    modes: Arc<[u32]>,
}

impl ListedDirectory {
    /// Makes one of what the listing of `above` has.
    pub(super) fn new(above: Option<&Self>, path: RelPath, mode: u32) -> Self {
        let above = above.into_iter().flat_map(|above| above.modes.iter().copied());
        Self { path, modes: above.chain([mode]).collect() }
    }

    /// Makes it below a root, and what is missing of its parents. All have the servers' permissions
    /// before a file is in them, and not only when the last request sets their modes: nobody else
    /// reads files of a private directory meanwhile. Blocks.
    ///
    /// # Errors
    /// Something else has the name of one, or it cannot be made.
    pub(super) fn make(&self, root: &Root) -> Result<(), files::Error> {
        let mode = |path: &RelPath| {
            let depth = path.components().count();
            self.modes.get(depth - 1).copied().unwrap_or(0o700)
        };
        make_directories_as(root, &self.path, &mode)
    }
}
