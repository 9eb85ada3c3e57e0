//! The HTTPS client that asks an ACME authority.

use std::error::Error as StdError;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Limited;
use hyper::client::conn::http1;
use hyper::header::{self, HeaderValue};
use hyper::{Request, Uri};
use hyper_util::rt::TokioIo;
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// How long a request may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// The most bytes of an answer.
const MAX_ANSWER: usize = 1 << 20;

/// Requests over HTTPS, each by a connection of its own: there are about ten in two months.
pub(crate) struct Authority(TlsConnector);

impl Authority {
    /// Trusts the roots in a file, or those of the system.
    pub(crate) fn new(root: Option<&Path>) -> Result<Self, String> {
        let mut roots = RootCertStore::empty();
        match root {
            Some(path) => {
                let wrong = |error| format!("{}: {error}", path.display());
                let found: Result<Vec<_>, _> = CertificateDer::pem_file_iter(path)
                    .and_then(Iterator::collect)
                    .map_err(|error| wrong(error.to_string()));
                for certificate in found? {
                    roots.add(certificate).map_err(|error| wrong(error.to_string()))?;
                }
            }
            None => {
                let found = rustls_native_certs::load_native_certs();
                roots.add_parsable_certificates(found.certs);
            }
        }
        if roots.is_empty() {
            return Err(root.map_or_else(
                || "there are no root certificates: install ca-certificates".to_owned(),
                |path| format!("{} has no certificate", path.display()),
            ));
        }
        let provider = Arc::new(aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self(TlsConnector::from(Arc::new(config))))
    }
}

impl HttpClient for Authority {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let tls = self.0.clone();
        Box::pin(async move {
            let asking = tokio::time::timeout(PATIENCE, ask(tls, request));
            asking.await.unwrap_or_else(|_| Err("it does not answer".into())).map_err(Error::Other)
        })
    }
}

async fn ask(
    tls: TlsConnector,
    mut request: Request<BodyWrapper<Bytes>>,
) -> Result<BytesResponse, Box<dyn StdError + Send + Sync>> {
    let uri = request.uri().clone();
    let host = uri.host().filter(|_| uri.scheme_str() == Some("https"));
    let host = host.ok_or("its URL does not begin with https://")?;
    let bare = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    let stream = TcpStream::connect((bare.as_str(), uri.port_u16().unwrap_or(443))).await?;
    let stream = tls.connect(ServerName::try_from(bare)?, stream).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // it ends with the answer, or when the answer is dropped
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!("the connection to the authority: {error}");
        }
    });
    let authority = uri.authority().map_or(host, |authority| authority.as_str());
    let authority = HeaderValue::from_str(authority)?;
    request.headers_mut().insert(header::HOST, authority);
    *request.uri_mut() = uri.path_and_query().map_or("/", |path| path.as_str()).parse::<Uri>()?;
    let answer = sender.send_request(request).await?;
    let (parts, body) = answer.into_parts();
    // it is read here, while the time for it runs
    let body = http_body_util::BodyExt::collect(Limited::new(body, MAX_ANSWER)).await?.to_bytes();
    Ok(BytesResponse { parts, body: Box::new(body) })
}
