//! The arguments of `headroom serve`, `put`, `get`, `sync`, `ls`, `mkdir`, `mv`, `rm`, `share`,
//! `identity` and `trust`.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use headroom_transfer::server::Allow;
use headroom_transfer::{Chunk, Cipher, Fingerprint, Keep, Retry, TreeOptions};

/// The commands that move files.
#[derive(Debug, Subcommand)]
#[expect(clippy::large_enum_variant, reason = "a command line has one, made once")]
pub(crate) enum Command {
    Serve(Serve),
    Put(Put),
    Get(Get),
    Sync(Sync),
    Ls(Ls),
    Mkdir(Mkdir),
    Mv(Mv),
    Rm(Rm),
    Share(Share),
    Identity(Identity),
    Trust(Trust),
    Ui(Ui),
    #[cfg(feature = "fleet")]
    Fleet(super::fleet::arguments::Fleet),
    #[command(hide = true)]
    ServeOnce(ServeOnce),
}

/// The exit codes of all of these commands.
macro_rules! exit_codes {
    () => {
        "Exit codes:
    0  everything was done
    1  a file or directory is missing or cannot be read or written; each is named
    2  wrong arguments or configuration
    3  the host cannot be reached, or the connection was lost
    4  the host is not trusted
    5  the server refuses: it does not know this key, or the key may not do this
  130  interrupted"
    };
}

const EXIT_CODES: &str = exit_codes!();

const SERVE_HELP: &str = "Runs until Ctrl-C, which ends transfers, or SIGTERM, which lets them finish (--drain; a second one \
ends them). A client is accepted if its public key, as its `headroom identity` prints it, is in the file \
of authorized keys. A line is [OPTIONS] KEY [COMMENT]; the options are read-only, root=\"/DIR\" (a directory \
below --root or --store that the client sees instead) and rate=100mbit, separated by commas.

Examples:
  headroom serve --root /srv/files
  headroom serve --root /srv/files --listen 192.0.2.1:4860 --anonymous read
  headroom serve --root /srv/files --web --invite
  headroom serve --store s3://bucket/prefix --spool /var/tmp";

const PUT_HELP: &str = concat!(
    "Examples:
  headroom put data.tar host:
  headroom put photos notes.txt host:backup/
  headroom put big.iso [2001:db8::1]:4860:images/big.iso
  headroom put --ssh photos user@host:backup/
  headroom put photos one,two:4861,three:backup/
  pg_dump db | headroom put - host:db.sql

The host runs `headroom serve`, or ssh reaches it (--ssh). After an interruption repeat the command: only \
what is missing is sent. `-` is verified as well, but not resumed: if it fails, nothing is stored.

",
    exit_codes!()
);

const GET_HELP: &str = concat!(
    "Examples:
  headroom get host:data.tar .
  headroom get host:photos host:notes.txt backup/
  headroom get 'host:logs/2026-*.log' .
  headroom get --ssh host:/var/log/syslog .
  headroom get host:db.sql - | psql db

The host runs `headroom serve`, or ssh reaches it (--ssh). After an interruption repeat the command: only \
what is missing is sent. `-` is verified as well, but not resumed: if the exit code is not 0, what was \
written is not the file.

",
    exit_codes!()
);

const SYNC_HELP: &str = concat!(
    "Works like `rsync -a SRC/ DEST/`. Files whose size and time of change agree are not read. Of other files, \
spans of 1 MiB are compared at the same offset. Those that differ are searched for content that DEST has in \
its version of the file, also at other offsets (--delta), and the rest is sent.

--delete removes what SRC does not have, after everything else, links themselves and not what they lead \
to. If anything could not be read or stored, nothing is removed.

A pattern without a slash matches at any depth; one that begins with a slash matches at the top; one that \
ends with a slash matches directories only; ! includes again.

Examples:
  headroom sync photos host:backup/photos
  headroom sync --delete --exclude '*.o' --exclude /target/ project host:project
  headroom sync -n --delete host:project project

",
    exit_codes!()
);

