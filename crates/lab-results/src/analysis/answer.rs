//! The answer in sentences.

use super::disturbance::Disturbance;
use super::sentence;
use super::sentence::read::CONDITIONS;
use crate::schema::{Portable, Results, WAITS};

/// Answers the question of a run: first what spoils the answer, then what each stack costs
/// anywhere and how secured stacks compare; where that is not known, what was measured on
/// the main link. The notes name sentences that the run's own cells contradict.
pub fn answer(results: &Results) -> (Vec<String>, Vec<String>) {
    let costs = sentence::of_costs(results);
    let mut answer: Vec<String> =
        Disturbance::of(&results.samples).headline().into_iter().collect();
    if costs.sentences.is_empty() {
        answer.extend(sentence::of_main_link(results));
    } else {
        answer.extend(costs.sentences);
        answer.push(conditions(results));
    }
    let mut notes = costs.notes;
    notes.extend(reasons(results));
    (answer, notes)
}

/// Of so many stacks the answer says what they encrypt with; of more the report does.
const MAX_NAMED: usize = 5;

/// Names what costs depend on, apart from the stacks.
fn conditions(results: &Results) -> String {
    let (plan, environment) = (&results.plan, &results.environment);
    let machine = match environment.hosts.len() {
        0 => format!("both sides on {} cores", environment.cores),
        _ => "these two hosts".to_owned(),
    };
    let offload = match plan.offload.as_str() {
        _ if !environment.hosts.is_empty() => "the offloads of the hosts",
        "on" => "offloads on (veth carries up to 64 KiB at once, without checksums)",
        _ => "offloads off",
    };
    let secured = plan.stacks.iter().filter(|stack| stack.baseline.is_some());
    let of_stack = |name: &String| {
        let facts = environment.stacks.get(name)?;
        let of = |fact: &str| {
            let named = |key: &str| key.rsplit(": ").next() == Some(fact);
            facts.iter().filter(|(key, _)| named(key)).map(|(_, value)| value.as_str()).collect()
        };
        let values: Vec<Vec<&str>> = ["encryption", "cipher"].map(of).into();
        let values = values.concat();
        Some(format!("; {} {}", name.to_uppercase(), values.join(", ")))
    };
    let stacks: Vec<String> = secured.filter_map(|stack| of_stack(&stack.name)).collect();
    let stacks = if stacks.len() > MAX_NAMED { String::new() } else { stacks.concat() };
    format!("{CONDITIONS}{machine}, {offload}, MTU {}{stacks}.", plan.mtu)
}

/// A wait below this needs no explanation.
const NOTEWORTHY_S: f64 = 0.010;

/// Why stacks wait whose sessions have a fixed part that is worth a word.
fn reasons(results: &Results) -> Vec<String> {
    let fixed = |name: &str| {
        results.portable.iter().find(|stack| stack.stack == name).and_then(|stack| stack.work_s)
    };
    let why = |name: &str| results.environment.stacks.get(name)?.get(WAITS);
    let reason = |stack: &Portable| {
        let base = stack.baseline.as_deref()?;
        let longer = fixed(&stack.stack)? - fixed(base)?;
        // what the baseline does as well explains no difference
        let why = why(&stack.stack).filter(|_| why(base).is_none())?;
        (longer >= NOTEWORTHY_S)
            .then(|| format!("Why {} waits: {why}.", stack.stack.to_uppercase()))
    };
    results.portable.iter().filter_map(reason).collect()
}
