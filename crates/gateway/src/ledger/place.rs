//! Where a ledger and its witness are.

use std::path::{Path, PathBuf};

use super::book;
use super::disk::{Disk, RealDisk};

/// The folder of the witness where the configuration names none.
pub const WITNESS_FOLDER: &str = "/var/lib/headroom";

/// Where a ledger and its witness are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The ledger's file, beside the configuration.
    pub ledger: PathBuf,
    /// The folder of the witness.
    pub witness_folder: PathBuf,
    /// The tunnel's name; the witness is named by it.
    pub name: String,
}

impl Place {
    /// The ledger, and the witnesses in its folder: of this tunnel and of others.
    #[must_use]
    pub fn files(&self) -> Vec<PathBuf> {
        let beside = RealDisk.files(&self.witness_folder).unwrap_or_default();
        let witnesses = beside.into_iter().filter(|path| is_a_ledger(path));
        witnesses.chain([self.ledger.clone()]).collect()
    }
}

pub(super) fn is_a_ledger(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "ledger")
}

pub(super) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

pub(super) fn witness_name(name: &str, id: &[u8; 16]) -> String {
    let mut file = format!("{name}-");
    let _ = book::write_hex(&mut file, &id[..8]);
    file + ".ledger"
}
