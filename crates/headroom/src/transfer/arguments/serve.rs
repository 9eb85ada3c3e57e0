//! The arguments of `headroom serve`.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use headroom_transfer::Keep;
use headroom_transfer::server::Allow;

use super::values::{Age, age, ports};

const SERVE_HELP: &str = "Runs until Ctrl-C, which ends transfers, or SIGTERM, which lets them finish (--drain; a second one \
ends them). A client is accepted if its public key, as its `headroom identity` prints it, is in the file \
of authorized keys. A line is [OPTIONS] KEY [COMMENT]; the options are read-only, root=\"/DIR\" (a directory \
below --root or --store that the client sees instead) and rate=100mbit, separated by commas.

Examples:
  headroom serve --root /srv/files
  headroom serve --root /srv/files --listen 192.0.2.1:4860 --anonymous read
  headroom serve --root /srv/files --web --invite
  headroom serve --store s3://bucket/prefix --spool /var/tmp";

/// Serve a directory to other hosts
#[derive(Debug, Args)]
#[command(after_help = SERVE_HELP)]
pub(crate) struct Serve {
    /// Serve this directory; nothing outside it is read or written
    #[arg(long, value_name = "DIR", required_unless_present = "store")]
    pub(crate) root: Option<PathBuf>,
    /// Serve what is below a prefix of an object store instead of a directory:
    /// s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or az://CONTAINER/PREFIX. Credentials come from the
    /// environment (AWS_ACCESS_KEY_ID and so on), a profile or the machine's role
    #[arg(long, value_name = "URL", conflicts_with = "root")]
    pub(crate) store: Option<String>,
    /// Keep what is on its way into the store in this folder, up to 64 MiB of each file, and
    /// streams (put -) as a whole [default: the system's temporary folder]
    #[arg(long, value_name = "DIR", requires = "store")]
    pub(crate) spool: Option<PathBuf>,
    /// Read each object again when it is stored, and remove it if it is not what was sent
    #[arg(long, requires = "store")]
    pub(crate) read_back: bool,
    /// UDP address to listen on [default: port 4860 of all addresses]
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) listen: Option<SocketAddr>,
    /// Keys of clients to accept [default: ~/.config/headroom/authorized_keys]
    #[arg(long, value_name = "FILE")]
    pub(crate) authorized_keys: Option<PathBuf>,
    /// Also accept clients whose certificate is signed by one of these authorities (PEM)
    #[arg(long, value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
    /// What clients without a known key may do
    #[arg(long, value_enum, value_name = "WHAT")]
    pub(crate) anonymous: Option<Anonymous>,
    /// Limit all clients together to this rate each way, such as 100mbit
    #[arg(long, value_name = "RATE", value_parser = headroom_units::parse_rate)]
    pub(crate) rate: Option<u64>,
    /// Delete partial uploads not resumed for this long, at the start and once a day: days or
    /// hours, such as 30d or 12h, or never
    #[arg(long, value_name = "AGE", default_value = "30d", value_parser = age)]
    pub(crate) keep_partial: Age,
    /// What clients that may write may also do, separated by commas: owner and group let them give
    /// files away, links lets them make links that lead out of the tree that they send
    #[arg(long, value_enum, value_name = "WHAT", value_delimiter = ',')]
    pub(crate) allow: Vec<Allowed>,
    /// The server's key file, made if it is missing [default: ~/.config/headroom/identity]
    #[arg(long, value_name = "FILE")]
    pub(crate) identity: Option<PathBuf>,
    /// Move big files on QUIC streams, not on lanes (UDP packets of our own)
    #[arg(long)]
    pub(crate) streams: bool,
    /// Receive big files at these UDP ports, one for each transfer in turn, such as 20000-20255,
    /// instead of the listening port. A firewall has to let all of them through
    #[arg(long, value_name = "FIRST-LAST", value_parser = ports, conflicts_with = "streams")]
    pub(crate) lane_ports: Option<RangeInclusive<u16>>,
    /// INSECURE, for measurement: let clients that ask for it move big files WITHOUT ENCRYPTION
    /// (--cipher none and simplecrypt) and in packets of a fixed length (--chunk)
    #[arg(long)]
    pub(crate) insecure_measurement: bool,
    /// Also serve a page for browsers, over HTTPS and WebTransport, at this TCP and UDP address
    /// [default: port 4861 of all addresses]
    #[arg(long, value_name = "ADDR:PORT", num_args = 0..=1)]
    pub(crate) web: Option<Option<SocketAddr>>,
    /// Print a link by which one browser adds its key to the authorized keys, once and within an
    /// hour, with these options of a line, such as read-only
    #[arg(long, value_name = "OPTIONS", num_args = 0..=1, requires = "web")]
    pub(crate) invite: Option<Option<String>>,
    /// A name by which browsers reach the page, beside addresses and the names of this machine;
    /// may be given more than once
    #[arg(long, value_name = "NAME", requires = "web")]
    pub(crate) web_name: Vec<String>,
    /// The page's certificate and intermediate ones (PEM), read again when they change [default: a
    /// self-signed one, of which browsers warn]
    #[arg(long, value_name = "FILE", requires_all = ["web", "web_key"])]
    pub(crate) web_cert: Option<PathBuf>,
    /// The key of that certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "web_cert")]
    pub(crate) web_key: Option<PathBuf>,
    /// Keep share links (headroom share) in this file [default: one for each root in
    /// ~/.config/headroom/shares]
    #[arg(long, value_name = "FILE", requires = "web")]
    pub(crate) shares: Option<PathBuf>,
    /// Get the page's certificate from an ACME authority, for this name or IP address, and renew
    /// it in time; may be given more than once. The authority connects to port 443, where the page
    /// then is unless --web names another. By this you agree to the authority's terms of service
    #[arg(long, value_name = "NAME", requires = "web", conflicts_with = "web_cert")]
    pub(crate) web_acme: Vec<String>,
    /// The address to which that authority may write
    #[arg(long, value_name = "EMAIL", requires = "web_acme")]
    pub(crate) web_acme_email: Option<String>,
    /// The directory of that authority [default: Let's Encrypt's]
    #[arg(long, value_name = "URL", requires = "web_acme")]
    pub(crate) web_acme_directory: Option<String>,
    /// The root certificates (PEM) of that authority's own HTTPS [default: the system's]
    #[arg(long, value_name = "FILE", requires = "web_acme")]
    pub(crate) web_acme_root: Option<PathBuf>,
    /// For tests: replace the certificate of sessions after so many milliseconds
    #[arg(long, value_name = "MS", requires = "web", hide = true)]
    pub(crate) web_rotate: Option<u64>,
    /// Serve metrics (/metrics, for Prometheus) and health (/healthz) over HTTP at this TCP address
    /// [default: port 4862 of 127.0.0.1]. Anyone who can reach another address reads them, without a
    /// key and without encryption
    #[arg(long, value_name = "ADDR:PORT", num_args = 0..=1)]
    pub(crate) metrics: Option<Option<SocketAddr>>,
    /// How long running transfers may take to finish after SIGTERM, up to an hour; new ones are
    /// refused meanwhile
    #[arg(long, value_name = "TIME", default_value = "25s", value_parser = headroom_units::parse_duration)]
    pub(crate) drain: Duration,
    /// Append one line per request to this file [default: standard error]
    #[arg(long, value_name = "FILE")]
    pub(crate) log: Option<PathBuf>,
    /// The format of these lines
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "text")]
    pub(crate) log_format: LogFormat,
    /// Print a JSON line when the server listens
    #[arg(long)]
    pub(crate) json: bool,
}

