//! Certificate authorities and certificates that tests issue.

use std::time::Duration;

use headroom_ike::wire::{Certificate, CertificateEncoding};
use headroom_ike::{Authorities, Credential};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DnType,
    IsCa, KeyIdMethod, KeyPair, RevokedCertParams, SanType, SerialNumber, SignatureAlgorithm,
    date_time_ymd,
};

/// 2026-01-01, a time at which all that is not said to be otherwise is valid.
pub(crate) const NOW: Duration = Duration::from_secs(1_767_225_600);

/// An authority.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate with its chain and its key.
#[derive(Clone)]
pub(crate) struct Issued {
    pub(crate) chain: Vec<Vec<u8>>,
    pub(crate) key: Vec<u8>,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let key = KeyPair::generate().expect("a key");
        Self(CertifiedIssuer::self_signed(authority(name), key).expect("a certificate"))
    }

    /// Makes an authority below this one.
    pub(crate) fn below(&self, name: &str) -> Self {
        let key = KeyPair::generate().expect("a key");
        Self(CertifiedIssuer::signed_by(authority(name), key, &self.0).expect("a certificate"))
    }

    pub(crate) fn der(&self) -> Vec<u8> {
        self.0.der().to_vec()
    }

    /// Issues a certificate with a domain name, an e-mail address and an IP address.
    pub(crate) fn issue(&self, host: &str) -> Issued {
        self.issue_with(host, &rcgen::PKCS_ECDSA_P256_SHA256, |_| {})
    }

    pub(crate) fn issue_with(
        &self,
        host: &str,
        algorithm: &'static SignatureAlgorithm,
        change: impl FnOnce(&mut CertificateParams),
    ) -> Issued {
        let key = KeyPair::generate_for(algorithm).expect("a key");
        let mut params = params(host);
        params.subject_alt_names = vec![
            SanType::DnsName(host.try_into().expect("a name")),
            SanType::Rfc822Name(format!("Root@{host}").as_str().try_into().expect("an address")),
            SanType::IpAddress([192, 0, 2, 1].into()),
        ];
        change(&mut params);
        let certificate = params.signed_by(&key, &self.0).expect("a certificate");
        Issued { chain: vec![certificate.der().to_vec()], key: key.serialize_der() }
    }

    /// Revokes certificates by their serial numbers, in a list of March 2025 that ends with a year.
    pub(crate) fn revoke(&self, serials: &[u64], until: i32) -> Vec<u8> {
        let revoked = |&serial: &u64| RevokedCertParams {
            serial_number: SerialNumber::from(serial),
            revocation_time: date_time_ymd(2025, 2, 1),
            reason_code: None,
            invalidity_date: None,
        };
        let list = CertificateRevocationListParams {
            this_update: date_time_ymd(2025, 3, 1),
            next_update: date_time_ymd(until, 12, 31),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: serials.iter().map(revoked).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        list.signed_by(&self.0).expect("a list").der().to_vec()
    }

    /// Trusts this authority alone.
    pub(crate) fn trusted(&self) -> Authorities {
        Authorities::new(&[self.der()], &[]).expect("an authority")
    }
}

impl Issued {
    /// Adds the certificates of authorities.
    pub(crate) fn with(mut self, authorities: &[&Authority]) -> Self {
        self.chain.extend(authorities.iter().map(|one| one.der()));
        self
    }

    pub(crate) fn credential(&self) -> Credential {
        Credential::new(self.chain.clone(), &self.key).expect("a certificate and its key")
    }

    pub(crate) fn payloads(&self) -> Vec<Certificate<'_>> {
        let encoding = CertificateEncoding::X509Signature;
        self.chain.iter().map(|data| Certificate { encoding, data }).collect()
    }
}

fn params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.not_before = date_time_ymd(2025, 1, 1);
    params.not_after = date_time_ymd(2035, 1, 1);
    params
}

fn authority(name: &str) -> CertificateParams {
    let mut params = params(name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params
}
