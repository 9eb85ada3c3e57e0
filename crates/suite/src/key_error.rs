//! Why a key cannot be read, generated or used.

use thiserror::Error;

use crate::{Mac, Suite};

/// Why a key cannot be parsed, generated or used. No variant holds a byte of a key.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum KeyError {
    /// A character that is no hexadecimal digit.
    #[error("the key's character {position} is not a hexadecimal digit")]
    Digit {
        /// Its place in the text, the first being 1.
        position: usize,
    },
    /// Digits that do not pair.
    #[error(
        "the key has {found} hexadecimal digits: an octet takes two, so one is missing or too many"
    )]
    OddDigits {
        /// How many there are.
        found: usize,
    },
    /// The key is not as long as the suite needs.
    #[error("{suite} takes a key of {} octets{}, not {found}", .suite.key_len(), salt(.suite))]
    Length {
        /// The suite.
        suite: Suite,
        /// Octets given.
        found: usize,
    },
    /// The integrity key is not as long as the algorithm needs.
    #[error("{mac} takes a key of {} octets, not {found}", .mac.key_len())]
    MacLength {
        /// The integrity algorithm.
        mac: Mac,
        /// Octets given.
        found: usize,
    },
    /// A suite with separate integrity has no integrity key.
    #[error("{suite} needs an integrity key of {} octets beside its encryption key", .suite.mac_key_len())]
    MacKeyMissing {
        /// The suite.
        suite: Suite,
    },
    /// An AEAD was given an integrity key.
    #[error("{suite} encrypts and authenticates with one key: give it no integrity key")]
    MacKeySurplus {
        /// The suite.
        suite: Suite,
    },
    /// A DES key that encrypts weakly.
    #[error("the key holds a weak or semi-weak DES key: draw another")]
    WeakDes,
    /// A 3DES key that is worth less than three.
    #[error(
        "two of the three DES keys within the 3DES key are equal, which weakens it: draw another"
    )]
    EqualParts,
    /// The system gave no random numbers.
    #[error("cannot generate a key: the system gave no random numbers")]
    Random,
    /// The library did not accept the key.
    #[error("the cryptographic library did not accept the key")]
    Refused,
}

fn salt(suite: &Suite) -> &'static str {
    match suite {
        Suite::Aead(_) => ", the last 4 of them its salt",
        Suite::Separate(..) => "",
    }
}
