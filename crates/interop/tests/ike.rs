//! Our IKEv2 against strongSwan's. This makes network namespaces, which needs root.

use headroom_interop::peer::{Peers, required};
use headroom_interop::strongswan::ike::{ESP_PROPOSALS, Starter, negotiate};

#[test]
fn strongswan_and_we_set_up_rekey_and_delete() {
    if !nix::unistd::geteuid().is_root() {
        assert!(!required(), "this test makes network namespaces, which needs root");
        eprintln!("skipped: this test makes network namespaces, which needs root");
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
