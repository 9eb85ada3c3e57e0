//! Key exchange methods: X25519, P-256 and P-384, ML-KEM, and the 2048-bit MODP group.
//!
//! The public values of peers are checked by AWS-LC: that a point is on its curve, that X25519 does
//! not yield zero (RFC 8031 §3.1), that an ML-KEM key is reduced (FIPS 203 §7.2).

use std::fmt;

use aws_lc_rs::agreement::{self, PrivateKey, UnparsedPublicKey, agree};
use aws_lc_rs::kem::{self, Ciphertext, DecapsulationKey, EncapsulationKey};
use headroom_suite::Key;
use thiserror::Error;
use zeroize::Zeroizing;

use super::Random;
use super::modp::Exponent;
use crate::wire::KeyExchangeMethod;

/// A key exchange method.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Method {
    /// Curve25519 (RFC 8031).
    Curve25519,
    /// The NIST curve P-256 (RFC 5903).
    Ecp256,
    /// The NIST curve P-384 (RFC 5903).
    Ecp384,
    /// The 2048-bit MODP group (RFC 3526): in no default offer, for peers that have nothing better.
    Modp2048,
    /// ML-KEM-512 (FIPS 203, draft-ietf-ipsecme-ikev2-mlkem).
    MlKem512,
    /// ML-KEM-768.
    MlKem768,
    /// ML-KEM-1024.
    MlKem1024,
}

/// A private key whose public value was sent, until the peer's answer comes.
pub struct KeyExchange {
    method: Method,
    private: Private,
    public: Vec<u8>,
}

enum Private {
    DiffieHellman(PrivateKey),
    Modp(Exponent),
    Kem(DecapsulationKey),
}

/// A peer's public value is not one of the method.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[error("the peer's public value is not valid for {0}")]
pub struct Invalid(pub Method);

impl Method {
    /// All methods.
    pub const ALL: [Self; 7] = [
        Self::Curve25519,
        Self::Ecp256,
        Self::Ecp384,
        Self::Modp2048,
        Self::MlKem512,
        Self::MlKem768,
        Self::MlKem1024,
    ];

    /// Returns the method with a number of the registry.
    #[must_use]
    pub fn from_id(id: KeyExchangeMethod) -> Option<Self> {
        Self::ALL.into_iter().find(|method| method.id() == id)
    }

    /// Returns the number in the registry.
    #[must_use]
    pub fn id(self) -> KeyExchangeMethod {
        match self {
            Self::Curve25519 => KeyExchangeMethod::Curve25519,
            Self::Ecp256 => KeyExchangeMethod::Ecp256,
            Self::Ecp384 => KeyExchangeMethod::Ecp384,
            Self::Modp2048 => KeyExchangeMethod::Modp2048,
            Self::MlKem512 => KeyExchangeMethod::MlKem512,
            Self::MlKem768 => KeyExchangeMethod::MlKem768,
            Self::MlKem1024 => KeyExchangeMethod::MlKem1024,
        }
    }

    /// Checks whether the method resists quantum computers.
    #[must_use]
    pub fn is_post_quantum(self) -> bool {
        matches!(self.kind(), Kind::Kem(_))
    }

    /// Makes a private key, as initiator.
    ///
    /// # Panics
    /// AWS-LC has no memory or no random bytes for ML-KEM.
    #[must_use]
    pub fn generate(self, random: &mut dyn Random) -> KeyExchange {
        match self.kind() {
            Kind::DiffieHellman(algorithm, len) => {
                let private = private_key(algorithm, len, random);
                let public = self.public(&private);
                KeyExchange { method: self, private: Private::DiffieHellman(private), public }
            }
            Kind::Modp => {
                let private = Exponent::generate(random);
                let public = private.public();
                KeyExchange { method: self, private: Private::Modp(private), public }
            }
            Kind::Kem(algorithm) => {
                let private = DecapsulationKey::generate(algorithm).expect("an ML-KEM key");
                let public = private.encapsulation_key().and_then(|key| {
                    let bytes = key.key_bytes()?;
                    Ok(bytes.as_ref().to_vec())
                });
                let public = public.expect("a public ML-KEM key");
                KeyExchange { method: self, private: Private::Kem(private), public }
            }
        }
    }

    /// Answers an initiator's public value: returns our own, or the ciphertext, and the secret.
    ///
    /// # Errors
    /// The public value is not valid.
    ///
    /// # Panics
    /// As [`Self::generate`].
    pub fn respond(self, peer: &[u8], random: &mut dyn Random) -> Result<(Vec<u8>, Key), Invalid> {
        match self.kind() {
            Kind::DiffieHellman(..) | Kind::Modp => {
                let ours = self.generate(random);
                let public = ours.public.clone();
                Ok((public, ours.finish(peer)?))
            }
            Kind::Kem(algorithm) => {
                let key = EncapsulationKey::new(algorithm, peer).map_err(|_| Invalid(self))?;
                let (ciphertext, secret) = key.encapsulate().map_err(|_| Invalid(self))?;
                Ok((ciphertext.as_ref().to_vec(), Key::from_bytes(secret.as_ref())))
            }
        }
    }

