//! The plan as it was run.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{SshHosts, WorkloadKind, workload_name, yes};

/// The plan as it was run; the lab can make a plan of it again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the fields of `plan::Plan`")]
pub struct PlanRecord {
    pub name: String,
    pub question: String,
    pub stacks: Vec<StackRecord>,
    pub workloads: Vec<WorkloadRecord>,
    /// The two machines of the plan; null: namespaces on one.
    #[serde(default)]
    pub testbed: Option<SshHosts>,
    /// Name of the pair of hosts; absent: none was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pair: Option<String>,
    pub repetitions: u32,
    /// Half-width of every overhead's interval at which blocks end; none: at
    /// `repetitions`, which is the least otherwise.
    #[serde(default)]
    pub until_ci_pct: Option<f64>,
    /// The most blocks, where `until_ci_pct` is not reached.
    #[serde(default)]
    pub max_repetitions: Option<u32>,
    pub warmup: u32,
    pub family: String,
    pub mtu: u32,
    pub offload: String,
    pub congestion_control: String,
    /// By the name of the stack: congestion control of that stack alone.
    #[serde(default)]
    pub congestion_controls: BTreeMap<String, String>,
    /// A name server that never answers, which sshd asks; null: sshd asks none.
    #[serde(default)]
    pub resolver: Option<String>,
    pub link: String,
    /// Link backend that the plan asks for; null: the best available.
    #[serde(default)]
    pub link_backend: Option<String>,
    pub validation_links: Vec<String>,
    #[serde(default)]
    pub validation_sizes_bytes: Vec<u64>,
    /// The largest of them.
    pub validation_size_bytes: u64,
    #[serde(default = "yes")]
    pub count_packets: bool,
    pub seed: u64,
    /// The folder from which the link names its traces; absent: it follows none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_folder: Option<String>,
    /// Applications and layers that the plan defined, and its stacks use.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub definitions: Vec<DefinitionRecord>,
}

impl PlanRecord {
    /// Returns what tells the hosts of this run from others: the name of the pair, else the names
    /// of two real machines; none: one machine without a name.
    pub fn pair_name(&self) -> Option<String> {
        let hosts = || self.testbed.as_ref().map(SshHosts::pair_name);
        self.pair.clone().or_else(hosts)
    }

    /// Returns the congestion control of all stacks and, by name, that of each which has its own:
    /// `cubic, https#bbr: bbr`.
    pub fn all_congestion_controls(&self) -> String {
        let own = self.congestion_controls.iter().map(|(stack, own)| format!(", {stack}: {own}"));
        std::iter::once(self.congestion_control.clone()).chain(own).collect()
    }
}

/// An application or a layer that a plan defines.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DefinitionRecord {
    /// `application` or `layer`.
    pub defines: String,
    /// Its name.
    pub name: String,
    /// Its table, in TOML.
    pub toml: String,
}

/// A stack and its baseline.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the fields of `plan::PlannedStack`")]
pub struct StackRecord {
    pub name: String,
    pub baseline: Option<String>,
}

/// A workload.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the fields of `workload::Workload`")]
pub struct WorkloadRecord {
    pub kind: String,
    pub sizes_bytes: Vec<u64>,
    pub stacks: Vec<String>,
    /// Files in the folder; null unless the workload is `many`.
    #[serde(default)]
    pub files: Option<u32>,
    /// Clients at once; null unless the workload is `parallel` or `sessions`.
    #[serde(default)]
    pub clients: Option<u32>,
    /// The commands; null: those of each application.
    #[serde(default)]
    pub commands: Option<Vec<String>>,
    /// Duration; null: it ends when it has moved its files or run its commands.
    #[serde(default)]
    pub seconds: Option<u32>,
    /// Content of the files; null: random bytes.
    #[serde(default)]
    pub content: Option<String>,
    /// Transfers in a sample; null: as many as it takes to be measured well.
    #[serde(default)]
    pub transfers_per_sample: Option<u32>,
    /// Rate; null: as fast as it arrives.
    #[serde(default)]
    pub rate: Option<String>,
    /// TCP cross traffic; null: nothing.
    #[serde(default)]
    pub cross_traffic: Option<String>,
}

impl WorkloadRecord {
    /// The name in samples.
    pub fn name(&self) -> String {
        let rate = self.rate.as_ref().filter(|rate| {
            let default = WorkloadKind::of(&self.kind).and_then(WorkloadKind::default_rate);
            rate.parse().ok() != default
        });
        let steady = [rate.cloned(), self.cross_traffic.clone()];
        workload_name(
            &self.kind,
            self.content.as_deref(),
            self.clients,
            self.transfers_per_sample,
            steady,
        )
    }
}
