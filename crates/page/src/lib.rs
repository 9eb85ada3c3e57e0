//! The page in a browser: its files over HTTPS, and its sessions over WebTransport on the same
//! address and port, or over a WebSocket of that HTTPS server where UDP is blocked. The sessions are those of a [`headroom_transfer::Server`], with the same root
//! and the same rules.

mod answer;
mod assets;
mod certificate;
mod error;
mod http;
mod names;
mod socket;

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use data_encoding::{BASE64URL_NOPAD, HEXLOWER};
use headroom_transfer::server::WebEndpoint;
use headroom_transfer::{Fingerprint, Identity, Server};
use tokio::task::spawn_blocking;

pub use answer::secure;
pub use assets::{File, file};
pub use certificate::CertificateSource;
pub use error::Error;
pub use http::is_cached;
pub use socket::upgrade_headers;

use self::certificate::{PageCertificate, host_names, own_names, session_certificate};
use self::names::Names;

/// The port of the page, TCP and UDP.
pub const DEFAULT_PORT: u16 = 4861;

/// How often the certificate of sessions is replaced: well before it expires.
const ROTATED: Duration = Duration::from_secs(6 * 24 * 3600);
/// How often to check whether the files of the certificate for HTTPS changed.
const LOOK: Duration = Duration::from_secs(10);
/// How often to try to find a port that is free for TCP and UDP.
const TRIES: usize = 16;

/// What is served, and where.
#[derive(Debug, Clone)]
pub struct Options {
    /// The address to listen on; port 0 chooses a free one.
    pub address: SocketAddr,
    /// Where the certificate for HTTPS comes from.
    pub certificate: CertificateSource,
    /// Names by which browsers may reach the page, beside addresses, those of this machine and
    /// those in the certificate.
    pub names: Vec<String>,
    /// What the page calls the directory that is served.
    pub root_name: String,
    /// Whether clients without a known key may read.
    pub anonymous_read: bool,
}

/// The server of the page.
#[derive(Debug, Clone)]
pub struct Page(Arc<Shared>);

#[derive(Debug)]
pub(crate) struct Shared {
    server: Server,
    fingerprint: Fingerprint,
    options: Options,
    address: SocketAddr,
    listener: Mutex<Option<TcpListener>>,
    sessions: WebEndpoint,
    certificate: Mutex<(PageCertificate, Names)>,
}

impl Page {
    /// Starts listening. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// The address or the certificate cannot be used.
    pub fn bind(server: &Server, identity: &Identity, options: Options) -> Result<Self, Error> {
        let own = own_names(options.address.ip(), &options.names);
        let certificate = PageCertificate::load(&options.certificate, &own)?;
        let names = names(&certificate, &options);
        let (listener, address) = listen(options.address)?;
        let sessions = server.bind_web(identity, address, session_certificate()?)?;
        Ok(Self(Arc::new(Shared {
            server: server.clone(),
            fingerprint: identity.public().fingerprint(),
            address,
            listener: Mutex::new(Some(listener)),
            sessions,
            certificate: Mutex::new((certificate, names)),
            options,
        })))
    }

