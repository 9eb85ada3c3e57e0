//! Controls a tunnel: up, status, trace, reload, down, and checks before it is up.

mod chains;
pub mod check;
mod client;
mod error;
pub mod metrics;
mod protocol;
mod run_folder;
mod serve;
mod server;
pub mod status;
mod tunnel;

pub use client::Client;
pub use error::Error;
pub use protocol::{Request, Response};
pub use run_folder::{RUN_DIR_VARIABLE, RunFolder};
pub use serve::run;
pub use status::Status;
pub use tunnel::{Options, dry_run};
