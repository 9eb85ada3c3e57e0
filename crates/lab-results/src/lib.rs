//! Results of a lab run (`schema`), their analysis (`analysis`) and what people
//! read of it (`report`). Needs no privilege and nothing of Linux.

pub mod analysis;
mod error;
pub mod report;
pub mod schema;

pub use error::{Error, Result};
