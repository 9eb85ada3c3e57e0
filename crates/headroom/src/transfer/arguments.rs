//! What one can type after `headroom serve`, `put`, `get`, `ls`, `identity` and `trust`.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use headroom_transfer::server::Allow;
use headroom_transfer::{Chunk, Cipher, Fingerprint, Keep, Retry, TreeOptions};

/// The exit codes of all of these commands.
pub(crate) const EXIT_CODES: &str = "Exit codes:
    0  everything asked for was done
    1  something was not: a file or directory, here or on the server, is missing or cannot be read or
       written (each is named)
    2  wrong arguments or configuration
    3  the host cannot be reached, or the connection was lost
    4  the host is not trusted
    5  the server refuses: it does not know this key, or the key may not do this
  130  interrupted";

#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// The directory that clients see; nothing outside it is read or written
    #[arg(long, value_name = "DIR")]
    pub(crate) root: PathBuf,
    /// Where to listen (UDP) [default: port 4860 of all addresses]
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) listen: Option<SocketAddr>,
    /// Who may come in [default: ~/.config/headroom/authorized_keys]
    #[arg(long, value_name = "FILE")]
    pub(crate) authorized_keys: Option<PathBuf>,
    /// Let in whoever has a certificate that is signed by one of these (PEM)
    #[arg(long, value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
    /// What anybody else may do
    #[arg(long, value_enum, value_name = "WHAT")]
    pub(crate) anonymous: Option<Anonymous>,
    /// Move no more than so many bits of files per second each way, for all clients together
    #[arg(long, value_name = "RATE", value_parser = headroom_units::parse_rate)]
    pub(crate) rate: Option<u64>,
    /// Remove what came of transfers that nobody went on with for so long, at the start and once a
    /// day: days or hours, such as 30d or 12h, or never
    #[arg(long, value_name = "AGE", default_value = "30d", value_parser = age)]
    pub(crate) keep_partial: Age,
    /// Let clients that may write also do this, separated by commas: owner and group give files
    /// away, links lead out of the tree that is sent
    #[arg(long, value_enum, value_name = "WHAT", value_delimiter = ',')]
    pub(crate) allow: Vec<Allowed>,
    /// The server's key, made where it is missing [default: ~/.config/headroom/identity]
    #[arg(long, value_name = "FILE")]
    pub(crate) identity: Option<PathBuf>,
    /// Take and send big files on QUIC streams only, not on lanes
    #[arg(long)]
    pub(crate) streams: bool,
    /// Receive big files at these UDP ports, one for each transfer in turn, such as 20000-20255,
    /// not at the one port where it listens. A firewall has to let all of them through
    #[arg(long, value_name = "FIRST-LAST", value_parser = ports, conflicts_with = "streams")]
    pub(crate) lane_ports: Option<RangeInclusive<u16>>,
    /// INSECURE: allow clients that ask for it to send and fetch big files WITHOUT ENCRYPTION
    /// (--cipher none and simplecrypt), and in packets of a given length (--chunk). For measurement
    #[arg(long)]
    pub(crate) insecure_measurement: bool,
    /// Append a line to this file for each request that has ended [default: standard error]
    #[arg(long, value_name = "FILE")]
    pub(crate) log: Option<PathBuf>,
    /// How these lines are written
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "text")]
    pub(crate) log_format: LogFormat,
    /// Print a JSON line when it listens
    #[arg(long)]
    pub(crate) json: bool,
}

/// What clients that may write may do beyond content, permissions and times.
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
    /// What clients may do.
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
    /// Words KEY=VALUE behind the time, what clients choose in quotes and escaped
    Text,
    /// An object a line
    Json,
}

