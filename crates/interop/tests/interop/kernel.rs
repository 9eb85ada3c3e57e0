//! A selection of combinations against a real Linux kernel.

use std::path::Path;

use headroom_interop::case::Case;
use headroom_interop::kernel::{Emulators, KernelPeer};
use headroom_interop::peer::{Peers, kernel_required};

fn kernel() -> Option<KernelPeer> {
    let helper = Path::new(env!("CARGO_BIN_EXE_headroom-interop"));
    match KernelPeer::boot(&Peers::from_environment(), Emulators::Any, helper) {
        Ok(kernel) => Some(kernel),
        Err(why) => {
            assert!(!kernel_required(), "{why:#}");
            eprintln!("skipped: {why:#}");
            None
        }
    }
}

#[test]
fn a_selection_both_ways_and_hidden_lengths() {
    let Some(mut kernel) = kernel() else { return };
    let trials = Case::selection().into_iter().map(|case| kernel.try_case(case));
    let failures: Vec<String> = trials.flat_map(|trial| trial.failures()).collect();
    assert!(failures.is_empty(), "{} directions failed:\n{}", failures.len(), failures.join("\n"));
    kernel.try_hidden_lengths().unwrap_or_else(|why| panic!("{why:#}"));
}
