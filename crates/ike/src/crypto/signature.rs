//! Signatures of AUTH payloads: those that name their algorithm (RFC 7427), and the two methods of
//! RFC 4754 for peers without it.
//!
//! We sign with ECDSA, Ed25519 or RSASSA-PSS. From a peer RSASSA-PKCS1-v1_5 with SHA-2 is accepted,
//! too: strongSwan signs with it unless told otherwise. SHA-1 is never accepted, nor method 1, which
//! is RSASSA-PKCS1-v1_5 with SHA-1 in practice; P-521 has no method for peers without RFC 7427.

use std::fmt;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeyPair as RsaKeyPair;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING,
    ECDSA_P384_SHA384_ASN1_SIGNING, ECDSA_P384_SHA384_FIXED, ECDSA_P384_SHA384_FIXED_SIGNING,
    EcdsaKeyPair, EcdsaSigningAlgorithm, EcdsaVerificationAlgorithm, Ed25519KeyPair,
    RSA_PSS_SHA256, RSA_PSS_SHA384, RSA_PSS_SHA512, UnparsedPublicKey,
};
use rustls_pki_types::{AlgorithmIdentifier, SignatureVerificationAlgorithm, alg_id};
use webpki::{EndEntityCert, aws_lc_rs as algorithms};
use x509_parser::der_parser::{Oid, oid};
use x509_parser::oid_registry::{
    OID_NIST_HASH_SHA256, OID_NIST_HASH_SHA384, OID_NIST_HASH_SHA512, OID_PKCS1_RSASSAPSS,
};
use x509_parser::prelude::FromDer;
use x509_parser::signature_algorithm::RsaSsaPssParams;
use x509_parser::x509;

use crate::wire::{AuthMethod, DigitalSignature, HashAlgorithmId};

/// The hash functions of signatures that we check.
pub const HASHES: [HashAlgorithmId; 4] = [
    HashAlgorithmId::Sha256,
    HashAlgorithmId::Sha384,
    HashAlgorithmId::Sha512,
    HashAlgorithmId::Identity,
];

/// What a certificate may be signed with, and a peer's AUTH payload.
pub(crate) const ALGORITHMS: [&dyn SignatureVerificationAlgorithm; 19] = [
    algorithms::ECDSA_P256_SHA256,
    algorithms::ECDSA_P256_SHA384,
    algorithms::ECDSA_P256_SHA512,
    algorithms::ECDSA_P384_SHA256,
    algorithms::ECDSA_P384_SHA384,
    algorithms::ECDSA_P384_SHA512,
    algorithms::ECDSA_P521_SHA256,
    algorithms::ECDSA_P521_SHA384,
    algorithms::ECDSA_P521_SHA512,
    algorithms::ED25519,
    algorithms::RSA_PKCS1_2048_8192_SHA256,
    algorithms::RSA_PKCS1_2048_8192_SHA256_ABSENT_PARAMS,
    algorithms::RSA_PKCS1_2048_8192_SHA384,
    algorithms::RSA_PKCS1_2048_8192_SHA384_ABSENT_PARAMS,
    algorithms::RSA_PKCS1_2048_8192_SHA512,
    algorithms::RSA_PKCS1_2048_8192_SHA512_ABSENT_PARAMS,
    algorithms::RSA_PSS_2048_8192_SHA256_LEGACY_KEY,
    algorithms::RSA_PSS_2048_8192_SHA384_LEGACY_KEY,
    algorithms::RSA_PSS_2048_8192_SHA512_LEGACY_KEY,
];

/// The function of masks of RSASSA-PSS.
const MGF1: Oid<'static> = oid!(1.2.840.113549.1.1.8);

/// A private key: of ECDSA with P-256 or P-384, of RSA, or of Ed25519. AWS-LC holds and erases it.
pub enum SigningKey {
    /// P-256.
    EcdsaP256(EcdsaKeys),
    /// P-384.
    EcdsaP384(EcdsaKeys),
    /// RSA; it signs with RSASSA-PSS.
    Rsa(RsaKeyPair),
    /// Ed25519.
    Ed25519(Ed25519KeyPair),
}

/// One key in both formats of signatures.
pub struct EcdsaKeys {
    /// In DER, as RFC 7427 has it.
    asn1: EcdsaKeyPair,
    /// Two numbers, as RFC 4754 has it.
    fixed: EcdsaKeyPair,
}

/// The peer checks none of the signatures that the key makes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct NoCommonHash;

impl SigningKey {
    /// Reads PKCS #8, or what OpenSSL wrote before it: SEC 1 and PKCS #1. None if it is none of
    /// them, of another algorithm, or of an RSA key below 2048 bits.
    #[must_use]
    pub fn from_der(der: &[u8]) -> Option<Self> {
        let p256 = || {
            EcdsaKeys::from_der(
                der,
                &ECDSA_P256_SHA256_ASN1_SIGNING,
                &ECDSA_P256_SHA256_FIXED_SIGNING,
            )
        };
        let p384 = || {
            EcdsaKeys::from_der(
                der,
                &ECDSA_P384_SHA384_ASN1_SIGNING,
                &ECDSA_P384_SHA384_FIXED_SIGNING,
            )
        };
        let rsa = || RsaKeyPair::from_pkcs8(der).or_else(|_| RsaKeyPair::from_der(der)).ok();
        let ed25519 = || Ed25519KeyPair::from_pkcs8_maybe_unchecked(der).ok();
        p256()
            .map(Self::EcdsaP256)
            .or_else(|| p384().map(Self::EcdsaP384))
            .or_else(|| ed25519().map(Self::Ed25519))
            .or_else(|| rsa().map(Self::Rsa))
    }

