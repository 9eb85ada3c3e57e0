//! Setting up IKE SAs.

use headroom_ike::PostQuantum;

use crate::world::{A, B, World, configs};

#[test]
fn sets_up_with_ml_kem_by_default() {
    let world = World::established(PostQuantum::default(), 1);
    world.check_agreement(1);
    assert_eq!(world.hosts[A].post_quantum, Some(true));
    assert_eq!(world.hosts[B].post_quantum, Some(true));
    // IKE_SA_INIT, IKE_INTERMEDIATE in two fragments and one, IKE_AUTH
    assert_eq!(world.sent, 2 + 3 + 2);
}

#[test]
fn falls_back_only_where_policy_says_so() {
    use PostQuantum::{Off, Preferred, Required};
    for (a, b, post_quantum) in [(Preferred, Off, Some(false)), (Required, Off, None)] {
        let [config_a, _] = configs(a);
        let [_, config_b] = configs(b);
        let mut world = World::new([config_a, config_b], 2);
        world.connect(A);
        world.settle();
        assert_eq!(world.hosts[A].post_quantum, post_quantum, "{a:?} {b:?}");
    }
}
