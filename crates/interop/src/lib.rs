//! Our IPsec against other people's: scapy, a real Linux kernel, strongSwan.
//!
//! [`guest`] runs the program itself under other kernels; the rest is about IPsec:
//! [`case`] says what is tried, [`ours`] is our side of it, [`scapy`] and
//! [`kernel`] are the peers, [`trial`] is what came of it, and [`matrix`] writes
//! that down.

pub mod case;
mod folder;
pub mod gateway;
pub mod guest;
pub mod kernel;
pub mod matrix;
pub mod namespace;
pub mod ours;
pub mod peer;
pub mod ping;
pub mod scapy;
pub mod strongswan;
pub mod transfer;
pub mod trial;

/// Octets in hexadecimal.
fn hex(octets: &[u8]) -> String {
    octets.iter().map(|octet| format!("{octet:02x}")).collect()
}