    /// Signs for a peer that accepts these hash functions (RFC 7427 §4), or for one that named none.
    /// Returns the method and the data of the AUTH payload.
    ///
    /// # Errors
    /// The peer accepts none that the key can use.
    pub fn sign(
        &self,
        accepted: Option<&[HashAlgorithmId]>,
        octets: &[u8],
    ) -> Result<(AuthMethod, Vec<u8>), NoCommonHash> {
        let Some(accepted) = accepted else {
            return match self {
                Self::EcdsaP256(keys) => Ok((AuthMethod::EcdsaP256, sign(&keys.fixed, octets)?)),
                Self::EcdsaP384(keys) => Ok((AuthMethod::EcdsaP384, sign(&keys.fixed, octets)?)),
                Self::Rsa(_) | Self::Ed25519(_) => Err(NoCommonHash),
            };
        };
        let accepts = |hash| accepted.contains(&hash);
        let (algorithm, signature) = match self {
            Self::EcdsaP256(keys) if accepts(HashAlgorithmId::Sha256) => {
                (alg_id::ECDSA_SHA256, sign(&keys.asn1, octets)?)
            }
            Self::EcdsaP384(keys) if accepts(HashAlgorithmId::Sha384) => {
                (alg_id::ECDSA_SHA384, sign(&keys.asn1, octets)?)
            }
            Self::Ed25519(key) if accepts(HashAlgorithmId::Identity) => {
                (alg_id::ED25519, key.sign(octets).as_ref().to_vec())
            }
            Self::Rsa(key) => {
                let paddings = [
                    (HashAlgorithmId::Sha256, alg_id::RSA_PSS_SHA256, &RSA_PSS_SHA256),
                    (HashAlgorithmId::Sha384, alg_id::RSA_PSS_SHA384, &RSA_PSS_SHA384),
                    (HashAlgorithmId::Sha512, alg_id::RSA_PSS_SHA512, &RSA_PSS_SHA512),
                ];
                let padding = paddings.into_iter().find(|(hash, ..)| accepts(*hash));
                let (_, algorithm, padding) = padding.ok_or(NoCommonHash)?;
                let mut signature = vec![0; key.public_modulus_len()];
                key.sign(padding, &SystemRandom::new(), octets, &mut signature)
                    .map_err(|_| NoCommonHash)?;
                (algorithm, signature)
            }
            _ => return Err(NoCommonHash),
        };
        let algorithm = sequence(algorithm);
        let data = DigitalSignature { algorithm: &algorithm, signature: &signature }.emit();
        Ok((AuthMethod::DigitalSignature, data))
    }
}

impl EcdsaKeys {
    fn from_der(
        der: &[u8],
        asn1: &'static EcdsaSigningAlgorithm,
        fixed: &'static EcdsaSigningAlgorithm,
    ) -> Option<Self> {
        let read = |algorithm| {
            EcdsaKeyPair::from_pkcs8(algorithm, der)
                .or_else(|_| EcdsaKeyPair::from_private_key_der(algorithm, der))
                .ok()
        };
        Some(Self { asn1: read(asn1)?, fixed: read(fixed)? })
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::EcdsaP256(_) => "SigningKey(ECDSA P-256)",
            Self::EcdsaP384(_) => "SigningKey(ECDSA P-384)",
            Self::Rsa(_) => "SigningKey(RSA)",
            Self::Ed25519(_) => "SigningKey(Ed25519)",
        })
    }
}

fn sign(key: &EcdsaKeyPair, octets: &[u8]) -> Result<Vec<u8>, NoCommonHash> {
    let signature = key.sign(&SystemRandom::new(), octets);
    signature.map(|one| one.as_ref().to_vec()).map_err(|_| NoCommonHash)
}

/// Checks the data of an AUTH payload against the key of a certificate, which `der` is, too.
#[must_use]
pub(crate) fn verify(
    certificate: &EndEntityCert<'_>,
    der: &[u8],
    (method, data): (AuthMethod, &[u8]),
    octets: &[u8],
) -> bool {
    match method {
        AuthMethod::DigitalSignature => {
            let Ok(DigitalSignature { algorithm, signature }) = DigitalSignature::parse(data)
            else {
                return false;
            };
            let Some(algorithm) = canonical(algorithm) else { return false };
            let named = |one: &&&dyn SignatureVerificationAlgorithm| {
                one.signature_alg_id().as_ref() == algorithm
            };
            let verifies = |one: &dyn SignatureVerificationAlgorithm| {
                certificate.verify_signature(one, octets, signature).is_ok()
            };
            ALGORITHMS.iter().filter(named).any(|one| verifies(*one))
        }
        AuthMethod::EcdsaP256 => {
            verify_fixed(der, alg_id::ECDSA_P256, &ECDSA_P256_SHA256_FIXED, data, octets)
        }
        AuthMethod::EcdsaP384 => {
            verify_fixed(der, alg_id::ECDSA_P384, &ECDSA_P384_SHA384_FIXED, data, octets)
        }
        _ => false,
    }
}

