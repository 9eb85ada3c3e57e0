//! Our whole gateway against strongSwan and against a real kernel. These make
//! network namespaces, which needs root, and start `headroom`, which cargo builds
//! beside this crate's own program when it tests the workspace.

use std::path::{Path, PathBuf};

use headroom_interop::kernel::{Emulators, EndToEnd, end_to_end_cases, ping_cases};
use headroom_interop::peer::{BUSYBOX, Peers, kernel_required, required};
use headroom_interop::strongswan::{Proposal, join};

const HELPER: &str = env!("CARGO_BIN_EXE_headroom-interop");

/// The program `headroom`; where tests are not required, nothing without root.
fn headroom() -> Option<PathBuf> {
    let path = Path::new(HELPER).with_file_name("headroom");
    if !nix::unistd::geteuid().is_root() {
        assert!(!required(), "this test makes network namespaces, which needs root");
        eprintln!("skipped: this test makes network namespaces, which needs root");
        return None;
    }
    assert!(path.is_file(), "there is no {}: cargo build -p headroom", path.display());
    Some(path)
}

#[test]
fn files_cross_strongswan_both_ways() {
    let Some(headroom) = headroom() else { return };
    let peers = Peers::from_environment();
    for proposal in Proposal::ALL {
        join(&peers, &headroom, proposal)
            .unwrap_or_else(|why| panic!("{}: {why:#}", proposal.suite()));
    }
}

#[test]
fn files_cross_a_real_kernel_both_ways() {
    let Some(headroom) = headroom() else { return };
    let mut kernel =
        match EndToEnd::boot(&Peers::from_environment(), Emulators::Any, Path::new(HELPER)) {
            Ok(kernel) => kernel,
            Err(why) => {
                assert!(!kernel_required(), "{why:#}");
                eprintln!("skipped: {why:#}");
                return;
            }
        };
    for case in end_to_end_cases() {
        kernel.try_case(&headroom, &case).unwrap_or_else(|why| panic!("{why:#}"));
    }
    let busybox = Peers::from_environment().locate(BUSYBOX).expect("it was booted with");
    for case in ping_cases() {
        let pinged = kernel.try_pings(&headroom, &busybox.path, &case);
        pinged.unwrap_or_else(|why| panic!("{case}: {why:#}"));
    }
}
