//! The crate as its callers see it.

mod captured;
mod certificates;
mod child_rekey;
mod children;
mod clock_jumps;
mod hostile;
mod hostile_peer;
mod ike_rekey;
mod impostor;
mod key_derivation;
mod many;
mod message_ids;
mod mobility;
mod passwords;
mod per_resource;
mod pki;
mod ppk;
mod reauth;
mod same_name;
mod schedules;
mod script;
mod setup;
mod wire;
mod world;
