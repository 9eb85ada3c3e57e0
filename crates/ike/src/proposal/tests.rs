use super::*;

const NONE: KeyExchangeMethod = KeyExchangeMethod::None;

fn offer(policy: PostQuantum) -> Vec<IkeProposal> {
    IkeProposal::default_offer(policy)
}

fn choose(ours: PostQuantum, theirs: PostQuantum) -> Option<IkeChoice> {
    IkeProposal::choose(&offer(ours), &IkeProposal::emit(&offer(theirs), &[]), NONE)
}

#[test]
fn both_policies_decide_on_ml_kem() {
    use PostQuantum::{Off, Preferred, Required};
    for (ours, theirs, expected) in [
        (Required, Required, Some(true)),
        (Required, Preferred, Some(true)),
        (Preferred, Required, Some(true)),
        (Preferred, Preferred, Some(true)),
        (Preferred, Off, Some(false)),
        (Off, Preferred, Some(false)),
        (Off, Off, Some(false)),
        (Required, Off, None),
        (Off, Required, None),
    ] {
        let chosen = choose(ours, theirs);
        let is_post_quantum = chosen.as_ref().map(IkeChoice::is_post_quantum);
        assert_eq!(is_post_quantum, expected, "{ours:?} {theirs:?}");
        // what was chosen is accepted by who offered it, and by nobody else
        let Some(chosen) = chosen else { continue };
        let answer = [chosen.answer.emit(ProtocolId::Ike, &[])];
        assert_eq!(IkeProposal::accept(&offer(theirs), &answer), Some(chosen.clone()));
        if expected == Some(false) {
            assert_eq!(IkeProposal::accept(&offer(Required), &answer), None);
        }
    }
}

#[test]
fn the_key_exchange_that_was_sent_is_taken() {
    let theirs = offer(PostQuantum::Off);
    let theirs = IkeProposal::emit(&theirs, &[]);
    let chosen = |sent: Method| {
        let chosen = IkeProposal::choose(&offer(PostQuantum::Off), &theirs, sent.id());
        chosen.map(|choice| choice.key_exchange)
    };
    assert_eq!(chosen(Method::Ecp384), Some(Method::Ecp384));
    assert_eq!(chosen(Method::MlKem512), Some(Method::Curve25519));
}

#[test]
fn the_modp_group_is_for_who_asks_for_it() {
    let modp = |policy| {
        let mut offers = offer(policy);
        offers.iter_mut().for_each(|one| one.key_exchanges = vec![Method::Modp2048]);
        IkeProposal::emit(&offers, &[])
    };
    let sent = Method::Modp2048.id();
    for policy in [PostQuantum::Required, PostQuantum::Off] {
        assert_eq!(IkeProposal::choose(&offer(policy), &modp(policy), sent), None);
        let mut ours = offer(policy);
        ours.iter_mut().for_each(|one| one.key_exchanges.push(Method::Modp2048));
        let chosen = IkeProposal::choose(&ours, &modp(policy), sent).expect("it is offered");
        assert_eq!(chosen.key_exchange, Method::Modp2048);
        assert!(!Method::Modp2048.is_post_quantum());
        // a curve is taken where there is one
        let theirs = IkeProposal::emit(&ours, &[]);
        let curve = IkeProposal::choose(&ours, &theirs, NONE).expect("common ones");
        assert_eq!(curve.key_exchange, Method::Curve25519);
    }
}

#[test]
fn refuses_choices_that_were_not_offered() {
    let ours = offer(PostQuantum::Required);
    let chosen = choose(PostQuantum::Required, PostQuantum::Required).expect("the same");
    let good = chosen.answer.emit(ProtocolId::Ike, &[]);
    let accept = |change: fn(&mut Proposal<'_>)| {
        let mut changed = good.clone();
        change(&mut changed);
        IkeProposal::accept(&ours, &[changed]).is_some()
    };
    assert!(accept(|_| ()));
    assert!(!accept(|one| one.number = 2));
    assert!(!accept(|one| one.number = 0));
    assert!(!accept(|one| one.transforms[0].key_length = Some(192)));
    assert!(!accept(|one| one.transforms[0].key_length = None));
    assert!(!accept(|one| one.transforms.truncate(3)), "without ML-KEM");
    assert!(!accept(|one| one.transforms.push(Transform::new(99.into(), 1_u16))));
    assert!(!accept(|one| {
        let prf = TransformType::PseudorandomFunction;
        one.transforms.push(Transform::new(prf, Prf::HmacSha256.id()));
    }));
    assert_eq!(IkeProposal::accept(&ours, &[]), None);
    assert_eq!(IkeProposal::accept(&ours, &[good.clone(), good.clone()]), None);
}

#[test]
fn none_is_understood_in_what_a_peer_offers() {
    let mut theirs = IkeProposal::emit(&offer(PostQuantum::Required), &[]);
    let addke = TransformType::AdditionalKeyExchange1;
    theirs[0].transforms.push(Transform::new(addke, KeyExchangeMethod::None));
    let chosen = IkeProposal::choose(&offer(PostQuantum::Off), &theirs, NONE);
    let chosen = chosen.expect("NONE is offered");
    assert!(chosen.additional.is_empty());
    assert!(chosen.answer.transforms.contains(&Transform::new(addke, 0_u16)));
}

#[test]
fn separate_suites_do_not_combine() {
    let suites = ["aes-128-cbc+hmac-sha256", "aes-256-cbc+hmac-sha512", "aes-128-gcm"];
    let suites = suites.map(|suite| suite.parse::<Suite>().expect("a suite"));
    let ours = [ChildProposal {
        suites: suites.to_vec(),
        key_exchanges: vec![],
        additional: vec![],
        extended_sequence: vec![false],
    }];
    let wire = ChildProposal::emit(&ours, &[0, 0, 1, 0]);
    assert_eq!(wire.len(), 3);
    for (at, suite) in suites.into_iter().enumerate() {
        let chosen = ChildProposal::choose(&ours, &wire[at..=at], NONE).map(|(one, _)| one.suite);
        assert_eq!(chosen, Some(suite));
    }
    let mut mixed = wire[0].clone();
    mixed.transforms[1] = wire[1].transforms[1];
    assert_eq!(ChildProposal::choose(&ours, &[mixed], NONE), None);
}
