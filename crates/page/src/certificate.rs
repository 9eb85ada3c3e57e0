//! The certificates of the page: one for HTTPS, which people or authorities vouch for, and one for
//! sessions, which is short-lived and which the page pins by its hash.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use headroom_transfer::server::WebCertificate;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, PKCS_ECDSA_P256_SHA256};
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::NoServerSessionStorage;
use time::{Duration, OffsetDateTime};

use crate::error::Error;
use crate::issued::{AcmeOptions, Issued};
use crate::private_file;

/// How long a session's certificate is valid; browsers refuse more than 14 days.
const SESSION_DAYS: i64 = 13;
/// By how much the clock of a browser may be behind.
const SLOW_CLOCK: Duration = Duration::days(1);
/// How long our own certificate for HTTPS is valid. Safari refuses more than 825 days.
const PAGE_DAYS: i64 = 397;
/// How many days before its end it is replaced, when a server starts.
const REPLACED: Duration = Duration::days(30);

/// Where the certificate for HTTPS comes from.
#[derive(Debug, Clone)]
pub enum CertificateSource {
    /// A chain and its key, in PEM.
    Files {
        /// The certificate, and intermediate ones.
        certificate: PathBuf,
        /// Its key.
        key: PathBuf,
    },
    /// One of our own, which is made if this file is missing.
    SelfSigned(PathBuf),
    /// One that an ACME authority issues.
    Acme {
        /// The authority, and what it is asked for.
        options: AcmeOptions,
        /// The file of one of our own, which is shown until the authority has issued the first.
        meanwhile: PathBuf,
    },
}

/// A certificate for HTTPS.
#[derive(Debug, Clone)]
pub(crate) struct PageCertificate {
    pub(crate) config: Arc<ServerConfig>,
    /// The names in it.
    pub(crate) names: Vec<String>,
    /// The SHA-256 hash of its DER encoding.
    pub(crate) hash: [u8; 32],
    /// Whether it is our own.
    pub(crate) is_own: bool,
}

impl PageCertificate {
    /// Reads it, or makes one for these names.
    pub(crate) fn load(source: &CertificateSource, names: &[String]) -> Result<Self, Error> {
        match source {
            CertificateSource::Files { certificate, key } => {
                let chain = chain(certificate)?;
                let key = PrivateKeyDer::from_pem_file(key)
                    .map_err(|error| Error::certificate(key, &error))?;
                Self::new(chain, key).map_err(|error| Error::certificate(certificate, &error))
            }
            CertificateSource::SelfSigned(path) => Self::own(path, names),
            CertificateSource::Acme { options, meanwhile } => {
                options.check().map_err(Error::Acme)?;
                match options.read() {
                    Some(issued) => Self::issued(issued).map_err(|it| Error::Acme(it.to_string())),
                    None => Self::own(meanwhile, names),
                }
            }
        }
    }

    /// Takes one that an authority issued.
    pub(crate) fn issued(issued: Issued) -> Result<Self, rustls::Error> {
        Self::new(issued.chain, issued.key)
    }

    fn own(path: &Path, names: &[String]) -> Result<Self, Error> {
        let made = own(path, names).map_err(|cause| Error::Certificate {
            path: path.to_owned(),
            cause: cause.to_string(),
        })?;
        let own = Self::new(vec![made.0], made.1);
        let own = own.map_err(|error| Error::certificate(path, &error))?;
        Ok(Self { is_own: true, ..own })
    }

    fn new(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
    ) -> Result<Self, rustls::Error> {
        let own = chain.first().cloned();
        let own = own.ok_or_else(|| rustls::Error::General("it is empty".to_owned()))?;
        let mut config =
            ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
                .with_protocol_versions(&[&rustls::version::TLS13])?
                .with_no_client_auth()
                .with_single_cert(chain, key)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        let names = match webpki::EndEntityCert::try_from(&own) {
            Ok(parsed) => parsed.valid_dns_names().map(str::to_owned).collect(),
            Err(_) => Vec::new(),
        };
        let hash = ::aws_lc_rs::digest::digest(&::aws_lc_rs::digest::SHA256, &own);
        let mut bytes = [0; 32];
        bytes.copy_from_slice(hash.as_ref());
        Ok(Self { config: Arc::new(config), names, hash: bytes, is_own: false })
    }
}

fn chain(path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect)
        .map_err(|error| Error::certificate(path, &error))
}

