//! Certificate authorities: peers with their certificates need not be listed.

use std::path::Path;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{CertificateError, RootCertStore};

use super::error::Error;
use super::tls::provider;

/// One or more authorities.
#[derive(Debug, Clone)]
pub struct Authority(Vec<One>);

#[derive(Debug, Clone)]
struct One {
    certificate: CertificateDer<'static>,
    of_servers: Arc<WebPkiServerVerifier>,
    of_clients: Arc<dyn ClientCertVerifier>,
}

impl Authority {
    /// Reads a file of certificates in PEM.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let wrong = |cause: String| Error::Authority { path: path.to_owned(), cause };
        let certificates: Vec<_> = CertificateDer::pem_file_iter(path)
            .and_then(Iterator::collect)
            .map_err(|error| wrong(error.to_string()))?;
        if certificates.is_empty() {
            return Err(wrong("there is no PEM certificate in it".to_owned()));
        }
        let all = certificates.into_iter().map(One::of).collect::<Result<_, _>>();
        all.map(Self).map_err(wrong)
    }

    /// Verifies a server's certificate for this name.
    pub(super) fn verify_server(
        &self,
        certificate: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        now: UnixTime,
    ) -> Result<(), rustls::Error> {
        self.any(now, |one| {
            one.of_servers.verify_server_cert(certificate, between, name, &[], now).map(drop)
        })
    }

    /// Verifies a client's certificate.
    pub(super) fn verify_client(
        &self,
        certificate: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), rustls::Error> {
        self.any(now, |one| one.of_clients.verify_client_cert(certificate, between, now).map(drop))
    }

    /// Returns the first success, otherwise the last error.
    fn any(
        &self,
        now: UnixTime,
        verify: impl Fn(&One) -> Result<(), rustls::Error>,
    ) -> Result<(), rustls::Error> {
        let mut outcome = Err(CertificateError::UnknownIssuer.into());
        for one in &self.0 {
            outcome = one.is_valid(now).and_then(|()| verify(one));
            if outcome.is_ok() {
                break;
            }
        }
        outcome
    }
}

impl One {
    fn of(certificate: CertificateDer<'static>) -> Result<Self, String> {
        let mut roots = RootCertStore::empty();
        roots.add(certificate.clone()).map_err(|error| error.to_string())?;
        let roots = Arc::new(roots);
        let of_servers =
            WebPkiServerVerifier::builder_with_provider(Arc::clone(&roots), provider())
                .build()
                .map_err(|error| error.to_string())?;
        let of_clients = WebPkiClientVerifier::builder_with_provider(roots, provider())
            .build()
            .map_err(|error| error.to_string())?;
        Ok(Self { certificate, of_servers, of_clients })
    }

    /// Checks the authority's own dates, which webpki ignores for trust anchors (RFC 5280, section
    /// 6.1.1 d). Verified as if it were a server's, the certificate is checked against its dates
    /// first; later errors do not matter here.
    fn is_valid(&self, now: UnixTime) -> Result<(), rustls::Error> {
        let any = ServerName::IpAddress(std::net::Ipv4Addr::LOCALHOST.into());
        let looked = self.of_servers.verify_server_cert(&self.certificate, &[], &any, &[], now);
        match looked {
            Err(rustls::Error::InvalidCertificate(
                error @ (CertificateError::Expired
                | CertificateError::ExpiredContext { .. }
                | CertificateError::NotValidYet
                | CertificateError::NotValidYetContext { .. }),
            )) => Err(error.into()),
            _ => Ok(()),
        }
    }
}