fn ports(text: &str) -> Result<RangeInclusive<u16>, String> {
    let numbers = text.split_once('-').and_then(|(first, last)| {
        let (first, last): (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
        (first > 0 && first <= last).then_some(first..=last)
    });
    numbers.ok_or_else(|| format!("`{text}` is no range of ports, such as 20000-20255"))
}

/// How long something is kept; none is for ever.
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
    /// See and fetch everything
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

/// Whom to be, and whom to trust.
#[derive(Debug, Args)]
pub(crate) struct Connect {
    /// Your key, made where it is missing [default: ~/.config/headroom/identity]
    #[arg(long, value_name = "FILE")]
    pub(crate) identity: Option<PathBuf>,
    /// Trust a host that was not met before if its key has this fingerprint
    #[arg(long, value_name = "SHA256:…")]
    pub(crate) fingerprint: Option<Fingerprint>,
    /// Trust hosts whose certificate for their name is signed by one of these (PEM)
    #[arg(long, value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
    /// Give up when the host does not answer for this long, at each of its addresses; up to 30s.
    /// A closed port and a host that is not there are told at once
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = timeout)]
    pub(crate) timeout: Duration,
}

fn timeout(text: &str) -> Result<Duration, String> {
    let longest = Duration::from_secs(30);
    match headroom_units::parse_duration(text)? {
        Duration::ZERO => Err("nobody answers in no time: say 10s, for example".to_owned()),
        time if time > longest => Err(format!("`{text}` is longer than {longest:?}")),
        time => Ok(time),
    }
}

/// A server for this transfer alone.
#[derive(Debug, Args)]
pub(crate) struct OverSsh {
    /// Start the server through ssh, for this transfer alone: nothing else need be installed or
    /// trusted, and paths are those of scp
    #[arg(long, conflicts_with_all = ["identity", "fingerprint", "ca"])]
    pub(crate) ssh: bool,
    /// The command of ssh, with options [default: `$HEADROOM_SSH`, else ssh]
    #[arg(long, value_name = "COMMAND", requires = "ssh")]
    pub(crate) ssh_command: Option<String>,
}

/// How lanes are to be. For measurements, but for the ciphers that are.
#[derive(Debug, Args)]
pub(crate) struct OnLanes {
    /// The cipher of big files: aes-128-gcm, aes-256-gcm or chacha20-poly1305 [default: what both
    /// sides do fastest]; or none or simplecrypt, which are NO ENCRYPTION, for measurement
    #[arg(long, value_name = "CIPHER", conflicts_with = "streams")]
    pub(crate) cipher: Option<Cipher>,
    /// Put so many octets of a big file into each packet, 200 to 4000, whatever the path takes: for
    /// measurement. Longer packets than it takes travel as IP fragments
    #[arg(long, value_name = "OCTETS", value_parser = chunk, conflicts_with = "streams")]
    pub(crate) chunk: Option<Chunk>,
    /// INSECURE: allow ciphers that are none, and chunks, for measurement, where the server does
    #[arg(long, conflicts_with = "ssh")]
    pub(crate) insecure_measurement: bool,
}

fn chunk(text: &str) -> Result<Chunk, String> {
    let chunk = text.parse().ok().and_then(Chunk::new);
    chunk.ok_or_else(|| {
        format!("`{text}` is no number of octets from {} to {}", Chunk::LEAST, Chunk::MOST)
    })
}

impl From<&OnLanes> for headroom_transfer::LaneOptions {
    fn from(on_lanes: &OnLanes) -> Self {
        let OnLanes { cipher, chunk, insecure_measurement } = *on_lanes;
        Self { cipher, chunk, insecure_measurement }
    }
}

/// What becomes of symbolic links in a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Links {
    /// Keep those that lead to a place within the tree, leave out others
    Inside,
    /// Keep all as they are
    Keep,
    /// Leave out all
    Skip,
    /// Keep those that lead to a place within the tree, fail for others
    Refuse,
    /// Send what they lead to
    Follow,
}

