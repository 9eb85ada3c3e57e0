//! The crate as its callers see it.

mod captured;
mod certificates;
mod child_rekey;
mod hostile;
mod ike_rekey;
mod key_derivation;
mod pki;
mod schedules;
mod script;
mod setup;
mod wire;
mod world;
