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

mod aead;
mod cbc;
mod key;
mod mac;
mod separate;
mod suite;
mod transform;

pub use key::{Fingerprint, Key, KeyError, NotAFingerprint};
pub use mac::Authenticator;
pub use suite::{Aead, Cipher, Mac, Suite, UnknownSuite};
pub use transform::{Bound, Forged, SealError, Transform};
