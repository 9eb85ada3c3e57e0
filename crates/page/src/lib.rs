//! The page in a browser: its files over HTTPS, and its sessions over WebTransport on the same
//! address and port, or over a WebSocket of that HTTPS server where UDP is blocked. The sessions
//! are those of a [`headroom_transfer::Server`], with the same root and the same rules. Metrics of
//! such a server, over HTTP, with a page or without.

mod acme;
mod answer;
mod assets;
mod authority;
mod certificate;
mod clock;
mod error;
mod exposition;
mod http;
mod issued;
mod metrics;
mod names;
mod private_file;
mod socket;

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use data_encoding::{BASE64URL_NOPAD, HEXLOWER};
use headroom_mutex::lock;
use headroom_transfer::server::WebEndpoint;
use headroom_transfer::{Fingerprint, Identity, Server};
use tokio::task::spawn_blocking;

pub use answer::secure;
pub use assets::{File, file};
pub use certificate::CertificateSource;
pub use error::Error;
pub use http::is_cached;
pub use issued::AcmeOptions;
pub use metrics::{DEFAULT_PORT as DEFAULT_METRICS_PORT, Metrics};
pub use socket::upgrade_headers;

use self::acme::Challenges;
use self::certificate::{PageCertificate, host_names, is_fresh, own_names, session_certificate};
use self::names::Names;

/// The port of the page, TCP and UDP.
pub const DEFAULT_PORT: u16 = 4861;

/// Let's Encrypt's directory.
pub const LETS_ENCRYPT: &str = "https://acme-v02.api.letsencrypt.org/directory";

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

/// How often certificates are replaced or looked at. Tests have shorter ones.
#[derive(Debug, Clone, Copy)]
pub struct Intervals {
    /// The age at which the certificate of sessions is replaced: well before it expires.
    pub sessions: Duration,
    /// How often to check whether the files of the certificate for HTTPS changed.
    pub files: Duration,
    /// How often to check whether our own certificate for HTTPS is to be replaced, and how much
    /// time at least is between two of an ACME authority.
    pub renewal: Duration,
}

impl Default for Intervals {
    fn default() -> Self {
        Self {
            sessions: Duration::from_secs(6 * 24 * 3600),
            files: Duration::from_secs(10),
            renewal: Duration::from_secs(3600),
        }
    }
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
    challenges: Challenges,
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
            challenges: Challenges::default(),
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
        let issued_to = match &self.0.options.certificate {
            CertificateSource::Acme { options, .. } => options.names.first().cloned(),
            _ => None,
        };
        let host = match (issued_to, address.ip()) {
            (Some(name), _) => name,
            (None, ip) if !ip.is_unspecified() => authority(ip),
            _ => named.or_else(|| host_names().into_iter().next()).unwrap_or("localhost".into()),
        };
        let host = host.parse().map_or(host, authority);
        match address.port() {
            443 => format!("https://{host}/"),
            port => format!("https://{host}:{port}/"),
        }
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
        self.0.certificate().0.is_own
    }

    /// Serves in the background, until [`Server::stop`] is called or the runtime ends.
    pub fn start(self) {
        self.start_with(Intervals::default());
    }

    /// Does the same with other intervals.
    pub fn start_with(self, intervals: Intervals) {
        tokio::spawn(async move { self.serve(intervals).await });
    }

    /// Serves until [`Server::stop`] is called.
    async fn serve(&self, intervals: Intervals) {
        let shared = Arc::clone(&self.0);
        let admits = Arc::clone(&self.0);
        let admits = move |authority: &str, origin: &str| {
            admits.certificate().1.admits_origin(authority, origin)
        };
        tokio::select! {
            () = self.0.sessions.serve(Arc::new(admits)) => {}
            () = http::serve(Arc::clone(&shared)) => {}
            () = rotate(&shared, intervals.sessions) => {}
            () = follow(&shared, intervals) => {}
        }
    }
}

impl Shared {
    fn use_certificate(&self, certificate: PageCertificate) {
        let names = names(&certificate, &self.options);
        *lock(&self.certificate) = (certificate, names);
        tracing::info!("the page has a new certificate");
    }

    fn certificate(&self) -> (PageCertificate, Names) {
        lock(&self.certificate).clone()
    }
}

/// Replaces the certificate of sessions before it expires.
async fn rotate(shared: &Shared, age: Duration) {
    loop {
        clock::until(SystemTime::now() + age).await;
        match session_certificate() {
            Ok(certificate) => shared.sessions.set_certificate(certificate),
            Err(error) => tracing::warn!("{error}. The former one is used as long as it is valid"),
        }
    }
}

/// Replaces the certificate for HTTPS when there is another one.
async fn follow(shared: &Shared, intervals: Intervals) {
    match &shared.options.certificate {
        CertificateSource::Files { certificate, key } => {
            follow_files(shared, certificate, key, intervals.files).await;
        }
        CertificateSource::SelfSigned(path) => loop {
            tokio::time::sleep(intervals.renewal).await;
            if !is_fresh(path) {
                let options = &shared.options;
                load(shared, &own_names(options.address.ip(), &options.names)).await;
            }
        },
        CertificateSource::Acme { options, .. } => {
            let use_it = |certificate| shared.use_certificate(certificate);
            acme::keep(options, &shared.challenges, intervals.renewal, use_it).await;
        }
    }
}

/// Reads the certificate for HTTPS again when its files change.
async fn follow_files(shared: &Shared, certificate: &Path, key: &Path, interval: Duration) {
    let stamp = || {
        [certificate, key].map(|path| {
            std::fs::metadata(path).and_then(|meta| Ok((meta.modified()?, meta.len()))).ok()
        })
    };
    let (mut read, mut seen) = (stamp(), stamp());
    loop {
        tokio::time::sleep(interval).await;
        let now = stamp();
        // a change counts when it has settled: the files may just be being written
        if std::mem::replace(&mut seen, now) != now || now == read {
            continue;
        }
        read = now;
        load(shared, &[]).await;
    }
}

/// Loads the certificate for HTTPS again, and uses it if it can be used.
async fn load(shared: &Shared, names: &[String]) {
    let (source, names) = (shared.options.certificate.clone(), names.to_vec());
    match spawn_blocking(move || PageCertificate::load(&source, &names)).await {
        Ok(Ok(certificate)) => shared.use_certificate(certificate),
        Ok(Err(error)) => tracing::warn!("{error}. The former one stays in use"),
        Err(_) => {}
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
