//! Brings up the hosts that the lab measures on, real ones or namespaces of this machine,
//! and the link between them (`testbed`); starts programs there (`host`, through an
//! `agent`), captures what passes (`capture`) and reads what it costs (`resources`).

pub mod agent;
pub mod capture;
pub mod clean;
pub mod command;
pub mod content;
pub mod error;
pub mod host;
pub mod hosts;
mod lines;
pub mod machine;
mod namespace;
pub mod package_tree;
pub mod privileges;
pub mod programs;
mod reaper;
pub mod remote_host;
pub mod resources;
pub mod role;
pub mod scratch;
pub mod testbed;

pub use error::{Error, Result};
