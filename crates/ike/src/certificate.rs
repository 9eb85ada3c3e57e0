//! X.509 certificates: what we show, and what we accept from a peer (RFC 7296 §3.6, RFC 4945).
//!
//! webpki builds and checks chains up to the given authorities: signatures, times, constraints of
//! authorities, extended key usage, revocation by given lists. x509-parser reads names and key
//! usage. Nothing is fetched: a certificate by URL is refused, and a list of revoked certificates is
//! what the caller gives.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer, TrustAnchor, UnixTime};
use thiserror::Error;
use webpki::{
    CertRevocationList, EndEntityCert, Error as PathError, ExpirationPolicy,
    ExtendedKeyUsageValidator, KeyPurposeId, KeyPurposeIdIter, KeyUsage, OwnedCertRevocationList,
    RequiredEkuNotFoundContext, RevocationCheckDepth, RevocationOptionsBuilder,
    UnknownStatusPolicy, anchor_from_trusted_cert,
};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::parse_x509_certificate;

use crate::crypto::SigningKey;
use crate::crypto::signature::{ALGORITHMS, verify};
use crate::identity::Identity;
use crate::wire::{AuthMethod, Certificate, CertificateEncoding, HashAlgorithmId};

/// The most certificates of a peer, its own included.
pub const MAX_CERTIFICATES: usize = 8;
/// The most bytes of all certificates of a peer.
pub const MAX_CERTIFICATE_BYTES: usize = 16 * 1024;
/// The most authorities that a CERTREQ names: it is in the answer to a stranger, which must not be
/// much longer than the question.
const MAX_REQUESTED: usize = 8;

/// id-kp-ipsecIKE, 1.3.6.1.5.5.7.3.17 (RFC 4945 §5.1.3.12).
const IPSEC_IKE: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 3, 17];
/// anyExtendedKeyUsage, 2.5.29.37.0.
const ANY_USAGE: KeyPurposeId<'_> = KeyPurposeId::new(&[0x55, 0x1d, 37, 0]);

/// Our certificate, those of authorities between it and the peer's root, and our private key.
#[derive(Debug)]
pub struct Credential {
    chain: Vec<CertificateDer<'static>>,
    key: SigningKey,
}

/// Whose certificates are accepted.
pub struct Authorities {
    anchors: Vec<TrustAnchor<'static>>,
    /// SHA-1 hashes of their public keys, as CERTREQ has them (RFC 7296 §3.7).
    hashes: Vec<u8>,
    revoked: Vec<CertRevocationList<'static>>,
    /// The same, as they were given.
    lists: Vec<Vec<u8>>,
}

/// Why a certificate is not accepted.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
pub enum CertificateError {
    /// There is none.
    #[error("there is no X.509 certificate")]
    Missing,
    /// The peer sent where to fetch it.
    #[error("certificates by URL are not fetched")]
    Url,
    /// There are too many.
    #[error("more than {MAX_CERTIFICATES} certificates or {MAX_CERTIFICATE_BYTES} bytes of them")]
    TooMany,
    /// It cannot be read.
    #[error("certificate {0} is malformed")]
    Malformed(usize),
    /// It is not valid any more.
    #[error("the certificate of {subject} expired on {at}")]
    Expired {
        /// Whose certificate.
        subject: String,
        /// When.
        at: String,
    },
    /// It is not valid yet.
    #[error("the certificate of {subject} is not valid before {at}")]
    NotYetValid {
        /// Whose certificate.
        subject: String,
        /// When.
        at: String,
    },
    /// The chain does not lead to an authority that is trusted.
    #[error("no trusted authority issued the certificate of {0}")]
    UnknownIssuer(String),
    /// Its authority revoked it, or one of the chain.
    #[error("the certificate of {0}, or of one of its authorities, is revoked")]
    Revoked(String),
    /// Lists of revoked certificates were given, but none that is valid covers it.
    #[error("no valid revocation list covers the certificate of {0}")]
    RevocationUnknown(String),
    /// Its key usage or extended key usage forbids IKE.
    #[error("the certificate of {0} is not for IKE (RFC 4945)")]
    Usage(String),
    /// It does not have the peer's name.
    #[error("the certificate of {subject} does not have the name {name}")]
    Name {
        /// Whose certificate.
        subject: String,
        /// What the peer calls itself.
        name: String,
    },
    /// Something else is wrong with the chain.
    #[error("the chain of the certificate of {subject}: {problem}")]
    Chain {
        /// Whose certificate.
        subject: String,
        /// What webpki found.
        problem: String,
    },
    /// The signature is wrong.
    #[error("the signature is not one of the key of {0}")]
    Signature(String),
    /// Nobody told the time of day.
    #[error("the time of day is not known")]
    NoClock,
    /// The peer checks no signature that our key makes.
    #[error("the peer accepts no signature of our key")]
    NoCommonHash,
    /// The private key is not that of the certificate, or of an unknown algorithm.
    #[error(
        "the private key does not belong to the certificate, or its algorithm is not supported"
    )]
    Key,
}

