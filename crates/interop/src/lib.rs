//! Tests our IPsec against other implementations: scapy, a real Linux kernel, strongSwan.
//!
//! [`guest`] runs the program itself under other kernels, [`ike`] tests it with negotiated keys
//! against other IKE daemons; the rest is about IPsec:
//! [`case`] lists the cases, [`ours`] is our side, [`scapy`] and
//! [`kernel`] are the peers, [`trial`] holds outcomes, and [`matrix`] writes
//! the report. [`rekey_loss`] counts what rekeying loses between two gateways of ours.

pub mod case;
mod folder;
pub mod gateway;
pub mod guest;
pub mod ike;
pub mod kernel;
pub mod matrix;
pub mod namespace;
pub mod ours;
pub mod peer;
pub mod ping;
pub mod pki;
pub mod rekey_loss;
pub mod scapy;
pub mod strongswan;
pub mod transfer;
pub mod tree;
pub mod trial;

/// Formats bytes in hexadecimal.
fn hex(octets: &[u8]) -> String {
    octets.iter().map(|octet| format!("{octet:02x}")).collect()
}
