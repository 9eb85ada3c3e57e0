//! Keys: how they are agreed (RFC 7296 §2.10–2.18, RFC 9370), and what is done with them.
//!
//! All secrets are [`headroom_suite::Key`]s, erased when dropped. MACs are compared in constant
//! time.

mod authentication;
mod key_exchange;
mod keys;
mod modp;
mod prf;
mod protection;
mod random;
pub(crate) mod signature;

pub use authentication::{SignedOctets, intermediate_mac, shared_key_mac};
pub use key_exchange::{Invalid, KeyExchange, Method};
pub use keys::{ChildKeys, ChildSecrets, IkeKeys, Nonces, Spis};
pub use prf::Prf;
pub use protection::{FRAGMENT_MIN, Forged, Protector, Sealer};
pub use random::{Random, SystemRandom};
pub use signature::{HASHES, NoCommonHash, SigningKey};
