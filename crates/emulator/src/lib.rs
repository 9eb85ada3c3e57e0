//! A link of given rate, delay, jitter and loss between two interfaces, for
//! kernels without netem.

pub mod model;
pub mod schedule;
pub mod spec;

pub use spec::{LinkSpec, Loss, Queue, Way};
