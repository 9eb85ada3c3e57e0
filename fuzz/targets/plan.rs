//! Any text as a plan: what is accepted is recorded, and its record is a plan.
#![no_main]

use headroom_lab::plan::Plan;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok(plan) = Plan::from_toml(text, "fuzz.toml") else { return };
    let record = plan.record();
    let again = Plan::of_record(&record).expect("a recorded plan");
    assert_eq!(again.differences_from(&record), Vec::<String>::new());
});
