//! Fits a plan to a time: its repetitions, then its sizes.

use std::time::Duration;

use headroom_lab_host::error::{Error, Result};
use headroom_lab_results::analysis::stats::MIN_RUNS;

use super::estimate::{expected_time, rounded};
use crate::plan::Plan;
use crate::units;

/// More repetitions narrow an interval little: it shrinks with their square root.
const MAX_REPETITIONS: u32 = 100;
/// Times are estimated for a machine that was never measured, and half of all runs take longer:
/// three quarters of them less than this.
const MARGIN: f64 = 1.4;
/// Of a run that is under way the machine is known, but not how long packets are counted and
/// links are checked.
const MARGIN_UNDER_WAY: f64 = 1.1;
/// What was left of the time is spent on more blocks, up to so many times the planned ones: for
/// these there is room on the disk.
pub(super) const MAX_ROUNDS: u32 = 2;

/// Sets the repetitions of a plan to as many as fit into a time, and says so. Where not even the
/// fewest that support a comparison fit, its largest sizes are left out.
///
/// # Errors
/// [`Error::Plan`]: its smallest sizes do not fit.
pub fn fit(plan: &mut Plan, time: Duration) -> Result<String> {
    let fewest = MIN_RUNS as u32;
    let mut left_out = Vec::new();
    plan.until = None;
    loop {
        if let Some(repetitions) = most_that_fit(plan, fewest, time)? {
            plan.set_repetitions(repetitions)?;
            let sizes = match left_out.len() {
                0 => String::new(),
                _ => format!(", without {}", left_out.join(", ")),
            };
            return Ok(format!("{repetitions} repetitions fit into {}{sizes}", rounded(time)));
        }
        plan.set_repetitions(fewest)?;
        let least = expected_time(plan).mul_f64(MARGIN);
        let Some(size) = drop_largest(plan) else {
            return Err(Error::Plan(format!(
                "{} is too little time: with {fewest} repetitions and its smallest sizes this plan may take {}; give \
                 it --minutes {}",
                rounded(time),
                rounded(least),
                (least.as_secs_f64() / 60.0).ceil().max(1.0)
            )));
        };
        left_out.push(units::chosen_size(size));
    }
}

/// Whether what is still to do, with another round of blocks, fits into the time that is left.
pub(super) fn has_time(to_do: Duration, left: Duration) -> bool {
    to_do.mul_f64(MARGIN_UNDER_WAY) <= left
}

fn most_that_fit(plan: &Plan, fewest: u32, time: Duration) -> Result<Option<u32>> {
    let mut trial = plan.clone();
    let mut fits = |repetitions: u32| -> Result<bool> {
        trial.set_repetitions(repetitions)?;
        Ok(expected_time(&trial).mul_f64(MARGIN) <= time)
    };
    if !fits(fewest)? {
        return Ok(None);
    }
    let (mut most, mut too_many) = (fewest, MAX_REPETITIONS + 1);
    while too_many - most > 1 {
        let middle = most.midpoint(too_many);
        if fits(middle)? { most = middle } else { too_many = middle }
    }
    Ok(Some(most))
}

/// Leaves out the largest size of those workloads that have others, and returns it.
fn drop_largest(plan: &mut Plan) -> Option<u64> {
    let several = || plan.workloads.iter().filter(|workload| workload.sizes.len() > 1);
    let largest = several().flat_map(|workload| workload.sizes.iter().copied()).max()?;
    for workload in plan.workloads.iter_mut().filter(|workload| workload.sizes.len() > 1) {
        workload.sizes.retain(|size| *size != largest);
    }
    Some(largest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> Plan {
        let text = "stacks = [\"http\", \"https\"]\nlink = \"10mbit,delay=5ms\"\ncount-packets = false\n\
                    [[workload]]\nkind = \"download\"\nsizes = [\"1KiB\", \"1MiB\", \"100MiB\"]\n";
        Plan::from_toml(text, "minutes").expect("a plan")
    }

    #[test]
    fn more_time_is_more_repetitions_and_little_time_fewer_sizes() {
        let within = |minutes: u64| {
            let mut fitted = plan();
            let said = fit(&mut fitted, Duration::from_secs(60 * minutes)).expect("it fits");
            assert!(expected_time(&fitted) <= Duration::from_secs(60 * minutes), "{said}");
            (fitted.repetitions, fitted.workloads[0].sizes.len(), said)
        };
        let (short, few, said) = within(3);
        assert!(short >= 5 && few == 2, "100 MiB take 84 s each: {said}");
        assert!(said.ends_with("fit into 3 min, without 100 MiB"), "{said}");
        let (long, all, _) = within(60);
        assert!(long > 5 && all == 3);
        assert!(within(600).0 > long);
    }

    #[test]
    fn says_how_long_it_takes_where_nothing_fits() {
        let error = fit(&mut plan(), Duration::from_secs(5)).expect_err("five seconds");
        let error = error.to_string();
        assert!(error.starts_with("5 s is too little time: with 5 repetitions and its"), "{error}");
        // what is asked for is enough
        let (_, minutes) = error.split_once("give it --minutes ").expect("what to write");
        let minutes: u64 = minutes.parse().expect("a number");
        assert!(fit(&mut plan(), Duration::from_secs(60 * minutes)).is_ok(), "{error}");
    }

    #[test]
    fn another_round_needs_more_time_than_it_should_take() {
        let seconds = Duration::from_secs;
        assert!(has_time(seconds(90), seconds(100)) && has_time(seconds(0), seconds(0)));
        assert!(!has_time(seconds(95), seconds(100)) && !has_time(seconds(1), seconds(0)));
    }
}
