//! Cipher suites with one interface: seal and open in place.
//!
//! A [`Suite`] has a name and fixed lengths. With its keys it becomes a [`Transform`], which seals
//! and opens the bodies of ESP and Q-ESP packets. A [`Mac`] alone becomes an [`Authenticator`], for
//! AH. Binding the keys prepares all schedules and inner states; a packet causes no allocation.
//!
//! The configuration decides which suites are allowed; [`Suite::is_secure`] tells which need
//! `allow_insecure`.
//!
//! # Secrets in memory
//!
//! A [`Key`] is erased when it is dropped, and so is the state of a suite with keys: AWS-LC erases
//! its AES and DES schedules, HMAC states and AEAD states; `zeroize` erases the state of HMAC-MD5
//! and the salts. Not erased are copies on the stack, where the compiler moves a schedule or
//! RustCrypto's HMAC pads a key. Neither `Debug` nor an error prints a key. ICVs are compared in
//! constant time, by AWS-LC's `CRYPTO_memcmp` or inside its AEADs.

mod aead;
mod algorithm;
mod bind;
mod cbc;
mod key;
mod key_error;
mod mac;
mod name;
mod random;
mod separate;
mod suite;
mod transform;
#[cfg(test)]
mod vectors;

pub use algorithm::{Aead, Cipher, Mac};
pub use key::{Fingerprint, Key, NotAFingerprint};
pub use key_error::KeyError;
pub use mac::Authenticator;
pub use name::UnknownSuite;
pub use suite::Suite;
pub use transform::{AadInput, Forged, SealError, Transform};
