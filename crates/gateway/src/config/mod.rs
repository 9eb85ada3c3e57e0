//! The configuration of a tunnel. A [`Config`] can always be loaded. An error names the file, the
//! line and the remedy. docs/tunnel.md is the reference.

mod associations;
mod checks;
mod file;
mod ike;
mod ike_auth;
mod ike_eap;
pub mod keygen;
mod keygen_ike;
mod keygen_pool;
mod model;
mod options;
mod policies;
mod pool;
mod problem;
mod reader;
mod scalar;
mod selectors;
mod source;
#[cfg(test)]
mod tests;
mod toml_message;

pub use model::{Association, ChildAction, ChildActions, Config, IkeChild, IkePeer, Purpose};
pub use problem::Error;
pub use reader::Content;
pub use source::{MAX_ASSOCIATIONS, MAX_POLICIES, Source};