/// Makes a certificate for sessions that begin now.
pub(crate) fn session_certificate() -> Result<WebCertificate, Error> {
    let (certificate, key) = make(&["headroom".to_owned()], SESSION_DAYS)
        .map_err(|error| Error::Make(error.to_string()))?;
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    Ok(WebCertificate::new(certificate.der().clone(), key)?)
}

/// Reads our own certificate for HTTPS, or makes it. It is kept, so that a browser that was told
/// to accept it goes on doing so.
fn own(
    path: &Path,
    names: &[String],
) -> std::io::Result<(CertificateDer<'static>, PrivateKeyDer<'static>)> {
    let other = std::io::Error::other;
    if let (Ok(certificate), Ok(key)) =
        (CertificateDer::from_pem_file(path), PrivateKeyDer::from_pem_file(path))
        && is_fresh(path)
    {
        return Ok((certificate, key));
    }
    let (certificate, key) = make(names, PAGE_DAYS).map_err(other)?;
    private_file::write(path, &format!("{}{}", certificate.pem(), key.serialize_pem()))?;
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    Ok((certificate.der().clone(), key))
}

/// Whether a certificate that was written to this file is valid for long enough.
pub(crate) fn is_fresh(path: &Path) -> bool {
    let age = fs::metadata(path).and_then(|meta| meta.modified()).ok();
    let age = age.and_then(|written| SystemTime::now().duration_since(written).ok());
    let longest = Duration::days(PAGE_DAYS) - SLOW_CLOCK - REPLACED;
    age.is_none_or(|age| age < longest.unsigned_abs())
}

fn make(names: &[String], days: i64) -> Result<(rcgen::Certificate, KeyPair), rcgen::Error> {
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
    let mut params = CertificateParams::new(names)?;
    let mut subject = DistinguishedName::new();
    subject.push(DnType::CommonName, names.first().map_or("headroom", String::as_str));
    params.distinguished_name = subject;
    params.not_before = OffsetDateTime::now_utc() - SLOW_CLOCK;
    params.not_after = params.not_before + Duration::days(days);
    let certificate = params.self_signed(&key)?;
    Ok((certificate, key))
}

/// Returns the names and addresses of this machine that a certificate of our own should have.
pub(crate) fn own_names(address: IpAddr, more: &[String]) -> Vec<String> {
    let mut names = more.to_vec();
    names.extend(host_names());
    names.extend(["localhost", "127.0.0.1", "::1"].map(str::to_owned));
    if !address.is_unspecified() {
        names.push(address.to_string());
    }
    names.sort();
    names.dedup();
    names
}

/// Returns the names of this machine.
pub(crate) fn host_names() -> Vec<String> {
    let name = nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok());
    let Some(name) = name.filter(|name| !name.is_empty()) else { return Vec::new() };
    let short = name.split('.').next().unwrap_or(&name).to_owned();
    let local = format!("{short}.local");
    let mut names = vec![name, short, local];
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn our_own_certificate_is_made_once_for_its_owner_alone() {
        let ground = tempfile::tempdir().expect("a folder");
        let path = ground.path().join("new/web.pem");
        let source = CertificateSource::SelfSigned(path.clone());
        let names = own_names(IpAddr::from([192, 0, 2, 1]), &["files.example.org".to_owned()]);
        let made = PageCertificate::load(&source, &names).expect("it is made");
        let again = PageCertificate::load(&source, &names).expect("it is read");
        assert_eq!(made.hash, again.hash);
        assert!(made.names.iter().any(|name| name == "files.example.org"), "{:?}", made.names);
        let mode = fs::metadata(&path).expect("a file").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(fs::read_dir(path.parent().expect("a folder")).expect("a folder").count(), 1);
        let files = CertificateSource::Files { certificate: path.clone(), key: path.clone() };
        assert_eq!(PageCertificate::load(&files, &[]).expect("both are there").hash, made.hash);
        fs::write(&path, "nothing").expect("a file");
        let error = PageCertificate::load(&files, &[]).expect_err("it is no certificate");
        assert!(error.to_string().contains("web.pem"), "{error}");
    }

    #[test]
    fn certificates_of_sessions_differ() {
        let [one, other] = [(); 2].map(|()| session_certificate().expect("a certificate"));
        assert_ne!(one.hash(), other.hash());
    }
}