impl Credential {
    /// Takes certificates in DER, ours first, and our private key (see [`SigningKey::from_der`]).
    ///
    /// # Errors
    /// A certificate cannot be read, or the key is not that of the first.
    pub fn new(chain: Vec<Vec<u8>>, key: &[u8]) -> Result<Self, CertificateError> {
        let chain: Vec<_> = chain.into_iter().map(CertificateDer::from).collect();
        for (at, one) in chain.iter().enumerate() {
            parse(one).ok_or(CertificateError::Malformed(at))?;
        }
        let first = chain.first().ok_or(CertificateError::Missing)?;
        let leaf = EndEntityCert::try_from(first).map_err(|_| CertificateError::Malformed(0))?;
        let key = SigningKey::from_der(key).ok_or(CertificateError::Key)?;
        let (method, data) =
            key.sign(Some(&crate::crypto::HASHES), b"probe").map_err(|_| CertificateError::Key)?;
        match verify(&leaf, first, (method, &data), b"probe") {
            true => Ok(Self { chain, key }),
            false => Err(CertificateError::Key),
        }
    }

    /// Returns its names: those of its subjectAltName, then its subject.
    #[must_use]
    pub fn names(&self) -> Vec<Identity> {
        self.chain.first().map_or_else(Vec::new, |first| names_of(first))
    }

    /// Tells whether it is of the same certificates; then the keys are the same.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.chain == other.chain
    }

    /// Returns the CERT payloads.
    pub(crate) fn payloads(&self) -> impl Iterator<Item = Certificate<'_>> {
        let encoding = CertificateEncoding::X509Signature;
        self.chain.iter().map(move |one| Certificate { encoding, data: one })
    }

    /// Signs the octets of AUTH.
    pub(crate) fn sign(
        &self,
        accepted: Option<&[HashAlgorithmId]>,
        octets: &[u8],
    ) -> Result<(AuthMethod, Vec<u8>), CertificateError> {
        self.key.sign(accepted, octets).map_err(|_| CertificateError::NoCommonHash)
    }
}

impl Authorities {
    /// Takes certificates of authorities and lists of revoked certificates, all in DER. With lists,
    /// each certificate of a chain must be covered by one that is not out of date.
    ///
    /// # Errors
    /// One cannot be read; a list counts after the certificates.
    pub fn new(certificates: &[Vec<u8>], revoked: &[Vec<u8>]) -> Result<Self, CertificateError> {
        let (mut anchors, mut hashes) = (Vec::new(), Vec::new());
        for (at, one) in certificates.iter().enumerate() {
            let der = CertificateDer::from(&one[..]);
            let anchor = anchor_from_trusted_cert(&der).ok();
            let (Some(anchor), Some(parsed)) = (anchor, parse(one)) else {
                return Err(CertificateError::Malformed(at));
            };
            anchors.push(anchor.to_owned());
            hashes.extend(digest(&SHA1_FOR_LEGACY_USE_ONLY, parsed.public_key().raw).as_ref());
        }
        let lists = revoked.iter().enumerate().map(|(at, one)| {
            OwnedCertRevocationList::from_der(one)
                .map(CertRevocationList::from)
                .map_err(|_| CertificateError::Malformed(certificates.len() + at))
        });
        let lists = lists.collect::<Result<_, _>>()?;
        Ok(Self { anchors, hashes, revoked: lists, lists: revoked.to_vec() })
    }

