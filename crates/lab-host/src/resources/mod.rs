//! CPU time of processes, in control groups or without, and how busy the link is.

pub mod cgroup;
pub mod cpu;
pub mod others;
mod processes;
pub mod usage;

pub(crate) use processes::{Counter, Processes};