/// What of trees is sent and kept; docs/files.md has a table.
#[derive(Debug, Args)]
pub(crate) struct Trees {
    /// What becomes of symbolic links [default: keep for what goes to one's own account by --ssh,
    /// else inside]
    #[arg(long, value_enum, value_name = "WHICH")]
    pub(crate) links: Option<Links>,
    /// Keep several names of one file as hard links
    #[arg(short = 'H', long)]
    pub(crate) hard_links: bool,
    /// Keep extended attributes (user.*)
    #[arg(short = 'X', long)]
    pub(crate) xattrs: bool,
    /// Keep POSIX access control lists
    #[arg(short = 'A', long)]
    pub(crate) acls: bool,
    /// Keep owners, where the receiver is root and allows it
    #[arg(long)]
    pub(crate) owner: bool,
    /// Keep groups, where the receiver may set and allows them
    #[arg(long)]
    pub(crate) group: bool,
    /// Keep owners and groups by number, not by name
    #[arg(long)]
    pub(crate) numeric_ids: bool,
    /// Send a file that changes while it is read as it is read, and warn; big files go on QUIC
    /// streams then
    #[arg(long)]
    pub(crate) allow_changing: bool,
}

impl Trees {
    /// How trees are sent; `to_own_account` is whether they go where ssh lets the user in.
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
        TreeOptions { keep, links, changing: self.allow_changing }
    }
}

