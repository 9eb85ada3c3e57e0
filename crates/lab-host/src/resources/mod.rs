//! CPU time and counters of control groups, and how busy the link is.

pub mod cgroup;
pub mod cpu;
pub mod usage;
