//! Scales of a plan: all of it, or one of the smaller versions that it defines.

use headroom_lab_host::error::{Error, Result};
use serde::Deserialize;

use super::Plan;
use crate::units;
use crate::workload::WorkloadKind;

/// A scale.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// The whole plan.
    Full,
    /// For a first look.
    Quick,
    /// Only tests that it runs.
    Smoke,
}

impl Scale {
    /// All of them, largest first.
    pub const ALL: [Self; 3] = [Self::Full, Self::Quick, Self::Smoke];

    /// The name in arguments and results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Quick => "quick",
            Self::Smoke => "smoke",
        }
    }
}

/// The smaller versions of a plan.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scales {
    pub(super) quick: Smaller,
    pub(super) smoke: Smaller,
}

/// In what a plan is smaller; nothing said: in nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Smaller {
    /// It is left out.
    #[serde(default)]
    skip: bool,
    /// Blocks, and where it has `until`, no more than that.
    repetitions: Option<u32>,
    /// Larger files and datagrams are left out.
    largest: Option<String>,
    /// Stacks that match one of these, with their baselines.
    only: Option<Vec<String>>,
    /// Seconds of each workload that goes on for a time.
    seconds: Option<u32>,
    /// Files of each folder.
    files: Option<u32>,
    /// Whether packets are counted.
    count_packets: Option<bool>,
    /// Whether predictions are checked on other links.
    validation_links: Option<bool>,
}

impl Plan {
    /// This plan, as large as `scale` is; none where it is left out there.
    ///
    /// # Errors
    /// [`Error::Plan`]: what the plan says of that scale leaves nothing or cannot be.
    pub fn at_scale(mut self, scale: Scale) -> Result<Option<Self>> {
        let smaller = match scale {
            Scale::Full => return Ok(Some(self)),
            Scale::Quick => self.scales.quick.clone(),
            Scale::Smoke => self.scales.smoke.clone(),
        };
        if smaller.skip {
            return Ok(None);
        }
        self.shrink(&smaller).map_err(|error| {
            Error::Plan(format!("the plan {} at the scale {}: {error}", self.name, scale.name()))
        })?;
        Ok(Some(self))
    }

    /// Whether the plan says in what it is smaller at a scale.
    pub fn is_smaller_at(&self, scale: Scale) -> bool {
        let smaller = match scale {
            Scale::Full => return false,
            Scale::Quick => &self.scales.quick,
            Scale::Smoke => &self.scales.smoke,
        };
        *smaller != Smaller::default()
    }

    fn shrink(&mut self, smaller: &Smaller) -> Result<()> {
        if let Some(patterns) = &smaller.only {
            self.keep_matching(patterns)?;
        }
        if let Some(largest) = &smaller.largest {
            let largest = units::parse_size(largest).map_err(Error::Plan)?;
            self.leave_out_larger(largest)?;
        }
        if let Some(repetitions) = smaller.repetitions {
            if !(2..=10_000).contains(&repetitions) {
                return Err(Error::Plan("repetitions must be from 2 to 10000".to_owned()));
            }
            self.until = None;
            self.repetitions = repetitions;
        }
        for workload in &mut self.workloads {
            workload.seconds =
                smaller.seconds.map_or(workload.seconds, |most| workload.seconds.min(most.max(1)));
            workload.files =
                smaller.files.map_or(workload.files, |most| workload.files.min(most.max(1)));
        }
        self.count_packets &= smaller.count_packets.unwrap_or(true);
        if smaller.validation_links == Some(false) {
            self.validation_links.clear();
        }
        Ok(())
    }

    fn leave_out_larger(&mut self, largest: u64) -> Result<()> {
        let sized = |kind: WorkloadKind| kind.moves_files() || kind.is_datagrams();
        for workload in self.workloads.iter_mut().filter(|workload| sized(workload.kind)) {
            workload.sizes.retain(|&size| size <= largest);
        }
        self.workloads.retain(|workload| !workload.sizes.is_empty());
        self.validation_sizes.retain(|&size| size <= largest);
        if self.workloads.is_empty() {
            let size = units::chosen_size(largest);
            return Err(Error::Plan(format!("no file is as small as {size}")));
        }
        let busy = |name: &String| self.workloads.iter().any(|work| work.stacks.contains(name));
        let kept: Vec<String> =
            self.stacks.iter().map(|planned| planned.stack.name.clone()).filter(busy).collect();
        self.keep(&kept);
        Ok(())
    }
}