/// Checks a signature of two numbers, which webpki does not read.
fn verify_fixed(
    der: &[u8],
    curve: AlgorithmIdentifier,
    algorithm: &'static EcdsaVerificationAlgorithm,
    signature: &[u8],
    octets: &[u8],
) -> bool {
    let Ok((_, certificate)) = x509_parser::parse_x509_certificate(der) else { return false };
    let key = certificate.public_key();
    // SEQUENCE { algorithm, BIT STRING }: these keys are shorter than 128 bytes
    let of_curve = key.raw.get(2..).is_some_and(|inner| inner.starts_with(&sequence(curve)));
    let key = UnparsedPublicKey::new(algorithm, &key.subject_public_key.data);
    of_curve && key.verify(octets, signature).is_ok()
}

/// Returns the content of an AlgorithmIdentifier; of RSASSA-PSS, which has several encodings, the
/// one without what is default. None for parameters of RSASSA-PSS that are not those of the hash
/// function: another function for the mask, another length of the salt.
fn canonical(identifier: &[u8]) -> Option<Vec<u8>> {
    let (rest, parsed) = x509::AlgorithmIdentifier::from_der(identifier).ok()?;
    let [0x30, length, content @ ..] = identifier else { return None };
    if !rest.is_empty() || usize::from(*length) != content.len() {
        return None;
    }
    if parsed.algorithm != OID_PKCS1_RSASSAPSS {
        return Some(content.to_vec());
    }
    let parameters = RsaSsaPssParams::try_from(parsed.parameters.as_ref()?).ok()?;
    let known = [
        (OID_NIST_HASH_SHA256, 32, alg_id::RSA_PSS_SHA256),
        (OID_NIST_HASH_SHA384, 48, alg_id::RSA_PSS_SHA384),
        (OID_NIST_HASH_SHA512, 64, alg_id::RSA_PSS_SHA512),
    ];
    let hash = parameters.hash_algorithm_oid();
    let mask = parameters.mask_gen_algorithm().ok()?;
    let (_, salt, known) = known.into_iter().find(|(oid, ..)| oid == hash)?;
    let usual = mask.mgf == MGF1
        && mask.hash == *hash
        && parameters.salt_length() == salt
        && parameters.trailer_field() == 1;
    usual.then(|| known.as_ref().to_vec())
}

/// Returns the AlgorithmIdentifier with its tag and length.
fn sequence(content: AlgorithmIdentifier) -> Vec<u8> {
    [&[0x30, content.as_ref().len() as u8], content.as_ref()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pss(hash: u8, mask: u8, salt: u8, trailer: &[u8]) -> Vec<u8> {
        let hash_algorithm =
            |one| [0x30, 13, 6, 9, 0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, one, 5, 0].to_vec();
        let mgf1 = [&[6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 13, 1, 1, 8], &hash_algorithm(mask)[..]];
        let parameters = [
            tagged(0xa0, &hash_algorithm(hash)),
            tagged(0xa1, &tagged(0x30, &mgf1.concat())),
            tagged(0xa2, &[2, 1, salt]),
            trailer.to_vec(),
        ];
        let oid = [6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 13, 1, 1, 10];
        tagged(0x30, &[&oid[..], &tagged(0x30, &parameters.concat())].concat())
    }

    fn tagged(tag: u8, content: &[u8]) -> Vec<u8> {
        [&[tag, content.len() as u8], content].concat()
    }

    #[test]
    fn reads_both_encodings_of_pss_and_refuses_odd_parameters() {
        let known = sequence(alg_id::RSA_PSS_SHA256);
        assert_eq!(pss(1, 1, 32, &[]), known);
        let shortest = Some(alg_id::RSA_PSS_SHA256.as_ref().to_vec());
        assert_eq!(canonical(&known), shortest);
        // RFC 7427 §A.4.3 has the trailer, too
        assert_eq!(canonical(&pss(1, 1, 32, &[0xa3, 3, 2, 1, 1])), shortest);
        let odd = [
            pss(1, 2, 32, &[]),
            pss(2, 1, 48, &[]),
            pss(1, 1, 20, &[]),
            pss(1, 1, 0, &[]),
            pss(1, 1, 32, &[0xa3, 3, 2, 1, 2]),
            // SHA-224
            pss(4, 4, 28, &[]),
            // no parameters: SHA-1
            tagged(0x30, &[6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 13, 1, 1, 10, 0x30, 0]),
            [&known[..], &[0]].concat(),
        ];
        for odd in odd {
            assert_eq!(canonical(&odd), None, "{odd:02x?}");
        }
    }
}
