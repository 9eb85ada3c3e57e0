//! A link of given rate, delay, jitter and loss between two interfaces, for
//! kernels without netem.
//!
//! A frame's way: `netio` receives it with the kernel's time stamp; `intake`
//! finishes its checksum and cuts a train into single frames; `model` decides
//! its disposition; `schedule` keeps it until it is due; `wire` sends it on.

mod counters;
mod error;
mod intake;
pub mod model;
pub mod schedule;
mod wire;

pub use counters::Counters;
pub use error::Error;
pub use wire::{DOWN, Emulator, Settings, Shared, UP};
