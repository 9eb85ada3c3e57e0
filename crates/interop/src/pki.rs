//! An authority, and the certificates that it issues.

use std::fmt;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::Result;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, SanType,
    SignatureAlgorithm,
};

/// The kind of a certificate's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyKind {
    /// ECDSA with P-256.
    EcdsaP256,
    /// ECDSA with P-384.
    EcdsaP384,
    /// RSA, 2048 bits.
    Rsa,
    /// Ed25519.
    Ed25519,
}

/// The authority.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key.
pub(crate) struct Issued {
    certificate: rcgen::Certificate,
    key: KeyPair,
}

impl KeyKind {
    fn algorithm(self) -> &'static SignatureAlgorithm {
        match self {
            Self::EcdsaP256 => &rcgen::PKCS_ECDSA_P256_SHA256,
            Self::EcdsaP384 => &rcgen::PKCS_ECDSA_P384_SHA384,
            Self::Rsa => &rcgen::PKCS_RSA_SHA256,
            Self::Ed25519 => &rcgen::PKCS_ED25519,
        }
    }
}

impl fmt::Display for KeyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::EcdsaP256 => "ECDSA with P-256",
            Self::EcdsaP384 => "ECDSA with P-384",
            Self::Rsa => "RSA-PSS",
            Self::Ed25519 => "Ed25519",
        })
    }
}

impl Authority {
    pub(crate) fn new() -> Result<Self> {
        let mut params = params("authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Ok(Self(CertifiedIssuer::self_signed(params, KeyPair::generate()?)?))
    }

    pub(crate) fn issue(&self, name: &str, kind: KeyKind) -> Result<Issued> {
        let key = KeyPair::generate_for(kind.algorithm())?;
        let mut params = params(name);
        params.subject_alt_names = vec![SanType::DnsName(name.try_into()?)];
        Ok(Issued { certificate: params.signed_by(&key, &self.0)?, key })
    }
}

impl Issued {
    /// Writes `NAME.pem`, `NAME.key` and `authority.pem`.
    pub(crate) fn save(&self, folder: &Path, name: &str, authority: &Authority) -> Result<()> {
        std::fs::write(folder.join("authority.pem"), authority.0.pem())?;
        std::fs::write(folder.join(format!("{name}.pem")), self.certificate.pem())?;
        let key = folder.join(format!("{name}.key"));
        std::fs::write(&key, self.key.serialize_pem())?;
        Ok(std::fs::set_permissions(key, Permissions::from_mode(0o600))?)
    }
}

fn params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params
}
