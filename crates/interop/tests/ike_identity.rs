//! Our IKEv2 and strongSwan's daemon prove to each other who they are. These make network namespaces,
//! which needs root.

use headroom_interop::peer::{Peers, required};
use headroom_interop::strongswan::identity::{Proof, authenticate};
use headroom_interop::strongswan::ike::Starter;

#[test]
fn strongswan_and_we_prove_who_we_are() {
    if !nix::unistd::geteuid().is_root() {
        assert!(!required(), "this test makes network namespaces, which needs root");
        eprintln!("skipped: this test makes network namespaces, which needs root");
        return;
    }
    let peers = Peers::from_environment();
    for proof in Proof::ALL {
        let starters: &[Starter] = match proof.is_eap() {
            true => &[Starter::Theirs],
            false => &[Starter::Ours, Starter::Theirs],
        };
        for starter in starters {
            let lacks = authenticate(&peers, *starter, proof)
                .unwrap_or_else(|why| panic!("{proof:?}, started by {starter:?}: {why:#}"));
            if let Some(lacks) = lacks {
                assert!(!required(), "{proof:?}: strongSwan lacks {lacks}: make parts");
                eprintln!("skipped: {proof:?}: strongSwan lacks {lacks}");
            }
        }
    }
}
