//! Describes a machine: kernel, CPU, memory.

use serde::{Deserialize, Serialize};

/// Whether this kernel has IPv6, and has it switched on.
pub(crate) fn has_ipv6() -> bool {
    std::path::Path::new("/proc/net/if_inet6").exists()
}

/// A machine as it is.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Machine {
    /// Version of the kernel.
    pub kernel: String,
    /// Name of the distribution.
    pub distribution: String,
    /// Model of the processor.
    pub cpu: String,
    /// Processors that this process may use.
    pub cores: usize,
    /// Bytes of memory, used or not.
    pub memory_bytes: u64,
}

impl Machine {
    /// The one that this process runs on.
    pub fn this() -> Self {
        Self {
            kernel: read("/proc/sys/kernel/osrelease"),
            distribution: field("/etc/os-release", "PRETTY_NAME=").trim_matches('"').to_owned(),
            cpu: field("/proc/cpuinfo", "model name")
                .trim_start_matches([':', '\t', ' '])
                .to_owned(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: memory("MemTotal:"),
        }
    }
}

/// The kind of machine that this is, as `uname -m` says it.
pub(crate) fn architecture() -> String {
    let said = std::process::Command::new("uname").arg("-m").output();
    let said = said.ok().and_then(|output| String::from_utf8(output.stdout).ok());
    let said = said.map(|said| said.trim().to_owned()).filter(|said| !said.is_empty());
    said.unwrap_or_else(|| std::env::consts::ARCH.to_owned())
}

/// Bytes of memory that new programs could have.
pub(crate) fn available_memory() -> u64 {
    memory("MemAvailable:")
}

fn memory(key: &str) -> u64 {
    let line = field("/proc/meminfo", key);
    let kib = line.split_whitespace().next().and_then(|kib| kib.parse::<u64>().ok());
    kib.map_or(0, |kib| kib * 1024)
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

/// The rest of the first line that begins with `key`.
fn field(path: &str, key: &str) -> String {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default().trim().to_owned()
}
