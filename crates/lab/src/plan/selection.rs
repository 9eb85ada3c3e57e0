//! Which stacks of a plan are kept: those that are named, or whose programs exist.

use headroom_lab_host::error::{Error, Result};
use headroom_lab_host::hosts::Machines;

use super::{Plan, PlannedStack};
use crate::congestion_control;

impl Plan {
    /// Keeps the stacks whose name matches `pattern` (`*` stands for any text),
    /// and the baselines that they are compared with.
    ///
    /// # Errors
    /// [`Error::Plan`] where nothing is left.
    pub fn keep_only(&mut self, pattern: &str) -> Result<()> {
        self.keep_matching(&[pattern.to_owned()])
    }

    /// As [`Plan::keep_only`], of the stacks that match one of several patterns.
    pub(super) fn keep_matching(&mut self, patterns: &[String]) -> Result<()> {
        let matches = |name: &str| patterns.iter().any(|pattern| matches_glob(pattern, name));
        let kept: Vec<String> = self
            .stacks
            .iter()
            .filter(|planned| matches(&planned.stack.name))
            .flat_map(|planned| [Some(planned.stack.name.clone()), planned.baseline.clone()])
            .flatten()
            .collect();
        if kept.is_empty() {
            let names: Vec<&str> = self.stacks.iter().map(|p| p.stack.name.as_str()).collect();
            return Err(Error::Plan(format!(
                "--only {}: no stack of this plan matches; it has {}",
                patterns.join(", "),
                names.join(", ")
            )));
        }
        self.keep(&kept);
        Ok(())
    }

    /// Leaves out the stacks whose programs the plan's machines lack, or that run commands which
    /// this program lacks; says which, and what is missing.
    ///
    /// # Errors
    /// [`Error::Missing`] where nothing is left.
    pub fn leave_out_missing(
        &mut self,
        machines: &Machines,
        lacking_commands: &[&str],
    ) -> Result<Vec<String>> {
        let (mut kept, mut said) = (Vec::new(), Vec::new());
        for planned in &self.stacks {
            let name = planned.stack.name.clone();
            let programs = machines.require(&planned.stack.programs().collect::<Vec<_>>());
            let found = match machines {
                Machines::Here(_) => programs
                    .and_then(|()| planned.stack.require())
                    .and_then(|()| planned.require_congestion_control()),
                Machines::Real(_) => programs,
            }
            .and_then(|()| planned.stack.require_commands(lacking_commands));
            match found {
                Ok(()) => kept.push(name),
                Err(error) => said.push(format!("{name} is left out: {error}")),
            }
        }
        if kept.is_empty() {
            return Err(Error::Missing(said.join("; ")));
        }
        self.keep(&kept);
        Ok(said)
    }

    pub(super) fn keep(&mut self, kept: &[String]) {
        self.stacks.retain(|planned| kept.contains(&planned.stack.name));
        for planned in &mut self.stacks {
            // what a baseline is compared with elsewhere is not brought along
            planned.baseline = planned.baseline.take().filter(|name| kept.contains(name));
        }
        for workload in &mut self.workloads {
            workload.stacks.retain(|name| kept.contains(name));
        }
        self.workloads.retain(|workload| !workload.stacks.is_empty());
    }
}

impl PlannedStack {
    /// Refuses this machine where its kernel lacks the stack's own congestion control.
    ///
    /// # Errors
    /// [`Error::Missing`]: what it lacks.
    fn require_congestion_control(&self) -> Result<()> {
        self.congestion_control.as_deref().map_or(Ok(()), congestion_control::require)
    }
}

/// Whether `name` matches `pattern`, in which `*` stands for any text.
fn matches_glob(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((before, after)) => name.strip_prefix(before).is_some_and(|rest| {
            (0..=rest.len())
                .filter(|&i| rest.is_char_boundary(i))
                .any(|i| matches_glob(after, &rest[i..]))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs() {
        assert!(
            matches_glob("*", "ftp") && matches_glob("f*p", "ftp") && matches_glob("ftp*", "ftp")
        );
        assert!(!matches_glob("f*s", "ftp") && !matches_glob("", "ftp"));
    }
}
