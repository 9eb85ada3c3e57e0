//! Clocks and counters: the wire, the CPU.

pub(crate) mod cgroup;
pub(crate) mod cpu;
pub(crate) mod usage;

pub(crate) use headroom_lab_trace as wire;
