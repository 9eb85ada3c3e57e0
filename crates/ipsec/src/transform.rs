//! The algorithms of an association, bound to their keys.

use headroom_suite::{Authenticator, KeyError, Transform};

use crate::spec::{Protection, Secrets};

/// Protects and opens the packets of an association.
#[derive(Debug)]
pub enum SaTransform {
    /// The suite of ESP or Q-ESP.
    Cipher(Box<dyn Transform>),
    /// The integrity algorithm of AH.
    Mac(Authenticator),
}

impl SaTransform {
    /// Binds the algorithms to their keys.
    ///
    /// # Errors
    /// A key does not fit its algorithm.
    pub fn bind(protection: &Protection) -> Result<Self, KeyError> {
        match protection {
            Protection::Esp(secrets) | Protection::QEsp { secrets, .. } => {
                let Secrets { suite, key, mac_key } = secrets;
                suite.bind(key, mac_key.as_ref()).map(Self::Cipher)
            }
            Protection::Ah { mac, key } => mac.bind(key).map(Self::Mac),
        }
    }
}
