//! Binds a suite to its keys.

use crate::aead::AeadTransform;
use crate::separate::Separate;
use crate::{Key, KeyError, Suite, Transform};

impl Suite {
    /// Prepares the suite with its keys, for one direction.
    ///
    /// # Errors
    /// A key is missing, superfluous, of the wrong length, or weak.
    pub fn bind(&self, key: &Key, mac_key: Option<&Key>) -> Result<Box<dyn Transform>, KeyError> {
        if key.len() != self.key_len() {
            return Err(KeyError::Length { suite: *self, found: key.len() });
        }
        match (self, mac_key) {
            (Self::Aead(aead), None) => Ok(Box::new(AeadTransform::new(*aead, key)?)),
            (Self::Aead(_), Some(_)) => Err(KeyError::MacKeySurplus { suite: *self }),
            (Self::Separate(cipher, mac), Some(mac_key)) => {
                Ok(Box::new(Separate::new(*cipher, key, mac.bind(mac_key)?)?))
            }
            (Self::Separate(..), None) => Err(KeyError::MacKeyMissing { suite: *self }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn explains_keys_of_the_wrong_length_or_number() {
        let bind = |suite: &str, key: usize, mac_key: Option<usize>| {
            let suite: Suite = suite.parse().expect("a suite");
            let [key, mac_key] = [Some(key), mac_key]
                .map(|len| len.map(|len| Key::generate(len).expect("random numbers")));
            suite.bind(&key.expect("a key"), mac_key.as_ref()).expect_err("wrong keys").to_string()
        };
        assert_eq!(
            bind("aes-128-gcm", 16, None),
            "aes-128-gcm takes a key of 20 bytes (the last 4 are the salt), not 16"
        );
        assert_eq!(
            bind("aes-128-gcm", 20, Some(20)),
            "aes-128-gcm has one key for encryption and integrity: remove the integrity key"
        );
        assert_eq!(
            bind("aes-128-cbc+hmac-sha1", 20, Some(20)),
            "aes-128-cbc+hmac-sha1 takes a key of 16 bytes, not 20"
        );
        assert_eq!(
            bind("aes-128-cbc+hmac-sha1", 16, Some(16)),
            "hmac-sha1 takes a key of 20 bytes, not 16"
        );
        assert_eq!(
            bind("aes-128-cbc+hmac-sha1", 16, None),
            "aes-128-cbc+hmac-sha1 needs an integrity key of 20 bytes in addition to its encryption key"
        );
    }
}
