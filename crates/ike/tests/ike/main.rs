//! The crate as its callers see it.

mod captured;
mod wire;