    /// Tells whether the same certificates are accepted.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.anchors == other.anchors && self.lists == other.lists
    }

    /// Returns the hashes of a CERTREQ that asks for certificates of any of them.
    pub(crate) fn request(all: &[&Self]) -> Vec<u8> {
        let mut hashes = Vec::new();
        for hash in all.iter().flat_map(|one| one.hashes.as_chunks::<20>().0).take(MAX_REQUESTED) {
            hashes.extend(hash);
        }
        hashes
    }

    /// Returns the authorities for TLS.
    pub(crate) fn anchors(&self) -> &[TrustAnchor<'static>] {
        &self.anchors
    }

    /// Returns the lists for TLS.
    pub(crate) fn revocation_lists(
        &self,
    ) -> impl Iterator<Item = CertificateRevocationListDer<'static>> {
        self.lists.iter().map(|one| one.clone().into())
    }

    /// Checks a peer's certificates, its name and the signature of its AUTH payload, at a time since
    /// 1970.
    ///
    /// # Errors
    /// Says which is wrong. The peer must not be told.
    pub fn check(
        &self,
        certificates: &[Certificate<'_>],
        name: &Identity,
        auth: (AuthMethod, &[u8]),
        octets: &[u8],
        time: Option<Duration>,
    ) -> Result<(), CertificateError> {
        let time = time.ok_or(CertificateError::NoClock)?;
        let chain = bounded(certificates)?;
        let (first, others) = chain.split_first().ok_or(CertificateError::Missing)?;
        let parsed = parse(first).ok_or(CertificateError::Malformed(0))?;
        let subject = shown(&parsed);
        let leaf = EndEntityCert::try_from(first).map_err(|_| CertificateError::Malformed(0))?;
        // the cheapest first: most mistakes are wrong names
        if !has_name(&parsed, name) {
            return Err(CertificateError::Name { subject, name: name.to_string() });
        }
        // RFC 4945 §5.1.3.2
        let usage = parsed.key_usage().map_err(|_| CertificateError::Malformed(0))?;
        if usage.is_some_and(|one| !one.value.digital_signature() && !one.value.non_repudiation()) {
            return Err(CertificateError::Usage(subject));
        }
        let lists: Vec<_> = self.revoked.iter().collect();
        let revocation = RevocationOptionsBuilder::new(&lists).ok().map(|options| {
            options
                .with_depth(RevocationCheckDepth::Chain)
                .with_status_policy(UnknownStatusPolicy::Deny)
                .with_expiration_policy(ExpirationPolicy::Enforce)
                .build()
        });
        let now = UnixTime::since_unix_epoch(time);
        leaf.verify_for_usage(&ALGORITHMS, &self.anchors, others, now, Usage, revocation, None)
            .map_err(|problem| described(problem, subject.clone(), &chain, time))?;
        match verify(&leaf, first, auth, octets) {
            true => Ok(()),
            false => Err(CertificateError::Signature(subject)),
        }
    }
}

/// Checks whether the data of an AUTH payload is a signature of the key of a certificate in DER. What
/// the certificate is worth is not checked.
#[must_use]
pub fn is_signed_by(certificate: &[u8], auth: (AuthMethod, &[u8]), octets: &[u8]) -> bool {
    let certificate = CertificateDer::from(certificate);
    EndEntityCert::try_from(&certificate)
        .is_ok_and(|leaf| verify(&leaf, &certificate, auth, octets))
}

impl fmt::Debug for Authorities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Authorities({}, {} lists)", self.anchors.len(), self.revoked.len())
    }
}

/// What the extended key usage must have, if there is one (RFC 4945 §5.1.3.12). The usages of TLS
/// are not enough: an authority that does not write of IKE has not meant it.
struct Usage;

impl ExtendedKeyUsageValidator for Usage {
    fn validate(&self, purposes: KeyPurposeIdIter<'_, '_>) -> Result<(), PathError> {
        let mut present = Vec::new();
        for purpose in purposes {
            let purpose = purpose?;
            if purpose == KeyPurposeId::new(IPSEC_IKE) || purpose == ANY_USAGE {
                return Ok(());
            }
            present.push(purpose.to_decoded_oid());
        }
        if present.is_empty() {
            return Ok(());
        }
        let required = KeyUsage::required_if_present(IPSEC_IKE);
        let context = RequiredEkuNotFoundContext { required, present };
        Err(PathError::RequiredEkuNotFoundContext(context))
    }
}

