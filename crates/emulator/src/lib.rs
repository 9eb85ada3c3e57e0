//! A link of given rate or recorded trace, delay, jitter and loss between two interfaces,
//! for kernels without netem, and for what netem does not do.
//!
//! The path of a frame: `netio` receives it with the kernel's timestamp; `intake`
//! completes its checksum and splits a train into single frames; `model` decides its
//! disposition, or `managed`, where the queue is managed actively; `schedule` holds it until it is
//! due; `forward` transmits it. The bottleneck of both is a `line`, which has a rate or follows a
//! trace (`trace_line`).

mod error;
mod forward;
mod intake;
mod line;
pub mod managed;
pub mod model;
pub mod schedule;
mod trace_line;

pub use error::Error;
pub use forward::{DOWN, Emulator, Settings, Shared, UP};
