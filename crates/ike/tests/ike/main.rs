//! The crate as its callers see it.

mod captured;
mod child_rekey;
mod hostile;
mod ike_rekey;
mod key_derivation;
mod schedules;
mod script;
mod setup;
mod wire;
mod world;