/// What `--allow` adds for clients that may write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Allowed {
    /// Give files to other users (--owner)
    Owner,
    /// Give files to other groups (--group)
    Group,
    /// Make symbolic links that lead out of the tree (--links keep)
    Links,
}

impl Serve {
    /// Returns the directory, or the URL of the store, that is served.
    pub(crate) fn shown_root(&self) -> PathBuf {
        match (&self.root, &self.store) {
            (Some(root), _) => root.clone(),
            (None, store) => store.as_deref().unwrap_or_default().into(),
        }
    }

    /// Returns what clients may do.
    pub(crate) fn allowed(&self) -> Allow {
        self.allow.iter().fold(Allow::default(), |allow, allowed| match allowed {
            Allowed::Owner => Allow { keep: allow.keep.or(Keep::OWNER), ..allow },
            Allowed::Group => Allow { keep: allow.keep.or(Keep::GROUP), ..allow },
            Allowed::Links => Allow { links: true, ..allow },
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// The time, then KEY=VALUE; what clients choose is quoted and escaped
    Text,
    /// One object per line
    Json,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Anonymous {
    /// List and fetch everything
    Read,
}

/// Serve one client that came through ssh (started by --ssh)
#[derive(Debug, Args)]
pub(crate) struct ServeOnce {
    /// Print this program's version and protocol, and exit
    #[arg(long)]
    pub(crate) offer: bool,
    /// The client's key
    #[arg(long, value_name = "BASE64", required_unless_present = "offer")]
    pub(crate) client: Option<String>,
    /// UDP ports to try
    #[arg(long, value_name = "FIRST-LAST", required_unless_present = "offer")]
    pub(crate) ports: Option<String>,
    /// Remove this program and its directory at once
    #[arg(long)]
    pub(crate) sent: bool,
}
