//! A link of given rate, delay, jitter and loss between two interfaces, for
//! kernels without netem.
//!
//! The path of a frame: `netio` receives it with the kernel's timestamp; `intake`
//! completes its checksum and splits a train into single frames; `model` decides its
//! disposition, or `managed`, where the queue is managed actively; `schedule` holds it until it is
//! due; `forward` transmits it.

mod error;
mod forward;
mod intake;
mod line;
pub mod managed;
pub mod model;
pub mod schedule;

pub use error::Error;
pub use forward::{DOWN, Emulator, Settings, Shared, UP};
