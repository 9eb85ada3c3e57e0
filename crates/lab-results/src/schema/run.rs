//! A run: where it was, with which programs, and what it kept beside its samples.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::PhaseInterval;

/// The machine and its programs.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[allow(missing_docs, reason = "named as what they hold")]
pub struct Environment {
    pub started: String,
    pub finished: String,
    pub headroom: String,
    pub kernel: String,
    pub distribution: String,
    pub cpu: String,
    pub cores: usize,
    pub memory_bytes: u64,
    /// Of two real machines, both; the fields above are then the client's.
    #[serde(default)]
    pub hosts: Vec<HostRecord>,
    pub programs: Vec<ProgramRecord>,
    pub stacks: BTreeMap<String, BTreeMap<String, String>>,
    pub settings: BTreeMap<String, String>,
}

impl Environment {
    /// Returns what tells one build of each program from another, with the program's name, to
    /// compare it with `other`'s. Leaves out what prints no version if `other` does not name it:
    /// earlier results do not have such programs.
    pub fn builds(&self, other: &Self) -> impl Iterator<Item = (String, String)> {
        let is_named = move |name: &str| other.programs.iter().any(|program| program.name == name);
        self.programs
            .iter()
            .filter(move |program| !program.version.is_empty() || is_named(&program.name))
            .map(|program| (program.name.clone(), program.build()))
    }

    /// Lists servers, clients and tunnels with their versions; without what makes the testbed, and
    /// what prints no version.
    pub fn programs_under_test(&self) -> Vec<String> {
        const OF_TESTBED: [&str; 10] = [
            "ethtool", "ip", "mount", "nft", "nsenter", "openssl", "ssh", "sysctl", "tc", "unshare",
        ];
        let programs = self.programs.iter();
        programs
            .filter(|program| !program.version.is_empty())
            .filter(|program| !OF_TESTBED.contains(&program.name.as_str()))
            .map(|program| {
                let says_its_name = program.version.starts_with(&program.name);
                let name = if says_its_name { "" } else { program.name.as_str() };
                format!("{name} {}", program.version).trim().to_owned()
            })
            .collect()
    }
}

/// The setting, in [`Environment::settings`], that says which processors client, server and link
/// had; without it they shared all.
pub const PROCESSORS: &str = "processors";

/// The fact of a stack, in [`Environment::stacks`], that says why its sessions wait.
pub const WAITS: &str = "waits";

/// The application whose real-time stream is a video.
pub const VIDEO: &str = "video";

/// One of two real machines.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "named as what they hold")]
pub struct HostRecord {
    /// `client` or `server`.
    pub role: String,
    /// The name in the plan.
    pub host: String,
    /// On the link.
    pub address: String,
    pub kernel: String,
    pub distribution: String,
    pub cpu: String,
    pub cores: usize,
    pub memory_bytes: u64,
    /// Where the run's files were: `tmpfs` or `disk`.
    pub files: String,
}

/// A program that took part.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[allow(missing_docs, reason = "named as what they hold")]
pub struct ProgramRecord {
    pub name: String,
    /// Empty: it prints none.
    pub version: String,
    /// BLAKE3 digest of the file of a program that prints no version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blake3: Option<String>,
    pub path: String,
    /// `system`, `cache` or `built-in`.
    pub origin: String,
}

impl ProgramRecord {
    /// Says what tells one build of it from another: its version, else the first 12 digits of
    /// its digest.
    fn build(&self) -> String {
        match &self.blake3 {
            Some(digest) if self.version.is_empty() => {
                format!("BLAKE3 {}", digest.get(..12).unwrap_or(digest))
            }
            _ => self.version.clone(),
        }
    }
}

/// One continuation of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resumed {
    /// RFC 3339.
    pub at: String,
    /// Blocks that were kept from before.
    pub blocks_before: usize,
    /// Changes of machine and programs since the start.
    pub changed: Vec<String>,
}

/// A layer brought up from nothing, several times, on the main link.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LayerSetup {
    /// Name of the stack.
    pub stack: String,
    /// Name of the layer; a stack may have one twice.
    pub layer: String,
    /// Packets of the handshake, both directions; the median of all.
    pub packets: u64,
    /// Bytes of these, Ethernet headers included.
    pub bytes: u64,
    /// Times that the client spoke and the server answered.
    pub round_trips: u32,
    /// First packet to last, one for each time.
    pub seconds: Vec<f64>,
}

/// Result of the clear-text check of one stack.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClearText {
    /// Name of the stack.
    pub stack: String,
    /// Whether it says that it encrypts.
    pub secured: bool,
    /// Whether the file's content was seen on the wire.
    pub marker_seen: bool,
    /// Of all frames, both ways.
    pub bytes_searched: u64,
}

/// The packets of one accounted transfer, in a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptCapture {
    /// Name of the stack.
    pub stack: String,
    /// Name of the workload.
    pub workload: String,
    /// Bytes of one file.
    pub size_bytes: u64,
    /// In the folder of the results: a pcap file with times in nanoseconds.
    pub file: String,
    /// Frames, those that `wire` counts.
    pub packets: u64,
    /// Bytes of each frame that were kept at most.
    pub snaplen: u32,
}

/// One transfer of a stack, divided into phases.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[allow(missing_docs, reason = "documented in docs/results.md")]
pub struct Timeline {
    pub stack: String,
    pub workload: String,
    pub size_bytes: u64,
    pub session_s: f64,
    pub segments: Vec<PhaseInterval>,
}