    fn kind(self) -> Kind {
        match self {
            Self::Curve25519 => Kind::DiffieHellman(&agreement::X25519, 32),
            Self::Ecp256 => Kind::DiffieHellman(&agreement::ECDH_P256, 32),
            Self::Ecp384 => Kind::DiffieHellman(&agreement::ECDH_P384, 48),
            Self::Modp2048 => Kind::Modp,
            Self::MlKem512 => Kind::Kem(&kem::ML_KEM_512),
            Self::MlKem768 => Kind::Kem(&kem::ML_KEM_768),
            Self::MlKem1024 => Kind::Kem(&kem::ML_KEM_1024),
        }
    }

    /// RFC 5903 §7 sends both coordinates without the byte that says so, X9.62 has it.
    fn public(self, private: &PrivateKey) -> Vec<u8> {
        let public = private.compute_public_key().expect("a public key");
        match self {
            Self::Ecp256 | Self::Ecp384 => public.as_ref()[1..].to_vec(),
            _ => public.as_ref().to_vec(),
        }
    }
}

impl KeyExchange {
    /// Returns the method.
    #[must_use]
    pub fn method(&self) -> Method {
        self.method
    }

    /// Returns the public value to send.
    #[must_use]
    pub fn public(&self) -> &[u8] {
        &self.public
    }

    /// Computes the secret from the responder's public value or ciphertext.
    ///
    /// # Errors
    /// The value is not valid.
    pub fn finish(self, peer: &[u8]) -> Result<Key, Invalid> {
        let invalid = Invalid(self.method);
        match self.private {
            Private::DiffieHellman(private) => {
                let peer = match self.method {
                    Method::Ecp256 | Method::Ecp384 => [&[4], peer].concat(),
                    _ => peer.to_vec(),
                };
                let peer = UnparsedPublicKey::new(private.algorithm(), peer);
                agree(&private, peer, invalid, |secret| Ok(Key::from_bytes(secret)))
            }
            Private::Modp(private) => private.agree(peer).ok_or(invalid),
            Private::Kem(private) => {
                let secret = private.decapsulate(Ciphertext::from(peer)).map_err(|_| invalid)?;
                Ok(Key::from_bytes(secret.as_ref()))
            }
        }
    }
}

impl fmt::Debug for KeyExchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} with its private key", self.method)
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Curve25519 => "x25519",
            Self::Ecp256 => "p-256",
            Self::Ecp384 => "p-384",
            Self::Modp2048 => "modp-2048",
            Self::MlKem512 => "ml-kem-512",
            Self::MlKem768 => "ml-kem-768",
            Self::MlKem1024 => "ml-kem-1024",
        })
    }
}

enum Kind {
    DiffieHellman(&'static agreement::Algorithm, usize),
    Modp,
    Kem(&'static kem::Algorithm),
}

/// A scalar of 0 or not below a curve's order is refused: with P-256 one of 2³², with P-384 one of
/// 2¹⁹⁰.
fn private_key(
    algorithm: &'static agreement::Algorithm,
    len: usize,
    random: &mut dyn Random,
) -> PrivateKey {
    let mut bytes = Zeroizing::new(vec![0; len]);
    for _ in 0..8 {
        random.fill(&mut bytes);
        if let Ok(key) = PrivateKey::from_private_key(algorithm, &bytes) {
            return key;
        }
    }
    panic!("eight private keys in a row were refused: the random numbers are not random")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crypto::SystemRandom;

    #[test]
    fn both_ends_compute_the_same_secret() {
        for method in Method::ALL {
            let ours = method.generate(&mut SystemRandom);
            let (theirs, secret) =
                method.respond(ours.public(), &mut SystemRandom).expect("a valid value");
            let same = ours.finish(&theirs).expect("a valid value");
            assert_eq!(same.as_bytes(), secret.as_bytes(), "{method}");
        }
    }

    #[test]
    fn public_values_have_the_lengths_of_their_rfcs() {
        let lengths = Method::ALL.map(|method| {
            let ours = method.generate(&mut SystemRandom);
            let (theirs, _) = method.respond(ours.public(), &mut SystemRandom).expect("valid");
            (ours.public().len(), theirs.len())
        });
        let expected =
            [(32, 32), (64, 64), (96, 96), (256, 256), (800, 768), (1184, 1088), (1568, 1568)];
        assert_eq!(lengths, expected);
    }

    #[test]
    fn refuses_values_of_another_length_off_the_curve_and_of_small_order() {
        for method in Method::ALL {
            let good = method.generate(&mut SystemRandom).public().to_vec();
            let longer = [&good[..], &[0]].concat();
            let mut values = vec![vec![], good[1..].to_vec(), longer];
            match method {
                Method::Curve25519 => values.extend([vec![0; 32], [&[1][..], &[0; 31]].concat()]),
                Method::Ecp256 | Method::Ecp384 => {
                    let mut off = good.clone();
                    off[1] ^= 1;
                    values.extend([off, vec![0; good.len()]]);
                }
                Method::Modp2048 => values.push([&[0; 255][..], &[1]].concat()),
                // not reduced modulo q
                _ => values.push(vec![0xff; good.len()]),
            }
            for value in values {
                let result = method.respond(&value, &mut SystemRandom).map(drop);
                assert_eq!(result, Err(Invalid(method)), "{method}, {} bytes", value.len());
            }
            for answer in [vec![], vec![0; 31], vec![9; 3000]] {
                let ours = method.generate(&mut SystemRandom);
                assert!(ours.finish(&answer).is_err(), "{method}, {} bytes", answer.len());
            }
        }
    }
}
