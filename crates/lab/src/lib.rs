//! Measures what securing a transfer costs: plan → testbed → run → samples →
//! analysis → report. Starts programs; calls no transfer engine.

pub mod application;
mod at;
pub mod campaign;
pub mod catalogue;
mod congestion_control;
pub mod custom;
pub mod doctor;
mod journal;
pub mod layer;
pub mod plan;
pub mod properties;
pub mod run;
pub mod stack;
pub mod study;
mod toml_error;
pub mod workload;

pub use headroom_lab_host::{Error, Result};
pub use headroom_link_spec as link;
pub use headroom_units as units;
