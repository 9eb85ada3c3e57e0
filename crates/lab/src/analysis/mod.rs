//! From samples to an answer. Pure functions; no clock, no file.

pub mod answer;
pub mod fit;
pub mod limits;
pub mod portable;
pub mod stats;
pub mod stop;
pub mod summary;
