//! The crate as its callers see it.

mod captured;
mod hostile;
mod key_derivation;
mod schedules;
mod setup;
mod wire;
mod world;
