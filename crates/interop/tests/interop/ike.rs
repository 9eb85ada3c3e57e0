//! Our IKEv2 against other daemons. These make network namespaces, which needs root, and start
//! `headroom`, which cargo builds beside this crate's own program when it tests the workspace.

use std::path::{Path, PathBuf};

use headroom_interop::ike::scapy::try_exchanges;
use headroom_interop::ike::{Peer, Side, StrongSwan, Trial, attempt, try_examples};
use headroom_interop::peer::{Peers, required};
use headroom_interop::pki::KeyKind;
use headroom_interop::strongswan::ike::{ESP_PROPOSALS, Starter, negotiate};
use headroom_interop::strongswan::road_warrior::Method;
use headroom_interop::trial::Outcome;

/// The program `headroom`; where tests are not required, nothing without root.
fn headroom() -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_BIN_EXE_headroom-interop")).with_file_name("headroom");
    if !nix::unistd::geteuid().is_root() {
        assert!(!required(), "this test makes network namespaces, which needs root");
        eprintln!("skipped: this test makes network namespaces, which needs root");
        return None;
    }
    assert!(path.is_file(), "there is no {}: cargo build -p headroom", path.display());
    Some(path)
}

#[test]
fn strongswan_and_we_set_up_rekey_and_delete() {
    if headroom().is_none() {
        return;
    }
    let peers = Peers::from_environment();
    for starter in [Starter::Ours, Starter::Theirs] {
        for esp_proposals in ESP_PROPOSALS {
            negotiate(&peers, starter, esp_proposals)
                .unwrap_or_else(|why| panic!("{starter:?}, {esp_proposals}: {why:#}"));
        }
    }
}

#[test]
fn strongswan_is_a_client_with_eap_and_an_address_of_our_pool() {
    let Some(headroom) = headroom() else { return };
    let mut peer = StrongSwan::of_programs(&Peers::from_environment()).expect("strongSwan");
    for method in [Method::MsChapV2, Method::Tls] {
        passes(&mut peer, &headroom, Trial::Eap(method));
    }
}

/// What is tried here with every daemon; `make interop` tries the rest.
const QUICK: [Trial; 5] = [
    Trial::PostQuantumByUs,
    Trial::Fragments,
    Trial::ChildRekeyByThem,
    Trial::IkeRekeyByUs,
    Trial::DeleteByThem,
];

#[test]
fn packets_cross_strongswan_5_with_keys_of_ike() {
    let Some(headroom) = headroom() else { return };
    let mut peer = StrongSwan::of_programs(&Peers::from_environment()).expect("strongSwan");
    for trial in [Trial::TheyInitiate, Trial::IkeRekeyByThem] {
        passes(&mut peer, &headroom, trial);
    }
}

#[test]
fn packets_cross_strongswan_6_with_post_quantum_keys() {
    let Some(headroom) = headroom() else { return };
    let mut peer = match StrongSwan::of_tree(&Peers::from_environment()) {
        Ok(peer) => peer,
        Err(why) => {
            // the archive may have dropped its versions, and has it for x86-64 alone
            eprintln!("skipped: {why:#}");
            return;
        }
    };
    for trial in QUICK {
        passes(&mut peer, &headroom, trial);
    }
}

/// Each kind of key in one role; `make interop` tries the other role.
#[test]
fn strongswan_5_and_we_prove_who_we_are() {
    let Some(headroom) = headroom() else { return };
    let mut peer = StrongSwan::of_programs(&Peers::from_environment()).expect("strongSwan");
    for trial in [
        Trial::Certificates(KeyKind::EcdsaP256, Side::Ours),
        Trial::Certificates(KeyKind::EcdsaP384, Side::Theirs),
        Trial::Certificates(KeyKind::Ed25519, Side::Ours),
        Trial::Certificates(KeyKind::Rsa, Side::Theirs),
    ] {
        passes(&mut peer, &headroom, trial);
    }
}

#[test]
fn scapy_as_an_initiator_finds_what_it_must() {
    let Some(headroom) = headroom() else { return };
    let checks = match try_exchanges(&Peers::from_environment(), &headroom) {
        Ok(checks) => checks,
        Err(why) => {
            assert!(!required(), "{why:#}");
            eprintln!("skipped: {why:#}");
            return;
        }
    };
    let failed: Vec<_> = checks.iter().filter(|check| check.outcome != Outcome::Passed).collect();
    assert!(failed.is_empty(), "{failed:#?}");
}

#[test]
fn the_examples_of_the_guide_make_a_tunnel_with_strongswan() {
    let Some(headroom) = headroom() else { return };
    let peers = Peers::from_environment();
    if let Err(why) = StrongSwan::of_tree(&peers) {
        eprintln!("skipped: {why:#}");
        return;
    }
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/tunnel.md");
    let guide = std::fs::read_to_string(guide).expect("docs/tunnel.md");
    try_examples(&peers, &headroom, &guide).unwrap_or_else(|why| panic!("{why:#}"));
}

fn passes(peer: &mut dyn Peer, headroom: &Path, trial: Trial) {
    match attempt(peer, headroom, trial) {
        Outcome::Passed => {}
        // strongSwan 5 has all that it is asked for here, or `make parts` was not run
        Outcome::Lacks(why) => {
            assert!(!required() || !peer.title().contains(" 5"), "{trial}: {why}");
            eprintln!("skipped: {}: {trial}: {why}", peer.title());
        }
        Outcome::Failed(why) => panic!("{}: {trial}: {why}", peer.title()),
    }
}
