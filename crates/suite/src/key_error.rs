//! Why a key cannot be parsed, generated or used.

use thiserror::Error;

use crate::{Mac, Suite};

/// Why a key cannot be parsed, generated or used. No variant holds a byte of a key.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum KeyError {
    /// A character is no hexadecimal digit.
    #[error("character {position} of the key is not a hexadecimal digit")]
    Digit {
        /// The position in the text, from 1.
        position: usize,
    },
    /// A digit is missing.
    #[error("the key has an odd number of hexadecimal digits ({found})")]
    OddDigits {
        /// The number of digits.
        found: usize,
    },
    /// The key has the wrong length.
    #[error("{suite} takes a key of {} bytes{}, not {found}", .suite.key_len(), salt(.suite))]
    Length {
        /// The suite.
        suite: Suite,
        /// The length of the key.
        found: usize,
    },
    /// The integrity key has the wrong length.
    #[error("{mac} takes a key of {} bytes, not {found}", .mac.key_len())]
    MacLength {
        /// The integrity algorithm.
        mac: Mac,
        /// The length of the key.
        found: usize,
    },
    /// The integrity key is missing.
    #[error("{suite} needs an integrity key of {} bytes in addition to its encryption key", .suite.mac_key_len())]
    MacKeyMissing {
        /// The suite.
        suite: Suite,
    },
    /// An AEAD has an integrity key.
    #[error("{suite} has one key for encryption and integrity: remove the integrity key")]
    MacKeySurplus {
        /// The suite.
        suite: Suite,
    },
    /// A weak DES key.
    #[error("the key contains a weak or semi-weak DES key: generate another")]
    WeakDes,
    /// A 3DES key with equal parts.
    #[error(
        "two of the three DES keys in the 3DES key are equal, which weakens it: generate another"
    )]
    EqualParts,
    /// The system returned no random bytes.
    #[error("cannot generate a key: the system returned no random bytes")]
    Random,
    /// The library rejected the key.
    #[error("the cryptographic library rejected the key")]
    Refused,
}

fn salt(suite: &Suite) -> &'static str {
    match suite {
        Suite::Aead(_) => " (the last 4 are the salt)",
        Suite::Separate(..) => "",
    }
}
