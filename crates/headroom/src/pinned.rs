//! `headroom lab parts`, and measuring what it fetched.

use std::process::ExitCode;

use headroom_lab_host::programs::{Program, SearchPath};
use headroom_lab_parts::Tree;
use headroom_units as units;
use indicatif::{ProgressBar, ProgressStyle};

/// Fetches the tree.
pub(crate) fn fetch(archive: &str) -> anyhow::Result<ExitCode> {
    let tree = SearchPath::from_environment().pinned_tree();
    let (packages, bytes) = Tree::size();
    let name = Tree::name();
    if tree.is_current() {
        println!("{name} is in {} already.", tree.path().display());
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!("headroom: fetching {packages} packages of {name}, {}", units::size(bytes));
    let bar = ProgressBar::new(bytes);
    let shown = "{elapsed_precise} {bar:30} {bytes}/{total_bytes} {bytes_per_sec}";
    bar.set_style(ProgressStyle::with_template(shown)?);
    let fetched = tree.fetch(archive, &|arrived| bar.set_position(arrived));
    bar.finish_and_clear();
    fetched?;
    println!(
        "{name} is in {}: `headroom lab run` measures its programs from now on, with --host-programs \
         those of this machine.",
        tree.path().display()
    );
    Ok(ExitCode::SUCCESS)
}

/// Begins this program again among the pinned programs, where they are there and have all that is
/// needed; returns otherwise.
pub(crate) fn enter_if_possible(needed: &[Program]) -> anyhow::Result<()> {
    let tree = SearchPath::from_environment().pinned_tree();
    if headroom_lab_parts::entered().is_some() || !tree.is_current() {
        return Ok(());
    }
    let mut lacks: Vec<&str> =
        needed.iter().map(|program| program.name).filter(|name| !tree.has(name)).collect();
    lacks.sort_unstable();
    lacks.dedup();
    if !lacks.is_empty() {
        eprintln!(
            "headroom: {} has no {}: measuring this machine's programs",
            Tree::name(),
            lacks.join(", ")
        );
        return Ok(());
    }
    match headroom_lab_parts::enter(&tree)? {}
}
