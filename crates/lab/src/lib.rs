//! Measures what securing a transfer costs: plan → testbed → run → samples →
//! analysis → report. Starts programs; calls no transfer engine.

pub mod agent;
mod capture;
pub mod clean;
mod command;
mod content;
pub mod doctor;
pub mod error;
mod host;
pub mod hosts;
pub mod layer;
mod machine;
mod measure;
mod namespace;
pub mod plan;
pub mod programs;
mod reaper;
pub mod remote_host;
mod role;
pub mod run;
pub mod scratch;
pub mod service;
pub mod stack;
pub mod study;
mod suggest;
mod testbed;
pub mod workload;

pub use error::{Error, Result};
pub use headroom_link_spec as link;
pub use headroom_units as units;
