//! A selection of combinations against a real Linux kernel.

use std::path::Path;

use headroom_interop::case::Case;
use headroom_interop::kernel::{Emulators, KernelPeer};
use headroom_interop::peer::{Peers, required};

#[test]
fn a_selection_both_ways() {
    let helper = Path::new(env!("CARGO_BIN_EXE_headroom-interop"));
    let mut kernel = match KernelPeer::boot(&Peers::from_environment(), Emulators::Any, helper) {
        Ok(kernel) => kernel,
        Err(why) => {
            assert!(!required(), "{why:#}");
            eprintln!("skipped: {why:#}");
            return;
        }
    };
    let trials = Case::selection().into_iter().map(|case| kernel.try_case(case));
    let failures: Vec<String> = trials.flat_map(|trial| trial.failures()).collect();
    assert!(failures.is_empty(), "{} directions failed:\n{}", failures.len(), failures.join("\n"));
}
