//! `lab clean`: removes what a killed run left behind. A run that ends by
//! itself, by an error or by Ctrl-C leaves nothing.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::error::{Doing, Result};
use crate::resources::cgroup;
use crate::scratch;

/// Ends the processes and removes the control groups and scratch folders of
/// runs in `parent` whose own process is gone. Returns what was removed.
///
/// # Errors
/// Something could not be removed.
pub fn clean(parent: &Path) -> Result<Vec<String>> {
    let mut removed = Vec::new();
    let parents: BTreeSet<PathBuf> =
        cgroup::mounted().into_iter().chain(cgroup::parent()).collect();
    let groups: Vec<_> = parents.iter().flat_map(|parent| cgroup::of_runs(parent)).collect();
    let abandoned = scratch::abandoned(parent)?;
    for (id, path) in &groups {
        let dead = abandoned.iter().any(|(other, _)| other == id);
        if dead {
            cgroup::kill_and_remove(path).doing(|| format!("remove {}", path.display()))?;
            removed.push(format!("control group {}", path.display()));
        }
    }
    for (_, path) in &abandoned {
        scratch::remove(path).doing(|| format!("remove {}", path.display()))?;
        removed.push(format!("scratch folder {}", path.display()));
    }
    Ok(removed)
}
