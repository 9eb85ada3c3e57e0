//! Checks that imports between the workspace's files point downwards.
//!
//! `source` reads modules, their items and the paths they mention; `resolve` follows each
//! path, through re-exports, to the file that defines it; `circles` and `layers` judge the
//! graph. Code under `#[cfg(test)]` is left out: a test may join what is above with what
//! is below.
//!
//! A module lies inside its ancestors, so what their files define is its own context: using
//! it closes no circle. A re-export only gives an item another address: it is no import.

mod circles;
mod layers;
mod resolve;
mod source;

use std::path::Path;

/// Checks the workspace at `root` and returns a sentence for each violation.
///
/// # Errors
/// A file cannot be read or parsed, or `layers.toml` is missing or malformed.
pub fn check(root: &Path) -> anyhow::Result<Vec<String>> {
    let workspace = source::Workspace::read(root)?;
    let imports = resolve::imports(&workspace);
    let mut problems = circles::problems(&workspace, &imports);
    problems.extend(layers::Layers::read(root)?.problems(&workspace, &imports));
    Ok(problems)
}
