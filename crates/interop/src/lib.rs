//! Our IPsec against other people's: scapy, a real Linux kernel, strongSwan.
//!
//! [`case`] says what is tried, [`ours`] is our side of it, [`scapy`] and
//! [`kernel`] are the peers, [`trial`] is what came of it, and [`matrix`] writes
//! that down.

pub mod case;
pub mod kernel;
pub mod matrix;
pub mod ours;
pub mod peer;
pub mod ping;
pub mod scapy;
pub mod trial;
