//! A plan in a line.

use super::Plan;
use crate::units;
use crate::workload::{Key, Workload};

impl Plan {
    /// Says what it measures: its link, its stacks with their baselines, its workloads with their
    /// sizes.
    pub fn outline(&self) -> String {
        let stacks: Vec<String> = self
            .stacks
            .iter()
            .map(|planned| match &planned.baseline {
                Some(baseline) => format!("{} (against {baseline})", planned.stack.name),
                None => planned.stack.name.clone(),
            })
            .collect();
        let mut all = vec![self.link.to_string(), stacks.join(", ")];
        all.extend(self.workloads.iter().map(|workload| self.outline_of(workload)));
        all.join("; ")
    }

    fn outline_of(&self, workload: &Workload) -> String {
        let mut text = workload.name();
        if workload.takes(Key::Sizes) {
            let sizes: Vec<String> =
                workload.sizes.iter().copied().map(units::chosen_size).collect();
            text += &format!(" of {}", sizes.join(", "));
        }
        if workload.stacks.len() < self.stacks.len() {
            text += &format!(" by {}", workload.stacks.join(", "));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workload_has_its_sizes_and_the_stacks_that_are_not_all() {
        let text = "stacks = [\"http\", \"https\", \"ssh\"]\nlink = \"10mbit,delay=5ms\"\n\
                    [[workload]]\nkind = \"download\"\nsizes = [\"1KiB\", \"100kB\"]\n\
                    stacks = [\"http\", \"https\"]\n\
                    [[workload]]\nkind = \"commands\"\nstacks = [\"ssh\"]\n";
        let plan = Plan::from_toml(text, "x").expect("a plan");
        assert_eq!(
            plan.outline(),
            "10mbit,delay=5ms; http, https (against http), ssh; download of 1 KiB, 100 kB by http, https; \
             commands by ssh"
        );
    }
}
