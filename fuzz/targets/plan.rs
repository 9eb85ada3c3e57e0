//! Any text as a plan: what is accepted is recorded, and its record is a plan.
#![no_main]

use headroom_lab::plan::Plan;
use headroom_lab::results::PlanRecord;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok(plan) = Plan::from_toml(text, "fuzz.toml") else { return };
    let record = PlanRecord::of(&plan);
    let again = record.plan().expect("a recorded plan");
    assert_eq!(record.differences(&again), Vec::<String>::new());
});
