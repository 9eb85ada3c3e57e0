//! Where a ledger and its second copy are.

use std::path::{Path, PathBuf};

use super::disk::{Disk, RealDisk};

/// The folder of the second copy where the configuration names none.
pub const COPY_FOLDER: &str = "/var/lib/headroom";

/// Where a ledger and its second copy are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LedgerPaths {
    /// The ledger's file, beside the configuration.
    pub ledger: PathBuf,
    /// The folder of the copy.
    pub copy_folder: PathBuf,
    /// The tunnel's name, with which the second copy's name begins.
    pub name: String,
}

impl LedgerPaths {
    /// Lists the ledger and every second copy in its folder, other tunnels' included.
    #[must_use]
    pub fn files(&self) -> Vec<PathBuf> {
        let beside = RealDisk.files(&self.copy_folder).unwrap_or_default();
        let copies = beside.into_iter().filter(|path| is_ledger(path));
        copies.chain([self.ledger.clone()]).collect()
    }
}

pub(super) fn is_ledger(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "ledger")
}

pub(super) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Returns the name of the second copy's file: the tunnel's, and half of the ledger's id.
pub(super) fn copy_name(name: &str, id: u128) -> String {
    format!("{name}-{:016x}.ledger", id >> 64)
}