    /// Returns the address on which it listens, TCP and UDP.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.0.address
    }

    /// Returns the page's URL, which ends with a slash.
    #[must_use]
    pub fn url(&self) -> String {
        let (address, named) = (self.0.address, self.0.options.names.first().cloned());
        let host = match address.ip() {
            ip if !ip.is_unspecified() => authority(ip),
            _ => named.or_else(|| host_names().into_iter().next()).unwrap_or("localhost".into()),
        };
        format!("https://{host}:{}/", address.port())
    }

    /// Returns the URL by which a browser shows the secret of an invitation: in the fragment, which
    /// no browser sends.
    #[must_use]
    pub fn invitation_url(&self, secret: &[u8; 32]) -> String {
        format!("{}#invite={}", self.url(), BASE64URL_NOPAD.encode(secret))
    }

    /// Returns the SHA-256 hash of the certificate for HTTPS, which browsers show, in hexadecimal
    /// digits.
    #[must_use]
    pub fn certificate_hash(&self) -> String {
        HEXLOWER.encode(&self.0.certificate().0.hash)
    }

    /// Returns the SHA-256 hash of the certificate that new sessions are shown.
    #[must_use]
    pub fn session_hash(&self) -> [u8; 32] {
        self.0.sessions.certificate().hash()
    }

    /// Whether the certificate for HTTPS is our own, so that browsers warn.
    #[must_use]
    pub fn is_self_signed(&self) -> bool {
        matches!(self.0.options.certificate, CertificateSource::SelfSigned(_))
    }

    /// Serves in the background, until [`Server::stop`] is called or the runtime ends.
    pub fn start(self) {
        tokio::spawn(async move { self.serve().await });
    }

    /// Serves until [`Server::stop`] is called.
    pub async fn serve(&self) {
        let shared = Arc::clone(&self.0);
        let admits = Arc::clone(&self.0);
        let admits = move |authority: &str, origin: &str| {
            admits.certificate().1.admits_origin(authority, origin)
        };
        tokio::select! {
            () = self.0.sessions.serve(Arc::new(admits)) => {}
            () = http::serve(Arc::clone(&shared)) => {}
            () = rotate(&shared) => {}
            () = follow(&shared) => {}
        }
    }
}

impl Shared {
    fn certificate(&self) -> (PageCertificate, Names) {
        self.certificate.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Replaces the certificate of sessions before it expires.
async fn rotate(shared: &Shared) {
    loop {
        tokio::time::sleep(ROTATED).await;
        match session_certificate() {
            Ok(certificate) => shared.sessions.set_certificate(certificate),
            Err(error) => tracing::warn!("{error}. The former one is used as long as it is valid"),
        }
    }
}

/// Reads the certificate for HTTPS again when its files change.
async fn follow(shared: &Arc<Shared>) {
    let CertificateSource::Files { certificate, key } = &shared.options.certificate else {
        return std::future::pending().await;
    };
    let stamp = || {
        [certificate, key].map(|path| {
            std::fs::metadata(path).and_then(|meta| Ok((meta.modified()?, meta.len()))).ok()
        })
    };
    let (mut read, mut seen) = (stamp(), stamp());
    loop {
        tokio::time::sleep(LOOK).await;
        let now = stamp();
        // a change counts when it has settled: the files may just be being written
        if std::mem::replace(&mut seen, now) != now || now == read {
            continue;
        }
        read = now;
        let source = shared.options.certificate.clone();
        match spawn_blocking(move || PageCertificate::load(&source, &[])).await {
            Ok(Ok(certificate)) => {
                let names = names(&certificate, &shared.options);
                *shared.certificate.lock().unwrap_or_else(PoisonError::into_inner) =
                    (certificate, names);
                tracing::info!("the page has a new certificate");
            }
            Ok(Err(error)) => tracing::warn!("{error}. The former one stays in use"),
            Err(_) => return,
        }
    }
}

fn names(certificate: &PageCertificate, options: &Options) -> Names {
    let own = host_names().into_iter().chain(options.names.iter().cloned());
    Names::new(own.chain(certificate.names.iter().cloned()))
}

/// Listens at TCP; the UDP port of that number is free, too, if the system chose it.
fn listen(address: SocketAddr) -> Result<(TcpListener, SocketAddr), Error> {
    let failed = |cause| Error::Listen { address, cause };
    for left in (0..TRIES).rev() {
        let listener = TcpListener::bind(address).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let bound = listener.local_addr().map_err(failed)?;
        let is_free = std::net::UdpSocket::bind(bound).is_ok();
        if is_free || address.port() != 0 || left == 0 {
            return Ok((listener, bound));
        }
    }
    Err(failed(std::io::ErrorKind::AddrInUse.into()))
}

fn authority(ip: IpAddr) -> String {
    match ip {
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => format!("[{ip}]"),
    }
}