const SHARE_HELP: &str = concat!(
    "Prints a link to the page of the server, which must run with --web. Whoever opens it first can use it, \
until it expires: send it over a channel that others do not read. A use is one browser, from its first \
download or upload on; the same browser may resume and repeat. A link allows no more than your own key \
does, and ends with it.

Examples:
  headroom share /srv/files/report.pdf --once
  headroom share /srv/files/inbox --put --expires 12h --name 'photos of Alice'
  headroom share host:photos --count 5
  headroom share --list host
  headroom share --revoke k3j5q2ab host

",
    exit_codes!()
);

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
    /// [default: port 4862 of 127.0.0.1]. Whoever reaches another one reads them, without a key and
    /// without encryption
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

fn ports(text: &str) -> Result<RangeInclusive<u16>, String> {
    let numbers = text.split_once('-').and_then(|(first, last)| {
        let (first, last): (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
        (first > 0 && first <= last).then_some(first..=last)
    });
    numbers.ok_or_else(|| format!("`{text}` is not a range of ports, such as 20000-20255"))
}

/// How long something is kept; `None` is forever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Age(pub(crate) Option<Duration>);

fn age(text: &str) -> Result<Age, String> {
    if text == "never" {
        return Ok(Age(None));
    }
    let wrong =
        || format!("`{text}` is not a number of days or hours, such as 30d or 12h, nor `never`");
    let (number, hours) = match (text.strip_suffix('d'), text.strip_suffix('h')) {
        (Some(days), _) => (days, 24),
        (_, Some(hours)) => (hours, 1),
        _ => return Err(wrong()),
    };
    let number: u32 = number.parse().map_err(|_| wrong())?;
    Ok(Age(Some(Duration::from_secs(u64::from(number) * hours * 3600))))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Anonymous {
    /// List and fetch everything
    Read,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Compress {
    Auto,
    Never,
    Always,
}

impl From<Compress> for headroom_transfer::Compress {
    fn from(compress: Compress) -> Self {
        match compress {
            Compress::Auto => Self::Auto,
            Compress::Never => Self::Never,
            Compress::Always => Self::Always,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Delta {
    Auto,
    On,
    Off,
}

impl From<Delta> for headroom_transfer::Delta {
    fn from(delta: Delta) -> Self {
        match delta {
            Delta::Auto => Self::Auto,
            Delta::On => Self::On,
            Delta::Off => Self::Off,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Priority {
    Scavenger,
    Normal,
    High,
}

impl From<Priority> for headroom_transfer::Priority {
    fn from(priority: Priority) -> Self {
        match priority {
            Priority::Scavenger => Self::Scavenger,
            Priority::Normal => Self::Normal,
            Priority::High => Self::High,
        }
    }
}

/// Which key to use, and which servers to trust.
#[derive(Debug, Args)]
pub(crate) struct Connect {
    /// Your key file, made if it is missing [default: ~/.config/headroom/identity]
    #[arg(long, value_name = "FILE")]
    pub(crate) identity: Option<PathBuf>,
    /// Trust an unknown host if its key has this fingerprint
    #[arg(long, value_name = "SHA256:…")]
    pub(crate) fingerprint: Option<Fingerprint>,
    /// Trust hosts whose certificate is valid for their name and signed by one of these authorities
    /// (PEM)
    #[arg(long, value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
    /// How long to wait for an answer, at each address of the host; up to 30s. A closed port and a
    /// missing host are reported at once
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = timeout)]
    pub(crate) timeout: Duration,
}

fn timeout(text: &str) -> Result<Duration, String> {
    let longest = Duration::from_secs(30);
    match headroom_units::parse_duration(text)? {
        Duration::ZERO => Err("the timeout must be longer than 0, such as 10s".to_owned()),
        time if time > longest => Err(format!("`{text}` is longer than {longest:?}")),
        time => Ok(time),
    }
}

/// Starting a server through ssh.
#[derive(Debug, Args)]
pub(crate) struct OverSsh {
    /// Start a server on the host through ssh, for this command only: nothing needs to be installed
    /// or trusted there, and paths are those of scp
    #[arg(long, conflicts_with_all = ["identity", "fingerprint", "ca"])]
    pub(crate) ssh: bool,
    /// The ssh command with its options [default: `$HEADROOM_SSH`, else ssh]
    #[arg(long, value_name = "COMMAND", requires = "ssh")]
    pub(crate) ssh_command: Option<String>,
}

/// How big files travel on lanes.
#[derive(Debug, Args)]
pub(crate) struct OnLanes {
    /// Use up to N lanes to a server at once (1 to 8), each with a session of its own. Files of
    /// 128 MiB and more are sent in ranges over all of them, other files whole over one. This is
    /// for networks that are faster than one processor core (10 Gbit/s and more). Beside other
    /// traffic N lanes take the shares of N flows
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u8).range(1..=8), conflicts_with_all = ["streams", "ssh"])]
    pub(crate) lanes: u8,
    /// The cipher for big files: aes-128-gcm, aes-256-gcm or chacha20-poly1305 [default: the
    /// fastest that both sides have]. For measurement also none and simplecrypt, which are NO
    /// ENCRYPTION
    #[arg(long, value_name = "CIPHER", conflicts_with = "streams")]
    pub(crate) cipher: Option<Cipher>,
    /// For measurement: bytes of a big file in each packet, 200 to 4000. Packets that are too long
    /// for the path travel as IP fragments
    #[arg(long, value_name = "BYTES", value_parser = chunk, conflicts_with = "streams")]
    pub(crate) chunk: Option<Chunk>,
    /// INSECURE, for measurement: allow --cipher none and simplecrypt, and --chunk, if the server
    /// does, too
    #[arg(long, conflicts_with = "ssh")]
    pub(crate) insecure_measurement: bool,
}

fn chunk(text: &str) -> Result<Chunk, String> {
    let chunk = text.parse().ok().and_then(Chunk::new);
    chunk.ok_or_else(|| {
        format!("`{text}` is not a number of bytes from {} to {}", Chunk::LEAST, Chunk::MAX)
    })
}

impl From<&OnLanes> for headroom_transfer::LaneOptions {
    fn from(on_lanes: &OnLanes) -> Self {
        let OnLanes { cipher, chunk, insecure_measurement, .. } = *on_lanes;
        Self { cipher, chunk, insecure_measurement }
    }
}

/// How big files are verified.
#[derive(Debug, Args)]
pub(crate) struct Verifying {
    /// How to verify files of more than 64 KiB from the sender's reading to the receiver's writing.
    /// Files of which the receiver has a part or an older version, streams (`-`) and files over
    /// several servers or lanes, to stores and from them are always verified by BLAKE3
    #[arg(long, value_enum, value_name = "HOW", default_value = "full")]
    pub(crate) verify: Verify,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Verify {
    /// By BLAKE3, a cryptographic hash
    Full,
    /// By CRC-64/NVME: less CPU time; finds faults, not forgeries
    Fast,
}

/// What to do with symbolic links in a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Links {
    /// Keep links that stay within the tree, leave out others
    Inside,
    /// Keep all links
    Keep,
    /// Leave out all links
    Skip,
    /// Keep links that stay within the tree, fail for others
    Refuse,
    /// Send what links lead to
    Follow,
}

/// What is sent and kept of trees; docs/files.md has a table.
#[derive(Debug, Args)]
pub(crate) struct Trees {
    /// What to do with symbolic links [default: keep for uploads with --ssh, else inside]
    #[arg(long, value_enum, value_name = "WHICH")]
    pub(crate) links: Option<Links>,
    /// Keep hard links
    #[arg(short = 'H', long)]
    pub(crate) hard_links: bool,
    /// Keep extended attributes (user.*)
    #[arg(short = 'X', long)]
    pub(crate) xattrs: bool,
    /// Keep POSIX access control lists
    #[arg(short = 'A', long)]
    pub(crate) acls: bool,
    /// Keep owners, if the receiver is root and allows it
    #[arg(long)]
    pub(crate) owner: bool,
    /// Keep groups, if the receiver may set them and allows it
    #[arg(long)]
    pub(crate) group: bool,
    /// Keep owners and groups by number instead of name
    #[arg(long)]
    pub(crate) numeric_ids: bool,
    /// Send a file that changes while it is read, with a warning, instead of failing; big files
    /// then go on QUIC streams
    #[arg(long)]
    pub(crate) allow_changing: bool,
}

impl Trees {
    /// Returns how trees are sent. `to_own_account`: they are uploaded through ssh.
    pub(crate) fn options(&self, to_own_account: bool) -> TreeOptions {
        let kept = [
            (self.hard_links, Keep::HARD_LINKS),
            (self.xattrs, Keep::XATTRS),
            (self.acls, Keep::ACLS),
            (self.owner, Keep::OWNER),
            (self.group, Keep::GROUP),
            (self.numeric_ids, Keep::NUMERIC_IDS),
        ];
        let kept = kept.into_iter().filter(|(is_kept, _)| *is_kept);
        let keep = kept.fold(Keep::NONE, |all, (_, kept)| all.or(kept));
        let links = match self.links {
            None if to_own_account => headroom_transfer::Links::Keep,
            None | Some(Links::Inside) => headroom_transfer::Links::Inside,
            Some(Links::Keep) => headroom_transfer::Links::Keep,
            Some(Links::Skip) => headroom_transfer::Links::Skip,
            Some(Links::Refuse) => headroom_transfer::Links::Refuse,
            Some(Links::Follow) => headroom_transfer::Links::Follow,
        };
        TreeOptions { keep, links, changing: self.allow_changing, verification: None }
    }
}

/// The options of `put`, `get` and `sync`.
#[derive(Debug, Args)]
pub(crate) struct Moving {
    #[command(flatten)]
    pub(crate) trees: Trees,
    #[command(flatten)]
    pub(crate) connect: Connect,
    #[command(flatten)]
    pub(crate) over_ssh: OverSsh,
    /// Limit the rate, such as 100mbit
    #[arg(long, value_name = "RATE", value_parser = headroom_units::parse_rate)]
    pub(crate) rate: Option<u64>,
    /// The share of the network beside other traffic: scavenger takes what others leave, high up
    /// to as much as two TCP connections
    #[arg(long, value_enum, value_name = "SHARE", default_value = "normal")]
    pub(crate) priority: Priority,
    /// Compress with zstd: auto skips what does not get shorter. Use it when the network is slower
    /// than the processor and the files are text
    #[arg(long, value_enum, value_name = "WHEN", default_value = "never")]
    pub(crate) compress: Compress,
    /// Count a file as stored only when it is on the disk
    #[arg(long)]
    pub(crate) fsync: bool,
    /// Move big files on QUIC streams, not on lanes (UDP packets of our own)
    #[arg(long)]
    pub(crate) streams: bool,
    /// Use all addresses of a host at once, as servers of one store: files are spread over them, as
    /// over servers that are separated by commas
    #[arg(long, conflicts_with = "ssh")]
    pub(crate) spread: bool,
    /// How long to reconnect after the connection was lost: never, forever, or a time such as 90s,
    /// 10m or 2h. Refusals are final, and `-` is not resumed [default: forever if standard error is
    /// a terminal, else never]
    #[arg(long, value_name = "TIME", value_parser = retry)]
    pub(crate) retry: Option<Retry>,
    /// Print events as JSON, one per line
    #[arg(long)]
    pub(crate) json: bool,
}

fn retry(text: &str) -> Result<Retry, String> {
    let seconds = |number: &str, of: u64| number.parse::<u32>().ok().map(|n| u64::from(n) * of);
    let time = match text {
        "never" => return Ok(Retry::Never),
        "forever" => return Ok(Retry::Forever),
        _ => [("s", 1), ("m", 60), ("h", 3600)]
            .into_iter()
            .find_map(|(unit, of)| seconds(text.strip_suffix(unit)?, of)),
    };
    let time = time.ok_or_else(|| {
        format!("`{text}` is not a time, such as 90s, 10m or 2h, nor `never` or `forever`")
    });
    Ok(Retry::For(Duration::from_secs(time?)))
}

/// Send files and directories to a host
#[derive(Debug, Args)]
#[command(after_help = PUT_HELP)]
pub(crate) struct Put {
    /// Files and directories; DIR/. is what is in DIR; `-` alone is standard input
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    /// Destination below the server's root; an IPv6 address in brackets. Over several servers of
    /// one store, separated by commas, files are spread
    #[arg(value_name = "HOST[:PORT]:PATH")]
    pub(crate) to: OsString,
    #[command(flatten)]
    pub(crate) moving: Moving,
    #[command(flatten)]
    pub(crate) on_lanes: OnLanes,
    #[command(flatten)]
    pub(crate) verifying: Verifying,
}

/// Fetch files and directories from a host
#[derive(Debug, Args)]
#[command(after_help = GET_HELP)]
pub(crate) struct Get {
    /// Files and directories below the server's root; DIR/. is what is in DIR. `*`, `?`, `[a-z]`
    /// and `{a,b}` match names there, at most 1024; a backslash escapes them. Over several servers
    /// of one store, separated by commas, files are spread
    #[arg(required = true, value_name = "HOST[:PORT]:PATH")]
    pub(crate) from: Vec<OsString>,
    /// Destination; `-` is standard output, for one file
    #[arg(value_name = "DEST")]
    pub(crate) to: PathBuf,
    #[command(flatten)]
    pub(crate) moving: Moving,
    #[command(flatten)]
    pub(crate) on_lanes: OnLanes,
    #[command(flatten)]
    pub(crate) verifying: Verifying,
}

/// Make the content of one directory that of another; one of the two is on a host
#[derive(Debug, Args)]
#[command(after_help = SYNC_HELP)]
pub(crate) struct Sync {
    /// The source directory: here, or `HOST[:PORT]:PATH`. Over several servers of one store,
    /// separated by commas, files are spread
    #[arg(value_name = "SRC")]
    pub(crate) from: OsString,
    /// The destination directory on the other side, made if it is missing
    #[arg(value_name = "DEST")]
    pub(crate) to: OsString,
    /// Remove what is in DEST and not in SRC, unless it is excluded
    #[arg(long)]
    pub(crate) delete: bool,
    /// Neither send nor remove what matches this pattern, as in a .gitignore; may be repeated
    #[arg(long, value_name = "PATTERN")]
    pub(crate) exclude: Vec<String>,
    /// Change nothing; print what would be sent and removed
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,
    /// Compare files by hash, not by size and time; reads all files on both sides
    #[arg(short, long)]
    pub(crate) checksum: bool,
    /// Send only the parts of a changed file that DEST's version lacks: auto searches files of
    /// 1 MiB and more, on those of more than 64 KiB, off none
    #[arg(long, value_enum, value_name = "WHEN", default_value = "auto")]
    pub(crate) delta: Delta,
    #[command(flatten)]
    pub(crate) moving: Moving,
}

/// List a directory of a host
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Ls {
    /// Also print type, permissions, size and time of change
    #[arg(short)]
    pub(crate) long: bool,
    /// A directory or file below the server's root
    #[arg(value_name = "HOST[:PORT]:PATH")]
    pub(crate) remote: OsString,
    #[command(flatten)]
    pub(crate) connect: Connect,
    #[command(flatten)]
    pub(crate) over_ssh: OverSsh,
    /// Print entries as JSON, one per line
    #[arg(long)]
    pub(crate) json: bool,
}

/// Make directories on a host
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Mkdir {
    /// Make missing parent directories; do not fail if a directory exists
    #[arg(short, long)]
    pub(crate) parents: bool,
    /// Directories to make, below the server's root
    #[arg(required = true, value_name = "HOST[:PORT]:PATH")]
    pub(crate) remotes: Vec<OsString>,
    #[command(flatten)]
    pub(crate) connect: Connect,
    #[command(flatten)]
    pub(crate) over_ssh: OverSsh,
}

/// Rename or move a file or directory on a host
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Mv {
    /// Replace a file or link that has the new name
    #[arg(short, long)]
    pub(crate) force: bool,
    /// What to rename, below the server's root
    #[arg(value_name = "HOST[:PORT]:PATH")]
    pub(crate) from: OsString,
    /// The new name on the same host, or the directory to move it into
    #[arg(value_name = "HOST[:PORT]:NEW")]
    pub(crate) to: OsString,
    #[command(flatten)]
    pub(crate) connect: Connect,
    #[command(flatten)]
    pub(crate) over_ssh: OverSsh,
}

/// Remove files and directories on a host
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Rm {
    /// Remove directories and everything in them; without it, files, links and empty directories
    #[arg(short, long)]
    pub(crate) recursive: bool,
    /// What to remove, below the server's root; no patterns
    #[arg(required = true, value_name = "HOST[:PORT]:PATH")]
    pub(crate) remotes: Vec<OsString>,
    #[command(flatten)]
    pub(crate) connect: Connect,
    #[command(flatten)]
    pub(crate) over_ssh: OverSsh,
    /// Print events as JSON, one per line
    #[arg(long)]
    pub(crate) json: bool,
}

/// Make a link by which somebody without a key fetches or sends files in a browser
#[derive(Debug, Args)]
#[command(after_help = SHARE_HELP)]
pub(crate) struct Share {
    /// A file or directory that a `headroom serve` of yours on this machine serves, or one on a
    /// host; with --list or --revoke a host [default for these: this machine]
    #[arg(value_name = "[HOST[:PORT]:]PATH", required_unless_present_any = ["list", "revoke"])]
    pub(crate) target: Option<OsString>,
    /// How long the link is open, such as 30m, 12h or 7d; up to 366d
    #[arg(long, value_name = "TIME", default_value = "7d", value_parser = expiry)]
    pub(crate) expires: Duration,
    /// Only one browser may use it
    #[arg(long)]
    pub(crate) once: bool,
    /// At most so many browsers may use it, up to 100 [default: any number]
    #[arg(long, value_name = "N", conflicts_with = "once", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) count: Option<u32>,
    /// Let them send files into the directory, each browser into a folder of its own, and see
    /// nothing
    #[arg(long)]
    pub(crate) put: bool,
    /// A note, which the page shows
    #[arg(long, value_name = "TEXT")]
    pub(crate) name: Option<String>,
    /// List the links that you have made and that are open
    #[arg(long, conflicts_with_all = ["revoke", "once", "count", "put", "name"])]
    pub(crate) list: bool,
    /// End a link, and the transfers that use it
    #[arg(long, value_name = "ID", conflicts_with_all = ["once", "count", "put", "name"])]
    pub(crate) revoke: Option<String>,
    #[command(flatten)]
    pub(crate) connect: Connect,
    /// Print the link, or each link, as a line of JSON
    #[arg(long)]
    pub(crate) json: bool,
}

fn expiry(text: &str) -> Result<Duration, String> {
    let longest = 366 * 24 * 3600;
    let seconds = [("s", 1), ("m", 60), ("h", 3600), ("d", 24 * 3600)]
        .into_iter()
        .find_map(|(unit, of)| Some(u64::from(text.strip_suffix(unit)?.parse::<u32>().ok()?) * of))
        .filter(|seconds| (1..=longest).contains(seconds));
    seconds
        .map(Duration::from_secs)
        .ok_or_else(|| format!("`{text}` is not a time up to 366d, such as 30m, 12h or 7d"))
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

/// Print your public key; it is made if there is none
#[derive(Debug, Args)]
pub(crate) struct Identity {
    #[command(subcommand)]
    pub(crate) command: Option<IdentityCommand>,
    /// The key file [default: ~/.config/headroom/identity]
    #[arg(long, value_name = "FILE", global = true)]
    pub(crate) identity: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, Subcommand)]
pub(crate) enum IdentityCommand {
    /// Print the public key for authorized_keys, and its fingerprint
    Show,
    /// Make a key; fails if there is one
    New,
}

/// Trust a host from now on, after comparing its fingerprint
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Trust {
    /// The host; an IPv6 address in brackets
    #[arg(value_name = "HOST[:PORT]")]
    pub(crate) host: String,
    #[command(flatten)]
    pub(crate) connect: Connect,
}

const UI_HELP: &str = "The page has two panes: this machine and a server. Copies and syncs between them are those of put, get and \
sync, and go on while the page is closed. It also starts and shows runs of the lab, with plans in ./plans \
and results in ./results, and shows and controls the jobs of `headroom fleet`. Runs until Ctrl-C or the page's \
Quit button.

Only this machine reaches the page, and the printed address has a secret: who has it can read and write \
your files.

Examples:
  headroom ui
  headroom ui nas backup.example:4860
  headroom ui user@host
  headroom ui --fleet archive.toml";

/// Show this machine and servers side by side in a browser, and move files between them
#[derive(Debug, Args)]
#[command(after_help = UI_HELP)]
pub(crate) struct Ui {
    /// Servers to show: those that run `headroom serve`, and with USER@ those that ssh reaches. The
    /// page adds others
    #[arg(value_name = "[USER@]HOST[:PORT]")]
    pub(crate) servers: Vec<String>,
    /// Listen at this TCP address, which must be one of this machine alone
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:0")]
    pub(crate) listen: SocketAddr,
    /// Show the job of this file, whose queue is at NATS, or of this folder with its state, besides
    /// those in ~/.local/state/headroom/fleet
    #[arg(long = "fleet", value_name = "JOB.toml")]
    pub(crate) fleets: Vec<PathBuf>,
    /// Print the page's address, and start no browser
    #[arg(long)]
    pub(crate) no_open: bool,
    /// Your key file, made if it is missing [default: ~/.config/headroom/identity]
    #[arg(long, value_name = "FILE")]
    pub(crate) identity: Option<PathBuf>,
    /// The ssh command with its options [default: `$HEADROOM_SSH`, else ssh]
    #[arg(long, value_name = "COMMAND")]
    pub(crate) ssh_command: Option<String>,
    /// Print a JSON line with the page's address
    #[arg(long)]
    pub(crate) json: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_a_range_and_chunks_are_bounded() {
        assert_eq!(ports("20000-20255"), Ok(20000..=20255));
        assert_eq!(ports("7-7"), Ok(7..=7));
        for wrong in ["", "20000", "20255-20000", "0-7", "1-65536", "a-b", "-"] {
            assert!(ports(wrong).is_err(), "{wrong}");
        }
        assert_eq!(chunk("200").map(Chunk::bytes), Ok(200));
        assert_eq!(chunk("4000").map(Chunk::bytes), Ok(4000));
        for wrong in ["", "199", "4001", "1k", "-200"] {
            assert!(chunk(wrong).is_err_and(|error| error.contains("200 to 4000")), "{wrong}");
        }
    }

    #[test]
    fn a_timeout_is_a_time_up_to_thirty_seconds() {
        assert_eq!(timeout("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(timeout("30s"), Ok(Duration::from_secs(30)));
        for wrong in ["", "10", "0s", "31s", "-1s", "1h"] {
            assert!(timeout(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn retries_are_a_time_or_never_or_forever() {
        let of = |seconds| Ok(Retry::For(Duration::from_secs(seconds)));
        assert_eq!((retry("90s"), retry("10m"), retry("2h")), (of(90), of(600), of(7200)));
        assert_eq!((retry("never"), retry("forever")), (Ok(Retry::Never), Ok(Retry::Forever)));
        for wrong in ["", "10", "m", "-1m", "1d", "1.5h", "always"] {
            assert!(retry(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_share_expires_after_a_time_up_to_a_year() {
        let hours = |hours: u64| Ok(Duration::from_secs(hours * 3600));
        assert_eq!(
            (expiry("60m"), expiry("7d"), expiry("366d")),
            (hours(1), hours(168), hours(8784))
        );
        for wrong in ["", "7", "0s", "367d", "-1d", "1w", "1.5h", "never"] {
            assert!(expiry(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn ages_are_days_or_hours() {
        let hours = |hours: u64| Ok(Age(Some(Duration::from_secs(hours * 3600))));
        assert_eq!((age("30d"), age("12h"), age("0d")), (hours(720), hours(12), hours(0)));
        assert_eq!(age("never"), Ok(Age(None)));
        for wrong in ["", "d", "30", "-1d", "1w", "1.5d"] {
            assert!(age(wrong).is_err(), "{wrong}");
        }
    }
}