/// How files are moved.
#[derive(Debug, Args)]
pub(crate) struct Moving {
    #[command(flatten)]
    pub(crate) trees: Trees,
    #[command(flatten)]
    pub(crate) connect: Connect,
    #[command(flatten)]
    pub(crate) over_ssh: OverSsh,
    /// Move no more than so many bits of files per second, such as 100mbit
    #[arg(long, value_name = "RATE", value_parser = headroom_units::parse_rate)]
    pub(crate) rate: Option<u64>,
    /// Compress what goes over the network (zstd): auto leaves alone what does not become shorter.
    /// Worth it where the network is slower than the processor compresses and the files are text
    #[arg(long, value_enum, value_name = "WHEN", default_value = "never")]
    pub(crate) compress: Compress,
    /// Count a file as stored only when it is written through to the disk
    #[arg(long)]
    pub(crate) fsync: bool,
    /// Send big files on QUIC streams only, not on lanes
    #[arg(long)]
    pub(crate) streams: bool,
    /// How long to reconnect when the connection is lost: never, forever, or a time such as 90s,
    /// 10m or 2h. A refusal is final, and what goes through a pipe is not resumed [default: forever
    /// where standard error is a terminal, else never]
    #[arg(long, value_name = "TIME", value_parser = retry)]
    pub(crate) retry: Option<Retry>,
    /// Print JSON: what happens, an event a line
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

#[derive(Debug, Args)]
pub(crate) struct Put {
    /// Files and directories; of DIR/. what is in it; `-` alone is standard input
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    /// Where to, below the server's root: `HOST[:PORT]:PATH`, an IPv6 address in brackets
    #[arg(value_name = "HOST[:PORT]:PATH")]
    pub(crate) to: OsString,
    #[command(flatten)]
    pub(crate) moving: Moving,
    #[command(flatten)]
    pub(crate) on_lanes: OnLanes,
}

#[derive(Debug, Args)]
pub(crate) struct Get {
    /// Files and directories below the server's root; of DIR/. what is in it. `*`, `?`, `[a-z]` and
    /// `{a,b}` match names there, 1024 at most; a backslash before one takes it as it is
    #[arg(required = true, value_name = "HOST[:PORT]:PATH")]
    pub(crate) from: Vec<OsString>,
    /// Where to; `-` is standard output, for one file
    #[arg(value_name = "DEST")]
    pub(crate) to: PathBuf,
    #[command(flatten)]
    pub(crate) moving: Moving,
    #[command(flatten)]
    pub(crate) on_lanes: OnLanes,
}

#[derive(Debug, Args)]
pub(crate) struct Sync {
    /// The directory whose content is sent: here, or `HOST[:PORT]:PATH`
    #[arg(value_name = "SRC")]
    pub(crate) from: OsString,
    /// The directory that it becomes the content of, on the other side; made where it is missing
    #[arg(value_name = "DEST")]
    pub(crate) to: OsString,
    /// Remove what is in DEST and not in SRC, unless it is excluded
    #[arg(long)]
    pub(crate) delete: bool,
    /// Neither send nor remove what matches, as in a .gitignore; may be said again
    #[arg(long, value_name = "PATTERN")]
    pub(crate) exclude: Vec<String>,
    /// Change nothing, and print what would be sent and removed
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,
    /// Read all files on both sides and compare their hashes, not size and time
    #[arg(short, long)]
    pub(crate) checksum: bool,
    #[command(flatten)]
    pub(crate) moving: Moving,
}

#[derive(Debug, Args)]
pub(crate) struct Ls {
    /// Kind, permissions, octets and time of change, too
    #[arg(short)]
    pub(crate) long: bool,
    /// A directory or file below the server's root
    #[arg(value_name = "HOST[:PORT]:PATH")]
    pub(crate) remote: OsString,
    #[command(flatten)]
    pub(crate) connect: Connect,
    #[command(flatten)]
    pub(crate) over_ssh: OverSsh,
    /// Print JSON, an entry a line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Mkdir {
    /// Make the directories above it, too, and do not mind one that is there
    #[arg(short, long)]
    pub(crate) parents: bool,
    /// Directories to be made, below the server's root
    #[arg(required = true, value_name = "HOST[:PORT]:PATH")]
    pub(crate) remotes: Vec<OsString>,
    #[command(flatten)]
    pub(crate) connect: Connect,
    #[command(flatten)]
    pub(crate) over_ssh: OverSsh,
}

#[derive(Debug, Args)]
pub(crate) struct Mv {
    /// Replace a file or link that has the new name
    #[arg(short, long)]
    pub(crate) force: bool,
    /// What is to be renamed, below the server's root
    #[arg(value_name = "HOST[:PORT]:PATH")]
    pub(crate) from: OsString,
    /// Its new name on the same host, or the directory that it is moved into
    #[arg(value_name = "HOST[:PORT]:NEW")]
    pub(crate) to: OsString,
    #[command(flatten)]
    pub(crate) connect: Connect,
    #[command(flatten)]
    pub(crate) over_ssh: OverSsh,
}

#[derive(Debug, Args)]
pub(crate) struct Rm {
    /// Remove directories with all that is in them; without it, files, links and empty directories
    #[arg(short, long)]
    pub(crate) recursive: bool,
    /// What is to be removed, below the server's root; no patterns
    #[arg(required = true, value_name = "HOST[:PORT]:PATH")]
    pub(crate) remotes: Vec<OsString>,
    #[command(flatten)]
    pub(crate) connect: Connect,
    #[command(flatten)]
    pub(crate) over_ssh: OverSsh,
    /// Print JSON: what happens, an event a line
    #[arg(long)]
    pub(crate) json: bool,
}

/// The far end of `--ssh`.
#[derive(Debug, Args)]
pub(crate) struct ServeOnce {
    /// Say what this program can do, and end
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

#[derive(Debug, Args)]
pub(crate) struct Identity {
    #[command(subcommand)]
    pub(crate) command: Option<IdentityCommand>,
    /// Where the key is [default: ~/.config/headroom/identity]
    #[arg(long, value_name = "FILE", global = true)]
    pub(crate) identity: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, Subcommand)]
pub(crate) enum IdentityCommand {
    /// Print the public key, as authorized_keys has it, and its fingerprint
    Show,
    /// Make a key where there is none
    New,
}

#[derive(Debug, Args)]
pub(crate) struct Trust {
    /// The host: `HOST[:PORT]`, an IPv6 address in brackets
    #[arg(value_name = "HOST[:PORT]")]
    pub(crate) host: String,
    #[command(flatten)]
    pub(crate) connect: Connect,
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
        assert_eq!(chunk("200").map(Chunk::octets), Ok(200));
        assert_eq!(chunk("4000").map(Chunk::octets), Ok(4000));
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
    fn ages_are_days_or_hours() {
        let hours = |hours: u64| Ok(Age(Some(Duration::from_secs(hours * 3600))));
        assert_eq!((age("30d"), age("12h"), age("0d")), (hours(720), hours(12), hours(0)));
        assert_eq!(age("never"), Ok(Age(None)));
        for wrong in ["", "d", "30", "-1d", "1w", "1.5d"] {
            assert!(age(wrong).is_err(), "{wrong}");
        }
    }
}
