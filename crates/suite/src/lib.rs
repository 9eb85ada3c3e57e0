//! Cipher suites behind one trait: seal and open in place.
//!
//! A [`Suite`] is a name with fixed lengths. Bound to its keys it becomes a
//! [`Transform`], which seals and opens the bodies of ESP and Q-ESP packets; a
//! [`Mac`] alone becomes an [`Authenticator`], for AH. All schedules and inner
//! states are prepared when the keys are bound, and nothing is allocated for a
//! packet.
//!
//! Which suites may be used is the configuration's to decide:
//! [`Suite::is_secure`] says what to ask about.
//!
//! # Secrets in memory
//!
//! A [`Key`] is erased when it is dropped, and so is what a bound suite keeps:
//! AWS-LC erases its AES and DES schedules and HMAC states itself, and an AEAD's
//! state with all memory it frees; the state of HMAC-MD5 and the salts are erased
//! by `zeroize`. Not erased are copies that binding leaves on the stack, where the
//! compiler moves a schedule or RustCrypto's HMAC pads a key. Nothing here prints
//! a key, in `Debug` or in an error. ICVs are compared in constant time, by
//! AWS-LC's `CRYPTO_memcmp` or within its AEADs.

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
