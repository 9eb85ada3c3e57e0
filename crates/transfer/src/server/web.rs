//! Serves browsers: WebTransport over HTTP/3, beside the server's own port.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};

use headroom_mutex::lock;
use headroom_transfer_proto::path::printable;
use quinn::{Endpoint, Incoming, ServerConfig};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use wtransport::endpoint::{IncomingSessionFuture, SessionRequest};

use super::{Server, Shared};
use crate::admission::PendingHandshake;
pub use crate::admission::TcpSlot;
use crate::connection::Connection;
use crate::error::{Closing, Error};
use crate::identity::Identity;
use crate::mux::MuxConnection;
use crate::proof::{BrowserBinding, sha256};
use crate::quic::{listen_web, web_config};

/// The path of sessions.
pub const PATH: &str = "/transfer";

/// Decides whether a session is accepted, by the authority that it names and the origin of its
/// page.
pub type Admits = dyn Fn(&str, &str) -> bool + Send + Sync;

/// The certificate that browsers are shown.
#[derive(Debug, Clone)]
pub struct WebCertificate {
    config: Arc<ServerConfig>,
    hash: [u8; 32],
}

impl WebCertificate {
    /// Takes a certificate and its key. Pages pin it by its hash: browsers demand a self-signed one
    /// with a key on P-256 that is valid for at most 14 days.
    ///
    /// # Errors
    /// The key is not that of the certificate, or cannot be used.
    pub fn new(
        certificate: CertificateDer<'static>,
        key: PrivateKeyDer<'static>,
    ) -> Result<Self, Error> {
        let hash = sha256(&certificate);
        Ok(Self { config: Arc::new(web_config(vec![certificate], key)?), hash })
    }

    /// Returns the SHA-256 hash of its DER encoding.
    #[must_use]
    pub const fn hash(&self) -> [u8; 32] {
        self.hash
    }
}

/// Listens for browsers on behalf of a [`Server`], with whose connections its own count and end.
#[derive(Debug, Clone)]
pub struct WebEndpoint {
    server: Server,
    endpoint: Endpoint,
    certificate: Arc<Mutex<WebCertificate>>,
}

impl Server {
    /// Starts listening for browsers, once for each server. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// The address cannot be used.
    pub fn bind_web(
        &self,
        identity: &Identity,
        address: SocketAddr,
        certificate: WebCertificate,
    ) -> Result<WebEndpoint, Error> {
        let activity = self.shared.flow_control.activity().clone();
        let config = ServerConfig::clone(&certificate.config);
        let endpoint = listen_web(address, identity, activity, config)?;
        let _ = self.shared.web.set(endpoint.clone());
        let certificate = Arc::new(Mutex::new(certificate));
        Ok(WebEndpoint { server: self.clone(), endpoint, certificate })
    }
}

impl Server {
    /// Accepts a TCP connection of a browser, unless there are too many, until the result is
    /// dropped.
    pub fn admit_tcp(&self, address: IpAddr) -> Option<TcpSlot> {
        self.shared.admission.accept_tcp(address)
    }

    /// Serves a session over a WebSocket, whose page has this origin, until it ends.
    pub async fn serve_socket(&self, streams: MuxConnection, origin: &str) {
        let client = streams.remote_address();
        let Some(permit) = self.shared.admission.session_permit(client.ip()) else {
            return streams.close(Closing::Full.into(), "too many connections");
        };
        let connection = Connection::Mux(streams.clone());
        let served = match BrowserBinding::of_origin(origin) {
            Ok(binding) => self.shared.serve_session(connection, (), permit, Some(binding)).await,
            Err(error) => Err(error),
        };
        streams.close(Closing::Done.into(), "");
        match served {
            Ok(()) => tracing::debug!("{client} has ended its session"),
            Err(error) => tracing::debug!("{client}: {error}"),
        }
    }
}

impl WebEndpoint {
    /// Returns the address on which it listens.
    ///
    /// # Errors
    /// The system does not say.
    pub fn address(&self) -> Result<SocketAddr, Error> {
        self.endpoint.local_addr().map_err(|cause| Error::System {
            doing: "ask where the server listens".to_owned(),
            cause,
        })
    }

    /// Shows this certificate to new connections.
    pub fn set_certificate(&self, certificate: WebCertificate) {
        *lock(&self.certificate) = certificate;
    }

    /// Returns the certificate that new connections are shown.
    pub fn certificate(&self) -> WebCertificate {
        lock(&self.certificate).clone()
    }

    /// Serves sessions that `admits` accepts, until [`Server::stop`] is called.
    pub async fn serve(&self, admits: Arc<Admits>) {
        while let Some(incoming) = self.endpoint.accept().await {
            let admission = &self.server.shared.admission;
            let accepted = admission.accept(incoming, self.server.connections());
            let Some((incoming, waiting)) = accepted else { continue };
            let (shared, certificate) = (Arc::clone(&self.server.shared), self.certificate());
            let admits = Arc::clone(&admits);
            tokio::spawn(async move {
                let client = incoming.remote_address();
                match shared.serve_web(incoming, waiting, certificate, &*admits).await {
                    Ok(()) => tracing::debug!("{client} has ended its session"),
                    Err(error) => tracing::debug!("{client}: {error}"),
                }
            });
        }
    }
}

impl Shared {
    async fn serve_web(
        &self,
        incoming: Incoming,
        waiting: PendingHandshake,
        certificate: WebCertificate,
        admits: &Admits,
    ) -> Result<(), Error> {
        let config = Arc::clone(&certificate.config);
        let connect = async |incoming: Incoming| {
            let connecting = incoming.accept_with(config)?;
            let request = IncomingSessionFuture::with_quic_connecting(connecting).await;
            accept(request.map_err(|error| lost(&error))?, admits).await
        };
        let (slot, handshake, session) = self.handshake(incoming, waiting, connect).await?;
        let binding = BrowserBinding::of_webtransport(&session, certificate.hash)?;
        self.serve_session(Connection::Web(session), slot, handshake, Some(binding)).await
    }
}

/// Accepts a session of a page of this server.
async fn accept(request: SessionRequest, admits: &Admits) -> Result<wtransport::Connection, Error> {
    if request.path() != PATH {
        request.not_found().await;
        return Err(Error::Refused("nothing is at this path".to_owned()));
    }
    let origin = request.origin().unwrap_or_default().to_owned();
    if !admits(request.authority(), &origin) {
        request.forbidden().await;
        return Err(Error::Refused(format!(
            "a page of {} may not connect here",
            printable(&origin)
        )));
    }
    request.accept().await.map_err(|error| lost(&error))
}

fn lost(error: &wtransport::error::ConnectionError) -> Error {
    Error::Lost(printable(&error.to_string()))
}
