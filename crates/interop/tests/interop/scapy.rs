//! Every combination against scapy.

use headroom_interop::case::{Case, Side};
use headroom_interop::ours::Ours;
use headroom_interop::peer::{Peers, required};
use headroom_interop::scapy::{Scapy, try_case};
use headroom_interop::trial::request;

fn scapy() -> Option<Scapy> {
    match Scapy::start(&Peers::from_environment()) {
        Ok(scapy) => Some(scapy),
        Err(why) => {
            assert!(!required(), "{why:#}");
            eprintln!("skipped: {why:#}");
            None
        }
    }
}

#[test]
fn every_combination_both_ways() {
    let Some(mut scapy) = scapy() else { return };
    let trials = Case::all().into_iter().map(|case| try_case(&mut scapy, case));
    let failures: Vec<String> = trials.flat_map(|trial| trial.failures()).collect();
    assert!(failures.is_empty(), "{} directions failed:\n{}", failures.len(), failures.join("\n"));
}

/// The check itself can fail.
#[test]
fn another_sequence_number_or_another_key_is_refused() {
    let Some(mut scapy) = scapy() else { return };
    let cases = Case::esp();
    let case = cases.iter().find(|case| case.extended).expect("a case with ESN");
    let other =
        cases.iter().find(|other| other.algorithms() != case.algorithms()).expect("another");
    let mut ours = Ours::new(case, 1 << 32).expect("our side");
    let sealed = ours.seal(&request(case, Side::Ours, 1, 1, b"data")).expect("a packet");
    scapy.open(case, Side::Ours, 1 << 32, &sealed).expect("its own number opens it");
    scapy.open(case, Side::Ours, 0, &sealed).expect_err("another upper half does not");
    scapy.open(other, Side::Ours, 1 << 32, &sealed).expect_err("nor does another key");
}
