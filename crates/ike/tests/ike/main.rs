//! The crate as its callers see it.

mod captured;
mod key_derivation;
mod wire;