/// Takes the certificates out of CERT payloads.
fn bounded<'a>(
    certificates: &'a [Certificate<'a>],
) -> Result<Vec<CertificateDer<'a>>, CertificateError> {
    let is_url = |one: &Certificate<'_>| {
        matches!(
            one.encoding,
            CertificateEncoding::HashAndUrl | CertificateEncoding::HashAndUrlBundle
        )
    };
    if certificates.iter().any(is_url) {
        return Err(CertificateError::Url);
    }
    // other encodings, such as lists of revoked certificates, are no part of a chain
    let x509 = certificates.iter().filter(|one| one.encoding == CertificateEncoding::X509Signature);
    let chain: Vec<_> = x509.map(|one| CertificateDer::from(one.data)).collect();
    let bytes: usize = chain.iter().map(|one| one.len()).sum();
    match chain.len() > MAX_CERTIFICATES || bytes > MAX_CERTIFICATE_BYTES {
        true => Err(CertificateError::TooMany),
        false => Ok(chain),
    }
}

fn parse(der: &[u8]) -> Option<X509Certificate<'_>> {
    parse_x509_certificate(der).ok().filter(|(rest, _)| rest.is_empty()).map(|(_, one)| one)
}

fn shown(certificate: &X509Certificate<'_>) -> String {
    Identity::Dn(certificate.subject().as_raw().to_vec()).to_string()
}

/// Checks whether a certificate has a name (RFC 4945 §3.1): an address, a domain name or an e-mail
/// address in subjectAltName, a distinguished name as subject, byte for byte.
fn has_name(certificate: &X509Certificate<'_>, name: &Identity) -> bool {
    names(certificate).iter().any(|one| one.matches(name))
}

/// Returns all names of a certificate in DER: those of its subjectAltName, then its subject.
pub(crate) fn names_of(der: &[u8]) -> Vec<Identity> {
    parse(der).map_or_else(Vec::new, |one| names(&one))
}

fn names(certificate: &X509Certificate<'_>) -> Vec<Identity> {
    let alternative = certificate.subject_alternative_name().ok().flatten();
    let alternative = alternative.iter().flat_map(|one| &one.value.general_names);
    let alternative = alternative.filter_map(|one| match one {
        GeneralName::DNSName(name) => Some(Identity::Fqdn((*name).to_owned())),
        GeneralName::RFC822Name(name) => Some(Identity::Email((*name).to_owned())),
        GeneralName::IPAddress(bytes) => address(bytes).map(Identity::Address),
        _ => None,
    });
    let subject = certificate.subject().as_raw();
    // SEQUENCE {} is no name
    let subject = Some(subject).filter(|one| one.len() > 2).map(|one| Identity::Dn(one.to_vec()));
    alternative.chain(subject).collect()
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from);
    v4.or_else(|| <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from))
}

/// Says which certificate of the chain is the wrong one, where webpki does not.
fn described(
    problem: PathError,
    subject: String,
    chain: &[CertificateDer<'_>],
    time: Duration,
) -> CertificateError {
    let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    let parsed = || chain.iter().filter_map(|one| parse(one));
    match problem {
        PathError::CertExpired { .. } => {
            let expired = parsed().find(|one| one.validity().not_after.timestamp() < seconds);
            let (subject, at) = expired.map_or((subject, String::new()), |one| {
                (shown(&one), one.validity().not_after.to_string())
            });
            CertificateError::Expired { subject, at }
        }
        PathError::CertNotValidYet { .. } => {
            let early = parsed().find(|one| one.validity().not_before.timestamp() > seconds);
            let (subject, at) = early.map_or((subject, String::new()), |one| {
                (shown(&one), one.validity().not_before.to_string())
            });
            CertificateError::NotYetValid { subject, at }
        }
        PathError::UnknownIssuer => CertificateError::UnknownIssuer(subject),
        PathError::CertRevoked => CertificateError::Revoked(subject),
        PathError::UnknownRevocationStatus | PathError::CrlExpired { .. } => {
            CertificateError::RevocationUnknown(subject)
        }
        PathError::RequiredEkuNotFoundContext(_) => CertificateError::Usage(subject),
        other => CertificateError::Chain { subject, problem: format!("{other:?}") },
    }
}
