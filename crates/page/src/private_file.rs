//! Files with keys.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

/// Writes a file for its owner alone (0600, new folders 0700), as a whole or not at all.
pub(crate) fn write(path: &Path, text: &str) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
    }
    headroom_atomic_file::replace(path, text.as_bytes(), 0o600)
}
